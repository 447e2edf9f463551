"""Tests the circuit breakers of hosts and ports."""

from __future__ import annotations

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.counters import Counters
from rsscloud_broker.delivery import breakers
from rsscloud_broker.delivery.breakers import FIRST_PAUSE, LONGEST_PAUSE, THRESHOLD, Breakers
from rsscloud_broker.model import Callback, Outcome
from rsscloud_broker.model.work import HostState
from rsscloud_broker.testing.clock import About, Clock

NOW = About(1_790_683_200.0)
HOST = "reader.example"
TIMED_OUT = Outcome(False, "no whole answer within 15 seconds", answered=False)
INTERRUPTED = Outcome(False, "the process has ended", answered=False, interrupted=True)
REFUSED = Outcome(False, "connection refused", answered=False, port_only=True)


#: The host, as it is stored when it was found dead.
FOUND_DEAD = HostState(HOST, THRESHOLD, NOW + FIRST_PAUSE)


def callback(name: str = HOST) -> Callback:
    """A callback at a host, or at a port of one."""
    return Callback(f"http://{name}/notify", "http-post")


class BreakersTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock(NOW)
        self.told = 0
        self.closed: list[tuple[str, str]] = []
        self.breakers = self.make()

    def make(self) -> Breakers:
        self.counters = Counters()
        return Breakers(self.clock, self.counters, self._changed, self._closed)

    def _changed(self) -> None:
        self.told += 1

    def _closed(self, host: str, origin: str) -> None:
        self.closed.append((host, origin))

    def call(self, times: int = 1, name: str = HOST, outcome: Outcome = TIMED_OUT) -> None:
        """Call a callback that gives no answer."""
        for _ in range(times):
            self.assertIsNone(self.breakers.ask(callback(name), self))
            self.assertIsNone(self.breakers.stops(callback(name), self))
            self.breakers.failed(callback(name), outcome)

    def pause(self, name: str = HOST, caller: object = "somebody") -> float:
        """The seconds until a callback may be called, as a new caller learns them."""
        until = self.breakers.ask(callback(name), caller)
        return About(0.0 if until is None else until - self.clock.seconds())

    def open_hosts(self) -> float | None:
        return self.counters.registry.get_sample_value("rsscloud_open_breakers")


class BreakerTests(BreakersTestCase):
    def test_left_alone_after_a_few_calls_in_a_row(self) -> None:
        for _ in range(3):
            self.call(THRESHOLD - 1)
            self.assertEqual((self.pause(), self.open_hosts()), (0.0, 0))
            self.breakers.answered(callback())
        self.call(THRESHOLD)
        self.assertEqual((self.pause(), self.open_hosts()), (FIRST_PAUSE, 1))
        self.assertEqual(self.pause("other.example"), 0.0)
        self.breakers.answered(callback())
        self.call(THRESHOLD - 1)
        self.assertEqual((self.pause(), self.open_hosts()), (0.0, 0))

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
        self.breakers.give_back(callback(), other)
        self.assertEqual(self.pause(caller=other), FIRST_PAUSE)
        self.breakers.give_back(callback(), one)
        self.assertEqual((self.pause(caller=other), self.pause(caller=one)), (0.0, FIRST_PAUSE))

    def test_nothing_is_given_back_after_a_call(self) -> None:
        self.call(THRESHOLD)
        self.clock.advance(FIRST_PAUSE)
        self.assertEqual(self.pause(caller=self), 0.0)
        self.breakers.failed(callback(), TIMED_OUT)
        self.breakers.give_back(callback(), self)
        self.assertEqual(self.pause(), 2 * FIRST_PAUSE)
        self.breakers.answered(callback())
        self.breakers.give_back(callback(), self)
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
            self.breakers.failed(callback(), TIMED_OUT)
        self.assertEqual(self.pause(), FIRST_PAUSE)

    def test_one_that_opened_meanwhile_stops_whoever_was_let_through_before(self) -> None:
        early = object()
        self.assertIsNone(self.breakers.ask(callback(), early))
        self.call(THRESHOLD)
        until = self.breakers.stops(callback(), early)
        self.assertEqual(until, About(FIRST_PAUSE))
        self.clock.advance(FIRST_PAUSE)
        self.assertIsNotNone(self.breakers.stops(callback(), early))
        self.breakers.answered(callback())
        self.assertIsNone(self.breakers.stops(callback(), early))

    def test_the_probe_gets_through_however_long_it_waited_for_its_turn(self) -> None:
        self.call(THRESHOLD)
        for _ in range(3):
            self.clock.advance(LONGEST_PAUSE)
            self.assertEqual(self.pause(caller=self), 0.0)
            self.clock.advance(10.0)
            self.assertIsNone(self.breakers.stops(callback(), self))
            self.breakers.failed(callback(), TIMED_OUT)


