"""Files of the broker's own, which are topics too."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from rsscloud_broker.core import FairLimiter, OwnTopicsSink
from rsscloud_broker.counters import Counters
from rsscloud_broker.events import FilePublished, TopicChanged
from rsscloud_broker.testing import FakeFetcher, RecordingBus, make_sink_tests, memory_store
from rsscloud_broker.testing.clock import Clock
from tests.core.house import NOW, CoreTestCase, change_detector

HERE = "http://broker.example"
LIST = f"{HERE}/changes.xml"


class OwnTopicsSinkTests(CoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.fetcher.contents[LIST] = b"<weblogUpdates/>"
        self.sink = OwnTopicsSink(self.store, self.detector, self.clock, HERE)
        self.start()

    def publish(self) -> None:
        event = FilePublished("/changes.xml", NOW)
        self.successResultOf(Deferred.fromCoroutine(self.sink.handle(event)))

    def test_file_with_a_subscriber(self) -> None:
        self.subscribe(LIST)
        self.publish()
        self.assertEqual(self.bus.events, [TopicChanged(LIST, NOW)])
        self.assertEqual(self.due(), [])

    def test_file_of_which_nobody_wants_to_hear(self) -> None:
        self.publish()
        self.assertEqual(self.fetcher.fetched, [])


def _sink(test: TestCase) -> OwnTopicsSink:
    store, clock = memory_store(), Clock()
    test.addCleanup(store.stopService)
    limiter = FairLimiter(clock)
    detector = change_detector(store, FakeFetcher(), RecordingBus(), clock, Counters(), limiter)
    return OwnTopicsSink(store, detector, clock, HERE)


class OwnTopicsContractTests(make_sink_tests(_sink)):  # type: ignore[misc] # made at run time
    """As every sink."""
