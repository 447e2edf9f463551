"""Fetches the documents of a feed, and walks back to the oldest one with entries to process.

Of the documents that it passes, it keeps the URLs and a hash of the bytes, not the documents.  It
never passes a document twice, so it ends even if the documents link in a circle.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from attrs import field, frozen

from rsscloud_broker.errors import (
    DocumentFault,
    OutboundError,
    ParsingUnavailable,
    TooLarge,
    Unavailable,
)
from rsscloud_broker.interfaces import (
    IClock,
    IOutbound,
    OutboundReply,
    OutboundRequest,
    Parsing,
    Position,
)
from rsscloud_broker.model import host_of
from rsscloud_broker.simplefeed.documents import AtomDocument, parse
from rsscloud_broker.simplefeed.errors import DocumentMissing, FeedUnavailable, FollowError
from rsscloud_broker.wire.http_dates import retry_after

_MISSING: Final = frozenset({404, 410})
_ACCEPT: Final = "application/atom+xml, application/xml;q=0.9, text/xml;q=0.9, */*;q=0.1"


@frozen
class Step:
    """A document that was passed on the way back.

    :ivar digest: a hash of its bytes.
    """

    url: str
    digest: bytes = field(repr=False)


@frozen
class Beginning:
    """Where to begin to process.

    :ivar document: the first document with entries to process.
    :ivar steps: the documents after it, newest first, without the recent one.
    :ivar found: whether the entry of the position is in the document.  If not, there are no older
        documents.
    :ivar missing: the URL of a document that should be before this one and does not exist; else
        empty.
    """

    document: AtomDocument
    steps: list[Step]
    found: bool = False
    missing: str = ""


class DocumentReader:
    """Fetches and parses documents."""

    def __init__(self, outbound: IOutbound, clock: IClock, parse: Parsing) -> None:
        self._outbound = outbound
        self._clock = clock
        self._parse = parse

    async def read(self, url: str) -> AtomDocument:
        """Fetch a document.

        :raises DocumentMissing: it does not exist.
        :raises FeedUnavailable: it cannot be read now, or is no feed.
        """
        document = await self.read_if_changed(url, {})
        assert document is not None  # without conditions 304 is an error
        return document

    async def read_if_changed(self, url: str, conditions: Mapping[str, str]) -> AtomDocument | None:
        """Fetch a document with a conditional request.

        :param conditions: the headers that make it conditional.
        :returns: None if it has not changed.
        :raises DocumentMissing, FeedUnavailable: as for ``read``.
        """
        try:
            reply: OutboundReply = await self._outbound.request(
                # It follows up to five redirects.
                OutboundRequest("GET", url, {"Accept": _ACCEPT, **conditions}, redirects=5)
            )
        except TooLarge as error:
            raise FeedUnavailable(
                f"{url} is too large to be read: {error}. A document of a feed should have a few "
                "hundred entries at most."
            ) from error
        except (OutboundError, Unavailable) as error:
            raise FeedUnavailable(f"{url} cannot be read: {error}") from error
        if reply.status == 304 and conditions:
            return None
        if reply.status in _MISSING:
            raise DocumentMissing(f"{url} does not exist: the server answers {reply.status}")
        if reply.status != 200:
            raise FeedUnavailable(
                f"{url} cannot be read: the server answers {reply.status}",
                retry_after(reply.headers, self._clock.wall_seconds()),
            )
        try:
            headers = dict(reply.headers)
            return await self._parse(host_of(url), parse, reply.body, reply.url or url, headers)
        except (DocumentFault, ParsingUnavailable) as error:
            raise FeedUnavailable(f"{url} cannot be followed: {error}") from error


async def walk_back(
    read: Callable[[str], Awaitable[AtomDocument]],
    recent: AtomDocument,
    position: Position | None,
    most: int,
) -> Beginning:
    """Go back from the recent document to the one with the entry of a position.

    If no document has that entry with its time, but some have its id (the entry was edited), this
    goes to the oldest of those.

    :param read: fetches a document.
    :param position: None to go back to the oldest document.
    :param most: how many documents to pass at most.
    :raises FollowError: the documents link in a circle, or there are too many.
    :raises FeedUnavailable: a document cannot be read now.
    """
    document, steps, missing = recent, list[Step](), ""
    # The oldest document so far that has the id of the entry with another time, and how many steps
    # are after it.
    edited: tuple[AtomDocument | Step, int] | None = None
    seen = {recent.url, recent.links.get("self"), recent.links.get("via")}
    while position is None or not document.has(position):
        step = Step(document.url, document.digest)
        if position is not None and document.has_id(position.entry):
            edited = (document if document is recent else step), len(steps)
        previous = document.links.get("prev-archive")
        if previous is None:
            break
        if previous in seen:
            raise FollowError(
                f"the documents link in a circle: {document.url} names {previous} as the one "
                "before it, which comes after it. The publisher must correct the links "
                "prev-archive."
            )
        if len(seen) > most:
            raise FollowError(
                f"the feed has more than {most:,} documents, or its links prev-archive never end; "
                f"the last one read was {document.url}"
            )
        seen.add(previous)
        try:
            earlier = await read(previous)
        except DocumentMissing:
            missing = previous
            break
        if document is not recent:
            steps.append(step)
        document = earlier
    else:
        return Beginning(document, steps, found=True)
    if edited is None:
        return Beginning(document, steps, missing=missing)
    where, after = edited
    document = where if isinstance(where, AtomDocument) else await read(where.url)
    return Beginning(document, steps[:after], found=True)
