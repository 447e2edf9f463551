"""The files of an SQLite database, which others may damage while it is open.

A database in WAL mode is a main file and a log beside it.  A commit goes to the log; a
*checkpoint* copies it into the main file.  SQLite keeps both files open, and does not
notice if they are removed, replaced, cut short or written over: it would go on with what it
has open, and all that the broker thanked for would be gone with the process.  So:

- A connection is used only while both paths lead to the files that it has open.  What is
  written is looked for there once more after each commit, before anybody is thanked.
- At most a second after a commit a checkpoint is made, so that what was thanked for is in
  the main file too; then the main file is read without the log.

What is done about damage:

================================  ========================================================
the main file was removed or      nothing is read or written until the one before is back:
replaced                          what is under way belongs to that one
the main file was written over    nothing is read or written until it can be read again
or cut short
the log was removed or replaced   all connections are closed, the last of which puts all
                                  that was written into the main file; new ones go on
the log was cut short             all connections are closed; new ones go on after the last
                                  checkpoint, and what was committed since then has to be
                                  written again: see ``losses``
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

#: Seconds after which what was committed is put into the main file too, and that is read.
KEEP_WITHIN = 1.0

#: How often the main file is read before it is called damaged: another process may be at
#: a checkpoint.
_TRIES = 3
_PAUSE = 0.05

#: How a log begins (https://sqlite.org/fileformat2.html#walformat).
_LOG_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")

#: Errors that lie in a file, rather than in how much there is of memory or descriptors.
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}

_IDENTITY = "rsscloud_broker_file"

_Identity: TypeAlias = tuple[int, int]


class _Connection(sqlite3.Connection):
    """A connection that says when it is closed."""

    closed: Callable[[_Connection], object]

    def close(self) -> None:
        super().close()
        self.closed(self)


class Files:
    """The files of the database of an engine.

    :param path: where the main file is.
    :ivar losses: how often the log was cut short, with what was committed since the last
        checkpoint.
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
        #: Those that are still open and must not be used any more.
        self._stale: WeakSet[_Connection] = WeakSet()
        self._taken_up: _Identity | None = None
        self.losses = 0
        self._log_file: int | None = None
        self._log_size = 0
        #: Size and time of the main file when it was last found to be whole.
        self._whole: tuple[int, int] | None = None
        self._damage = self._problem = ""
        self._examined_at = -KEEP_WITHIN
        #: Whether the main file makes sense without the log: SQLite leaves out pages that have
        #: changed since, where somebody still reads what was before.
        self._complete = False
        #: When the oldest commit was made that may be in the log alone.
        self._committed_at: float | None = None
        event.listen(engine, "do_connect", self._connect)
        event.listen(engine, "checkout", self._check)
        event.listen(engine, "checkin", self._put_back)

    # --- connections

    def _connect(self, dialect: Any, record: Any, arguments: Any, options: dict[str, Any]) -> Any:
        """Make a connection."""
        with self._lock:
            identity = _identity(self._path)  # before it is opened: ``_check`` sees what follows
            if identity is not None and self._taken_up is None:
                identity = self._taken_up = self._hold()
            if identity not in {None, self._taken_up}:
                raise _unusable(
                    f"{self._path} was replaced: put the file before back; or stop the broker, "
                    f"remove {self._log_path} and the file beside it that ends in -shm, and "
                    "start it"
                )
            self._refuse_damage()
            if self._open and not self._log_is_ours():
                self._give_up_log()
            if self._stale:
                raise _unusable("the database is opened anew once nobody uses it as it was")
            record.info[_IDENTITY] = identity
            more = {"uri": True, "factory": _Connection}
            connection: _Connection = dialect.connect(self._address, **options | more)
            # ``keep`` does that each second, and knows then what the main file is worth.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.closed = self._forget
            self._open.add(connection)
            return connection

    def _hold(self) -> _Identity:
        """Keep what tells the file from another from being given to another."""
        # By its path only: to close what is open for reading would release SQLite's locks.
        only_path = getattr(os, "O_PATH", None)
        held = os.open(self._path, (os.O_RDONLY if only_path is None else only_path) | os.O_CLOEXEC)
        if only_path is not None:  # elsewhere it stays open, for the same reason
            finalize(self, os.close, held)
        return _identity_of(os.fstat(held))

    def _check(self, connection: _Connection, record: Any, proxy: Any) -> None:
        """See to it that a connection is one to the files that are there now."""
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
                self._let_go_of_log()  # SQLite has removed it, too

    # --- the log

    def _log_is_ours(self) -> bool:
        """Whether the log is the one that is open, and no shorter than it was."""
        if self._log_file is None:
            self._take_up_log()
            return True
        found = _status(self._log_path)
        ours = found is not None and _identity_of(found) == _identity_of(os.fstat(self._log_file))
        return ours and found is not None and found.st_size >= self._log_size

    def _take_up_log(self) -> None:
        """Remember the log that SQLite has open."""
        # Kept open, to be read when no more can be opened.  SQLite locks nothing in it.
        with suppress(OSError):  # it is not there yet, or next time
            self._log_file = os.open(self._log_path, os.O_RDWR | os.O_CLOEXEC)

    def _let_go_of_log(self) -> None:
        if self._log_file is not None:
            os.close(self._log_file)
        self._log_file, self._log_size = None, 0

    def _give_up_log(self) -> None:
        """Have all connections closed before there are new ones."""
        assert self._log_file is not None  # it was taken up, and is not ours any more
        if _identity(self._log_path) == _identity_of(os.fstat(self._log_file)):
            # The last one to be closed would put what is left of it into the main file,
            # without what belongs to it.
            os.ftruncate(self._log_file, 0)
            self.losses += 1
            self.log.error(
                "{log} was cut short by somebody: what this broker wrote since {file} was "
                "brought up to date, within the last second, is written again.",
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
        self._engine.pool.dispose()  # of those that nobody uses now

    # --- what was written

    def confirm(self) -> None:
        """Find what was committed just now in the files that are there, or raise.

        :raises OperationalError: it may be gone with the process.
        """
        with self._lock:
            if self._committed_at is None:
                self._committed_at = time.monotonic()
            if _identity(self._path) != self._taken_up:
                raise _unusable(f"{self._path} was removed or replaced")
            if not self._log_is_ours() or not self._log_begins_well():
                self._log_size = 1 << 62  # whatever its size is, it is too short
                raise _unusable(f"{self._log_path} was removed or cut short")
            if self._log_file is not None:
                self._log_size = os.fstat(self._log_file).st_size
            if self._complete and _stamp(self._path) != self._whole:
                self._examine()
                self._refuse_damage()

    def _log_begins_well(self) -> bool:
        """Whether the log has a beginning: it has none where it was cut before a commit."""
        if self._log_file is None:
            return True
        try:
            begins = os.pread(self._log_file, 4, 0)
        except OSError as error:
            raise _unusable(f"{self._log_path} cannot be read: {error}") from error
        nothing_yet = not begins and not self._log_size  # a commit may have changed nothing
        return begins in _LOG_MAGIC or nothing_yet

    @property
    def keep_in(self) -> float | None:
        """In how many seconds `keep` is due; None while there is nothing to keep."""
        if self._committed_at is None:
            return None
        return max(0.0, self._committed_at + KEEP_WITHIN - time.monotonic())

    def keep(self) -> bool:
        """Put what was committed into the main file, and read that.

        :returns: whether all is there now; or else `keep_in` says when to try again.
        """
        problem = ""
        try:
            kept = self._checkpoint()
        except Exception as error:
            kept, problem = False, str(error)
        if problem and not self._problem:
            self.log.warn(
                "{file} cannot be brought up to date: {error}", file=self._path, error=problem
            )
        self._problem = problem
        self._committed_at = None if kept else time.monotonic()
        with self._lock:
            if not problem:
                self._complete = kept
            if self._complete and _identity(self._path) == self._taken_up:
                self._examine()
        return kept

    def _checkpoint(self) -> bool:
        connection = self._engine.raw_connection()
        try:
            (row,) = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        finally:
            connection.close()
        busy, frames, copied = row
        return not busy and frames == copied  # or else somebody reads what was before

    # --- the main file

    def _refuse_damage(self) -> None:
        if self._damage and time.monotonic() >= self._examined_at + KEEP_WITHIN:
            self._examine()
        if self._damage:
            raise _unusable(
                f"{self._path} is damaged ({self._damage}): something else wrote to it. Stop the "
                "broker, and put back a copy of the database"
            )

    def _examine(self) -> None:
        """Read the beginning and the end of each table in the main file, without the log."""
        before, self._whole = self._damage, _stamp(self._path)
        for left in reversed(range(_TRIES)):
            self._damage = _fault(self._without_log)
            if not self._damage:
                break
            if left:
                time.sleep(_PAUSE)
        self._examined_at = time.monotonic()
        if self._damage and not before:
            self.log.error(
                "{file} is damaged: {damage}. Nothing is taken in until it can be read again.",
                file=self._path,
                damage=self._damage,
            )
        elif before and not self._damage:
            self.log.info("{file} can be read again.", file=self._path)


def _fault(address: str) -> str:
    """What is wrong with a database; empty if nothing is, or if it cannot be opened now."""
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (table,) in tables.fetchall():
                for end in ("min", "max"):
                    query = f'SELECT {end}(rowid) FROM "{table}"'  # noqa: S608 # it is ours
                    connection.execute(query).fetchone()
    except sqlite3.Error as error:
        return str(error) if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE else ""
    return ""


def _unusable(reason: str) -> OperationalError:
    return OperationalError("open", None, OSError(reason))


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:  # it is not there, or its directory is not, or the disk does not answer
        return None


def _identity(path: str) -> _Identity | None:
    """What tells a file from another at the same path; None if it cannot be seen."""
    found = _status(path)
    return found and _identity_of(found)


def _identity_of(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def _stamp(path: str) -> tuple[int, int] | None:
    """What changes whenever a file is written to."""
    found = _status(path)
    return found and (found.st_size, found.st_mtime_ns)
