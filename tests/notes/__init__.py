"""A small application with tables of its own, for tests.

``FIRST`` and ``SECOND`` are the tables of its two versions.  ``migrations`` has the step to the
first, and ``second.migrations`` both.  ``FITTING`` is as ``SECOND``, but nodes of the first version
can work on with its tables.
"""

from __future__ import annotations

from attrs import evolve, field, frozen
from attrs.validators import ge
from sqlalchemy import Column, Integer, MetaData, Table, Text

from rsscloud_broker.database.columns import new_metadata
from rsscloud_broker.interfaces import App, AppParts, AppTables
from rsscloud_broker.plugins.bundled import AppMaker


@frozen
class NotesOptions:
    """``[apps.notes]``."""

    size: int = field(default=1, validator=ge(1))


def _tables(*more: Column[str]) -> MetaData:
    metadata = new_metadata()
    Table("notes_note", metadata, Column("id", Integer, primary_key=True), *more)
    return metadata


FIRST = AppTables(_tables(), "tests.notes:migrations", "0001")
SECOND = AppTables(
    _tables(Column("text", Text, nullable=False, server_default="")),
    "tests.notes.second:migrations",
    "0002",
)
FITTING = evolve(SECOND, migrations="tests.notes.fitting:migrations")


def make_notes(options: NotesOptions, parts: AppParts) -> App:
    """Make the application, which does nothing."""
    return App("notes")


NOTES = AppMaker("notes", "notes, for tests", NotesOptions, make_notes, FIRST)
