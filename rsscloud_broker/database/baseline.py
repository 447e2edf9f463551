"""The first step of migrations: see ``storage/migrations``."""

from __future__ import annotations

from alembic import context, op


def make_tables() -> None:
    """Make the tables as they are now, which are those of version 1.0.0 until they change."""
    context.config.attributes["target_metadata"].create_all(op.get_bind(), checkfirst=False)
