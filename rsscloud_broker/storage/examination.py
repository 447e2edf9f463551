"""Examines a database without changing it, even beside a running broker.

``start_checks`` calls it to say whether the broker could start with this database, and whether
the start would migrate it; ``doctor`` measures its health.  All functions block.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from attrs import frozen
from sqlalchemy import Connection, Engine, NullPool, create_engine, inspect, make_url, text

from rsscloud_broker.database import postgresql, sqlite
from rsscloud_broker.database.engine import database_errors
from rsscloud_broker.errors import StoreUnavailable
from rsscloud_broker.interfaces import AppTables
from rsscloud_broker.storage import clusters
from rsscloud_broker.storage.schema import metadata
from rsscloud_broker.storage.upgrade import (
    LATEST_REVISION,
    NO_APPS,
    UnfitDatabase,
    check_fitness,
    check_kept,
    revisions_of,
)

#: Seconds to wait for another process that writes, or for a server that does not answer.
TIMEOUT = 5

_RIGHTS = ["SELECT", "INSERT", "UPDATE", "DELETE"]

_LACKING = text(
    "SELECT r, t FROM unnest(CAST(:tables AS text[])) AS t, unnest(CAST(:rights AS text[])) AS r"
    " WHERE NOT has_table_privilege(quote_ident(t), r)"
)


def database_file(url: str) -> Path | None:
    """The file of an SQLite database; None for other databases, and for one in memory.

    :param url: an SQLAlchemy database URL.
    """
    parsed = make_url(url)
    path = sqlite.path_of(parsed) if parsed.get_backend_name() == sqlite.DIALECT else None
    return Path(path) if path else None


def shown(url: str) -> str:
    """A database URL for people, without its password."""
    parsed = make_url(url)
    if "password" in parsed.query:  # libpq takes it there, too
        parsed = parsed.update_query_dict({"password": "..."})
    return parsed.render_as_string(hide_password=True)


def libpq_arguments(url: str) -> tuple[str, str]:
    """How PostgreSQL's own programs name a database, without its password; and the password.

    :param url: an SQLAlchemy URL, which names several servers in another way than they do.
    """
    from psycopg.conninfo import make_conninfo  # noqa: PLC0415 # not everybody has it

    parsed = make_url(url)
    _, arguments = parsed.get_dialect()().create_connect_args(parsed)
    password = str(arguments.pop("password", ""))
    return make_conninfo(**arguments), password


@frozen
class DatabaseRevisions:
    """The revisions of a database.

    :ivar revision: the revision of its tables; empty if it has no tables yet.
    :ivar latest: the revision to which the next start migrates it.
    """

    revision: str
    latest: str


def examine(
    url: str, apps: Mapping[str, AppTables] = NO_APPS, public_url: str | None = None
) -> DatabaseRevisions:
    """Open an existing database, and check that the broker can read and write it.

    To check writing, this begins a transaction that changes nothing, and rolls it back.  A
    running broker waits for it no longer than for one of its own commits.

    :param url: an SQLAlchemy database URL; the file of an SQLite database must exist.
    :param apps: the tables of the applications that run, by their names.
    :param public_url: that of the broker, to find brokers that do not belong to it; None if it is
        not set.
    :raises Unavailable: the database cannot be opened or written to.
    :raises UnfitDatabase: the database is in memory, was made by a newer version or by another
        program, does not give the broker the rights that it needs, is reached through a pooler of
        transactions, or other brokers work on it.
    """
    check_kept(url)
    engine = _engine(url)
    try:
        if engine.dialect.name == postgresql.DIALECT:
            _check_sessions(engine)
        with database_errors(), engine.connect() as connection:
            if connection.dialect.name == sqlite.DIALECT:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif connection.dialect.name == postgresql.DIALECT:
                _check_rights(connection, apps)
            check_fitness(connection, apps)
            check_cluster(connection, public_url)
            found = DatabaseRevisions(", ".join(revisions_of(connection)), LATEST_REVISION)
            if connection.dialect.name == postgresql.DIALECT and found.revision != found.latest:
                _check_ownership(connection)
            connection.rollback()
    finally:
        engine.dispose()
    return found


def check_cluster(connection: Connection, public_url: str | None) -> None:
    """Check that no brokers with another public URL work on a database.

    :raises UnfitDatabase: some do.
    """
    name = clusters.name_of(public_url)
    if found := clusters.others(connection, name):
        raise UnfitDatabase(clusters.sentence(name, found))


def _engine(url: str) -> Engine:
    """Make an engine without the broker's settings: to turn on WAL would change the file."""
    parsed = make_url(url)
    options: dict[str, Any] = {}
    if parsed.get_backend_name() == sqlite.DIALECT:
        options = {"timeout": TIMEOUT, "isolation_level": None}
    elif parsed.get_driver_name().startswith("psycopg"):
        options = {"connect_timeout": TIMEOUT}
    return create_engine(parsed, poolclass=NullPool, connect_args=options)


