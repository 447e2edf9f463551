"""Finds out whether brokers that do not belong together work on one PostgreSQL.

Brokers on one database are a *cluster*: they share all work, and tell others the same public URL.
If two brokers have different public URLs, one of them has been given the database of the other by
mistake.  So each broker holds a shared advisory lock whose number follows from its public URL, on
the connection of its heartbeat, for as long as that connection lives; and looks for locks of the
same class with other numbers.  The name of the connection has the public URL, for people.

Brokers whose public URL is not set or names their own machine are a cluster, too: those of a laptop
differ only by their ports.  None of them may work with others: it would tell their subscribers
addresses that lead nowhere.

On SQLite there is one broker, and nothing to do.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from sqlalchemy import Connection, text

from rsscloud_broker.database.postgresql import APPLICATION
from rsscloud_broker.database.sqlite import serves
from rsscloud_broker.model.hosts import host_of
from rsscloud_broker.policy.addresses import is_loopback

#: The class of the locks: the bytes "rssc".  Nothing else in the database may use this class.
_CLASS: Final = 0x7273_7363

#: The name of the cluster of all whose public URL leads nowhere on other machines.
_OWN: Final = "(this machine)"

_OTHERS: Final = text(
    "SELECT DISTINCT application_name FROM pg_locks LEFT JOIN pg_stat_activity USING (pid)"
    " WHERE locktype = 'advisory' AND objsubid = 2 AND classid = :class AND objid <> :number"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " ORDER BY application_name"
)


def name_of(public_url: str | None) -> str:
    """The name by which the brokers of a cluster know each other: their public URL.

    :param public_url: as it is in the configuration.
    :returns: the URL, or other words if it leads nowhere on other machines.
    """
    host = host_of(public_url or "")
    is_own = not host or host == "localhost" or is_loopback(host)
    return _OWN if is_own else str(public_url)


def join(connection: Connection, name: str) -> None:
    """Take the lock of a cluster, and name the connection, as long as the connection lives: so
    others see that this process belongs to it.

    :param connection: a connection to PostgreSQL that commits each statement by itself.
    """
    called = text("SELECT set_config('application_name', :name, false)")
    # PostgreSQL cuts names of more than 63 bytes.
    connection.execute(called, {"name": f"{APPLICATION} {name}"[:63]})
    lock = text("SELECT pg_advisory_lock_shared(CAST(:class AS int), CAST(:number AS int))")
    connection.execute(lock, {"class": _CLASS, "number": _number(name)})


def others(connection: Connection, name: str) -> list[str]:
    """The clusters with other names that work on a database, as far as their names are known.

    :param name: the name of this process's cluster.
    """
    if serves(connection):
        return []
    found = connection.execute(_OTHERS, {"class": _CLASS, "number": _number(name)}).scalars()
    return [(each or "").removeprefix(APPLICATION).strip() or "an unknown one" for each in found]


def sentence(name: str, found: list[str]) -> str:
    """A sentence that says what is wrong, and what to do about it.

    :param found: the names of other clusters.
    """
    return (
        f"brokers with another public_url work on it: {', '.join(found)}. This broker has {name}. "
        "All brokers on one database must have the same, since they share all work. Correct "
        "public_url, or give this broker a database of its own. To change the public_url, "
        "stop all brokers first"
    )


def _number(name: str) -> int:
    """The number of a cluster's lock: 31 bits, so that it is the same as an int and as an oid."""
    return int.from_bytes(sha256(name.encode()).digest()[:4]) >> 1
