"""Measurements of the process, its event loop and the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.runtime.measuring import (
    LOOP_PERIOD,
    SIZES_PERIOD,
    LoopDelay,
    add_process_metrics,
    database_sizes,
)
from rsscloud_broker.testing.clock import Clock


class MeasuringTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.counters = Counters()

    def value(self, name: str, **labels: str) -> float | None:
        return self.counters.registry.get_sample_value(name, labels)


class LoopDelayTests(MeasuringTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.delay = LoopDelay(self.clock, self.counters)
        self.delay.startService()

    def test_a_loop_in_time(self) -> None:
        for _ in range(4):
            self.clock.advance(LOOP_PERIOD)
        self.assertEqual(self.value("rsscloud_event_loop_delay_seconds_count"), 4.0)
        self.assertLess(self.delay.latest, 0.01)

    def test_a_loop_that_was_blocked(self) -> None:
        self.clock.advance(LOOP_PERIOD + 3.0)
        self.assertAlmostEqual(self.delay.latest, 3.0, places=2)
        name = "rsscloud_event_loop_delay_seconds_bucket"
        self.assertEqual([self.value(name, le=le) for le in ("2.5", "5.0")], [0.0, 1.0])
        self.clock.advance(LOOP_PERIOD)
        self.assertLess(self.delay.latest, 0.01)

    def test_it_ends(self) -> None:
        self.delay.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ProcessTests(MeasuringTestCase):
    def test_the_process_and_versions(self) -> None:
        add_process_metrics(self.counters, "1.2", "sqlite")
        memory = self.value("process_resident_memory_bytes")
        assert memory is not None
        self.assertGreater(memory, 1e6)
        names = {metric.name for metric in self.counters.registry.collect()}
        self.assertLessEqual({"python_info", "python_gc_collections", "rsscloud_build"}, names)
        (build,) = (m for m in self.counters.registry.collect() if m.name == "rsscloud_build")
        labels = build.samples[0].labels
        self.assertEqual((labels["version"], labels["database"]), ("1.2", "sqlite"))


class SizesTests(MeasuringTestCase):
    def test_sizes_each_minute(self) -> None:
        answers: list[Deferred[Mapping[str, int]]] = [
            succeed({"main": 4096, "wal": 10}),
            fail(Unavailable("it is locked")),
            succeed({"main": 8192, "wal": 0}),
        ]

        class Store:
            def sizes(self) -> Deferred[Mapping[str, int]]:
                return answers.pop(0)

            def waiting_checks(self) -> Deferred[Mapping[str, int]]:
                return succeed({"ready": len(answers), "put_off": 7})

        store: Any = Store()
        service = database_sizes(store, self.clock, self.counters)
        service.startService()
        self.addCleanup(service.stopService)
        shown, waiting = [], []
        for minute in range(3):
            if minute:
                self.clock.pump([1.0] * int(SIZES_PERIOD))
            name = "rsscloud_database_size_bytes"
            shown.append([self.value(name, part=part) for part in ("main", "wal")])
            waiting.append(self.value("rsscloud_stored_fetches", state="ready"))
        self.assertEqual(shown, [[4096, 10], [4096, 10], [8192, 0]])
        self.assertEqual(waiting, [2, 2, 0])
        self.assertEqual(self.value("rsscloud_stored_fetches", state="put_off"), 7)
