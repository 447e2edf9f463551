"""A test of any store against a simple model of a store, driven by hypothesis.

Hypothesis calls the methods of the store in any order, and after each step the store must return
what the model has::

    run_machine(partial(StoreMachine, my_fixture), settings())

To cover another method of ``Store``, add a field to the model for the data that it stores, a rule
that calls it, and a line to ``everything_is_as_in_the_model`` that compares the two.
"""

from __future__ import annotations

from collections import Counter

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from rsscloud_broker.model import Callback, Lease, Outcome, Subscription, Topic
from rsscloud_broker.model.work import Delivery
from tests.store_contract import rules
from tests.store_contract.model import KEEP_ENDED, Waits

_HOSTS = ("reader.example", "river.example")
_CALLBACKS = (
    Callback(f"http://{_HOSTS[0]}/x", "http-post"),
    Callback(f"http://{_HOSTS[0]}/x", "https-post"),
    Callback(f"http://{_HOSTS[1]}/RPC2", "xml-rpc", "river.update"),
    Callback(f"http://{_HOSTS[1]}/RPC2", "xml-rpc", "river.notify"),
)

_callbacks = st.sampled_from(_CALLBACKS)
_leases = st.sampled_from((60, rules.HOUR))
_options = st.sampled_from(({}, {"secret": "ß", "signature": "sha256"}))
# Quarters of seconds are exact both as floats and as whole microseconds.
_delays = st.sampled_from((0.25, 30.0, 60.0))


