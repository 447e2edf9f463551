"""Making a database, and bringing an old one up to date.

See ``migrations`` for the steps.
"""

from __future__ import annotations

from collections.abc import Iterable

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, make_url

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.storage import sqlite
from rsscloud_broker.storage.engine import (
    database_errors,
    for_writing,
    open_engine,
    wait_for_others,
)


class UnfitDatabase(Exception):
    """A database that this version cannot work on.  Its text says why, to people."""


def migrate(url: str) -> None:
    """Bring a database to the tables of this version; make it if need be.

    Blocks until done: call it before the reactor runs.  Two processes may do
    so at once: the second waits, and finds nothing left to do.

    :param url: an SQLAlchemy database URL.
    :raises UnfitDatabase: the database is newer than this code, or would not
        outlive this call.
    :raises Unavailable: it cannot be opened, or changed.
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
            "Make it, or let the configuration name another place."
        ) from error


def check_kept(url: str) -> None:
    """Accept a database by returning, unless it would not outlive this process.

    :raises UnfitDatabase: it would not.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == sqlite.DIALECT and sqlite.in_memory(parsed):
        raise UnfitDatabase(
            f"the database {url!r} is in memory and would keep nothing. "
            "Name a file, such as sqlite:////var/lib/rsscloud-broker/broker.db"
        )


def upgrade(connection: Connection) -> None:
    """Run the steps that are missing, in the transaction of a connection.

    :raises UnfitDatabase: the database is newer than this code.
    """
    check_known(MigrationContext.configure(connection).get_current_heads())
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def latest_revision() -> str:
    """The revision of the tables that this version works on."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def check_known(revisions: Iterable[str]) -> None:
    """Accept the revisions of a database by returning.

    :raises UnfitDatabase: one of them is newer than this code.
    """
    steps = ScriptDirectory.from_config(_config()).walk_revisions()
    unknown = set(revisions) - {step.revision for step in steps}
    if unknown:
        raise UnfitDatabase(
            "the database was made by a newer version of rsscloud-broker: this one does not "
            f"know its revision {', '.join(sorted(unknown))}. Install that version again, or "
            "go back to a copy of the database from before it."
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "rsscloud_broker.storage:migrations")
    return config
