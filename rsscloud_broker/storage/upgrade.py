"""Makes the tables of a database, or migrates those of an older version, at the start.

A new database gets the tables of ``schema`` at once.  An older one is migrated by Alembic, step by
step; the steps are in ``migrations``.  ``alembic_steps`` is imported only then: Alembic takes a
seventh of the time that the broker or a command needs to start.

The tables of applications are made and migrated in the same way, after those of the broker.  Each
application has revisions of its own, so that it can be installed, disabled and enabled by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from attrs import frozen
from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    insert,
    inspect,
    make_url,
    select,
)

from rsscloud_broker.database import postgresql, sqlite
from rsscloud_broker.database.engine import open_database, wait_for_others
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import AppTables
from rsscloud_broker.storage import nodes
from rsscloud_broker.storage.schema import metadata

#: The steps of the broker's tables.  The name of each begins with its revision, a number of four
#: digits.
_STEPS: Final = Path(__file__).with_name("migrations") / "versions"

#: The revision of the tables of this version.
LATEST_REVISION: Final = max(step.name[:4] for step in _STEPS.glob("[0-9]*.py"))

#: The tables of a database and their columns.  SQLAlchemy's inspector takes ten times as long.
_COLUMNS: Final = {
    sqlite.DIALECT: "SELECT made.name, info.name FROM sqlite_master AS made "
    "JOIN pragma_table_info(made.name) AS info",
    postgresql.DIALECT: "SELECT relname, attname FROM pg_attribute "
    "JOIN pg_class ON pg_class.oid = attrelid "
    "WHERE pg_table_is_visible(attrelid) AND relnamespace <> 'pg_catalog'::regnamespace "
    "AND attnum > 0 AND NOT attisdropped",
}

#: No applications.
NO_APPS: Final[Mapping[str, AppTables]] = MappingProxyType({})


def _version_table(name: str) -> Table:
    """A table of Alembic's own, as it makes it.  It has one row: the revision of the tables."""
    return Table(
        name,
        MetaData(),
        Column("version_num", String(32), nullable=False),
        PrimaryKeyConstraint("version_num", name=f"{name}_pkc"),
    )


@frozen
class _Tables:
    """Tables that are made and migrated together.

    :ivar owner: whose tables they are, for people.
    :ivar version: the table with their revision.
    :ivar metadata, migrations, latest: see ``AppTables``.
    """

    owner: str
    version: Table
    metadata: MetaData
    migrations: str
    latest: str


_OF_BROKER = _Tables(
    "rsscloud-broker",
    _version_table("alembic_version"),
    metadata,
    "rsscloud_broker.storage:migrations/versions",
    LATEST_REVISION,
)


def _tables_of_app(name: str, tables: AppTables) -> _Tables:
    version = _version_table(f"{name}_alembic_version")
    owner = f"the application {name}"
    return _Tables(owner, version, tables.metadata, tables.migrations, tables.latest)


class UnfitDatabase(Exception):
    """The database cannot be used by this version.  The text of the error says why."""


def migrate(url: str, apps: Mapping[str, AppTables] = NO_APPS) -> None:
    """Migrate a database to the tables of this version.  Makes the database if it does not exist.

    Blocks until done: call it before the reactor runs.  If two processes migrate at once, the
    second waits for the first, and then has nothing left to do.  On PostgreSQL it waits as long as
    it takes; on SQLite it fails after 30 seconds.

    :param url: an SQLAlchemy database URL.
    :param apps: the tables of the applications that run, by their names.
    :raises UnfitDatabase: the database is newer than this code, or is in memory.
    :raises Unavailable: the database cannot be opened or changed.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == sqlite.DIALECT:
        _prepare_sqlite(url)
    with open_database(url) as connection:
        wait_for_others(connection)
        upgrade(connection)
        for name, tables in apps.items():
            upgrade_app(connection, name, tables)


def _prepare_sqlite(url: str) -> None:
    """Make the file of an SQLite database, which must not be in memory, and its directory."""
    parsed = make_url(url)
    check_kept(url)
    try:
        sqlite.make_database_file(parsed)
    except OSError as error:
        raise Unavailable(
            f"the file of the database, or its directory, cannot be made or written: {error}. "
            "Do this as the broker's user, or name another place in the configuration."
        ) from error


def check_kept(url: str) -> None:
    """Check that a database outlives this process.

    :raises UnfitDatabase: the database is in memory.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == sqlite.DIALECT and sqlite.in_memory(parsed):
        raise UnfitDatabase(
            f"the database {url!r} is in memory and would keep nothing. "
            "Name a file, such as sqlite:////var/lib/rsscloud-broker/broker.db"
        )


def upgrade(connection: Connection) -> None:
    """Make the broker's tables, or run the missing migrations, in the transaction of a connection.

    :raises UnfitDatabase: the database is newer than this code, or another program's.
    """
    _upgrade(connection, _OF_BROKER)


def upgrade_app(connection: Connection, name: str, tables: AppTables) -> None:
    """Make the tables of an application, or run its missing migrations, in the transaction of a
    connection.

    The database need not have the tables of the broker.

    :param name: the name of the application, with which the names of its tables begin.
    :raises UnfitDatabase: the database is newer than this code, or is another program's.
    """
    _upgrade(connection, _tables_of_app(name, tables))


