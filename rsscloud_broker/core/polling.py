"""Polls the topics that have subscribers but whose publishers do not ping.

The store keeps for each topic when its next poll is due, and why.  Once a second the poller looks
at the topics that are due:

- A topic without a plan, or one that was fetched for another reason since its plan was made, gets a
  new plan.
- Any other topic is fetched, and gets its next plan from what the fetch found.  The poller fetches
  a limited number of topics at the same time, in total and from each host (see ``HostLimiter``).
- If a host has as many polls under way as it may, further ones are put off, each a little longer
  than the one before it.  So few of the host's topics are due at the next look, however many wait.

``polling_plan`` says when a topic is due.
"""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred

from rsscloud_broker.config import Polling
from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.polling_plan import PollIntervals, plan
from rsscloud_broker.core.topic_reader import NOT_READ
from rsscloud_broker.errors import TopicUnreadable, Unavailable
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model import TopicStatus, host_of
from rsscloud_broker.model.work import PollPlan
from rsscloud_broker.policy.host_limiter import HostLimiter, HostQuota
from rsscloud_broker.storage import Store
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.clock import EachPeriod
from rsscloud_broker.util.retry import UNAVAILABLE_PAUSE

#: Seconds from a subscription to the first poll of a topic, within the bounds of the options.
FIRST_INTERVAL = 3600.0

#: How many topics are polled at the same time, and of one host: polls are not urgent.
MAX_CONCURRENT, MAX_PER_HOST = 20, 2

#: How many topics the poller looks at together.
AT_ONCE = 1000


