"""The URLs of uploaded files, and their names for people.

A file is named by the SHA-256 digest of its bytes.  The name that its sender gave it is for people
alone, so it can harm nothing.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from attrs import evolve, frozen

from rsscloud_broker.apps.writing.model import OutlineItem
from rsscloud_broker.apps.writing.sniffing import ENDINGS
from rsscloud_broker.apps.writing.upload_rows import StoredUpload
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire.text import clean

_PATH: Final = re.compile(r"/people/([a-z0-9-]{2,32})/files/([0-9a-f]{64})\.[a-z0-9]{1,5}")
_NOT_IN_NAMES: Final = re.compile(r'[/\\:*?"<>|]')
_DIGEST: Final = re.compile("[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Whether a text can be the digest of a file."""
    return _DIGEST.fullmatch(text) is not None


@frozen
class FileUrls:
    """The URLs of the files of all accounts."""

    public_url: str

    def url(self, account: str, upload: StoredUpload) -> str:
        """Where everybody can get a file."""
        ending = ENDINGS[upload.media_type]
        return f"{self.public_url}/people/{account}/files/{upload.digest}.{ending}"

    def parse_url(self, url: str) -> tuple[str, str] | None:
        """The name of the account and the digest in the URL of a file; None if it is none.

        :param url: however it is spelled: see ``urls.normal_form``.
        """
        rest = self._rest_of_own_url(url)
        return self.parse_path(urlsplit(rest).path) if rest.startswith("/") else None

    def as_stored(self, url: str) -> str:
        """A URL as it is stored in messages: that of a file here is spelled as `url` spells it, so
        that it can be found.
        """
        return (
            url if self.parse_url(url) is None else f"{self.public_url}{self._rest_of_own_url(url)}"
        )

    def outline_as_stored(self, items: tuple[OutlineItem, ...]) -> tuple[OutlineItem, ...]:
        """An outline whose links are as `as_stored` has them."""
        return tuple(
            evolve(each, link=self.as_stored(each.link), items=self.outline_as_stored(each.items))
            for each in items
        )

    def _rest_of_own_url(self, url: str) -> str:
        """The rest of a URL of the broker, in normal form; empty if it is another's URL."""
        normal, own = normal_form(url), normal_form(self.public_url).rstrip("/")
        return normal.removeprefix(own) if normal.startswith(f"{own}/") else ""

    def parse_path(self, path: str) -> tuple[str, str] | None:
        """The name of the account and the digest in the path of a file; None if it is none."""
        found = _PATH.fullmatch(path)
        return (found[1], found[2]) if found else None


def shown_name(name: str) -> str:
    """The name of a file for people: the last part of a path, without characters that have a
    meaning in paths; ``file`` if nothing is left.
    """
    last = re.split(r"[/\\]", clean(name)[-1000:])[-1]
    harmless = _NOT_IN_NAMES.sub("", last).strip(". ")
    # A longer name loses its beginning, since its end says what the file is.
    return harmless[-100:] or "file"
