"""The kinds of uploaded files, their URLs, and their names for people.

Only kinds are known that do nothing when a browser opens them: neither HTML nor SVG, both of which
may have scripts.  Everything else is `UNKNOWN`, which browsers offer to save.

A file is named by the SHA-256 digest of its bytes.  The name that its sender gave it is for people
alone, so it can harm nothing.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import evolve, frozen

from rsscloud_broker.apps.writing.model import OutlineItem
from rsscloud_broker.apps.writing.upload_rows import StoredUpload
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire.text import clean

UNKNOWN: Final = "application/octet-stream"

#: The kinds that are known, each with the ending of its file names.
ENDINGS: Final = {
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/avif": "avif",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/ogg": "ogg",
    "audio/flac": "flac",
    "audio/wav": "wav",
    "video/mp4": "mp4",
    "video/ogg": "ogv",
    "video/webm": "webm",
    "application/pdf": "pdf",
    UNKNOWN: "bin",
}

_PATTERNS: Final = (
    (rb"\xff\xd8\xff", "image/jpeg"),
    (rb"\x89PNG\r\n\x1a\n", "image/png"),
    (rb"GIF8[79]a", "image/gif"),
    (rb"RIFF....WEBPVP", "image/webp"),
    (rb"RIFF....WAVE", "audio/wav"),
    (rb"....ftyp(?:avif|avis)", "image/avif"),
    (rb"....ftyp(?:M4A |M4B )", "audio/mp4"),
    (rb"....ftyp(?:mp4[12]|isom|iso[2-9]|avc1|dash|M4V |MSNV|mmp4)", "video/mp4"),
    (rb"\x1aE\xdf\xa3.{4,60}webm", "video/webm"),
    (rb"OggS.{24}.\x80theora", "video/ogg"),
    (rb"OggS", "audio/ogg"),
    (rb"fLaC", "audio/flac"),
    (rb"ID3[\x02-\x04]", "audio/mpeg"),
    # A frame of MPEG 1 or 2, layer 3, whose bit rate and sampling rate exist.
    (rb"\xff[\xfa\xfb\xf2\xf3][\x10-\xef]", "audio/mpeg"),
    (rb"%PDF-[12]\.", "application/pdf"),
)

_PATH: Final = re.compile(r"/people/([a-z0-9-]{2,32})/files/([0-9a-f]{64})\.[a-z0-9]{1,5}")
_NOT_IN_NAMES: Final = re.compile(r'[/\\:*?"<>|]')


def media_type(data: bytes) -> str:
    """The media type of a file; `UNKNOWN` if it is none of ``ENDINGS``.

    It is found by the first bytes and not by what the sender says.  The patterns are those of the
    MIME Sniffing Standard (https://mimesniff.spec.whatwg.org/, section 6) and of the formats' own
    specifications.
    """
    found = (kind for pattern, kind in _PATTERNS if re.match(pattern, data, re.DOTALL))
    return next(found, UNKNOWN)


@frozen
class FileUrls:
    """The URLs of the files of all accounts.

    :param public_url: the broker's own URL, without a slash at the end.
    """

    public_url: str

    def url(self, account: str, upload: StoredUpload) -> str:
        """Where everybody can get a file.

        :param account: the name of the account.
        """
        ending = ENDINGS[upload.media_type]
        return f"{self.public_url}/people/{account}/files/{upload.digest}.{ending}"

    def parse_url(self, url: str) -> tuple[str, str] | None:
        """The name of the account and the digest in the URL of a file; None if it is none.

        :param url: however it is spelled: see ``urls.normal_form``.
        """
        return self.parse_path(re.split("[?#]", self._rest_of_own_url(url), maxsplit=1)[0])

    def as_stored(self, url: str) -> str:
        """A URL as messages store it: one of a file here is spelled as ``url`` spells it."""
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
