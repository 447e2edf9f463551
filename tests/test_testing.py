"""The test kit for authors of plugins; and every bundled part keeps its contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from twisted.internet.defer import Deferred, succeed
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.errors import OutboundError, TopicUnreadable, Unavailable
from rsscloud_broker.events import Event, TopicChanged
from rsscloud_broker.interfaces import (
    IBroker,
    ICallers,
    IEventBus,
    IEventSink,
    IFrontDoor,
    IFrontDoorMaker,
    INotifier,
    IOutbound,
    IPages,
    IPublisher,
    ISinkMaker,
    ITopicFetcher,
    ITopicView,
    OutboundReply,
    OutboundRequest,
)
from rsscloud_broker.model import (
    Callback,
    Content,
    Intent,
    Lease,
    Notification,
    Outcome,
    Ping,
    Subscription,
    Validators,
)
from rsscloud_broker.runtime.plugin_discovery import discover
from rsscloud_broker.testing import (
    FakeBroker,
    FakeCallers,
    FakeFetcher,
    FakeNotifier,
    FakeOutbound,
    FakePages,
    FakePublisher,
    FakeTopicView,
    RecordingBus,
    RecordingSink,
    front_door_parts,
    make_front_door_tests,
    make_notifier_tests,
    make_sink_tests,
    memory_database,
    reply,
    sink_parts,
)

FEED = "http://feeds.example/rss.xml"
CALLBACK = Callback("http://reader.example/notify", "http-post")


# --- bundled parts --------------------------------------------------------------

#: The front doors that offer nothing without a database, accounts or a list to follow; each has
#: tests of its own that give it one.
NEEDY = {"accounts", "administration", "event_log", "events", "follows"}


def _sink(maker: ISinkMaker) -> Callable[[TestCase], IEventSink]:
    def make(case: TestCase) -> IEventSink:
        directory = FilePath(case.mktemp())
        directory.makedirs()
        sink: IEventSink = maker.make(maker.options(), sink_parts(public_directory=directory))
        return sink

    return make


def _door(maker: IFrontDoorMaker) -> Callable[[TestCase], IFrontDoor]:
    def make(case: TestCase) -> IFrontDoor:
        door: IFrontDoor = maker.make(maker.options(), front_door_parts())
        return door

    return make


def _add_contract_tests() -> None:
    """Add a class of tests for each front door and each sink, as the configuration makes them."""
    makers = discover()
    for name, door in makers.front_doors.items():
        if name not in NEEDY:
            _add(f"{name}_door", make_front_door_tests(_door(door)))
    for name, sink in makers.sinks.items():
        _add(f"{name}_sink", make_sink_tests(_sink(sink)))


def _add(name: str, made: type[TestCase]) -> None:
    """Add the tests of a part under a name of their own, such as ``PingSinkDoorTests``."""
    name = f"{name.title().replace('_', '')}Tests"
    globals()[name] = type(name, (made,), {"__module__": __name__})


_add_contract_tests()


class RecordingSinkTests(make_sink_tests(lambda case: RecordingSink())):  # type: ignore[misc] # made at run time
    """The fake keeps the contract too."""


# --- contracts find what is wrong -----------------------------------------------


class Careless(FakeNotifier):
    """A notifier that lets failures of its outbound client through."""

    def __init__(self, outbound: IOutbound) -> None:
        super().__init__("careless")
        self._outbound = outbound

    async def notify(self, notification: Notification) -> Outcome:
        await self._outbound.request(OutboundRequest("GET", notification.callback.url))
        return Outcome(True)


class ContractTests(SynchronousTestCase):
    def test_notifier_that_raises_is_found(self) -> None:
        tests = make_notifier_tests(lambda case, outbound: Careless(outbound))
        result = self.run_one(tests("test_no_answer_is_a_failure"))
        self.assertEqual(result, (1, 0))
        self.assertEqual(self.run_one(tests("test_interface")), (0, 0))

    def test_sink_that_wants_what_is_no_event_is_found(self) -> None:
        wrong = RecordingSink(handles=(int,))  # type: ignore[arg-type] # that is the point
        tests = make_sink_tests(lambda case: wrong)
        self.assertEqual(self.run_one(tests("test_interface")), (0, 1))

    def test_sink_gets_an_event_of_each_class_that_it_handles(self) -> None:
        kinds = get_args(Event)
        sink = RecordingSink(handles=kinds)
        tests = make_sink_tests(lambda case: sink)
        self.assertEqual(self.run_one(tests("test_handles_what_it_asks_for")), (0, 0))
        self.assertEqual({type(event) for event in sink.events}, set(kinds))

    def run_one(self, test: TestCase) -> tuple[int, int]:
        """Errors and failures of a test."""
        from unittest import TestResult  # noqa: PLC0415 # the name would be collected

        result = TestResult()
        test.run(result)
        return len(result.errors), len(result.failures)


# --- fakes ------------------------------------------------------------------------


class FakesTests(SynchronousTestCase):
    def test_interfaces(self) -> None:
        for interface, fake in (
            (IBroker, FakeBroker()),
            (ICallers, FakeCallers()),
            (IEventBus, RecordingBus()),
            (INotifier, FakeNotifier()),
            (IOutbound, FakeOutbound()),
            (IPages, FakePages()),
            (IPublisher, FakePublisher(memory_database())),
            (ITopicFetcher, FakeFetcher()),
            (ITopicView, FakeTopicView()),
        ):
            self.assertTrue(verifyObject(interface, fake))

    def test_outbound(self) -> None:
        later: Deferred[OutboundReply] = Deferred()
        outbound = FakeOutbound(
            {
                "http://a.example/": reply(404, b"gone", content_type="text/plain"),
                "http://a.example/?x": lambda request: reply(200, request.body),
                "http://b.example/": OutboundError("nobody is there"),
                "http://c.example/": later,
            }
        )

        def ask(url: str) -> Deferred[OutboundReply]:
            return Deferred.fromCoroutine(
                outbound.request(OutboundRequest("POST", url, body=b"body"))
            )

        answer = self.successResultOf(ask("http://a.example/?y"))
        self.assertEqual((answer.status, answer.headers), (404, {"content-type": "text/plain"}))
        self.assertEqual(answer.url, "http://a.example/?y")
        self.assertEqual(self.successResultOf(ask("http://a.example/?x")).body, b"body")
        self.failureResultOf(ask("http://b.example/"), OutboundError)
        waiting = ask("http://c.example/")
        self.assertNoResult(waiting)
        later.callback(reply(299))
        self.assertEqual(self.successResultOf(waiting).status, 299)
        self.assertEqual(self.successResultOf(ask("http://d.example/")).status, 200)
        self.assertEqual(len(outbound.requests), 5)

    def test_broker(self) -> None:
        broker = FakeBroker(("soap",))
        ping = Ping("A site", "http://site.example/", 5.0)
        intent = Intent(FEED, CALLBACK, 90)
        run = Deferred.fromCoroutine
        self.assertIsNone(self.successResultOf(run(broker.ping(ping, 60, "192.0.2.7"))))
        self.assertTrue(self.successResultOf(run(broker.ping_topic(FEED, "192.0.2.7"))))
        subscription = self.successResultOf(run(broker.subscribe(intent)))
        self.assertEqual(subscription, Subscription(FEED, CALLBACK, Lease(0, 90), id=1))
        self.assertTrue(self.successResultOf(run(broker.unsubscribe(intent))))
        self.assertIsNone(self.successResultOf(run(broker.accept(intent))))
        self.assertEqual((broker.pings, broker.pinged), ([(ping, 60)], [FEED]))
        asked = (broker.intents, broker.unsubscribed, broker.accepted)
        self.assertEqual(asked, ([intent], [intent], [intent]))
        content = Content(b"<rss/>")
        self.assertEqual(self.successResultOf(run(broker.publish([FEED], "192.0.2.7"))), {})
        self.assertTrue(self.successResultOf(run(broker.push_content(FEED, content, "192.0.2.7"))))
        self.assertEqual((broker.published, broker.pushed), ([(FEED,)], [(FEED, content)]))
        broker.failures["ping"] = Unavailable("the disk is full")
        self.failureResultOf(run(broker.ping(ping, 60, "192.0.2.7")), Unavailable)
        self.assertEqual(broker.protocols, {"soap"})

    def test_fetcher(self) -> None:
        fetcher = FakeFetcher({FEED: b"1"})
        fetched = self.successResultOf(fetcher.fetch(FEED))
        self.assertEqual(fetched.content, Content(b"1", "application/rss+xml"))
        known = fetcher.validators[FEED] = Validators('"1"')
        again = self.successResultOf(fetcher.fetch(FEED, known, 2))
        self.assertEqual((again.content, fetcher.asked[-1]), (None, (known, 2)))
        gone = Deferred.fromCoroutine(fetcher.fetch("http://gone.example/"))
        self.failureResultOf(gone, TopicUnreadable)

    def test_bus(self) -> None:
        bus, sink = RecordingBus(), RecordingSink()
        bus.attach(sink)
        bus.publish(TopicChanged(FEED, 5.0))
        self.assertEqual((bus.sinks, bus.events), ([sink], [TopicChanged(FEED, 5.0)]))

    def test_parts_are_replaced(self) -> None:
        broker = FakeBroker()
        self.assertIs(front_door_parts(broker=broker).broker, broker)
        in_thread: Any = sink_parts().in_thread
        self.assertEqual(self.successResultOf(in_thread(max, 1, 2)), 2)
        self.assertIs(sink_parts(in_thread=succeed).in_thread, succeed)
