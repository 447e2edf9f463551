"""A walk: notifies the subscriptions of a changed topic, in order of their ids.

The walk reads the subscriptions in slices and submits an attempt for each.  Several times a second
it saves, in one transaction, its *cursor* (the id of the last subscription it submitted an attempt
for), the ids up to there that have no outcome yet, and the outcomes of the others.

The process has claimed the fan-out, or a part of it, so that no other node walks it as well.  If
the process ends, however it ends, another walk resumes it, here or on another node: first with the
subscriptions that had no outcome, then from the cursor.  Nobody is left out, and only subscribers
whose outcome was not saved are notified twice.

A slow subscriber holds up neither the others nor the end of the walk.  When all attempts are
submitted, the walk waits ``SETTLE_SECONDS`` for those that have begun.  Then it stores a pending
notification for each subscriber that has not answered, claimed by this process, which is deleted if
the subscriber answers after all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall

from rsscloud_broker.delivery.attempt import (
    Attempt,
    LateOutcomes,
    OutdatedSubscriptions,
    changes_something,
    claimed_delivery,
    delayed,
    merged_change,
)
from rsscloud_broker.delivery.attempts import Attempts
from rsscloud_broker.delivery.tally import Tally
from rsscloud_broker.errors import ClaimLost
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model import Callback, Content, Subscription, SubscriptionOptions
from rsscloud_broker.model.work import Delivery, Fanout, Recorded
from rsscloud_broker.policy.memory_budget import Reservations
from rsscloud_broker.storage import Store
from rsscloud_broker.util.retry import StoreRetry

#: How long a walk waits before it goes on without some attempts: at its end for those that have
#: begun, and at any time for those behind a busy host.
SETTLE_SECONDS = 0.5

#: Outcomes are saved this many seconds after the first of them, or when there are this many.
SAVE_WITHIN_SECONDS, SAVE_AT_OUTCOMES = 0.1, 100

#: How many attempts are submitted at a time, and how many outcomes may be unsaved then.  After a
#: kill, the subscribers of unsaved outcomes and of running attempts are notified twice.
BATCH_SIZE, MAX_UNSAVED = 100, 200

#: How many attempts to one host wait in memory; more than that wait in the store.
MAX_QUEUED_OF_HOST = 100

#: After this many subscriptions a walk stops if other fan-outs wait.
TURN_SUBSCRIPTIONS = 3000


@frozen
class Tools:
    """What ``Distribution`` gives to every walk.

    :ivar tally: returns the tally of a fan-out.
    :ivar others_wait: whether fan-outs wait for one of the running walks to stop.
    :ivar walk_budget: limits the bytes of contents that walks hold in memory.
    :ivar slice_size: how many subscriptions are read at a time.
    :ivar record: saves deliveries as soon as the store is available.
    :ivar when_saved: waits until all deliveries given to ``record`` so far are saved.
    :ivar note_saved: is called with deliveries that a walk saved, and what the store answered.
    """

    store: Store
    clock: IClock
    attempts: Attempts
    tally: Callable[[Fanout], Tally]
    store_retry: StoreRetry
    record: Callable[[Sequence[Delivery]], None]
    when_saved: Callable[[], Awaitable[None]]
    note_saved: Callable[[Sequence[Delivery], Recorded], None]
    others_wait: Callable[[], bool]
    walk_budget: Reservations
    slice_size: int


@define(eq=False)
class _Progress:
    """How far a walk is.

    The walk has come to each subscription with an id up to the cursor.  Such a subscription is

    - in ``open``: its attempt waits for a slot or runs;
    - in ``to_resubmit``: its attempt ended without being made, and has to be submitted again;
    - in ``outcomes``: its attempt is over, and what to store of it is not saved yet; or
    - in none of them: it is settled.

    :ivar cursor: the id of the last subscription that an attempt was submitted for.
    :ivar open: the attempts without an outcome, by the id of their subscriptions.
    :ivar to_resubmit: the ids of subscriptions whose attempts have to be submitted again.
    :ivar outcomes: the outcomes that are to be saved.
    """

    cursor: int
    open: dict[int, Attempt] = field(factory=dict)
    to_resubmit: set[int] = field(factory=set)
    outcomes: list[Delivery] = field(factory=list)

    def outstanding(self) -> list[int]:
        """The ids up to the cursor that have no outcome."""
        return sorted({*self.open, *self.to_resubmit})


class Walk:
    """Notifies every subscriber of a topic.  ``Distribution`` creates and runs it.

    :ivar topic: the topic's URL.
    :ivar unsaved: the subscriptions whose outcomes are not saved yet, or change nothing, by id.
    :ivar over: ``Distribution`` fires this when ``run`` has ended.
    """

    def __init__(self, fanout: Fanout, tools: Tools) -> None:
        self.topic = fanout.topic
        self.unsaved: list[int] = []
        self.over: Deferred[None] = Deferred()
        self._fanout = fanout  # claimed by this process
        self._tools = tools
        self._progress = _Progress(fanout.cursor)
        self._content: Content | None = None
        self._tally = tools.tally(fanout)
        # For the slice being submitted, and for the next one, which is read meanwhile.
        self._outdated = self._outdated_ahead = OutdatedSubscriptions()
        # Subscriptions whose attempts wait for a slot; the walk submits no more meanwhile.
        self._waiting: set[int] = set()
        self._waiters: list[Deferred[None]] = []
        self._saving = False
        self._timer: IDelayedCall | None = None
        self._problem: BaseException | None = None
        self._late: LateOutcomes | None = None

    def reconsider(
        self, topic: str, callback: Callback, options: SubscriptionOptions | None
    ) -> None:
        """Note that a subscription was stored with some options, or removed (None).

        The slices that are being read or submitted may hold an older version of it.
        """
        self._outdated.add(topic, callback, options)
        self._outdated_ahead.add(topic, callback, options)

    def lose_claim(self) -> None:
        """Stop, since this process does not hold the claim of the fan-out any more."""
        self._problem = ClaimLost()
        self._wake()

    async def run(self) -> None:
        """Walk from the cursor to the end, or until the service stops, or until the turn is over
        and other fan-outs wait.

        :raises ClaimLost: another node goes on with the fan-out, or it is not needed any more.
        :raises Exception: the progress could not be saved.
        """
        tools = self._tools
        await tools.walk_budget.enter(self._fanout.content_size)
        self._tally.begin()
        next_slice = self._read(self._progress.cursor)
        try:
            self._content = await self._read_content()
            await self._resume()
            done, turn = False, TURN_SUBSCRIPTIONS
            while not (done or self._must_stop or (turn <= 0 and tools.others_wait())):
                subscriptions = await next_slice
                done = len(subscriptions) < tools.slice_size
                if not done:  # read the next slice while this one is submitted
                    self._outdated_ahead = OutdatedSubscriptions()
                    next_slice = self._read(subscriptions[-1].id)
                turn -= len(subscriptions)
                await self._submit_all(subscriptions)
                self._outdated = self._outdated_ahead
                if self._must_stop:
                    done = False
            await self._settle()
            done = done and not self._progress.to_resubmit  # a stop put these off
            await self._save_rest(done=done)
        finally:
            self._call_off_timer()
            next_slice.addErrback(lambda failure: None)  # nobody waits for it any more
            tools.walk_budget.leave(self._fanout.content_size)
        if done:
            self._tally.end()

    @property
    def _must_stop(self) -> bool:
        return self._problem is not None or self._tools.store_retry.stopped

    def _read(self, cursor: int) -> Deferred[list[Subscription]]:
        """Begin to read the slice of subscriptions behind a cursor."""
        tools, until = self._tools, self._fanout.last_id
        read = partial(tools.store.subscriptions, self.topic, cursor, tools.slice_size, until)
        return Deferred.fromCoroutine(self._tools.store_retry(read))

    async def _read_content(self) -> Content | None:
        """The content when the fan-out began; there may be a newer one by now."""
        key = self._fanout.content_id
        if key is None:
            return None
        return await self._tools.store_retry(partial(self._tools.store.content, key))

    async def _resume(self) -> None:
        """Submit attempts again that had no outcome when an earlier process ended."""
        outstanding = self._fanout.outstanding
        if outstanding:
            read = partial(self._tools.store.subscriptions_of, outstanding)
            subscriptions = await self._tools.store_retry(read)
            self._progress.to_resubmit = {one.id for one in subscriptions}
            await self._submit_all(subscriptions)

    # --- submitting attempts

    async def _submit_all(self, subscriptions: Sequence[Subscription]) -> None:
        """Submit attempts in batches, each when few wait; stop early if the walk stops."""
        for start in range(0, len(subscriptions), BATCH_SIZE):
            await self._wait_for_capacity()
            if self._must_stop:
                return
            self._submit(subscriptions[start : start + BATCH_SIZE])

    async def _wait_for_capacity(self) -> None:
        """Wait until no attempt waits for a slot and few outcomes are unsaved."""
        until = self._tools.clock.seconds() + SETTLE_SECONDS
        while self._waiting or len(self.unsaved) > MAX_UNSAVED:
            if self._must_stop:
                return
            if self._waiting and self._tools.clock.seconds() >= until:
                self._leave_busy_hosts()
            await self._wait_for_change(self._seconds_to(until) if self._waiting else None)

    def _leave_busy_hosts(self) -> None:
        """Stop waiting for attempts behind busy hosts.

        At most ``MAX_QUEUED_OF_HOST`` of each host stay in memory; the others go back to the store.
        """
        queued: dict[str, int] = {}
        for key in list(self._waiting):
            attempt = self._progress.open[key]
            if not attempt.behind_its_host:
                continue
            self._waiting.discard(key)
            queued[attempt.host] = queued.get(attempt.host, 0) + 1
            if queued[attempt.host] > MAX_QUEUED_OF_HOST:
                self._tools.attempts.withdraw(attempt, 0.0)

    def _submit(self, subscriptions: Sequence[Subscription]) -> None:
        """Submit an attempt for each subscription, and move the cursor behind it."""
        tools, progress, outdated = self._tools, self._progress, self._outdated
        content_id = self._fanout.content_id if self._fanout.pushed else None
        for subscription in subscriptions:
            progress.cursor = max(progress.cursor, subscription.id)
            progress.to_resubmit.discard(subscription.id)
            if subscription.wants_content and self._subscribed_later(subscription):
                continue
            if outdated.options and subscription in outdated:
                self._take_delivery(self._for_the_store(subscription))
                continue
            self._waiting.add(subscription.id)
            attempt = tools.attempts.submit(
                subscription,
                self._take_delivery,
                changed=True,
                began=self._stop_waiting_for,
                content=self._content,
                content_id=content_id,
            )
            if attempt.over:
                self._waiting.discard(subscription.id)
                continue
            progress.open[subscription.id] = attempt
            if attempt.behind_its_host and not tools.attempts.is_quick(attempt.host):
                self._waiting.discard(subscription.id)
                if tools.attempts.queued_for(attempt.host) > MAX_QUEUED_OF_HOST:
                    tools.attempts.withdraw(attempt, 0.0)

    def _for_the_store(self, subscription: Subscription) -> Delivery:
        """What to store for an outdated subscription instead of making an attempt.

        The attempt is made by the subscription as it is stored then.  Pushed contents are not
        merged, so the notification of a pushed content keeps that content.
        """
        now = self._tools.clock.wall_seconds()
        if self._fanout.pushed and subscription.wants_content and not subscription.ended:
            return delayed(subscription, now, now, self._fanout.content_id)
        return merged_change(subscription, now)

    def _subscribed_later(self, subscription: Subscription) -> bool:
        """Whether a subscriber that wants content subscribed after the walk began.

        A walk without content began when no subscriber wanted any, unless the store had no space
        for the content (``Fanout.lacks_content``).  The broker notifies those that subscribed later
        separately, so the walk skips them.
        """
        has_content = self._content is not None or self._fanout.lacks_content
        return not (has_content or subscription.ended)

    def _stop_waiting_for(self, attempt: Attempt) -> None:
        """Note that an attempt waits for no slot any more."""
        self._waiting.discard(attempt.subscription.id)
        if not self._waiting:
            self._wake()

    def _take_delivery(self, delivery: Delivery) -> None:
        """Note the outcome of an attempt, to be saved soon."""
        progress = self._progress
        self._tally.add(delivery, late=self._late is not None)
        if self._late is not None:
            self._late.add(delivery)
            return
        progress.open.pop(delivery.subscription.id, None)
        if self._tools.attempts.stopping and delivery.outcome is None:
            progress.to_resubmit.add(delivery.subscription.id)
        elif changes_something(delivery):
            progress.outcomes.append(delivery)
        self.unsaved.append(delivery.subscription.id)
        self._save_soon()
        if not progress.open:
            self._wake()

    # --- waiting for changes

    async def _wait_for_change(self, seconds: float | None = None) -> None:
        """Return at the next call of ``_wake``, or after some seconds."""
        change: Deferred[None] = Deferred()
        self._waiters.append(change)
        timer = None
        if seconds is not None:
            timer = self._tools.clock.callLater(seconds, self._wake)
        await change
        if timer is not None and timer.active():
            timer.cancel()

    def _wake(self) -> None:
        """Wake all that wait in ``_wait_for_change``."""
        changes, self._waiters = self._waiters, []
        for change in changes:
            change.callback(None)

    async def _settle(self) -> None:
        """Wait until every attempt has begun, and for outcomes ``SETTLE_SECONDS`` at most.

        After that time attempts behind busy hosts go back to the store.
        """
        progress, clock = self._progress, self._tools.clock
        until = clock.seconds() + SETTLE_SECONDS
        while progress.open:
            some_wait = any(not one.begun for one in progress.open.values())
            if clock.seconds() >= until:
                for attempt in list(progress.open.values()):
                    if attempt.behind_its_host:
                        self._tools.attempts.withdraw(attempt, 0.0)
                if not some_wait:
                    break
            await self._wait_for_change(self._seconds_to(until))

    def _seconds_to(self, until: float) -> float:
        """The seconds until ``until``; if that is over, the seconds until the next look."""
        seconds = until - self._tools.clock.seconds()
        return seconds if seconds > 0 else SETTLE_SECONDS

    # --- saving

    def _save_soon(self) -> None:
        if len(self.unsaved) >= SAVE_AT_OUTCOMES:
            self._save()
        elif self._timer is None and not self._saving:
            self._timer = self._tools.clock.callLater(SAVE_WITHIN_SECONDS, self._save)

    def _call_off_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _save(self) -> None:
        """Save the progress; if that is running, it is saved once more afterwards."""
        self._call_off_timer()
        if not self._saving:
            self._saving = True
            Deferred.fromCoroutine(self._save_once())

    async def _save_once(self, *, done: bool = False) -> None:
        """Save the progress.  If that fails, ``_problem`` says why, and ``run`` raises it."""
        progress = self._progress
        outcomes, progress.outcomes = progress.outcomes, []
        saved, outstanding = len(self.unsaved), progress.outstanding()
        record = partial(
            self._tools.store.record_slice,
            self._fanout,
            progress.cursor,
            outcomes,
            done,
            outstanding,
        )
        try:
            # Save earlier attempts for these subscriptions first: saved later, their success
            # would delete a pending notification that this walk stores.
            await self._tools.when_saved()
            recorded = await self._tools.store_retry(record)
        except (CancelledError, Exception) as problem:  # run() raises it
            self._problem = problem
        else:
            del self.unsaved[:saved]
            if recorded.lost:
                self._problem = ClaimLost()
            else:
                self._tools.note_saved(outcomes, recorded)
        self._saving = False
        if self.unsaved and self._problem is None and self._late is None:
            self._save_soon()
        self._wake()

    async def _save_rest(self, *, done: bool) -> None:
        """Save all progress, and a pending notification for each attempt without an outcome.

        The outcomes of these attempts are saved one by one later.

        :raises Exception: the progress could not be saved.
        """
        self._call_off_timer()
        while self._saving:
            await self._wait_for_change()
        progress, now = self._progress, self._tools.clock.wall_seconds()
        under_way, progress.open = list(progress.open.values()), {}
        self._tally.add_waiting(one.subscription for one in under_way)
        # The pending notification of a follower is stored for the attempt that it follows.
        progress.outcomes += [claimed_delivery(one, now) for one in under_way if not one.follows]
        self._late = late = LateOutcomes(self._tools.record, under_way)
        if self._problem is None:
            await self._save_once(done=done)
        is_lost = isinstance(self._problem, ClaimLost)
        if is_lost:
            for one in under_way:
                self._tools.attempts.disown(one)
        late.release(self._fanout.node if is_lost or self._problem is None else None)
        if self._problem is not None:
            raise self._problem
