"""Measures the health of a database without changing it, even beside a running broker.

``doctor`` calls these functions.  They block, for as long as their arguments allow.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from attrs import frozen
from sqlalchemy import create_engine, make_url, text

from rsscloud_broker.database.engine import database_errors
from rsscloud_broker.errors import StoreUnavailable
from rsscloud_broker.storage.examination import TIMEOUT


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
    engine = create_engine(make_url(url), connect_args={"connect_timeout": TIMEOUT})
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
