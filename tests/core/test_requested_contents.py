"""Tests that a topic is fetched again if a notification waits for content that is not stored."""

from __future__ import annotations

from attrs import evolve
from twisted.trial.unittest import TestCase

from rsscloud_broker.core import RequestedContentsSink
from rsscloud_broker.counters import Counters
from rsscloud_broker.events import ContentFetched, ContentRequested
from rsscloud_broker.model import Content, Validators
from rsscloud_broker.model.work import Bounds, Delivery
from rsscloud_broker.policy.limiter import FairLimiter
from rsscloud_broker.testing import FakeFetcher, RecordingBus, make_sink_tests, memory_store
from rsscloud_broker.testing.clock import Clock
from tests.core.house import FEED, NOW, CoreTestCase, change_detector


class RequestedContentsSinkTests(CoreTestCase):
    def test_topic_is_read_once_more_and_in_full(self) -> None:
        self.fetcher.validators[FEED] = Validators('"1"')
        self.store._bounds = Bounds(contents=0)
        self.start()
        wanting = self.successResultOf(
            self.store.put_subscription(evolve(self.subscribe(), wants_content=True))
        )
        self.successResultOf(self.detector.check_now(FEED))
        (walk,) = self.successResultOf(self.store.fanouts(10))
        put_off = Delivery(wanting, None, NOW, attempts=0, retry_at=NOW + 600)
        self.successResultOf(self.store.record_slice(walk, 0, [put_off], True))
        self.store._bounds = Bounds()
        self.assertTrue(self.successResultOf(self.store.request_content(FEED, NOW + 1)))
        self.clock.advance(2)
        sink = RequestedContentsSink(self.detector)
        self.successResultOf(sink.handle(ContentRequested(FEED)))
        self.assertEqual(self.bus.events[-1], ContentFetched(FEED))
        content = self.successResultOf(self.store.newest_content(FEED))
        self.assertEqual(content, Content(b"<rss>1</rss>", "application/rss+xml"))
        self.assertEqual(self.due(), [])


def _sink(test: TestCase) -> RequestedContentsSink:
    store = memory_store()
    test.addCleanup(store.stopService)
    clock = Clock()
    limiter = FairLimiter(clock)
    detector = change_detector(store, FakeFetcher(), RecordingBus(), clock, Counters(), limiter)
    return RequestedContentsSink(detector)


class RequestedContentsContractTests(make_sink_tests(_sink)):  # type: ignore[misc] # made at run time
    """The contract that every sink must keep."""
