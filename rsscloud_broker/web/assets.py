"""Serves the style sheets, scripts and icons of the pages."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from twisted.python.filepath import FilePath
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request
from zope.interface import implementer

from rsscloud_broker.http.answering import send
from rsscloud_broker.interfaces import IFrontDoor, Route, RoutesOnly
from rsscloud_broker.web.feed_answers import FeedAnswers
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


class Asset(Resource):
    """A resource that serves one file of a package, compressed or as it is; caches may keep it.

    :param file: the file, which is read at once.
    :param media_type: its Content-Type.
    :param seconds: how long caches may keep it.
    """

    isLeaf = True

    def __init__(self, file: FilePath[str], media_type: str, seconds: int = HOUR) -> None:
        super().__init__()
        content: bytes = file.getContent()
        packed = gzip.compress(content, mtime=0)
        self._answers = FeedAnswers.of(
            content,
            packed if len(packed) < len(content) else b"",
            media_type,
            sha256(content).hexdigest()[:16],
            None,
            0.0,
            more={"cache-control": f"public, max-age={seconds}"},
        )

    def render_GET(self, request: Request) -> int:
        """Answer a GET, a HEAD or a conditional request."""
        send(request, self._answers.answer_to(request))
        return NOT_DONE_YET

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
