"""The pages of the river behind the real site and real accounts, with a river in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve
from lxml import html
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.river.model import Arrival, Feed, ImportedFeeds, InvalidFeed, Item
from rsscloud_broker.apps.river.page import RiverPageDoor
from rsscloud_broker.apps.river.river import River
from rsscloud_broker.config import Http
from rsscloud_broker.counters import Counters
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import Caller
from rsscloud_broker.testing import CallersThread, app_parts
from rsscloud_broker.web.assets import AssetsDoor
from rsscloud_broker.web.pages import PageRenderer
from tests.front_doors.exchange import connected, request_bytes
from tests.web.accounts_site import PUBLIC_URL, AccountSite, Browser

#: The time at which items arrived.
AT = 1_790_683_200.0


class FakeRiver(River):
    """A river in memory, in which the test puts feeds and items.

    :ivar lists: the feeds that each account follows, by the account's id.
    :ivar stored: all items, in the order of their ids.
    :ivar seen: what each account has seen, by the account's id.
    :ivar public: the ids of accounts whose rivers everybody may read.
    :ivar reads: the reads of arrivals: of all accounts, or of one.
    :ivar hint: called when items arrive.
    """

    def __init__(self) -> None:
        self.store: Any = self
        self.lists: dict[int, dict[int, Feed]] = {}
        self.stored: list[Item] = []
        self.seen: dict[int, int] = {}
        self.public: set[int] = set()
        self.stopped: dict[int, int | None] = {}
        self.reads: list[str] = []
        self.imported = ImportedFeeds(0)
        self.documents: list[bytes] = []
        self.refusal: Exception | None = None
        self.hint: Callable[[], None] = lambda: None
        self.waiting: Deferred[None] | None = None

    # what tests do

    def follow(self, account: int, feed: Feed) -> None:
        self.lists.setdefault(account, {})[feed.id] = feed

    def add(self, *items: Item) -> None:
        """Store items that nobody announces."""
        self.stored += items

    def arrive(self, *items: Item) -> None:
        """Store items of one feed, and announce them."""
        self.add(*items)
        self.hint()

    def _followers(self, feed_id: int) -> frozenset[int]:
        return frozenset(key for key, feeds in self.lists.items() if feed_id in feeds)

    def _of(self, account_id: int) -> list[Item]:
        feeds = self.lists.get(account_id, {})
        return [item for item in self.stored if item.feed_id in feeds]

    # the river

    async def feeds(self, account_id: int) -> list[Feed]:
        return sorted(self.lists.get(account_id, {}).values(), key=lambda each: each.title)

    async def subscribe(self, caller: Caller, url: str, source: str) -> Feed:
        self.documents.append(f"{url} {source}".encode())
        if self.refusal is not None:
            raise self.refusal
        mine = self.lists.get(caller.account.id, {})
        known = [each for each in mine.values() if each.url == url]
        feed = known[0] if known else Feed(100 + len(mine), url, f"Feed of {url}")
        self.follow(caller.account.id, feed)
        return evolve(feed, is_new=not known)

    async def unsubscribe(self, caller: Caller, feed: int | str) -> Feed | None:
        assert isinstance(feed, int)  # the page knows the numbers
        return self.lists.get(caller.account.id, {}).pop(feed, None)

    async def import_opml(
        self, caller: Caller, data: bytes, source: str, charset: str | None = None
    ) -> ImportedFeeds:
        if b"<opml" not in data:
            raise InvalidFeed("this is no OPML")
        self.documents.append(data)
        return self.imported

    async def items(self, account_id: int, before: int | None, limit: int) -> list[Item]:
        found = [each for each in self._of(account_id) if before is None or each.id < before]
        return found[::-1][:limit]

    async def items_after(self, account_id: int, after: int, limit: int) -> list[Item]:
        return [each for each in self._of(account_id) if each.id > after][:limit]

    async def arrivals(
        self, after: int, until: int, limit: int, account_id: int | None = None
    ) -> list[Arrival]:
        self.reads.append("arrivals" if account_id is None else "own arrivals")
        if self.waiting is not None:
            await self.waiting
        found = []
        for each in self.stored:
            followers = self._followers(each.feed_id)
            if after < each.id <= until and (account_id is None or account_id in followers):
                titles = [self.lists[key][each.feed_id].title for key in followers]
                found.append(Arrival(each, titles[0] if titles else "", "", followers))
        return found[:limit]

    async def newest_id(self) -> int:
        return self.stored[-1].id if self.stored else 0

    async def mark_seen(self, account_id: int, item_id: int) -> None:
        self.seen[account_id] = max(self.seen.get(account_id, 0), item_id)

    async def last_seen(self, account_id: int) -> int:
        return self.seen.get(account_id, 0)

    async def stop_at(self, account_id: int, item_id: int | None) -> None:
        self.stopped[account_id] = item_id

    async def stopped_at(self, account_id: int) -> int | None:
        return self.stopped.get(account_id)

    async def mute_feed(self, account_id: int, feed_id: int, is_muted: bool) -> bool:
        feeds = self.lists.get(account_id, {})
        if feed_id in feeds:
            feeds[feed_id] = evolve(feeds[feed_id], is_muted=is_muted)
        return feed_id in feeds

    async def is_public(self, account_id: int) -> bool:
        return account_id in self.public

    async def set_public(self, account_id: int, name: str, public: bool) -> None:
        (self.public.add if public else self.public.discard)(account_id)


class RiverSite(AccountSite):
    """A site with the pages of the river and of accounts."""

    def __init__(self, case: SynchronousTestCase, http: Http | None = None) -> None:
        super().__init__(case)
        self.river = FakeRiver()
        limits = HTTPLimits(http or Http(), self.clock)
        pages = PageRenderer(lambda: root.pages)
        parts = app_parts(
            database=CallersThread(),  # nothing is stored
            max_connections=lambda: limits.http.max_connections,
            max_connections_per_address=lambda: limits.http.max_connections_per_address,
            pages=pages,
            clock=self.clock,
            public_url=PUBLIC_URL,
            running=frozenset({"accounts", "river"}),
            accounts=self.accounts,
            callers=self.callers,
        )
        door = RiverPageDoor(parts, self.river)
        self.river.hint = door.hint
        root = Root([AssetsDoor(), *self.doors, door], PUBLIC_URL)
        self.factory = bounded_site(root, limits, Counters(), pages.error)

    def browser(self, name: str = "dave", source: str = "192.0.2.7") -> Browser:
        """A browser in which somebody has signed in."""
        browser = Browser(self, source)
        browser.sign_in(name)
        return browser


class EventReader:
    """A browser that reads the event stream.

    :param browser: has the cookies.
    """

    def __init__(
        self,
        site: RiverSite,
        browser: Browser,
        query: str = "",
        last: str = "",
        source: str = "192.0.2.7",
    ) -> None:
        self.exchange = connected(site.factory, source)
        headers = {
            "Cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        }
        if last:
            headers["Last-Event-ID"] = last
        self.exchange.send(request_bytes("GET", f"/river/events{query}", headers=headers))

    @property
    def is_open(self) -> bool:
        return self.exchange.open

    @property
    def status(self) -> int:
        return int(self.exchange.transport.value()[9:12])

    @property
    def text(self) -> str:
        """The body that has come so far."""
        return self.exchange.streamed.decode()

    def events(self) -> list[Mapping[str, Any]]:
        """The items that have come, and other events by their names."""
        found: list[Mapping[str, Any]] = []
        for block in self.text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line[1:])
            if "event" in fields:
                found.append({"id": fields["event"]})
            elif "data" in fields:
                found.append(json.loads(fields["data"]))
        return found

    def ids(self) -> list[Any]:
        """The ids of the items that have come."""
        return [event["id"] for event in self.events()]

    def sections(self) -> list[Any]:
        """The elements of the items that have come."""
        return [html.fragment_fromstring(event["html"]) for event in self.events()]

    def pause(self) -> None:
        """Say that the buffers of the connection are full."""
        producer: Any = self.exchange.transport.producer
        producer.pauseProducing()

    def resume(self) -> None:
        producer: Any = self.exchange.transport.producer
        producer.resumeProducing()

    def leave(self) -> None:
        self.exchange.transport.loseConnection()


def feed(key: int = 1, title: str = "A feed", **more: Any) -> Feed:
    return Feed(key, f"http://feeds.example/{key}.xml", title, added_at=AT, **more)


def item(key: int, feed_id: int = 1, title: str = "", **more: Any) -> Item:
    shown = title or f"Item {key}"
    link = f"http://site.example/{key}"
    given = {"link": link, "arrived_at": AT, "text_html": f"<p>Text {key}</p>", **more}
    return Item(key, feed_id, f"guid-{key}", shown, **given)
