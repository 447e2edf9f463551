"""Keeps uploaded files below the directory of the application, and tells where they are.

A file is named by the SHA-256 digest of its bytes: ``files/ACCOUNT/DIGEST``.  The name that its
sender gave it is kept in the database, for people alone, so it can harm nothing.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen
from twisted.python.filepath import FilePath

from rsscloud_broker.apps.writing.sniffing import ENDINGS
from rsscloud_broker.apps.writing.upload_rows import StoredUpload
from rsscloud_broker.wire.text import clean

_PATH: Final = re.compile(r"/people/([a-z0-9-]{2,32})/files/([0-9a-f]{64})\.[a-z0-9]{1,5}")
_MAX_NAME: Final = 100
_NOT_IN_NAMES: Final = re.compile(r'[/\\:*?"<>|]')


_DIGEST: Final = re.compile("[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Whether a text can be the digest of a file."""
    return _DIGEST.fullmatch(text) is not None


@frozen
class Files:
    """The files of all accounts.

    :param directory: need not exist yet.
    :param public_url: the broker's own URL, without a slash at the end.
    """

    directory: FilePath[str]
    public_url: str

    def url(self, account: str, upload: StoredUpload) -> str:
        """Where everybody can get a file.

        :param account: the name of the account.
        """
        ending = ENDINGS[upload.media_type]
        return f"{self.public_url}/people/{account}/files/{upload.digest}.{ending}"

    def named(self, url: str) -> tuple[str, str] | None:
        """The name of the account and the digest in the URL of a file; None if it is none."""
        if not url.startswith(f"{self.public_url}/"):
            return None
        return self.in_path(urlsplit(url).path)

    def in_path(self, path: str) -> tuple[str, str] | None:
        """The name of the account and the digest in the path of a file; None if it is none."""
        found = _PATH.fullmatch(path)
        return (found[1], found[2]) if found else None

    def file(self, account_id: int, digest: str) -> FilePath[str]:
        """Where a file is on the disk."""
        found: FilePath[str] = self.directory.descendant(["files", str(account_id), digest])
        return found

    def keep(self, account_id: int, data: bytes) -> str:
        """Write a file to the disk, so that a crash leaves all of it or nothing.  It blocks: call
        it in a thread.

        :returns: its digest, in hexadecimal.
        """
        digest = sha256(data).hexdigest()
        path = self.file(account_id, digest)
        if path.exists():
            return digest
        path.parent().makedirs(ignoreExistingDirectory=True)
        unfinished = path.siblingExtension(".part")
        with unfinished.open("w") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.moveTo(path)
        return digest

    def remove(self, account_id: int, digest: str) -> None:
        """Delete a file, if it is there.  It blocks: call it in a thread."""
        path = self.file(account_id, digest)
        if path.exists():
            path.remove()


def shown_name(name: str) -> str:
    """The name of a file for people: the last part of a path, without characters that have a
    meaning in paths; ``file`` if nothing is left.
    """
    last = re.split(r"[/\\]", clean(name)[-1000:])[-1]
    harmless = _NOT_IN_NAMES.sub("", last).strip(". ")
    return harmless[-_MAX_NAME:] or "file"
