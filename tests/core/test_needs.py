"""Tests that a fetcher knows how much of a content is needed, and that less is enough.

The fetcher here brings nothing that is not wanted, as couriers do.
"""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from rsscloud_broker.core import RequestedContentsSink
from rsscloud_broker.counters import Counters
from rsscloud_broker.events import ContentFetched, ContentRequested
from rsscloud_broker.model import NO_VALIDATORS, Callback, Content, Intent, Need, Validators
from rsscloud_broker.model.fetching import EVERYTHING, Fetched, Wanted, as_wanted
from rsscloud_broker.model.work import Bounds, History
from rsscloud_broker.policy.limiter import FairLimiter
from rsscloud_broker.testing import FakeFetcher, RecordingBus, make_sink_tests, memory_store
from rsscloud_broker.testing.clock import Clock
from tests.core.house import FEED, BrokerTestCase, change_detector

TYPE = "application/rss+xml"


def rss(title: str) -> bytes:
    return f"<rss version='2.0'><channel><title>{title}</title></channel></rss>".encode()


class FrugalFetcher(FakeFetcher):
    """Brings no content that is not wanted, but what the feed says.

    :ivar brought: the contents that it brought, in order.
    """

    def __init__(self) -> None:
        super().__init__({FEED: rss("One")})
        self.brought: list[bytes | None] = []

    async def fetch(
        self,
        url: str,
        known: Validators = NO_VALIDATORS,
        subscribers: int = 0,
        wanted: Wanted = EVERYTHING,
    ) -> Fetched:
        whole = await super().fetch(url, known, subscribers, wanted)
        fetched = as_wanted(whole, wanted)
        self.brought.append(fetched.content.body if fetched.content else None)
        return fetched


class NeedTests(BrokerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.frugal = FrugalFetcher()
        self.reader = self.detector.reader
        self.reader._fetcher = self.frugal

    def check(self) -> bool:
        self.clock.advance(100)
        return self.fetch().changed

    def change(self, title: str) -> None:
        self.frugal.contents[FEED] = rss(title)
        self.assertTrue(self.check())

    def subscribe_to_contents(self) -> None:
        callback = Callback("http://reader.example/hook", "carrier")
        self.result(self.verifier.subscribe(Intent(FEED, callback, 86_400)))

    def test_topic_with_a_subscriber_that_gets_contents(self) -> None:
        self.subscribe_to_contents()
        self.change("Two")
        self.assertFalse(self.check())
        self.change("Three")
        self.assertEqual(self.frugal.brought[1:], [rss("Two"), None, rss("Three")])
        content = self.result(self.store.newest_content(FEED))
        self.assertEqual(content, Content(rss("Three"), TYPE))

    def test_subscriber_that_comes_later(self) -> None:
        """What is remembered of the topic is not used any more."""
        self.subscribe()
        self.change("Two")
        self.subscribe_to_contents()
        self.clock.advance(1)
        self.frugal.contents[FEED] = rss("Three")
        self.fetch()
        self.assertEqual(self.frugal.brought[-1], rss("Three"))

    def test_content_that_notifications_wait_for(self) -> None:
        """It is brought although it has not changed, and then no more."""
        self.store._bounds = Bounds(contents=0)
        self.subscribe_to_contents()
        self.frugal.validators[FEED] = Validators('"1"')
        self.change("Two")
        self.store._bounds = Bounds()
        now = self.clock.wall_seconds()
        self.assertTrue(self.result(self.store.request_content(FEED, now)))
        self.clock.advance(2)
        sink = RequestedContentsSink(self.detector)
        self.result(sink.handle(ContentRequested(FEED)))
        self.assertEqual(self.frugal.brought[-1], rss("Two"))
        self.assertEqual((self.bus.events[-1], self.due()), (ContentFetched(FEED), []))
        content = self.result(self.store.newest_content(FEED))
        self.assertEqual(content, Content(rss("Two"), TYPE))
        for _ in range(2):
            self.assertFalse(self.check())
            self.assertIsNone(self.frugal.brought[-1])

    def test_content_that_the_feeds_of_the_broker_keep(self) -> None:
        history = History(contents=("http://feeds.example/",))
        self.store._bounds = Bounds(history=history)
        self.subscribe()
        self.change("Two")
        self.assertFalse(self.check())
        self.assertEqual(self.frugal.brought, [rss("Two"), None])
        (kept,) = self.result(self.store.kept_changes(0, 10))
        self.assertEqual(kept.content, Content(rss("Two"), TYPE))

    def test_topic_that_moves_to_where_contents_are_kept(self) -> None:
        new = "http://kept.example/feed"
        history = History(contents=("http://kept.example/",))
        self.store._bounds = Bounds(history=history)
        self.subscribe()
        self.check()
        self.frugal.moves[FEED] = new
        self.frugal.contents[new] = rss("New")
        self.assertTrue(self.check())
        kept = self.result(self.store.kept_changes(0, 10))[-1]
        self.assertEqual((kept.url, kept.content), (new, Content(rss("New"), TYPE)))

    def test_what_is_known_is_told(self) -> None:
        self.subscribe()
        self.check()
        self.check()
        digest = Content(rss("One")).digest
        self.assertEqual(
            self.frugal.wanted,
            [Wanted(Need.CHANGES), Wanted(Need.CHANGES, digest, len(rss("One")))],
        )


def _sink(test: TestCase) -> RequestedContentsSink:
    store = memory_store()
    test.addCleanup(store.stopService)
    clock = Clock()
    limiter = FairLimiter(clock)
    detector = change_detector(store, FakeFetcher(), RecordingBus(), clock, Counters(), limiter)
    return RequestedContentsSink(detector)


class RequestedContentsContractTests(make_sink_tests(_sink)):  # type: ignore[misc] # made at run time
    """The contract that every sink must keep."""
