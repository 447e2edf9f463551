"""Answers requests for feeds.

Feeds have an ETag and Last-Modified, and are compressed for clients that accept gzip.  Clients that
have the present version get 304.
"""

from __future__ import annotations

from twisted.web import http
from twisted.web.server import Request

from rsscloud_broker.apps.writing.feeds import WrittenFeed
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.model import Content
from rsscloud_broker.web.answers import accepted_codings
from rsscloud_broker.wire.codings import allows_gzip


def send_feed(request: Request, feed: WrittenFeed, changed_at: float, link: str) -> None:
    """Send a feed, or 304 if the client has it.

    :param changed_at: seconds since the epoch.
    :param link: the value of the Link header; empty for none.
    """
    is_gzipped = allows_gzip(accepted_codings(request))
    body = feed.gzipped if is_gzipped else feed.content.body
    modified = int(changed_at) + 1  # rounded up: it may have changed twice in one second
    headers = {
        "cache-control": "no-cache",  # caches may keep it, but must ask whether it has changed
        "vary": "Accept-Encoding",
        **({"link": link} if link else {}),
    }
    for name, value in headers.items():
        request.setHeader(name, value)
    etag = f'"{feed.etag}{"-gzip" if is_gzipped else ""}"'.encode("ascii")
    is_known = request.setETag(etag) is http.CACHED
    if request.requestHeaders.hasHeader(b"if-none-match"):
        # The tag alone decides (RFC 9110, section 13.1.3).
        request.setHeader(b"last-modified", http.datetimeToString(modified))
    else:
        is_known = request.setLastModified(modified) is http.CACHED
    if is_known:
        request.finish()
        return
    request.setHeader("content-type", feed.content.content_type)
    if is_gzipped:
        request.setHeader("content-encoding", "gzip")
    request.setHeader("content-length", str(len(body)))
    request.write(body)
    request.finish()


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