class PortTests(BreakersTestCase):
    def test_an_interrupted_call_says_nothing(self) -> None:
        self.call(2 * THRESHOLD, outcome=INTERRUPTED)
        self.assertEqual((self.pause(), self.open_hosts()), (0.0, 0))

    def test_a_refused_call_says_nothing_of_other_ports(self) -> None:
        self.call(THRESHOLD, f"{HOST}:8000", REFUSED)
        self.assertEqual(self.pause(f"{HOST}:8000"), FIRST_PAUSE)
        for name in (HOST, f"{HOST}:80", f"{HOST}:8001"):
            self.assertEqual(self.pause(name), 0.0, name)

    def test_a_call_that_times_out_says_something_of_all_ports(self) -> None:
        self.call(THRESHOLD, f"{HOST}:8000", TIMED_OUT)
        for name in (HOST, f"{HOST}:8000", f"{HOST}:8001"):
            self.assertEqual(self.pause(name), FIRST_PAUSE, name)

    def test_a_host_that_refuses_is_there(self) -> None:
        self.call(THRESHOLD)
        self.clock.advance(FIRST_PAUSE)
        self.call(1, f"{HOST}:8000", REFUSED)
        self.assertEqual((self.pause(), self.closed), (0.0, [(HOST, "")]))

    def test_the_default_ports(self) -> None:
        for url, origin in (
            ("http://a.example/", "a.example:80"),
            ("HTTPS://A.example", "a.example:443"),
            ("http://a.example:08000/x:99/", "a.example:8000"),
            ("http://[::1]/:7", "::1:80"),
            ("http://[::1]:5337/", "::1:5337"),
        ):
            self.assertEqual(Callback(url, "http-post").origin, origin)

    def test_both_may_be_open(self) -> None:
        name = f"{HOST}:8000"
        self.call(THRESHOLD, name, REFUSED)
        self.call(THRESHOLD, f"{HOST}:9000")
        self.assertEqual(self.open_hosts(), 2)
        self.clock.advance(FIRST_PAUSE)
        self.assertEqual(self.pause(name, self), 0.0)
        self.assertIsNone(self.breakers.stops(callback(name), self))
        self.breakers.answered(callback(name))
        self.assertEqual((self.open_hosts(), sorted(self.closed)), (0, [(HOST, ""), (HOST, name)]))

    def test_opening_and_closing_are_a_line_each(self) -> None:
        with capturedLogs() as events:
            self.call(THRESHOLD, f"{HOST}:8000", REFUSED)
            self.breakers.answered(callback(f"{HOST}:8000"))
            self.breakers.answered(callback(f"{HOST}:8000"))
        self.assertEqual(
            [formatEvent(event) for event in events],
            [
                "Stopped calling reader.example:8000 after 5 failures in a row (connection "
                "refused); next try at 12:01:00 UTC.",
                "reader.example:8000 answers again: it is called as before.",
            ],
        )


class StoredTests(BreakersTestCase):
    def test_only_changes_are_stored(self) -> None:
        self.call(THRESHOLD - 1)
        self.breakers.answered(callback())
        self.breakers.answered(callback("other.example"))
        self.assertEqual((self.told, self.breakers.take_changes()), (0, []))
        self.call(THRESHOLD)
        self.assertEqual(self.told, 1)
        self.assertEqual(self.breakers.take_changes(), [FOUND_DEAD])
        self.assertEqual(self.breakers.take_changes(), [])
        self.breakers.answered(callback())
        self.assertEqual(self.told, 2)
        self.assertEqual(self.breakers.take_changes(), [HostState(HOST, 0, 0.0)])
        self.call(THRESHOLD)
        self.breakers.answered(callback())
        self.assertEqual(self.breakers.take_changes(), [HostState(HOST, 0, 0.0)])

    def test_restored(self) -> None:
        self.call(THRESHOLD)
        self.clock.advance(FIRST_PAUSE)
        self.call()
        (state,) = self.breakers.take_changes()
        self.breakers = self.make()
        self.breakers.restore([state])
        self.assertEqual((self.pause(), self.open_hosts()), (2 * FIRST_PAUSE, 1))
        self.clock.advance(2 * FIRST_PAUSE)
        self.call()
        self.assertEqual(self.pause(), 4 * FIRST_PAUSE)
        self.assertEqual(len(self.breakers.take_changes()), 1)

    def test_state_from_before_the_clock_was_set_back_lasts_no_longer_than_others(self) -> None:
        self.breakers.restore([HostState(HOST, THRESHOLD, NOW + 86_400.0)])
        self.assertEqual(self.pause(), LONGEST_PAUSE)

    def test_what_other_nodes_have_stored_is_followed(self) -> None:
        """Though the host has failed here only a few times."""
        self.call(THRESHOLD - 1)
        self.assertFalse(self.breakers.follow([FOUND_DEAD]))
        self.assertEqual(self.open_hosts(), 1)
        self.assertTrue(self.breakers.follow([]))
        self.assertEqual((self.open_hosts(), self.told, self.pause()), (0, 0, 0.0))

    def test_what_is_not_stored_yet_stays_open(self) -> None:
        self.call(THRESHOLD)
        changes = self.breakers.take_changes()
        self.assertFalse(self.breakers.follow([]))
        self.breakers.saved(changes)
        self.assertTrue(self.breakers.follow([]))

    def test_host_that_was_read_before_its_change_was_stored(self) -> None:
        """The store is read, and meanwhile this process learns more and stores it."""
        self.breakers.follow([FOUND_DEAD])
        own = self.breakers.own_changes()
        self.breakers.answered(callback())
        self.breakers.saved(self.breakers.take_changes())
        self.breakers.follow([FOUND_DEAD], own)
        self.assertEqual(self.open_hosts(), 0)
        own = self.breakers.own_changes()
        self.call(THRESHOLD)
        self.breakers.saved(self.breakers.take_changes())
        self.assertFalse(self.breakers.follow([], own))
        self.assertEqual(self.open_hosts(), 1)

    def test_host_whose_change_is_not_stored_yet(self) -> None:
        self.breakers.follow([FOUND_DEAD])
        self.breakers.answered(callback())
        self.breakers.follow([FOUND_DEAD], self.breakers.own_changes())
        self.assertEqual(self.open_hosts(), 0, "it waits to be stored")
        changes = self.breakers.take_changes()
        self.breakers.follow([FOUND_DEAD], self.breakers.own_changes())
        self.assertEqual(self.open_hosts(), 0, "it is being stored")
        self.breakers.not_saved(changes)
        self.breakers.follow([FOUND_DEAD], self.breakers.own_changes())
        self.assertEqual((self.open_hosts(), self.breakers.take_changes()), (0, changes))
        self.breakers.saved(changes)
        self.assertEqual(list(self.breakers.own_changes()), [])

    def test_what_is_known_by_now_goes_before(self) -> None:
        self.call(THRESHOLD)
        self.breakers.restore([HostState(HOST, THRESHOLD + 3, NOW + 480)])
        self.assertEqual(self.pause(), FIRST_PAUSE)

    def test_host_that_nobody_called_for_long_is_forgotten(self) -> None:
        old = NOW - 86_400.0 + 0.5
        self.breakers.restore([HostState("a", 9, old), HostState("b", 9, old - 1)])
        self.assertEqual((self.open_hosts(), self.told), (1, 1))
        self.assertEqual(self.breakers.take_changes(), [HostState("b", 0, 0.0)])


