"""Tests the event bus: publishing never blocks or raises, and sinks do not disturb each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rsscloud_broker.core.bus import EventBus
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import Event, PingReceived, TopicChanged
from rsscloud_broker.interfaces import IEventSink
from rsscloud_broker.testing.clock import Clock


@implementer(IEventSink)
class Recorder:
    """A sink that records its events; ``react`` says what happens to each."""

    def __init__(self, name: str, react: Callable[[Event], Deferred[None] | None] | None = None):
        self.name = name
        self.handles: tuple[type, ...] = (TopicChanged,)
        self.events: list[Event] = []
        self.react = react

    async def handle(self, event: Event) -> None:
        self.events.append(event)
        waits_for = self.react(event) if self.react else None
        if waits_for is not None:
            await waits_for


def changed(n: int) -> TopicChanged:
    return TopicChanged(topic=f"http://example.org/{n}", at=float(n))


def fail(event: Event) -> None:
    raise ValueError("no good")


class EventBusTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.counters = Counters()
        self.bus = EventBus(queue_size=3, counters=self.counters)

    def missed(self, sink: str, reason: str) -> float | None:
        """The counter of the events that a sink did not handle."""
        labels = {"sink": sink, "reason": reason}
        return self.counters.registry.get_sample_value("rsscloud_missed_events_total", labels)

    def attach(self, *sinks: Recorder) -> None:
        for sink in sinks:
            self.bus.attach(sink)

    def test_what_waits_is_a_metric(self) -> None:
        gate: Deferred[None] = Deferred()
        self.attach(Recorder("a", lambda event: gate), Recorder("b"))
        for number in range(3):
            self.bus.publish(changed(number))
        name, value = "rsscloud_events_queued", self.counters.registry.get_sample_value
        self.assertEqual([value(name, {"sink": sink}) for sink in "ab"], [2, 0])
        fill = self.bus.fill_levels()
        self.assertEqual(fill, {"a": 2 / 3, "b": 0.0})
        self.assertEqual(self.bus.waiting(), {"a": 2, "b": 0})
        gate.callback(None)
        self.assertEqual(value(name, {"sink": "a"}), 0)

    def test_every_sink_that_handles_the_class_gets_the_event(self) -> None:
        a, b, other = Recorder("a"), Recorder("b"), Recorder("other")
        other.handles = (PingReceived,)
        self.attach(a, b, other)
        self.bus.publish(changed(1))
        self.assertEqual((a.events, b.events, other.events), ([changed(1)], [changed(1)], []))

    def test_one_event_at_a_time_and_in_order(self) -> None:
        gates: list[Deferred[None]] = []

        def wait(event: Event) -> Deferred[None]:
            gates.append(Deferred())
            return gates[-1]

        slow = Recorder("slow", wait)
        self.attach(slow)
        self.bus.publish(changed(1))
        self.bus.publish(changed(2))
        self.assertEqual(slow.events, [changed(1)])
        gates[0].callback(None)
        self.assertEqual(slow.events, [changed(1), changed(2)])

    def test_an_event_published_while_handling_comes_after(self) -> None:
        def publish_another(event: Event) -> None:
            if event == changed(1):
                self.bus.publish(changed(2))
                order.append("after publishing")
            else:
                order.append("second")

        order: list[str] = []
        self.attach(Recorder("a", publish_another))
        self.bus.publish(changed(1))
        self.assertEqual(order, ["after publishing", "second"])

    def test_a_failing_sink_is_logged_and_counted_and_others_do_not_notice(self) -> None:
        failing, fine = Recorder("failing", fail), Recorder("fine")
        self.attach(failing, fine)
        self.bus.publish(changed(1))
        self.bus.publish(changed(2))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)
        self.assertEqual(self.missed("failing", "failed"), 2)
        self.assertEqual(failing.events, [changed(1), changed(2)])
        self.assertEqual(fine.events, [changed(1), changed(2)])
        self.assertEqual(self.missed("fine", "failed"), 0)

    def test_a_sink_that_cannot_use_the_store_is_a_line_of_the_log_without_a_traceback(
        self,
    ) -> None:
        def cannot(event: Event) -> None:
            raise Unavailable("no disk space is left")

        self.attach(Recorder("a", cannot))
        with capturedLogs() as logged:
            self.bus.publish(changed(1))
        (line,) = logged
        self.assertTrue(formatEvent(line).startswith("Sink a failed at TopicChanged("), line)
        self.assertTrue(formatEvent(line).endswith(": no disk space is left"), line)
        self.assertNotIn("log_failure", line)
        self.assertEqual(self.missed("a", "failed"), 1)

    def test_a_full_queue_drops_and_counts_and_goes_on_afterwards(self) -> None:
        gate: Deferred[None] = Deferred()
        slow = Recorder("slow", lambda event: gate if event == changed(0) else None)
        fast = Recorder("fast")
        self.attach(slow, fast)
        for n in range(6):  # one being handled, three waiting, two too many
            self.bus.publish(changed(n))
        self.assertEqual(self.missed("slow", "dropped"), 2)
        self.assertEqual(len(fast.events), 6)
        gate.callback(None)
        self.bus.publish(changed(9))
        self.assertEqual(slow.events, [changed(n) for n in (0, 1, 2, 3, 9)])

    def test_stopping_waits_for_what_was_published(self) -> None:
        clock, gate = Clock(), Deferred[None]()
        self.bus = EventBus(clock=clock)
        sink = Recorder("a", lambda event: gate)
        self.attach(sink)
        self.bus.startService()
        self.bus.publish(changed(1))
        self.bus.publish(changed(2))
        stopped = self.bus.stopService()
        self.assertNoResult(stopped)
        gate.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(sink.events, [changed(1), changed(2)])
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_stopping_does_not_wait_for_ever(self) -> None:
        clock = Clock()
        self.bus = EventBus(clock=clock)
        gate: Deferred[None] = Deferred()
        hanging, fine = Recorder("hanging", lambda event: gate), Recorder("fine")
        self.attach(hanging, fine)
        self.bus.startService()
        self.bus.publish(changed(1))
        with capturedLogs() as logged:
            stopped = self.bus.stopService()
            clock.advance(2.0 - 0.1)
            self.assertNoResult(stopped)
            clock.advance(0.1)
            self.successResultOf(stopped)
        (event,) = logged
        self.assertEqual((event["log_level"], event["sinks"]), (LogLevel.warn, "hanging"))
        gate.callback(None)  # when it ends at last, nothing happens

    def test_names_are_unique(self) -> None:
        self.attach(Recorder("a"))
        with self.assertRaisesRegex(ValueError, "'a' is already attached"):
            self.attach(Recorder("a"))

    def test_what_is_no_sink_is_refused(self) -> None:
        with self.assertRaisesRegex(Exception, "handle"):
            self.bus.attach(cast(IEventSink, object()))
