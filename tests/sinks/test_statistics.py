"""Tests the statistics: what the counters say is stored each minute, and nothing twice."""

from __future__ import annotations

from twisted.internet.defer import fail
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.sinks.statistics import StatisticsOptions, StatisticsSink
from rsscloud_broker.testing.clock import Clock
from tests.sinks.pings import HOUR, NOON, PingStore, make_parts


class StatisticsSinkTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock(NOON + 30)
        self.pings = PingStore(self)
        self.store = self.pings.store
        self.parts = make_parts(self.pings, self.clock, FilePath(self.mktemp()))
        self.counters = self.parts.counters

    def start(self, options: StatisticsOptions | None = None) -> StatisticsSink:
        sink = StatisticsSink(options or StatisticsOptions(), self.parts)
        sink.startService()
        return sink

    def stored(self, step: int = 60) -> dict[str, dict[int, int]]:
        """The numbers that are stored, by name and by minutes (or steps) after noon."""
        found = self.successResultOf(self.store.statistics(NOON, NOON + 2 * HOUR, step))
        return {
            name: {(at - NOON) // step: value for at, value in numbers.items()}
            for name, numbers in found.items()
            if not name.startswith("number_of_")
        }

    def busiest(self, hour: int) -> list[str]:
        """The most pinged topics of an hour, each of which was pinged once."""
        found = self.successResultOf(self.store.busy_topics(hour, hour + HOUR, 10))
        self.assertEqual({one.pings for one in found}, {1})
        return [one.url for one in found]

    def test_counters_by_name(self) -> None:
        self.start()
        self.counters.pings.inc(3)
        self.counters.fetches.labels("changed").inc()
        self.counters.deliveries.labels("websub", "failed").inc(2)
        self.counters.first_latency.observe(0.3)
        self.counters.first_latency.observe(1000)
        self.clock.advance(30)
        expected = {
            "pings": {0: 3},
            "fetches.changed": {0: 1},
            "deliveries.websub.failed": {0: 2},
            "first_latency.0.5": {0: 1},
            "first_latency.+Inf": {0: 1},
        }
        self.assertEqual(self.stored(), expected)

    def test_only_what_is_new_is_added(self) -> None:
        self.start()
        for _ in range(3):
            self.counters.pings.inc()
            self.clock.advance(60)
        self.assertEqual(self.stored(), {"pings": {0: 1, 1: 1, 2: 1}})
        self.assertEqual(self.stored(3600), {"pings": {0: 3}})

    def test_a_minute_in_which_nothing_happens_stores_nothing(self) -> None:
        self.start()
        self.clock.pump([60.0] * 5)
        self.assertEqual(self.stored(), {})

    def test_a_stop_stores_the_rest_of_the_minute(self) -> None:
        sink = self.start()
        self.counters.pings.inc()
        self.clock.advance(60)
        self.counters.pings.inc(5)
        self.successResultOf(sink.stopService())
        self.assertEqual(self.stored(), {"pings": {0: 1, 1: 5}})

    def test_nodes_and_restarts_count_together(self) -> None:
        self.start()
        other = make_parts(self.pings, self.clock, FilePath(self.mktemp()))
        StatisticsSink(StatisticsOptions(), other).startService()
        self.counters.pings.inc(2)
        other.counters.pings.inc(1)
        self.clock.advance(30)
        self.assertEqual(self.stored(), {"pings": {0: 3}})

    def test_what_could_not_be_stored_is_stored_later(self) -> None:
        self.start()
        self.counters.pings.inc()
        add = self.store.add_statistics
        self.patch(self.store, "add_statistics", lambda *_: fail(Unavailable("the disk is full")))
        self.clock.advance(60)
        self.patch(self.store, "add_statistics", add)
        self.assertEqual(self.stored(), {})
        self.counters.pings.inc()
        self.clock.advance(60)
        self.assertEqual(sum(self.stored()["pings"].values()), 2)

    def test_topics_and_subscriptions_are_counted_every_ten_minutes(self) -> None:
        measured = []
        measure = self.store.measure

        def watched() -> object:
            measured.append(self.clock.wall_seconds())
            return measure()

        self.patch(self.store, "measure", watched)
        self.start()
        self.clock.pump([60.0] * 25)
        self.assertEqual([round(at - NOON) // 60 for at in measured], [0, 10, 20])
        found = self.successResultOf(self.store.statistics(NOON, NOON + HOUR, 60))
        self.assertEqual(len(found["number_of_topics"]), 3)

    def test_the_most_pinged_topics_of_the_last_hour(self) -> None:
        self.pings.add(NOON - 100, NOON - 50, NOON + 40)
        self.start()
        self.clock.advance(60)
        self.assertEqual(
            self.busiest(NOON - HOUR), ["https://example.org/1", "https://example.org/2"]
        )
        self.clock.pump([60.0] * 60)
        self.assertEqual(self.busiest(NOON), ["https://example.org/3"])

    def test_the_most_pinged_topics_of_the_hour_in_which_the_broker_stopped(self) -> None:
        """It starts again after the end of the next hour."""
        sink = self.start()
        self.clock.advance(60)
        self.pings.add(NOON + 80)
        self.successResultOf(sink.stopService())
        self.clock.advance(3 * HOUR)
        self.start()
        self.assertEqual(self.busiest(NOON), ["https://example.org/1"])

    def test_old_numbers_are_removed(self) -> None:
        self.successResultOf(self.store.add_statistics(NOON - 49 * HOUR, {"pings": 1}, {}))
        self.start(StatisticsOptions(days=2))
        self.clock.advance(60)
        found = self.successResultOf(self.store.statistics(NOON - 50 * HOUR, NOON, HOUR))
        self.assertEqual(found, {})
