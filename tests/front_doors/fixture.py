"""The whole site in memory, for tests of the front doors.

Behind the real doors are the real broker, a real store in memory, the real
distribution and the real notifiers; only time, topics and other people's
servers are made up.  Requests are bytes that go through the bounded HTTP of
``http.limits``, so a test can choose the caller's address and may also
send what no HTTP client would.
"""

from __future__ import annotations

import xmlrpc.client
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from attrs import define, field, frozen
from sqlalchemy import Connection, select
from twisted.internet.defer import Deferred, execute
from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rsscloud_broker import config, core, interfaces
from rsscloud_broker.client.feed_doctor import FeedDoctor
from rsscloud_broker.client.feed_push import OwnBroker
from rsscloud_broker.client.feed_requests import make_ask
from rsscloud_broker.config import Http
from rsscloud_broker.core.bus import EventBus
from rsscloud_broker.counters import Counters
from rsscloud_broker.delivery.distribution import Distribution
from rsscloud_broker.delivery.notifiers import (
    HttpPostNotifier,
    SoapNotifier,
    WebSubNotifier,
    WebSubNotifierOptions,
    XMLRPCNotifier,
)
from rsscloud_broker.delivery.options import DistributionOptions
from rsscloud_broker.errors import AddressRefused, EndedTopic, OutboundError, TopicUnreadable
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.site import Root
from rsscloud_broker.model import NO_VALIDATORS, Content, Ping, Subscription, Validators
from rsscloud_broker.model.disclosure import Disclosure
from rsscloud_broker.model.fetching import EVERYTHING, Fetched, Wanted
from rsscloud_broker.plugins import bundled
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.storage.schema import metadata
from rsscloud_broker.testing import CallersThread, sink_parts
from rsscloud_broker.testing.clock import About, Clock
from rsscloud_broker.testing.memory import memory_store
from rsscloud_broker.testing.parsing import parse_here
from rsscloud_broker.web.assets import AssetsDoor
from rsscloud_broker.web.pages import PageRenderer
from rsscloud_broker.wire import soap as soap_codec
from rsscloud_broker.wire import xmlrpc as xmlrpc_codec
from tests.core.house import FakeDiskSpace, change_detector
from tests.front_doors.exchange import FORM, Answer, Exchange, connected, envelope, request_bytes

#: 2026-09-29 12:00:00 UTC
NOON = About(1_790_683_200.0)
PUBLIC_URL = "http://broker.example:5337"

FEED = "http://feeds.example/rss.xml"
OTHER_FEED = "http://feeds.example/other.xml"
HOME = "http://site.example/"

#: The address that requests come from, unless a test gives another.
CALLER = "192.0.2.7"

#: The reason with which the guard refuses an address.
PRIVATE = "the address 10.1.2.3 is not public (private), so it is not called"

ALL_DOORS = frozenset(
    {
        *("rsscloud", "ping_sink", "change_lists", "websub", "front_page", "topic_page"),
        *("event_log", "doctor"),
    }
)


# --- other people's servers ------------------------------------------------------


@implementer(interfaces.ITopicFetcher, interfaces.IURLPolicy)
@define
class Topics:
    """A fake topic fetcher with a web of feeds.

    :ivar pages: the content at each URL; any other URL is unreadable.
    :ivar private: URLs at addresses that are not public.
    :ivar gone: URLs that answer with 410.
    :ivar silent: whether fetches wait until the test ends them.
    """

    pages: dict[str, bytes] = field(factory=lambda: {FEED: b"<rss/>", OTHER_FEED: b"<rss/>"})
    private: set[str] = field(factory=set)
    gone: set[str] = field(factory=set)
    silent: bool = False
    fetched: list[str] = field(factory=list)
    waiting: list[Deferred[Content]] = field(factory=list)

    async def fetch(
        self,
        url: str,
        known: Validators = NO_VALIDATORS,
        subscribers: int = 0,
        wanted: Wanted = EVERYTHING,
    ) -> Fetched:
        self.fetched.append(url)
        if self.silent:
            answer: Deferred[Content] = Deferred()
            self.waiting.append(answer)
            return Fetched(await answer)
        if url in self.private:
            raise TopicUnreadable(url, PRIVATE, refused=True)
        if url in self.gone:
            raise EndedTopic(url, "it is gone for good")
        if url not in self.pages:
            raise TopicUnreadable(url, "its server answered with status 404")
        return Fetched(Content(self.pages[url]))

    async def check(self, url: str) -> None:
        if url in self.private:
            raise AddressRefused(PRIVATE)


