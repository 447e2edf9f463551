"""Finds out what kind of file was uploaded, by its first bytes and not by what its sender says.

The patterns are those of the MIME Sniffing Standard (https://mimesniff.spec.whatwg.org/, section 6)
and of the formats' own specifications.  Only kinds are known that do nothing when a browser opens
them: neither HTML nor SVG, both of which may have scripts.  Everything else is `UNKNOWN`, which
browsers offer to save.
"""

from __future__ import annotations

import re
from typing import Final

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
_COMPILED: Final = tuple((re.compile(one, re.DOTALL), kind) for one, kind in _PATTERNS)


def media_type(data: bytes) -> str:
    """The media type of a file; `UNKNOWN` if it is none of ``ENDINGS``."""
    for pattern, kind in _COMPILED:
        if pattern.match(data):
            return kind
    return UNKNOWN
