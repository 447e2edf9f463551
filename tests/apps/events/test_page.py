"""The page ``/events``."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.apps.events.house import FEED, EventsHouse


class PageTests(SynchronousTestCase):
    def test_it_lists_the_feeds_with_how_much_is_in_them(self) -> None:
        house = EventsHouse(self)
        empty = house.ask("/events").text
        for word in ("made now", 'action="/events/host"'):
            self.assertIn(word, empty)
        house.start()
        house.ping("a", "b")
        house.change(FEED)
        house.wait()
        answer = house.ask("/events")
        self.assertEqual(answer.status, 200)
        self.assertIn("2 entries so far", answer.text)
        self.assertIn("1 entry so far", answer.text)
        self.assertIn('href="/events/pings/recent"', answer.text)
