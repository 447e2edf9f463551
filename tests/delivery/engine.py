"""A test case for distribution in virtual time, over a store that a test can delay or disable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from attrs import evolve, fields
from sqlalchemy import Connection, insert
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rsscloud_broker.core import Blocks
from rsscloud_broker.counters import Counters
from rsscloud_broker.delivery.distribution import Distribution
from rsscloud_broker.delivery.options import DistributionOptions
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import (
    Event,
    SubscriptionRemoved,
    SubscriptionStored,
    TopicChanged,
    TopicEnded,
)
from rsscloud_broker.interfaces import INotifier, SinkParts
from rsscloud_broker.model import (
    Callback,
    Content,
    Denial,
    FetchResult,
    Lease,
    Notification,
    Outcome,
    Subscription,
)
from rsscloud_broker.model.work import Bounds, Fanout, FetchRecord
from rsscloud_broker.storage.schema import subscription
from rsscloud_broker.storage.subscriptions import state_values
from rsscloud_broker.storage.topics import topic_key
from rsscloud_broker.storage.trials import Trials
from rsscloud_broker.testing import RecordingBus, memory_store, sink_parts
from rsscloud_broker.testing.clock import About, Clock

FEED = "http://feeds.example/rss.xml"
NOW = About(1_790_683_200.0)

#: The outcome of a call to a host that does not answer.
NO_ANSWER = Outcome(False, "nobody is there", answered=False)

REFUSED = Outcome(False, "refused")

#: How often subscribers may be called, and the store be read, while no time passes: so often, and
#: so often for each subscriber there is.
MOST_STEPS, STEPS_OF_EACH = 500, 3

#: The methods that write what has come about.
WRITES = frozenset({"record_slice", "record_deliveries", "record_hosts"})


def make_distribution(parts: SinkParts, **options: int) -> Distribution:
    """A distribution with some options, or arguments, of its own."""
    known = {key.name for key in fields(DistributionOptions)}
    chosen = {name: value for name, value in options.items() if name in known}
    others: dict[str, Any] = {name: options[name] for name in options.keys() - known}
    return Distribution(DistributionOptions(**chosen), parts, **others)


@implementer(INotifier)
class ScriptedNotifier:
    """A notifier that records calls and returns the outcomes that a test sets.

    :ivar calls: the URL and the time of each call, in order.
    :ivar notifications: the notifications among the calls, in order.
    :ivar denials: the denials among the calls.
    :ivar outcomes: the outcomes, by callback URL or host; success for all others.
    :ivar holds: callback URLs or hosts whose calls wait until the test ends them.
    :ivar held: the calls that wait, in order.
    :ivar takes: the seconds that each call takes.
    """

    protocol = "http-post"
    drop_after_failures = 3
    carries_content = False

    def __init__(self, clock: Clock, retries: tuple[float, ...]) -> None:
        self._clock = clock
        self.retries = retries
        self.calls: list[tuple[str, float]] = []
        self.notifications: list[Notification] = []
        self.denials: list[Denial] = []
        self.outcomes: dict[str, Outcome] = {}
        self.holds: set[str] = set()
        self.held: list[tuple[str, Deferred[None]]] = []
        self.takes = 0.0

    async def verify(self, intent: object) -> Outcome:
        raise NotImplementedError("distribution verifies nobody")

    async def notify(self, notification: Notification) -> Outcome:
        self.notifications.append(notification)
        return await self._call(notification.callback)

    async def deny(self, denial: Denial) -> Outcome:
        self.denials.append(denial)
        return await self._call(denial.callback)

    async def _call(self, callback: Callback) -> Outcome:
        names = (callback.url, callback.host)
        self.calls.append((callback.url, self._clock.wall_seconds()))
        if self.holds.intersection(names):
            gate: Deferred[None] = Deferred()
            self.held.append((callback.url, gate))
            await gate
        if self.takes:
            await deferLater(self._clock, self.takes)
        found = (self.outcomes[name] for name in names if name in self.outcomes)
        return next(found, Outcome(True))

    def contents(self, url: str = "") -> list[bytes | None]:
        """What each notification carried, or those of a URL, in order."""
        return [
            None if one.content is None else one.content.body
            for one in self.notifications
            if url in {"", one.callback.url}
        ]

    def forget(self) -> None:
        """Forget the calls that were made until now."""
        self.calls.clear()
        self.notifications.clear()

    def release(self) -> None:
        """End all calls that wait; no others will."""
        self.holds.clear()
        self.end()

    def end(self, *urls: str) -> None:
        """End all calls that wait, or those of the given URLs."""
        waiting, self.held = self.held, []
        for url, gate in waiting:
            if not urls or url in urls:
                if not gate.called:
                    gate.callback(None)
            else:
                self.held.append((url, gate))


class EngineTestCase(SynchronousTestCase):
    """A test case with a store, a clock, and a distribution that ``start`` makes.

    :ivar unavailable: the names of the store's methods that raise Unavailable now.
    :ivar slow: the names of the store's methods whose results wait until ``hurry``.
    :ivar asked: the names of the store's methods that were called, in order.
    :ivar jitter: the generator of random jitter.
    :ivar spins: whether the distribution goes round in a circle.  Then the store answers nothing
        any more, and the test fails.
    """

    bounds = Bounds()
    retries: tuple[float, ...] = (5.0, 30.0, 120.0, 600.0, 1800.0)

    def setUp(self) -> None:
        self.clock = Clock(NOW)
        self.store: Any = memory_store(self.bounds, clock=self.clock)
        self.addCleanup(self.store.stopService)
        self.bus = RecordingBus()
        self.blocks = Blocks()
        self.jitter = 0.0
        self.notifier = ScriptedNotifier(self.clock, self.retries)
        self.contents = 0
        self.unavailable: set[str] = set()
        self.slow: set[str] = set()
        self.asked: list[str] = []
        self.spins = False
        self.addCleanup(self.assert_no_spin)
        self._readings = self._calls = self._subscribed = 0
        self._late: list[Callable[[], None]] = []
        for name in (
            "fanouts",
            "subscriptions",
            "subscriptions_of",
            "record_slice",
            "record_deliveries",
            "claim_due",
            "next_due",
            "hosts",
            "record_hosts",
        ):
            self._watch(name)

    def _watch(self, name: str) -> None:
        operation = getattr(self.store, name)

        def watched(*args: Any) -> Deferred[Any]:
            self.asked.append(name)
            self._readings += name not in WRITES
            steps = self._readings + len(self.notifier.calls) - self._calls
            most = MOST_STEPS + STEPS_OF_EACH * self._subscribed
            self.spins = self.spins or steps > most
            if self.spins:
                return Deferred()
            if name in self.unavailable:
                return fail(Unavailable("the disk is full"))
            if name in self.slow:
                result: Deferred[Any] = Deferred()
                self._late.append(lambda: operation(*args).chainDeferred(result))
                return result
            done: Deferred[Any] = operation(*args)
            return done

        self.patch(self.store, name, watched)

    def step(self) -> None:
        """Time passes, or something happens; until now the distribution has come to rest."""
        self.assert_no_spin()
        self._readings, self._calls = 0, len(self.notifier.calls)

    def assert_no_spin(self) -> None:
        self.assertFalse(self.spins, f"it asked for {self.asked[-3:]}, among others, without end")

    def hurry(self) -> None:
        """Return the results that slow methods hold back, and make all methods fast again."""
        self.slow.clear()
        late, self._late = self._late, []
        for operation in late:
            operation()

    def hold_a_claim(self, seconds: float) -> Callable[[], None]:
        """Let time pass in which the store claims what is due; call the result to say so."""
        claim, held = self.store.claim_due, []

        def claimed(*args: Any) -> Deferred[Any]:
            due = self.successResultOf(claim(*args))
            result: Deferred[Any] = Deferred()
            if not due:
                return succeed(due)
            held.append(partial(result.callback, due))
            return result

        patched = self.patch(self.store, "claim_due", claimed)
        self.advance(seconds)
        patched.restore()
        (release,) = held
        return release

    def start(self, **options: int) -> Distribution:
        """Start a distribution over the store, as in a new process after the last one ended."""
        self.store._node = None
        database, registered = self.store._database, self.store._ensure_node
        self.store.suspects = self.store.trial = Trials(self.clock, database, registered)
        self.successResultOf(database.write(registered))
        self.counters = Counters()
        parts = sink_parts(
            store=self.store,
            clock=self.clock,
            notifiers={"http-post": self.notifier},
            counters=self.counters,
            bus=self.bus,
            blocks=self.blocks,
        )
        self.distribution = make_distribution(parts, **options)
        self.distribution._attempts._outcomes._jitter = lambda: self.jitter
        self.distribution.startService()
        return self.distribution

    def start_walk(self, topic: str = FEED, **options: int) -> None:
        """Start the distribution, and change a topic."""
        self.start(**options)
        self.change(topic)

    def crash(self) -> None:
        """End the process like a crash: nothing that it waits for happens."""
        for call in list(self.clock.getDelayedCalls()):
            call.cancel()
        self._late.clear()
        self.notifier.held.clear()

    def restart(self, **options: int) -> None:
        """Crash, and start a new process whose calls do not wait."""
        self.crash()
        self.notifier.holds.clear()
        self.start(**options)

    def stop(self) -> None:
        stopped = self.distribution.stopService()
        self.advance(6)
        self.successResultOf(stopped)
        self.notifier.held.clear()

    def subscribe(self, url: str, topic: str = FEED, *, content: bool = False) -> Subscription:
        self._subscribed += 1
        wanted = Subscription(
            topic, Callback(url, "http-post"), Lease(NOW, 90_000), wants_content=content
        )
        stored: Subscription = self.successResultOf(self.store.put_subscription(wanted))
        return stored

    def subscribe_many(self, count: int, topic: str = FEED, host: str = "") -> list[str]:
        """Store subscriptions, each at its own host unless one is given; return their URLs."""
        self._subscribed += count
        urls = [f"http://{host or f'reader{n}.example'}/{n}" for n in range(count)]
        self.successResultOf(
            self.store._database.write(lambda conn: _subscribe_all(conn, urls, topic))
        )
        return urls

    def put(self, wanted: Subscription) -> Subscription:
        """Store a subscription, and send the event to the distribution."""
        stored: Subscription = self.successResultOf(self.store.put_subscription(wanted))
        self.hint(SubscriptionStored(stored))
        return stored

    def leave(self, leaving: Subscription) -> None:
        """Remove a subscription, and send the event to the distribution."""
        removing = self.store.remove_subscription(leaving.topic, leaving.callback)
        self.assertTrue(self.successResultOf(removing))
        self.hint(SubscriptionRemoved(leaving.topic, leaving.callback))

    def record_fetch(self, body: bytes, topic: str = FEED) -> FetchRecord:
        """Store that a fetch found a content; return what the store says."""
        content = Content(body, "text/plain")
        now = self.clock.wall_seconds()
        fetched = FetchResult(topic, content.digest, len(body), now, content)
        record: FetchRecord = self.successResultOf(self.store.record_fetch(fetched, None))
        return record

    def change(self, topic: str = FEED, body: bytes = b"") -> None:
        """Store a change of the topic, and send the event to the distribution.

        :param body: the new content; a number by default.
        """
        self.contents += 1
        self.record_fetch(body or b"%d" % self.contents, topic)
        self.hint(TopicChanged(topic, self.clock.wall_seconds()))

    def push(self, body: bytes, topic: str = FEED) -> None:
        """Push a content, as a publisher does."""
        content = Content(body, "text/plain")
        self.successResultOf(self.store.push_content(topic, content, self.clock.wall_seconds()))
        self.hint(TopicChanged(topic, self.clock.wall_seconds()))

    def end_topic(self, reason: str, topic: str = FEED) -> None:
        """End the topic in the store, and send the event to the distribution."""
        self.successResultOf(self.store.end_topic(topic, reason, self.clock.wall_seconds()))
        self.hint(TopicEnded(topic, reason, self.clock.wall_seconds()))

    def hint(self, event: Event) -> None:
        """Send an event to the distribution."""
        self.step()
        self.successResultOf(self.distribution.handle(event))

    def newest_content(self, topic: str = FEED) -> bytes | None:
        content = self.successResultOf(self.store.newest_content(topic))
        return None if content is None else content.body

    def advance(self, seconds: float, step: float = 0.05) -> None:
        """Let time pass, from one timer to the next but at least in these steps."""
        until = self.clock.seconds() + seconds
        while (left := until - self.clock.seconds()) > 0:
            self.step()
            self.clock.advance_to_timer(step, left)

    def timers(self) -> list[object]:
        """The timers, except that of the next look at due notifications."""
        alarm = self.distribution._retries._alarm
        return [call for call in self.clock.getDelayedCalls() if call is not alarm]

    def called(self) -> list[str]:
        """The URLs that were called, in order."""
        return [url for url, _ in self.notifier.calls]

    def times(self, url: str) -> list[float]:
        """The times of the calls of a URL, in seconds since the test began."""
        return [About(at - NOW) for called, at in self.notifier.calls if called == url]

    def assert_times(self, url: str, expected: Iterable[float], delta: float = 0.3) -> None:
        """Check that a URL was called at these times, or up to a moment later."""
        expected, times = list(expected), self.times(url)
        self.assertEqual(len(times), len(expected), (times, expected))
        for at, wanted in zip(times, expected, strict=True):
            self.assertTrue(wanted <= at <= wanted + delta, (times, expected))

    def subscriptions(self, topic: str = FEED) -> list[Subscription]:
        self.unavailable.discard("subscriptions")
        found = self.successResultOf(self.store.subscriptions(topic, 0, 100_000))
        return [evolve(one) for one in found]

    def waiting(self, topic: str = FEED) -> dict[str, int]:
        """How often each pending notification was tried, by callback URL."""
        return {
            one.callback.url: one.attempts
            for one in self.subscriptions(topic)
            if one.attempts is not None
        }

    def walks(self) -> list[Fanout]:
        self.unavailable.discard("fanouts")
        found: list[Fanout] = self.successResultOf(self.store.fanouts(1000))
        return found

    def count(self, name: str, **labels: str) -> float:
        """The value of a counter; 0 if nothing was counted."""
        return self.counters.registry.get_sample_value(f"rsscloud_{name}", labels) or 0.0


def _subscribe_all(conn: Connection, urls: list[str], topic: str) -> None:
    """Insert many subscriptions by one statement, which only tests need."""
    row: dict[str, Any] = {"topic_id": topic_key(conn, topic), "protocol": "http-post"}
    row |= state_values(Subscription(topic, Callback("", "http-post"), Lease(NOW, 90_000)))
    rows = [row | {"callback_url": url, "host": url.split("/")[2]} for url in urls]
    conn.execute(insert(subscription), rows)
