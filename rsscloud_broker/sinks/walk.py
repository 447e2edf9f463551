"""A walk over the subscriptions of a changed topic.

Subscriptions are read in slices, in the order of their ids.  What came of a
slice is saved together with the cursor that says how far the walk is; slices
are saved in order.  A few slices are under way at the same time, so that one
subscriber who takes long does not hold up the rest: after a moment its slice is
saved without it, with a note that its notification waits, which is removed when
it has been taken after all.

So whatever ends the process, the walk goes on from its cursor after the next
start; what was under way then is told twice, and nobody is left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias, TypeVar

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore, succeed
from twisted.internet.interfaces import IDelayedCall

from rsscloud_broker.counters import Counters
from rsscloud_broker.interfaces import IClock, IStore
from rsscloud_broker.model import Content, Delivery, Fanout, Subscription, Terms
from rsscloud_broker.patience import Patience
from rsscloud_broker.sinks.attempts import Attempt, Attempts, leave_to_the_store
from rsscloud_broker.sinks.carried import WalkRoom

T = TypeVar("T")

#: Seconds after which a slice is saved without those who have not answered yet.
SETTLE = 0.5

#: Seconds after which an attempt that was under way when the process ended is
#: made again: more than any attempt takes.
SAFETY = 60.0


@frozen
class Tools:
    """What every walk needs.

    :ivar others_wait: whether there are walks that have no place.
    :ivar walk_room: for contents that are in memory.
    :ivar slice_size: subscriptions that are read and saved together.
    :ivar slices: how many of those are under way at a time.
    :ivar record: saves deliveries, when that is possible.
    :ivar recorded: waits until those have been saved that were to be saved by now.
    :ivar wake_for: sees to it that the deliveries that wait are made when due.
    """

    store: IStore
    clock: IClock
    attempts: Attempts
    counters: Counters
    patience: Patience
    record: Callable[[Sequence[Delivery]], None]
    recorded: Callable[[], Awaitable[None]]
    wake_for: Callable[[Sequence[Delivery]], None]
    others_wait: Callable[[], bool]
    walk_room: WalkRoom
    slice_size: int
    slices: int


#: The terms of subscriptions that were stored or removed, by topic and callback URL; None
#: for those that were removed.
_Changed: TypeAlias = dict[tuple[str, str], Terms | None]


@define(eq=False)
class _Slice:
    """Some subscriptions, and what came of each.

    :ivar content: what notifications carry, to those who want it.
    :ivar pushed: whether that was handed in.
    :ivar changed: subscriptions that were not any more what was read here.
    :ivar told: called for each subscriber that took its notification.
    :ivar begun: fires when every attempt has begun or been put off.
    :ivar settled: fires when it is known what to save of every one.
    """

    _tools: Tools
    _subscriptions: Sequence[Subscription]
    _content: Content | None
    _pushed: bool
    _changed: _Changed
    _told: Callable[[], None]
    begun: Deferred[None] = field(factory=Deferred, init=False)
    settled: Deferred[None] = field(factory=Deferred, init=False)
    deliveries: list[Delivery] = field(factory=list, init=False)
    _open: dict[int, Attempt] = field(factory=dict, init=False)
    _in_line: int = field(init=False)
    _late: list[Delivery] | None = field(factory=list, init=False)
    _timer: IDelayedCall | None = field(default=None, init=False)

    def notify(self) -> None:
        """Begin."""
        self._in_line = len(self._subscriptions) + 1  # until all are submitted
        for subscription in self._subscriptions:
            if self._changed and self._is_outdated(subscription):
                self._done(leave_to_the_store(subscription, self._tools.clock.wall_seconds()))
                self._began()
                continue
            attempt = self._tools.attempts.submit(
                subscription,
                self._done,
                news=True,
                began=self._began,
                content=self._content,
                pushed=self._pushed,
            )
            if not attempt.over:
                self._open[subscription.id] = attempt
        self._began()
        if self._open:
            self._timer = self._tools.clock.callLater(SETTLE, self._settle)
        else:
            self.settled.callback(None)

    def _is_outdated(self, subscription: Subscription) -> bool:
        key = subscription.topic, subscription.callback.url
        return key in self._changed and self._changed[key] != subscription.terms

    def saved(self) -> None:
        """What comes from now on is saved by itself."""
        late, self._late = self._late, None
        if late:
            self._tools.record(late)

    def _began(self) -> None:
        self._in_line -= 1
        if not self._in_line:
            self.begun.callback(None)

    def _done(self, delivery: Delivery) -> None:
        if delivery.outcome is not None and delivery.outcome.success:
            self._told()
        if self.settled.called:
            if self._late is None:
                self._tools.record([delivery])
            else:
                self._late.append(delivery)
            return
        self.deliveries.append(delivery)
        self._open.pop(delivery.subscription.id, None)
        if self._timer is not None and not self._open:
            self._timer.cancel()
            self.settled.callback(None)

    def _settle(self) -> None:
        """Save the slice without those who take long, if all have begun by now.

        Those in line behind a busy host are put off; those who wait for a place
        like everybody else are waited for.
        """
        self._timer = None
        for attempt in list(self._open.values()):
            if attempt.behind_its_host:
                self._tools.attempts.withdraw(attempt)
        if self._in_line:
            self._timer = self._tools.clock.callLater(SETTLE, self._settle)
            return
        now = self._tools.clock.wall_seconds()
        for attempt in self._open.values():
            tried = attempt.subscription.attempts or 0
            self.deliveries.append(
                Delivery(attempt.subscription, None, now, attempts=tried, retry_at=now + SAFETY)
            )
        self.settled.callback(None)


class Walk:
    """Notifies every subscriber of a topic.

    :ivar topic: its URL.
    :ivar over: for whoever runs it, to fire when it is.
    """

    def __init__(self, fanout: Fanout, tools: Tools) -> None:
        self.topic = fanout.topic
        self.over: Deferred[None] = Deferred()
        self._fanout = fanout
        self._tools = tools
        self._first_told = fanout.cursor > 0
        self._unsaved = False
        self._changed: _Changed = {}

    def reconsider(self, topic: str, callback_url: str, terms: Terms | None) -> None:
        """A subscription was stored with some terms, or removed if there are none; the
        slice that is read ahead may have it as it was.
        """
        self._changed[topic, callback_url] = terms

    async def run(self) -> None:
        """Walk from the cursor to the end, or until there is no patience any more; or
        through as many slices as may be under way, where others wait for a place.
        """
        tools, cursor, turn = self._tools, self._fanout.cursor, self._tools.slices
        room = DeferredSemaphore(tools.slices)
        saved: Deferred[None] = succeed(None)
        done = False
        await tools.walk_room.enter(self._fanout.content_size)
        reading = self._read(cursor)
        try:
            content = await self._content()
            while not (done or self._unsaved or tools.patience.stopped):
                if turn <= 0 and tools.others_wait():
                    break
                turn -= 1
                await room.acquire()
                subscriptions = await reading
                cursor = subscriptions[-1].id if subscriptions else cursor
                done = len(subscriptions) < tools.slice_size
                concerned, pushed = self._concerned(subscriptions, content), self._fanout.pushed
                changed, self._changed = self._changed, {}
                slice_ = _Slice(tools, concerned, content, pushed, changed, self._told)
                slice_.notify()
                if not done:  # the next is read while these wait for their places
                    reading = self._read(cursor)
                saved = Deferred.fromCoroutine(self._save(slice_, cursor, done, after=saved))
                saved.addBoth(_release, room)
                await slice_.begun
        except Exception:
            with suppress(CancelledError):
                await saved
            raise
        finally:
            reading.addErrback(lambda failure: None)  # nobody waits for it any more
            tools.walk_room.leave(self._fanout.content_size)
        await saved
        if done:
            tools.counters.last_latency.observe(self._age())

    def _read(self, cursor: int) -> Deferred[list[Subscription]]:
        read = partial(self._tools.store.subscriptions, self.topic, cursor, self._tools.slice_size)
        return Deferred.fromCoroutine(self._tools.patience(read))

    async def _content(self) -> Content | None:
        """What was found when the walk began; by now there may be a newer one."""
        key = self._fanout.content_id
        if key is None:
            return None
        return await self._tools.patience(partial(self._tools.store.content, key))

    def _concerned(
        self, subscriptions: Sequence[Subscription], content: Content | None
    ) -> Sequence[Subscription]:
        """Those among some subscriptions that the walk is for.

        One that carries no content began when nobody wanted any, unless there was no room
        for it: who wants it now came later, and has got, or waits for, what has changed since.
        """
        if content is not None or self._fanout.later:
            return subscriptions
        return [one for one in subscriptions if one.ended or not one.wants_content]

    def _told(self) -> None:
        if not self._first_told:
            self._first_told = True
            self._tools.counters.first_latency.observe(self._age())

    def _age(self) -> float:
        return self._tools.clock.wall_seconds() - self._fanout.begun_at

    async def _save(self, slice_: _Slice, cursor: int, done: bool, after: Deferred[None]) -> None:
        await slice_.settled
        deliveries = [one for one in slice_.deliveries if changes_something(one)]
        record = self._tools.store.record_slice
        try:
            await after
            # Earlier attempts for these subscriptions are saved first: a success
            # would take away the notification that waits since.
            await self._tools.recorded()
            await self._tools.patience(partial(record, self._fanout, cursor, deliveries, done))
        except BaseException:
            self._unsaved = True
            raise
        finally:
            slice_.saved()
        self._tools.wake_for(deliveries)


def changes_something(delivery: Delivery) -> bool:
    """Whether a delivery is to be stored: most succeed, and change nothing."""
    if delivery.retry_at is not None:
        return True
    if delivery.outcome is None:
        return False
    subscription = delivery.subscription
    return (
        not delivery.outcome.success
        or subscription.attempts is not None
        or subscription.consecutive_errors > 0
    )


def _release(result: T, room: DeferredSemaphore) -> T:
    room.release()
    return result
