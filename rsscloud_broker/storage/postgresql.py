"""Everything that only PostgreSQL understands.

A connection that broke while nobody used it is replaced before anybody notices.  A server
that does not answer any more, since its machine is gone or the network is cut, is given up
after half a minute, as is a lock that another transaction holds for longer.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import URL, Connection, func, select

DIALECT: Final = "postgresql"

#: Seconds to wait: for a connection, a lock, a connection that is free, a server that is silent.
TIMEOUT: Final = 30

#: Connections that are kept: one for each thread of the store.
CONNECTIONS: Final = 5

#: The number of the lock that a process holds while it migrates; any number that nobody else
#: uses in this database would do.
_MIGRATION: Final = 0x7273_7363_6C6F_7564

#: What libpq is told, unless the URL says otherwise.
_CONNECT_ARGS: Final[dict[str, Any]] = {
    "application_name": "rsscloud-broker",
    "connect_timeout": TIMEOUT,
    "keepalives_idle": TIMEOUT,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": TIMEOUT * 1000,
    "options": f"-c lock_timeout={TIMEOUT}s -c idle_in_transaction_session_timeout={TIMEOUT}s",
}


def engine_options(url: URL) -> dict[str, Any]:
    """What ``create_engine`` needs to be told."""
    return {
        "pool_pre_ping": True,
        "pool_size": CONNECTIONS,
        "max_overflow": 0,
        "pool_timeout": TIMEOUT,
        "connect_args": {
            name: value for name, value in _CONNECT_ARGS.items() if name not in url.query
        },
    }


def lock(connection: Connection) -> None:
    """Hold the lock for migrations until the transaction ends."""
    connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION)))
