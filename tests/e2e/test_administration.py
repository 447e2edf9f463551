"""Administration in a whole broker: real sockets, a real database, and subscribers that fail.

The broker runs in this process, so that a test can call the verbs that pages and the API call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from attrs import frozen
from twisted.application.service import MultiService
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.plugin import IPlugin
from twisted.trial.unittest import TestCase
from twisted.web.xmlrpc import XMLRPC
from zope.interface import implementer

from rsscloud_broker.composition import server
from rsscloud_broker.config import Config, Egress
from rsscloud_broker.config.couriers import DeliveryConfig
from rsscloud_broker.delivery.notifiers.calling import RssCloudNotifier
from rsscloud_broker.interfaces import (
    FrontDoorParts,
    IFrontDoor,
    IFrontDoorMaker,
    Route,
    SoapService,
)
from rsscloud_broker.model import Subscription
from rsscloud_broker.model.administration import (
    SubscriptionDetails,
    SubscriptionFilter,
)
from rsscloud_broker.runtime.command_line import LOOPBACK
from rsscloud_broker.runtime.plugin_discovery import discover
from rsscloud_broker.storage import migrate
from tests.e2e.fixture import TIMEOUT, Answer, post_form
from tests.e2e.servers import Handler, HttpPostReceiver, Origin, Receiver, Server, http_server
from tests.processes import free_port

AnyServer = TypeVar("AnyServer", bound=Server)

reactor: Any = installed_reactor

#: Seconds for which breakers stay open, and between attempts: longer than a test waits.
LONG = 600


class MoodyReceiver(Receiver):
    """Answers with status 500 while it is out of order."""

    protocol = "http-post"

    def __init__(self) -> None:
        super().__init__(http_server(_MoodyHandler, self))
        self.out_of_order = False


class _MoodyHandler(Handler):
    def do_POST(self) -> None:
        body = self.body().decode()
        if self.owner.out_of_order:
            self.answer(500, b"out of order")
        else:
            self.owner.hear(body)
            self.answer(200)


@frozen
class NoOptions:
    """A front door without options."""


@implementer(IFrontDoor)
class SilentDoor:
    """A front door that takes no requests."""

    def __init__(self, name: str) -> None:
        self.name = name

    def routes(self) -> Sequence[Route]:
        return ()

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {}

    def soap_services(self) -> Sequence[SoapService]:
        return ()


@implementer(IPlugin, IFrontDoorMaker)
class KeepingMaker:
    """Makes a front door and keeps what it was given."""

    name, help, options = "keeping", "Keeps its parts.", NoOptions
    needs: tuple[str, ...] = ("broker", "event_log")

    def make(self, options: NoOptions, parts: FrontDoorParts) -> SilentDoor:
        self.parts = parts
        return SilentDoor(self.name)


class AdministeringMaker(KeepingMaker):
    """The same for a front door that serves administrators."""

    name = "administering"
    needs = ("administration",)


class AdministrationTests(TestCase):
    timeout = 3 * TIMEOUT

    def setUp(self) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.ordinary, self.administering = KeepingMaker(), AdministeringMaker()
        makers = discover()
        makers.front_doors["keeping"] = self.ordinary
        makers.front_doors["administering"] = self.administering
        data = str(Path(self.mktemp()).resolve())
        Path(data, "public").mkdir(parents=True)
        self.config = Config(
            data=data,
            listen=(f"tcp:{port}:interface=127.0.0.1",),
            public_url=self.url,
            delivery=DeliveryConfig(processes=0),
            egress=Egress(allow_topics=LOOPBACK, allow_callbacks=LOOPBACK),
            front_doors={"keeping": {}, "administering": {}},
            sinks={"distribution": {"breaker_pause": LONG}},
        )
        self.patch(RssCloudNotifier, "retries", (LONG,))
        migrate(self.config.database_url)
        self.broker = server.Server(self.config, reactor, makers).service
        self.broker.privilegedStartService()
        MultiService.startService(self.broker)  # without what a process does only once
        self.addCleanup(self.broker.stopService)
        administration = self.administering.parts.administration
        assert administration is not None
        self.verbs = administration
        self.origin = self.served(Origin())
        self.topic = self.origin.feed()

    def served(self, server: AnyServer) -> AnyServer:
        server.start()
        self.addCleanup(lambda: deferToThread(server.stop))
        return server

    async def until(self, condition: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Wait until a condition is true, and return its value."""
        deadline = reactor.seconds() + TIMEOUT
        while not (value := await condition()):
            self.assertLess(reactor.seconds(), deadline, f"waited for {what}")
            await deferLater(reactor, 0.05)
        return value

    def post(self, page: str, **fields: object) -> Deferred[Answer]:
        return deferToThread(post_form, f"{self.url}{page}", fields)

    def ping(self) -> Deferred[Answer]:
        return self.post("/rsscloud/ping", url=self.topic)

    def subscribe(self, receiver: Receiver, path: str = "/notify") -> Deferred[Answer]:
        return self.post(
            "/rsscloud/pleaseNotify",
            notifyProcedure="",
            port=receiver.port,
            path=path,
            protocol="http-post",
            url1=self.topic,
        )

    async def change(self) -> None:
        self.origin.change(self.topic)
        self.assertIn('success="true"', (await self.ping()).text)

    async def the_subscription(self) -> Subscription:
        page = await self.verbs.find_subscriptions(SubscriptionFilter(topic=self.topic))
        (one,) = page.subscriptions
        return one

    async def heard(self, receiver: Receiver, number: int) -> None:
        async def enough() -> bool:
            return len(receiver.heard) >= number

        await self.until(enough, f"{number} notifications")

    async def test_only_some_front_doors_may_administer(self) -> None:
        self.assertFalse(hasattr(self.ordinary.parts, "administration"))

    async def test_a_subscriber_out_of_order(self) -> None:
        """Administrators see its answer, and have it told when it works again."""
        receiver = self.served(MoodyReceiver())
        self.assertIn('success="true"', (await self.subscribe(receiver)).text)
        one = await self.the_subscription()
        receiver.heard.clear()
        receiver.out_of_order = True
        await self.change()

        async def failed() -> SubscriptionDetails | None:
            details = await self.verbs.subscription(one.id)
            return details if details.failures else None

        details = await self.until(failed, "a failure to be stored")
        (failure,) = details.failures
        self.assertEqual(failure.reason, "the callback answered with status 500")
        exchange = failure.exchange
        self.assertEqual((exchange.method, exchange.url), ("POST", one.callback.url))
        self.assertEqual((exchange.status, exchange.answer_body), (500, b"out of order"))
        self.assertIn(b"url=http", exchange.request_body)
        self.assertIn("date", exchange.answer_headers)
        self.assertIsNotNone(details.pending)
        self.assertEqual(receiver.heard, [])
        receiver.out_of_order = False
        await self.verbs.redeliver("alice", one.id)
        await self.heard(receiver, 1)
        changes = await self.verbs.changes()
        self.assertEqual([change.verb for change in changes], ["redeliver"])

    async def test_a_host_that_is_back(self) -> None:
        """An administrator closes its breaker, and it is notified at once."""
        receiver = HttpPostReceiver()
        receiver.start()
        callbacks = 8
        for number in range(callbacks):
            answer = await self.subscribe(receiver, f"/notify{number}")
            self.assertIn('success="true"', answer.text)
        await deferToThread(receiver.stop)
        await self.change()

        async def is_open() -> bool:
            return bool(await self.verbs.hosts())

        await self.until(is_open, "the breaker to open")
        (state,) = await self.verbs.hosts()
        self.assertEqual(state.host, f"127.0.0.1:{receiver.port}")
        back = self.served(HttpPostReceiver(receiver.port))
        await self.verbs.close_breaker("alice", "127.0.0.1")
        await self.heard(back, callbacks)
        self.assertEqual(await self.verbs.hosts(), [])
