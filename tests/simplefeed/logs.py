"""Databases with the tables of logs, and entries, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, make_url

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.engine import for_writing, open_engine
from rsscloud_broker.simplefeed.entries import Entry
from rsscloud_broker.simplefeed.schema import TABLES
from rsscloud_broker.storage import upgrade
from tests.postgresql import empty_database

#: The time of the first entry of tests, in seconds since the epoch.
NOON = 1_000_000_000.0


@contextmanager
def migrated(url: str) -> Iterator[Engine]:
    """An engine whose transactions write, on a database that has the tables of logs."""
    if url.startswith("sqlite:"):
        sqlite.make_database_file(make_url(url))
    engine = open_engine(url)
    try:
        with for_writing(engine).begin() as conn:
            upgrade.upgrade_app(conn, "simplefeed", TABLES)
        yield for_writing(engine)
    finally:
        engine.dispose()


@contextmanager
def in_memory() -> Iterator[Engine]:
    """SQLite in memory."""
    with migrated("sqlite://") as engine:
        yield engine


@contextmanager
def in_file(directory: str) -> Iterator[Engine]:
    """SQLite in a new file."""
    with migrated(f"sqlite:///{Path(directory).resolve()}/log.db") as engine:
        yield engine


@contextmanager
def on_postgresql() -> Iterator[Engine]:
    """A new database on PostgreSQL."""
    with migrated(empty_database()) as engine:
        yield engine


def some(count: int, first: int = 1) -> list[Entry]:
    """Entries, a second apart, whose titles are their numbers."""
    return [Entry(str(number), NOON + number) for number in range(first, first + count)]
