"""One topic, one fetch: also when several nodes on one PostgreSQL are pinged at the same time."""

from __future__ import annotations

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from rsscloud_broker.core import ChangeDetector, FairLimiter
from rsscloud_broker.counters import Counters
from rsscloud_broker.model import Content, Lease, Ping, Subscription
from rsscloud_broker.model.work import FetchRecord
from rsscloud_broker.storage import Store
from rsscloud_broker.testing import FakeFetcher, RecordingBus
from rsscloud_broker.util.clock import SystemClock
from tests.core.house import CALLBACK, FEED, change_detector
from tests.postgresql import borrowed_database
from tests.storage.databases import threaded_store
from tests.storage.waiting import waiting_checks
from tests.store_contract.basics import at_once

NODES, PINGS, CALLERS = 3, 2000, 30


class SeveralNodesTests(TestCase):
    def setUp(self) -> None:
        url = self.enterContext(borrowed_database())
        self.clock = SystemClock(IReactorTime(reactor))
        self.fetcher = FakeFetcher({FEED: b"first"})  # the one server of the feed
        self.nodes = [self.start(url) for _ in range(NODES)]

    def start(self, url: str) -> tuple[Store, ChangeDetector]:
        store = threaded_store(self, url)
        limiter = FairLimiter(self.clock)
        detector = change_detector(
            store, self.fetcher, RecordingBus(), self.clock, Counters(), limiter
        )
        detector.startService()
        self.addCleanup(detector.stopService)
        return store, detector

    async def ping(self, number: int) -> None:
        """Ping the topic at one of the nodes, as its front door does."""
        store, detector = self.nodes[number % NODES]
        ping = Ping(f"A site {number}", FEED, self.clock.wall_seconds())
        has_room = detector.has_room("192.0.2.1", [FEED])
        record = await store.add_ping(ping, 60.0, "192.0.2.1", has_room)
        detector.schedule(FEED, *record.states, source="192.0.2.1")

    async def until_nothing_waits(self) -> None:
        while await waiting_checks(self.nodes[0][0], 1):
            await deferLater(self.clock, 0.01)

    async def test_thousands_of_pings_make_few_fetches(self) -> None:
        store, detector = self.nodes[0]
        wanted = Subscription(FEED, CALLBACK, Lease(self.clock.wall_seconds(), 600))
        await store.put_subscription(wanted)
        await detector.check_now(FEED)
        for _, each in self.nodes:
            each.set_node_count(NODES)
        del self.fetcher.fetched[:]
        held = self.fetcher.held = list[Deferred[None]]()
        await at_once(self.ping(number) for number in range(PINGS))
        asked: list[Deferred[FetchRecord]] = [
            self.nodes[number % NODES][1].check_now(FEED, pinged=True) for number in range(CALLERS)
        ]
        while not held:  # a fetch is under way
            await deferLater(self.clock, 0.01)
        self.assertLessEqual(len(self.fetcher.fetched), NODES)
        self.fetcher.contents[FEED] = b"second"
        self.fetcher.held = None
        for gate in held:
            gate.callback(None)
        records = [await one for one in asked]
        await self.until_nothing_waits()
        second = Content(b"second", "").digest
        self.assertEqual({record.topic.digest for record in records}, {second})
        # One for each node, and one more for those that asked while that was under way.
        self.assertLessEqual(len(self.fetcher.fetched), 2 * NODES)
        self.assertEqual(len(await store.fanouts(10)), 1)
