"""Settings and statements that are for PostgreSQL alone.

The engine replaces a connection that broke while it was idle.  An operation of the broker fails
after ``TIMEOUT`` seconds if the server does not answer, because its machine or the network is down
or stands still.  A little earlier the server itself ends a statement that takes too long, and
before that one that waits for a lock: otherwise it would go on with what nobody waits for.
Commands and migrations have time; only for a lock they wait no longer than the broker does, and
``lock``, for migrations, waits without a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from importlib import import_module
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, ExceptionContext, Table, event, func, select, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from twisted.logger import Logger

from rsscloud_broker.errors import StoreUnavailable

DIALECT: Final = "postgresql"

#: The name of the broker's connections; that of its heartbeat has the public URL behind it.
APPLICATION: Final = "rsscloud-broker"

#: Seconds to wait for a free connection of the pool, and for a silent server.
TIMEOUT: Final = 15

#: The most operations in one transaction.  Each ping takes an advisory lock, and the server has
#: room for 64 locks for each connection that it allows (``max_locks_per_transaction`` times
#: ``max_connections``).  Each node has seven connections, so there is always room.
GROUP_LIMIT: Final = 250

#: The number of the advisory lock that a process holds while it migrates: the bytes "rsscloud".
#: Nothing else in the database may use this number.
_MIGRATION: Final = 0x7273_7363_6C6F_7564

#: What the server calls a transaction that it ended so that others could go on: SQLSTATE
#: serialization_failure and deadlock_detected ("PostgreSQL Error Codes", class 40).  And of one
#: that inserted a row which another transaction had just inserted, or that refers to one which
#: another had just removed: unique_violation, exclusion_violation and foreign_key_violation (class
#: 23).
_GAVE_WAY: Final = frozenset({"40001", "40P01", "23503", "23505", "23P01"})

#: The SQLSTATE of a statement that the server ended: query_canceled.
_ENDED: Final = "57014"

_log = Logger()

#: Parameters of libpq, unless the URL sets them.
_CONNECT_ARGS: Final[dict[str, Any]] = {
    "application_name": APPLICATION,
    "connect_timeout": 5,  # seconds; then the next of the hosts in the URL is tried
    "keepalives_idle": TIMEOUT,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": TIMEOUT * 1000,
}

#: The option of a connection that lifts the limit for a statement.
_NO_TIMEOUT: Final = "-c statement_timeout=0"

#: Sets time limits of a session.  Those in the URL came with the connection, and stay.
_SET_LIMITS: Final = (
    "SELECT set_config(name, wanted.value, false)"
    " FROM unnest(%s::text[], %s::text[]) AS wanted (name, value) JOIN pg_settings USING (name)"
    " WHERE source <> 'client'"
)


def gave_way(error: DBAPIError) -> bool:
    """Whether the server ended a transaction because another one was quicker.

    The database is in order then, and the transaction should simply be run again.
    """
    return getattr(error.orig, "sqlstate", None) in _GAVE_WAY


def engine_options(url: URL, *, of_broker: bool) -> dict[str, Any]:
    """The keyword arguments of ``create_engine`` for a PostgreSQL database.

    :param of_broker: False for a command, whose statements take as long as they need, whatever the
        URL says.
    """
    parameters = {name: value for name, value in _CONNECT_ARGS.items() if name not in url.query}
    if of_url := url.normalized_query.get("options", ()):
        # Of several options with the same name the server obeys the last.
        parameters["options"] = " ".join(of_url if of_broker else [*of_url, _NO_TIMEOUT])
    return {
        "pool_pre_ping": True,
        # The size of the pool: one connection for each thread of the store.
        "pool_size": 5,
        "max_overflow": 0,
        "pool_timeout": TIMEOUT,
        "connect_args": parameters,
    }


def set_limits(engine: Engine, *, silence: float | None) -> None:
    """Set the time limits of the server for each connection of an engine, unless the URL sets them.

    A statement sets them once the connection is made: pgbouncer lets no options through with which
    a connection would begin.

    :param silence: the seconds after which the broker gives up on a server that does not answer;
        None for a command, which waits as long as its statements take.
    """
    limits = {"lock_timeout": "12s", "statement_timeout": "0"}
    if silence is not None:
        # The server ends a transaction in which nothing happens for this many seconds: its process
        # stands still, and others wait for the rows that it has locked.
        limits["idle_in_transaction_session_timeout"] = "8s"
        # A little earlier, or the server would go on with a statement for which nobody waits.
        limits["statement_timeout"] = f"{int(silence * 0.95 * 1000)}ms"

    def set_them(connection: DBAPIConnection, record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(_SET_LIMITS, (list(limits), list(limits.values())))
        cursor.close()
        connection.commit()

    event.listen(engine, "connect", set_them)


#: How many characters of a statement are shown to people.
_LONGEST_SHOWN: Final = 300

#: What to do about an error: words of the server or of libpq, and the advice.
_ADVICE: Final = (
    (('database "',), "Make that database (createdb), or correct its name in the URL."),
    (
        ('role "', "authentication failed", "pg_hba.conf", "no password supplied"),
        "Correct the user and the password in the URL, or have the server let them in (createuser, "
        "pg_hba.conf).",
    ),
    (
        ("permission denied", "must be owner"),
        "Use the role that owns the tables, or grant this one the rights that check-config names.",
    ),
    (("resolve host", "translate host name"), "Correct the host in the URL."),
    (
        ("too many clients", "connection slots"),
        "Raise max_connections of the server, or end programs that use it.",
    ),
    (
        ("session is read-only", "session is not read-only", "not in hot standby", "read-only"),
        "Name the server that takes changes, or several with target_session_attrs=read-write.",
    ),
    (
        ("statement timeout",),
        "See whether the server or its disk has too much to do, and have it count the rows of its "
        "tables (VACUUM ANALYZE), so that it plans statements well. If it goes on, report it.",
    ),
    (
        ("query_wait_timeout", "max_client_conn"),
        "Raise default_pool_size or max_client_conn of pgbouncer, or end programs that use it.",
    ),
    (("statement pooling mode",), "Set pool_mode = session in pgbouncer for this database."),
    (
        ("unsupported startup parameter",),
        "Take what pgbouncer does not know, such as options=, out of the URL.",
    ),
    (
        ("has not answered", "does not answer"),
        "See whether the server stands still, and whether the network between is in order.",
    ),
    (
        ("connection failed", "connection is bad", "connection timeout", "timeout expired"),
        "See whether the server runs, and whether the URL has its host and its port.",
    ),
)


def report_ended(engine: Engine) -> None:
    """Log which statement it was whenever the server ends one that takes too long."""

    def report(context: ExceptionContext) -> None:
        error = context.sqlalchemy_exception
        if isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) == _ENDED:
            words = " ".join((error.statement or "").split())
            shown = words if len(words) <= _LONGEST_SHOWN else f"{words[:_LONGEST_SHOWN]}..."
            _log.error(
                "PostgreSQL ended a statement of the broker: {reason}. {advice} The statement, "
                "without its values: {statement}",
                reason=str(error.orig).strip(),
                advice=advice(str(error.orig)),
                statement=shown,
            )

    event.listen(engine, "handle_error", report)


def advice(error: str) -> str:
    """What to do about an error, as a sentence."""
    for words, sentence in _ADVICE:
        if any(each in error for each in words):
            return sentence
    return "Look for a full disk, or another program that holds a lock."


def lock_out_others(connection: Connection, digests: Sequence[bytes]) -> None:
    """Make other transactions wait that lock any of these digests, until this one ends.

    So of two nodes that take the same ping in at the same time one sees that of the other.
    ``GROUP_LIMIT`` says why there is room for these locks.

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
    if try_lock(connection):
        return
    _log.info("Another process migrates the database. The broker waits until it has finished.")
    timeout = connection.execute(select(func.current_setting("lock_timeout"))).scalar_one()
    connection.execute(select(func.set_config("lock_timeout", "0", True)))
    connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION)))
    connection.execute(select(func.set_config("lock_timeout", timeout, True)))


