"""How long what is new stays marked."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.river import visits
from rsscloud_broker.apps.river.visits import VISIT, Visits
from rsscloud_broker.testing import Clock

DAVE, ANNA = 1, 2


class VisitsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.visits = Visits(self.clock)

    def test_a_visit_goes_on_while_the_page_is_loaded(self) -> None:
        self.assertEqual(self.visits.seen_before(DAVE, 7), 7)
        for _ in range(3):
            self.clock.advance(VISIT - 1)
            self.assertEqual(self.visits.seen_before(DAVE, 9), 7)
        self.assertEqual(self.visits.seen_before(ANNA, 9), 9)
        self.clock.advance(VISIT + 1)
        self.assertEqual(self.visits.seen_before(DAVE, 9), 9)

    def test_the_oldest_are_forgotten(self) -> None:
        self.patch(visits, "MAX_VISITS", 2)
        self.visits = Visits(self.clock)
        for account in (1, 2, 1, 3):
            self.visits.seen_before(account, 7)
        self.assertEqual([self.visits.seen_before(each, 9) for each in (1, 3)], [7, 7])
        self.assertEqual(self.visits.seen_before(2, 9), 9)
