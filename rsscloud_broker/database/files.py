"""Notices damage to the files of an SQLite database while the broker has them open.

A database in WAL mode is a main file and a log beside it.  A commit goes to the log; a
*checkpoint* copies it into the main file.  SQLite keeps both files open, and does not notice if
another program removes, replaces, truncates or overwrites them: it would go on with the open
files, and all that the broker has acknowledged would be gone with the process.  So:

- A connection is used only while both paths lead to the files that it has open.  After each
  commit the writer calls ``confirm``, which looks at the files once more before the broker
  acknowledges anything.
- At most a second after a commit the writer calls ``checkpoint``: this makes a checkpoint, so that
  all acknowledged changes are in the main file too, and then reads the main file without the log.
  A checkpoint waits for short reads.  While somebody reads for long, it can copy a part only, and
  the main file makes no sense without the log.

The engine's events call this module for each connection.  What it does about damage:

================================  ========================================================
the main file was removed or      nothing is read or written until the former file is back,
replaced                          since the work under way belongs to that file
the main file was overwritten     nothing is read or written until it can be read again
or truncated
the log was removed or replaced   all connections are closed, the last of which copies the
                                  whole log into the main file; new connections go on
the log was truncated             all connections are closed; new ones go on after the last
                                  checkpoint, and the writer runs the operations again that
                                  were committed since then, or in the last two seconds if a
                                  long read is in the way: see ``losses``
================================  ========================================================
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import RLock
from typing import Any, TypeAlias
from weakref import WeakSet, finalize

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError, OperationalError
from twisted.logger import Logger

#: Seconds after a commit at which the writer makes a checkpoint and examines the main file.
CHECKPOINT_AFTER = 1.0

#: Milliseconds for which a checkpoint waits for those who read, since they may need older pages.
#: Nothing is written meanwhile.
WAIT = 20

#: How often the main file is read before it is called damaged, since another process may be
#: making a checkpoint.
_TRIES = 3
_PAUSE = 0.05

#: The first bytes of a log (https://sqlite.org/fileformat2.html#walformat).
_LOG_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")

#: Error codes that mean a damaged file, rather than a lack of memory or file descriptors.
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}

_IDENTITY = "rsscloud_broker_file"

_Identity: TypeAlias = tuple[int, int]


class _Connection(sqlite3.Connection):
    """A connection that calls ``closed`` when it is closed."""

    closed: Callable[[_Connection], object]

    def close(self) -> None:
        super().close()
        self.closed(self)


class Files:
    """Watches the files of an engine's database, and refuses connections when they are damaged.

    :param path: the path of the main file.
    :ivar left_a_part: whether the last checkpoint copied a part only, since somebody reads.
    :ivar losses: how often the log was truncated, and the commits since the last checkpoint lost.
    """

    log = Logger()

    def __init__(self, engine: Engine, path: str) -> None:
        self._engine = engine
        self._path = path
        self._log_path = f"{os.path.realpath(path)}-wal"
        uri = Path(path).absolute().as_uri()
        self._address = f"{uri}?mode=rw"  # makes no empty file
        self._without_log = f"{uri}?mode=ro&immutable=1"
        self._lock = RLock()  # connections are made and used in several threads
        self._open: WeakSet[_Connection] = WeakSet()
        #: Connections that are still open and must not be used any more.
        self._stale: WeakSet[_Connection] = WeakSet()
        self._main_identity: _Identity | None = None
        self.losses = 0
        self._log_file: int | None = None
        self._log_size = 0
        #: Size and modification time of the main file when it was last examined.
        self._examined_stamp: tuple[int, int] | None = None
        self._damage = self._problem = ""
        self.left_a_part = False
        self._examined_at = -CHECKPOINT_AFTER
        #: Whether the last checkpoint copied the whole log, so that the main file can be read
        #: without it.  SQLite leaves pages out that some reader still needs as they were.
        self._complete = False
        #: When the oldest commit was made that may be in the log alone; None if there is none.
        self._committed_at: float | None = None
        event.listen(engine, "do_connect", self._connect)
        event.listen(engine, "checkout", self._check)
        event.listen(engine, "checkin", self._put_back)

    # --- connections

    def _connect(self, dialect: Any, record: Any, arguments: Any, options: dict[str, Any]) -> Any:
        """Make a connection, unless the files are damaged."""
        with self._lock:
            # Taken before the file is opened: ``_check`` notices a later replacement.
            identity = _identity(self._path)
            if identity is not None and self._main_identity is None:
                identity = self._main_identity = self._hold()
            if identity not in {None, self._main_identity}:
                raise _unusable(
                    f"{self._path} was replaced: put the file before back; or stop the broker, "
                    f"remove {self._log_path} and the file beside it that ends in -shm, and "
                    "start it"
                )
            self._refuse_damage()
            if self._open and not self._log_is_ours():
                self._give_up_log()
            if self._stale:
                raise _unusable(
                    "the database is opened again when all of its connections are closed"
                )
            record.info[_IDENTITY] = identity
            more = {"uri": True, "factory": _Connection}
            connection: _Connection = dialect.connect(self._address, **options | more)
            # ``checkpoint`` makes the checkpoints, and so knows when the main file is complete.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.closed = self._forget
            self._open.add(connection)
            return connection

    def _hold(self) -> _Identity:
        """Keep the main file open, so that no other file can get its device and inode numbers.

        :returns: these numbers.
        """
        # With O_PATH only: to close a descriptor for reading would release SQLite's locks.
        only_path = getattr(os, "O_PATH", None)
        held = os.open(self._path, (os.O_RDONLY if only_path is None else only_path) | os.O_CLOEXEC)
        if only_path is not None:  # without O_PATH it is never closed, for the same reason
            finalize(self, os.close, held)
        return _identity_of(os.fstat(held))

    def _check(self, connection: _Connection, record: Any, proxy: Any) -> None:
        """Check that a connection has the files open that the paths lead to now."""
        with self._lock:
            if record.info[_IDENTITY] != _identity(self._path):
                raise DisconnectionError(f"{self._path} was removed or replaced")
            self._refuse_damage()
            if not self._log_is_ours():
                self._give_up_log()
            if connection in self._stale:
                raise DisconnectionError(f"{self._log_path} was removed or cut short")

    def _put_back(self, connection: _Connection | None, record: Any) -> None:
        if connection is not None and connection in self._stale:
            record.invalidate()

    def _forget(self, connection: _Connection) -> None:
        with self._lock:
            self._open.discard(connection)
            self._stale.discard(connection)
            if not self._open and not self._stale:
                self._let_go_of_log()  # SQLite removes the log with the last connection

    # --- the log

    def _log_is_ours(self) -> bool:
        """Whether the log at its path is the open one, and no shorter than before."""
        if self._log_file is None:
            self._take_up_log()
            return True
        found = _status(self._log_path)
        ours = found is not None and _identity_of(found) == _identity_of(os.fstat(self._log_file))
        return ours and found is not None and found.st_size >= self._log_size

    def _take_up_log(self) -> None:
        """Open the log that SQLite has open, to compare it later with the file at its path."""
        # It stays open, so that it can be read when no file descriptor is left.  SQLite has no
        # locks in this file.
        with suppress(OSError):  # if there is no log yet, the next call opens it
            self._log_file = os.open(self._log_path, os.O_RDWR | os.O_CLOEXEC)

    def _let_go_of_log(self) -> None:
        if self._log_file is not None:
            os.close(self._log_file)
        self._log_file, self._log_size = None, 0

    def _give_up_log(self) -> None:
        """Have all connections closed before new ones are made."""
        assert self._log_file is not None  # ``_take_up_log`` opened it before the damage
        if _identity(self._log_path) == _identity_of(os.fstat(self._log_file)):
            # Emptied, since the last connection to close would otherwise copy an incomplete log
            # into the main file.
            os.ftruncate(self._log_file, 0)
            self.losses += 1
            self.log.error(
                "{log} was cut short by somebody: what this broker wrote since {file} was "
                "last brought up to date is written again; if somebody read for long meanwhile, "
                "only what it wrote in the last two seconds.",
                log=self._log_path,
                file=self._path,
            )
        else:
            self.log.error(
                "{log} was removed by somebody: what was in it is written to {file}.",
                log=self._log_path,
                file=self._path,
            )
        self._stale |= self._open
        self._open.clear()
        self._let_go_of_log()
        self._engine.pool.dispose()  # closes the connections that are not in use

    # --- after a commit

    def confirm(self) -> None:
        """Check that the latest commit went to the files at their paths.

        :raises OperationalError: it did not, and may be gone with the process.
        """
        with self._lock:
            if self._committed_at is None:
                self._committed_at = time.monotonic()
            if _identity(self._path) != self._main_identity:
                raise _unusable(f"{self._path} was removed or replaced")
            if not self._log_is_ours() or not self._log_begins_well():
                self._log_size = 1 << 62  # so that ``_log_is_ours`` is false from now on
                raise _unusable(f"{self._log_path} was removed or cut short")
            if self._log_file is not None:
                self._log_size = os.fstat(self._log_file).st_size
            if self._complete and _stamp(self._path) != self._examined_stamp:
                self._examine()
                self._refuse_damage()

    def _log_begins_well(self) -> bool:
        """Whether the log has its first bytes: they are missing if it was truncated."""
        if self._log_file is None:
            return True
        try:
            begins = os.pread(self._log_file, 4, 0)
        except OSError as error:
            raise _unusable(f"{self._log_path} cannot be read: {error}") from error
        nothing_yet = not begins and not self._log_size  # a commit may have changed nothing
        return begins in _LOG_MAGIC or nothing_yet

    @property
    def checkpoint_in(self) -> float | None:
        """The seconds until the next checkpoint; None if all commits are in the main file."""
        if self._committed_at is None:
            return None
        return max(0.0, self._committed_at + CHECKPOINT_AFTER - time.monotonic())

    def checkpoint(self) -> bool:
        """Make a checkpoint, which copies all commits into the main file, and examine that file.

        :returns: whether the main file has all commits now.  If not, `checkpoint_in` says when to
            try again.
        """
        problem, is_full = "", False
        try:
            complete = self._run_checkpoint()
        except Exception as error:
            complete, problem = False, str(error)
            is_full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
        if problem and not self._problem:
            self.log.warn(
                "{file} cannot be brought up to date: {error}", file=self._path, error=problem
            )
        self._problem = problem
        self.left_a_part = not (complete or problem)
        self._committed_at = None if complete else time.monotonic()
        with self._lock:
            if not problem or is_full:  # on a full disk, a part of the pages was copied
                self._complete = complete
            if self._complete and _identity(self._path) == self._main_identity:
                self._examine()
        return complete

    def _run_checkpoint(self) -> bool:
        connection = self._engine.raw_connection()
        try:
            # Nearly all is copied without a wait.  If the broker always reads, some reader needs
            # older pages at any time; then the rest is copied when these readers are done.
            if _copies_all(connection, "PASSIVE", 0):
                return True
            with self._lock:
                self._complete = False  # even if the next line fails
            return _copies_all(connection, "FULL", WAIT)
        finally:
            connection.close()

    # --- the main file

    def _refuse_damage(self) -> None:
        if self._damage and time.monotonic() >= self._examined_at + CHECKPOINT_AFTER:
            self._examine()
        if self._damage:
            raise _unusable(
                f"{self._path} is damaged ({self._damage}): something else wrote to it. Stop the "
                "broker, and put back a copy of the database"
            )

    def _examine(self) -> None:
        """Read the first and the last row of each table in the main file, without the log."""
        before, self._examined_stamp = self._damage, _stamp(self._path)
        for left in reversed(range(_TRIES)):
            self._damage = _fault(self._without_log)
            if not self._damage:
                break
            if left:
                time.sleep(_PAUSE)
        self._examined_at = time.monotonic()
        if self._damage and not before:
            self.log.error(
                "{file} is damaged: {damage}. The broker reads and writes nothing until it can be "
                "read again.",
                file=self._path,
                damage=self._damage,
            )
        elif before and not self._damage:
            self.log.info("{file} can be read again.", file=self._path)


def _copies_all(connection: Any, how: str, wait: int) -> bool:
    """Make a checkpoint.

    :param how: the mode (https://sqlite.org/pragma.html#pragma_wal_checkpoint).
    :param wait: milliseconds.
    :returns: whether the main file has all commits now.
    """
    (before,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {wait}")
    try:
        (row,) = connection.execute(f"PRAGMA wal_checkpoint({how})").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {before}")
    busy, frames, copied = row
    return not busy and frames == copied


def _fault(address: str) -> str:
    """The damage of a database file, as SQLite reports it.

    Empty if there is none, or if the file cannot be opened now.
    """
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (table,) in tables.fetchall():
                for end in ("min", "max"):
                    query = f'SELECT {end}(rowid) FROM "{table}"'  # noqa: S608 # our own table
                    connection.execute(query).fetchone()
    except sqlite3.Error as error:
        return str(error) if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE else ""
    return ""


def _unusable(reason: str) -> OperationalError:
    return OperationalError("open", None, OSError(reason))


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:  # the file or its directory is missing, or the disk does not answer
        return None


def _identity(path: str) -> _Identity | None:
    """The device and inode numbers of the file at a path; None if it cannot be read."""
    found = _status(path)
    return found and _identity_of(found)


def _identity_of(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def _stamp(path: str) -> tuple[int, int] | None:
    """Size and modification time of a file, which change whenever it is written to."""
    found = _status(path)
    return found and (found.st_size, found.st_mtime_ns)
