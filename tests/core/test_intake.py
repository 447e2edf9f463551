"""Pings that were made at other brokers come in as if they had been made here, each once."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve
from twisted.internet.defer import Deferred

from rsscloud_broker.config import Topics
from rsscloud_broker.core import Access, PingIntake
from rsscloud_broker.core.intake import PORTION
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import PingAccepted, PingReceived, PingsTakenIn, TopicChanged
from rsscloud_broker.interfaces import Intake
from rsscloud_broker.model import Ping
from tests.core.house import FEED, NOW, CoreTestCase, FakeDiskSpace

HERE, THERE = "http://here.example", "http://there.example"


def a_ping(number: int = 0, age: float = 0.0, origin: str = THERE) -> Ping:
    url = f"http://blog{number}.example/"
    return Ping(f"Blog {number}", url, float(NOW) - age, origin=origin)


class IntakeTests(CoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.space = FakeDiskSpace()
        self.intake = self.make(Topics())

    def make(self, topics: Topics) -> PingIntake:
        access = Access(topics, self.blocks, HERE)
        return PingIntake(
            self.store, self.detector, self.bus, self.clock, access, self.counters, self.space
        )

    def take_in(self, pings: Sequence[Ping], precision: float = 1.0) -> Intake:
        taking = Deferred.fromCoroutine(self.intake.take_in(pings, precision))
        while not taking.called:
            self.clock.advance(0)
        return self.result(taking)

    def test_keeps_the_time_and_the_origin(self) -> None:
        ping = a_ping(age=3600)
        self.assertEqual(self.take_in([ping]), Intake(taken=1))
        (stored,) = self.pings()
        self.assertEqual(stored, evolve(ping, id=stored.id))
        received, taken = self.bus.events
        self.assertEqual(received, PingReceived(stored))
        self.assertEqual(taken, PingsTakenIn(NOW - 3600))
        (accepted,) = self.bus.logged
        assert isinstance(accepted, PingAccepted)
        self.assertEqual((accepted.url, accepted.origin), (ping.url, THERE))

    def test_each_is_taken_in_once(self) -> None:
        self.assertEqual(self.take_in([a_ping(), a_ping(age=0.5)]), Intake(taken=1, known=1))
        self.assertEqual(self.take_in([a_ping(age=30)], 61.0), Intake(known=1))
        self.assertEqual(self.take_in([a_ping(age=30)], 1.0), Intake(taken=1))

    def test_ping_that_was_made_here_is_known(self) -> None:
        made = evolve(a_ping(), origin="", received_at=float(NOW) + 0.4)
        self.result(self.store.add_ping(made, 60))
        self.assertEqual(self.take_in([a_ping()]), Intake(known=1))

    def test_ping_that_has_passed_here_is_known(self) -> None:
        self.assertEqual(self.take_in([a_ping(origin=f"{HERE} {THERE}")]), Intake(known=1))
        self.assertEqual(self.pings(), [])

    def test_what_the_operator_does_not_allow_is_left_out(self) -> None:
        self.intake = self.make(Topics(publish=("http://blog1.example/*",)))
        found = self.take_in([a_ping(1), a_ping(2), evolve(a_ping(1), url="mailto:a@b.example")])
        self.assertEqual(found, Intake(taken=1, refused=2))

    def test_topic_that_has_subscribers_is_fetched(self) -> None:
        self.start()
        self.subscribe()
        ping = Ping("A", FEED, float(NOW) - 60, origin=THERE)
        self.take_in([ping])
        self.assertEqual(self.fetcher.fetched, [FEED])
        self.assertIn(TopicChanged, map(type, self.bus.events))
        self.take_in([ping])
        self.assertEqual(self.fetcher.fetched, [FEED], "it is known")
        self.assertEqual(self.due(), [])

    def test_topic_is_fetched_once_though_the_clock_of_the_other_broker_is_ahead(self) -> None:
        self.start()
        self.subscribe()
        self.take_in([Ping("A", FEED, float(NOW) + 200, origin=THERE)])
        self.clock.pump([1.0] * 20)
        self.assertEqual((self.fetcher.fetched, self.due()), ([FEED], []))

    def test_many_are_taken_in_by_portions(self) -> None:
        count = 2 * PORTION + 1
        pings = [a_ping(number) for number in range(count)]
        taking = Deferred.fromCoroutine(self.intake.take_in(pings, 1.0))
        self.assertNoResult(taking)
        self.assertEqual(len(self.pings()), PORTION)
        self.clock.advance(0)
        self.clock.advance(0)
        self.assertEqual(self.result(taking), Intake(taken=count))

    def test_full_disk(self) -> None:
        self.space.full = True
        taking = Deferred.fromCoroutine(self.intake.take_in([a_ping()], 1.0))
        self.failureResultOf(taking, Unavailable)
        self.assertEqual(self.pings(), [])
