"""Tests that every subscriber is notified in the end, whatever goes wrong and in which order.

Hypothesis makes subscribers come, leave, fail, hang and vanish, the store slow or unavailable, and
the process stop or crash, at any time.
"""

from __future__ import annotations

from attrs import define
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.delivery.breakers import LONGEST_PAUSE
from rsscloud_broker.events import SubscriptionRemoved
from rsscloud_broker.model import Notification, Outcome, Subscription
from rsscloud_broker.testing.clock import Clock
from tests import examples
from tests.delivery.engine import NO_ANSWER, REFUSED, EngineTestCase, ScriptedNotifier
from tests.machines import run_machine

TOPICS = ("http://feeds.example/a", "http://feeds.example/b")
HOSTS = ("one.example", "two.example", "three.example")
OPERATIONS = (
    "fanouts",
    "subscriptions",
    "subscriptions_of",
    "record_slice",
    "record_deliveries",
    "claim_due",
)
GONE = Outcome(False, "status 410", gone=True)


@define
class _Reader:
    """What the test knows of a subscriber.  Moments are numbered in order.

    :ivar changed_at: the moment of the last change that it must be notified of.
    :ivar told_at: the moment at which the last call that it answered began.
    :ivar unsubscribed: whether its subscription was removed.
    """

    subscription: Subscription
    changed_at: int = 0
    told_at: int = 0
    unsubscribed: bool = False


class _Notifier(ScriptedNotifier):
    """A notifier that notes when each reader was notified.

    :ivar harassed: readers that were notified after they left.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, (5.0, 30.0) * 1000)  # notifications are never given up
        self.readers: dict[str, _Reader] = {}
        self.harassed: list[_Reader] = []
        self.moment = 0

    def next_moment(self) -> int:
        self.moment += 1
        return self.moment

    async def notify(self, notification: Notification) -> Outcome:
        reader = self.readers[notification.callback.url]
        if reader.unsubscribed:
            self.harassed.append(reader)
        began_at = self.next_moment()
        outcome = await super().notify(notification)
        if outcome.success:
            reader.told_at = max(reader.told_at, began_at)
        return outcome


class _Engine(EngineTestCase):
    """The distribution of one example; not a test by itself."""

    def runTest(self) -> None:
        """Do nothing; unittest needs this method."""


class DeliveryMachine(RuleBasedStateMachine):
    @initialize(places=st.integers(1, 4), max_slow=st.integers(0, 3), slice_size=st.integers(1, 3))
    def begin(self, places: int, max_slow: int, slice_size: int) -> None:
        self.engine = _Engine()
        self.engine.setUp()
        self.engine.jitter = 0.5
        self.notifier = self.engine.notifier = _Notifier(self.engine.clock)
        self.readers = self.notifier.readers
        self.options = {
            "in_flight": places,
            "per_host": 2,
            "max_slow": max_slow,
            "slice_size": slice_size,
        }
        self.engine.start(**self.options)

    # subscribers

    @rule(topic=st.sampled_from(TOPICS), host=st.sampled_from(HOSTS), count=st.integers(1, 4))
    def subscribe(self, topic: str, host: str, count: int) -> None:
        for _ in range(count):
            url = f"http://{host}/{len(self.readers)}"
            self.readers[url] = _Reader(self.engine.subscribe(url, topic))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        reader = self.readers[data.draw(st.sampled_from(sorted(self.readers)))]
        found = reader.subscription
        self.engine.successResultOf(
            self.engine.store.remove_subscription(found.topic, found.callback)
        )
        reader.unsubscribed = True
        self.engine.hint(SubscriptionRemoved(found.topic, found.callback))

    @rule(host=st.sampled_from(HOSTS), outcome=st.sampled_from((REFUSED, NO_ANSWER, GONE, None)))
    def answer(self, host: str, outcome: Outcome | None) -> None:
        self.notifier.holds.discard(host)
        self.notifier.outcomes.pop(host, None)
        if outcome is not None:
            self.notifier.outcomes[host] = outcome

    @rule(host=st.sampled_from(HOSTS))
    def hang(self, host: str) -> None:
        self.notifier.holds.add(host)

    @precondition(lambda self: self.notifier.held)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        urls = sorted({url for url, _ in self.notifier.held})
        self.notifier.end(data.draw(st.sampled_from(urls)))

    # the world

    @rule(topic=st.sampled_from(TOPICS))
    def change(self, topic: str) -> None:
        moment = self.notifier.next_moment()
        for reader in self.readers.values():
            if reader.subscription.topic == topic:
                reader.changed_at = moment
        self.engine.change(topic)

    @rule(seconds=st.sampled_from((0.05, 0.1, 0.3, 0.6, 1.0, 6.0, 15.0, 130.0)))
    def pass_time(self, seconds: float) -> None:
        self.engine.advance(seconds, max(0.05, seconds / 20))

    @rule(operations=st.sets(st.sampled_from(OPERATIONS)))
    def store_becomes_unavailable(self, operations: set[str]) -> None:
        self.engine.unavailable.clear()
        self.engine.unavailable.update(operations)

    @rule(operations=st.sets(st.sampled_from((*OPERATIONS, "next_due"))))
    def store_becomes_slow(self, operations: set[str]) -> None:
        self.engine.hurry()
        self.engine.slow.update(operations)

    @rule()
    def crash(self) -> None:
        self.engine.crash()
        self.engine.slow.clear()
        self.engine.start(**self.options)

    @rule()
    def stop(self) -> None:
        stopped = self.engine.distribution.stopService()
        self.engine.advance(3)
        self.engine.hurry()
        self.engine.advance(3)
        self.engine.successResultOf(stopped)
        self.engine.crash()
        self.engine.start(**self.options)

    @invariant()
    def nobody_is_told_who_left(self) -> None:
        assert self.notifier.harassed == []

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.engine.assert_no_spin()
        self.engine.unavailable.clear()
        self.engine.hurry()
        for host in HOSTS:
            self.answer(host, None)
        self.notifier.end()
        self.engine.advance(200, 0.5)
        self.engine.advance(2 * LONGEST_PAUSE, 20)
        left = {one.callback.url for topic in TOPICS for one in self.engine.subscriptions(topic)}
        for url in left:
            reader = self.readers[url]
            assert reader.told_at >= reader.changed_at, f"{reader} was not notified"
        self.nobody_is_told_who_left()
        assert self.engine.walks() == []
        assert [self.engine.waiting(topic) for topic in TOPICS] == [{}, {}]
        assert self.engine.distribution._attempts.under_way == []
        assert self.engine.distribution._retries._in_memory == {}
        self.engine.store.stopService()


class DeliveryTests(SynchronousTestCase):
    def test_everybody_is_told_in_the_end(self) -> None:
        often = settings(max_examples=examples(15), stateful_step_count=40, deadline=None)
        run_machine(DeliveryMachine, often)
