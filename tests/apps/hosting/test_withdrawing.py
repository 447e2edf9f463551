"""What was stored disappears after its account was removed, or when an administrator says so."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from rsscloud_broker.accounts import RemovedAccounts
from rsscloud_broker.apps.hosting.documents import NotStored
from rsscloud_broker.apps.hosting.hosting import Hosting
from rsscloud_broker.apps.hosting.options import HostingOptions
from rsscloud_broker.events import TopicEnded
from rsscloud_broker.model.administration import Block
from rsscloud_broker.storage import AccountStore
from tests.apps.hosting.fixture import BASE, PATH, URL, HostingTestCase, a_feed, basic

TEXT = "/feeds/dave/note.txt"


class WithdrawingCase(HostingTestCase):
    """A feed and a text of dave, and a feed of anna."""

    def setUp(self) -> None:
        super().setUp()
        self.house.put(a_feed())
        self.house.put(b"hello", TEXT, {"Content-Type": "text/plain"})
        self.house.put(a_feed("anna"), "/feeds/anna/rss.xml", basic("anna"))
        self.house.subscribe()
        self.house.bus.events.clear()

    def statuses(self) -> list[int]:
        return [self.house.get(path).status for path in (PATH, TEXT, "/feeds/anna/rss.xml")]

    def ended(self) -> list[tuple[str, str]]:
        return [
            (event.topic, event.reason)
            for event in self.house.bus.events
            if isinstance(event, TopicEnded)
        ]


class RemovedAccountTests(WithdrawingCase):
    def test_its_files_are_gone_and_subscribers_are_told(self) -> None:
        """Of blocked topics, too."""
        self.assertEqual(self.statuses(), [200, 200, 200])
        self.house.blocks.change([Block("topic", URL, "spam", "alice", 1.0)])
        (data,) = self.house.app.account_data
        self.house.result(data.remove(self.house.caller().account.id))
        self.assertEqual(self.statuses(), [410, 410, 200])
        self.assertEqual(self.ended(), [(URL, "the account of its author was removed")])
        self.assertEqual([walk.topic for walk in self.house.walks()], [URL])

    def test_the_broker_notices_and_then_is_content(self) -> None:
        """The accounts of the house are in another database, so here all are gone."""
        store = AccountStore(self.house.threads)
        service = RemovedAccounts(store, self.house.clock, self.house.app.account_data)
        self.house.result(service.look())
        self.assertEqual(self.statuses(), [410, 410, 410])
        (data,) = self.house.app.account_data
        left = self.successResultOf(store.ids_without_account(data.column, 10))
        self.assertEqual(left, [])


class TakenDownTests(WithdrawingCase):
    def setUp(self) -> None:
        super().setUp()
        self.recorded: list[Any] = []
        (self.served,) = self.house.app.topics

    def take_down(self, url: str) -> Any:
        assert self.served.take_down is not None
        return self.house.result(self.served.take_down(url, "it is spam", self.recorded.append))

    def published(self, name: str = "dave", limit: int = 10) -> Any:
        assert self.served.published is not None
        return self.house.result(self.served.published(name, limit))

    def test_limit_that_an_administrator_has_set(self) -> None:
        hosting, caller = Hosting(HostingOptions(), self.house.app_parts), self.house.caller()
        small = evolve(caller, account=evolve(caller.account, max_bytes=10))
        body = b"x" * 100
        saving = hosting.save(small, "large.txt", body, "", "text/plain")
        self.failureResultOf(saving, NotStored)
        self.house.result(hosting.save(caller, "large.txt", body, "", "text/plain"))
        self.assertEqual(hosting.max_bytes_of(small), 10)

    def test_what_an_account_takes_away(self) -> None:
        (files,) = self.house.app.account_files

        async def taken() -> dict[str, bytes]:
            caller = self.house.caller()
            return {
                each.name: b"".join([piece async for piece in each.pieces])
                async for each in files(caller)
            }

        found = {"feeds/note.txt": b"hello", "feeds/rss.xml": a_feed()}
        self.assertEqual(self.house.result(taken()), found)

    def test_what_an_account_publishes(self) -> None:
        found = {(each.url, each.kind, each.title) for each in self.published()}
        note = f"{BASE}/dave/note.txt"
        self.assertEqual(found, {(URL, "feed", "rss.xml"), (note, "file", "note.txt")})
        self.assertEqual(len(self.published(limit=1)), 1)
        self.assertEqual(self.published("nobody"), [])
        for url, statuses in ((note, [200, 410, 200]), (URL, [410, 410, 200])):
            self.assertEqual(self.ended(), [])
            self.assertTrue(self.take_down(url))
            self.assertEqual(self.statuses(), statuses)
        self.assertEqual(self.ended(), [(URL, "it is spam")])
        self.assertEqual((self.published(), len(self.recorded)), ([], 2))
        for url in (URL, f"{BASE}/dave/none.xml", f"{BASE}/../x", f"{BASE}/"):
            self.assertFalse(self.take_down(url), url)
        self.assertEqual(len(self.recorded), 2)
        self.assertEqual(self.house.put(a_feed("2")).status, 201)  # its author may save again
        self.assertEqual(self.statuses(), [200, 410, 200])
