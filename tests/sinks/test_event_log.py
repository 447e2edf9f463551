"""The event log sink: when it writes entries, which it loses, and what it prunes."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.core.bus import EventBus
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import (
    Event,
    NotificationDelivered,
    NotificationFailed,
    PingAccepted,
    PingRefused,
    SubscriptionDenied,
)
from rsscloud_broker.model import Callback
from rsscloud_broker.model.log_entry import LogEntry, LogFilter
from rsscloud_broker.sinks import event_log
from rsscloud_broker.testing import memory_store, sink_parts
from rsscloud_broker.testing.clock import About, Clock

NOON = About(1_790_683_200.0)
FEED = "http://feeds.example/rss.xml"
CALLBACK = Callback("http://reader.example:8000/notify?token=1", "http-post")
CALLER = "192.0.2.7"


class WritingTests(SynchronousTestCase):
    """When entries are written, counted, lost and pruned."""

    def setUp(self) -> None:
        self.clock = Clock(NOON)
        self.store: Any = memory_store()
        self.addCleanup(self.store.stopService)
        self.batches: list[int] = []
        self.held: list[Deferred[None]] | None = None
        self.failure: Exception | None = None
        self._add = self.store.add_log_entries
        self.patch(self.store, "add_log_entries", self._watched)
        self.sink = self.make()

    def make(self, **options: object) -> event_log.EventLogSink:
        options_ = event_log.EventLogOptions(**options)  # type: ignore[arg-type] # those of the options
        sink = event_log.EventLogSink(options_, sink_parts(store=self.store, clock=self.clock))
        sink.startService()
        self.addCleanup(sink.stopService)
        return sink

    def _watched(self, entries: list[LogEntry]) -> Deferred[None]:
        self.batches.append(len(entries))
        if self.failure is not None:
            return fail(type(self.failure)(*self.failure.args))
        if self.held is None:
            return self._add(entries)
        gate: Deferred[None] = Deferred()
        self.held.append(gate)
        return gate.addCallback(lambda _: self._add(entries))

    def handle(self, *events: Event) -> None:
        for event in events:
            self.successResultOf(self.sink.handle(event))

    def written(self, limit: int = 100_000) -> list[LogEntry]:
        """The entries in the store, oldest first."""
        found: list[LogEntry]
        found = self.successResultOf(self.store.log_entries_after(LogFilter(), 0, limit))
        return found

    def ping(self, number: int = 1) -> PingAccepted:
        return PingAccepted(f"http://site{number}.example/", self.clock.wall_seconds())

    def refusal(self, source: str = CALLER) -> PingRefused:
        return PingRefused(FEED, "no", self.clock.wall_seconds(), source)

    def test_entries_are_gathered_for_a_moment(self) -> None:
        self.handle(self.ping(1), self.ping(2))
        self.assertEqual(self.batches, [])
        self.clock.advance(event_log.GATHER)
        self.assertEqual(self.batches, [2])
        self.assertEqual([one.host for one in self.written()], ["site1.example", "site2.example"])

    def test_a_full_batch_is_written_at_once(self) -> None:
        self.handle(*(self.ping() for _ in range(event_log.BATCH)))
        self.assertEqual(self.batches, [event_log.BATCH])

    def test_while_a_batch_is_written_others_wait(self) -> None:
        self.held = []
        self.handle(*(self.ping() for _ in range(event_log.BATCH + 10)))
        self.clock.advance(event_log.GATHER)
        self.assertEqual(self.batches, [event_log.BATCH])
        self.held[0].callback(None)
        self.assertEqual(self.batches, [event_log.BATCH])
        self.clock.advance(event_log.GATHER)
        self.assertEqual(self.batches, [event_log.BATCH, 10])
        self.held[1].callback(None)
        self.assertEqual(len(self.written()), event_log.BATCH + 10)

    def test_stopping_writes_what_waits_and_what_still_comes(self) -> None:
        self.handle(self.ping(1))
        stopped = self.sink.stopService()
        self.assertEqual(len(self.written()), 1)
        self.successResultOf(stopped)
        self.handle(self.ping(2))  # other parts are still stopping
        self.assertEqual(len(self.written()), 2)

    def test_stopping_waits_for_a_batch_that_is_being_written(self) -> None:
        self.held = []
        self.handle(self.ping())
        self.clock.advance(event_log.GATHER)
        stopped = self.sink.stopService()
        self.assertNoResult(stopped)
        self.held[0].callback(None)
        self.successResultOf(stopped)

    def test_stopping_does_not_wait_for_a_store_that_is_unavailable(self) -> None:
        self.failure = Unavailable("no disk")
        self.handle(self.ping())
        self.clock.advance(event_log.GATHER)
        with capturedLogs():
            self.successResultOf(self.sink.stopService())

    def test_entries_wait_while_the_store_is_unavailable(self) -> None:
        self.failure = Unavailable("no disk")
        self.handle(self.ping())
        with capturedLogs() as logged:
            self.clock.advance(event_log.GATHER)
        self.assertEqual([line["log_level"] for line in logged], [LogLevel.error])
        self.failure = None
        self.clock.pump([1.0] * 11)
        self.assertEqual(len(self.written()), 1)

    def test_too_many_entries_are_lost_and_the_log_says_so_once(self) -> None:
        self.failure = Unavailable("no disk")
        with capturedLogs() as logged:
            self.handle(*(self.ping() for _ in range(event_log.MOST_WAITING + 100)))
        texts = [line["log_format"] for line in logged]
        self.assertEqual(sum("loses entries" in text for text in texts), 1)
        self.failure = None
        self.clock.pump([1.0] * 11)
        self.assertEqual(len(self.written()), event_log.MOST_WAITING)

    def test_a_bug_in_one_batch_does_not_stop_the_next(self) -> None:
        self.failure = ValueError("a bug")
        self.handle(self.ping(1))
        self.clock.advance(event_log.GATHER)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.failure = None
        self.handle(self.ping(2))
        self.clock.advance(event_log.GATHER)
        self.assertEqual([one.host for one in self.written()], ["site2.example"])

    def test_refusals_of_one_caller_are_counted_after_the_first(self) -> None:
        self.handle(*(self.refusal() for _ in range(event_log.REFUSALS_OF_SOURCE + 7)))
        denial = SubscriptionDenied(FEED, CALLBACK, "no", self.clock.wall_seconds(), CALLER)
        self.handle(denial, self.refusal("192.0.2.8"))
        self.clock.pump([10.0] * 7)
        entries = self.written()
        self.assertEqual(len(entries), event_log.REFUSALS_OF_SOURCE + 2)
        self.assertEqual(entries[-2].source, "192.0.2.8")
        self.assertEqual(dict(entries[-1].numbers), {"requests": 8})
        self.handle(self.refusal())  # in another minute
        self.clock.pump([10.0] * 7)
        self.assertEqual(self.written()[len(entries) :][0].reason, "no")

    def test_refusals_of_all_callers_are_limited_too(self) -> None:
        callers = [f"192.0.2.{n % 250}" for n in range(event_log.REFUSALS + 100)]
        self.handle(*map(self.refusal, callers))
        self.clock.pump([10.0] * 7)
        self.assertEqual(len(self.written()), event_log.REFUSALS + 1)
        self.assertEqual(dict(self.written()[-1].numbers), {"requests": 100})

    def test_old_entries_are_pruned_each_minute(self) -> None:
        old = PingAccepted(FEED, self.clock.wall_seconds() - 7 * 86_400)
        self.handle(old, self.ping(2))
        self.clock.pump([10.0] * 7)
        self.assertEqual([one.host for one in self.written()], ["site2.example"])

    def test_entries_stay_though_the_clock_is_ahead_for_a_moment(self) -> None:
        self.handle(self.ping())
        self.clock.pump([10.0] * 7)
        for by in (365 * 86_400, -365 * 86_400):
            self.clock.set_wall(by)
            self.clock.pump([10.0])
        self.assertEqual(len(self.written()), 1)

    def test_all_portions_are_pruned_in_one_minute(self) -> None:
        self.successResultOf(self.sink.stopService())
        self.sink = self.make(max_entries=1000)
        self.successResultOf(self.sink.stopService())
        self.sink.startService()
        for _ in range(12):
            self.handle(*(self.ping() for _ in range(event_log.BATCH)))
        self.assertEqual(len(self.written()), 6000)
        self.clock.pump([10.0] * 7)
        self.assertEqual(len(self.written()), 1000)

    def test_single_successes_are_handled_only_if_asked_for(self) -> None:
        bus = EventBus()
        bus.attach(self.sink)
        self.assertTrue(bus.wants(NotificationFailed))
        self.assertFalse(bus.wants(NotificationDelivered))
        bus = EventBus()
        bus.attach(self.make(successes=True))
        self.assertTrue(bus.wants(NotificationDelivered))