def try_lock(connection: Connection) -> bool:
    """Take the lock for migrations as ``lock`` does, unless another process holds it.

    :returns: whether this transaction has it.
    """
    taken = connection.execute(select(func.pg_try_advisory_xact_lock(_MIGRATION)))
    return bool(taken.scalar_one())


def copy_in(connection: Connection, table: Table, rows: Iterable[Sequence[Any]]) -> int:
    """Write rows to a table by COPY, the quickest way, while they are read.

    :param rows: the values of all columns, in the order of the table.
    :returns: how many there were.
    :raises StoreUnavailable: the server does not take a row.
    """
    quoter = connection.dialect.identifier_preparer
    columns = ", ".join(quoter.quote(column.name) for column in table.columns)
    statement = f"COPY {quoter.format_table(table)} ({columns}) FROM STDIN"
    driver: Any = connection.connection.driver_connection
    refused: Any = connection.dialect.loaded_dbapi.Error
    try:
        with driver.cursor() as cursor:
            with cursor.copy(statement) as copying:
                for row in rows:
                    copying.write_row(row)
            return int(cursor.rowcount)
    except refused as error:
        raise StoreUnavailable(f"rows of {table.name} cannot be written: {error}") from error


def analyze(connection: Connection, table: Table) -> None:
    """Have the server measure a table, so that it plans queries of a full one well at once."""
    name = connection.dialect.identifier_preparer.format_table(table)
    connection.exec_driver_sql(f"ANALYZE {name}")


