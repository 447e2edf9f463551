"""Test cases for the core: with a store in memory, a fake fetcher, a recording bus and a clock."""

from __future__ import annotations

from collections.abc import Awaitable, Container
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rsscloud_broker import core, events
from rsscloud_broker.config import RateLimitOptions, Topics
from rsscloud_broker.counters import Counters
from rsscloud_broker.database.disk_space import DiskSpace
from rsscloud_broker.errors import AddressRefused, DiskFull, Unavailable
from rsscloud_broker.interfaces import IClock, IEventBus, ITopicFetcher, IURLPolicy
from rsscloud_broker.model import Callback, Lease, Ping, Subscription, host_of
from rsscloud_broker.model.work import CheckState, Fanout, FetchRecord
from rsscloud_broker.policy.limiter import SLOTS, UNDER_WAY
from rsscloud_broker.storage import Store
from rsscloud_broker.testing import FakeFetcher, FakeNotifier, RecordingBus, memory_store
from rsscloud_broker.testing.clock import About, Clock
from rsscloud_broker.testing.parsing import parse_here
from tests.storage.waiting import PINGED, waiting_checks

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

FEED = "http://feeds.example/rss.xml"
CALLBACK = Callback("http://reader.example/notify", "http-post")
NOW = About(1_790_683_200.0)
DAY = 86_400


#: The classes of events that nothing but the event log handles.
LOGGED_ONLY = (
    events.PingAccepted,
    events.PingRefused,
    events.TopicFetched,
    events.TopicFetchFailed,
    events.TopicMoved,
    events.TopicRevived,
    events.SubscriptionRequested,
    events.SubscriptionDenied,
)


