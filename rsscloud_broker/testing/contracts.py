"""Contract tests that every notifier, every sink and every front door must pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import get_args

from attrs import evolve
from treq.testing import RequestTraversalAgent
from twisted.application.service import IService
from twisted.internet.defer import maybeDeferred
from twisted.trial.unittest import TestCase
from twisted.web.resource import IResource
from twisted.web.xmlrpc import XMLRPC
from zope.interface.verify import verifyObject

from rsscloud_broker import events, interfaces, model
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.model.work import Swept
from rsscloud_broker.testing.fakes import EMPTY, Answer, FakeOutbound, reply

_TOPIC = "http://feeds.example/rss.xml"
_CALLBACK_URL = "http://reader.example/notify"


# --- notifiers ------------------------------------------------------------------


class _NotifierContract(TestCase):
    """The tests that every ``INotifier`` must pass; see ``make_notifier_tests``."""

    accepting: Answer

    def make_notifier(self, outbound: interfaces.IOutbound) -> interfaces.INotifier:
        raise NotImplementedError

    def setUp(self) -> None:
        """Make a notifier whose callbacks accept, and what it is asked to send and to verify."""
        self.outbound = FakeOutbound(otherwise=self.accepting)
        self.notifier = self.make_notifier(self.outbound)
        callback = model.Callback(_CALLBACK_URL, self.notifier.protocol, "river.notify")
        content = model.Content(b"<rss/>", "application/rss+xml")
        carried = content if self.notifier.carries_content else None
        self.notification = model.Notification(_TOPIC, callback, content=carried)
        self.denial = model.Denial(_TOPIC, callback, "the topic is gone")
        self.intent = model.Intent(_TOPIC, callback, 90_000)
        self.challenge = model.Intent(_TOPIC, callback, 90_000, challenge=True)

    async def assert_all_fail(self) -> None:
        """Check that notifications and verifications fail now, each with a reason."""
        for outcome in (
            await self.notifier.notify(self.notification),
            await self.notifier.verify(self.intent),
            await self.notifier.verify(self.challenge),
        ):
            self.assertIsInstance(outcome, model.Outcome)
            self.assertFalse(outcome.success)
            self.assertTrue(outcome.reason, "a failure says why")

    def _acceptance_with(
        self, status: int, request: interfaces.OutboundRequest
    ) -> interfaces.OutboundReply:
        """The answer of an accepting callback, with another status."""
        answer = self.accepting(request) if callable(self.accepting) else self.accepting
        assert isinstance(answer, interfaces.OutboundReply)
        return evolve(answer, status=status)

    def test_interface(self) -> None:
        self.assertTrue(verifyObject(interfaces.INotifier, self.notifier))
        self.assertTrue(self.notifier.protocol)
        self.assertGreaterEqual(self.notifier.drop_after_failures or 1, 1)
        self.assertIsInstance(self.notifier.carries_content, bool)

    async def test_notification_calls_the_callback(self) -> None:
        self.assertEqual(await self.notifier.notify(self.notification), model.Outcome(True))
        self.assertTrue(self.outbound.requests)
        for request in self.outbound.requests:
            self.assertTrue(request.url.startswith(_CALLBACK_URL), request.url)

    async def test_verification_calls_the_callback(self) -> None:
        self.assertEqual(await self.notifier.verify(self.intent), model.Outcome(True))
        for request in self.outbound.requests:
            self.assertTrue(request.url.startswith(_CALLBACK_URL), request.url)

    async def test_no_answer_is_a_failure(self) -> None:
        self.outbound.otherwise = OutboundError("nobody is there")
        await self.assert_all_fail()

    async def test_other_status_is_a_failure(self) -> None:
        """A status that does not accept is a failure, even with the body of an acceptance."""
        for status in (301, 304, 400, 404, 410, 500, 503):
            self.outbound.otherwise = partial(self._acceptance_with, status)
            await self.assert_all_fail()

    async def test_garbage_is_an_outcome(self) -> None:
        """Whatever a callback answers, the notifier returns an outcome and raises nothing."""
        for body in (b"", b"\xff\xfe\x00<", b"<a>" * 1000, b"<a><b></a>", b"x" * 65_536):
            self.outbound.otherwise = reply(200, body)
            for intent in (self.intent, self.challenge):
                self.assertIsInstance(await self.notifier.verify(intent), model.Outcome)
            self.assertIsInstance(await self.notifier.notify(self.notification), model.Outcome)
            self.assertIsInstance(await self.notifier.deny(self.denial), model.Outcome)

    async def test_denial_calls_nobody_else(self) -> None:
        self.assertTrue((await self.notifier.deny(self.denial)).success)
        for request in self.outbound.requests:
            self.assertTrue(request.url.startswith(_CALLBACK_URL), request.url)

    async def test_denial_without_an_answer_is_an_outcome(self) -> None:
        self.outbound.otherwise = OutboundError("nobody is there")
        self.assertIsInstance(await self.notifier.deny(self.denial), model.Outcome)


def make_notifier_tests(
    fixture: Callable[[TestCase, interfaces.IOutbound], interfaces.INotifier],
    accepting: Answer = EMPTY,
) -> type[TestCase]:
    """Make a TestCase that every ``INotifier`` must pass.

    :param fixture: makes a notifier, given the running test and the outbound client.
    :param accepting: the answer of a callback that accepts a notification; or a function of the
        request, if the answer must repeat a part of the request.
    """

    class NotifierTests(_NotifierContract):
        def make_notifier(self, outbound: interfaces.IOutbound) -> interfaces.INotifier:
            return fixture(self, outbound)

    # A function would become a method of the class.
    NotifierTests.accepting = staticmethod(accepting) if callable(accepting) else accepting
    return NotifierTests


# --- sinks ----------------------------------------------------------------------


def _events() -> list[events.Event]:
    """One event of each class."""
    ping = model.Ping("A site", "http://site.example/", 1000.0, rss_url=_TOPIC, id=1)
    callback = model.Callback(_CALLBACK_URL, "http-post")
    subscription = model.Subscription(_TOPIC, callback, model.Lease(1000.0, 90_000), id=1)
    return [
        events.PingReceived(ping),
        events.TopicChanged(_TOPIC, 1000.0),
        events.SubscriptionStored(subscription),
        events.SubscriptionRemoved(_TOPIC, callback),
        events.SubscriptionsSwept(Swept(expired=1), 3600.0),
        events.TopicEnded(_TOPIC, "gone", 1000.0),
        events.FilePublished("/changes.xml", 1000.0),
        events.FileCopied("/changes.xml"),
        events.PingAccepted(_TOPIC, 1000.0, "192.0.2.7"),
        events.PingsTakenIn(1000.0),
        events.PingRelayed(_TOPIC, callback, "thanks", 0.25, 1000.0),
        events.RelayFailed(_TOPIC, callback, "status 500", 1000.0, 1005.0),
        events.RelaySkipped(callback, "it was down for too long", 3, 1000.0),
        events.PingRefused(_TOPIC, "too many came", 1000.0, "192.0.2.7"),
        events.TopicFetched(_TOPIC, True, "200, 6 bytes", 0.25, 1000.0),
        events.TopicFetchFailed(_TOPIC, "nobody is there", 0.25, 1000.0),
        events.TopicRevived(_TOPIC, 1000.0),
        events.TopicMoved(_TOPIC, f"{_TOPIC}/new", 1000.0),
        events.ContentRequested(_TOPIC),
        events.ContentFetched(_TOPIC),
        events.SubscriptionRequested(_TOPIC, callback, 1000.0),
        events.SubscriptionDenied(_TOPIC, callback, "it said no", 1000.0),
        events.FanOutBegun(_TOPIC, 1000.0),
        events.FanOutEnded(_TOPIC, 1, 0, 0, 0.25, 0.5, 1000.0),
        events.NotificationDelivered(subscription, 1000.0),
        events.NotificationFailed(subscription, "status 500", 1000.0, 1005.0),
        events.HostUnreachable("reader.example", None, "it timed out", 5, 1060.0, 1000.0),
        events.HostReachable("reader.example", 8000, 1000.0),
        events.Administered("anna", "block", _TOPIC, "spam", 1000.0),
        events.HostFreed("reader.example"),
        events.WorkHinted(),
        events.NodesCounted(2),
        events.ClaimsLost(),
    ]


class _SinkContract(TestCase):
    """The tests that every ``IEventSink`` must pass."""

    def make_sink(self) -> interfaces.IEventSink:
        raise NotImplementedError

    def setUp(self) -> None:
        self.sink = self.make_sink()

    def test_interface(self) -> None:
        self.assertTrue(verifyObject(interfaces.IEventSink, self.sink))
        self.assertTrue(self.sink.name)
        self.assertIsInstance(self.sink.handles, tuple)
        self.assertLessEqual(set(self.sink.handles), set(get_args(events.Event)))

    def test_two_have_state_of_their_own(self) -> None:
        other = self.make_sink()
        self.assertIsNot(other, self.sink)
        self.assertEqual((other.name, other.handles), (self.sink.name, self.sink.handles))

    async def test_handles_what_it_asks_for(self) -> None:
        """A sink takes each event of the classes that it handles; a service runs meanwhile."""
        service = IService(self.sink, None)
        if service is not None:
            self.assertTrue(verifyObject(IService, service))
            service.startService()
        for event in _events():
            if isinstance(event, self.sink.handles):
                await self.sink.handle(event)
        if service is not None:
            await maybeDeferred(service.stopService)
            self.assertFalse(service.running)


def make_sink_tests(fixture: Callable[[TestCase], interfaces.IEventSink]) -> type[TestCase]:
    """Make a TestCase that every ``IEventSink`` must pass.

    :param fixture: makes a sink, given the running test, and adds the cleanups that the sink
        needs.  It must not start the sink.
    """

    class SinkTests(_SinkContract):
        def make_sink(self) -> interfaces.IEventSink:
            return fixture(self)

    return SinkTests


# --- front doors ------------------------------------------------------------------


class DoorChecks(TestCase):
    """What must hold for every ``IFrontDoor``, as checks that several contracts use."""

    async def check_door(self, door: interfaces.IFrontDoor) -> None:
        """A front door keeps to its interface, offers something, and answers at each route."""
        self.assertTrue(verifyObject(interfaces.IFrontDoor, door))
        self.assertTrue(door.name)
        self.check_offers(door)
        self._check_routes(door)
        self._check_xmlrpc_handlers(door)
        self._check_soap_services(door)
        await self._check_answers(door)

    def check_offers(self, door: interfaces.IFrontDoor) -> None:
        """It offers something.  The test of one that only calls others overrides this."""
        self.assertTrue([*door.routes(), *door.xmlrpc_handlers(), *door.soap_services()])

    def _check_routes(self, door: interfaces.IFrontDoor) -> None:
        """Routes are written as the site expects them, and no two are for the same requests."""
        routes = door.routes()
        for route in routes:
            self.assertTrue(route.path.startswith("/"), route)
            self.assertNotIn("?", route.path)
            self.assertNotIn("*", route.path.removesuffix("/*"), route)
            self.assertRegex(route.method, r"\A[A-Z]+\Z", route)
            # GET has HEAD as well, and the site answers OPTIONS.
            self.assertNotIn(route.method, ("HEAD", "OPTIONS"), route)
            self.assertGreaterEqual(route.body_limit, 0, route)
            self.assertTrue(verifyObject(IResource, route.resource))
            self.assertEqual(route.requires, {name.lower() for name in route.requires}, route)
            types = {kind.partition(";")[0].strip().lower() for kind in route.content_types}
            self.assertEqual(route.content_types, types, route)
        keys = {(r.path, r.method, r.requires, r.content_types) for r in routes}
        self.assertEqual(len(keys), len(routes), "no two routes for the same requests")

    async def _check_answers(self, door: interfaces.IFrontDoor) -> None:
        """Every route answers a request without parameters."""
        for route in door.routes():
            # 503, since the file that the page shows may not exist yet.
            self.assertIn(await self._status_of_answer(route), {*range(200, 500), 503}, route)

    async def _status_of_answer(self, route: interfaces.Route) -> int:
        """The status of the answer to a request without parameters and body."""
        agent = RequestTraversalAgent(route.resource)
        path = route.path.replace("/*", "/no-such-page")
        url = f"http://broker.example{path}".encode("ascii")
        response = await agent.request(route.method.encode("ascii"), url)
        return int(response.code)

    def _check_xmlrpc_handlers(self, door: interfaces.IFrontDoor) -> None:
        """Each prefix of procedures is one word, and has procedures."""
        for prefix, handler in door.xmlrpc_handlers().items():
            self.assertTrue(prefix)
            self.assertNotIn(".", prefix)
            self.assertIsInstance(handler, XMLRPC)
            self.assertTrue(handler.listProcedures(), prefix)

    def _check_soap_services(self, door: interfaces.IFrontDoor) -> None:
        """Each service has operations, and a WSDL that names the URL, if it has any."""
        for service in door.soap_services():
            for action in (service.action, *service.aliases):
                self.assertTrue(action.startswith("/"), action)
            self.assertTrue(service.operations, service.action)
            for name, operation in service.operations.items():
                self.assertTrue(callable(operation.answer), name)
                self.assertIsInstance(operation.parameters, tuple, name)
            if service.description is not None:
                for path in service.description.paths:
                    self.assertTrue(path.startswith("/"), path)
                wsdl = service.description.document("http://broker.example/soap", service.described)
                self.assertIn(b"http://broker.example/soap", wsdl)


def make_front_door_tests(fixture: Callable[[TestCase], interfaces.IFrontDoor]) -> type[TestCase]:
    """Make a TestCase that every ``IFrontDoor`` must pass.

    :param fixture: makes a front door, given the running test; ``front_door_parts`` makes the
        parts that it needs.
    """

    class FrontDoorTests(DoorChecks):
        async def test_front_door(self) -> None:
            await self.check_door(fixture(self))

    return FrontDoorTests
