"""Writes files so that nobody ever sees half a file, not even after a crash.

A file is written as ``NAME.part``; when it is on disk, it is renamed over the old one.  A ``Draft``
writes a gzipped twin beside it in the same way, as ``NAME.gz``, for web servers.  The functions
and methods block.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from typing import IO, Final

from twisted.python.filepath import FilePath

_GZIP_WINDOW: Final = 31  # zlib: the largest window, and the gzip format


class Draft:
    """A file and its gzipped twin while they are written.

    Every method blocks, and raises ``OSError`` if the disk fails; after that the caller must
    call ``discard``.

    :param target: the path of the finished file; that of the twin has ``.gz`` added.
    """

    def __init__(self, target: FilePath[str]) -> None:
        # The twin is renamed first: after a crash between the two, a whole plain file (see
        # ``records_in``) has a whole twin.
        self._targets = (target.siblingExtension(".gz"), target)
        self._files: list[IO[bytes]] = []
        # Unlike the gzip module this writes no time into the header, so the same content
        # gives the same bytes.
        self._compressor = zlib.compressobj(wbits=_GZIP_WINDOW)

    def begin(self) -> None:
        """Open both files, and create their directory if it is missing."""
        self._targets[0].parent().makedirs(ignoreExistingDirectory=True)
        for target in self._targets:
            self._files.append(_part(target).open("w"))

    def write(self, data: bytes) -> None:
        """Append to both files."""
        gzipped, plain = self._files
        gzipped.write(self._compressor.compress(data))
        plain.write(data)

    def publish(self) -> None:
        """Sync both files to disk, then rename them over the old ones."""
        self._files[0].write(self._compressor.flush())
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        for target in self._targets:
            os.replace(_part(target).path, target.path)
        _sync_directory(self._targets[0].parent())

    def discard(self) -> None:
        """Close and delete the unfinished files.  Does not raise ``OSError``."""
        for file in self._files:
            with suppress(OSError):
                file.close()
        for target in self._targets:
            with suppress(OSError):
                _part(target).remove()


def publish_file(target: FilePath[str], content: bytes) -> None:
    """Write a small file and its twin.  Blocks.

    :raises OSError: a file cannot be written; the old ones stay.
    """
    draft = Draft(target)
    try:
        draft.begin()
        draft.write(content)
        draft.publish()
    except Exception:
        draft.discard()
        raise


def replace_file(target: FilePath[str], content: bytes) -> None:
    """Write a small file without a twin over the old one.

    :raises OSError: the file cannot be written; the old one stays.
    """
    part = _part(target)
    try:
        with part.open("w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part.path, target.path)
    except OSError:
        with suppress(OSError):
            part.remove()
        raise
    _sync_directory(target.parent())


def _part(target: FilePath[str]) -> FilePath[str]:
    # Always the same name, so that files which a crash left behind are overwritten.
    return target.siblingExtension(".part")


def _sync_directory(directory: FilePath[str]) -> None:
    # A rename is on disk only when the directory is.
    descriptor = os.open(directory.path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
