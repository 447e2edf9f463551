"""Carries events from the core to the sinks; publishing never blocks and never raises.

Each sink has a queue of its own and handles one event at a time, in order.  A slow sink fills only
its own queue; a sink that fails is logged and counted, and the others go on.  When a queue is full,
the event is dropped.  That costs delay and never data: an event tells of a fact that is in the
store, and the events still in the queue make the sink look there.
"""

from __future__ import annotations

from collections import deque

from attrs import define, field
from prometheus_client import Counter
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer
from zope.interface.verify import verifyObject

from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import Event
from rsscloud_broker.interfaces import IEventBus, IEventSink
from rsscloud_broker.util.deferreds import returns_deferred


@define(eq=False)
class _Queue:
    """The events that wait for one sink, and the coroutine that hands them to the sink.

    :ivar size: how many events may wait.
    :ivar missed: counts events by sink, with ``dropped`` or ``failed``.
    :ivar dropping: whether an event was dropped since the sink last took one.
    :ivar feeding: whether ``feed`` runs.
    :ivar emptied: Deferreds of ``drain``, which fire when no event waits any more.
    """

    sink: IEventSink
    size: int
    log: Logger
    missed: Counter
    waiting: deque[Event] = field(factory=deque)
    dropping: bool = False
    feeding: bool = False
    emptied: list[Deferred[None]] = field(factory=list)

    def put(self, event: Event) -> None:
        """Add an event; drop and count it if the queue is full."""
        if len(self.waiting) >= self.size:
            self.missed.labels(self.sink.name, "dropped").inc()
            if not self.dropping:  # log once each time the queue fills up, not for each event
                self.dropping = True
                self.log.warn(
                    "The queue of sink {sink} is full ({size} events): further events are dropped "
                    "until the sink has caught up; it then works from the store.",
                    sink=self.sink.name,
                    size=self.size,
                )
            return
        self.waiting.append(event)

    async def feed(self) -> None:
        """Handle the queued events until there are none.  Returns at once if this runs already."""
        if self.feeding:
            return
        self.feeding = True
        while self.waiting:
            event = self.waiting.popleft()
            self.dropping = False
            try:
                await self.sink.handle(event)
            except Exception as error:  # log a bug, and go on with the next event
                self.count_failure(event, error)
        self.feeding = False
        emptied, self.emptied = self.emptied, []
        for waiter in emptied:
            waiter.callback(None)

    def count_failure(self, event: Event, error: Exception) -> None:
        """Log and count that the sink raised an exception.  Call this while it is handled."""
        self.missed.labels(self.sink.name, "failed").inc()
        if isinstance(error, Unavailable):
            self.log.error(
                "Sink {sink} failed at {event}: {error}",
                sink=self.sink.name,
                event=event,
                error=error,
            )
        else:
            self.log.failure(
                "Sink {sink} failed at {event}; it goes on with the next event.",
                sink=self.sink.name,
                event=event,
            )


@implementer(IEventBus)
class EventBus(Service):
    """The event bus, a service: before it stops, sinks handle the events in their queues.

    :param queue_size: how many events may wait for one sink.
    :param clock: limits the time that a stop waits for sinks; None for no limit.
    :param counters: count the events that wait for sinks, and those that sinks miss.
    """

    name = "event bus"
    log = Logger()

    def __init__(
        self,
        queue_size: int = 10_000,
        clock: IReactorTime | None = None,
        counters: Counters | None = None,
    ) -> None:
        self._queue_size = queue_size
        self._clock = clock
        self._counters = counters or Counters()
        self._missed = self._counters.missed
        self._queues: dict[str, _Queue] = {}
        #: The queues of the sinks that handle a class of events, looked up at its first event.
        self._takers: dict[type[Event], tuple[_Queue, ...]] = {}

    def attach(self, sink: IEventSink) -> None:
        verifyObject(IEventSink, sink)
        if sink.name in self._queues:
            raise ValueError(f"a sink named {sink.name!r} is already attached; names are unique")
        queue = _Queue(sink, self._queue_size, self.log, self._missed)
        self._queues[sink.name] = queue
        self._counters.begin_sink(sink.name)
        self._counters.events.labels(sink.name).set_function(lambda: len(queue.waiting))
        self._takers.clear()  # the new sink may handle a class that was looked up before

    def wants(self, kind: type[Event]) -> bool:
        return bool(self._takers_of(kind))

    def fill_levels(self) -> dict[str, float]:
        """How full the queue of each sink is, from 0 to 1, by the sink's name."""
        return {name: len(queue.waiting) / self._queue_size for name, queue in self._queues.items()}

    def publish(self, event: Event) -> None:
        for queue in self._takers_of(type(event)):
            queue.put(event)
            if not queue.feeding:
                Deferred.fromCoroutine(queue.feed())

    def _takers_of(self, kind: type[Event]) -> tuple[_Queue, ...]:
        takers = self._takers.get(kind)
        if takers is None:
            queues = self._queues.values()
            takers = tuple(queue for queue in queues if issubclass(kind, queue.sink.handles))
            self._takers[kind] = takers
        return takers

    def waiting(self) -> dict[str, int]:
        """How many events wait for each sink, by the name of the sink."""
        return {name: len(queue.waiting) for name, queue in self._queues.items()}

    async def drain(self) -> None:
        """Return when the sinks have handled every event published so far."""
        for queue in tuple(self._queues.values()):
            if queue.feeding:
                waiter: Deferred[None] = Deferred()
                queue.emptied.append(waiter)
                await waiter

    @returns_deferred
    async def stopService(self) -> None:
        """Wait until the sinks have handled what is queued, for two seconds at most."""
        super().stopService()
        draining = Deferred.fromCoroutine(self.drain())
        if self._clock:
            # Sinks have two seconds for the events in their queues.
            draining.addTimeout(2.0, self._clock)
        try:
            await draining
        except TimedOut:
            hanging = [name for name, queue in self._queues.items() if queue.feeding]
            self.log.warn(
                "Not waiting any longer for what these sinks do: {sinks}.", sinks=", ".join(hanging)
            )