@frozen
class Call:
    """One request to a subscriber's callback."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form."""
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}


@implementer(interfaces.IOutbound, interfaces.IURLPolicy)
@define
class Subscribers:
    """All subscribers' servers, which repeat challenges and accept notifications.

    :ivar deaf: URLs of callbacks that do not answer.
    :ivar private: URLs at addresses that are not public.
    :ivar feeds: the answers at URLs of feeds, which the doctor for feeds examines.
    """

    deaf: set[str] = field(factory=set)
    feeds: dict[str, interfaces.OutboundReply] = field(factory=dict)
    private: set[str] = field(factory=set)
    calls: list[Call] = field(factory=list)

    async def request(self, request: interfaces.OutboundRequest) -> interfaces.OutboundReply:
        url, body = request.url, request.body
        self.calls.append(Call(request.method, url, request.headers, body))
        await self.check(url)
        if url.partition("?")[0] in self.deaf:
            raise OutboundError("nobody answers there")
        if url in self.feeds:
            return self.feeds[url]
        query = parse_qs(urlsplit(url).query)
        (challenge,) = query.get("challenge") or query.get("hub.challenge") or [""]
        answer = challenge.encode()
        if b"<methodCall>" in body:
            answer = xmlrpc_codec.encode_response(True)
        return interfaces.OutboundReply(200, {}, answer, url)

    async def check(self, url: str) -> None:
        if url.partition("?")[0] in self.private:
            raise AddressRefused(PRIVATE)


# --- the site ---------------------------------------------------------------------


@cache
def _routes_of_assets() -> Sequence[interfaces.Route]:
    """All houses share these, for it takes a while to compress the files."""
    return AssetsDoor().routes()


class SharedAssets(AssetsDoor):
    def routes(self) -> Sequence[interfaces.Route]:
        return _routes_of_assets()


