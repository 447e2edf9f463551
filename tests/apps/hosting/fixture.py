"""The application in memory: behind its real front doors are the real store and publisher."""

from __future__ import annotations

import xmlrpc.client
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.hosting.app import make_hosting
from rsscloud_broker.apps.hosting.documents import HostedDocument, check_document
from rsscloud_broker.apps.hosting.options import HostingOptions
from rsscloud_broker.apps.hosting.schema import TABLES
from rsscloud_broker.config import Http, Topics
from rsscloud_broker.core import Access, Blocks, FairLimiter, Publisher
from rsscloud_broker.counters import Counters
from rsscloud_broker.front_doors.rsscloud import RssCloudDoor, RssCloudOptions
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.site import Root
from rsscloud_broker.model import Callback, Lease, Ping, Subscription
from rsscloud_broker.testing import CallersThread, FakeFetcher, app_parts, memory_store
from rsscloud_broker.web.pages import PageRenderer
from rsscloud_broker.wire import soap
from tests.accounts.fixture import PASSWORD
from tests.core.house import Bus, FakeDiskSpace, change_detector
from tests.front_doors.exchange import FORM, Answer, ask, envelope
from tests.web.accounts_site import PUBLIC_URL, AccountSite

BASE = f"{PUBLIC_URL}/feeds"
URL = f"{BASE}/dave/rss.xml"
PATH = "/feeds/dave/rss.xml"

#: The address that requests come from: a trusted proxy, which speaks of somebody elsewhere.
PROXY = "10.0.0.1"
HTTPS = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}


def a_feed(text: str = "1", size: int = 0) -> bytes:
    """A feed of RSS 2.0.

    :param size: how many bytes it has at least.
    """
    filling = "x" * size
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n<rss version="2.0"><channel><title>{text}'
        f"</title><description>{filling}</description></channel></rss>"
    ).encode()


def make_document(path: str, body: bytes, content_type: str = "") -> HostedDocument:
    """Check a document, and return it as it can be stored."""
    return HostedDocument(body, *check_document(path, body, content_type))


def basic(name: str = "dave", password: str = PASSWORD) -> dict[str, str]:
    """The header with a name and a password."""
    return {"Authorization": f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"}


class HostingHouse(AccountSite):
    """Accounts, the application, and the part of a broker that publishes."""

    def __init__(
        self,
        case: SynchronousTestCase,
        options: HostingOptions | None = None,
        *,
        has_hub: bool = True,
    ) -> None:
        super().__init__(case)
        self.case = case
        self.threads = CallersThread([TABLES])
        self.broker_store = memory_store(database=self.threads, clock=self.clock)
        case.addCleanup(self.broker_store.stopService)
        self.bus, counters, self.blocks = Bus(), Counters(), Blocks()
        self.space = FakeDiskSpace()
        self.fetcher = FakeFetcher()
        detector = change_detector(
            self.broker_store, self.fetcher, self.bus, self.clock, counters, FairLimiter(self.clock)
        )
        detector.startService()
        case.addCleanup(detector.stopService)
        access = Access(Topics(), self.blocks)
        pages = PageRenderer(lambda: root.pages)
        self.app_parts = app_parts(
            pages=pages,
            clock=self.clock,
            public_url=PUBLIC_URL,
            accounts=self.accounts,
            callers=self.callers,
            publisher=Publisher(
                self.broker_store, detector, self.bus, self.clock, access, self.space
            ),
            database=self.threads,
            counters=counters,
            has_hub=has_hub,
            running=frozenset({"rsscloud", "hosting"}),
        )
        self.app = make_hosting(options or HostingOptions(), self.app_parts)
        rsscloud = RssCloudDoor(RssCloudOptions(), self.parts)
        root = Root([*self.app.front_doors, *self.doors, rsscloud], PUBLIC_URL)
        limits = HTTPLimits(Http(trusted_proxies=(PROXY,)), self.clock)
        self.factory = bounded_site(root, limits, counters, pages.error)

    # asking

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        peer: str = PROXY,
    ) -> Answer:
        """Send one request, by default over HTTPS through a proxy; return the answer."""
        sent = {**(HTTPS if peer == PROXY else {}), **(headers or {})}
        return ask(self.factory, method, path, body, sent, peer)

    def put(
        self, body: bytes, path: str = PATH, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a file with the name and the password of dave."""
        sent = {**basic(), "Content-Length": str(len(body)), **(headers or {})}
        return self.ask("PUT", path, body, sent)

    def get(self, path: str = PATH, **headers: str) -> Answer:
        """Read a file.  An underscore in the name of a header stands for a hyphen."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("GET", path, headers=named)

    def delete(self, path: str = PATH, headers: Mapping[str, str] | None = None) -> int:
        """Delete a file of dave; the status of the answer."""
        return self.ask("DELETE", path, headers={**basic(), **(headers or {})}).status

    def form(self, path: str, fields: Mapping[str, Any], **headers: str) -> Answer:
        """Send a form."""
        return self.ask("POST", path, urlencode(fields).encode(), {"Content-Type": FORM, **headers})

    def xmlrpc(self, method: str, *params: Any) -> Any:
        """Call an XML-RPC procedure.

        :raises xmlrpc.client.Fault: the answer is a fault.
        """
        document = xmlrpc.client.dumps(params, method, allow_none=True).encode()
        answer = self.ask("POST", "/RPC2", document, {"Content-Type": "text/xml"})
        self.case.assertEqual(answer.status, 200, answer.text)
        return xmlrpc.client.loads(answer.body, use_builtin_types=True)[0][0]

    def fault(self, method: str, *params: Any) -> str:
        """Call an XML-RPC procedure; the text of the fault that must come."""
        error = self.case.assertRaises(xmlrpc.client.Fault, self.xmlrpc, method, *params)
        self.case.assertEqual(error.faultCode, 4)
        text: str = error.faultString
        return text

    def soap(self, operation: str, members: Mapping[str, Any], action: str = "/rssCloud") -> Any:
        """Call a SOAP operation.

        :raises soap.SoapFault: the answer is a fault.
        """
        headers = {"Content-Type": "text/xml", "SOAPAction": f'"{action}"'}
        answer = self.ask("POST", "/soap", envelope(operation, members), headers)
        return soap.decode_response(answer.body)

    # what is stored

    def subscribe(self, topic: str = URL, *, wants_content: bool = False) -> Subscription:
        """Store a subscription, as if it had been verified."""
        callback = Callback("http://reader.example/notify", "carrier")
        lease = Lease(self.clock.wall_seconds(), 86_400)
        wanted = Subscription(topic, callback, lease, wants_content=wants_content)
        return self.case.successResultOf(self.broker_store.put_subscription(wanted))

    def walks(self) -> list[Any]:
        """The fan-outs that have begun."""
        return self.case.successResultOf(self.broker_store.fanouts(100))

    def pings(self) -> list[Ping]:
        """The pings that are recorded."""
        return self.case.successResultOf(self.broker_store.pings(0, 9e9, None, 1000))


class HostingTestCase(SynchronousTestCase):
    """A test case with the application.

    :cvar options: those of the application.
    """

    options = HostingOptions()

    def setUp(self) -> None:
        self.house = HostingHouse(self, self.options)

    def assert_nothing_stored(self) -> None:
        """Check that no file, no ping and no fan-out is stored."""
        self.assertEqual(self.house.get().status, 404)
        self.assertEqual((self.house.pings(), self.house.walks()), ([], []))
