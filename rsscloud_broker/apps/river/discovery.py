"""Finds the feed that somebody means by a URL: the feed itself, or the feed of a page.

A page names its feeds in its head or in a Link header with ``rel="alternate"``.  If it names none,
the usual paths of feeds are tried.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urldefrag, urljoin

from attrs import evolve, frozen
from lxml import etree, html

from rsscloud_broker.apps.river.cleaning import MAX_URL, web_url
from rsscloud_broker.apps.river.model import InvalidFeed, ReadDocument
from rsscloud_broker.apps.river.reading import header_offers, read_document
from rsscloud_broker.errors import DocumentFault, DocumentTooCostly, OutboundError
from rsscloud_broker.interfaces import IOutbound, OutboundReply, OutboundRequest, Parsing
from rsscloud_broker.model import Content, host_of
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire import links
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.web_address import REDIRECTS, fault_of

#: How many further URLs are tried for one page.
MAX_TRIES = 6
#: The paths at which sites have their feeds, the most usual first.
USUAL_PATHS: Final = ("/feed", "/rss.xml", "/atom.xml", "/feed.xml", "/index.xml", "/feed.json")

#: How many bytes of a page are searched: links to feeds are in the head.
_HEAD_BYTES: Final = 512 * 1024
_FEED_TYPES: Final = frozenset(
    {
        *("application/rss+xml", "application/atom+xml", "application/rdf+xml"),
        *("application/feed+json", "application/json", "application/xml", "text/xml"),
    }
)
#: Of another scheme than http; but not ``example.org:8080``.
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:(?![0-9])", re.IGNORECASE)
_PERMANENT: Final = frozenset({301, 308})


@frozen
class FoundFeed:
    """A feed that was found.

    :ivar url: its URL in normal form.
    :ivar digest: the digest of the content that was read; empty if none was.
    :ivar document: what was read there; None if the URL is the broker's own and was not read.
    """

    url: str
    digest: bytes = b""
    document: ReadDocument | None = None


def typed_url(text: str) -> str:
    """The URL that somebody typed, perhaps without ``https://``, or with ``feed:``.

    :raises InvalidFeed: it is no web address.
    """
    url = clean(text)
    if url.lower().startswith("feed:"):
        url = url[5:].removeprefix("//")
    if not _SCHEME.match(url):
        url = f"https://{url}"
    url = normal_form(urldefrag(url).url) if not fault_of(url) else url
    if fault := fault_of(url):
        raise InvalidFeed(
            f"{url[:100]}: {fault}; give the address of a feed or of a page, such as "
            "https://example.org/"
        )
    return url


class Discovery:
    """Finds feeds."""

    def __init__(self, web: IOutbound, parse: Parsing) -> None:
        self._web = web
        self._parse = parse

    async def find(self, url: str) -> FoundFeed:
        """Find the feed at a URL, or the feed of the page at a URL.

        :param url: as ``typed_url`` returns it.
        :raises InvalidFeed: there is none.
        :raises OutboundError: there was no answer.
        """
        reply = await self._get(url)
        if not reply.success:
            raise InvalidFeed(
                f"{url} answered with HTTP status {reply.status}; look whether the address is right"
            )
        try:
            return await self._read_as_feed(url, reply)
        except DocumentTooCostly as error:
            raise InvalidFeed(f"{url} cannot be read: {error.reason}") from error
        except DocumentFault as error:
            problem = error.reason
        for candidate in await self._candidate_urls(reply):
            with suppress(OutboundError, DocumentFault):  # there is none, or no answer
                reply = await self._get(candidate)
                if reply.success:
                    return await self._read_as_feed(candidate, reply)
        raise InvalidFeed(
            f"{url} is no feed ({problem}), and names none that can be read; "
            "give the address of the feed itself"
        )

    async def _get(self, url: str) -> OutboundReply:
        return await self._web.request(
            OutboundRequest("GET", url, {"accept": "*/*"}, redirects=REDIRECTS)
        )

    async def _read_as_feed(self, url: str, reply: OutboundReply) -> FoundFeed:
        """Read an answer as a feed, whose URL is the new one if all redirects were permanent."""
        moved = bool(reply.hops) and all(status in _PERMANENT for status, _ in reply.hops)
        own = normal_form(urldefrag(reply.url if moved else url).url)
        kind = reply.headers.get("content-type", "")
        # Relative links are resolved as they will be when the broker reads the feed.
        document = await self._parse(host_of(own), read_document, reply.body, kind, own)
        headers = header_offers(reply.headers.get("link", ""), own)
        digest = Content(reply.body).digest
        return FoundFeed(own, digest, evolve(document, offers=(*headers, *document.offers)))

    async def _candidate_urls(self, reply: OutboundReply) -> Sequence[str]:
        """The URLs at which the feed of a page may be, the likeliest first."""
        linked = links.parse_or_empty(reply.headers.get("link", ""))
        named = [web_url(each, reply.url) for each in links.targets(linked, "alternate")][:3]
        with suppress(DocumentFault):  # the usual paths are left
            page = reply.body[:_HEAD_BYTES]
            named += await self._parse(host_of(reply.url), feeds_in_page, page, reply.url)
        usual = [urljoin(reply.url, path) for path in USUAL_PATHS]
        known = {normal_form(reply.url)}
        found = (normal_form(urldefrag(url).url) for url in (*named, *usual) if url)
        return [url for url in dict.fromkeys(found) if url not in known][:MAX_TRIES]


def feeds_in_page(page: bytes, url: str) -> list[str]:
    """The URLs of the feeds that the head of a page names.

    :param url: the URL of the page.
    """
    try:
        parsed = html.document_fromstring(page)
    except (etree.ParserError, ValueError):  # the page is empty
        return []
    named = parsed.find("head/base")
    written = (named.get("href") or "")[:MAX_URL] if named is not None else ""
    base = web_url(written, url) or url
    found: list[str] = []
    for element in parsed.iter("link"):
        relations = (element.get("rel") or "")[:MAX_URL].lower().split()
        kind = (element.get("type") or "")[:MAX_URL].partition(";")[0].strip().lower()
        if ("alternate" in relations and kind in _FEED_TYPES) or "feed" in relations:
            found.append(web_url((element.get("href") or "")[: MAX_URL + 1], base))
        if len(found) == MAX_TRIES:
            break
    return found
