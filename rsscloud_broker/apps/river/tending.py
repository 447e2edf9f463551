"""Follows feeds at the broker, and does in time what each feed needs.

The river subscribes to each feed at the broker, which reads it: it polls, finds changes, shares
fetches with other subscribers, and goes on after a restart.  Subscriptions are renewed half-way
through their lease.

If several nodes share a database, one of them tends the feeds for all.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from twisted.application.service import MultiService
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rsscloud_broker.apps.river.discovery import Discovery, FoundFeed
from rsscloud_broker.apps.river.intake import RiverIntake
from rsscloud_broker.apps.river.model import FeedRecord, new_keys
from rsscloud_broker.apps.river.pushing import Pushing
from rsscloud_broker.apps.river.store import RiverStore
from rsscloud_broker.errors import (
    OutboundError,
    OwnAddress,
    ParsingUnavailable,
    Refused,
    Unavailable,
)
from rsscloud_broker.events import Event, TopicFetched, TopicFetchFailed, WorkHinted
from rsscloud_broker.interfaces import AppParts, IEventSink
from rsscloud_broker.util.backoff import backoff
from rsscloud_broker.util.clock import EachPeriod
from rsscloud_broker.wire.text import clean

#: The name of the job that the one node has which tends the feeds.
JOB: Final = "river"

#: Seconds of a subscription at the broker; it is renewed after half of them.
LEASE: Final = 14 * 86_400
#: Seconds until a feed that cannot be read is tried again: at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 3600.0, 86_400.0
#: Nothing is due later than this many seconds from now, unless the clock was set back.
FURTHEST: Final = 15 * 86_400.0
#: Seconds between two looks for feeds that are due, and between two for those nobody follows.
PERIOD, SWEEP = 10.0, 600.0
#: How many feeds are tended at the same time, and how many are removed at a time.
AT_ONCE, PER_SWEEP = 10, 100


class Tending(MultiService):
    """Tends the feeds that are due."""

    log = Logger()

    def __init__(
        self, parts: AppParts, store: RiverStore, intake: RiverIntake, pushing: Pushing
    ) -> None:
        super().__init__()
        self._store = store
        self._intake = intake
        self._pushing = pushing
        self._discovery = Discovery(parts.web, parts.parse)
        self._parts = parts
        self._clock = parts.clock
        # The feeds that are being tended, by their ids.
        self._under_way: dict[int, Deferred[None]] = {}
        for name, period, job in (
            ("river", PERIOD, self.look),
            ("river's sweep", SWEEP, self.sweep),
        ):
            EachPeriod(self._clock, period, job, name=name, at_start=True).setServiceParent(self)

    def stopService(self) -> Deferred[None] | None:
        """Stop; what was under way is due again after the next start."""
        stopped: Deferred[None] | None = super().stopService()
        for each in tuple(self._under_way.values()):
            each.cancel()
        return stopped

    async def look(self) -> None:
        """Begin to tend the feeds that are due, as many as there are places."""
        now = self._clock.wall_seconds()
        due = await self._store.due_feeds(now, now + FURTHEST, 2 * AT_ONCE)
        for feed in due:
            if not self.running or len(self._under_way) >= AT_ONCE:
                return
            if feed.id not in self._under_way:
                self._begin_tending(feed)

    def wake(self) -> None:
        """Look for feeds that are due at once, if this is the node that tends them."""
        if self.running:
            Deferred.fromCoroutine(self.look()).addErrback(self._log_unavailable)

    async def wake_tending_node(self) -> None:
        """Have the node that tends the feeds look at once for those that are due.

        If that is another one, and the hint does not reach it, it looks within ``PERIOD`` seconds.
        """
        if self.running:
            self.wake()
        else:
            with suppress(Unavailable):
                await self._parts.jobs.hint_at_job(JOB)

    def _log_unavailable(self, failure: Failure) -> None:
        failure.trap(Unavailable)
        self.log.error("Feeds are tended later: {error}", error=failure.value)

    def _begin_tending(self, feed: FeedRecord) -> None:
        """Tend a feed in the background; when a place becomes free, look for more feeds."""
        tending = self._under_way[feed.id] = Deferred.fromCoroutine(self._tend(feed))

        def forget(result: object) -> None:
            del self._under_way[feed.id]
            if len(self._under_way) == AT_ONCE - 1:
                self.wake()

        tending.addBoth(forget)

    async def _tend(self, feed: FeedRecord) -> None:
        """Tend a feed; an error is logged, or puts the feed off."""
        try:
            await self._do_what_is_due(feed)
        except CancelledError:
            pass  # the service stops
        except ParsingUnavailable as error:
            if self.running:
                await self._put_off(feed, str(error))
        except Unavailable as error:
            self.log.error("The feed {url} is tended later: {error}", url=feed.url, error=error)
        except Exception:  # a bug must not be repeated at once, nor keep others waiting
            self.log.failure("The feed {url} could not be tended.", url=feed.url)
            await self._put_off(feed, "the broker made a mistake")

    async def _do_what_is_due(self, feed: FeedRecord) -> None:
        """Do what is due for a feed: subscribe at the broker, then at its hub or cloud."""
        if self._is_due(feed.read_due_at):
            await self._find_and_subscribe(feed)
        current = await self._store.feed(feed.id)
        if current is not None and self._is_due(current.push_due_at):
            await self._pushing.tend(current)

    def _is_due(self, at: float | None) -> bool:
        """Whether a time has come; or is too far away, which means that the clock was set back."""
        now = self._clock.wall_seconds()
        return at is not None and not now < at < now + FURTHEST

    async def _find_and_subscribe(self, feed: FeedRecord) -> None:
        """Find a feed if need be, and subscribe to it at the broker."""
        try:
            if feed.is_found:
                await self.subscribe(feed)
            else:
                found = await self.find(feed.url)
                moved = await self._store.move_feed(feed.id, found.url, {"is_found": True})
                if moved is not None:
                    await self.begin(moved, found)
        except (Refused, OutboundError) as error:
            await self._put_off(feed, str(error))

    async def find(self, url: str) -> FoundFeed:
        """Find the feed at a URL.

        :raises InvalidFeed: there is none.
        :raises OutboundError: there was no answer.
        """
        if self._intake.is_own_url(url):
            return FoundFeed(url)
        try:
            return await self._discovery.find(url)
        except OwnAddress:
            return FoundFeed(url)  # an application of this broker may serve it

    async def begin(self, feed: FeedRecord, found: FoundFeed) -> FeedRecord:
        """Store the items of a feed that was found, and subscribe to it at the broker.

        :raises Refused: see ``IBroker.subscribe``.
        """
        if found.document is not None:
            stored = await self._intake.store_items(feed, found.document, whole=True)
            feed = stored.feed if stored is not None else feed
        # If there is a document, the items of the present content are stored already.
        await self.subscribe(feed, present=found.document is None)
        if found.document is not None:
            status = await self._parts.topics.status(feed.url)
            if status is None or status.topic.digest != found.digest:
                await self.subscribe(feed, present=True)  # it changed meanwhile
        return await self._store.feed(feed.id) or feed

    async def subscribe(self, feed: FeedRecord, *, present: bool = False) -> None:
        """Subscribe to a feed at the broker, or renew that.

        :param present: whether its present content is wanted.
        :raises Refused: see ``IBroker.subscribe``.
        """
        await self._parts.broker.subscribe(self._intake.intent(feed, LEASE, present=present))
        now = self._clock.wall_seconds()
        values = {"reads_until": now + LEASE, "read_due_at": now + LEASE / 2}
        await self._store.change_feed(feed.id, {**values, "failures": 0, "is_found": True})

    async def _put_off(self, feed: FeedRecord, reason: str) -> None:
        pause = backoff(FIRST_PAUSE, feed.failures, LONGEST_PAUSE)
        due = self._clock.wall_seconds() + pause
        problem = clean(reason).rstrip(".")[:300]
        self.log.info("The feed {url} is not read now: {error}", url=feed.url, error=problem)
        values = {"failures": feed.failures + 1, "problem": problem, "read_due_at": due}
        try:
            await self._store.change_feed(feed.id, values)
        except Unavailable as error:
            self.log.error("The feed {url} is tended later: {error}", url=feed.url, error=error)

    async def sweep(self) -> None:
        """Remove the feeds that nobody follows."""
        for feed in await self._store.abandoned_feeds(PER_SWEEP):
            try:
                await self.end(feed)
            except (CancelledError, Unavailable):
                raise
            except Exception:  # log a bug; it must not keep others waiting
                self.log.failure("The feed {url} could not be removed.", url=feed.url)

    async def end(self, feed: FeedRecord) -> None:
        """Remove a feed, unless somebody follows it."""
        if await self._store.is_followed(feed.id):
            return
        await self._pushing.leave(feed)
        try:
            await self._parts.broker.unsubscribe(self._intake.intent(feed, LEASE))
        except Refused as error:  # it ends with its lease
            self.log.info(
                "The river's subscription to {url} ends with its lease: {error}",
                url=feed.url,
                error=error,
            )
        if not await self._store.remove_feed(feed.id):  # somebody has followed it meanwhile
            now = self._clock.wall_seconds()
            anew = {"read_due_at": now, "push_due_at": now, "asked_at": None, "pushes_until": None}
            # The hub may verify only later that the old callback is left, so there is a new one.
            await self._store.change_feed(feed.id, {**anew, **new_keys()})
            self.wake()


#: How the problem of a feed begins that is only a failed fetch.
_FAILED: Final = "the last fetch failed: "


@implementer(IEventSink)
class RiverSink:
    """The sink of the river: it handles the results of fetches, and hints of other nodes.

    So that readers see why nothing new comes, it keeps the reason of the last failed fetch with the
    feed until one succeeds.  If another node has stored something for the node that tends the
    feeds, it wakes that.
    """

    name = "river"
    handles = (TopicFetched, TopicFetchFailed, WorkHinted)

    def __init__(self, store: RiverStore, tending: Tending) -> None:
        self._store = store
        self._tending = tending

    async def handle(self, event: Event) -> None:
        """Keep or forget why the last fetch of a feed failed; or look for due feeds upon a hint."""
        assert isinstance(event, self.handles)
        if isinstance(event, WorkHinted):
            if event.kind == f"job.{JOB}":
                self._tending.wake()
            return
        feed = await self._store.feed_by_url(event.topic)
        if feed is None or not (feed.problem or _FAILED).startswith(_FAILED):
            return  # the feed has another problem, which no fetch ends
        problem = ""
        if isinstance(event, TopicFetchFailed):
            # How many characters of a reason are kept: strangers write them.
            problem = f"{_FAILED}{clean(event.reason).rstrip('.')[:300]}"
        if problem != feed.problem:
            await self._store.change_feed(feed.id, {"problem": problem})
