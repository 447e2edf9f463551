"""Keeps archived documents as files, for web servers: ``N.atom``, and its gzipped twin.

Each log has a directory below that of the archive, with the UUID of its feed as its name.  Nobody
ever sees half a file.  The methods block.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Final

from twisted.python.filepath import FilePath

from rsscloud_broker.util.atomic_files import publish_file

_UUID: Final = re.compile(r"urn:uuid:([0-9a-f-]{36})")
_NAME: Final = re.compile(r"([0-9]{1,18})\.atom(?:\.gz)?")


class Archive:
    """The files of archived documents.

    :param directory: the directory with those of all logs; it need not exist yet.
    """

    def __init__(self, directory: FilePath[str]) -> None:
        self._directory = directory

    def file(self, feed_id: str, number: int) -> FilePath[str]:
        """The file of a document, which need not exist.  ``.gz`` added, it is that of its twin.

        :param feed_id: the id of the feed, as ``Log`` has it.
        """
        found = _UUID.fullmatch(feed_id)
        assert found is not None  # ``log`` has made it
        path: FilePath[str] = self._directory.child(found[1]).child(f"{number}.atom")
        return path

    def has(self, feed_id: str, number: int) -> bool:
        """Whether the file of a document exists, and its twin."""
        file = self.file(feed_id, number)
        return bool(file.isfile() and file.siblingExtension(".gz").isfile())

    def write(self, feed_id: str, number: int, body: bytes, updated: float) -> None:
        """Write the file of a document and its twin; when this returns, they are on disk.

        :param updated: the time of its newest entry, in seconds since the epoch.  It becomes the
            time of the files, so that a web server sends it as Last-Modified.
        :raises OSError: they cannot be written.
        """
        file = self.file(feed_id, number)
        publish_file(file, body)
        for each in (file, file.siblingExtension(".gz")):
            os.utime(each.path, (updated, updated))

    def remove(self, feed_id: str, through: int | None) -> None:
        """Remove the files of documents, if they exist.

        :param through: the number of the last document to remove; None for all.
        :raises OSError: one cannot be removed.
        """
        directory = self.file(feed_id, through or 1).parent()
        for name in directory.listdir() if directory.isdir() else ():
            found = _NAME.fullmatch(name)
            if found is not None and (through is None or int(found[1]) <= through):
                with suppress(FileNotFoundError):
                    directory.child(name).remove()
