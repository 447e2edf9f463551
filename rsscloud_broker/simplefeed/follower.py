"""Follows a feed: processes each of its entries at least once, and in order.

A round goes like this.  The follower fetches the recent document.  If the entry that was
processed last is not in it, the follower goes back through the links ``prev-archive`` to the
document that has it, and then forward, and hands the entries on one after the other.  The server
need not know who follows, nor how far anybody has come.

The position has the URL of the document where the follower stopped.  If that is archived by now,
the follower begins there and goes forward through ``next-archive``.

Nothing that a feed does makes the follower work without end.  Of the documents that it passes on
its way back, it keeps the URLs only.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock

from rsscloud_broker.interfaces import IClock, IEntryHandler, IMarker, IOutbound, Parsing, Position
from rsscloud_broker.simplefeed.chain import Beginning, DocumentReader, walk_back
from rsscloud_broker.simplefeed.documents import AtomDocument
from rsscloud_broker.simplefeed.errors import FeedUnavailable, FollowError, Stopped
from rsscloud_broker.simplefeed.processing import Processing
from rsscloud_broker.simplefeed.waiting import LONGEST_REST, FollowerLimits, Waiting
from rsscloud_broker.util.urls import joined
from rsscloud_broker.wire import links
from rsscloud_broker.wire.conditional import conditions
from rsscloud_broker.wire.http_dates import freshness


class Begin(Enum):
    """Where a follower begins that does not know where it stopped."""

    OLDEST = "oldest"
    NEWEST = "newest"


class Follower:
    """Follows one feed.

    :param outbound: makes the requests.  It limits their time, and the size of a document.
    :param url: the URL of the recent document.
    :param marker: remembers the position.
    :param begin: where to begin if there is no position, or if its entry is not in the feed any
        more.  With None, the follower begins with the oldest entry if there is no position, and it
        is an error if the entry is not there any more.
    :param tell: called with sentences for people about what is wrong with the feed.
    :ivar hub: the feed's hub, and the URL by which the hub knows the feed (WebSub).  None if the
        feed names no hub, or has not been read yet.
    """

    def __init__(
        self,
        outbound: IOutbound,
        url: str,
        handler: IEntryHandler,
        marker: IMarker,
        clock: IClock,
        *,
        parse: Parsing,
        begin: Begin | None = None,
        tell: Callable[[str], None] = lambda sentence: None,
        limits: FollowerLimits | None = None,
    ) -> None:
        self._reader = DocumentReader(outbound, clock, parse)
        self._url = url
        self._clock = clock
        self._begin = begin
        self._tell = tell
        self._limits = limits or FollowerLimits()
        self.hub: tuple[str, str] | None = None
        # The headers that make the next request for the recent document conditional.
        self._conditions: dict[str, str] = {}
        self._pause = self._limits.usual  # until that request
        self._waits = Waiting(clock)
        self._processing = Processing(handler, marker, clock, self._waits, self._limits, tell=tell)
        self._running = DeferredLock()  # held while it follows

    async def run(self) -> None:
        """Follow the feed until ``stop``.

        :raises FollowError: it cannot go on until somebody does something.
        """
        await self._until_stopped(self._keep_following())

    async def catch_up(self) -> None:
        """Process the entries that there are now, or until ``stop``.

        :raises FeedUnavailable: the feed could not be read, not even after some attempts.
        :raises FollowError: it cannot go on until somebody does something.
        """
        await self._until_stopped(self._catch_up())

    def hint(self) -> None:
        """Say that the feed has probably changed, so that it is read now."""
        self._waits.hint()

    def stop(self) -> Deferred[None]:
        """Stop after the entries that are being processed.

        :returns: fires when they are processed and the position is saved.
        """
        self._waits.stop()
        return self._running.run(lambda: None)

    async def _until_stopped(self, following: Coroutine[Any, Any, None]) -> None:
        """Follow to the end, or until ``stop``.  The Deferred of ``stop`` fires afterwards."""
        async with self._running:
            with suppress(Stopped):
                await following

    async def _keep_following(self) -> None:
        """Make rounds without end, with pauses in between; ``Stopped`` ends them."""
        failures = 0
        while True:
            self._waits.hinted = False
            try:
                await self._make_round()
            except FeedUnavailable as error:
                await self._wait_after_failure(error, failures)
                failures += 1
                continue
            failures = 0
            if not self._waits.hinted:
                await self._waits.sleep(self._pause, hints=True)

    async def _catch_up(self) -> None:
        """Make one round; if the feed cannot be read, try it again a few times."""
        for failures in range(self._limits.tries):
            try:
                await self._make_round()
                return
            except FeedUnavailable as error:
                asked = error.retry_after or 0.0
                if failures == self._limits.tries - 1 or asked > self._limits.usual:
                    raise
                await self._wait_after_failure(error, failures)

    async def _wait_after_failure(self, error: FeedUnavailable, failures: int) -> None:
        pause = self._limits.backoff(failures)
        if error.retry_after is not None:
            pause = min(max(error.retry_after, self._limits.retry), LONGEST_REST)
        self._tell(f"{str(error).rstrip('.')}. Trying again in {pause:.0f} s.")
        await self._waits.sleep(pause, hints=False)

    async def _make_round(self) -> None:
        """Process all entries after the position, as the feed is now."""
        try:
            await self._process_new()
        finally:
            # Also if it stops or fails: what was processed need not be handed on again.
            await self._processing.save()

    async def _process_new(self) -> None:
        """Read the recent document; if it has changed, process the entries after the position."""
        await self._processing.load()
        recent = await self._waits.call(self._reader.read_if_changed, self._url, self._conditions)
        if recent is None:
            return
        self._learn(recent)
        if self._processing.position is None and self._begin is Begin.NEWEST:
            await self._skip_all(recent)
        else:
            if await self._process_archived(recent):
                recent = await self._waits.call(self._reader.read, self._url)
            await self._process_from(recent)
        headers = recent.headers
        self._conditions = conditions(headers.get("etag", ""), headers.get("last-modified", ""))

    def _learn(self, recent: AtomDocument) -> None:
        """Set the pause until the next request, and the hub, as the recent document says."""
        now = self._clock.wall_seconds()
        said = freshness(recent.headers, now)
        pause = self._limits.usual if said is None else said
        self._pause = min(max(pause, self._limits.shortest), self._limits.longest)
        linked = links.parse_or_empty(recent.headers.get("link", ""))
        named = (joined(self._url, target) for target in links.targets(linked, "hub"))
        hub = next(filter(None, named), recent.links.get("hub"))
        named = (joined(self._url, target) for target in links.targets(linked, "self"))
        own = next(filter(None, named), recent.links.get("self"))
        self.hub = (hub, own or self._url) if hub else None

    async def _process_from(self, recent: AtomDocument) -> None:
        """Go back from the recent document, and process all entries after the position."""
        position = self._processing.position
        if position is not None and not position.entry:
            position = None  # the feed was empty at first: all entries are new
        if position is not None and not recent.has(position):
            newest = max((each.updated for each in self._processing.entries(recent)), default=0.0)
            if newest < position.updated:
                self._processing.tell_once(
                    f"{self._url} is older than the entry that was processed last. A cache has an "
                    "old copy of it, or the feed was set back."
                )
                return
        beginning = await self._waits.call(
            walk_back, self._reader.read, recent, position, self._limits.documents
        )
        if beginning.missing:
            self._processing.tell_once(
                f"{beginning.missing} does not exist, although {beginning.document.url} names it "
                "as the document before it. The entries in it are lost to followers."
            )
        if position is not None and not beginning.found:
            await self._check_gone(position)
            if self._begin is Begin.NEWEST:
                await self._skip_all(recent)
                return
            position = None
        await self._process_forward(beginning, recent, position)

    async def _process_forward(
        self, beginning: Beginning, recent: AtomDocument, position: Position | None
    ) -> None:
        """Process the documents from the beginning to the recent one.

        The recent document is used as it was read at first: the others lead to that one.
        """
        document, steps = beginning.document, beginning.steps
        while steps:
            step = steps.pop()
            document = await self._process_while_reading(document, step.url, position)
            position = None
            if document.digest != step.digest:
                self._processing.tell_once(
                    f"{step.url} has changed while it was followed, although archived documents "
                    "never change. Entries that are put into it later may be missed."
                )
        await self._processing.process(document, position)
        if document is not recent:
            await self._processing.process(recent, None)

    async def _process_archived(self, recent: AtomDocument) -> bool:
        """If the position is in an archived document, go forward from there to the last one.

        :returns: whether entries may have been processed.
        """
        position = self._processing.position
        own = {recent.url, recent.links.get("self"), recent.links.get("via")}
        if position is None or not position.document or position.document in own:
            return False
        try:
            document = await self._waits.call(self._reader.read, position.document)
        except FeedUnavailable:
            return False  # the way back will show whether the entry is still there
        if not document.has(position):
            return False
        seen = {document.url}
        after: Position | None = position
        while (following := document.links.get("next-archive")) is not None:
            if following in seen:
                raise FollowError(
                    f"the documents link in a circle: {document.url} names {following} as the one "
                    "after it, which comes before it. The publisher must correct the links "
                    "next-archive."
                )
            if len(seen) > self._limits.documents:
                raise FollowError(f"the links next-archive never end; the last is {document.url}")
            seen.add(following)
            document = await self._process_while_reading(document, following, after)
            after = None
        return len(seen) > 1

    async def _process_while_reading(
        self, document: AtomDocument, url: str, after: Position | None
    ) -> AtomDocument:
        """Process a document, and return the one at a URL, which is fetched meanwhile."""
        upcoming = Deferred.fromCoroutine(self._waits.call(self._reader.read, url))
        try:
            await self._processing.process(document, after)
        except BaseException:  # nobody needs the next document then
            upcoming.addErrback(lambda failure: None)
            upcoming.cancel()
            raise
        return await upcoming

    async def _check_gone(self, position: Position) -> None:
        """Find out why the entry of a position is not in the documents.

        :raises FeedUnavailable: it is in its own document, to which the others do not lead now.
        :raises FollowError: it is gone, and nobody has said where to begin then.
        """
        if position.document:
            try:
                document = await self._waits.call(self._reader.read, position.document)
            except FeedUnavailable:
                pass  # it is gone
            else:
                if document.has(position):
                    raise FeedUnavailable(
                        f"{self._url} does not lead to {position.document}, which has the entry "
                        "that was processed last"
                    )
        gone = f"the entry that was processed last, {position.entry}, is not in the feed any more"
        if self._begin is None:
            raise FollowError(
                f"{gone}. Entries after it may be lost. Choose where to go on: --from oldest "
                "processes all entries that there are, perhaps some again; --from newest only "
                "those that come from now on."
            )
        self._tell(f"{gone}. Beginning with the {self._begin.value} entry.")

    async def _skip_all(self, recent: AtomDocument) -> None:
        """Take the newest entry as processed."""
        document = recent
        entries = self._processing.entries(document)
        previous = document.links.get("prev-archive")
        if not entries and previous is not None:
            document = await self._waits.call(self._reader.read, previous)
            entries = self._processing.entries(document)
        if entries:
            newest = entries[-1]
            self._processing.skip_to(Position(newest.id, newest.updated, document.permanent))
        else:
            self._processing.skip_to(Position(""))  # there is none: all that come are new
