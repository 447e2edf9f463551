"""Writes files so that nobody ever sees half a file, not even after a crash.

A file is written as ``NAME.part``; when it is on disk, it is renamed over the old one.  If several
may write the same file at the same time, their unfinished files have different names.  A ``Draft``
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

#: How the names of unfinished files end: usually, and those of files that are copied.
#: They are always the same, so that files which a crash left behind are overwritten.
PART: Final = ".part"
_COPIED: Final = ".copy.part"


class _TwoFiles:
    """A file and its gzipped twin while they are written.

    Every method blocks, and raises ``OSError`` if the disk fails; after that the caller must
    call ``discard``.

    :param target: the path of the finished file; that of the twin has ``.gz`` added.
    :param unfinished: how the names of the unfinished files end.
    """

    def __init__(self, target: FilePath[str], unfinished: str) -> None:
        self._unfinished = unfinished
        # The twin is renamed first: after a crash between the two, a whole plain file (see
        # ``records_in``) has a whole twin.
        self._targets = (target.siblingExtension(".gz"), target)
        self._files: list[IO[bytes]] = []
        #: How many bytes have been written to the file.
        self.size = 0

    def begin(self) -> None:
        """Open both files, and create their directory if it is missing."""
        self._targets[0].parent().makedirs(ignoreExistingDirectory=True)
        for target in self._targets:
            self._files.append(target.siblingExtension(self._unfinished).open("w"))

    def discard(self) -> None:
        """Close and delete the unfinished files.  Does not raise ``OSError``."""
        for file in self._files:
            with suppress(OSError):
                file.close()
        for target in self._targets:
            with suppress(OSError):
                target.siblingExtension(self._unfinished).remove()

    def _sync(self, modified_at: float | None) -> None:
        """Sync both files to disk, with a time if there is one, and close them."""
        for file in self._files:
            file.flush()
            if modified_at is not None:
                time = round(modified_at * 1e6) * 1000  # microseconds, as ``is_version`` has them
                os.utime(file.fileno(), ns=(time, time))
            os.fsync(file.fileno())
            file.close()

    def _rename(self) -> None:
        for target in self._targets:
            os.replace(target.siblingExtension(self._unfinished).path, target.path)
        _sync_directory(self._targets[0].parent())


class Draft(_TwoFiles):
    """A file and its gzipped twin while they are written: see ``_TwoFiles``."""

    def __init__(self, target: FilePath[str], unfinished: str = PART) -> None:
        super().__init__(target, unfinished)
        # Unlike the gzip module this writes no time into the header, so the same content
        # gives the same bytes.
        self._compressor = zlib.compressobj(wbits=_GZIP_WINDOW)
        self._is_sealed = False

    def write(self, data: bytes) -> None:
        """Append to both files."""
        gzipped, plain = self._files
        gzipped.write(self._compressor.compress(data))
        plain.write(data)
        self.size += len(data)

    def seal(self, modified_at: float | None = None) -> None:
        """Sync both files to disk, under the names that unfinished files have.

        :param modified_at: the time that both files are to have, in seconds since the epoch; None
            for now.
        """
        self._files[0].write(self._compressor.flush())
        self._sync(modified_at)
        self._is_sealed = True

    def read_twin(self, offset: int, size: int) -> bytes:
        """Some bytes of the sealed twin; none after its end."""
        with self._targets[0].siblingExtension(self._unfinished).open() as file:
            file.seek(offset)
            return file.read(size)

    def publish(self, modified_at: float | None = None) -> None:
        """Rename both files over the old ones; seal them before, if that was not done.

        :param modified_at: see ``seal``.
        """
        if not self._is_sealed:
            self.seal(modified_at)
        self._rename()


class Copy(_TwoFiles):
    """A file and its gzipped twin while they are copied from the twin of another node."""

    def __init__(self, target: FilePath[str]) -> None:
        super().__init__(target, _COPIED)
        self._decompressor = zlib.decompressobj(wbits=_GZIP_WINDOW)
        self._is_damaged = False

    def write(self, gzipped: bytes) -> None:
        """Append bytes of the twin.  If they are damaged, the file does not become whole."""
        twin, plain = self._files
        twin.write(gzipped)
        while gzipped:  # so that little text which unpacks to much is never in memory as a whole
            try:
                # A million bytes at most are unpacked and written at a time.
                data = self._decompressor.decompress(gzipped, 1_000_000)
            except zlib.error:
                self._is_damaged = True
                return
            self.size += len(data)
            plain.write(data)
            gzipped = self._decompressor.unconsumed_tail

    def publish(self, size: int, modified_at: float) -> bool:
        """Sync both files to disk, then rename them over the old ones.

        :param size: how many bytes the file is to have.
        :param modified_at: the time that both files are to have, in seconds since the epoch.
        :returns: False, and nothing is renamed, if the file is not whole.
        """
        if self._is_damaged or not self._decompressor.eof or self.size != size:
            return False
        self._sync(modified_at)
        self._rename()
        return True


def is_version(target: FilePath[str], size: int, modified_at: float) -> bool:
    """Whether a file and its twin are there, with this size and time.  Blocks."""
    wanted = round(modified_at * 1e6)
    try:
        status, twin = (os.stat(path) for path in (target.path, f"{target.path}.gz"))
    except OSError:
        return False
    times = {round(one.st_mtime_ns / 1000) for one in (status, twin)}
    return status.st_size == size and times == {wanted}


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
    """Replace a small file at once.  Unlike ``publish_file``, it makes no gzipped twin.

    :raises OSError: the file cannot be written; the old one stays.
    """
    part = target.siblingExtension(PART)
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


def _sync_directory(directory: FilePath[str]) -> None:
    descriptor = os.open(directory.path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
