"""Follows a feed of pings, such as ``/events/pings/recent`` of another broker.

The feed has every ping, in order, for as long as its archive goes back.  So nothing is missing
after an outage of either side, and no archives of hours are needed.  The store keeps which entry
was processed last; an entry is processed when its ping is recorded, or known, or refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import attrs
from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.apps.follows.documents import (
    LONGEST_PAUSE,
    MAX_FAULT,
    FollowParts,
    pause_after,
)
from rsscloud_broker.apps.follows.options import FollowedFeed
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IEntryHandler, IMarker, Position
from rsscloud_broker.model import Ping, host_of
from rsscloud_broker.simplefeed.entries import Entry
from rsscloud_broker.simplefeed.errors import EntryFailed, FeedUnavailable, FollowError
from rsscloud_broker.simplefeed.follower import Begin, Follower
from rsscloud_broker.simplefeed.pings import NotAPing, ping_of
from rsscloud_broker.simplefeed.waiting import FollowerLimits
from rsscloud_broker.util.deferreds import returns_deferred
from rsscloud_broker.wire.origin import site_of
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.units import HOUR


@implementer(IMarker)
class StoredMarker:
    """Keeps the position of a follower in the store, and raises the errors that it expects."""

    def __init__(self, url: str, parts: FollowParts) -> None:
        self._url = url
        self._parts = parts

    async def load(self) -> Position | None:
        try:
            return await self._parts.store.followed_feed_position(self._url)
        except Unavailable as error:
            raise FeedUnavailable(f"its position cannot be read: {error}") from error

    async def save(self, position: Position) -> None:
        """Store the position; raises ``OSError``, as ``Processing.save`` expects, if it cannot."""
        now = self._parts.clock.wall_seconds()
        try:
            await self._parts.store.record_followed_feed(self._url, position, now)
        except Unavailable as error:
            raise OSError(str(error)) from error


@implementer(IEntryHandler)
class PingTaker:
    """Takes in the pings that are in the entries of a feed.

    :param on_success: called each time that pings were taken in.
    """

    log = Logger()
    # How many entries are taken in before the position is stored.
    batch = 200

    def __init__(
        self, feed: FollowedFeed, parts: FollowParts, on_success: Callable[[], None]
    ) -> None:
        self._feed = feed
        self._parts = parts
        self._on_success = on_success
        self._source = site_of(feed.url)
        # Whether a fault was logged, and no batch of entries has been without one since.
        self._faulty = False

    async def handle(self, entries: Sequence[Entry], document: str) -> None:
        """Take in the pings of some entries, except faulty and too old ones; count all."""
        now = self._parts.clock.wall_seconds()
        since = now - self._feed.catch_up_hours * HOUR
        counts: Counter[str] = Counter(invalid=0, too_old=0)
        pings = []
        for entry in entries:
            ping = self._read_ping(entry, document)
            if ping is None:
                counts["invalid"] += 1
            elif ping.received_at < since:
                counts["too_old"] += 1
            else:
                # The clock of the other broker may be ahead.
                pings.append(evolve(ping, received_at=min(ping.received_at, now)))
        self._faulty = self._faulty and bool(counts["invalid"])
        if pings:
            try:
                # By how many seconds the times of one ping may differ that was learned in two ways:
                # lists and headers of relays cut them to seconds.
                taken = await self._parts.intake.take_in(pings, 1.0)
            except Unavailable as error:
                raise EntryFailed(str(error)) from error
            counts.update(attrs.asdict(taken))
            self._on_success()
        for outcome, count in counts.items():
            self._parts.counters.follows.labels(host_of(self._feed.url), outcome).inc(count)

    def _read_ping(self, entry: Entry, document: str) -> Ping | None:
        """The ping of an entry; None, and a line in the log, if it has a fault."""
        try:
            return ping_of(entry, self._source)
        except NotAPing as error:
            if not self._faulty:
                self._faulty = True
                self.log.warn(
                    "{url}: an entry of {document} is left out: {fault}; others are not logged.",
                    url=self._feed.url,
                    document=clean(document)[:MAX_FAULT],
                    fault=clean(str(error))[:MAX_FAULT],
                )
            return None


class FeedFollower:
    """Follows one feed.

    :ivar url: the URL of its recent document.
    :ivar is_pushed: whether it is also read when its hub says that it has changed.
    """

    log = Logger()

    def __init__(self, feed: FollowedFeed, parts: FollowParts) -> None:
        self.url, self.is_pushed = feed.url, feed.push
        self._feed = feed
        self._parts = parts
        self._clock = parts.clock
        self._follower: Follower | None = None
        self._logged_fault = ""  # what is wrong with the feed, as logged last
        self._run: Deferred[None] | None = None

    @property
    def hub(self) -> tuple[str, str] | None:
        """The feed's hub, and the URL by which the hub knows the feed; None as long as unknown."""
        return None if self._follower is None else self._follower.hub

    def start(self) -> None:
        """Begin to read."""
        self._run = Deferred.fromCoroutine(self._work())

    @returns_deferred
    async def stop(self) -> None:
        """Stop; the Deferred fires when the position is stored."""
        if self._follower is not None:
            await self._follower.stop()
        if self._run is not None:  # it may be in a pause after a failure
            self._run.cancel()

    def hint(self) -> None:
        """Read the feed now, since it has probably changed."""
        if self._follower is not None:
            self._follower.hint()

    async def _work(self) -> None:
        """Follow the feed until the service stops; after an error, again and again after pauses."""
        failures = 0
        try:
            while True:
                began = self._clock.seconds()
                try:
                    await self._follow()
                except FollowError as error:
                    self._log_fault(str(error))
                except CancelledError:
                    raise
                except Exception:  # log a bug
                    self.log.failure("Following {url} failed.", url=self._feed.url)
                # An error after a long time of success does not make the pauses longer.
                has_lasted = self._clock.seconds() - began >= LONGEST_PAUSE
                failures = 1 if has_lasted else failures + 1
                # Seconds after which a feed is read again that cannot be followed; they double each
                # time.
                await deferLater(self._clock, pause_after(failures, 60.0, None))
        except CancelledError:
            pass  # the service stops

    async def _follow(self) -> None:
        """Follow the feed until it cannot be followed, or ``stop``."""
        feed, parts = self._feed, self._parts
        marker = StoredMarker(feed.url, parts)
        known = await marker.load() is not None
        self._follower = Follower(
            parts.web,
            feed.url,
            PingTaker(feed, parts, self._log_recovery),
            marker,
            parts.clock,
            parse=parts.parse,
            # If entries were pruned that were not read, all others are still wanted.
            begin=Begin.OLDEST if known else Begin(feed.begin),
            tell=self._log_fault,
            limits=FollowerLimits(
                shortest=feed.every,
                usual=feed.every,
                longest=max(feed.every, LONGEST_PAUSE),
                retry=min(feed.every, 60.0),
                # How often entries are tried while the database cannot be used: without end.
                tries=1_000_000_000,
            ),
        )
        await self._follower.run()

    def _log_recovery(self) -> None:
        """Log that the feed can be read again, if a fault was logged before."""
        if self._logged_fault:
            self._logged_fault = ""
            self.log.info("{url} can be read again.", url=self._feed.url)

    def _log_fault(self, sentence: str) -> None:
        """Log what is wrong with the feed, unless that was logged last."""
        # Cut off what differs each time, such as the seconds until the next attempt.
        what, _, again = clean(sentence).partition(" Trying again")
        what = what.removeprefix(f"{self._feed.url} cannot be followed: ")
        if what == self._logged_fault:
            return
        self._logged_fault = what
        self.log.warn(
            "{url} cannot be followed as it should be: {reason}",
            url=self._feed.url,
            reason=what[: 2 * MAX_FAULT] + (" It is tried again." if again else ""),
        )