class StoreMachine(rules.PingsAndTopics):
    """Calls the methods of a store in any order, and compares it with the model after each."""

    # subscriptions

    @initialize(
        callbacks=st.sets(_callbacks, max_size=3),
        wants_content=st.booleans(),
        pinged=st.booleans(),
        under_way=st.sampled_from(("nothing", "a walk", "a notification")),
        moves=st.sampled_from(((), (rules.TOPICS[1::-1]), (rules.TOPICS[0], rules.PLACES[2]))),
    )
    def begin_with_subscriptions(
        self,
        callbacks: set[Callback],
        wants_content: bool,
        pinged: bool,
        under_way: str,
        moves: tuple[str, ...],
    ) -> None:
        """Begin in a state that hypothesis would need many steps to reach."""
        for callback in sorted(callbacks, key=str):
            self.put_subscription(rules.TOPICS[0], callback, rules.HOUR, None, {}, wants_content)
        if pinged:
            self.add_ping("A site", rules.TOPICS[0], "", rules.TOPICS[1], (), 0)
        if under_way != "nothing":
            self.read(rules.TOPICS[0], b"1", True, False, self.now)
            self.topics_are_as_in_the_model()
        if under_way == "a notification":
            for one in self.model.subscriptions_of(rules.TOPICS[0]):
                put_off = Delivery(one, None, at=self.now, retry_at=self.now + 30)
                self.call(self.store.record_deliveries, [put_off])
                self._record([put_off])
        if moves:
            self.move_topic(*moves)

    @rule(
        topic=rules.topics,
        callback=_callbacks,
        seconds=_leases,
        known=st.none() | rules.contents.map(rules.digest_of),
        options=_options,
        wants_content=st.booleans(),
    )
    def put_subscription(
        self,
        topic: str,
        callback: Callback,
        seconds: int,
        known: bytes | None,
        options: dict[str, str],
        wants_content: bool,
    ) -> None:
        wanted = Subscription(
            topic, callback, Lease(self.now, seconds), options=options, wants_content=wants_content
        )
        stored = self.call(self.store.put_subscription, wanted, known)
        before = self._id_of(topic, callback)
        if before is None:
            assert stored.id > max((one.id for one in self.known_subscriptions), default=0)
        else:
            assert stored.id == before
            if before in self.model.pending:
                waits = self.model.pending[before]
                anew = evolve(waits, attempts=0, due=self.now, failing_since=None)
                self.model.pending[before] = anew
        self.model.subscriptions[stored.id] = evolve(wanted, id=stored.id)
        current = self.model.current_url(topic)
        read = self.model.topics.setdefault(current, Topic(current))
        if not read.ended:
            self.model.due.setdefault(current, self.now)
        differs = read.digest is not None and read.digest != known
        if known is not None and (differs or read.ended):
            self.model.pending.setdefault(stored.id, Waits(0, self.now))
            kept = self.model.newest_of(topic) is not None
            if wants_content and not kept and not read.ended:
                self.model.asked[current] = self.now
        assert stored == self.model.subscription(stored.id)
        self.known_subscriptions.append(stored)

    def _id_of(self, topic: str, callback: Callback) -> int | None:
        for key, one in self.model.subscriptions.items():
            if (one.topic, one.callback) == (topic, callback):
                return key
        return None

    @rule(topic=rules.topics, callback=_callbacks)
    def remove_subscription(self, topic: str, callback: Callback) -> None:
        key = self._id_of(topic, callback)
        removed = self.call(self.store.remove_subscription, topic, callback)
        assert removed == (key is not None)
        if key is not None:
            self.model.drop(key)

    @rule(topic=rules.topics, callback=_callbacks)
    def has_subscription(self, topic: str, callback: Callback) -> None:
        there = self._id_of(topic, callback) is not None
        assert self.call(self.store.has_subscription, topic, callback) == there

    @rule(data=st.data())
    def sweep(self, data: st.DataObject) -> None:
        idle_before = self.past(data)
        dropping = [key for key, one in self.model.subscriptions.items() if one.dropping]
        expired = [
            key
            for key, one in self.model.subscriptions.items()
            if one.lease.expires_at <= self.now and not one.dropping
        ]
        for key in (*dropping, *expired):
            self.model.drop(key)
        idle = [
            url
            for url, topic in self.model.topics.items()
            if not self.model.subscriptions_of(url) and self._is_idle(topic, idle_before)
        ]
        for url in idle:
            self.model.forget(url)
        for url in rules.PLACES:
            self.model.remove_unneeded(url)
        swept = self.call(self.store.sweep, self.now, idle_before)
        assert (swept.expired, swept.failing) == (len(expired), len(dropping))
        assert swept.topics == len(idle)

    def _is_idle(self, topic: Topic, idle_before: float) -> bool:
        if topic.ended:
            return (topic.changed_at or 0.0) < self.now - KEEP_ENDED
        asked = topic.url in self.model.asked
        return not asked and (topic.read_at is None or topic.read_at < idle_before)

    # fan-out

    @rule(data=st.data())
    def record_slice(self, data: st.DataObject) -> None:
        """Record a slice of any fan-out, finished or not."""
        if not self.known_walks:
            return
        there = [walk.shown for walk in self.model.walks if walk.shown is not None]
        still_there = data.draw(st.booleans()) and there
        shown = data.draw(st.sampled_from(still_there or list(self.known_walks.values())))
        cursor = data.draw(st.integers(0, 20))
        done = data.draw(st.booleans())
        outstanding = tuple(sorted(data.draw(st.sets(st.integers(1, 20), max_size=3))))
        deliveries = self._deliveries(data)
        self.call(self.store.record_slice, shown, cursor, deliveries, done, outstanding)
        self._record(deliveries)
        walk = self.model.walk_of(shown.id)
        if walk is not None and done:
            self.model.end_walk(walk)
        elif walk is not None:
            walk.cursor, walk.outstanding = cursor, outstanding
        if done:
            self.model.remove_unneeded(self.model.current_url(shown.topic))

    @rule(limit=rules.limits)
    def look_at_walks(self, limit: int) -> None:
        shown = [walk.shown for walk in self.model.next_walks()]
        assert self.call(self.store.fanouts, limit) == shown[:limit]

    @rule(data=st.data())
    def record_deliveries(self, data: st.DataObject) -> None:
        deliveries = self._deliveries(data)
        self.call(self.store.record_deliveries, deliveries)
        self._record(deliveries)

    def _deliveries(self, data: st.DataObject) -> list[Delivery]:
        """Deliveries to some subscriptions, of which some may have been removed."""
        if not self.known_subscriptions:
            return []
        some = st.sampled_from(self.known_subscriptions)
        drawn = data.draw(st.lists(some, max_size=4, unique_by=lambda one: one.id))
        return [self._delivery(data, subscription) for subscription in drawn]

    def _delivery(self, data: st.DataObject, subscription: Subscription) -> Delivery:
        outcome, waits = data.draw(
            st.sampled_from(
                (
                    (Outcome(True), False),
                    (Outcome(True), True),
                    (Outcome(False, "refused"), False),
                    (Outcome(False, "refused"), True),
                    (Outcome(False, "gone", gone=True), False),
                    (None, True),
                )
            )
        )
        delivered = outcome is not None and outcome.success
        return Delivery(
            subscription,
            outcome,
            at=self.now,
            drop_after_failures=data.draw(st.sampled_from((None, 1, 3))),
            attempts=0 if delivered else data.draw(st.integers(0, 5)),
            retry_at=self.now + data.draw(_delays) if waits else None,
            pause=data.draw(st.sampled_from((None, 0.0, 5.0))) if outcome is None else None,
            claimed=data.draw(st.booleans()),
        )

    def _record(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self.model.record_delivery(delivery)

    @rule(
        limit=rules.limits,
        busy=st.sets(st.sampled_from(_HOSTS), max_size=1),
        data=st.data(),
    )
    def claim_due(self, limit: int, busy: set[str], data: st.DataObject) -> None:
        self.go_on(data, {waits.due for waits in self.model.pending.values()})
        due = sorted(
            waits.due
            for key, waits in self.model.pending.items()
            if waits.due <= self.now
            and not waits.claimed
            and self.model.subscriptions[key].callback.host not in busy
        )
        claimed = self.call(self.store.claim_due, self.now, limit, busy)
        assert [self.model.pending[one.id].due for one in claimed] == due[:limit]
        assert len({one.id for one in claimed}) == len(claimed)
        for one in claimed:
            assert one == self.model.subscription(one.id)
            assert one.callback.host not in busy
            self.model.pending[one.id] = evolve(self.model.pending[one.id], claimed=True)

    # comparison

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        self.topics_are_as_in_the_model()
        model, store, call = self.model, self.store, self.call
        pings = model.pings_between(0, rules.END_OF_TIME)
        assert call(store.pings, 0, rules.END_OF_TIME, None, rules.ALL) == pings
        assert call(store.count_pings) == len(pings) + model.pruned
        hours = Counter(int(ping.received_at // rules.HOUR) for ping in pings)
        assert call(store.ping_hours, 0, rules.END_OF_TIME) == hours
        for url in rules.TOPICS:
            assert call(store.subscriptions, url, 0, rules.ALL) == model.subscriptions_of(url)
        free = [waits.due for waits in model.pending.values() if not waits.claimed]
        first_due = min(free, default=None)
        assert call(store.next_due) == first_due