class FailingTests(BreakersTestCase):
    """A notification asks for a host only if it is among ``failing``."""

    def test_hosts_that_have_breakers_of_their_own_or_of_ports(self) -> None:
        for name in ("a.example:1", "a.example:2", "[2001:db8::1]:8000"):
            self.call(name=name, outcome=REFUSED)
        self.call(2, name="b.example:3")
        hosts = {"a.example", "b.example", "2001:db8::1"}
        self.assertEqual(hosts & {*self.breakers.failing}, hosts)
        self.breakers.answered(callback("a.example:1"))
        self.assertIn("a.example", self.breakers.failing)
        for name in ("a.example:2", "b.example"):
            self.breakers.answered(callback(name))
        self.assertEqual(hosts & {*self.breakers.failing}, {"2001:db8::1"})
        self.breakers.answered(callback("[2001:db8::1]:8000"))
        self.assertEqual(self.breakers.failing, {})

    def test_restored_closed_elsewhere_and_freed(self) -> None:
        self.breakers.restore([HostState(name, 9, NOW + 60) for name in ("a:1", "b", "c:2", "c")])
        self.assertLessEqual({"a", "b", "c"}, {*self.breakers.failing})
        self.breakers.follow([HostState("b", 9, NOW + 60), HostState("c", 9, NOW + 60)])
        self.assertEqual({"a", "b", "c"} & {*self.breakers.failing}, {"b", "c"})
        for name in "bc":
            self.breakers.free(name)
        self.assertEqual(self.breakers.failing, {})


class MemoryTests(BreakersTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.patch(breakers, "REMEMBERED", 10)

    def test_bounded(self) -> None:
        for number in range(30):
            self.call(name=str(number))
        self.assertEqual((len(self.breakers._breakers), self.told), (10, 0))
        self.assertEqual(self.breakers.failing.total(), 20)  # a host counts twice for each

    def test_names_of_changes_are_kept_only_until_the_store_is_read(self) -> None:
        for number in range(30):
            self.call(THRESHOLD, str(number))
        self.breakers.saved(self.breakers.take_changes())
        self.assertFalse(self.breakers._own)
        self.breakers.follow([], self.breakers.own_changes())
        self.assertFalse(self.breakers._own)

    def test_host_that_is_forgotten_is_not_stored_either(self) -> None:
        self.call(THRESHOLD, "first")
        self.breakers.take_changes()
        for number in range(10):
            self.call(name=str(number))
        self.assertEqual(self.pause("first"), 0.0)
        self.assertEqual(self.breakers.take_changes(), [HostState("first", 0, 0.0)])

    def test_bounded_when_restored(self) -> None:
        self.breakers.restore(HostState(str(number), 5, NOW + 60) for number in range(30))
        self.assertEqual(self.open_hosts(), 10)
        self.assertEqual(len(self.breakers.take_changes()), 20)
