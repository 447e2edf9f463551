"""Finds out whether a topic changed.

A topic is read when somebody says that it changed, and compared with the last
reading by the hash and size of its bytes; only a difference is a change.  Two
ways lead here:

- ``check``: the caller waits for the answer (an rssCloud ping, a subscription).
- ``ask``: the caller has stored that the topic waits to be read and goes on
  (a weblogUpdates ping).  If the topic cannot be read, it is read again later (see
  ``retrying``).  The store is looked through at the start, and again now and then, for
  what the last process left waiting, or a bug.

Both share readings: see ``sharing``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from attrs import evolve, frozen
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker.bounded_dict import BoundedDict
from rsscloud_broker.core.feed_inspector import FeedInspector
from rsscloud_broker.core.retrying import RETRIES, Retries, Retry
from rsscloud_broker.core.sharing import PendingReading, SharedReadings
from rsscloud_broker.core.topic_reader import TopicReader
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import TopicUnreadable, Unavailable
from rsscloud_broker.events import ContentBrought, PingReceived, TopicChanged
from rsscloud_broker.interfaces import IClock, IEventBus, IStore
from rsscloud_broker.model import FetchResult, Ping
from rsscloud_broker.records import FetchRecord
from rsscloud_broker.store_retry import StoreRetry

#: Topics of which is known when they were pinged last.
MAX_REMEMBERED = 10_000

#: Topics that are looked up at once in the store, which wait there to be read, and the
#: seconds after which it is looked through again.
AT_ONCE, LOOK_AGAIN = 100_000, 600.0


@frozen
class _Found:
    """What came of a reading.

    :ivar record: what was recorded of it; None if nothing was to be.
    """

    reading: FetchResult
    record: FetchRecord | None


class ChangeDetector(Service):
    """Reads topics, records what was found, and publishes changes.

    :param feeds: reads what has changed as a feed.
    :param retries: seconds to wait before a topic that was asked for and could
        not be read is tried again; when they are used up it is given up.  So it is at
        once where that would not help, or nobody has subscribed to it.
    """

    name = "change detector"
    log = Logger()

    def __init__(
        self,
        store: IStore,
        reader: TopicReader,
        feeds: FeedInspector,
        bus: IEventBus,
        clock: IClock,
        counters: Counters,
        retries: Sequence[float] = RETRIES,
    ) -> None:
        self._store = store
        self._reader = reader
        self._feeds = feeds
        self._bus = bus
        self._clock = clock
        self._counted = counters.readings
        self._pings = counters.pings
        self._store_retry = StoreRetry(clock, "FetchResult")
        self._readings: SharedReadings[_Found] = SharedReadings(self._read_and_record, clock)
        self._retries = Retries(store, clock, self._store_retry, self._request, retries)
        self._heard = 0
        self._last_pings: BoundedDict[str, int] = BoundedDict(MAX_REMEMBERED)
        self._looking: Deferred[None] | None = None
        counters.checks.set_function(self._count_checks)

    def startService(self) -> None:
        """Begin with the topics that still waited when the last process ended."""
        super().startService()
        self._store_retry.stopped = False
        self._looking = Deferred.fromCoroutine(self._look_through())

    def stopService(self) -> None:
        """Stop waiting for topics; what was not read waits in the store."""
        super().stopService()
        self._store_retry.stop()
        self._retries.stop()
        if self._looking is not None:
            self._looking.cancel()

    def reads(self, url: str) -> bool:
        """Whether a topic is one that is read."""
        return self._reader.reads(url)

    def was_watched(self, url: str) -> bool:
        """Whether it is remembered that somebody has subscribed to a topic."""
        return self._reader.was_watched(url)

    async def is_watched(self, url: str) -> bool:
        """Whether anybody has subscribed to a topic."""
        return await self._reader.is_watched(url)

    def check_now(
        self, url: str, *, pinged: bool = False, source: str = ""
    ) -> Deferred[FetchRecord]:
        """Read a topic and record what was found.

        :param pinged: somebody said that it changed; if so, that is recorded as
            a ping.
        :param source: the address of whoever asks; empty for the broker itself.
        :raises TopicUnreadable: it could not be read; nothing was recorded.
        """
        if pinged:
            self._hear_of(url)
        found: Deferred[_Found] = Deferred()
        self._request(
            url, source, waiter=found, pinged=pinged, may_have_changed=pinged, to_record=True
        )
        return found.addCallback(_record_of)

    def forget(self, url: str) -> None:
        """Look into the store for what is known of a topic."""
        self._reader.forget(url)

    def last_ping(self, url: str) -> int:
        """A number for the last time when somebody said that a topic changed.

        It is another one after the next time.
        """
        return self._last_pings.get(url, 0)

    def _hear_of(self, url: str) -> None:
        self._heard += 1
        self._last_pings[url] = self._heard

    def read(self, url: str, *, source: str = "") -> Deferred[FetchResult]:
        """Read a topic and record nothing.

        :param source: as for ``check``.
        :raises TopicUnreadable: it could not be read.
        """
        found: Deferred[_Found] = Deferred()
        self._request(url, source, waiter=found)
        return found.addCallback(_reading_of)

    def schedule(self, url: str, *, pinged: bool = False, source: str = "") -> None:
        """Read a topic soon, which the store already knows to be waiting.

        If the service does not run, the topic is read after its next start.

        :param pinged, source: as for ``check``.
        """
        self._hear_of(url)
        if self.running and not self._retries.hear_of(url, source, pinged=pinged):
            self._request(url, source, pinged=pinged, may_have_changed=True, requested=True)

    def schedule_later(self, url: str, source: str = "") -> None:
        """Read a topic again which the store knows to be waiting, and which was pinged and
        could not be read just now.
        """
        if self.running:
            now, delays = self._clock.seconds(), self._retries.fresh()
            self._retries.later(Retry(url, now, delays, {source}, pinged=True))

    def _request(
        self,
        url: str,
        *sources: str,
        waiter: Deferred[_Found] | None = None,
        pinged: bool = False,
        may_have_changed: bool = False,
        to_record: bool = False,
        requested: bool = False,
    ) -> None:
        """Have a topic read, by a reading that others may share.

        What waits for a retry is answered by that reading, too.

        :param waiter: is told what comes of it.
        :param may_have_changed: somebody says that it changed, so it has all its retries again.
        :param pinged, to_record, requested: see ``PendingReading``.
        """
        reading = self._readings.next(url)
        retry = self._retries.take(url)
        if retry is not None:
            sources += tuple(retry.sources)
            reading.pinged |= retry.pinged
            reading.requested = True
            reading.delays = retry.delays
        if may_have_changed:
            reading.delays = None
        if waiter is not None:
            reading.waiters.append(waiter)
        reading.pinged |= pinged
        reading.to_record |= to_record
        reading.requested |= requested
        for source in sources:  # which may begin it, if it waits
            reading.turn.join(source)
        self._readings.go(reading)

    def _count_checks(self) -> int:
        """How many topics wait to be read of which the store knows."""
        return len(self._retries) + sum(reading.requested for reading in self._readings)

    async def _look_through(self) -> None:
        """Ask for the topics that wait in the store and that nobody sees to."""
        with suppress(CancelledError):  # the service stops; the store remembers
            while True:
                await self._resume()
                await deferLater(self._clock, LOOK_AGAIN)

    async def _resume(self) -> None:
        try:
            due = partial(self._store.checks_due, AT_ONCE)
            for check in await self._store_retry(due, "topics that wait"):
                if check.url not in self._retries and check.url not in self._readings:
                    self.schedule(check.url, pinged=check.pinged)
        except CancelledError:
            raise
        except Exception:  # a bug must not go unseen; new pings are answered all the same
            self.log.failure("Topics that wait to be read could not be looked up.")

    async def _read_and_record(self, pending: PendingReading[_Found]) -> _Found:
        """Make a reading; if it fails and the store waits for it, see to a retry."""
        try:
            return await self._find(pending)
        except Exception as error:
            if pending.requested and self.running:
                self._fail(pending, error)
            raise

    async def _find(self, pending: PendingReading[_Found]) -> _Found:
        async with self._reader.reading(pending.url, pending.turn) as reading:
            wanted = pending.to_record or pending.requested
            return _Found(reading, await self._record_reading(reading, pending) if wanted else None)

    async def _record_reading(
        self, reading: FetchResult, pending: PendingReading[_Found]
    ) -> FetchRecord:
        """Record what was found, unless it would say what was just recorded."""
        asked = evolve(reading, pinged=pending.pinged, asked_at=pending.asked_at)
        if not pending.requested:  # or else the store waits for an answer
            known = self._reader.nothing_new(asked)
            if known is not None:
                self._counted.labels("unchanged").inc()
                return FetchRecord(known, changed=False)
        return await self.record(asked)

    def _fail(self, pending: PendingReading[_Found], error: Exception) -> None:
        """See to a topic that the store knows to be waiting, and that could not be read."""
        url = pending.url
        if not isinstance(error, TopicUnreadable | Unavailable):  # a bug: it must not go unseen
            self.log.failure("Checking {url} failed; it is tried again later.", url=url)
            return
        following = self._readings.after(pending)
        if following is not None:  # it answers for both
            following.pinged |= pending.pinged
            following.requested = True
            for source in pending.turn.sources:
                following.turn.join(source)
            return
        retry = Retry(
            url,
            self._clock.seconds(),
            pending.delays or self._retries.fresh(),
            set(pending.turn.sources),
            pending.pinged,
        )
        if isinstance(error, TopicUnreadable):
            self._retries.failed(retry, error, pending.asked_until)
        else:
            self.log.error("Reading {url} is put off: {error}", url=url, error=error)
            self._retries.put_off(retry)

    async def record(self, reading: FetchResult, *, announce: bool = True) -> FetchRecord:
        """Record what was found, and say so if it is a change.

        :param announce: whether sinks are told of a change.
        """
        now, url = self._clock.wall_seconds(), reading.url
        ping = Ping(name=url, url=url, rss_url=url, received_at=now) if reading.pinged else None
        record = await self._store.record_fetch(reading, ping)
        self._reader.recorded(record.topic, pinged=reading.pinged)
        self._counted.labels("changed" if record.changed else "unchanged").inc()
        if record.ping is not None:
            self._pings.inc()
            self._bus.publish(PingReceived(record.ping))
        if record.changed and announce:
            self._bus.publish(TopicChanged(record.topic.url, now))
        if record.brought:
            self._bus.publish(ContentBrought(record.topic.url))
        if record.changed and reading.content is not None:
            self._feeds.take(record.topic.url, reading.content)
        return record


def _record_of(found: _Found) -> FetchRecord:
    assert found.record is not None  # it was to be recorded
    return found.record


def _reading_of(found: _Found) -> FetchResult:
    return found.reading
