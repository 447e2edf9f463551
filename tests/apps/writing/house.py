"""The authoring tool with a broker's core and a store in memory, and the site in front of it.

Behind the doors are the real accounts, the real store and the real publisher.
"""

from __future__ import annotations

import json
import xmlrpc.client
from collections.abc import Mapping
from typing import Any, cast

from attrs import evolve
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.writing.app import make
from rsscloud_broker.apps.writing.model import Enclosure, NewPost, Post
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.apps.writing.schema import TABLES
from rsscloud_broker.apps.writing.serving import FeedTopics
from rsscloud_broker.apps.writing.upload_rows import StoredUpload
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.config import Http, Topics
from rsscloud_broker.core import Access, Blocks, FairLimiter, Publisher
from rsscloud_broker.counters import Counters
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import Account, AppParts, Caller
from rsscloud_broker.model import Callback, Lease, Subscription
from rsscloud_broker.model.administration import Change
from rsscloud_broker.storage import Store
from rsscloud_broker.testing import CallersThread, Clock, FakeFetcher, FakeOutbound, app_parts
from rsscloud_broker.web.assets import AssetsDoor
from rsscloud_broker.web.pages import PageRenderer
from tests.core.house import Bus, FakeDiskSpace, change_detector
from tests.front_doors.exchange import FORM, Answer, ask
from tests.web.accounts_site import AccountSite, Browser
from tests.web.file_form import MULTIPART, Part, multipart

BROKER = "http://broker.example"
FEED = f"{BROKER}/people/dave/rss.xml"
ATOM, JSON = FEED.replace("rss", "atom"), FEED.replace("rss.xml", "feed.json")
DAVE = Caller(Account(1, "dave", False, 0.0), frozenset())
SUCCESSOR = Caller(Account(77, "dave", False, 0.0), frozenset())  # with the name of a removed one
ANNA = Caller(Account(2, "anna", False, 0.0), frozenset())
SOURCE = "192.0.2.7"

#: A trusted proxy.
PROXY = "10.0.0.1"

#: The beginnings of files, by which their kinds are known.
JPEG, PNG, GIF = (
    b"\xff\xd8\xff\xe0 a picture",
    b"\x89PNG\r\n\x1a\n a picture",
    b"GIF89a\x01\x00\x01\x00",
)


#: What a proxy says of somebody elsewhere.
HTTPS = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
HTTP = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "http"}

#: For tests that make many things in a moment.
QUICK = WritingOptions(posts_per_minute=10_000)


