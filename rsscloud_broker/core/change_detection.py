"""Finds out whether a topic changed.

A topic is read when somebody says that it changed, and compared with the last
reading by the hash and size of its bytes; only a difference is a change.  Two
ways lead here:

- ``check``: the caller waits for the answer (an rssCloud ping, a subscription).
- ``ask``: the caller has stored that the topic waits to be read and goes on
  (a weblogUpdates ping).  The store is looked through at the start, and again
  now and then, for what the last process left waiting, or a bug.

Both share fetches: see ``sharing``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from attrs import evolve
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker.core.feed_reading import FeedReading
from rsscloud_broker.core.sharing import SharedCalls
from rsscloud_broker.core.topic_reader import TopicReader
from rsscloud_broker.counters import Counters
from rsscloud_broker.events import PingReceived, TopicChanged
from rsscloud_broker.interfaces import IClock, IEventBus, IStore
from rsscloud_broker.model import Ping, Reading, ReadingRecord, TopicEnded, TopicUnreadable
from rsscloud_broker.patience import Patience
from rsscloud_broker.remembered import Remembered

#: Topics of which is known when they were pinged last.
MAX_REMEMBERED = 10_000

#: Topics that are looked up at once in the store, which wait there to be read, and the
#: seconds after which it is looked through again.
AT_ONCE, LOOK_AGAIN = 100_000, 600.0


class ChangeDetector(Service):
    """Reads topics, records what was found, and publishes changes.

    :param feeds: reads what has changed as a feed.
    :param retries: seconds to wait before a topic that was asked for and could
        not be read is tried again; when they are used up it is given up.  So it is at
        once where that would not help, and nobody has subscribed to it.
    """

    name = "change detector"
    log = Logger()

    def __init__(
        self,
        store: IStore,
        reader: TopicReader,
        feeds: FeedReading,
        bus: IEventBus,
        clock: IClock,
        counters: Counters,
        retries: Sequence[float] = (5.0, 30.0, 120.0),
    ) -> None:
        self._store = store
        self._reader = reader
        self._feeds = feeds
        self._bus = bus
        self._clock = clock
        self._readings = counters.readings
        self._pings = counters.pings
        self._retries = retries
        self._check = SharedCalls(self._read_and_record, clock)
        self._read = SharedCalls(reader.read, clock)
        self._pinged: set[str] = set()
        self._asked_at: dict[str, float] = {}  # for checks that have not begun
        self._heard = 0
        self._last_pings: Remembered[str, int] = Remembered(MAX_REMEMBERED)
        self._asked: dict[str, int] = {}
        self._asked_by_ping: set[str] = set()
        self._waiting: set[Deferred[None]] = set()
        self._patience = Patience(clock, "Reading")
        counters.checks.set_function(lambda: len(self._asked))

    def startService(self) -> None:
        """Begin with the topics that still waited when the last process ended."""
        super().startService()
        self._patience.stopped = False
        self._keep(Deferred.fromCoroutine(self._look_through()))

    def stopService(self) -> None:
        """Stop waiting for topics; what was not read waits in the store."""
        super().stopService()
        self._patience.stop()
        for waiting in tuple(self._waiting):
            waiting.cancel()

    def reads(self, url: str) -> bool:
        """Whether a topic is one that is read."""
        return self._reader.reads(url)

    def check(self, url: str, *, pinged: bool = False) -> Deferred[ReadingRecord]:
        """Read a topic and record what was found.

        :param pinged: somebody said that it changed; if so, that is recorded as
            a ping.
        :raises TopicUnreadable: it could not be read; nothing was recorded.
        """
        if pinged:
            self._pinged.add(url)
            self._hear_of(url)
        self._asked_at.setdefault(url, self._clock.wall_seconds())
        return self._check(url)

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

    def read(self, url: str) -> Deferred[Reading]:
        """Read a topic and record nothing.

        :raises TopicUnreadable: it could not be read.
        """
        return self._read(url)

    def ask(self, url: str, *, pinged: bool = False) -> None:
        """Read a topic soon, which the store already knows to be waiting.

        If the service does not run, the topic is read after its next start.

        :param pinged: as for ``check``.
        """
        self._hear_of(url)
        if not self.running:
            return
        if pinged:
            self._asked_by_ping.add(url)
        first = url not in self._asked
        self._asked[url] = self._asked.get(url, 0) + 1
        if first:
            self._keep(Deferred.fromCoroutine(self._answer(url)))

    def _keep(self, waiting: Deferred[None]) -> None:
        """Have something called off when the service stops."""
        self._waiting.add(waiting)
        waiting.addBoth(lambda result: self._waiting.discard(waiting))

    async def _look_through(self) -> None:
        """Ask for the topics that wait in the store and that nobody sees to."""
        with suppress(CancelledError):  # the service stops; the store remembers
            while True:
                await self._resume()
                await deferLater(self._clock, LOOK_AGAIN)

    async def _resume(self) -> None:
        try:
            due = partial(self._store.checks_due, AT_ONCE)
            for check in await self._patience(due, "topics that wait"):
                if check.url not in self._asked:
                    self.ask(check.url, pinged=check.pinged)
        except CancelledError:
            raise
        except Exception:  # a bug must not go unseen; new pings are answered all the same
            self.log.failure("Topics that wait to be read could not be looked up.")

    async def _answer(self, url: str) -> None:
        """Check a topic until no one has asked since the last check began."""
        try:
            await self._check_until_answered(url)
        except CancelledError:
            pass  # the service stops; the store remembers
        except Exception:  # a bug must not leave the topic unasked for ever
            self.log.failure("Checking {url} failed; it is tried again later.", url=url)
        finally:
            del self._asked[url]

    async def _check_until_answered(self, url: str) -> None:
        retries = iter(self._retries)
        answered = 0
        while answered != self._asked[url]:
            asking, asked_until = self._asked[url], self._clock.wall_seconds()
            attempt = partial(self._check_or_give_up, url, asked_until, retries)
            delay = await self._patience(attempt, url)
            if delay is None:
                answered = asking
            else:
                await deferLater(self._clock, delay)

    async def _check_or_give_up(
        self, url: str, asked_until: float, retries: Iterator[float]
    ) -> float | None:
        """Seconds until the topic is to be tried again; None if it is done with."""
        pinged = url in self._asked_by_ping
        try:
            await self.check(url, pinged=pinged)
        except TopicUnreadable as error:
            hopeless = error.refused or isinstance(error, TopicEnded)
            if error.lasting and not hopeless:
                hopeless = not await self._has_subscribers(url)
            delay = None if hopeless else next(retries, None)
            if delay is not None:
                self.log.warn(
                    "{error}; it is read again in {delay:.0f} s.", error=error, delay=delay
                )
                return delay
            self.log.warn(
                "{error}; given up: its subscribers are not told of this ping.", error=error
            )
            await self._store.drop_check(url, asked_until)
        if pinged:
            self._asked_by_ping.discard(url)
        return None

    async def _has_subscribers(self, url: str) -> bool:
        topic = await self._store.topic(url)
        return topic is not None and topic.subscribers > 0

    async def _read_and_record(self, url: str) -> ReadingRecord:
        pinged = url in self._pinged
        self._pinged.discard(url)
        asked_at = self._asked_at.pop(url)
        reading = evolve(await self._read(url), pinged=pinged, asked_at=asked_at)
        if url not in self._asked:  # or else the store waits for an answer
            known = self._reader.nothing_new(reading)
            if known is not None:
                self._readings.labels("unchanged").inc()
                return ReadingRecord(known, changed=False)
        return await self.record(reading)

    async def record(self, reading: Reading, *, news: bool = True) -> ReadingRecord:
        """Record what was found, and say so if it is a change.

        :param news: whether a change is one to anybody.
        """
        now, url = self._clock.wall_seconds(), reading.url
        ping = Ping(name=url, url=url, rss_url=url, received_at=now) if reading.pinged else None
        record = await self._store.record_reading(reading, ping)
        self._reader.recorded(record.topic, pinged=reading.pinged)
        self._readings.labels("changed" if record.changed else "unchanged").inc()
        if record.ping is not None:
            self._pings.inc()
            self._bus.publish(PingReceived(record.ping))
        if record.changed and news:
            self._bus.publish(TopicChanged(record.topic.url, now))
        if record.changed and reading.content is not None:
            self._feeds.take(record.topic.url, reading.content)
        return record
