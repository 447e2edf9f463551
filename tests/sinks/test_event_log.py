"""The event log sink: which entries it writes, and when; what it loses, and what it prunes."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, fail
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.core.bus import EventBus
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import (
    ContentRequested,
    Event,
    FanOutBegun,
    FanOutEnded,
    FilePublished,
    HostReachable,
    HostUnreachable,
    NotificationDelivered,
    NotificationFailed,
    PingAccepted,
    PingRefused,
    SubscriptionDenied,
    SubscriptionRemoved,
    SubscriptionRequested,
    SubscriptionsSwept,
    SubscriptionStored,
    TopicEnded,
    TopicFetched,
    TopicFetchFailed,
    TopicMoved,
    TopicRevived,
)
from rsscloud_broker.model import Callback, Lease, Subscription
from rsscloud_broker.model.log_entry import KINDS, LogEntry, LogFilter
from rsscloud_broker.model.work import MARKED, Swept, SweptSubscription
from rsscloud_broker.sinks.event_log import (
    BATCH,
    GATHER,
    MOST_WAITING,
    REFUSALS,
    REFUSALS_OF_SOURCE,
    EventLogOptions,
    EventLogSink,
)
from rsscloud_broker.sinks.log_of_events import MAX_REASON, MAX_URL, WANTS_NO_MORE, entries_of
from rsscloud_broker.testing import memory_store, sink_parts
from rsscloud_broker.testing.clock import About, Clock

NOON = About(1_790_683_200.0)
FEED = "http://feeds.example/rss.xml"
CALLBACK = Callback("http://reader.example:8000/notify?token=1", "http-post")
SUBSCRIPTION = Subscription(FEED, CALLBACK, Lease(1000.0, 90_000), id=1, attempts=2)
CALLER = "192.0.2.7"


def an_entry(kind: str, outcome: str, at: float = 5.0, **fields: Any) -> LogEntry:
    """An entry about the feed and its subscriber, unless the fields say otherwise."""
    about: dict[str, Any] = {"topic": FEED, "host": "feeds.example"}
    if kind in {"subscription", "notification"}:
        about |= {
            "host": "reader.example",
            "callback": CALLBACK.url,
            "protocol": CALLBACK.protocol,
        }
    return LogEntry(kind, outcome, at, **(about | fields))


class EntriesTests(SynchronousTestCase):
    """Which entries an event becomes."""

    def check(self, event: Event, *entries: LogEntry) -> None:
        found = entries_of(event, 5.0)
        self.assertEqual(found, list(entries))
        for entry in found:
            self.assertIn(entry.outcome, KINDS[entry.kind])

    def test_pings(self) -> None:
        self.check(
            PingAccepted("HTTP://Feeds.example/rss.xml", 5.0, CALLER),
            an_entry("ping", "accepted", source=CALLER),
        )
        self.check(PingAccepted(FEED, 5.0, repeated=True), an_entry("ping", "repeated"))
        self.check(
            PingRefused("ftp://x/\n", "no web address", 5.0, CALLER),
            an_entry(
                "ping",
                "refused",
                topic="ftp://x/",
                host="x",
                source=CALLER,
                reason="no web address",
            ),
        )

    def test_fetches(self) -> None:
        took = {"milliseconds": 1234}
        result: dict[str, Any] = {"reason": "200, 6 bytes", "numbers": took}
        self.check(
            TopicFetched(FEED, True, "200, 6 bytes", 1.2341, 5.0),
            an_entry("fetch", "changed", **result),
        )
        self.check(
            TopicFetched(FEED, False, "200, 6 bytes", 1.2341, 5.0),
            an_entry("fetch", "unchanged", **result),
        )
        self.check(
            TopicFetchFailed(FEED, "nobody is there", 1.2341, 5.0),
            an_entry("fetch", "failed", reason="nobody is there", numbers=took),
        )

    def test_topics(self) -> None:
        self.check(TopicEnded(FEED, "gone", 5.0), an_entry("topic", "ended", reason="gone"))
        self.check(TopicRevived(FEED, 5.0), an_entry("topic", "revived"))
        self.check(
            TopicMoved(FEED, "http://b/", 5.0), an_entry("topic", "moved", reason="http://b/")
        )

    def test_subscriptions(self) -> None:
        self.check(
            SubscriptionRequested(FEED, CALLBACK, 5.0, CALLER),
            an_entry("subscription", "requested", source=CALLER),
        )
        self.check(
            SubscriptionRequested(FEED, CALLBACK, 5.0, unsubscribe=True),
            an_entry("subscription", "requested", reason="to end it"),
        )
        self.check(
            SubscriptionDenied(FEED, CALLBACK, "it said no", 5.0, CALLER),
            an_entry("subscription", "denied", source=CALLER, reason="it said no"),
        )
        lease = {"lease_seconds": 90_000}
        self.check(
            SubscriptionStored(SUBSCRIPTION, CALLER),
            an_entry("subscription", "verified", 1000.0, source=CALLER, numbers=lease),
        )
        self.check(
            SubscriptionStored(evolve(SUBSCRIPTION, renewed=True)),
            an_entry("subscription", "renewed", 1000.0, numbers=lease),
        )
        self.check(
            SubscriptionRemoved(FEED, CALLBACK, CALLER),
            an_entry("subscription", "unsubscribed", source=CALLER),
        )
        self.check(
            SubscriptionRemoved(FEED, CALLBACK, account="alice"),
            an_entry(
                "subscription", "dropped", account="alice", reason="an administrator removed it"
            ),
        )

    def test_sweeps_name_some_and_count_the_others(self) -> None:
        named = (
            SweptSubscription(FEED, CALLBACK, "status 500"),
            SweptSubscription(FEED, CALLBACK),
        )
        why = "too many notifications failed in a row: status 500"
        dropped = an_entry("subscription", "dropped", reason=why)
        expired = an_entry("subscription", "expired")
        self.check(SubscriptionsSwept(Swept(1, 1, 7, named), 5.0), dropped, expired)
        self.check(
            SubscriptionsSwept(Swept(expired=3, failing=1, named=named), 5.0),
            dropped,
            expired,
            LogEntry("subscription", "expired", 5.0, numbers={"subscriptions": 2}),
        )
        self.check(
            SubscriptionsSwept(
                Swept(failing=1, named=(SweptSubscription(FEED, CALLBACK, MARKED),)), 5.0
            ),
            an_entry("subscription", "dropped", reason="it was marked to be removed"),
        )
        self.check(SubscriptionsSwept(Swept(topics=7), 5.0))

    def test_fan_outs(self) -> None:
        self.check(FanOutBegun(FEED, 5.0), an_entry("fan-out", "begun"))
        counts: dict[str, Any] = {"delivered": 3, "failed": 2, "waiting": 1}
        self.check(
            FanOutEnded(FEED, **counts, first=0.12345, last=2.5, at=5.0),
            an_entry(
                "fan-out",
                "ended",
                numbers=counts | {"last_seconds": 2.5, "first_seconds": 0.123},
            ),
        )
        self.check(
            FanOutEnded(FEED, **counts, first=None, last=2.5, at=5.0),
            an_entry("fan-out", "ended", numbers=counts | {"last_seconds": 2.5}),
        )

    def test_notifications(self) -> None:
        tried = {"attempts": 3}
        self.check(
            NotificationDelivered(SUBSCRIPTION, 5.0),
            an_entry("notification", "delivered", numbers=tried),
        )
        self.check(
            NotificationFailed(SUBSCRIPTION, "status 500", 5.0, retry_at=35.0),
            an_entry(
                "notification", "failed", reason="status 500", numbers=tried | {"retry_at": 35.0}
            ),
        )
        self.check(
            NotificationFailed(SUBSCRIPTION, "status 500", 5.0),
            an_entry("notification", "given up", reason="status 500", numbers=tried),
        )
        self.check(
            NotificationFailed(SUBSCRIPTION, "status 410", 5.0, ends=True),
            an_entry("notification", "given up", reason="status 410", numbers=tried),
            an_entry("subscription", "dropped", reason=WANTS_NO_MORE),
        )
        self.check(
            NotificationFailed(evolve(SUBSCRIPTION, ended="gone"), "gone", 5.0, ends=True),
            an_entry("subscription", "dropped", reason="the topic ended: gone"),
        )

    def test_hosts(self) -> None:
        about: dict[str, Any] = {"topic": "", "host": "reader.example"}
        numbers = {"failures": 5, "retry_at": 65.0}
        self.check(
            HostUnreachable("reader.example", None, "it timed out", 5, 65.0, 5.0),
            an_entry("host", "unreachable", **about, reason="it timed out", numbers=numbers),
        )
        self.check(
            HostUnreachable("reader.example", 8000, "refused", 5, 65.0, 5.0),
            an_entry(
                "host", "unreachable", **about, reason="refused", numbers=numbers | {"port": 8000}
            ),
        )
        self.check(
            HostReachable("reader.example", 8000, 5.0),
            an_entry("host", "reachable", **about, numbers={"port": 8000}),
        )

    def test_other_events_become_none(self) -> None:
        self.check(ContentRequested(FEED))
        self.check(FilePublished("/changes.xml", 5.0))

    def test_long_and_dirty_texts_are_cut_and_cleaned(self) -> None:
        url = f"http://{'x' * 300}/{'y' * 3000}"
        (entry,) = entries_of(PingRefused(url, "a\x00b\ud800\n" * 1000, 5.0), 5.0)
        self.assertEqual((entry.topic, len(entry.host)), (url[:MAX_URL], 255))
        self.assertEqual(len(entry.reason), MAX_REASON)
        self.assertTrue(entry.reason.startswith("ab ab"), entry.reason[:20])
        (entry,) = entries_of(PingRefused(FEED, f"{FEED}: it is private", 5.0), 5.0)
        self.assertEqual(entry.reason, "it is private")


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

    def make(self, **options: object) -> EventLogSink:
        options_ = EventLogOptions(**options)  # type: ignore[arg-type] # those of the options
        sink = EventLogSink(options_, sink_parts(store=self.store, clock=self.clock))
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
        self.clock.advance(GATHER)
        self.assertEqual(self.batches, [2])
        self.assertEqual([one.host for one in self.written()], ["site1.example", "site2.example"])

    def test_a_full_batch_is_written_at_once(self) -> None:
        self.handle(*(self.ping() for _ in range(BATCH)))
        self.assertEqual(self.batches, [BATCH])

    def test_while_a_batch_is_written_others_wait(self) -> None:
        self.held = []
        self.handle(*(self.ping() for _ in range(BATCH + 10)))
        self.clock.advance(GATHER)
        self.assertEqual(self.batches, [BATCH])
        self.held[0].callback(None)
        self.assertEqual(self.batches, [BATCH])
        self.clock.advance(GATHER)
        self.assertEqual(self.batches, [BATCH, 10])
        self.held[1].callback(None)
        self.assertEqual(len(self.written()), BATCH + 10)

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
        self.clock.advance(GATHER)
        stopped = self.sink.stopService()
        self.assertNoResult(stopped)
        self.held[0].callback(None)
        self.successResultOf(stopped)

    def test_stopping_does_not_wait_for_a_store_that_is_unavailable(self) -> None:
        self.failure = Unavailable("no disk")
        self.handle(self.ping())
        self.clock.advance(GATHER)
        with capturedLogs():
            self.successResultOf(self.sink.stopService())

    def test_entries_wait_while_the_store_is_unavailable(self) -> None:
        self.failure = Unavailable("no disk")
        self.handle(self.ping())
        with capturedLogs() as logged:
            self.clock.advance(GATHER)
        self.assertEqual([line["log_level"] for line in logged], [LogLevel.error])
        self.failure = None
        self.clock.pump([1.0] * 11)
        self.assertEqual(len(self.written()), 1)

    def test_too_many_entries_are_lost_and_the_log_says_so_once(self) -> None:
        self.failure = Unavailable("no disk")
        with capturedLogs() as logged:
            self.handle(*(self.ping() for _ in range(MOST_WAITING + 100)))
        texts = [line["log_format"] for line in logged]
        self.assertEqual(sum("loses entries" in text for text in texts), 1)
        self.failure = None
        self.clock.pump([1.0] * 11)
        self.assertEqual(len(self.written()), MOST_WAITING)

    def test_a_bug_in_one_batch_does_not_stop_the_next(self) -> None:
        self.failure = ValueError("a bug")
        self.handle(self.ping(1))
        self.clock.advance(GATHER)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.failure = None
        self.handle(self.ping(2))
        self.clock.advance(GATHER)
        self.assertEqual([one.host for one in self.written()], ["site2.example"])

    def test_refusals_of_one_caller_are_counted_after_the_first(self) -> None:
        self.handle(*(self.refusal() for _ in range(REFUSALS_OF_SOURCE + 7)))
        denial = SubscriptionDenied(FEED, CALLBACK, "no", self.clock.wall_seconds(), CALLER)
        self.handle(denial, self.refusal("192.0.2.8"))
        self.clock.pump([10.0] * 7)
        entries = self.written()
        self.assertEqual(len(entries), REFUSALS_OF_SOURCE + 2)
        self.assertEqual(entries[-2].source, "192.0.2.8")
        self.assertEqual(dict(entries[-1].numbers), {"requests": 8})
        self.handle(self.refusal())  # in another minute
        self.clock.pump([10.0] * 7)
        self.assertEqual(self.written()[len(entries) :][0].reason, "no")

    def test_refusals_of_all_callers_are_limited_too(self) -> None:
        callers = [f"192.0.2.{n % 250}" for n in range(REFUSALS + 100)]
        self.handle(*map(self.refusal, callers))
        self.clock.pump([10.0] * 7)
        self.assertEqual(len(self.written()), REFUSALS + 1)
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
            self.handle(*(self.ping() for _ in range(BATCH)))
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
