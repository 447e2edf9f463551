"""Hosts that do not answer are left alone, and found again when they do."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.counters import Counters
from rsscloud_broker.model import HostState
from rsscloud_broker.sinks import hosts
from rsscloud_broker.sinks.hosts import FIRST_PAUSE, LONGEST_PAUSE, THRESHOLD, Hosts
from rsscloud_broker.testing.clock import About, Clock

NOW = About(1_790_683_200.0)
HOST = "reader.example"


class HostsTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock(NOW)
        self.told = 0
        self.hosts = self.make()

    def make(self) -> Hosts:
        self.counters = Counters()
        return Hosts(self.clock, self.counters, self._changed)

    def _changed(self) -> None:
        self.told += 1

    def call(self, times: int = 1, host: str = HOST) -> None:
        """Call a host that gives no answer."""
        for _ in range(times):
            self.assertIsNone(self.hosts.closed_until(host, self))
            self.hosts.failed(host)

    def pause(self, host: str = HOST, caller: object = "somebody") -> float:
        """Seconds for which a host is left alone; asks as a caller does."""
        until = self.hosts.closed_until(host, caller)
        return About(0.0 if until is None else until - self.clock.seconds())

    def open_hosts(self) -> float | None:
        return self.counters.registry.get_sample_value("rsscloud_open_hosts")


class BreakerTests(HostsTestCase):
    def test_left_alone_after_a_few_calls(self) -> None:
        self.call(THRESHOLD - 1)
        self.assertEqual((self.pause(), self.open_hosts()), (0.0, 0))
        self.call()
        self.assertEqual((self.pause(), self.open_hosts()), (FIRST_PAUSE, 1))
        self.assertEqual(self.pause("other.example"), 0.0)

    def test_calls_without_an_answer_count_in_a_row(self) -> None:
        for _ in range(3):
            self.call(THRESHOLD - 1)
            self.hosts.answered(HOST)
        self.assertEqual(self.pause(), 0.0)

    def test_one_may_try_when_the_pause_is_over(self) -> None:
        self.call(THRESHOLD)
        self.clock.advance(FIRST_PAUSE - 1)
        self.assertEqual(self.pause(), 1.0)
        self.clock.advance(1)
        self.assertEqual(self.pause(), 0.0)
        self.assertEqual(self.pause(), FIRST_PAUSE)

    def test_who_might_try_and_did_not_is_followed_by_another(self) -> None:
        self.call(THRESHOLD)
        for _ in range(3):
            self.clock.advance(FIRST_PAUSE)
            self.assertEqual([self.pause() for _ in range(3)], [0.0, FIRST_PAUSE, FIRST_PAUSE])

    def test_who_might_try_and_could_not_gives_it_back(self) -> None:
        self.call(THRESHOLD)
        self.clock.advance(FIRST_PAUSE)
        one, other = object(), object()
        self.assertEqual((self.pause(caller=one), self.pause(caller=other)), (0.0, FIRST_PAUSE))
        self.hosts.give_back(HOST, other)
        self.assertEqual(self.pause(caller=other), FIRST_PAUSE)
        self.hosts.give_back(HOST, one)
        self.assertEqual((self.pause(caller=other), self.pause(caller=one)), (0.0, FIRST_PAUSE))

    def test_nothing_is_given_back_after_a_call(self) -> None:
        self.call(THRESHOLD)
        self.clock.advance(FIRST_PAUSE)
        self.assertEqual(self.pause(caller=self), 0.0)
        self.hosts.failed(HOST)
        self.hosts.give_back(HOST, self)
        self.assertEqual(self.pause(), 2 * FIRST_PAUSE)
        self.hosts.answered(HOST)
        self.hosts.give_back(HOST, self)
        self.assertEqual((self.pause(), self.open_hosts()), (0.0, 0))

    def test_pause_doubles_up_to_an_hour(self) -> None:
        self.call(THRESHOLD)
        pauses = []
        for _ in range(100):
            pauses.append(self.pause())
            self.clock.advance(pauses[-1])
            self.call()
        self.assertEqual(pauses[:8], [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0])
        self.assertEqual(pauses[-1], LONGEST_PAUSE)

    def test_calls_that_were_under_way_when_it_was_found_dead_count_for_nothing(self) -> None:
        for _ in range(4 * THRESHOLD):
            self.hosts.failed(HOST)
        self.assertEqual(self.pause(), FIRST_PAUSE)

    def test_any_answer_ends_it(self) -> None:
        self.call(THRESHOLD)
        self.hosts.answered(HOST)
        self.assertEqual((self.pause(), self.open_hosts()), (0.0, 0))
        self.call(THRESHOLD - 1)
        self.assertEqual(self.pause(), 0.0)

    def test_whether_it_was_found_dead_meanwhile(self) -> None:
        before = self.clock.seconds()
        self.assertIsNone(self.hosts.closed_since(HOST, before))
        self.clock.advance(10)
        self.call(THRESHOLD)
        self.assertEqual(self.hosts.closed_since(HOST, before), About(10 + FIRST_PAUSE))
        self.clock.advance(FIRST_PAUSE)
        self.assertEqual(self.pause(), 0.0)  # who may try now is not held back
        self.assertIsNone(self.hosts.closed_since(HOST, self.clock.seconds()))
        self.hosts.answered(HOST)
        self.assertIsNone(self.hosts.closed_since(HOST, before))


class StoredTests(HostsTestCase):
    def test_only_changes_are_stored(self) -> None:
        self.call(THRESHOLD - 1)
        self.hosts.answered(HOST)
        self.hosts.answered("other.example")
        self.assertEqual((self.told, self.hosts.take_changes()), (0, []))
        self.call(THRESHOLD)
        self.assertEqual(self.told, 1)
        found_dead = HostState(HOST, THRESHOLD, NOW + FIRST_PAUSE)
        self.assertEqual(self.hosts.take_changes(), [found_dead])
        self.assertEqual(self.hosts.take_changes(), [])
        self.hosts.answered(HOST)
        self.assertEqual(self.told, 2)
        self.assertEqual(self.hosts.take_changes(), [HostState(HOST, 0, 0.0)])

    def test_last_of_several_changes_is_stored(self) -> None:
        self.call(THRESHOLD)
        self.hosts.answered(HOST)
        self.assertEqual(self.hosts.take_changes(), [HostState(HOST, 0, 0.0)])

    def test_restored(self) -> None:
        self.call(THRESHOLD)
        self.clock.advance(FIRST_PAUSE)
        self.call()
        (state,) = self.hosts.take_changes()
        self.hosts = self.make()
        self.hosts.restore([state])
        self.assertEqual((self.pause(), self.open_hosts()), (2 * FIRST_PAUSE, 1))
        self.clock.advance(2 * FIRST_PAUSE)
        self.call()
        self.assertEqual(self.pause(), 4 * FIRST_PAUSE)
        self.assertEqual(len(self.hosts.take_changes()), 1)

    def test_what_is_known_by_now_goes_before(self) -> None:
        self.call(THRESHOLD)
        self.hosts.restore([HostState(HOST, THRESHOLD + 3, NOW + 480)])
        self.assertEqual(self.pause(), FIRST_PAUSE)

    def test_host_that_nobody_called_for_long_is_forgotten(self) -> None:
        old = NOW - hosts.FORGOTTEN_AFTER + 0.5
        self.hosts.restore([HostState("a", 9, old), HostState("b", 9, old - 1)])
        self.assertEqual((self.open_hosts(), self.told), (1, 1))
        self.assertEqual(self.hosts.take_changes(), [HostState("b", 0, 0.0)])


class MemoryTests(HostsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.patch(hosts, "REMEMBERED", 10)

    def test_bounded(self) -> None:
        for number in range(30):
            self.call(host=str(number))
        self.assertEqual((len(self.hosts._states), self.told), (10, 0))

    def test_host_that_is_forgotten_is_not_stored_either(self) -> None:
        self.call(THRESHOLD, "first")
        self.hosts.take_changes()
        for number in range(10):
            self.call(host=str(number))
        self.assertEqual(self.pause("first"), 0.0)
        self.assertEqual(self.hosts.take_changes(), [HostState("first", 0, 0.0)])

    def test_bounded_when_restored(self) -> None:
        self.hosts.restore(HostState(str(number), 5, NOW + 60) for number in range(30))
        self.assertEqual(self.open_hosts(), 10)
        self.assertEqual(len(self.hosts.take_changes()), 20)
