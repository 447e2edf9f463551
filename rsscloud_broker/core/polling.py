"""Polls the topics that have subscribers and do not ping.

What the store has is when each is due, and why.  Once a second those that are due are
looked at: who was planned for the first time, or was read since for another reason, is
planned anew; the others are read, a bounded number at a time and for each host, and
planned by what came of it.  ``polling_plan`` says when.
"""

from __future__ import annotations

from collections import Counter

from twisted.internet.defer import CancelledError, Deferred

from rsscloud_broker.config import Polling
from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.feed_inspector import hints_of
from rsscloud_broker.core.polling_plan import Pace, PollState, plan
from rsscloud_broker.core.topic_reader import NOT_READ
from rsscloud_broker.errors import TopicUnreadable, Unavailable
from rsscloud_broker.interfaces import IClock, IStore
from rsscloud_broker.model import TopicStatus, host_of
from rsscloud_broker.records import PollPlan
from rsscloud_broker.store_retry import UNAVAILABLE_PAUSE
from rsscloud_broker.timing import EachPeriod

#: Seconds between two looks.
PERIOD = 1.0

#: Topics that are looked at together.
AT_ONCE = 1000

#: Seconds by which those are put off whose host has as many polls as it may.
BUSY_HOST = 1.0

#: Seconds that a poll may be late before a start without being spread out with others.
LATE = 60.0


class Poller(EachPeriod):
    """Reads topics that are due, and plans when they are due next."""

    def __init__(
        self, store: IStore, detector: ChangeDetector, clock: IClock, options: Polling
    ) -> None:
        super().__init__(clock, PERIOD, self.look, name="polling")
        self._store = store
        self._detector = detector
        self._pace = Pace(
            options.min_interval,
            options.max_interval,
            min(options.first_interval, options.max_interval),
        )
        self._at_a_time = options.max_concurrent
        self._per_host = options.max_per_host
        self._polls: dict[str, Deferred[None]] = {}
        self._not_before = 0.0
        self._started_at = 0.0

    def startService(self) -> None:
        self._started_at = self._clock.wall_seconds()
        super().startService()

    def stopService(self) -> Deferred[None] | None:
        """Call off what is being read: it is due still, after the next start."""
        stopped = super().stopService()
        for poll in tuple(self._polls.values()):
            poll.cancel()
        return stopped

    async def look(self) -> None:
        """Poll, or plan, what is due."""
        if self._clock.seconds() < self._not_before:
            return
        now = self._clock.wall_seconds()
        try:
            due = await self._store.polls_due(now, AT_ONCE)
            plans = [plan for account in due if (plan := self._take(account, now)) is not None]
            if plans:
                await self._store.plan_polls(plans)
        except Unavailable as error:
            self._pause()
            self.log.error("Polling is put off: {error}", error=error)

    def _pause(self) -> None:
        """Look at nothing for a while."""
        self._not_before = self._clock.seconds() + UNAVAILABLE_PAUSE

    def _take(self, account: TopicStatus, now: float) -> PollPlan | None:
        """Begin the poll of a topic that is due; or a plan, if it is to wait."""
        url = account.topic.url
        if url in self._polls:
            return None
        never = "" if account.topic.subscribers else "nobody subscribes to it"
        if never or not self._detector.reads(url):
            return PollPlan(url, None, never or NOT_READ, account.poll_interval, now)
        if self._is_to_be_planned(account):
            return self._plan(account, now)
        if len(self._polls) >= self._at_a_time:
            return None
        of_its_host = Counter(map(host_of, self._polls))[host_of(url)]
        if of_its_host >= self._per_host:
            return PollPlan(url, now + BUSY_HOST, account.poll_reason, account.poll_interval, now)
        poll = self._polls[url] = Deferred.fromCoroutine(self._poll(url))
        poll.addBoth(lambda result: self._polls.pop(url, None))
        return None

    def _is_to_be_planned(self, account: TopicStatus) -> bool:
        if account.poll_interval is None or account.planned_at is None:
            return True
        read_since = account.asked_at is not None and account.asked_at > account.planned_at
        due = account.next_poll_at or 0.0
        late_at_start = due < self._started_at - LATE and account.planned_at < self._started_at
        return read_since or late_at_start

    async def _poll(self, url: str) -> None:
        try:
            try:
                await self._detector.check_now(url)
            except TopicUnreadable as error:
                self.log.info("A poll failed: {error}", error=error)
            account = await self._store.topic_status(url)
            if account is not None and not account.topic.ended:
                await self._store.plan_polls([self._plan(account, self._clock.wall_seconds())])
        except CancelledError:
            pass  # the service stops
        except Unavailable as error:
            self._pause()
            self.log.error("A poll of {url} is put off: {error}", url=url, error=error)
        except Exception:  # a bug must not end polling, nor come again at once
            self._pause()
            self.log.failure("A poll of {url} failed.", url=url)

    def _plan(self, account: TopicStatus, now: float) -> PollPlan:
        planned = plan(poll_state(account), now, self._pace)
        url = account.topic.url
        return PollPlan(url, planned.at, planned.reason, planned.interval, now)


def poll_state(account: TopicStatus) -> PollState:
    """What of all that is known of a topic its plan depends on."""
    topic = account.topic
    return PollState(
        url=topic.url,
        last_polled_at=account.asked_at,
        last_changed_at=topic.changed_at,
        interval=account.poll_interval,
        failures=account.failures,
        pinged_at=account.pinged_at,
        fresh_seconds=account.fresh_seconds,
        hints=hints_of(account.feed),
    )
