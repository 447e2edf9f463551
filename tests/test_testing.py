"""The test kit for authors of plugins; and every bundled part keeps its contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from twisted.internet.defer import Deferred, succeed
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface.verify import verifyObject

from rsscloud_broker import interfaces, model, testing
from rsscloud_broker.errors import OutboundError, TopicUnreadable, Unavailable
from rsscloud_broker.events import Event, TopicChanged
from rsscloud_broker.runtime.plugin_discovery import discover

FEED = "http://feeds.example/rss.xml"
CALLBACK = model.Callback("http://reader.example/notify", "http-post")


# --- bundled parts --------------------------------------------------------------

#: The front doors that offer nothing without a database, accounts or a list to follow; each has
#: tests of its own that give it one.
NEEDY = {"accounts", "administration", "event_log", "events", "follows"}


def _sink(maker: interfaces.ISinkMaker) -> Callable[[TestCase], interfaces.IEventSink]:
    def make(case: TestCase) -> interfaces.IEventSink:
        directory = FilePath(case.mktemp())
        directory.makedirs()
        sink: interfaces.IEventSink = maker.make(
            maker.options(), testing.sink_parts(public_directory=directory)
        )
        return sink

    return make


def _door(maker: interfaces.IFrontDoorMaker) -> Callable[[TestCase], interfaces.IFrontDoor]:
    def make(case: TestCase) -> interfaces.IFrontDoor:
        door: interfaces.IFrontDoor = maker.make(maker.options(), testing.front_door_parts())
        return door

    return make


def _add_contract_tests() -> None:
    """Add a class of tests for each front door and each sink, as the configuration makes them."""
    makers = discover()
    for name, door in makers.front_doors.items():
        if name not in NEEDY:
            _add(f"{name}_door", testing.make_front_door_tests(_door(door)))
    for name, sink in makers.sinks.items():
        _add(f"{name}_sink", testing.make_sink_tests(_sink(sink)))


def _add(name: str, made: type[TestCase]) -> None:
    """Add the tests of a part under a name of their own, such as ``PingSinkDoorTests``."""
    name = f"{name.title().replace('_', '')}Tests"
    globals()[name] = type(name, (made,), {"__module__": __name__})


_add_contract_tests()


class RecordingSinkTests(testing.make_sink_tests(lambda case: testing.RecordingSink())):  # type: ignore[misc] # made at run time
    """The fake keeps the contract too."""


# --- contracts find what is wrong -----------------------------------------------


class Careless(testing.FakeNotifier):
    """A notifier that lets failures of its outbound client through."""

    def __init__(self, outbound: interfaces.IOutbound) -> None:
        super().__init__("careless")
        self._outbound = outbound

    async def notify(self, notification: model.Notification) -> model.Outcome:
        await self._outbound.request(interfaces.OutboundRequest("GET", notification.callback.url))
        return model.Outcome(True)


class ContractTests(SynchronousTestCase):
    def test_notifier_that_raises_is_found(self) -> None:
        tests = testing.make_notifier_tests(lambda case, outbound: Careless(outbound))
        result = self.run_one(tests("test_no_answer_is_a_failure"))
        self.assertEqual(result, (1, 0))
        self.assertEqual(self.run_one(tests("test_interface")), (0, 0))

    def test_sink_that_wants_what_is_no_event_is_found(self) -> None:
        wrong = testing.RecordingSink(handles=(int,))  # type: ignore[arg-type] # that is the point
        tests = testing.make_sink_tests(lambda case: wrong)
        self.assertEqual(self.run_one(tests("test_interface")), (0, 1))

    def test_sink_gets_an_event_of_each_class_that_it_handles(self) -> None:
        kinds = get_args(Event)
        sink = testing.RecordingSink(handles=kinds)
        tests = testing.make_sink_tests(lambda case: sink)
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
            (interfaces.IBroker, testing.FakeBroker()),
            (interfaces.ICallers, testing.FakeCallers()),
            (interfaces.IEventBus, testing.RecordingBus()),
            (interfaces.INotifier, testing.FakeNotifier()),
            (interfaces.IOutbound, testing.FakeOutbound()),
            (interfaces.IPages, testing.FakePages()),
            (interfaces.IPublisher, testing.FakePublisher(testing.memory_database())),
            (interfaces.ITopicFetcher, testing.FakeFetcher()),
            (interfaces.ITopicView, testing.FakeTopicView()),
        ):
            self.assertTrue(verifyObject(interface, fake))

    def test_outbound(self) -> None:
        later: Deferred[interfaces.OutboundReply] = Deferred()
        outbound = testing.FakeOutbound(
            {
                "http://a.example/": testing.reply(404, b"gone", content_type="text/plain"),
                "http://a.example/?x": lambda request: testing.reply(200, request.body),
                "http://b.example/": OutboundError("nobody is there"),
                "http://c.example/": later,
            }
        )

        def ask(url: str) -> Deferred[interfaces.OutboundReply]:
            return Deferred.fromCoroutine(
                outbound.request(interfaces.OutboundRequest("POST", url, body=b"body"))
            )

        answer = self.successResultOf(ask("http://a.example/?y"))
        self.assertEqual((answer.status, answer.headers), (404, {"content-type": "text/plain"}))
        self.assertEqual(answer.url, "http://a.example/?y")
        self.assertEqual(self.successResultOf(ask("http://a.example/?x")).body, b"body")
        self.failureResultOf(ask("http://b.example/"), OutboundError)
        waiting = ask("http://c.example/")
        self.assertNoResult(waiting)
        later.callback(testing.reply(299))
        self.assertEqual(self.successResultOf(waiting).status, 299)
        self.assertEqual(self.successResultOf(ask("http://d.example/")).status, 200)
        self.assertEqual(len(outbound.requests), 5)

    def test_broker(self) -> None:
        broker = testing.FakeBroker(("soap",))
        ping = model.Ping("A site", "http://site.example/", 5.0)
        intent = model.Intent(FEED, CALLBACK, 90)
        run = Deferred.fromCoroutine
        self.assertIsNone(self.successResultOf(run(broker.ping(ping, 60, "192.0.2.7"))))
        self.assertTrue(self.successResultOf(run(broker.ping_topic(FEED, "192.0.2.7"))))
        subscription = self.successResultOf(run(broker.subscribe(intent)))
        self.assertEqual(subscription, model.Subscription(FEED, CALLBACK, model.Lease(0, 90), id=1))
        self.assertTrue(self.successResultOf(run(broker.unsubscribe(intent))))
        self.assertIsNone(self.successResultOf(run(broker.accept(intent))))
        self.assertEqual((broker.pings, broker.pinged), ([(ping, 60)], [FEED]))
        asked = (broker.intents, broker.unsubscribed, broker.accepted)
        self.assertEqual(asked, ([intent], [intent], [intent]))
        content = model.Content(b"<rss/>")
        self.assertEqual(self.successResultOf(run(broker.publish([FEED], "192.0.2.7"))), {})
        self.assertTrue(self.successResultOf(run(broker.push_content(FEED, content, "192.0.2.7"))))
        self.assertEqual((broker.published, broker.pushed), ([(FEED,)], [(FEED, content)]))
        broker.failures["ping"] = Unavailable("the disk is full")
        self.failureResultOf(run(broker.ping(ping, 60, "192.0.2.7")), Unavailable)
        self.assertEqual(broker.protocols, {"soap"})

    def test_fetcher(self) -> None:
        fetcher = testing.FakeFetcher({FEED: b"1"})
        fetched = self.successResultOf(fetcher.fetch(FEED))
        self.assertEqual(fetched.content, model.Content(b"1", "application/rss+xml"))
        known = fetcher.validators[FEED] = model.Validators('"1"')
        again = self.successResultOf(fetcher.fetch(FEED, known, 2))
        self.assertEqual((again.content, fetcher.asked[-1]), (None, (known, 2)))
        gone = Deferred.fromCoroutine(fetcher.fetch("http://gone.example/"))
        self.failureResultOf(gone, TopicUnreadable)

    def test_bus(self) -> None:
        bus, sink = testing.RecordingBus(), testing.RecordingSink()
        bus.attach(sink)
        bus.publish(TopicChanged(FEED, 5.0))
        self.assertEqual((bus.sinks, bus.events), ([sink], [TopicChanged(FEED, 5.0)]))

    def test_parts_are_replaced(self) -> None:
        broker = testing.FakeBroker()
        self.assertIs(testing.front_door_parts(broker=broker).broker, broker)
        in_thread: Any = testing.sink_parts().in_thread
        self.assertEqual(self.successResultOf(in_thread(max, 1, 2)), 2)
        self.assertIs(testing.sink_parts(in_thread=succeed).in_thread, succeed)