class Poller(EachPeriod):
    """Reads the topics that are due, and plans their next polls.

    :param options: the ``[polling]`` table of the configuration.
    """

    def __init__(
        self, store: Store, detector: ChangeDetector, clock: IClock, options: Polling
    ) -> None:
        # Seconds between two looks.
        super().__init__(clock, 1.0, self.look, name="polling")
        self._store = store
        self._detector = detector
        self._intervals = PollIntervals(
            options.min_interval,
            options.max_interval,
            min(max(FIRST_INTERVAL, options.min_interval), options.max_interval),
        )
        self._under_way = HostLimiter(MAX_CONCURRENT)
        # The polls under way, by URL.
        self._polls: dict[str, Deferred[None]] = {}
        # These times are by the monotonic clock, as somebody may set the wall clock.
        # When the last poll that was put off is due, by host, for at most 1000 hosts.
        self._put_off_until: BoundedDict[str, float] = BoundedDict(1000)
        self._not_before = 0.0  # until then, ``look`` does nothing
        self._started_at = 0.0
        # Whether the store could not be used at the last look, or could not take a result since.
        self._is_doubtful = False

    def startService(self) -> None:
        self._started_at = self._clock.seconds()
        super().startService()

    def stopService(self) -> Deferred[None] | None:
        """Cancel the polls that are under way.  They are still due after the next start."""
        stopped = super().stopService()
        self.lose_claims()
        return stopped

    def lose_claims(self) -> None:
        """Cancel the polls that are under way, as other nodes may have claimed them now."""
        for poll in tuple(self._polls.values()):
            poll.cancel()

    def set_node_count(self, nodes: int) -> None:
        """Divide the limits, which hold for all nodes together, among this many live nodes."""
        self._under_way.nodes = nodes

    async def look(self) -> None:
        """Poll or plan every topic that is due, unless all polls are under way that may be."""
        if self._clock.seconds() < self._not_before or not self._under_way.has_capacity():
            return
        now = self._clock.wall_seconds()
        try:
            if self._is_doubtful:  # on a full disk, topics would be fetched for nothing
                await self._store.check_writable()
                self._is_doubtful = False
            due = await self._store.polls_due(now, AT_ONCE)
            plans = [
                made for status in due if (made := self._poll_or_plan(status, now)) is not None
            ]
            if plans:
                await self._store.plan_polls(plans)
        except Unavailable as error:
            self._pause()
            self.log.error("Polling is put off: {error}", error=error)

    def _pause(self) -> None:
        """Look at no topic for a while: the store is unavailable, or there is a bug."""
        self._not_before = self._clock.seconds() + UNAVAILABLE_PAUSE
        self._is_doubtful = True

    def _poll_or_plan(self, status: TopicStatus, now: float) -> PollPlan | None:
        """Begin the poll of a topic that is due; or return a plan for it, or leave it due."""
        url = status.topic.url
        if url in self._polls:
            return None
        why_never = "" if status.topic.subscribers else "nobody subscribes to it"
        if why_never or not self._detector.reader.reads(url):
            return _plan_for(status, None, why_never or NOT_READ, status.poll_interval, now)
        if self._is_to_be_planned(status):
            return plan(status, now, self._intervals)
        quota = HostQuota("poll", host_of(url), MAX_PER_HOST)
        if not self._under_way.has_capacity():
            return None
        if not self._under_way.has_capacity_at(quota):
            at = self._next_free_time(quota, now)
            return _plan_for(status, at, status.poll_reason, status.poll_interval, now)
        self._begin_poll(status, quota)
        return None

    def _next_free_time(self, quota: HostQuota, now: float) -> float:
        """Choose when to poll a topic of a busy host: after all polls that wait for the host."""
        monotonic = self._clock.seconds()
        last = max(monotonic, self._put_off_until.get(quota.host, monotonic))
        # As if each poll took a second: so many of a host may be under way at the same time.
        until = self._put_off_until[quota.host] = last + 1.0 / self._under_way.share(quota.limit)
        return now + until - monotonic

    def _begin_poll(self, status: TopicStatus, quota: HostQuota) -> None:
        url = status.topic.url
        self._under_way.begin(quota)
        poll = self._polls[url] = Deferred.fromCoroutine(self._poll(url, status.planned_at))

        def clean_up(result: object) -> None:
            """Free the place: the poll has ended."""
            del self._polls[url]
            self._under_way.release(quota)

        poll.addBoth(clean_up)

    def _is_to_be_planned(self, status: TopicStatus) -> bool:
        """Whether a topic that is due gets a new plan instead of a poll."""
        if status.poll_interval is None or status.planned_at is None:
            return True
        now, due = self._clock.wall_seconds(), status.next_poll_at or 0.0
        # If the last fetch seems to be later than now, the wall clock was set back since: then it
        # does not count.
        was_fetched = status.planned_at < (status.asked_at or 0.0) <= now
        started_at = now - (self._clock.seconds() - self._started_at)  # by the wall clock of now
        # Polls that became due while the broker was down, more than this many seconds before the
        # start, do not all begin at once.
        was_missed = due < started_at - 60.0 and status.planned_at < started_at
        return was_fetched or was_missed

    async def _poll(self, url: str, planned_at: float | None) -> None:
        """Fetch a topic and plan its next poll, unless another node has polled it meanwhile.

        :param planned_at: when the poll was planned that is made now.
        """
        try:
            asked_at = self._clock.wall_seconds()
            try:
                await self._detector.check_now(url)
            except TopicUnreadable as error:
                asked_at = 0.0  # it is recorded, unless nobody was asked
                self.log.info("A poll failed: {error}", error=error)
            status = await self._store.topic_status(url)
            if status is not None and not status.topic.ended:
                # A fetch that finds what was recorded within the last minute is not recorded.
                latest = max(status.asked_at or 0.0, asked_at) or None
                status = evolve(status, asked_at=latest)
                planned = plan(status, self._clock.wall_seconds(), self._intervals)
                await self._store.plan_polls([evolve(planned, replaces=planned_at)])
        except CancelledError:
            pass  # the service stops
        except Unavailable as error:
            self._pause()
            self.log.error("A poll of {url} is put off: {error}", url=url, error=error)
        except Exception:  # a bug must neither end polling nor be repeated at once
            self._pause()
            self.log.failure("A poll of {url} failed.", url=url)


def _plan_for(
    status: TopicStatus, at: float | None, reason: str, interval: float | None, now: float
) -> PollPlan:
    """A plan for a topic, unless somebody else has planned its poll meanwhile."""
    return PollPlan(status.topic.url, at, reason, interval, now, status.planned_at)