def last_id(connection: Connection, table: Table) -> int:
    """The largest id that the server has ever given to a row of a table; 0 if none."""
    sequence = _sequence(connection, table)
    if sequence is None:
        return 0
    row = connection.exec_driver_sql(f"SELECT last_value, is_called FROM {sequence}").one()  # noqa: S608 # the server has quoted it
    return int(row.last_value) if row.is_called else 0


def set_last_id(connection: Connection, table: Table, last: int) -> None:
    """Have the server give new rows of a table ids behind ``last``."""
    sequence = _sequence(connection, table)
    if sequence is not None:
        connection.execute(select(func.setval(sequence, last)))


def _sequence(connection: Connection, table: Table) -> str | None:
    """The quoted name of the sequence that numbers the rows of a table."""
    column = table.autoincrement_column
    if column is None:
        return None
    name = connection.dialect.identifier_preparer.format_table(table)
    found: str | None = connection.execute(
        select(func.pg_get_serial_sequence(name, column.name))
    ).scalar_one()
    return found


#: Why an operation was given up.
GIVEN_UP = "the server does not answer the heartbeat of this node either"


def set_read_timeout(
    engine: Engine, seconds: float, is_given_up: Callable[[], bool] = lambda: False
) -> None:
    """Close each connection of an engine on which a statement gets no answer for ``seconds``.

    The statement then fails with the driver's ``OperationalError``.  The limits of libpq end a wait
    only if the other machine does not answer at all.  If the server, its disk or a proxy before it
    stands still, the system of that machine goes on answering, and a thread would wait forever.

    The heartbeat of the node notices earlier that the server does not answer.  From then on nobody
    waits: see ``StoreThreads.give_up``.

    :param is_given_up: whether the server is known not to answer, so that no thread waits for it
        and none connects to it.  It is called in the threads.
    """
    psycopg: Any = import_module("psycopg")  # installed for PostgreSQL alone

    class LimitedConnection(psycopg.Connection):  # type: ignore[misc] # known when it runs
        """A connection whose waits end.  All methods of a connection wait by ``wait``."""

        def wait(self, gen: Generator[Any, Any, Any], *args: Any, **more: Any) -> Any:
            return super().wait(self._limited(gen), *args, **more)

        def _limited(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
            """What a generator of the driver yields and returns, for a limited time.

            It yields what the connection waits for, and is sent what has happened: 0 if nothing
            has happened for a tenth of a second.
            """
            until = time.monotonic() + seconds
            try:
                waits_for = next(gen)
                while True:
                    happened = yield waits_for
                    if not happened and (is_given_up() or time.monotonic() > until):
                        self.pgconn.finish()
                        raise psycopg.OperationalError(
                            GIVEN_UP
                            if is_given_up()
                            else f"the server has not answered for {seconds:g} seconds"
                        )
                    waits_for = gen.send(happened)
            except StopIteration as end:
                return end.value

    def connect(dialect: object, record: object, args: Any, options: Any) -> Any:
        if is_given_up():
            raise psycopg.OperationalError(GIVEN_UP)
        return LimitedConnection.connect(*args, **options)

    event.listen(engine, "do_connect", connect)
