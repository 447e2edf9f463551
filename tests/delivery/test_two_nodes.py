"""A ping that one node takes starts notifications at another, which shares its PostgreSQL."""

from __future__ import annotations

from sqlalchemy import text
from twisted.internet import reactor
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from rsscloud_broker.core import FairLimiter
from rsscloud_broker.core.bus import EventBus
from rsscloud_broker.counters import Counters
from rsscloud_broker.delivery.distribution import Distribution
from rsscloud_broker.delivery.options import DistributionOptions
from rsscloud_broker.events import Event, WorkHinted
from rsscloud_broker.model import Lease, Ping, Subscription
from rsscloud_broker.storage import Pulse, open_database
from rsscloud_broker.storage import pulse as pulse_module
from rsscloud_broker.testing import FakeFetcher, FakeNotifier, RecordingBus, sink_parts
from rsscloud_broker.util.clock import SystemClock
from tests.core.house import CALLBACK, FEED, change_detector
from tests.postgresql import borrowed_database
from tests.storage.databases import threaded_store

#: A schema in which hints are lost.
DEAF = (
    "CREATE SCHEMA IF NOT EXISTS deaf",
    "CREATE OR REPLACE FUNCTION deaf.pg_notify(text, text) RETURNS text LANGUAGE sql "
    "AS 'SELECT $1'",
)
LOSING = "&options=-c%20search_path%3Ddeaf,pg_catalog,public"


class TwoNodesTests(TestCase):
    """One node takes pings and fetches; the other notifies."""

    def start(self, url: str) -> None:
        clock = SystemClock(IReactorTime(reactor))
        self.clock = clock
        self.store, other = threaded_store(self, url), threaded_store(self, url)
        self.fetcher = FakeFetcher({FEED: b"0"})
        self.detector = change_detector(
            self.store,
            self.fetcher,
            RecordingBus(),
            clock,
            Counters(),
            FairLimiter(clock),
        )
        self.detector.startService()
        self.addCleanup(self.detector.stopService)
        bus = EventBus()
        self.notifier = FakeNotifier("http-post")
        distribution = Distribution(
            DistributionOptions(),
            sink_parts(store=other, bus=bus, notifiers={"http-post": self.notifier}, clock=clock),
        )
        bus.attach(distribution)
        self.hinted: list[WorkHinted] = []

        def publish(event: Event) -> None:
            if isinstance(event, WorkHinted):
                self.hinted.append(event)
            bus.publish(event)

        pulse = Pulse(IReactorFromThreads(reactor), url, other, publish, Counters())
        for service in (bus, distribution, pulse):
            service.startService()
            self.addCleanup(service.stopService)

    async def until_notified(self, content: bytes) -> None:
        """Change the topic and ping it at one node, and wait until the other notifies."""
        self.fetcher.contents[FEED] = content
        before = len(self.notifier.notified)
        ping = Ping(f"Site {content!r}", FEED, self.clock.wall_seconds())
        record = await self.store.add_ping(ping, 60.0, "192.0.2.1", True)
        self.detector.schedule(FEED, *record.states)
        while len(self.notifier.notified) == before:
            await deferLater(IReactorTime(reactor), 0.002)

    async def subscribed(self) -> None:
        """Subscribe, and wait until the other node listens."""
        wanted = Subscription(FEED, CALLBACK, Lease(self.clock.wall_seconds(), 600))
        await self.store.put_subscription(wanted)
        while not self.hinted:  # by the first heartbeat
            await deferLater(IReactorTime(reactor), 0.002)

    async def test_at_once_by_hints(self) -> None:
        """No heartbeat is needed; there is none after the first."""
        self.patch(pulse_module, "BEAT", 3600.0)
        self.start(self.enterContext(borrowed_database()))
        await self.subscribed()
        for number in range(5):
            self.hinted.clear()
            await self.until_notified(b"%d" % number)
            self.assertNotIn("", {hinted.kind for hinted in self.hinted})

    async def test_by_heartbeats_without_hints(self) -> None:
        url = self.enterContext(borrowed_database())
        with open_database(url) as conn:
            for statement in DEAF:
                conn.execute(text(statement))
        self.start(url + LOSING)
        await self.subscribed()
        for number in range(3):
            self.hinted.clear()
            await self.until_notified(b"%d" % number)
            self.assertLessEqual({one.kind for one in self.hinted}, {""}, "hints are not lost")
