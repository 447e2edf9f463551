"""Distribution: a changed topic is carried to everybody who subscribed to it.

The work is in the store: a fan-out is a row with a cursor, a walk over the
topic's subscriptions in the order of their ids.  A slice of subscriptions is
read and notified; then the cursor and what came of the slice are saved in one
transaction.  An event is only a hint that there is a new row.  So whatever ends
the process, the walk goes on from its cursor after the next start, and at most
one slice of each topic is notified twice.

While a topic is walked, further changes of it wait; together they make one more
walk after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

from attrs import field, frozen
from attrs.validators import ge
from twisted.application.service import Service
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredList,
    DeferredSemaphore,
    FirstError,
    gatherResults,
)
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.events import Event, TopicChanged
from rsscloud_broker.interfaces import IEventSink, INotifier, IStore, SinkParts
from rsscloud_broker.model import (
    Delivery,
    Fanout,
    Notification,
    Outcome,
    Subscription,
    Unavailable,
)

#: Seconds until the store is tried again after it could not be used.
UNAVAILABLE_PAUSE = 10.0

T = TypeVar("T")

#: Seconds that a stopping broker waits for notifications in flight.
STOP_PATIENCE = 8.0


@frozen
class DistributionOptions:
    """Options of the distribution sink.

    :ivar in_flight: notifications under way at the same time, in all.
    :ivar slice_size: subscriptions that are read, notified and saved together.
    :ivar topics: topics that are walked at the same time.
    """

    in_flight: int = field(default=200, validator=ge(1))
    slice_size: int = field(default=200, validator=ge(1))
    topics: int = field(default=50, validator=ge(1))


@implementer(IEventSink)
class Distribution(Service):
    """Walks the fan-outs that the store has."""

    name = "distribution"
    handles = (TopicChanged,)
    log = Logger()

    def __init__(self, options: DistributionOptions, parts: SinkParts) -> None:
        self._store: IStore = parts.store
        self._notifiers: Mapping[str, INotifier] = parts.notifiers
        self._clock: IReactorTime = parts.clock
        self._slice_size = options.slice_size
        self._max_walks = options.topics
        self._in_flight = DeferredSemaphore(options.in_flight)
        self._walks: dict[str, Deferred[None]] = {}
        self._hinted = False
        self._looking: Deferred[None] | None = None
        self._pauses: set[Deferred[None]] = set()
        self._gave_up = False

    def startService(self) -> None:
        super().startService()
        self._gave_up = False
        self._look()

    def stopService(self) -> Deferred[None]:
        """Stop after the slices that are under way; the rest waits in the store."""
        super().stopService()
        for pause in tuple(self._pauses):
            pause.cancel()
        under_way = list(self._walks.values())
        if self._looking is not None:
            under_way.append(self._looking)
        stopped = DeferredList(under_way, consumeErrors=True)
        impatience = self._clock.callLater(STOP_PATIENCE, self._give_up, under_way)
        return stopped.addCallback(lambda results: _call_off(impatience))

    def _give_up(self, under_way: list[Deferred[None]]) -> None:
        self._gave_up = True
        for deferred in under_way:
            deferred.cancel()

    async def handle(self, event: Event) -> None:
        self._look()

    def _look(self) -> None:
        """Look for fan-outs to walk; if that is going on, once more after it."""
        self._hinted = True
        if self._looking is not None or not self.running:
            return
        looking: Deferred[None] = Deferred()
        self._looking = looking
        Deferred.fromCoroutine(self._look_while_hinted()).addBoth(looking.callback)

    async def _look_while_hinted(self) -> None:
        try:
            while self._hinted and self.running:
                self._hinted = False
                for fanout in await self._when_available(self._fanouts):
                    self._begin(fanout)
        except CancelledError:
            pass  # the service stops; the store remembers
        except Exception:  # a bug must not end distribution until the next start
            self.log.failure("Looking for fan-outs failed.")
        finally:
            self._looking = None

    def _fanouts(self) -> Awaitable[list[Fanout]]:
        return self._store.fanouts(self._max_walks)

    async def _when_available(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Call a method of the store, again and again while it is unavailable."""
        while True:
            try:
                return await operation()
            except Unavailable as error:
                self.log.error("Distribution waits for the store: {error}", error=error)
            await self._pause()

    async def _pause(self) -> None:
        """Wait a while; a service that stops does not."""
        if not self.running:
            raise CancelledError
        pause: Deferred[None] = deferLater(self._clock, UNAVAILABLE_PAUSE)
        self._pauses.add(pause)
        try:
            await pause
        finally:
            self._pauses.discard(pause)

    def _begin(self, fanout: Fanout) -> None:
        topic = fanout.topic
        if topic in self._walks or len(self._walks) >= self._max_walks:
            return  # the end of a walk makes us look again
        over: Deferred[None] = Deferred(lambda d: walk.cancel())
        self._walks[topic] = over
        walk = Deferred.fromCoroutine(self._walk(fanout))

        def ended(result: object) -> None:
            del self._walks[topic]
            if not over.called:  # nobody waits for a walk that was slow to be cancelled
                over.callback(None)
            self._look()

        walk.addBoth(ended)

    async def _walk(self, fanout: Fanout) -> None:
        try:
            await self._walk_slices(fanout)
        except CancelledError:
            self.log.info("Notifying of {topic} goes on after the next start.", topic=fanout.topic)
        except Exception:  # a bug must not end distribution until the next start
            self.log.failure("Notifying of {topic} failed; it is resumed.", topic=fanout.topic)
            await self._pause()

    async def _walk_slices(self, fanout: Fanout) -> None:
        cursor, done = fanout.cursor, False
        while self.running and not done:
            read = partial(self._store.subscriptions, fanout.topic, cursor, self._slice_size)
            slice_ = await self._when_available(read)
            deliveries = await self._deliver_all(slice_)
            cursor = slice_[-1].id if slice_ else cursor
            done = len(slice_) < self._slice_size
            # What came of the slice is kept until it can be saved: nobody is told twice.
            save = partial(self._store.record_slice, fanout, cursor, _to_record(deliveries), done)
            await self._when_available(save)

    async def _deliver_all(self, slice_: list[Subscription]) -> list[Delivery]:
        try:
            return await gatherResults(
                [Deferred.fromCoroutine(self._deliver(subscription)) for subscription in slice_],
                consumeErrors=True,
            )
        except FirstError as error:  # nothing else makes a delivery fail
            raise CancelledError from error

    async def _deliver(self, subscription: Subscription) -> Delivery:
        callback = subscription.callback
        notifier = self._notifiers.get(callback.protocol)
        if notifier is None:
            outcome = Outcome(False, f"no notifier for {callback.protocol} runs here")
            marks = None
        else:
            outcome = await self._notify(notifier, Notification(subscription.topic, callback))
            marks = notifier.marks_after
        if not outcome.success:
            self.log.warn(
                "{callback} was not told of {topic} by {protocol}: {reason} "
                "({errors} in a row before this)",
                callback=callback.url,
                topic=subscription.topic,
                protocol=callback.protocol,
                reason=outcome.reason,
                errors=subscription.consecutive_errors,
            )
        return Delivery(subscription, outcome, self._clock.seconds(), marks)

    async def _notify(self, notifier: INotifier, notification: Notification) -> Outcome:
        await self._in_flight.acquire()
        try:
            if self._gave_up:  # its turn came because others were cancelled
                raise CancelledError
            return await notifier.notify(notification)
        except CancelledError:
            raise
        except Exception as error:  # a notifier's bug is its own and not the walk's
            self.log.failure("Notifier {protocol} failed.", protocol=notifier.protocol)
            return Outcome(False, f"the notifier failed: {error}")
        finally:
            self._in_flight.release()


def _to_record(deliveries: list[Delivery]) -> list[Delivery]:
    """Those that change what is stored: failures, and successes that clear one."""
    return [d for d in deliveries if not d.outcome.success or d.subscription.consecutive_errors]


def _call_off(call: IDelayedCall) -> None:
    if call.active():
        call.cancel()