def _check_sessions(engine: Engine) -> None:
    """Check that each connection has a session of the server to itself.

    :raises UnfitDatabase: a pooler gives a session to one connection after the other, for a
        transaction each.
    """
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    with database_errors(), alone.connect() as one, alone.connect() as other:
        sessions = [
            # How often each of two connections asks for its session: other programs that use the
            # same pooler may have them change.
            {each.execute(text("SELECT pg_backend_pid()")).scalar_one() for _ in range(5)}
            for each in (one, other)
        ]
    if any(len(each) > 1 for each in sessions) or sessions[0] == sessions[1]:
        raise UnfitDatabase(
            "its connections share sessions of the server, as those of pgbouncer do with "
            "pool_mode = transaction; set pool_mode = session for it, or name the server itself"
        )


def _check_rights(connection: Connection, apps: Mapping[str, AppTables]) -> None:
    """Check that the role of the connection may read and write the tables.

    :raises UnfitDatabase: it may not.
    """
    if connection.execute(text("SHOW transaction_read_only")).scalar_one() == "on":
        raise UnfitDatabase(
            "it takes no changes: the server is a standby, or default_transaction_read_only is on; "
            "name the server that takes changes, or both with target_session_attrs=read-write"
        )
    present = set(inspect(connection).get_table_names())
    owned = {"alembic_version", *metadata.tables}
    for name, each in apps.items():
        owned |= {f"{name}_alembic_version", *each.metadata.tables}
    ours = sorted(present & owned)
    lacking = connection.execute(_LACKING, {"tables": ours, "rights": _RIGHTS}).tuples().all()
    clauses = []
    if lacking:
        rights = ", ".join(dict.fromkeys(right for right, _ in lacking))
        tables = ", ".join(dict.fromkeys(table for _, table in lacking))
        clauses.append(f"{rights} on {tables}")
    if sequences := _closed_sequences(connection, ours):
        clauses.append(f"USAGE on the sequences {', '.join(sequences)}")
    if clauses:
        raise UnfitDatabase(
            f"{_role(connection)} lacks {', and '.join(clauses)}; "
            "grant that, or let it own the tables"
        )
    may_create = text("SELECT has_schema_privilege(current_schema(), 'CREATE')")
    if ours != sorted(owned) and not connection.execute(may_create).scalar_one():
        raise UnfitDatabase(
            f"{_role(connection)} may make no tables in it; grant CREATE on the schema"
        )


def _closed_sequences(connection: Connection, tables: Sequence[str]) -> list[str]:
    """The sequences from which the role may not take the ids of new rows.

    PostgreSQL grants rights to a table and rights to its sequences separately.

    :param tables: the tables that the sequences belong to.
    """
    query = text(
        "SELECT sequence FROM ("
        " SELECT pg_get_serial_sequence(attrelid::regclass::text, attname) AS sequence"
        " FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
        " WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(:tables)"
        " AND attnum > 0 AND NOT attisdropped"
        ") AS owned"
        " WHERE NOT has_sequence_privilege(sequence, 'USAGE, UPDATE') ORDER BY sequence"
    )
    closed = connection.execute(query, {"tables": list(tables)}).scalars()
    return [name.rpartition(".")[2] for name in closed]


def _check_ownership(connection: Connection) -> None:
    """Check that the role may migrate the tables: PostgreSQL lets only their owner change them.

    :raises UnfitDatabase: the role does not own all of them.
    """
    query = text(
        "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() "
        "AND NOT pg_has_role(tableowner, 'USAGE') ORDER BY tablename"
    )
    foreign = sorted(set(connection.execute(query).scalars()) & set(metadata.tables))
    if foreign:
        raise UnfitDatabase(
            f"the start migrates it, and {_role(connection)} does not own {', '.join(foreign)}; "
            "start the broker once as their owner, or let that role own them"
        )


