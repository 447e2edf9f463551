"""Answers GET, HEAD and conditional requests for a feed, or for another file.

::

    GET /feeds/dave/rss.xml HTTP/1.1
    Accept-Encoding: gzip

    HTTP/1.1 200 OK
    Content-Type: application/rss+xml; charset=utf-8
    Content-Encoding: gzip
    Vary: Accept, Accept-Encoding
    Cache-Control: public, max-age=0, must-revalidate
    ETag: "5891b5b522d5df08-gzip"
    Last-Modified: Sun, 06 Nov 2025 08:49:37 GMT
    Link: <https://broker.example/websub>; rel="hub", <https://...>; rel="self"

Browsers show a feed by its style sheet only if it is called plain XML: they download RSS and Atom,
or show the source.  So a browser that asks for a page gets the same bytes as ``application/xml``.

A client with ``If-None-Match`` or ``If-Modified-Since`` gets 304 while the feed is unchanged.
Caches must ask each time, since a subscriber reads the feed at the moment when it has changed.

Last-Modified has whole seconds only, so two versions of one second would look the same.  Therefore
each version has a later second than that before it, whatever the clock says: see `later_second`.
While that second is in the future, Last-Modified is left out (RFC 9110, section 8.8.2.1).
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from email.utils import formatdate
from typing import Final

from attrs import evolve, frozen
from twisted.web.server import Request

from rsscloud_broker.http.answering import Answer
from rsscloud_broker.http.requests import accepted_codings, header
from rsscloud_broker.model import Content
from rsscloud_broker.wire.codings import allows_gzip
from rsscloud_broker.wire.conditional import has_version
from rsscloud_broker.wire.negotiation import wants_page

_CACHED: Final = {"cache-control": "public, max-age=0, must-revalidate", "vary": "Accept-Encoding"}

#: The header Vary of an answer that also depends on who will see it.
STYLED_VARY: Final = "Accept, Accept-Encoding"


def later_second(at: float, before: float) -> float:
    """When a new version was made, for its Last-Modified.

    :param at: the present time, in seconds since the epoch.
    :param before: what this function returned for the version before it, or the latest date that
        may have been sent with that; 0 if there is none.
    :returns: the present time, unless it is in the same second as that, or before it; then the
        second after that.
    """
    return at if int(at) > int(before) else float(int(before) + 1)


def shown_type(request: Request, content_type: str) -> str:
    """The Content-Type of a feed with a style sheet: plain XML if a browser will show it.

    :param content_type: that for everybody else.
    """
    kind = content_type.partition(";")[0]
    is_page = wants_page(header(request, "accept"), [kind])
    return "application/xml; charset=utf-8" if is_page else content_type


@frozen
class FeedAnswers:
    """All answers to requests for one version of a feed.

    :ivar modified_at: its Last-Modified, in whole seconds since the epoch; None if it has none.
    :ivar is_styled: whether it is XML with a style sheet.
    """

    plain: _Form
    packed: _Form
    modified_at: int | None
    is_styled: bool = False

    @classmethod
    def of(
        cls,
        body: bytes,
        packed: bytes,
        content_type: str,
        tag: str,
        modified_at: float | None,
        now: float,
        link: str = "",
        more: Mapping[str, str] | None = None,
        *,
        is_styled: bool = False,
    ) -> FeedAnswers:
        """Make the answers for a version.

        :param packed: the body compressed by gzip; empty if it is served as it is only.
        :param content_type: with the charset.
        :param tag: identifies the content; the ETags are made of it.
        :param modified_at: what `later_second` returned for this version; None if it has no date.
        :param now: the present time, in seconds since the epoch.
        :param link: the value of the Link header; empty for none.
        :param more: further headers, or others than those that the answer has anyway.
        :param is_styled: whether it is XML with a style sheet, which browsers show.
        """
        common = {**_CACHED, **(more or {})}
        second = None if modified_at is None or int(modified_at) > now else int(modified_at)
        if second is not None:
            common["last-modified"] = formatdate(second, usegmt=True)
        if is_styled:
            common["vary"] = STYLED_VARY
        if link:
            common["link"] = link

        def form(content: bytes, etag: str, coding: str = "") -> _Form:
            headers = {**common, "etag": etag}
            coded = {"content-encoding": coding} if coding else {}
            whole = Answer(content, content_type, 200, {**headers, **coded})
            return _Form(etag, whole, Answer(b"", content_type, 304, headers))

        plain = form(body, f'"{tag}"')
        packed_form = form(packed, f'"{tag}-gzip"', "gzip") if packed else plain
        return cls(plain, packed_form, second, is_styled)

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory."""
        packed = 0 if self.packed is self.plain else len(self.packed.whole.body)
        return len(self.plain.whole.body) + packed + 2000

    def answer_to(self, request: Request) -> Answer:
        """The answer to a request."""
        form = self.packed if allows_gzip(accepted_codings(request)) else self.plain
        known = has_version(
            request.requestHeaders.getRawHeaders(b"if-none-match"),
            request.getHeader(b"if-modified-since"),
            (form.etag.encode("ascii"),),
            self.modified_at,
        )
        answer = form.unchanged if known else form.whole
        if not self.is_styled:
            return answer
        return evolve(answer, content_type=shown_type(request, answer.content_type))


@frozen
class _Form:
    """A version, as it is or compressed: the answers with and without its body."""

    etag: str
    whole: Answer
    unchanged: Answer


@frozen
class WrittenFeed:
    """A feed in one format, as it is published and served.

    :ivar gzipped: the body of the content, compressed.
    :ivar etag: identifies the content, in hexadecimal.
    """

    content: Content
    gzipped: bytes
    etag: str

    @classmethod
    def of(cls, body: bytes, media_type: str) -> WrittenFeed:
        """Compress a feed."""
        content = Content(body, media_type)
        return cls(content, gzip.compress(body, 6, mtime=0), content.digest.hex()[:16])

    def answers(self, modified_at: float, now: float, link: str) -> FeedAnswers:
        """The answers to requests for it; for the parameters see ``FeedAnswers.of``."""
        body, kind = self.content.body, self.content.content_type
        is_styled = "xml" in kind
        return FeedAnswers.of(
            body, self.gzipped, kind, self.etag, modified_at, now, link, is_styled=is_styled
        )