class WritingTestCase(SynchronousTestCase):
    """A test case with the authoring tool.

    :ivar web: the client by which servers of enclosures are asked.
    :ivar blocks: what administrators have blocked.
    :ivar disk: may be full.
    """

    options = WritingOptions()

    def setUp(self) -> None:
        url, self.threads = self.new_database()
        unused = cast(IReactorFromThreads, Clock())
        self.store = Store(unused, url, threads=self.threads)
        self.store.startService()
        self.addCleanup(self.store.stopService)
        self.clock, self.bus, self.web = Clock(), Bus(), FakeOutbound()
        self.blocks, self.disk = Blocks(), FakeDiskSpace()
        self.directory = FilePath(self.mktemp())
        self.parts = self._parts()
        self.writing = Writing(self.options, self.parts)

    def new_database(self) -> tuple[str, CallersThread]:
        """The URL of a new database, and what runs the operations on it."""
        return "sqlite://", CallersThread([TABLES])

    def _parts(self, **others: Any) -> AppParts:
        counters = Counters()
        detector = change_detector(
            self.store, FakeFetcher(), self.bus, self.clock, counters, FairLimiter(self.clock)
        )
        access = Access(Topics(), self.blocks)
        own: dict[str, Any] = {
            "publisher": Publisher(self.store, detector, self.bus, self.clock, access, self.disk),
            "database": self.threads,
            "pages": PageRenderer(),
            "web": self.web,
            "clock": self.clock,
            "counters": counters,
            "directory": self.directory,
            "public_url": BROKER,
            "has_hub": True,
            "has_cloud": True,
        }
        return app_parts(**(own | others))

    def result(self, work: Any) -> Any:
        """The result of a coroutine or a Deferred that has nothing to wait for."""
        return self.successResultOf(work)

    def error(self, work: Any, kind: type[Exception]) -> str:
        """The text of the error that a coroutine raises."""
        return str(self.failureResultOf(work, kind).value)

    def add(self, text: str = "Hello", caller: Caller = DAVE, **more: Any) -> Post:
        """Publish a message."""
        post: Post = self.result(self.writing.add(caller, NewPost(text, **more), SOURCE))
        return post

    def posts(self, caller: Caller = DAVE) -> list[Post]:
        """The messages of an account, the newest first."""
        return self.successResultOf(self.writing.store.all_posts(caller.account.id, 100))

    def only_post(self) -> Post:
        (post,) = self.posts()
        return post

    def newest_file(self) -> Enclosure:
        """The enclosure of dave's newest message."""
        file = self.posts()[0].enclosure
        assert file is not None
        return file

    def files_of(self, caller: Caller = DAVE) -> list[StoredUpload]:
        """The files of an account, the newest first."""
        return self.successResultOf(self.writing.store.uploads(caller.account.id, 100))

    def upload_file(self, data: bytes, name: str = "a.gif", caller: Caller = DAVE) -> str:
        """Upload a file.  Returns its URL."""
        made = self.result(self.writing.upload(caller, name, data, SOURCE))
        return self.writing.files.url(caller.name, made)

    def delete(self, post_id: int, caller: Caller = DAVE) -> bool:
        """Delete a message.  Returns whether there was one."""
        return bool(self.result(self.writing.delete(caller, post_id, SOURCE)))

    def remove_upload(self, digest: str, caller: Caller = DAVE) -> bool:
        """Delete a file.  Returns whether there was one."""
        return bool(self.result(self.writing.remove_upload(caller, digest)))

    def edit(self, post: Post, caller: Caller = DAVE, **changes: Any) -> Post:
        """Change a message."""
        new = evolve(post.as_new(), **changes)
        changed: Post = self.result(self.writing.edit(caller, post.id, new, SOURCE))
        return changed

    def feed(self, url: str = FEED) -> bytes:
        """The present bytes of a feed, as a subscriber's topic."""
        content = self.result(FeedTopics(self.writing).read(url))
        assert content is not None, f"there is no feed at {url}"
        return bytes(content.body)

    def has_feed(self, url: str = FEED) -> bool:
        return self.result(FeedTopics(self.writing).read(url)) is not None

    def subscribe(self, *urls: str) -> None:
        """Subscribe to feeds, by WebSub: the subscriptions want the content."""
        for url in urls:
            callback = Callback(f"http://reader.example/{url[-8:]}", "websub")
            new = Subscription(url, callback, Lease(0.0, 9_000_000), wants_content=True)
            self.successResultOf(self.store.put_subscription(new))

    def waiting(self) -> dict[str, bytes]:
        """The contents that subscribers are to get, by topic."""
        found = {}
        for walk in self.successResultOf(self.store.fanouts(10)):
            content = self.successResultOf(self.store.content(walk.content_id or 0))
            found[walk.topic] = content.body if content else b""
        return found