class Bus(RecordingBus):
    """A bus that records the events for the event log apart from the others.

    :ivar logged: the events that nothing but the event log handles, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.logged: list[events.Event] = []

    def publish(self, event: events.Event) -> None:
        if isinstance(event, LOGGED_ONLY):
            self.logged.append(event)
        else:
            super().publish(event)


@implementer(IURLPolicy)
class FakeURLPolicy:
    """A URL policy that looks up no names.

    :ivar refused: the URLs that it refuses.
    :ivar judged: the URLs that it was asked to check.
    :ivar silent: hosts whose checks do not end, as if their name servers did not answer.
    """

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.judged: list[str] = []
        self.silent: dict[str, Deferred[None]] = {}

    async def check(self, url: str) -> None:
        self.judged.append(url)
        if host_of(url) in self.silent:
            await self.silent[host_of(url)]
        if url in self.refused:
            raise AddressRefused("it leads to a private network")


class FakeDiskSpace(DiskSpace):
    """A check of the disk's space.

    :ivar full: whether it says that the disk is full.
    """

    full = False

    def __init__(self) -> None:
        """Measure nothing."""

    def check(self) -> None:
        if self.full:
            raise DiskFull("the disk is full")


NOTHING_BLOCKED = core.Blocks()


def change_detector(
    store: Store,
    fetcher: ITopicFetcher,
    bus: IEventBus,
    clock: IClock,
    counters: Counters,
    limiter: core.FairLimiter,
    pushed: Container[str] = (),
    blocks: core.Blocks = NOTHING_BLOCKED,
) -> core.ChangeDetector:
    """A change detector with all its parts; it parses feeds in the calling thread."""
    reader = core.TopicReader(store, fetcher, bus, clock, counters, limiter, pushed, blocks)
    return core.ChangeDetector(
        store, reader, core.FeedInspector(store, parse_here), bus, clock, counters
    )


class CoreTestCase(SynchronousTestCase):
    """A test case with the parts of the core.

    :ivar unavailable: the names of the store's methods that raise Unavailable now.
    :ivar blocks: what is blocked.
    :cvar pushes: how the URLs of the topics begin whose content is pushed.
    :cvar slots, under_way: see ``FairLimiter``.
    """

    slots, under_way = SLOTS, UNDER_WAY
    pushes: tuple[str, ...] = ()

    def setUp(self) -> None:
        self.store: Any = memory_store()
        self.addCleanup(self.store.stopService)
        self.fetcher = FakeFetcher({FEED: b"<rss>1</rss>"})
        self.bus = Bus()
        self.clock = Clock(NOW)
        self.unavailable: set[str] = set()
        for name in ("claim_checks", "record_fetch", "drop_check", "add_ping"):
            self._watch(name)
        self.counters = Counters()
        self.pushed = core.PushedTopics(self.pushes)
        self.limiter = core.FairLimiter(self.clock, self.slots, self.under_way)
        self.blocks = core.Blocks()
        self.detector = change_detector(
            self.store,
            self.fetcher,
            self.bus,
            self.clock,
            self.counters,
            self.limiter,
            self.pushed,
            self.blocks,
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

    def result(self, work: Awaitable[T]) -> T:
        """The result of a Deferred or a coroutine, which must be there."""
        result: T = self.successResultOf(work)  # type: ignore[arg-type] # one of both
        return result

    def published(self, kind: type, bus: RecordingBus | None = None) -> list[Any]:
        """The events of a class that were published on a bus, in order."""
        return [event for event in (bus or self.bus).events if isinstance(event, kind)]

    def fetch(self, url: str = FEED, **how: Any) -> FetchRecord:
        """Have a topic fetched now."""
        return self.result(self.detector.check_now(url, **how))

    def known(self, url: str = FEED) -> Any:
        """A topic; None if the store does not know it."""
        return self.result(self.store.topic(url))

    def status(self, url: str = FEED) -> Any:
        """The status of a topic; None if the store does not know it."""
        return self.result(self.store.topic_status(url))

    def walks(self) -> list[Fanout]:
        """The fan-outs, oldest first."""
        return self.result(self.store.fanouts(10))

    def walked(self) -> list[str]:
        """The topics of the fan-outs."""
        return [walk.topic for walk in self.walks()]

    def subscribe(self, topic: str = FEED) -> Subscription:
        """Store a subscription, as if it had been verified."""
        wanted = Subscription(topic, CALLBACK, Lease(self.clock.wall_seconds(), DAY))
        stored: Subscription = self.result(self.store.put_subscription(wanted))
        return stored

    def store_ping(self, topic: str = FEED) -> CheckState:
        """Store a ping, so that its topic waits to be fetched.

        :returns: who handles the check.
        """
        ping = Ping("A site", topic, self.clock.wall_seconds())
        (state,) = self.result(self.store.add_ping(ping, 0)).states
        return CheckState(state)

    def claim_check(self, url: str = FEED) -> None:
        """Ping a topic, whose check this node claims."""
        state = self.result(self.detector.request(url, "192.0.2.1", PINGED))
        self.assertIs(state, CheckState.CLAIMED)
        self.detector.schedule(url, state, source="192.0.2.1", cause=PINGED)

    def due(self) -> list[str]:
        """The topics that wait to be fetched."""
        return [check.url for check in self.result(waiting_checks(self.store, 1000))]

    def pings(self) -> list[Ping]:
        return self.result(self.store.pings(0, 2 * NOW, None, 1000))


class BrokerTestCase(CoreTestCase):
    """A test case with a broker.

    :ivar notifier: records calls by the protocol ``http-post``.
    :ivar carrier: records calls by the protocol ``carrier``, whose notifications carry contents.
    :cvar max_intents: how many intents may wait.
    """

    limits = RateLimitOptions()
    topics = Topics()
    max_intents = 3

    def setUp(self) -> None:
        super().setUp()
        for name in (
            "add_intent",
            "postpone_intent",
            "remove_intent",
            "intents",
            "put_subscription",
            "check_writable",
        ):
            self._watch(name)
        self.notifier = FakeNotifier("http-post")
        self.carrier = FakeNotifier("carrier", drop_after_failures=None, carries_content=True)
        notifiers = {"http-post": self.notifier, "soap": FakeNotifier("soap")}
        notifiers["carrier"] = self.carrier
        self.verifier = core.Verifier(
            self.store, self.bus, self.detector, lambda: notifiers, self.clock, self.limiter
        )
        self.intents = core.IntentQueue(
            self.store, self.verifier, self.clock, limit=self.max_intents, retries=(5.0, 30.0)
        )
        self.topic_policy, self.callback_policy = FakeURLPolicy(), FakeURLPolicy()
        self.space = FakeDiskSpace()
        self.broker = core.Broker(
            self.store,
            self.bus,
            self.detector,
            self.verifier,
            self.intents,
            self.clock,
            core.Admission(
                self.limits,
                self.store.has_subscription,
                self.store.count_of_host,
                self.clock,
                self.counters,
            ),
            core.Access(self.topics, self.blocks),
            self.topic_policy,
            self.callback_policy,
            self.counters,
            self.space,
        )
        self.start()
        self.intents.startService()
        self.addCleanup(self.intents.stopService)

    def refusal(self, call: Awaitable[object], kind: type[E]) -> E:
        error: E = self.failureResultOf(call, kind).value
        return error

    def subscriptions(self) -> list[Subscription]:
        return self.result(self.store.subscriptions(FEED, 0, 100))
