"""Makes the tables of a database, or migrates those of an older version, at the start.

A new database gets the tables of ``schema`` at once.  An older one is migrated by Alembic, step by
step; the steps are in ``migrations``.  ``alembic_steps`` is imported only then: Alembic takes a
seventh of the time that the broker or a command needs to start.
"""

from __future__ import annotations

from collections.abc import Iterable

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

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.storage import sqlite
from rsscloud_broker.storage.engine import (
    database_errors,
    for_writing,
    open_engine,
    wait_for_others,
)
from rsscloud_broker.storage.schema import metadata

#: The revision of the tables of this version.  Revisions are numbers of four digits.
LATEST_REVISION = "0014"

#: Alembic's own table, as it makes it.  It has one row: the revision of the database.
_VERSION = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


class UnfitDatabase(Exception):
    """The database cannot be used by this version.  The text of the error says why."""


def migrate(url: str) -> None:
    """Migrate a database to the tables of this version.  Makes the database if it does not exist.

    Blocks until done: call it before the reactor runs.  If two processes migrate at once, the
    second waits for the first, and then has nothing left to do.  On PostgreSQL it waits as long as
    it takes; on SQLite it fails after ``sqlite.TIMEOUT`` seconds.

    :param url: an SQLAlchemy database URL.
    :raises UnfitDatabase: the database is newer than this code, or is in memory.
    :raises Unavailable: the database cannot be opened or changed.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == sqlite.DIALECT:
        _prepare_sqlite(url)
    engine = open_engine(url)
    try:
        with database_errors(), for_writing(engine).begin() as connection:
            wait_for_others(connection)
            upgrade(connection)
    finally:
        engine.dispose()


def _prepare_sqlite(url: str) -> None:
    parsed = make_url(url)
    check_kept(url)
    try:
        sqlite.make_parent_directory(parsed)
    except OSError as error:
        raise Unavailable(
            f"the directory for the database cannot be made: {error}. "
            "Make it, or name another directory in the configuration."
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
    """Make the tables, or run the missing migrations, in the transaction of a connection.

    :raises UnfitDatabase: the database is newer than this code, or another program's.
    """
    revisions = revisions_of(connection)
    check_known(revisions)
    if not revisions:
        _check_empty(connection)
        metadata.create_all(connection, checkfirst=False)
        _VERSION.create(connection, checkfirst=True)
        connection.execute(insert(_VERSION).values(version_num=LATEST_REVISION))
    elif revisions != [LATEST_REVISION]:
        from rsscloud_broker.storage import alembic_steps  # noqa: PLC0415 # see the docstring above

        alembic_steps.run(connection)


def _check_empty(connection: Connection) -> None:
    """Check that no other program has tables with names that the broker needs.

    :raises UnfitDatabase: one has.
    """
    taken = sorted(set(inspect(connection).get_table_names()) & set(metadata.tables))
    if taken:
        raise UnfitDatabase(
            f"another program uses the database: it has tables named {', '.join(taken)}, which the "
            "broker did not make. Name a database of the broker's own in the configuration."
        )


def revisions_of(connection: Connection) -> list[str]:
    """The revisions that a database has; none if it has no tables yet."""
    if not inspect(connection).has_table(_VERSION.name):
        return []
    return list(connection.execute(select(_VERSION.c.version_num)).scalars())


def check_known(revisions: Iterable[str]) -> None:
    """Check that this version knows the revisions of a database.

    :raises UnfitDatabase: the database is newer than this code.
    """
    known = {f"{number:04}" for number in range(1, int(LATEST_REVISION) + 1)}
    unknown = set(revisions) - known
    if unknown:
        raise UnfitDatabase(
            "the database was made by a newer version of rsscloud-broker: this one does not "
            f"know its revision {', '.join(sorted(unknown))}. Install that version again, or "
            "restore a copy of the database from before the upgrade."
        )
