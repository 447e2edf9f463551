"""Saves what a broker on SQLite has stored to one file, and restores it, for ``backup`` and
``restore``.

The file is a tar archive::

    broker.sqlite             the database, as it was at one moment
    public/changes.xml        the change lists and archives
    apps/NAME/...             files of applications

The database is copied first, by SQLite in one step, and the other files after it.  So what the
broker removes from the database, such as the pings of an archive, is in the files of the backup.
The broker may run meanwhile.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import Final

from rsscloud_broker.errors import StoreUnavailable
from rsscloud_broker.storage.examination import file_health, temporary_copy
from rsscloud_broker.util.atomic_files import PART

_DATABASE: Final = "broker.sqlite"
_DIRECTORIES: Final = ("public", "apps")

#: What the broker makes again of the database.  Of another database, documents with the same
#: numbers would be others.
_MADE_AGAIN: Final = "feeds"


class BackupError(Exception):
    """A backup cannot be made or restored.  The text says why, and what to do."""


def save_backup(database: Path, data: Path, target: Path) -> int:
    """Write a backup to a file that only its owner may read.

    The file appears when it is complete and on the disk.

    :param database: the file of the database.
    :param data: the data directory.
    :param target: the file to write, which must not exist.
    :returns: the bytes of the backup.
    :raises BackupError: there is such a file already, or the database is damaged.
    :raises OSError: a file cannot be read or written.
    :raises StoreUnavailable: the database cannot be read.
    """
    if target.exists():
        raise _exists_error(target)
    with NamedTemporaryFile(
        dir=target.parent, prefix=".backup-", suffix=PART, delete=False
    ) as written:
        unfinished = Path(written.name)
        try:
            with temporary_copy(database, target.parent) as copy:
                _check_undamaged(copy)
                with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
                    _add_file(archive, copy, _DATABASE)
                    for name, path in _files_to_save(data):
                        with suppress(FileNotFoundError):  # it was removed just now
                            _add_file(archive, path, name)
            written.flush()
            os.fsync(written.fileno())
            _give_name(unfinished, target)
            return os.fstat(written.fileno()).st_size
        finally:
            unfinished.unlink(missing_ok=True)


def restore_backup(source: Path, database: Path, data: Path) -> int:
    """Restore a backup into an empty data directory.

    The database comes last, so that a broker cannot start with a part of the files.  Who calls this
    holds the lock of the data directory.

    :param source: a file that `save_backup` wrote.
    :param database: the file of the database, which must not exist.
    :param data: the data directory; it is made if it does not exist.
    :returns: how many files were restored.
    :raises BackupError: something is there already, or the file is no backup or is damaged.
    :raises OSError: a file cannot be read or written.
    """
    for path in (database, *(Path(f"{database}{end}") for end in ("-wal", "-shm"))):
        if path.exists():
            raise _exists_error(path)
    for path in (data / name for name in (*_DIRECTORIES, _MADE_AGAIN)):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise _exists_error(path)
    unfinished = Path(f"{database}{PART}")
    try:
        with tarfile.open(source, "r:") as archive:
            members = {member.name: member for member in archive}
            _check_end(archive)
            if _DATABASE not in members:
                raise BackupError(f"{source} is not a backup: it has no {_DATABASE}")
            database_member = members.pop(_DATABASE)
            targets = [(member, data / _checked_path(name)) for name, member in members.items()]
            data.mkdir(mode=0o750, parents=True, exist_ok=True)
            _extract(archive, database_member, unfinished, 0o600)
            _check_undamaged(unfinished)
            for member, path in targets:
                _extract(archive, member, path, member.mode & 0o777)
        _give_name(unfinished, database, is_locked=True)
    except tarfile.TarError as error:
        raise BackupError(f"{source} is not a backup, or is damaged: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return len(targets) + 1


def _give_name(complete: Path, target: Path, *, is_locked: bool = False) -> None:
    """Give a complete file the name that people look for, by a hard link if the file system has
    them.  Its unfinished name may remain; the caller removes that.

    :param is_locked: whether nobody else makes such a file meanwhile.
    :raises BackupError: there is such a file.
    """
    try:
        os.link(complete, target)
    except FileExistsError:
        raise _exists_error(target) from None
    except OSError:  # some file systems have no hard links, and say so by various errors
        _give_name_without_links(complete, target, is_locked=is_locked)


def _give_name_without_links(complete: Path, target: Path, *, is_locked: bool) -> None:
    """Do what ``_give_name`` does on a file system without hard links."""
    if is_locked:
        if target.exists():
            raise _exists_error(target)
        os.replace(complete, target)
        return
    # An empty file takes the name, and is replaced.  A crash in between leaves the empty file, of
    # which `restore` says that it is no backup.
    try:
        target.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        raise _exists_error(target) from None
    try:
        os.replace(complete, target)
    except OSError:
        target.unlink(missing_ok=True)
        raise


def _exists_error(path: Path) -> BackupError:
    """The error to raise if a file is where one is to be written."""
    return BackupError(
        f"{path} exists already, and is not overwritten: move it away, or name another one"
    )


def _check_undamaged(database: Path) -> None:
    """Look through a whole database, however long that takes.

    :raises BackupError: it is damaged.
    """
    try:
        problems = file_health(database, inf).problems
    except StoreUnavailable as error:
        problems = (str(error.__cause__),)
    if problems:
        raise BackupError(f"the database is damaged, and a copy of it of no use: {problems[0]}")


def _files_to_save(data: Path) -> Iterator[tuple[str, Path]]:
    """The files beside the database, with their names in the backup, without unfinished ones."""
    for directory in _DIRECTORIES:
        for path in sorted((data / directory).rglob("*")):
            if path.is_file() and path.suffix != PART:
                yield path.relative_to(data).as_posix(), path


def _add_file(archive: tarfile.TarFile, path: Path, name: str) -> None:
    # The broker may replace the file at this path at any moment: the size is that of the open one.
    with path.open("rb") as file:
        archive.addfile(archive.gettarinfo(arcname=name, fileobj=file), file)


def _check_end(archive: tarfile.TarFile) -> None:
    """Check that the archive has its end, after all members were read.

    ``tarfile`` takes one that was cut off between two members for a whole one.

    :raises tarfile.ReadError: the end is missing.
    """
    assert archive.fileobj is not None  # it is open
    archive.fileobj.seek(archive.offset)
    if not archive.fileobj.read(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("its end is missing")


def _checked_path(name: str) -> PurePosixPath:
    """The relative path of a file of the backup below the data directory.

    :raises BackupError: it would be outside the directories that backups have.
    """
    path = PurePosixPath(name)
    if path.parts[:1] not in {(each,) for each in _DIRECTORIES} or ".." in path.parts:
        raise BackupError(f"the backup has a file {name!r}, which is not from a broker")
    return path


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, mode: int) -> None:
    """Write one file of a backup, with its time, from which HTTP validators are made."""
    content = archive.extractfile(member)
    if content is None:
        raise BackupError(f"the backup has {member.name!r}, which is no file")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        shutil.copyfileobj(content, file)
        os.utime(file.fileno(), (member.mtime, member.mtime))
        file.flush()
        os.fsync(file.fileno())
