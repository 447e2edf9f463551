"""Answers requests for feeds and for uploaded files.

Feeds have an ETag and Last-Modified, and are compressed for clients that accept gzip.  Clients that
have the present version get 304.  Uploaded files never change; parts of them can be asked for, as
players of audio and video do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from twisted.python.filepath import FilePath
from twisted.web import http
from twisted.web.server import NOT_DONE_YET, Request
from twisted.web.static import File

from rsscloud_broker.apps.writing.feeds import WrittenFeed
from rsscloud_broker.apps.writing.sniffing import UNKNOWN
from rsscloud_broker.apps.writing.upload_rows import StoredUpload
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.model import Content
from rsscloud_broker.web.answers import send
from rsscloud_broker.web.feed_answers import FeedAnswers

# Only ``bytes=FIRST-[LAST]`` is served; any other range is ignored, as RFC 9110 allows.  Several
# ranges could ask for a large file many times over.
_RANGE: Final = re.compile(rb"bytes=[0-9]{1,15}-[0-9]{0,15}")

_YEAR: Final = 365 * 86_400

#: Kinds of files that browsers show; all others are offered to be saved.
_SHOWN: Final = ("image/", "audio/", "video/")


def send_feed(
    request: Request, feed: WrittenFeed, changed_at: float, link: str, now: float
) -> None:
    """Send a feed, or 304 if the client has it.

    :param changed_at: seconds since the epoch, as ``later_second`` computes it.
    :param link: the value of the Link header; empty for none.
    :param now: the present time, in seconds since the epoch.
    """
    content = feed.content
    answers = FeedAnswers.of(
        content.body, feed.gzipped, content.content_type, feed.etag, changed_at, now, link
    )
    send(request, answers.answer_to(request))


def send_upload(request: Request, path: FilePath[str], upload: StoredUpload) -> None:
    """Send an uploaded file.  A browser runs nothing that may be in it."""
    for name, value in _headers_of(upload).items():
        request.setHeader(name, value)
    if request.setETag(f'"{upload.digest[:32]}"'.encode("ascii")) is http.CACHED:
        request.finish()
        return
    if not _RANGE.fullmatch(request.getHeader(b"range") or b"") or request.method == b"HEAD":
        request.requestHeaders.removeHeader(b"range")
    file = File(path.path, defaultType=UNKNOWN)
    file.type, file.encoding = upload.media_type, None
    result = file.render_GET(request)
    if result is not NOT_DONE_YET:
        request.finish()


def _headers_of(upload: StoredUpload) -> Mapping[str, str]:
    is_shown = upload.media_type.startswith(_SHOWN)
    how = "inline" if is_shown else "attachment"
    return {
        "cache-control": f"public, max-age={_YEAR}, immutable",
        "content-disposition": f"{how}; filename*=UTF-8''{quote(upload.name, safe='')}",
        "content-security-policy": "sandbox; default-src 'none'",
        "cross-origin-resource-policy": "cross-origin",
        "x-content-type-options": "nosniff",
    }


class FeedTopics:
    """Reads feeds as topics, for the broker.

    :param writing: reads the feeds.
    """

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    async def read(self, url: str) -> Content | None:
        """The content of a feed by its URL; None if it is not the URL of a feed."""
        name = url.removeprefix(f"{self._writing.home_url('')}").partition("/")[0]
        author = await self._writing.store.author_named(name)
        if author is None or not author.is_public:
            return None
        found = (await self._writing.feeds_of(author)).get(url)
        return found.content if found else None