def check_fitness(connection: Connection, apps: Mapping[str, AppTables] = NO_APPS) -> None:
    """Check that ``migrate`` could make or migrate the tables, without changing anything.

    :raises UnfitDatabase: it could not.
    """
    for tables in (_OF_BROKER, *(_tables_of_app(name, each) for name, each in apps.items())):
        _check_fitness(connection, tables)


def _check_fitness(connection: Connection, tables: _Tables) -> list[str]:
    """Check tables, and return their revisions; none if they are not there yet."""
    revisions = _revisions(connection, tables.version)
    check_known(revisions, tables)
    if not revisions:
        _check_empty(connection, tables)
    elif not set(inspect(connection).get_table_names()) & set(tables.metadata.tables):
        raise UnfitDatabase(
            _text_of_another_program(f"it has a table {tables.version.name}", tables)
        )
    elif revisions == [tables.latest]:
        _check_columns(connection, tables)
    else:
        _check_older_nodes(connection, revisions, tables)
    return revisions


def _check_older_nodes(connection: Connection, revisions: Sequence[str], tables: _Tables) -> None:
    """Check that tables can be migrated while nodes of an older version work on them.

    :raises UnfitDatabase: some do, and cannot work with the new tables.
    """
    living = nodes.living(connection)
    # They may be of this version, and one of them has migrated the tables just now.
    if not living or _revisions(connection, tables.version) == [tables.latest]:
        return
    from rsscloud_broker.storage import alembic_steps  # noqa: PLC0415 # see the docstring above

    if not alembic_steps.steps_fit_older_nodes(revisions, tables.migrations):
        raise UnfitDatabase(
            f"brokers of an older version work on it ({', '.join(living)}), and this version "
            f"changes tables of {tables.owner} that they need as they are. Stop them all, and "
            "then start this version"
        )


def _upgrade(connection: Connection, tables: _Tables) -> None:
    """Make tables, or migrate those of an older version."""
    revisions = _check_fitness(connection, tables)
    if not revisions:
        tables.metadata.create_all(connection, checkfirst=False)
        tables.version.create(connection, checkfirst=True)
        connection.execute(insert(tables.version).values(version_num=tables.latest))
    elif revisions != [tables.latest]:
        from rsscloud_broker.storage import alembic_steps  # noqa: PLC0415 # see the docstring above

        alembic_steps.run(connection, tables.migrations, tables.version.name, tables.metadata)
        _check_columns(connection, tables)


def _check_columns(connection: Connection, tables: _Tables) -> None:
    """Check that migrated tables have all their columns; a newer version may have added others.

    :raises UnfitDatabase: one is missing, as in builds from before the first release, whose tables
        had its revision too.
    """
    rows = connection.exec_driver_sql(_COLUMNS[connection.dialect.name]).tuples()
    present = set(rows)
    for table in tables.metadata.tables.values():
        lacking = [each.name for each in table.columns if (table.name, each.name) not in present]
        if len(lacking) == len(table.columns):
            raise UnfitDatabase(_of_no_release(f"the table {table.name}", tables))
        if lacking:
            raise UnfitDatabase(_of_no_release(f"the column {table.name}.{lacking[0]}", tables))


def _of_no_release(missing: str, tables: _Tables) -> str:
    """The text of an error: tables are not those of their revision."""
    return (
        f"the database lacks {missing}: a build of {tables.owner} from before its first release "
        "made it, or somebody changed it. Restore a backup of a released version, or begin with "
        "an empty database."
    )


def _check_empty(connection: Connection, tables: _Tables) -> None:
    """Check that no other program has tables with names that are needed.

    :raises UnfitDatabase: one has.
    """
    taken = sorted(set(inspect(connection).get_table_names()) & set(tables.metadata.tables))
    if taken:
        raise UnfitDatabase(
            _text_of_another_program(f"it has tables named {', '.join(taken)}", tables)
        )


def _text_of_another_program(why: str, tables: _Tables) -> str:
    """The text of an error: somebody else has made tables here."""
    return (
        f"another program uses the database: {why}, which {tables.owner} did not make. Name a "
        "database of the broker's own in the configuration."
    )


def revisions_of(connection: Connection) -> list[str]:
    """The revisions of the broker's tables in a database; none if it has no tables yet."""
    return _revisions(connection, _OF_BROKER.version)


def has_tables_of(connection: Connection, name: str, tables: AppTables) -> bool:
    """Whether a database has the tables of an application."""
    return bool(_revisions(connection, _tables_of_app(name, tables).version))


def _revisions(connection: Connection, version: Table) -> list[str]:
    """The revisions in a table of Alembic's; none if there is no such table."""
    if not inspect(connection).has_table(version.name):
        return []
    return list(connection.execute(select(version.c.version_num)).scalars())


def check_known(revisions: Iterable[str], tables: _Tables = _OF_BROKER) -> None:
    """:raises UnfitDatabase: this version does not know one of the revisions of these tables."""
    known = {f"{number:04}" for number in range(1, int(tables.latest) + 1)}
    unknown = set(revisions) - known
    if strange := sorted(each for each in unknown if not re.fullmatch("[0-9]{4}", each)):
        why = f"its table {tables.version.name} has the revision {', '.join(strange)}"
        raise UnfitDatabase(_text_of_another_program(why, tables))
    if unknown:
        raise UnfitDatabase(
            f"the database was made by a newer version of {tables.owner}, or by one from before "
            f"the first release: this one does not know its revision {', '.join(sorted(unknown))}. "
            "Install that version again, or restore a copy of the database from before the upgrade."
        )
