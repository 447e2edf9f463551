"""Fetches topics and finds out whether they changed.

Fetched bytes have changed if their hash or size differs from that of the last fetch.  ``Broker``,
``Verifier``, ``Poller`` and some sinks call it, in one of these ways:

- ``check_now``: the caller waits for the result (an rssCloud ping, a poll).
- ``read``: the caller waits for the result, and nothing is recorded (a subscription).
- ``schedule``: the caller has stored a check, which says that the topic waits to be fetched, and
  does not wait (a weblogUpdates ping).  Only some checks are in memory at a time: see
  ``waiting_checks``.  If the fetch fails, the check waits for a retry: see ``retrying``.

All share fetches (``sharing``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar

from attrs import evolve
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker.core.feed_inspector import FeedInspector
from rsscloud_broker.core.remote_fetches import RecordedFetch, RemoteFetches, record_of
from rsscloud_broker.core.retrying import FetchRetries
from rsscloud_broker.core.sharing import PendingFetch, SharedFetches
from rsscloud_broker.core.topic_reader import TopicReader
from rsscloud_broker.core.waiting_checks import WaitingChecks
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import TopicUnreadable, Unavailable
from rsscloud_broker.events import ContentFetched, PingReceived, TopicChanged, TopicFetched
from rsscloud_broker.interfaces import IClock, IEventBus
from rsscloud_broker.model import FetchResult, Ping
from rsscloud_broker.model.ways import UNKNOWN_SOURCE, ChangeSource, Way
from rsscloud_broker.model.work import Check, CheckState, FetchRecord
from rsscloud_broker.policy.addresses import bucket_of
from rsscloud_broker.storage import Store
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.retry import StoreRetry

T = TypeVar("T")
_Pending: TypeAlias = PendingFetch[RecordedFetch]


class ChangeDetector(Service):
    """Fetches topics, records the results in the store and publishes changes on the bus.

    A failed fetch that the store has a check for is retried.  After the last retry the check is
    deleted.  It is deleted without a retry if a retry would not help or nobody has subscribed to
    the topic.

    :ivar reader: reads topics, and knows what is cached of them.
    """

    name = "change detector"
    log = Logger()

    def __init__(
        self,
        store: Store,
        reader: TopicReader,
        feeds: FeedInspector,
        bus: IEventBus,
        clock: IClock,
        counters: Counters,
    ) -> None:
        self._store = store
        self.reader = reader
        self._feeds = feeds
        self._bus = bus
        self._clock = clock
        self._counter = counters.fetches
        self._ping_counter = counters.pings
        retry = self._store_retry = StoreRetry(clock, "Fetching")
        self._fetches: SharedFetches[RecordedFetch] = SharedFetches(self._fetch_and_record, clock)
        self.others = RemoteFetches(store, clock)
        self._waiting = WaitingChecks(store, clock, retry, self._begin_claimed)
        self._retries = FetchRetries(store, clock, retry, self._waiting.wake_at)
        self._pings_seen = 0
        # The number of the last ping of a topic, for this many topics.
        self._last_pings: BoundedDict[str, int] = BoundedDict(10_000)
        self._releasing: Deferred[None] | None = None
        counters.checks.set_function(self._count_checks)

    def startService(self) -> None:
        """Fetch the topics that wait in the store."""
        super().startService()
        self._store_retry.stopped = False
        self._releasing = Deferred.fromCoroutine(self._release_now_and_then())

    def stopService(self) -> None:
        """Stop retrying; the store keeps the checks of topics that still wait."""
        super().stopService()
        self._store_retry.stop()
        self._waiting.stop()
        if self._releasing is not None:
            self._releasing.cancel()

    def set_node_count(self, nodes: int) -> None:
        """Take note of how many nodes live: others may fetch topics that are cached here."""
        self.reader.set_node_count(nodes)
        self.others.live = nodes

    def check_now(
        self,
        url: str,
        *,
        pinged: bool = False,
        source: str = "",
        origin: str = "",
        way: Way = Way.FETCH,
    ) -> Deferred[FetchRecord]:
        """Fetch a topic and record the result.

        :param pinged: whether a publisher pinged the topic; if the topic changed, the ping is
            recorded too.
        :param source: the address of the caller; empty for the broker itself.
        :param origin: of the ping; see ``Ping``.
        :param way: how the broker learned that the topic may have changed.
        :raises TopicUnreadable: the fetch failed; no content was recorded.
        """
        if pinged:
            self._count_ping(url)
        found: Deferred[RecordedFetch] = Deferred()
        self._request(
            url, source, waiter=found, cause=ChangeSource(way, origin, pinged), to_record=True
        )
        return found.addCallback(record_of)

    def ping_generation(self, url: str) -> int:
        """A number that changes with each ping of a topic."""
        return self._last_pings.get(url, 0)

    def _count_ping(self, url: str) -> None:
        self._pings_seen += 1
        self._last_pings[url] = self._pings_seen

    def read(self, url: str, *, source: str = "", way: Way = Way.FETCH) -> Deferred[FetchResult]:
        """Fetch a topic and record nothing.

        :param source, way: as for ``check_now``.
        :raises TopicUnreadable: the fetch failed.
        """
        found: Deferred[RecordedFetch] = Deferred()
        self._request(url, source, waiter=found, cause=ChangeSource(way))
        return found.addCallback(lambda recorded: recorded.fetched)

    def has_room(self, source: str, urls: Iterable[str]) -> bool:
        """Whether the store may claim checks for this process that a caller is about to request.

        :param source: the address of the caller.
        :param urls: the topics.
        """
        return self._waiting.has_room(source, urls)

    async def request(self, url: str, source: str, cause: ChangeSource) -> CheckState:
        """Have the store request a check, for ``schedule``: see ``Store.request_check``."""
        now, claim = self._clock.wall_seconds(), self.has_room(source, (url,))
        asked_by = bucket_of(source)
        return await self._store.request_check(url, now, cause.pinged, asked_by, claim, cause)

    def schedule(
        self,
        url: str,
        state: CheckState = CheckState.WAITS,
        *,
        source: str = "",
        cause: ChangeSource = UNKNOWN_SOURCE,
    ) -> None:
        """Fetch a topic soon.  The caller has stored a check of it.

        If the service is not running, the topic is fetched after its next start.

        :param state: what the store said of the check.  If it waits in the store, this process or
            another claims it when there is room.
        :param source: as for ``check_now``.
        :param cause: why the topic is fetched.
        """
        self._count_ping(url)
        if not self.running or state is CheckState.ELSEWHERE:
            return
        if state is CheckState.WAITS and url not in self._waiting:
            self._waiting.note_left(url, source)
        else:
            self._waiting.add(url, source)
            self._request(url, source, cause=cause, requested=True)

    def _begin_claimed(self, check: Check) -> None:
        self._request(
            check.url, check.source, cause=check.cause, requested=True, failures=check.failures
        )

    async def schedule_later(self, url: str, source: str, cause: ChangeSource) -> None:
        """Store a check of a pinged topic whose fetch just failed, if it has subscriptions, and
        retry the fetch.  For private followers alone it is no ping, since strangers would see that.
        """
        if not await self.reader.is_watched(url):
            cause = UNKNOWN_SOURCE
        state = await self.request(url, source, cause)
        if state is not CheckState.CLAIMED:
            if state:
                self.schedule(url, state, source=source, cause=cause.again)
        elif self.running:
            self._retries.put_off(url)

    def _request(
        self,
        url: str,
        source: str,
        *,
        waiter: Deferred[RecordedFetch] | None = None,
        cause: ChangeSource = UNKNOWN_SOURCE,
        to_record: bool = False,
        requested: bool = False,
        failures: int = 0,
    ) -> None:
        """Request a fetch of a topic, which may be shared with other requests.

        :param waiter: is fired with the result or the failure.
        :param source: as for ``check_now``.
        :param cause, to_record, requested, failures: see ``PendingFetch``.
        """
        pending = self._fetches.find_or_make(url)
        if requested:
            earlier = pending.failures if pending.requested else failures
            pending.failures = min(earlier, failures)
        if waiter is not None:
            pending.waiters.append(waiter)
        pending.cause = pending.cause.joined(cause)
        pending.to_record |= to_record
        pending.requested |= requested
        pending.turn.join(source)  # a new source may get a slot at once
        self._fetches.start(pending)

    def _count_checks(self) -> int:
        return sum(pending.requested for pending in self._fetches)

    async def lose_claims(self) -> None:
        """Forget the checks that others have claimed, but not what callers wait for."""
        self._fetches.lose_claims()
        self._waiting.forget()
        await self._release_unhandled()
        self._waiting.wake()

    def take_over(self) -> None:
        """Look for checks that wait, because another node has left them."""
        self._waiting.wake()

    async def _release_now_and_then(self) -> None:
        """Release, every ten minutes, the checks that are claimed and nobody handles."""
        with suppress(CancelledError):  # the service stops; the store keeps the checks
            while True:
                await self._release_unhandled()
                self._waiting.start()
                # Due to a bug, checks may be claimed that nobody handles: they are released then.
                await deferLater(self._clock, 600.0)

    async def _release_unhandled(self) -> None:
        """Release the checks that this node has claimed in the store and does not handle."""
        try:
            # After a pause of the store this process may handle others: each try asks anew.
            await self._store_retry(
                lambda: self._store.release_checks(set(self._waiting)), "topics that wait"
            )
        except CancelledError:
            raise
        except Exception:  # log a bug, and go on handling new pings
            self.log.failure("Checks that nobody handles could not be released.")

    async def _fetch_and_record(self, pending: _Pending) -> RecordedFetch:
        """Fetch and record; if that fails and the store has a check, plan a retry."""
        url = pending.url
        try:
            if (answer := await self.others.answer(pending)) is not None:
                return answer
            use = partial(self._record_if_wanted, pending)
            found = await self.reader.fetch(url, pending.turn, use, pending.cause.way)
            asked_again = found.record is not None and found.record.asked_again
            if asked_again and self.running and not self._is_followed(pending):
                self._retries.fetch_once_more(url, found.fetched.started_at)
            return found
        except Exception as error:
            if pending.requested and self.running:
                self._plan_retry(pending, error)
            raise
        finally:
            if not self._is_followed(pending):
                self._waiting.done(url)

    async def _record_if_wanted(self, pending: _Pending, fetched: FetchResult) -> RecordedFetch:
        """Record the result of a fetch, if a caller or a check in the store wants that."""
        if not (pending.to_record or pending.requested):
            return RecordedFetch(fetched, None)
        return RecordedFetch(fetched, await self._record_for(pending, fetched))

    async def _record_for(self, pending: _Pending, fetched: FetchResult) -> FetchRecord:
        """Record the result of a fetch, unless the store was just given the same."""
        result = evolve(
            fetched,
            pinged=pending.cause.pinged,
            origin=pending.cause.origin,
            asked_at=pending.asked_at,
            way=pending.cause.way,
        )
        if not pending.requested:  # the store deletes a check only when a result is recorded
            topic = self.reader.unchanged_topic(result)
            if topic is not None:
                record = FetchRecord(topic, changed=False, shown=topic.shows(result.way))
                self._publish_fetched(result, record)
                return record
        return await self.record(result)

    def _is_followed(self, pending: _Pending) -> bool:
        """Whether the fetch that follows another one answers a check in the store."""
        following = self._fetches.following(pending)
        return following is not None and following.requested

    def _plan_retry(self, pending: _Pending, error: Exception) -> None:
        """Plan a retry of a failed fetch that the store has a check for."""
        url = pending.url
        if not isinstance(error, TopicUnreadable | Unavailable):  # a bug: log its traceback
            self.log.failure("Checking {url} failed; it is tried again later.", url=url)
            return
        following = self._fetches.following(pending)
        if following is not None:
            # It answers both requests, and is not withdrawn: this fetch still has its claim.
            following.cause = following.cause.joined(pending.cause.again)
            following.requested = True
            for source in pending.turn.sources:
                following.turn.join(source)
            return
        self._retries.plan(url, error, pending.failures, pending.asked_until)

    async def record(self, fetched: FetchResult, *, announce: bool = True) -> FetchRecord:
        """Record the result of a fetch in the store, and publish the change if it is one.

        :param announce: whether ``TopicChanged`` is published for a change.
        """
        # A ping that another node took is listed too: its check says that somebody pinged.
        ping, if_asked = self._ping_of(fetched), not fetched.pinged
        record = await self._store.record_fetch(fetched, ping, if_asked)
        self._pass_on(fetched, record, announce=announce)
        return record

    async def publish(self, fetched: Sequence[FetchResult], operation: Callable[[Any], T]) -> T:
        """Record the contents of topics that the broker itself serves, and publish the changes.

        :param operation: see ``Store.publish``.
        :returns: what the operation returned.
        """
        ping = self._ping_of(fetched[0])
        result, records = await self._store.publish(fetched, ping, operation)
        for each, record in zip(fetched, records, strict=True):
            self._pass_on(each, record)
        return result

    def _ping_of(self, fetched: FetchResult) -> Ping:
        url, now = fetched.url, self._clock.wall_seconds()
        return Ping(name=url, url=url, rss_url=url, received_at=now, origin=fetched.origin)

    def _pass_on(self, fetched: FetchResult, record: FetchRecord, *, announce: bool = True) -> None:
        self.reader.remember(record.topic, pinged=fetched.pinged)
        self._publish_fetched(fetched, record)
        if record.ping is not None:
            self._ping_counter.inc()
            self._bus.publish(PingReceived(record.ping))
        if record.changed and announce:
            self._bus.publish(TopicChanged(record.topic.url, self._clock.wall_seconds()))
        if record.content_awaited:
            self._bus.publish(ContentFetched(record.topic.url))
        if record.changed and fetched.content is not None:
            self._feeds.inspect(record.topic.url, fetched.content)

    def _publish_fetched(self, fetched: FetchResult, record: FetchRecord) -> None:
        """Count and publish a fetch; strangers may not know of one that is ``private``."""
        now, private = self._clock.wall_seconds(), not record.shown
        changed = record.changed if private else record.news
        self._counter.labels("private" if private else "changed" if changed else "unchanged").inc()
        result, seconds = fetched.result, fetched.seconds
        self._bus.publish(TopicFetched(record.topic.url, changed, result, seconds, now, private))
