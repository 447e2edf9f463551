"""Distribution: notifies every subscriber of a topic that has changed.

The work is in the store, and an event is only a hint to look there:

- a *fan-out* is a row with a cursor; a ``Walk`` notifies the topic's subscriptions in order of
  their ids;
- a *pending notification*, which failed or was put off, is a row with the time at which it is
  due; ``Retries`` tries it again.

Both produce attempts (``Attempts``).  The ``Dispatcher`` limits how many run at once, in total
and per host; the circuit ``Breakers`` hold back hosts that do not answer.

Several walks run at the same time and take turns: if other fan-outs wait, a walk stops after a few
thousand subscriptions, and its fan-out goes to the end of the queue.  Changes of a topic during
its walk together cause one more walk after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.delivery.attempts import Attempts
from rsscloud_broker.delivery.breakers import Breakers
from rsscloud_broker.delivery.contents import OF_WALKS, SMALL, Contents
from rsscloud_broker.delivery.dispatch import Dispatcher
from rsscloud_broker.delivery.options import STOP_TIMEOUT, DistributionOptions
from rsscloud_broker.delivery.retries import Retries
from rsscloud_broker.delivery.tally import Tally
from rsscloud_broker.delivery.walk import Tools, Walk
from rsscloud_broker.errors import ClaimLost, Unavailable
from rsscloud_broker.events import (
    ClaimsLost,
    ContentFetched,
    Event,
    HostFreed,
    NodesCounted,
    NotificationDelivered,
    SubscriptionRemoved,
    SubscriptionStored,
    TopicChanged,
    TopicEnded,
    WorkHinted,
)
from rsscloud_broker.interfaces import IClock, IEventSink, INotifyingOutbound, SinkParts
from rsscloud_broker.model import Callback, Subscription, SubscriptionOptions
from rsscloud_broker.model.work import Fanout
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.policy.memory_budget import Reservations
from rsscloud_broker.storage import Store
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.retry import UNAVAILABLE_PAUSE, StoreRetry

#: Seconds for which changes of circuit breakers are collected before they are stored; and until
#: that is tried again, if the store could not take them.
SAVE_BREAKERS, SAVE_AGAIN = 1.0, 10.0


@implementer(IEventSink)
class Distribution(Service):
    """The sink that runs the stored fan-outs and retries the pending notifications.

    :param max_slow: how many notifications without a quick answer may run; see the options.
    :param max_walks: how many fan-outs run at the same time.
    """

    name = "distribution"
    handles = (
        TopicChanged,
        TopicEnded,
        ContentFetched,
        SubscriptionStored,
        SubscriptionRemoved,
        HostFreed,
        WorkHinted,
        NodesCounted,
        ClaimsLost,
    )
    log = Logger()

    def __init__(
        self,
        options: DistributionOptions,
        parts: SinkParts,
        *,
        max_slow: int | None = None,
        # How many fan-outs run at the same time; if there are more, they take turns.
        max_walks: int = 50,
    ) -> None:
        self._store: Store = parts.store
        self._clock: IClock = parts.clock
        self._bus = parts.bus
        self._counters = parts.counters
        self._max_walks = max_walks
        self._breakers = Breakers(
            parts.clock,
            parts.counters,
            self._breakers_changed,
            self._free,
            first_pause=options.breaker_pause,
            publish=parts.bus.publish,
        )
        self._saving_breakers: IDelayedCall | None = None
        self._are_breakers_late = False
        self._breakers_read_at = float("-inf")
        self._live_nodes = 1  # until ``NodesCounted`` says otherwise
        self._store_retry = StoreRetry(parts.clock, "Distribution")
        couriers: Any = parts.outbound if INotifyingOutbound.providedBy(parts.outbound) else None
        self._dispatcher = Dispatcher(
            parts.clock,
            parts.counters,
            slots=options.in_flight,
            per_host=options.per_host,
            max_slow=options.max_slow if max_slow is None else max_slow,
            lateness=lambda: couriers.lateness if couriers else 0.0,
        )
        self._contents = Contents(parts.store, parts.bus, parts.clock)
        self._attempts = Attempts(
            parts.notifiers,
            parts.clock,
            self._dispatcher,
            self._breakers,
            parts.counters,
            self._contents,
            parts.blocks or Blocks(),
            delivered=self._delivered,
        )
        self._retries = Retries(
            parts.store,
            parts.clock,
            self._attempts,
            self._store_retry,
            parts.counters,
            parts.bus.publish,
            parts.history,
            lambda key: any(key in walk.unsaved for walk in self._walks.values()),
        )
        self._tools = Tools(
            store=parts.store,
            clock=parts.clock,
            attempts=self._attempts,
            tally=self._tally,
            store_retry=self._store_retry,
            record=self._retries.record,
            when_saved=self._retries.when_saved,
            note_saved=self._retries.note_saved,
            others_wait=lambda: bool(self._queue),
            walk_budget=Reservations(OF_WALKS, SMALL),
            slice_size=options.slice_size,
        )
        # By the id of the fan-out.  If there are more than this many, the oldest tally is dropped,
        # and counts from 0 when its walk goes on.
        self._tallies: BoundedDict[int, Tally | None] = BoundedDict(10_000)
        # The walks that run, by topic, and the ids of their fan-outs; the fan-outs that wait, by
        # topic; and the ids of those whose walks have ended since the store was last read.
        self._walks: dict[str, Walk] = {}
        self._ids_of_walks: set[int] = set()
        self._queue: dict[str, Fanout] = {}  # the one that waits longest first
        self._ids_of_ended: set[int] = set()
        #: By host, port or topic that notifications waited for; first come, first done.
        self._to_make_due: dict[str, Callable[[float], Awaitable[bool]]] = {}
        self._is_making_due = False
        self._is_hinted = False
        self._looking: Deferred[None] | None = None
        parts.counters.fan_outs.set_function(lambda: len(self._walks))

    def startService(self) -> None:
        super().startService()
        self._store_retry.stopped = self._attempts.stopping = False
        Deferred.fromCoroutine(self._begin())

    def stopService(self) -> Deferred[None]:
        """Finish or put off the notifications in flight; the rest waits in the store."""
        super().stopService()
        self._store_retry.stop()
        self._retries.stop()
        return Deferred.fromCoroutine(self._stop())

    async def handle(self, event: Event) -> None:
        """Pass an event on to the part that looks into the store for its work."""
        if isinstance(event, TopicChanged | TopicEnded):
            self._contents.forget(event.topic)
            self._look_for_fanouts()
        elif isinstance(event, ContentFetched):
            self._make_due(event.topic, partial(self._store.make_due_for_content, event.topic))
        elif isinstance(event, SubscriptionStored):
            self._follow_stored(event.subscription)
        elif isinstance(event, SubscriptionRemoved):
            self._attempts.withdraw_of(event.topic, event.callback)
            self._reconsider(event.topic, event.callback, None)
        elif isinstance(event, HostFreed):
            if not event.before_start:
                self._breakers.free(event.host)
            self._free(event.host)
        elif isinstance(event, WorkHinted):
            await self._follow_hint(event.kind)
        elif isinstance(event, NodesCounted):
            self._live_nodes = event.live
            self._dispatcher.set_node_count(event.live)
        elif isinstance(event, ClaimsLost):
            self._lose_claims()

    async def _follow_hint(self, kind: str) -> None:
        """Look for work that another node has made or left.

        :param kind: see ``storage.hints``; empty for the hint that comes each second.
        """
        since = self._clock.seconds() - self._breakers_read_at
        # A hint may be lost: so every ten seconds the breakers of other nodes are looked at.
        if kind == "host" or (self._live_nodes > 1 and since >= 10.0):
            await self._follow_breakers()
        if kind == "host" or kind.startswith("job."):
            return
        self._contents.forget_all()
        self._look_for_fanouts()
        if kind == "freed":
            self._retries.wake_at(self._clock.wall_seconds())

    async def _follow_breakers(self) -> None:
        """Open and close breakers as other nodes have done."""
        own = self._breakers.own_changes()
        with suppress(Unavailable):  # it is tried again at the next hint, which comes in a second
            if self._breakers.follow(await self._store.hosts(), own):
                self._retries.wake_at(self._clock.wall_seconds())
            self._breakers_read_at = self._clock.seconds()

    def _lose_claims(self) -> None:
        """Begin no attempt any more that another node may make."""
        for walk in self._walks.values():
            walk.lose_claim()
        for attempt in self._attempts.under_way:
            self._attempts.withdraw(attempt)
            self._attempts.disown(attempt)
        self._retries.lose_claims()

    def _follow_stored(self, stored: Subscription) -> None:
        """Take note of a stored subscription: attempts by its former state are outdated."""
        self._breakers.answered(stored.callback)  # it has just been verified
        self._attempts.withdraw_outdated(stored)
        self._reconsider(stored.topic, stored.callback, stored.options)
        if stored.attempts is not None:  # the topic changed during the verification
            self._retries.wake_at(self._clock.wall_seconds())

    def _reconsider(
        self, topic: str, callback: Callback, options: SubscriptionOptions | None
    ) -> None:
        """Have retries and walks not use a subscription as it was before a change."""
        self._retries.reconsider(topic, callback, options)
        for walk in self._walks.values():
            walk.reconsider(topic, callback, options)

    async def _begin(self) -> None:
        """Restore the breakers, and look for fan-outs and for notifications that are due."""
        try:
            self._breakers.restore(await self._store_retry(self._store.hosts))
            due = await self._store_retry(self._store.next_due)
        except CancelledError:
            return
        except Exception:  # log a bug, and begin all the same
            self.log.failure("Looking for what waits failed.")
            due = None
        self._retries.wake_at(self._clock.wall_seconds() if due is None else due)
        self._look_for_fanouts()

    async def _stop(self) -> None:
        """End or put off what is under way, give the rest back, and store the breakers."""
        self._attempts.withdraw_all()
        timeout = self._clock.callLater(STOP_TIMEOUT, self._attempts.call_off)
        walks = [walk.over for walk in self._walks.values()]
        await DeferredList([*walks, *([self._looking] if self._looking else [])])
        with suppress(Unavailable):  # then they are free when this node has ended
            await self._store.hand_back()
        await self._attempts.when_idle()
        await self._retries.when_idle()
        self._dispatcher.stop()
        if timeout.active():
            timeout.cancel()
        if self._saving_breakers is not None:
            self._saving_breakers.cancel()
            await self._save_breakers()

    def _delivered(self, subscription: Subscription, at: float) -> None:
        """Publish that a subscriber accepted a notification, if anybody wants to know."""
        if self._bus.wants(NotificationDelivered):
            self._bus.publish(NotificationDelivered(subscription, at))

    def _tally(self, fanout: Fanout) -> Tally:
        """The tally of a fan-out, which has it for all turns of its walk."""
        tally = self._tallies.get(fanout.id, None)
        if tally is None:
            tally = Tally(fanout, self._clock, self._counters, self._bus.publish)
            self._tallies[fanout.id] = tally
        return tally

    def _breakers_changed(self, pause: float = SAVE_BREAKERS) -> None:
        """Store the changes of breakers after a pause, together with those that come until then."""
        if self._saving_breakers is None:
            self._saving_breakers = self._clock.callLater(
                pause, lambda: Deferred.fromCoroutine(self._save_breakers())
            )

    def _free(self, host: str, origin: str = "") -> None:
        """Make the notifications due that were put off while a host did not answer."""

        def make(now: float) -> Awaitable[bool]:
            """Whether any notification for the host became due."""
            return self._store.make_due(host, origin, now)

        self._make_due(origin or host, make)

    def _make_due(self, what: str, make: Callable[[float], Awaitable[bool]]) -> None:
        """Make notifications due that waited for a host or a topic, beside all else.

        They take turns, so that a store that comes back is not asked for all of them at once.
        """
        self._to_make_due[what] = make
        if not self._is_making_due:
            Deferred.fromCoroutine(self._make_all_due())

    async def _make_all_due(self) -> None:
        """Make notifications due for one host or topic after the other, until none is left."""
        self._is_making_due = True
        while self._to_make_due:
            what = next(iter(self._to_make_due))
            make = self._to_make_due.pop(what)  # it may be asked for once more meanwhile
            try:
                await self._store_retry(partial(self._make_some_due, make), what)
            except CancelledError:  # the service stops; they stay due at their time
                self._to_make_due.clear()
            except Exception:  # they stay due at their time; log the bug
                self.log.failure("Making notifications for {what} due failed.", what=what)
        self._is_making_due = False

    async def _make_some_due(self, make: Callable[[float], Awaitable[bool]]) -> None:
        """Make notifications due for one host or topic, and look for them if there are any."""
        now = self._clock.wall_seconds()
        if await make(now):
            self._retries.wake_at(now)

    async def _save_breakers(self) -> None:
        """Store the changes of breakers; if that fails, try again later."""
        self._saving_breakers = None
        changes = self._breakers.take_changes()
        try:
            await self._store.record_hosts(changes)
        except Exception as error:
            self._breakers.not_saved(changes)
            self._log_late_breakers(error)
            if self.running:
                self._breakers_changed(SAVE_AGAIN)
        else:
            self._breakers.saved(changes)
            self._are_breakers_late = False

    def _log_late_breakers(self, error: Exception) -> None:
        """Log that breakers could not be stored, once until that succeeds."""
        if not isinstance(error, Unavailable):
            self.log.failure("Storing the states of circuit breakers failed.")
        elif not self._are_breakers_late:
            self._are_breakers_late = True
            self.log.error("The states of circuit breakers are not stored: {error}", error=error)

    def _look_for_fanouts(self) -> None:
        """Read fan-outs from the store and start walks; if that is running, do it once more
        afterwards.
        """
        self._is_hinted = True
        if self._looking is not None or not self.running:
            return
        looking: Deferred[None] = Deferred()
        self._looking = looking
        Deferred.fromCoroutine(self._start_walks_while_hinted()).addBoth(looking.callback)

    async def _start_walks_while_hinted(self) -> None:
        """Read the fan-outs in the store, and start walks for them as far as more walks may run."""
        try:
            while self._is_hinted and self.running:
                self._is_hinted = False
                self._ids_of_ended.clear()
                # Read enough that fan-outs which had a turn do not hide those which had none.
                begun = sum(fanout.cursor > 0 for fanout in self._queue.values())
                fanouts = partial(self._store.fanouts, 2 * self._max_walks + begun)
                self._enqueue(await self._store_retry(fanouts))
                while self._queue and len(self._walks) < self._max_walks:
                    await self._claim_and_walk()
        except CancelledError:
            pass  # the service stops; the store keeps the fan-outs
        except Exception:  # log a bug, and look again after a pause
            self.log.failure("Looking for fan-outs failed.")
            self._clock.callLater(UNAVAILABLE_PAUSE, self._look_for_fanouts)
        finally:
            self._looking = None

    async def _claim_and_walk(self) -> None:
        """Start walks for those that wait longest, unless another node has just claimed them."""
        next_ones = list(self._queue)[: self._max_walks - len(self._walks)]
        keys = [self._queue.pop(topic).id for topic in next_ones]
        for fanout in await self._store_retry(partial(self._store.claim_fanouts, keys)):
            if self.running and fanout.topic not in self._walks:
                self._walk(fanout)

    def _enqueue(self, fanouts: Sequence[Fanout]) -> None:
        """Update the queue: fan-outs that are in it keep their order, new ones go to its end."""
        waiting = {
            fanout.topic: fanout
            for fanout in fanouts
            if fanout.topic not in self._walks
            # A walk may have it under the URL from which its topic has moved since.
            and fanout.id not in self._ids_of_walks
            # Its walk may have ended since the store was read.
            and fanout.id not in self._ids_of_ended
        }
        queued = {topic: waiting[topic] for topic in self._queue if topic in waiting}
        self._queue = queued | waiting

    def _walk(self, fanout: Fanout) -> None:
        """Start the walk of a fan-out; when it ends, look for further fan-outs."""
        self._contents.forget(fanout.topic)  # the event may have been dropped
        walk = self._walks[fanout.topic] = Walk(fanout, self._tools)
        self._ids_of_walks.add(fanout.id)

        def end_walk(result: object) -> None:
            """Forget the walk, which has ended, and look for the next ones."""
            del self._walks[fanout.topic]
            self._ids_of_walks.discard(fanout.id)
            self._ids_of_ended.add(fanout.id)
            walk.over.callback(None)
            self._look_for_fanouts()

        Deferred.fromCoroutine(self._run(walk)).addBoth(end_walk)

    async def _run(self, walk: Walk) -> None:
        """Run a walk to its end, and log why it ended early, if it did."""
        try:
            await walk.run()
        except ClaimLost:
            self.log.info("Another node may go on notifying of {topic}.", topic=walk.topic)
        except CancelledError:
            self.log.info("Notifying of {topic} goes on after the next start.", topic=walk.topic)
        except Exception:  # log a bug, and walk the fan-out again after a pause
            self.log.failure("Notifying of {topic} failed; it is resumed.", topic=walk.topic)
            await self._store_retry.pause()
