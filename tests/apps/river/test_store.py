"""The tables of the river, on SQLite and on PostgreSQL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from attrs import evolve
from sqlalchemy import delete, insert, select
from twisted.internet import reactor
from twisted.internet.interfaces import IReactorFromThreads
from twisted.trial.unittest import TestCase

from rsscloud_broker.apps.river import items_sql
from rsscloud_broker.apps.river.model import (
    FeedRecord,
    Item,
    ItemEnclosure,
    Offer,
    ReadDocument,
    SubItem,
)
from rsscloud_broker.apps.river.schema import TABLES, item
from rsscloud_broker.apps.river.store import RiverStore
from rsscloud_broker.database.threads import StoreThreads
from rsscloud_broker.database.visible_ids import announce
from rsscloud_broker.storage import AccountStore, Store, migrate, open_database
from rsscloud_broker.wire.cloud import Cloud
from tests.postgresql import empty_database
from tests.storage.test_plans import statements_of

NOW = 1_790_683_200.5
MOST, SECONDS_KEPT = 3, 86_400.0
ENTRY = Item(
    0,
    0,
    "guid",
    "A title \N{SNOWMAN}",
    "<p>text</p>",
    "http://blog.example/1",
    (ItemEnclosure("http://blog.example/a.mp3", "audio/mpeg", 12),),
    (SubItem("one", items=(SubItem("two", "<b>x</b>", "http://blog.example/2"),)),),
    NOW - 60,
)


class SQLiteTests(TestCase):
    """On SQLite, in a file."""

    def new_url(self) -> str:
        return f"sqlite:///{Path(self.mktemp()).resolve()}/broker.db"

    def setUp(self) -> None:
        self.url = self.new_url()
        migrate(self.url, {"river": TABLES})
        threads = StoreThreads(IReactorFromThreads(reactor))
        store = Store(IReactorFromThreads(reactor), self.url, threads)
        store.startService()
        self.addCleanup(store.stopService)
        self.accounts = AccountStore(threads)
        self.store: Any = RiverStore(threads)
        self.patch(items_sql, "ITEMS_PER_FEED", 3)

    async def account(self, name: str) -> int:
        account = await self.accounts.add_account(name, "", False, NOW)
        assert account is not None
        return account.id

    async def add(self, url: str = "http://blog.example/rss.xml") -> FeedRecord:
        feed = await self.store.add_feed(url, NOW, {"title": "T"})
        assert isinstance(feed, FeedRecord)
        return feed

    async def followed(self) -> tuple[FeedRecord, int]:
        """A feed, and the account that follows it."""
        feed, account = await self.add(), await self.account("dave")
        await self.store.follow_feed(account, feed.id, NOW, MOST)
        return feed, account

    async def guids(self, account: int) -> list[str]:
        return [item.guid for item in await self.store.items(account, None, 10)]

    async def keep(self, feed: FeedRecord, *entries: Item, way: str = "polled") -> Any:
        document = ReadDocument("A blog", "http://blog.example/", (), entries)
        return await self.store.store_document(
            feed.id, document, way, True, NOW, SECONDS_KEPT, {"title": document.title}
        )

    async def test_feeds_are_kept_as_they_are(self) -> None:
        feed = await self.add()
        cloud = Cloud("c.example", 80, "/", "p", "soap")
        offers = (
            Offer("websub", "http://hub.example/", feed.url, in_header=True),
            Offer("rsscloud", "http://c.example/", feed.url, cloud),
        )
        changed = await self.store.change_feed(
            feed.id, {"offers": offers, "push_due_at": NOW, "pushes_until": None, "pushed": 7}
        )
        self.assertEqual(changed, evolve(feed, offers=offers, push_due_at=NOW, pushed=7))
        for found in (
            await self.store.feed(feed.id),
            await self.store.feed_by_key(feed.key),
            await self.add(),
        ):
            self.assertEqual(found, changed)

    async def test_what_is_due(self) -> None:
        feed = await self.add()
        later = {"read_due_at": NOW + 50, "push_due_at": None}
        for values, due in (
            ({"read_due_at": NOW}, True),
            (later, False),
            ({**later, "push_due_at": NOW - 1}, True),
            ({**later, "push_due_at": NOW + 1000}, True),  # the clock was set back
        ):
            changed = await self.store.change_feed(feed.id, values)
            found = await self.store.due_feeds(NOW, NOW + 100, 10)
            self.assertEqual(found, [changed] if due else [])

    async def test_items_are_kept_as_they_are(self) -> None:
        feed, account = await self.followed()
        stored = await self.keep(feed, ENTRY)
        self.assertEqual(stored.new, 1)
        (item,) = await self.store.items(account, None, 10)
        self.assertEqual(await self.store.newest_id(), item.id)
        self.assertEqual(item, evolve(ENTRY, id=item.id, feed_id=feed.id, arrived_at=NOW))
        for reader in (account, None):
            (arrival,) = await self.store.arrivals(item.id - 1, item.id, 10, reader)
            self.assertEqual((arrival.item, arrival.accounts), (item, {account}))
            self.assertEqual((arrival.title, arrival.link), ("A blog", ""))
            self.assertEqual(await self.store.arrivals(item.id, item.id + 9, 10, reader), [])
            self.assertEqual(await self.store.arrivals(0, item.id - 1, 10, reader), [])
        edited = evolve(ENTRY, title="Edited")
        stored = await self.keep(feed, edited)
        self.assertEqual((stored.new, stored.feed.title), (0, "A blog"))
        self.assertEqual(await self.store.items(account, None, 10), [evolve(item, title="Edited")])

    async def test_muted_feeds(self) -> None:
        """Their items are in the list of nobody who muted them, and come back with the feed."""
        feed, dave, anna = await self.add(), await self.account("dave"), await self.account("anna")
        for account in (dave, anna):
            await self.store.follow_feed(account, feed.id, NOW, MOST)
        await self.keep(feed, ENTRY)
        (item,) = await self.store.items(anna, None, 10)
        self.assertTrue(await self.store.mute_feed(dave, feed.id, True))
        self.assertEqual(await self.store.items(dave, None, 10), [])
        self.assertEqual(await self.store.items_after(dave, 0, 10), [])
        self.assertEqual(await self.store.arrivals(0, item.id, 10, dave), [])
        (arrival,) = await self.store.arrivals(0, item.id, 10, None)
        self.assertEqual(arrival.accounts, {anna})
        self.assertEqual([muted for *_, muted in await self.store.followed_feeds(dave)], [True])
        self.assertTrue(await self.store.mute_feed(dave, feed.id, False))
        self.assertEqual(await self.store.items(dave, None, 10), [item])
        self.assertFalse(await self.store.mute_feed(dave, feed.id + 1, True))

    async def test_where_somebody_stopped(self) -> None:
        account = await self.account("dave")
        self.assertIsNone(await self.store.stopped_at(account))
        for place in (7, 3, None):  # it may also be an older item
            await self.store.stop_at(account, place)
            self.assertEqual(await self.store.stopped_at(account), place)

    async def test_feed_that_is_removed_while_its_items_are_read(self) -> None:
        """PostgreSQL's next statement no longer finds it; on SQLite it is still there."""
        feed, account = await self.followed()
        await self.keep(feed, ENTRY)
        made = items_sql._item_of_row

        def removed(row: Any) -> Item:
            with open_database(self.url) as conn:
                conn.execute(delete(TABLES.metadata.tables["river_feed"]))
            return made(row)

        self.patch(items_sql, "_item_of_row", removed)
        (arrival,) = await self.store.arrivals(0, 9, 10, None)
        self.assertIn((arrival.title, arrival.accounts), [("", set()), ("A blog", {account})])

    async def test_bounds(self) -> None:
        feed, account = await self.followed()
        await self.keep(feed, *(Item(0, 0, str(n), "") for n in range(9)))
        await self.keep(feed, Item(0, 0, "new", ""))
        self.assertEqual(await self.guids(account), ["new", "0", "1"])
        first, *more = (f"http://x{n}.example/" for n in range(4))
        feeds = dict.fromkeys((first, *more), "")
        results = await self.store.add_and_follow(account, feeds, NOW, MOST)
        self.assertEqual(results, [True, True, None, None])
        self.assertIsNone(await self.store.feed_by_url(more[1]))
        self.assertEqual(await self.store.add_and_follow(account, {first: ""}, NOW, MOST), [False])

    async def test_an_old_item_is_no_new_one_because_a_newer_one_was_removed(self) -> None:
        """A feed with more items than are kept: one of them gets the place of another."""
        feed, account = await self.followed()
        entries = [Item(0, 0, str(n), "", published_at=NOW - n) for n in range(5)]
        self.assertEqual((await self.keep(feed, *entries)).new, 3)
        self.assertEqual((await self.keep(feed, *entries[1:])).new, 0)
        new = Item(0, 0, "new", "", published_at=NOW + 1)
        self.assertEqual((await self.keep(feed, new, *entries[2:])).new, 1)
        self.assertEqual(await self.guids(account), ["new", "0", "1", "2"])

    async def followed_items(self, account: int) -> list[Item]:
        """Have an account follow two of three feeds with items; theirs, in their order."""
        feeds = [await self.add(f"http://x{n}.example/") for n in range(3)]
        for feed in feeds[:2]:
            await self.store.follow_feed(account, feed.id, NOW, MOST)
        found: list[Item] = []
        for number, of in enumerate((0, 0, 1, 2, 2, 1, 0, 2)):
            await self.keep(feeds[of], evolve(ENTRY, guid=f"{number}"))
            found += (await self.store.items(account, None, 1)) if of < 2 else ()
        return found

    async def test_items_of_several_feeds(self) -> None:
        account = await self.account("dave")
        items = await self.followed_items(account)
        self.assertEqual(len(items), 5)
        for edge in (None, 0, *(each.id for each in items), 1000):
            for limit in (1, 2, 3, 10):
                before = [one for one in items if edge is None or one.id < edge][::-1][:limit]
                self.assertEqual(await self.store.items(account, edge, limit), before)
                after = [one for one in items if one.id > (edge or 0)][:limit]
                self.assertEqual(await self.store.items_after(account, edge or 0, limit), after)

    async def test_items_are_found_by_their_feeds(self) -> None:
        """Neither all items are read, nor all of one feed, and the database knows nothing yet."""
        account = await self.account("dave")
        await self.followed_items(account)
        with open_database(self.url) as conn:
            (like, *_) = conn.execute(select(item)).mappings()
            many = [
                {**like, "id": 1000 + n, "guid_digest": b"%d" % n, "feed_id": 1 + n % 3}
                for n in range(3000)
            ]
            conn.execute(insert(item), many)
            is_sqlite = conn.dialect.name == "sqlite"
            explain = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN (COSTS OFF)"
            with statements_of(conn) as ran:
                items_sql.items_before(conn, account, None, 2)
                items_sql.items_before(conn, account, 2000, 2)
                items_sql.items_after(conn, account, 2000, 2)
            self.assertEqual(len(ran), 3)
            for statement, given in ran:
                plan = conn.exec_driver_sql(f"{explain} {statement}", given).all()
                reads = " ".join(str(row[-1]) for row in plan)
                within = (
                    r"feed_id=\? AND id" if is_sqlite else r"\s+Index Cond: \(+feed_id = \S+ AND"
                )
                by_feed = re.findall(rf"\bix_river_item_feed_id_id\b[^:(]*\(?{within}", reads)
                self.assertEqual(len(by_feed), 3, reads)
                others = "(?i)seq scan on river_item|scan river_item|uq_river_item"
                self.assertNotRegex(reads, others)

    async def test_moving_to_a_feed_that_is_there_already(self) -> None:
        old, new = await self.add("http://old.example/"), await self.add("http://new.example/")
        dave, anna = await self.account("dave"), await self.account("anna")
        for account, feeds in ((dave, (old,)), (anna, (old, new))):
            for feed in feeds:
                await self.store.follow_feed(account, feed.id, NOW, MOST)
        moved = await self.store.move_feed(old.id, new.url, {"is_found": True})
        self.assertEqual(moved.id, new.id)
        self.assertIsNone(await self.store.feed(old.id))
        for account in (dave, anna):
            followed = await self.store.followed_feeds(account)
            self.assertEqual([(feed.id, at) for feed, at, _ in followed], [(new.id, NOW)])

    async def test_accounts_take_all_along(self) -> None:
        feed, account = await self.followed()
        await self.store.set_public(account, "dave", True)
        await self.store.mark_seen(account, 7)
        self.assertFalse(await self.store.remove_feed(feed.id))
        self.assertEqual(await self.store.abandoned_feeds(10), [])
        self.assertEqual(await self.store.public_account("dave"), account)
        await self.accounts.remove_account("dave")
        self.assertIsNone(await self.store.public_account("dave"))
        self.assertEqual(await self.store.last_seen(account), 0)
        self.assertEqual([each.id for each in await self.store.abandoned_feeds(10)], [feed.id])
        await self.keep(feed, ENTRY)
        self.assertTrue(await self.store.remove_feed(feed.id))
        self.assertEqual(await self.store.newest_id(), 0)
        self.assertIsNone(await self.keep(feed, ENTRY))


class PostgreSQLTests(SQLiteTests):
    """On PostgreSQL."""

    def new_url(self) -> str:
        return empty_database()

    async def test_an_item_is_newest_once_no_other_can_appear_before_it(self) -> None:
        """A transaction of another node may have drawn a smaller id, and commit later."""
        feed, _ = await self.followed()
        await self.keep(feed, evolve(ENTRY, guid="first"))
        first = await self.store.newest_id()
        with open_database(self.url) as other:
            announce(other, "river_item")
            await self.keep(feed, evolve(ENTRY, guid="second"))
            self.assertEqual(await self.store.newest_id(), first)
        self.assertGreater(await self.store.newest_id(), first)
