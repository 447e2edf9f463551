"""Looks after the files of an SQLite database while the broker has them open.

A database in WAL mode is a main file and a log beside it.  A commit goes to the log; a
*checkpoint* copies it into the main file.  SQLite keeps both files open, and does not notice if
another program removes or replaces them: it would go on with the open files, and all that the
broker has acknowledged would be gone with the process.  So the writer calls ``look_after`` once a
second, which does two things:

- If anything was committed since, it makes a checkpoint, so that the main file has it too.  The
  checkpoint waits for short reads: under constant load the log would grow forever otherwise.
- It compares the device and inode numbers of both paths with those of the files that are open.
  While they differ, each transaction fails as it begins, so that callers get 503.  The broker does
  not end: the files that it has open can still be copied, and nobody starts it with an empty
  database meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any, Final, TypeAlias

from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError
from twisted.logger import Logger

#: Milliseconds for which a checkpoint waits for those who read, since they may need older pages.
#: Nothing is written meanwhile.
WAIT: Final = 20

_Identity: TypeAlias = tuple[int, int]


class Files:
    """The files of an engine's database.

    :param path: the path of the main file.
    :ivar is_changed: whether anything was committed since the last complete checkpoint.
    """

    log = Logger()

    def __init__(self, engine: Engine, path: str) -> None:
        self._engine = engine
        self._path = path
        self._log_path = f"{os.path.realpath(path)}-wal"
        self._address = f"{Path(path).absolute().as_uri()}?mode=rw"  # makes no empty file
        #: The files that are open, by their paths: the main file from the first connection on, the
        #: log from the first checkpoint on.  The pool keeps connections, so both stay open.
        self._opened: dict[str, _Identity | None] = {}
        # The path that was not in place at the last look, and why the last checkpoint failed.
        self._problem = self._trouble = ""
        self.is_changed = False
        self._due_at = 0.0
        event.listen(engine, "do_connect", self._connect)

    def _connect(self, dialect: Any, record: Any, arguments: Any, options: dict[str, Any]) -> Any:
        """Make a connection for SQLAlchemy, unless another file is at the path than before."""
        found = _identity(self._path)
        if self._opened.get(self._path, found) != found:
            raise self._unusable(self._path)
        connection: sqlite3.Connection = dialect.connect(self._address, **options | {"uri": True})
        # ``look_after`` makes the checkpoints.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._opened.setdefault(self._path, found)
        return connection

    def check(self) -> None:
        """Check that the database could be used at the last look.

        :raises OperationalError: it could not.
        """
        if self._problem:
            raise self._unusable(self._problem)

    def _unusable(self, path: str) -> OperationalError:
        """The error for all who use the database after a file was removed or replaced."""
        reason = (
            f"{path} was removed or replaced: put the same file back, or stop the broker. Before "
            f"you restore a backup, remove {self._log_path} and the file beside it that ends in "
            "-shm"
        )
        return OperationalError("open", None, OSError(reason))

    @property
    def due_in(self) -> float:
        """The seconds until the next look."""
        return max(0.0, self._due_at - time.monotonic())

    def look_after(self) -> None:
        """Make a checkpoint if anything was committed, and look whether the files are in place."""
        # Seconds between two looks.
        self._due_at = time.monotonic() + 1.0
        if self.is_changed:
            self._checkpoint()
        before = self._problem
        moved = [path for path, opened in self._opened.items() if _identity(path) != opened]
        self._problem = moved[0] if moved else ""
        if self._problem and not before:
            self.log.error(
                "{file} was removed or replaced by somebody. The broker reads and writes nothing "
                "until the same file is back.",
                file=self._problem,
            )
        elif before and not self._problem:
            self.log.info("{file} is back.", file=before)

    def _checkpoint(self) -> None:
        """Make a checkpoint; if it fails, log that once, and try again at the next look."""
        trouble = ""
        try:
            self.is_changed = not self._copy_all()
            log = _identity(self._log_path)
            if log is not None:  # else somebody has moved both away since the last look
                self._opened.setdefault(self._log_path, log)
        except Exception as error:
            trouble = str(error)
        if trouble and not self._trouble:
            self.log.warn(
                "{file} cannot be brought up to date: {error}", file=self._path, error=trouble
            )
        self._trouble = trouble

    def _copy_all(self) -> bool:
        """Copy the log to the main file; return whether that has all commits now."""
        connection = self._engine.raw_connection()
        try:
            # Nearly all is copied without a wait.  If the broker always reads, some reader needs
            # older pages at any time; then the rest is copied when these readers are done.
            return _checkpoint(connection, "PASSIVE", 0) or _checkpoint(connection, "FULL", WAIT)
        finally:
            connection.close()


def _checkpoint(connection: Any, how: str, wait: int) -> bool:
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


def _identity(path: str) -> _Identity | None:
    """The device and inode numbers of the file at a path; None if it cannot be read."""
    try:
        found = os.stat(path)
    except OSError:  # the file or its directory is missing, or the disk does not answer
        return None
    return found.st_dev, found.st_ino
