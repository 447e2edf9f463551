"""Serves the style sheets, scripts and icons of the pages."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from twisted.python.filepath import FilePath
from twisted.web.http import CACHED
from twisted.web.server import Request
from twisted.web.static import Data
from zope.interface import implementer

from rsscloud_broker.http.requests import accepted_codings
from rsscloud_broker.interfaces import IFrontDoor, Route, RoutesOnly
from rsscloud_broker.wire.codings import allows_gzip
from rsscloud_broker.wire.units import DAY, HOUR

_FILES: Final = FilePath(__file__).parent()

#: The files by name, each with its media type and the seconds for which browsers may keep it.
#: Style sheets and scripts change together with the pages; icons hardly ever change.
ASSETS: Final = {
    "style.css": ("text/css; charset=utf-8", HOUR),
    "changes.css": ("text/css; charset=utf-8", HOUR),
    "page.js": ("text/javascript; charset=utf-8", HOUR),
    "log.js": ("text/javascript; charset=utf-8", HOUR),
    "sign_in_link.js": ("text/javascript; charset=utf-8", HOUR),
    "favicon.svg": ("image/svg+xml", DAY),
    # Browsers fetch this one for every site, even for answers that are not pages.
    "favicon.ico": ("image/x-icon", DAY),
}


class Asset(Data):
    """A resource that serves one file of a package, compressed or as it is; caches may keep it.

    :param file: the file, which is read at once.
    :param media_type: its Content-Type.
    :param seconds: how long caches may keep it.
    """

    def __init__(self, file: FilePath[str], media_type: str, seconds: int = HOUR) -> None:
        content: bytes = file.getContent()
        super().__init__(content, media_type)
        self._packed = gzip.compress(content, mtime=0)
        self._etag = sha256(content).hexdigest()[:16].encode("ascii")
        self._cache_control = b"public, max-age=%d" % seconds

    def render_GET(self, request: Request) -> bytes:
        request.setHeader(b"cache-control", self._cache_control)
        request.setHeader(b"vary", b"Accept-Encoding")
        packs = allows_gzip(accepted_codings(request)) and len(self._packed) < len(self.data)
        if request.setETag(b'"%b%b"' % (self._etag, b"-gzip" if packs else b"")) is CACHED:
            return b""
        if not packs:
            return bytes(super().render_GET(request))
        request.setHeader(b"content-type", self.type.encode("ascii"))
        request.setHeader(b"content-encoding", b"gzip")
        request.setHeader(b"content-length", b"%d" % len(self._packed))
        return b"" if request.method == b"HEAD" else self._packed

    render_HEAD = render_GET


@implementer(IFrontDoor)
class AssetsDoor(RoutesOnly):
    """The front door for ``ASSETS``.  Pages of all other front doors need them: it always runs."""

    name = "assets"

    def routes(self) -> Sequence[Route]:
        return [
            Route(f"/{name}", "GET", Asset(_FILES.child(name), *about))
            for name, about in ASSETS.items()
        ]
