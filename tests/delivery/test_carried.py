"""Tests the limits of the bytes of contents that are in memory for notifications."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.delivery.contents import OF_WALKS, SMALL, ContentsUnderWay
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.model import Content
from tests.delivery.engine import EngineTestCase

LARGE = SMALL + 1


class UnderWayTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.under_way = ContentsUnderWay(10 * LARGE)

    def begin(self, content: Content, *, quick: bool = False) -> bool:
        """Begin to send a content, without an end; return whether it was allowed."""
        try:
            self.under_way.enter(content, to_quick_host=quick)
        except Unavailable:
            return False
        return True

    def test_half_of_the_room_is_for_hosts_that_answer(self) -> None:
        contents = [Content(bytes([number]) * LARGE) for number in range(12)]
        begun = [self.begin(content) for content in contents[:6]]
        self.assertEqual(begun, [True] * 5 + [False])
        begun = [self.begin(content, quick=True) for content in contents[6:]]
        self.assertEqual(begun, [True] * 5 + [False])

    def test_one_content_counts_once(self) -> None:
        content = Content(b"x" * 5 * LARGE)
        for _ in range(100):
            self.assertTrue(self.begin(content))
        self.assertFalse(self.begin(Content(b"y" * LARGE)))

    def test_until_the_last_of_them_is_over(self) -> None:
        content, other = Content(b"x" * 5 * LARGE), Content(b"y" * LARGE)
        self.begin(content)
        self.begin(content)
        self.assertFalse(self.begin(other))
        self.under_way.leave(content)
        self.assertFalse(self.begin(other))
        self.under_way.leave(content)
        self.assertTrue(self.begin(other))

    def test_small_ones_do_not_count(self) -> None:
        large = Content(b"x" * 5 * LARGE)
        self.assertTrue(self.begin(large))
        small = Content(b"y" * SMALL)
        self.assertTrue(self.begin(small))
        self.under_way.leave(small)
        self.assertFalse(self.begin(Content(b"z" * LARGE)))


class DistributionTests(EngineTestCase):
    """Topics with large contents, whose subscribers are silent."""

    def test_everybody_gets_its_content_in_the_end(self) -> None:
        feeds = [f"http://feeds.example/{number}" for number in range(40)]
        silent = [f"http://silent{number}.example/" for number in range(40)]
        for feed, url in zip(feeds, silent, strict=True):
            self.subscribe(url, feed, content=True)
        self.notifier.holds.update(silent)
        self.start()
        for number, feed in enumerate(feeds):
            self.change(feed, b"%2d" % number * (OF_WALKS // 20))
        self.advance(2)
        self.assertLess(len(self.notifier.calls), 20)
        for _ in range(20):
            self.notifier.end()
            self.advance(6)
        self.assertEqual(set(self.called()), set(silent))
        self.assertEqual(self.walks(), [])
        for feed in feeds:
            self.assertEqual(self.waiting(feed), {})