class House:
    """The front doors, and a whole broker behind them.

    :param doors: the names of the front doors that run.
    :param limits: the limits on requests.
    :param options: options of front doors, by name; by default each has its default options.
    :param root: a root resource to use instead of the front doors.
    :param disclosure: what strangers see of callbacks; by default their hosts.
    :param self_test: answers the operator.
    :param tables: those of applications.
    """

    def __init__(
        self,
        case: SynchronousTestCase,
        *,
        doors: frozenset[str] = ALL_DOORS,
        http: Http | None = None,
        limits: config.RateLimitOptions | None = None,
        options: Mapping[str, object] | None = None,
        root: Root | None = None,
        disclosure: Disclosure | None = None,
        self_test: interfaces.ISelfTest | None = None,
        tables: Sequence[interfaces.AppTables] = (),
    ) -> None:
        self._case = case
        self.clock = Clock(NOON)
        self.threads = CallersThread(tables)
        self.store = memory_store(database=self.threads, clock=self.clock)
        case.addCleanup(self.store.stopService)
        self.topics = Topics()
        self.subscribers = Subscribers()
        self.counters = Counters()
        self.bus = bus = EventBus(counters=self.counters)
        notifiers: dict[str, interfaces.INotifier] = {
            "http-post": HttpPostNotifier("http-post", self.subscribers),
            "https-post": HttpPostNotifier("https-post", self.subscribers),
            "xml-rpc": XMLRPCNotifier(self.subscribers),
            "soap": SoapNotifier(self.subscribers),
            "websub": WebSubNotifier(self.subscribers, WebSubNotifierOptions()),
        }
        self.notifiers = notifiers
        self.public_directory = FilePath(case.mktemp())
        self.public_directory.makedirs()
        parts = sink_parts(
            store=self.store,
            bus=bus,
            notifiers=notifiers,
            clock=self.clock,
            counters=self.counters,
            public_url=PUBLIC_URL,
        )
        distribution = Distribution(DistributionOptions(), parts)
        bus.attach(distribution)
        distribution.startService()
        limiter = core.FairLimiter(self.clock)
        detector = change_detector(self.store, self.topics, bus, self.clock, self.counters, limiter)
        self.detector = detector
        detector.startService()
        case.addCleanup(detector.stopService)
        admission = core.Admission(
            limits or config.RateLimitOptions(),
            self.store.has_subscription,
            self.store.count_of_host,
            self.clock,
            self.counters,
        )
        verifier = core.Verifier(self.store, bus, detector, lambda: notifiers, self.clock, limiter)
        intents = core.IntentQueue(self.store, verifier, self.clock)
        intents.startService()
        case.addCleanup(intents.stopService)
        self.broker = core.Broker(
            self.store,
            bus,
            detector,
            verifier,
            intents,
            self.clock,
            admission,
            core.Access(config.Topics(), Blocks(), PUBLIC_URL),
            self.topics,
            self.subscribers,
            self.counters,
            FakeDiskSpace(),
        )
        pages = PageRenderer(lambda: site.pages)
        self.parts = interfaces.FrontDoorParts(
            self.broker,
            self.clock,
            pages,
            self.counters,
            self.public_directory,
            PUBLIC_URL,
            doors,
            execute,
            self.store,
            has_hub="websub" in doors,
            topics=core.TopicView(self.store, self.clock),
            event_log=core.EventLog(self.store),
            disclosure=disclosure or Disclosure(),
            max_connections=lambda: self.limits.http.max_connections,
            max_connections_per_address=lambda: self.limits.http.max_connections_per_address,
            feed_doctor=FeedDoctor(
                make_ask(self.subscribers, self.clock),
                self.clock,
                OwnBroker(PUBLIC_URL, frozenset({"http-post", "soap"}), "websub" in doors),
                self.broker.admit_examination,
                parse_here,
            ),
            self_test=self_test,
        )
        makers = [getattr(bundled, name) for name in sorted(doors)]
        chosen = {maker.name: maker.options() for maker in makers} | dict(options or {})
        self.doors = [maker.make(chosen[maker.name], self.parts) for maker in makers]
        site = root or Root([SharedAssets(), *self.doors], PUBLIC_URL)
        self.limits = HTTPLimits(http or Http(), self.clock)
        self.factory = bounded_site(site, self.limits, self.counters, pages.error)
        self._standing = self.clock.getDelayedCalls()

    def timers(self) -> list[IDelayedCall]:
        """The timers of requests and connections."""
        return [each for each in self.clock.getDelayedCalls() if each not in self._standing]

    def answers(self, status: int) -> float:
        """The number of answers with a status, by the broker's counter."""
        name, labels = "rsscloud_http_responses_total", {"status": str(status)}
        return self.counters.registry.get_sample_value(name, labels) or 0.0

    # asking

    def connect(self, peer: str | IAddress = CALLER) -> Exchange:
        """Open a connection."""
        return connected(self.factory, peer)

    def begin(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        peer: str | IAddress = CALLER,
    ) -> Exchange:
        """Open a connection and send a request on it."""
        exchange = self.connect(peer)
        exchange.send(request_bytes(method, path, body, headers))
        return exchange

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        peer: str | IAddress = CALLER,
    ) -> Answer:
        """Send one request and return the answer."""
        return self.begin(method, path, body, headers, peer).answer(method)

    def get(self, path: str, **query: str) -> Answer:
        return self.ask("GET", f"{path}?{urlencode(query)}" if query else path)

    def form(
        self,
        path: str,
        fields: Mapping[str, str] | Sequence[tuple[str, str]],
        headers: Mapping[str, str] | None = None,
        peer: str | IAddress = CALLER,
    ) -> Answer:
        """Send a form and return the answer."""
        body = urlencode(fields).encode("ascii")
        return self.ask("POST", path, body, {"Content-Type": FORM, **(headers or {})}, peer)

    def xmlrpc(
        self, method: str, *params: Any, path: str = "/RPC2", peer: str | IAddress = CALLER
    ) -> Any:
        """Call an XML-RPC procedure and return its value.

        :raises xmlrpc.client.Fault: the answer is a fault.
        """
        document = xmlrpc.client.dumps(params, method, allow_none=True).encode()
        answer = self.ask("POST", path, document, {"Content-Type": "text/xml"}, peer)
        self._case.assertEqual(
            (answer.status, answer.headers.get_content_type()), (200, "text/xml")
        )
        return xmlrpc.client.loads(answer.body)[0][0]

    def fault(self, method: str, *params: Any, path: str = "/RPC2") -> tuple[int, str]:
        """Call an XML-RPC procedure and return the code and text of the fault that must come."""
        error = self._case.assertRaises(
            xmlrpc.client.Fault, self.xmlrpc, method, *params, path=path
        )
        return error.faultCode, error.faultString

    def soap(
        self,
        operation: str,
        members: Mapping[str, str | Sequence[str]],
        *,
        path: str = "/soap",
        action: str | None = None,
        namespace: str = "",
        peer: str | IAddress = CALLER,
    ) -> Answer:
        """Call a SOAP operation and return the answer; see ``result``."""
        headers = {"Content-Type": "text/xml"}
        if action is not None:
            headers["SOAPAction"] = action
        return self.ask("POST", path, envelope(operation, members, namespace), headers, peer)

    def result(self, answer: Answer) -> Any:
        """The result in the answer to a SOAP call.

        :raises soap.SoapFault: the answer is a fault, whose HTTP status must be 500.
        """
        self._case.assertEqual(answer.headers.get_content_type(), "text/xml")
        try:
            value = soap_codec.decode_response(answer.body)
        except soap_codec.SoapFault:
            self._case.assertEqual(answer.status, 500)
            raise
        self._case.assertEqual(answer.status, 200)
        return value

    def soap_fault(self, answer: Answer) -> tuple[str, str]:
        """The code and the text of a SOAP fault."""
        error = self._case.assertRaises(soap_codec.SoapFault, self.result, answer)
        return error.code, error.string

    # what is stored

    def pings(self) -> list[Ping]:
        """All pings in the store, oldest first."""
        found = self._case.successResultOf(self.store.pings(0, NOON * 2, None, 10_000))
        return found[::-1]

    def subscriptions(self, topic: str = FEED) -> list[Subscription]:
        """The subscriptions of a topic."""
        return self._case.successResultOf(self.store.subscriptions(topic, 0, 10_000))

    def stored(self) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of all tables."""

        def dump(conn: Connection) -> dict[str, list[tuple[Any, ...]]]:
            return {
                table.name: [tuple(row) for row in conn.execute(select(table))]
                for table in metadata.sorted_tables
            }

        return self._case.successResultOf(self.threads.read(dump))

    def break_store(self) -> None:
        """Drop the tables, so that the store is unavailable from now on."""
        self._case.successResultOf(self.threads.write(metadata.drop_all))

    def subscribe(self, protocol: str = "http-post", topic: str = FEED, path: str = "/n") -> None:
        """Subscribe the caller, and forget the calls that this needed."""
        fields = {"port": "8080", "path": path, "protocol": protocol, "url1": topic}
        if protocol in {"xml-rpc", "soap"}:
            fields["notifyProcedure"] = "river.notify"
        answer = self.form("/rsscloud/pleaseNotify", fields)
        self._case.assertEqual(answer.xml.get("success"), "true", answer.text)
        self.subscribers.calls.clear()
        self.topics.fetched.clear()


class HouseTestCase(SynchronousTestCase):
    """A test case with a house."""

    def setUp(self) -> None:
        self.house = House(self)
