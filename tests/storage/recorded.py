"""Databases as version 1.0 left them, which every later version must migrate.

``python -m tests.storage.recorded`` records a database with rows in every table, as SQL for SQLite
and PostgreSQL, in ``tests/fixtures/databases``.  It was run for 1.0.0; the files never change.
"""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import psycopg
from sqlalchemy import Connection, inspect, make_url, text

from rsscloud_broker.storage import migrate, open_database
from tests.postgresql import empty_database, programs
from tests.storage.filling import fill, installed

RECORDS: Final = Path(__file__).parents[1] / "fixtures" / "databases"

#: The revision of the broker's tables in version 1.0.
REVISION: Final = "0001"


def rows(conn: Connection) -> dict[str, list[dict[str, Any]]]:
    """All rows of a database, by the names of tables and columns, whichever these are."""
    names = [name for name in inspect(conn).get_table_names() if "alembic_version" not in name]
    found = {name: conn.execute(text(f"SELECT * FROM {name}")).mappings() for name in names}
    return {name: sorted(map(dict, some), key=repr) for name, some in found.items()}


def restore_sqlite(path: Path) -> None:
    """Make the recorded database of SQLite in a new file."""
    with closing(sqlite3.connect(path)) as restored:
        restored.executescript((RECORDS / "sqlite.sql").read_text(encoding="utf-8"))


def restore_postgresql(url: str) -> None:
    """Make the recorded tables in an empty database of PostgreSQL."""
    with psycopg.connect(_for_libpq(url), autocommit=True) as restored:
        restored.execute((RECORDS / "postgresql.sql").read_bytes())


def _for_libpq(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _filled(url: str) -> None:
    migrate(url, installed())
    with open_database(url) as conn:
        fill(conn, installed())


def write(name: str, lines: Iterable[str]) -> None:
    (RECORDS / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    RECORDS.mkdir(exist_ok=True)
    with TemporaryDirectory() as directory:
        path = Path(directory) / "broker.sqlite"
        _filled(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as database:
            write("sqlite.sql", database.iterdump())
    url = empty_database()
    _filled(url)
    command = [programs() / "pg_dump", "--inserts", "--no-owner", "--no-privileges"]
    dump = subprocess.run(  # ours
        [*map(str, command), "--dbname", _for_libpq(url)], capture_output=True, check=True
    ).stdout.decode()
    # Comments name versions, and commands of psql are for psql alone.
    lines = (line for line in dump.splitlines() if line and not line.startswith(("--", "\\")))
    write("postgresql.sql", lines)


if __name__ == "__main__":
    main()
