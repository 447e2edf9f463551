"""Settings and statements that are for PostgreSQL alone.

The engine replaces a connection that broke while it was idle.  An operation of the broker fails
after ``TIMEOUT`` seconds if the server does not answer, because its machine or the network is down
or stands still, or if another transaction holds a lock for longer.  Only ``lock``, for migrations,
waits without a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import URL, Connection, func, select, text
from sqlalchemy.exc import DBAPIError
from twisted.logger import Logger

DIALECT: Final = "postgresql"

#: Seconds to wait for a lock, for a free connection of the pool, and for a silent server.
TIMEOUT: Final = 15

#: Seconds to wait for a connection to one of the hosts in the URL; then the next one is tried.
CONNECT_TIMEOUT: Final = 5

#: Seconds after which the server ends a transaction of the broker in which nothing happens: its
#: process stands still, and others wait for the rows that it has locked.
IDLE_TIMEOUT: Final = 8

#: The size of the pool: one connection for each thread of the store.
CONNECTIONS: Final = 5

#: The number of the advisory lock that a process holds while it migrates: the bytes "rsscloud".
#: Nothing else in the database may use this number.
_MIGRATION: Final = 0x7273_7363_6C6F_7564

#: What the server calls a transaction that it ended so that others could go on: SQLSTATE
#: serialization_failure and deadlock_detected ("PostgreSQL Error Codes", class 40).  And of one
#: that inserted a row which another transaction had just inserted: unique_violation and
#: exclusion_violation (class 23).
_GAVE_WAY: Final = frozenset({"40001", "40P01", "23505", "23P01"})

_log = Logger()

#: Parameters of libpq, unless the URL sets them.
_CONNECT_ARGS: Final[dict[str, Any]] = {
    "application_name": "rsscloud-broker",
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives_idle": TIMEOUT,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": TIMEOUT * 1000,
}

_LOCK_TIMEOUT: Final = f"-c lock_timeout={TIMEOUT}s"
_IDLE_TIMEOUT: Final = f"-c idle_in_transaction_session_timeout={IDLE_TIMEOUT}s"


def gave_way(error: DBAPIError) -> bool:
    """Whether the server ended a transaction because another one was quicker.

    The database is in order then, and the transaction should simply be run again.
    """
    return getattr(error.orig, "sqlstate", None) in _GAVE_WAY


def engine_options(url: URL, *, of_broker: bool) -> dict[str, Any]:
    """The keyword arguments of ``create_engine`` for a PostgreSQL database.

    :param of_broker: see ``engine.open_engine``.
    """
    options = [_LOCK_TIMEOUT, _IDLE_TIMEOUT] if of_broker else [_LOCK_TIMEOUT]
    options += url.normalized_query.get("options", ())  # the server heeds the last of each
    parameters = {name: value for name, value in _CONNECT_ARGS.items() if name not in url.query}
    return {
        "pool_pre_ping": True,
        "pool_size": CONNECTIONS,
        "max_overflow": 0,
        "pool_timeout": TIMEOUT,
        "connect_args": parameters | {"options": " ".join(options)},
    }


def lock_out_others(connection: Connection, digests: Sequence[bytes]) -> None:
    """Make other transactions wait that lock any of these digests, until this one ends.

    So of two nodes that take the same ping in at the same time one sees that of the other.  The
    server has room for ``max_locks_per_transaction`` (64) times ``max_connections`` such locks.

    :param digests: hashes of 8 bytes or more.
    """
    # In one order, so that no two transactions wait for each other.
    keys = sorted({int.from_bytes(digest[:8], "big", signed=True) for digest in digests})
    connection.execute(_LOCK_KEYS, {"keys": keys})


_LOCK_KEYS: Final = text(
    "SELECT count(pg_advisory_xact_lock(key)) FROM unnest(CAST(:keys AS bigint[])) AS key"
)


def lock(connection: Connection) -> None:
    """Take the lock for migrations, and hold it until the transaction ends.

    If another process holds the lock, this waits until that one has finished, however long its
    migration takes.
    """
    if connection.execute(select(func.pg_try_advisory_xact_lock(_MIGRATION))).scalar_one():
        return
    _log.info("Another process migrates the database. The broker waits until it has finished.")
    timeout = connection.execute(select(func.current_setting("lock_timeout"))).scalar_one()
    connection.execute(select(func.set_config("lock_timeout", "0", True)))
    connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION)))
    connection.execute(select(func.set_config("lock_timeout", timeout, True)))
