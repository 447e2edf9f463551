"""Runs the steps of migrations, with Alembic."""

from __future__ import annotations

from collections.abc import Collection

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData

from rsscloud_broker.storage.schema import metadata

#: Where the steps of the broker are.
OF_BROKER = "rsscloud_broker.storage:migrations/versions"


def run(
    connection: Connection,
    migrations: str = OF_BROKER,
    version_table: str = "alembic_version",
    tables: MetaData = metadata,
) -> None:
    """Run the missing steps, in the transaction of a connection.

    :param migrations: where the steps are: ``package:directory``.
    :param tables: the tables, as they are after the last step.
    """
    command.upgrade(config(connection, migrations, version_table, tables), "head")


def config(
    connection: Connection,
    migrations: str = OF_BROKER,
    version_table: str = "alembic_version",
    tables: MetaData = metadata,
) -> Config:
    """The configuration for a command of Alembic on a connection, with the arguments of ``run``."""
    found = _config(migrations)
    found.attributes.update(
        connection=connection, version_table=version_table, target_metadata=tables
    )
    return found


def revisions(migrations: str = OF_BROKER) -> list[str]:
    """The revisions that there are steps to, latest first."""
    scripts = ScriptDirectory.from_config(_config(migrations))
    return [step.revision for step in scripts.walk_revisions()]


def steps_fit_older_nodes(present: Collection[str], migrations: str = OF_BROKER) -> bool:
    """Whether nodes of an older version can work on while the missing steps change their tables.

    They can if each of these steps says ``FITS_OLDER_NODES = True``.

    :param present: the revisions of the present tables.
    """
    scripts = ScriptDirectory.from_config(_config(migrations))
    # Revisions are numbers of four digits, so texts compare as they do.
    missing = [step for step in scripts.walk_revisions() if step.revision > max(present)]
    return all(getattr(step.module, "FITS_OLDER_NODES", False) for step in missing)


def _config(migrations: str) -> Config:
    """A configuration of Alembic for steps in ``package:directory``."""
    config = Config()
    config.set_main_option("script_location", "rsscloud_broker.storage:migrations")
    config.set_main_option("version_locations", migrations)
    config.set_main_option("path_separator", "newline")
    return config