def _role(connection: Connection) -> str:
    return f"the role {connection.execute(text('SELECT current_user')).scalar_one()}"


# --- health


@frozen
class FileHealth:
    """The health of an SQLite file.

    :ivar size: bytes of the database.
    :ivar free: bytes of it that are not used, and that SQLite will use again.
    :ivar problems: what is damaged, in SQLite's words; empty if nothing was found.
    :ivar was_all_read: whether the whole file was checked in the given time.
    """

    size: int
    free: int
    problems: tuple[str, ...]
    was_all_read: bool


def file_health(file: Path, seconds: float) -> FileHealth:
    """Measure an SQLite file, and look for damage in it (``PRAGMA quick_check``).

    :param seconds: how long the search for damage may take.
    :raises StoreUnavailable: the file cannot be read, or is no database.
    """
    with _file_errors(file), closing(_open_file(file)) as connection:
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        until = time.monotonic() + seconds
        # SQLite asks after this many of its instructions whether to go on.
        connection.set_progress_handler(lambda: time.monotonic() > until, 100_000)
        was_all_read = True
        try:
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(10)")]
        except sqlite3.OperationalError:
            if time.monotonic() <= until:
                raise
            found, was_all_read = [], False  # it was interrupted
    problems = tuple(line for line in found if line != "ok")
    return FileHealth(pages * size, free * size, problems, was_all_read)


def try_backup(file: Path, directory: Path) -> int:
    """Make a backup of an SQLite file, as an operator would, and remove it again.

    :param directory: where the temporary copy is made.
    :returns: the bytes of the copy.
    :raises OSError: the copy cannot be written.
    :raises StoreUnavailable: the file cannot be read, or the copy is damaged.
    """
    with temporary_copy(file, directory) as copy:
        return copy.stat().st_size


@contextmanager
def temporary_copy(file: Path, directory: Path) -> Iterator[Path]:
    """Copy an SQLite file as it is at one moment, even beside a running broker; remove the copy as
    the context ends.

    :param directory: where the copy is made; only its owner may read it.
    :raises OSError: the copy cannot be written.
    :raises StoreUnavailable: the file cannot be read, or the copy is damaged.
    """
    with NamedTemporaryFile(dir=directory, prefix=".copy-", suffix=".part") as copy:
        with (
            _file_errors(file),
            closing(_open_file(file)) as connection,
            closing(sqlite3.connect(copy.name)) as target,
        ):
            # By itself, ``backup`` would try without end to read what somebody else has locked.
            connection.execute("BEGIN").execute("SELECT count(*) FROM sqlite_master").fetchone()
            connection.backup(target)  # in one step: a reader does not hold up the broker's writer
            target.execute("SELECT count(*) FROM sqlite_master").fetchone()  # fails if damaged
        yield Path(copy.name)


def _open_file(file: Path) -> sqlite3.Connection:
    # Not read-only: such a connection could not remove the files that SQLite makes beside it.
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=TIMEOUT)


@contextmanager
def _file_errors(file: Path) -> Iterator[None]:
    """Turn errors of SQLite's driver into ``StoreUnavailable``."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{file}: {error}") from error


@frozen
class ServerHealth:
    """The state of a PostgreSQL server and database.

    :ivar version: the version of the server, such as ``15.8``.
    :ivar major: its first number.
    :ivar size: bytes of the database.
    :ivar time: the server's wall clock, in seconds since the epoch.
    :ivar connections, max_connections: how many connections the server has, and may have.
    """

    version: str
    major: int
    size: int
    time: float
    connections: int
    max_connections: int


def server_health(url: str) -> ServerHealth:
    """Ask a PostgreSQL server for its state.

    :param url: an SQLAlchemy URL of a PostgreSQL database.
    :raises StoreUnavailable: the server cannot be asked.
    """
    engine = _engine(url)
    query = text(
        "SELECT current_setting('server_version'), current_setting('server_version_num')::int,"
        " pg_database_size(current_database()), extract(epoch FROM clock_timestamp())::float8,"
        " (SELECT count(*) FROM pg_stat_activity), current_setting('max_connections')::int"
    )
    try:
        with database_errors(), engine.connect() as connection:
            version, number, size, now, connections, most = connection.execute(query).one()
    finally:
        engine.dispose()
    return ServerHealth(version.split()[0], number // 10_000, size, now, connections, most)
