"""Claims the checks that wait in the store, as many at a time as memory and fairness allow.

A check is a stored request to fetch a topic.  A fetch that waits takes about ten kilobytes of
memory, and a hundred thousand checks may wait.  So the process has at most about ``WINDOW`` of them
in memory.  It may claim a check in the transaction that requests it, if the source and the host
have room; all others wait in the store.  Whenever there is room, the process claims some of these,
in turn for each source, and for each source in turn for its hosts.  Other nodes do the same.

A source, or a host that it wants called, has no room while it has checks in the store that wait
longer.  Otherwise new checks would overtake them forever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model import host_of
from rsscloud_broker.model.work import Check, ClaimedChecks, WantedChecks
from rsscloud_broker.policy.addresses import bucket_of
from rsscloud_broker.policy.host_limiter import HostLimiter, HostQuota
from rsscloud_broker.storage import Store
from rsscloud_broker.util.retry import StoreRetry

#: How many claimed checks the process has in memory, and how many of one host.  A source never has
#: more of them than are free for all others.
WINDOW, WINDOW_OF_HOST = 2000, 200


@define(eq=False)
class WaitingChecks:
    """The checks that this process has claimed, and the loop that claims more of them.

    :param store_retry: repeats what the store could not do.
    :param take: begins the fetch of a claimed check.
    :param window: how many checks are in memory, ``of_host`` of one host.
    :param portion: how many are claimed at a time.
    """

    log = Logger()

    _store: Store
    _clock: IClock
    _store_retry: StoreRetry
    _take: Callable[[Check], object]
    _window: int = field(default=WINDOW, kw_only=True)
    _of_host: int = field(default=WINDOW_OF_HOST, kw_only=True)
    _portion: int = field(default=50, kw_only=True)
    _enough_of_host: int = field(init=False)
    # The claimed checks in memory: by URL, the source, and the quota of the host.
    _held: dict[str, tuple[str, HostQuota]] = field(factory=dict, init=False)
    _limits: HostLimiter = field(init=False)  # counts those that are held
    # The sources, and the sources at one host, whose new checks must wait behind older ones in the
    # store.
    _behind: set[str | tuple[str, HostQuota]] = field(factory=set, init=False)
    _after_source: str | None = field(default=None, init=False)
    _after_hosts: Mapping[str, str] = field(factory=dict, init=False)
    _running: bool = field(default=False, init=False)
    _may_wait: bool = field(default=False, init=False)  # whether checks may wait in the store
    _is_hinted: bool = field(default=False, init=False)  # whether to claim once more
    _is_claiming: bool = field(default=False, init=False)
    _claiming: Deferred[None] | None = field(default=None, init=False)
    _alarm: IDelayedCall | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._enough_of_host = max(1, self._of_host // 4)
        self._limits = HostLimiter(self._window)

    def __contains__(self, url: str) -> bool:
        return url in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def start(self) -> None:
        """Claim checks from now on."""
        self._running = True
        self.wake()

    def stop(self) -> None:
        """Claim no more checks, and forget those that were claimed."""
        self._running = self._may_wait = False
        if self._claiming is not None:
            self._claiming.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self.forget()

    def forget(self) -> None:
        """Count none of the claimed checks any more, since this process does not handle them."""
        for url in tuple(self._held):
            self.done(url)

    def has_room(self, source: str, urls: Iterable[str]) -> bool:
        """Whether checks may be claimed at once that a source is about to request.

        :param source: the address of the caller.
        :param urls: the topics.
        """
        if not self._running:
            return False
        if len(self._held) < self._enough_of_host and not self._may_wait:
            return True
        bucket, has_capacity_at = bucket_of(source), self._limits.has_capacity_at
        return self._has_room(bucket, has_capacity=self._limits.has_capacity(bucket)) and all(
            self._has_room((bucket, quota), has_capacity=has_capacity_at(quota, bucket))
            for quota in {self._quota(url) for url in urls}
        )

    def _has_room(self, key: str | tuple[str, HostQuota], *, has_capacity: bool) -> bool:
        """Whether a new check of a source, or of a source at a host, need not wait in the store.

        If it must, so must later ones, until none of that source is held.
        """
        if has_capacity and key not in self._behind:
            return True
        if self._limits.count(key):
            self._behind.add(key)
        return False

    def add(self, url: str, source: str) -> None:
        """Count a claimed check, until it is ``done``.

        :param source: the address of the caller, or its bucket.
        """
        if url in self._held:
            return
        bucket, quota = self._held[url] = bucket_of(source), self._quota(url)
        self._limits.begin(quota, bucket)

    def done(self, url: str) -> None:
        """Count a check no more: a fetch has answered it, or it waits for another attempt."""
        held = self._held.pop(url, None)
        if held is None:
            return
        bucket, quota = held
        self._limits.release(quota, bucket)
        for key in (bucket, held):
            if not self._limits.count(key):
                self._behind.discard(key)
        if self._may_wait:
            # When fetches end, seconds until checks are claimed in their place.
            self._wake_after(0.05)

    def note_left(self, url: str, source: str) -> None:
        """Remember that a check waits in the store; claim it soon if there is room.

        :param source: as for ``add``.
        """
        self._may_wait = True
        bucket, quota = bucket_of(source), self._quota(url)
        if self._limits.has_capacity(bucket) and self._limits.has_capacity_at(quota, bucket):
            self.wake()

    def wake(self) -> None:
        """Claim checks, if there is room."""
        self._is_hinted = self._may_wait = True
        if self._running and not self._is_claiming and self._limits.has_capacity():
            self._claiming = Deferred.fromCoroutine(self._claim_while_hinted())

    def wake_at(self, at: float) -> None:
        """Claim checks at a time of the wall clock."""
        self._wake_after(max(at - self._clock.wall_seconds(), 0.0))

    def _wake_after(self, seconds: float) -> None:
        if not self._running:
            return
        if self._alarm is None:
            self._alarm = self._clock.callLater(seconds, self._wake_by_alarm)
        elif self._alarm.getTime() > self._clock.seconds() + seconds:
            self._alarm.reset(seconds)

    def _wake_by_alarm(self) -> None:
        self._alarm = None
        self.wake()

    async def _claim_while_hinted(self) -> None:
        """Claim checks, a portion at a time, while some may wait and there is room for them."""
        self._is_claiming = True
        try:
            while self._is_hinted and self._running and self._limits.has_capacity():
                self._is_hinted = False
                self._begin_fetches(*await self._store_retry(self._claim, "topics that wait"))
        except CancelledError:
            pass  # the service stops; the store keeps the checks
        except Exception:  # log a bug, and go on handling new pings
            self.log.failure("Topics that wait to be read could not be looked up.")
        finally:
            self._is_claiming = False

    async def _claim(self) -> tuple[WantedChecks, ClaimedChecks]:
        """Claim a portion of the checks; return what was asked for, and what the store gave."""
        wanted = self._what_to_claim()
        return wanted, await self._store.claim_checks(wanted)

    def _what_to_claim(self) -> WantedChecks:
        """How many checks to claim, and of whom: not of sources and hosts that have their share."""
        limits, held = self._limits, set(self._held.values())
        busy_hosts = {
            (source, quota.host)
            for source, quota in held
            if limits.count((source, quota)) >= self._enough_of_host
            or not limits.has_capacity_at(quota, source)
        }
        return WantedChecks(
            limit=min(self._portion, self._window - len(self._held)),
            of_host=self._enough_of_host,
            now=self._clock.wall_seconds(),
            busy_sources={source for source, _ in held if not limits.has_capacity(source)},
            busy_hosts=busy_hosts,
            after_source=self._after_source,
            after_hosts=self._after_hosts,
        )

    def _begin_fetches(self, wanted: WantedChecks, claimed: ClaimedChecks) -> None:
        """Remember whose turn is next, and begin the fetches of checks that were claimed."""
        self._after_source = claimed.after_source
        # At this many sources they are all forgotten, and the hosts of each begin with the first.
        known = self._after_hosts if len(self._after_hosts) < 1000 else {}
        self._after_hosts = {**known, **claimed.after_hosts}
        self._is_hinted |= claimed.more
        self._may_wait = self._is_hinted or bool(wanted.busy_sources or wanted.busy_hosts)
        if not self._may_wait:
            self._behind.clear()
        for check in claimed.checks:
            self.add(check.url, check.source)
            self._take(check)
        if claimed.next_at is not None:
            self.wake_at(claimed.next_at)

    def _quota(self, url: str) -> HostQuota:
        return HostQuota("check", host_of(url), self._of_host)
