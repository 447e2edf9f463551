"""A walk over the subscriptions of a changed topic.

The walk reads subscriptions in the order of their ids and hands them out: it submits an attempt
for each.  The store knows how far it is, by a *cursor*, and which subscriptions up to there have
no outcome yet.  What came of the others is saved with that, several times a second.

So whatever ends the process, the walk goes on after the next start with those that had no
outcome, and then from its cursor: nobody is left out, and only those are told twice whose outcome
was not saved.

A slow subscriber holds up neither the others nor the end of the walk.  When everybody
has been handed out, the walk waits a moment for those that have begun; then a notification
waits in the store for each that has not answered, claimed by this process, until its outcome is
known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall

from rsscloud_broker.counters import Counters
from rsscloud_broker.interfaces import IClock, IStore
from rsscloud_broker.model import Content, Subscription, SubscriptionOptions
from rsscloud_broker.records import Delivery, Fanout, Recorded
from rsscloud_broker.sinks.attempt import Attempt, leave_to_the_store
from rsscloud_broker.sinks.attempts import Attempts
from rsscloud_broker.sinks.carried import WalkBudget
from rsscloud_broker.sinks.outdated import OutdatedSubscriptions
from rsscloud_broker.store_retry import StoreRetry

#: Seconds that a walk waits at its end for attempts that have begun, or at any time for
#: those behind a busy host, before it goes on without them.
SETTLE = 0.5

#: Seconds after an outcome within which it is saved, and the number of outcomes that are
#: saved at once.
SAVE_WITHIN, SAVE_AT = 0.1, 100

#: Subscriptions that are handed out at a time, and outcomes that may be unsaved then: with those
#: that are under way they are the ones that a kill has told twice.
PORTION, MOST_UNSAVED = 100, 200

#: Attempts of one host that wait in memory; what is beyond waits in the store.
LINE_OF_HOST = 100

#: Subscriptions that are handed out before a walk leaves its slot to others that wait.
TURN = 3000


@frozen
class Tools:
    """What every walk needs.

    :ivar others_wait: whether there are walks that have no slot.
    :ivar walk_budget: for contents that are in memory.
    :ivar slice_size: subscriptions that are read together.
    :ivar record: saves deliveries, when that is possible.
    :ivar recorded: waits until those have been saved that were to be saved by now.
    :ivar saved: looks after what the store made of deliveries that were saved.
    """

    store: IStore
    clock: IClock
    attempts: Attempts
    counters: Counters
    store_retry: StoreRetry
    record: Callable[[Sequence[Delivery]], None]
    recorded: Callable[[], Awaitable[None]]
    saved: Callable[[Sequence[Delivery], Recorded], None]
    others_wait: Callable[[], bool]
    walk_budget: WalkBudget
    slice_size: int


@define(eq=False)
class _Progress:
    """What a walk has handed out, and what came of it.

    :ivar cursor: the id of the last subscription that was handed out.
    :ivar open: the attempts whose outcomes are not known.
    :ivar left: the ids of those that are to be handed out again.
    :ivar outcomes: what is to be saved, and ``unsaved`` how many outcomes are not saved yet, those
        that change nothing included.
    """

    cursor: int
    open: dict[int, Attempt] = field(factory=dict)
    left: set[int] = field(factory=set)
    outcomes: list[Delivery] = field(factory=list)
    unsaved: int = 0

    def without_outcome(self) -> list[int]:
        """The ids of subscriptions that are handed out and have no outcome."""
        return sorted({*self.open, *self.left})


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
        self._progress = _Progress(fanout.cursor)
        self._content: Content | None = None
        self._first_told = fanout.cursor > 0
        # Of what is handed out, and of what is read ahead meanwhile.
        self._outdated = self._outdated_ahead = OutdatedSubscriptions()
        self._in_line: set[int] = set()  # attempts that others of the walk wait for
        self._changes: list[Deferred[None]] = []
        self._saving = False
        self._timer: IDelayedCall | None = None
        self._problem: BaseException | None = None
        self._late: _Late | None = None

    def reconsider(
        self, topic: str, callback_url: str, options: SubscriptionOptions | None
    ) -> None:
        """A subscription was stored with some options, or removed if there are none; what was
        read, or is being read, may have it as it was.
        """
        self._outdated.add(topic, callback_url, options)
        self._outdated_ahead.add(topic, callback_url, options)

    async def run(self) -> None:
        """Walk from the cursor to the end, or until the service stops; or for one turn, where
        others wait for a slot.
        """
        tools = self._tools
        await tools.walk_budget.enter(self._fanout.content_size)
        reading = self._read(self._progress.cursor)
        try:
            self._content = await self._read_content()
            await self._resume()
            done, turn = False, TURN
            while not (done or self._stops or (turn <= 0 and tools.others_wait())):
                subscriptions = await reading
                done = len(subscriptions) < tools.slice_size
                if not done:  # the next are read while these are handed out
                    self._outdated_ahead = OutdatedSubscriptions()
                    reading = self._read(subscriptions[-1].id)
                turn -= len(subscriptions)
                await self._hand_out_all(subscriptions)
                self._outdated = self._outdated_ahead
                if self._stops:
                    done = False
            await self._settle()
            done = done and not self._progress.left  # those that a stop put off
            await self._save_rest(done=done)
        finally:
            self._call_off_timer()
            reading.addErrback(lambda failure: None)  # nobody waits for it any more
            tools.walk_budget.leave(self._fanout.content_size)
        if done:
            tools.counters.last_latency.observe(self._age())

    @property
    def _stops(self) -> bool:
        return self._problem is not None or self._tools.store_retry.stopped

    def _read(self, cursor: int) -> Deferred[list[Subscription]]:
        read = partial(self._tools.store.subscriptions, self.topic, cursor, self._tools.slice_size)
        return Deferred.fromCoroutine(self._tools.store_retry(read))

    async def _read_content(self) -> Content | None:
        """What was found when the walk began; by now there may be a newer one."""
        key = self._fanout.content_id
        if key is None:
            return None
        return await self._tools.store_retry(partial(self._tools.store.content, key))

    async def _resume(self) -> None:
        """Hand those out again that had no outcome when an earlier process ended."""
        left = self._fanout.left
        if left:
            read = partial(self._tools.store.subscriptions_of, left)
            subscriptions = await self._tools.store_retry(read)
            self._progress.left = {one.id for one in subscriptions}
            await self._hand_out_all(subscriptions)

    # --- handing out

    async def _hand_out_all(self, subscriptions: Sequence[Subscription]) -> None:
        for start in range(0, len(subscriptions), PORTION):
            await self._wait_for_capacity()
            if self._stops:
                return
            self._hand_out(subscriptions[start : start + PORTION])

    async def _wait_for_capacity(self) -> None:
        """Wait until so few wait for a slot, and so few outcomes are unsaved, that more may be
        handed out.
        """
        until = self._tools.clock.seconds() + SETTLE
        while self._in_line or self._progress.unsaved > MOST_UNSAVED:
            if self._stops:
                return
            if self._in_line and self._tools.clock.seconds() >= until:
                self._leave_behind()
            await self._change(self._rest(until) if self._in_line else None)

    def _leave_behind(self) -> None:
        """Wait no more for those behind a busy host: they follow as its slots come free."""
        lines: dict[str, int] = {}
        for key in list(self._in_line):
            attempt = self._progress.open[key]
            if not attempt.behind_its_host:
                continue
            self._in_line.discard(key)
            lines[attempt.host] = lines.get(attempt.host, 0) + 1
            if lines[attempt.host] > LINE_OF_HOST:
                self._tools.attempts.withdraw(attempt, 0.0)

    def _hand_out(self, subscriptions: Sequence[Subscription]) -> None:
        tools, progress = self._tools, self._progress
        for subscription in subscriptions:
            progress.cursor = max(progress.cursor, subscription.id)
            progress.left.discard(subscription.id)
            if not self._concerns(subscription):
                continue
            if subscription in self._outdated:
                self._done(leave_to_the_store(subscription, tools.clock.wall_seconds()))
                continue
            self._in_line.add(subscription.id)
            attempt = tools.attempts.submit(
                subscription,
                self._done,
                changed=True,
                began=partial(self._began, subscription.id),
                content=self._content,
                content_id=self._fanout.content_id if self._fanout.pushed else None,
            )
            if attempt.over:
                self._in_line.discard(subscription.id)
                continue
            progress.open[subscription.id] = attempt
            if attempt.behind_its_host and not tools.attempts.is_quick(attempt.host):
                self._in_line.discard(subscription.id)
                if tools.attempts.in_line_of(attempt.host) > LINE_OF_HOST:
                    tools.attempts.withdraw(attempt, 0.0)

    def _concerns(self, subscription: Subscription) -> bool:
        """Whether the walk is for a subscription.

        A walk that carries no content began when nobody wanted any, unless there was no room
        for it: who wants it now came later, and has got, or waits for, what has changed since.
        """
        return (
            self._content is not None
            or self._fanout.later
            or bool(subscription.ended)
            or not subscription.wants_content
        )

    def _began(self, key: int) -> None:
        self._in_line.discard(key)
        if not self._in_line:
            self._tell_change()

    def _done(self, delivery: Delivery) -> None:
        """Take in an outcome."""
        progress = self._progress
        if delivery.outcome is not None and delivery.outcome.success:
            self._told()
        if self._late is not None:
            self._late.add(delivery)
            return
        progress.open.pop(delivery.subscription.id, None)
        if self._tools.attempts.stopping and delivery.outcome is None:
            progress.left.add(delivery.subscription.id)
        elif changes_something(delivery):
            progress.outcomes.append(delivery)
        progress.unsaved += 1
        self._save_soon()
        if not progress.open:
            self._tell_change()

    def _told(self) -> None:
        if not self._first_told:
            self._first_told = True
            self._tools.counters.first_latency.observe(self._age())

    def _age(self) -> float:
        return self._tools.clock.wall_seconds() - self._fanout.begun_at

    # --- waiting for changes

    async def _change(self, seconds: float | None = None) -> None:
        """Return when something has changed, or after some seconds."""
        change: Deferred[None] = Deferred()
        self._changes.append(change)
        timer = None
        if seconds is not None:
            timer = self._tools.clock.callLater(seconds, self._tell_change)
        await change
        if timer is not None and timer.active():
            timer.cancel()

    def _tell_change(self) -> None:
        changes, self._changes = self._changes, []
        for change in changes:
            change.callback(None)

    async def _settle(self) -> None:
        """Wait for those that have been handed out, but not for long for any that has begun."""
        progress, clock = self._progress, self._tools.clock
        until = clock.seconds() + SETTLE
        while progress.open:
            waits = any(not one.begun for one in progress.open.values())
            if clock.seconds() >= until:
                for attempt in list(progress.open.values()):
                    if attempt.behind_its_host:
                        self._tools.attempts.withdraw(attempt, 0.0)
                if not waits:
                    break
            await self._change(self._rest(until))

    def _rest(self, until: float) -> float:
        """The seconds up to a time; when that is over, until it is looked again."""
        seconds = until - self._tools.clock.seconds()
        return seconds if seconds > 0 else SETTLE

    # --- saving

    def _save_soon(self) -> None:
        if self._progress.unsaved >= SAVE_AT:
            self._save()
        elif self._timer is None and not self._saving:
            self._timer = self._tools.clock.callLater(SAVE_WITHIN, self._save)

    def _call_off_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _save(self) -> None:
        """Save what there is, unless that is going on: then once more after it."""
        self._call_off_timer()
        if not self._saving:
            self._saving = True
            Deferred.fromCoroutine(self._save_once())

    async def _save_once(self, *, done: bool = False) -> None:
        progress = self._progress
        outcomes, progress.outcomes = progress.outcomes, []
        saved, left = progress.unsaved, progress.without_outcome()
        record = partial(
            self._tools.store.record_slice, self._fanout, progress.cursor, outcomes, done, left
        )
        try:
            # Earlier attempts for these subscriptions are saved first: a success
            # would take away the notification that waits since.
            await self._tools.recorded()
            recorded = await self._tools.store_retry(record)
        except (CancelledError, Exception) as problem:  # the walk ends by it
            self._problem = problem
        else:
            progress.unsaved -= saved
            self._tools.saved(outcomes, recorded)
        self._saving = False
        if progress.unsaved and self._problem is None and self._late is None:
            self._save_soon()
        self._tell_change()

    async def _save_rest(self, *, done: bool) -> None:
        """Save all there is.  Those that have not answered wait in the store from now on, and
        what comes of them is saved by itself.

        :raises Exception: it could not be saved.
        """
        self._call_off_timer()
        while self._saving:
            await self._change()
        progress, now = self._progress, self._tools.clock.wall_seconds()
        under_way, progress.open = list(progress.open.values()), {}
        # What another attempt tells waits in the store as that one's, if at all.
        progress.outcomes += [_claimed(one, now) for one in under_way if not one.follows]
        self._late = late = _Late(self._tools.record)
        if self._problem is None:
            await self._save_once(done=done)
        late.release()
        if self._problem is not None:
            raise self._problem


class _Late:
    """Outcomes that come after a walk has saved all there was: they wait until that is saved."""

    def __init__(self, record: Callable[[Sequence[Delivery]], None]) -> None:
        self._record = record
        self._waiting: list[Delivery] | None = []

    def add(self, delivery: Delivery) -> None:
        """Save an outcome, when it is time."""
        if self._waiting is None:
            self._record([delivery])
        else:
            self._waiting.append(delivery)

    def release(self) -> None:
        """Save what waits, and from now on everything at once."""
        waiting, self._waiting = self._waiting or [], None
        if waiting:
            self._record(waiting)


def _claimed(attempt: Attempt, now: float) -> Delivery:
    """That a notification waits, on which this process works."""
    return Delivery(
        attempt.subscription,
        None,
        now,
        attempts=attempt.subscription.attempts or 0,
        retry_at=now,
        content_id=attempt.content_id,
        claimed=True,
    )


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
