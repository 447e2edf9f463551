"""Runs the steps of ``migrations``, with Alembic."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection


def run(connection: Connection) -> None:
    """Run the missing steps, in the transaction of a connection."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def revisions() -> list[str]:
    """The revisions that there are steps to, latest first."""
    return [step.revision for step in ScriptDirectory.from_config(_config()).walk_revisions()]


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "rsscloud_broker.storage:migrations")
    return config
