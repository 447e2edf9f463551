"""The front door ``events`` on a database in memory, and its site."""

from __future__ import annotations

from typing import Any, cast

from attrs import evolve
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.events import names
from rsscloud_broker.apps.events.door import EventsDoor
from rsscloud_broker.apps.events.options import EventsOptions, history
from rsscloud_broker.config import Http
from rsscloud_broker.counters import Counters
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.site import Root
from rsscloud_broker.model import Content, Ping
from rsscloud_broker.model.ways import Way
from rsscloud_broker.model.work import Bounds
from rsscloud_broker.simplefeed.documents import parse
from rsscloud_broker.simplefeed.entries import Entry
from rsscloud_broker.simplefeed.schema import TABLES
from rsscloud_broker.testing import Clock, front_door_parts, memory_store
from rsscloud_broker.testing.memory import CallersThread
from rsscloud_broker.web.pages import PageRenderer
from tests.front_doors.exchange import Answer, Exchange, connected, request_bytes
from tests.store_contract.basics import a_fetch

URL = "http://broker.example"
FEED = "http://feeds.example/rss.xml"


class EventsHouse:
    """The front door, and what it works on.

    :ivar store: the store, whose methods return Deferreds that have fired.
    :ivar published: the paths of the feeds whose subscribers were notified, in order.
    """

    def __init__(
        self,
        case: SynchronousTestCase,
        options: EventsOptions | None = None,
        http: Http | None = None,
        per_document: int = 3,
    ) -> None:
        case.patch(names, "PER_DOCUMENT", per_document)
        self.case = case
        self.options = options or EventsOptions()
        self.clock = Clock()
        self.database = CallersThread([TABLES])
        kept = history(self.options, URL, ["http://pushed.example/"])
        self.store = memory_store(Bounds(history=kept), self.database)
        self.directory = FilePath(case.mktemp())
        self.published: list[str] = []
        self.http = http or Http()
        self.door = self.new_door()
        self.pings = self.changes = 0
        case.addCleanup(self.stop)

    def new_door(self) -> EventsDoor:
        """A front door, as another process would make it on the same database."""
        limits = HTTPLimits(self.http, cast(Any, self.clock))
        parts = front_door_parts(
            clock=self.clock,
            pages=PageRenderer(),
            public_url=URL,
            running=frozenset({"events"}),
            statistics=self.store,
            has_hub=True,
            max_connections=lambda: limits.http.max_connections,
            max_connections_per_address=lambda: limits.http.max_connections_per_address,
            database=self.database,
            changes=self.store,
            directory=self.directory,
            published=self.published.append,
        )
        self.door = EventsDoor(self.options, parts)
        self.factory = bounded_site(Root([self.door], URL), limits, Counters())
        return self.door

    def start(self) -> None:
        self.door.startService()
        self.wait(0)

    def stop(self) -> None:
        if self.door.running:
            self.door.stopService()
            self.wait(0)

    def wait(self, seconds: float = 0.5) -> None:
        """Let time pass, and then all turns that are due at once."""
        self.clock.advance(seconds)
        for _ in range(20):
            self.clock.advance(0)

    def ping(self, *names: str, at: float | None = None) -> None:
        """Record pings of sites."""
        for name in names:
            self.pings += 1
            url = f"http://{name}.example/{self.pings}"
            ping = Ping(name, url, self.clock.wall_seconds() if at is None else at)
            self.case.successResultOf(self.store.add_ping(ping, 0.0))

    def change(
        self,
        url: str = FEED,
        content: Content | None = None,
        way: Way = Way.RSSCLOUD,
        at: float | None = None,
    ) -> None:
        """Record that a fetch found a topic changed."""
        self.changes += 1
        when = self.clock.wall_seconds() if at is None else at
        fetched = a_fetch(b"%d" % self.changes, when, url)
        fetched = evolve(fetched, content=content, way=way)
        self.case.successResultOf(self.store.record_fetch(fetched, None))

    def begin(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET"
    ) -> Exchange:
        """Send a request, and return the connection."""
        exchange = connected(self.factory)
        exchange.send(request_bytes(method, path, b"", headers or {}))
        return exchange

    def ask(self, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> Answer:
        """Send a request, whose answer must be there at once."""
        return self.begin(path, headers, method).answer(method)

    def entries(self, path: str) -> list[Entry]:
        """The entries of a document, the oldest first."""
        answer = self.ask(path)
        self.case.assertEqual(answer.status, 200, answer.text)
        entries, order = parse(answer.body, URL + path, {}).entries(True)
        self.case.assertFalse(order.mixed)
        return entries

    def titles(self, path: str) -> list[str]:
        return [each.title for each in self.entries(path)]

    def link(self, path: str, relation: str) -> str:
        """The path of a link of a document; empty if it has none."""
        found = parse(self.ask(path).body, URL + path, {}).links.get(relation, "")
        return found.removeprefix(URL)

    def all_titles(self, path: str) -> list[str]:
        """The titles in a feed with all its documents, the oldest first."""
        titles: list[str] = []
        while path:
            titles = self.titles(path) + titles
            path = self.link(path, "prev-archive")
        return titles

    def result(self, deferred: Any) -> Any:
        return self.case.successResultOf(deferred)