class SiteTestCase(WritingTestCase):
    """A test case with the site in front of the tool, and with the accounts of DAVE and ANNA.

    :ivar browser: a browser of dave's, who is an administrator; not signed in yet.
    :ivar removals: what administrators took down of everybody.
    :ivar asked: for whose removals the tool has asked, and since when.
    """

    def setUp(self) -> None:
        super().setUp()
        self.house = AccountSite(self, public_url=BROKER)
        self.clock = self.house.clock
        self.asked: list[tuple[str, float]] = []
        self.removals: list[Change] = []

        async def taken_down(name: str, since: float) -> list[Change]:
            self.asked.append((name, since))
            return self.removals

        self.parts = self._parts(
            accounts=self.house.accounts, callers=self.house.callers, taken_down=taken_down
        )
        door: Any
        (door,) = make(self.options, self.parts).front_doors
        self.writing = door._writing
        limits = HTTPLimits(Http(trusted_proxies=(PROXY,)), self.clock)
        root = Root([door, *self.house.doors, AssetsDoor()], BROKER)
        self.factory: Any = bounded_site(root, limits, Counters(), PageRenderer().error)
        self.browser = Browser(self)

    # what dave's browser shows

    def found(self, xpath: str) -> Any:
        """What an XPath finds in the page."""
        return self.browser.page.xpath(xpath)

    def typed(self, name: str = "text") -> str:
        """What is in a field of a form."""
        values = f"//textarea[@name='{name}']/text() | //input[@name='{name}']/@value"
        return "".join(self.found(values))

    def shown(self) -> str:
        """The text of the page."""
        return str(self.browser.page.text_content())

    def signed_in(self, name: str = "dave") -> Browser:
        """A browser of somebody who has signed in."""
        browser = Browser(self)
        browser.sign_in(name)
        return browser


class PostingTestCase(SiteTestCase):
    """A test case with what programs send.

    :ivar token: an API token of dave with the scope ``publish``.
    """

    options = QUICK

    def setUp(self) -> None:
        super().setUp()
        self.token = self.house.token("publish")

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send one request, by default over HTTPS through a proxy; return the answer."""
        return ask(self.factory, method, path, body, {**HTTPS, **(headers or {})}, PROXY)

    def call(self, method: str, *params: Any, headers: Mapping[str, str] | None = None) -> Any:
        """Call an XML-RPC procedure.

        :raises xmlrpc.client.Fault: the answer is a fault.
        """
        document = xmlrpc.client.dumps(params, method, allow_none=True).encode()
        return self.send_call(document, headers)

    def send_call(self, document: bytes, headers: Mapping[str, str] | None = None) -> Any:
        """Send an XML-RPC call as a client wrote it."""
        sent = {"Content-Type": "text/xml", **(headers or {})}
        answer = self.ask("POST", "/RPC2", document, sent)
        self.assertEqual(answer.status, 200, answer.text)
        return xmlrpc.client.loads(answer.body, use_builtin_types=True)[0][0]

    def fault(self, method: str, *params: Any, headers: Mapping[str, str] | None = None) -> Any:
        """Call an XML-RPC procedure; the fault that must come."""
        with self.assertRaises(xmlrpc.client.Fault) as caught:
            self.call(method, *params, headers=headers)
        self.assertRegex(caught.exception.faultString, r"^(?:[A-Z]|http:).*\.$")
        return caught.exception

    def form(self, body: str, path: str = "/micropub", token: str | None = None) -> Answer:
        """Send a form with a token."""
        headers = {"Content-Type": f"{FORM}; charset=utf-8", **self.bearer(token)}
        return self.ask("POST", path, body.encode(), headers)

    def json(self, document: Any, token: str | None = None) -> Answer:
        """Send JSON with a token."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        headers = {"Content-Type": "application/json", **self.bearer(token)}
        return self.ask("POST", "/micropub", body, headers)

    def files(self, *parts: Part, path: str = "/micropub", token: str | None = None) -> Answer:
        """Send a form with files and a token."""
        headers = {"Content-Type": MULTIPART, **self.bearer(token)}
        return self.ask("POST", path, multipart(*parts), headers)

    def query(self, query: str, path: str = "/micropub") -> Any:
        """The JSON that answers a query."""
        answer = self.ask("GET", f"{path}?{query}", headers=self.bearer(None))
        self.assertEqual(answer.status, 200, answer.text)
        self.assertEqual(answer.headers["content-type"], "application/json")
        return json.loads(answer.body)

    def bearer(self, token: str | None) -> dict[str, str]:
        """The header with a token: dave's by default; empty for none."""
        token = self.token if token is None else token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def uploads(self) -> list[str]:
        """The names of dave's files."""
        return [each.name for each in self.files_of()]
