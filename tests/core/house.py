"""What the core is tested with: a store in memory, a fake fetcher, a recording bus, a clock."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.core import ChangeDetector
from rsscloud_broker.counters import Counters
from rsscloud_broker.model import Callback, Lease, Ping, Subscription, Unavailable
from rsscloud_broker.testing import FakeFetcher, RecordingBus, memory_store

FEED = "http://feeds.example/rss.xml"
CALLBACK = Callback("http://reader.example/notify", "http-post")
NOW = 1_790_683_200.0
DAY = 86_400


class CoreTestCase(SynchronousTestCase):
    """:ivar unavailable: methods of the store that raise Unavailable while in here."""

    def setUp(self) -> None:
        self.store: Any = memory_store()
        self.addCleanup(self.store.stopService)
        self.fetcher = FakeFetcher({FEED: b"<rss>1</rss>"})
        self.bus = RecordingBus()
        self.clock = Clock()
        self.clock.advance(NOW)
        self.unavailable: set[str] = set()
        for name in ("checks_due", "record_reading", "drop_check", "add_ping"):
            self._watch(name)
        self.counters = Counters()
        self.detector = ChangeDetector(
            self.store, self.fetcher, self.bus, self.clock, self.counters
        )

    def _watch(self, name: str) -> None:
        operation = getattr(self.store, name)

        def watched(*args: Any) -> Deferred[Any]:
            if name in self.unavailable:
                return fail(Unavailable("the disk is full"))
            result: Deferred[Any] = operation(*args)
            return result

        self.patch(self.store, name, watched)

    def start(self) -> None:
        self.detector.startService()
        self.addCleanup(self.detector.stopService)

    def subscribe(self, topic: str = FEED) -> Subscription:
        """Put a subscription into the store, as if it had been verified."""
        wanted = Subscription(topic, CALLBACK, Lease(self.clock.seconds(), DAY))
        stored: Subscription = self.successResultOf(self.store.put_subscription(wanted))
        return stored

    def store_ping(self, topic: str = FEED) -> None:
        """Put a ping into the store, so that its topic waits to be read."""
        ping = Ping("A site", topic, self.clock.seconds())
        self.successResultOf(self.store.add_ping(ping, 0))

    def due(self) -> list[str]:
        """The topics that wait to be read."""
        self.unavailable.discard("checks_due")
        urls: list[str] = self.successResultOf(self.store.checks_due(1000))
        return urls

    def pings(self) -> list[Ping]:
        found: list[Ping] = self.successResultOf(self.store.pings(0, 2 * NOW, None, 1000))
        return found
