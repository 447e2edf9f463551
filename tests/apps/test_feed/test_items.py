"""How items are stored, on both databases."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.test_feed.items import TABLES, TestItem, add_item, newest_items
from rsscloud_broker.storage import migrate, open_database
from tests.postgresql import empty_database


class SQLiteTests(SynchronousTestCase):
    def new_url(self) -> str:
        return f"sqlite:///{Path(self.mktemp()).resolve()}/broker.db"

    def migrated(self) -> str:
        url = self.new_url()
        migrate(url, {"test_feed": TABLES})
        return url

    def test_newest_items_are_kept(self) -> None:
        url = self.migrated()
        with open_database(url) as conn:
            self.assertEqual(newest_items(conn, 3), ((), 0.0))
            for number in (5, 6, 7, 2):  # the clock was set back
                add_item(conn, TestItem(number, f"urn:uuid:{number}"), 3)
        with open_database(url, writes=False) as conn:
            items, _ = newest_items(conn, 3)
            self.assertEqual([each.slot for each in items], [2, 7, 6])
            items, _ = newest_items(conn, 1)
            self.assertEqual(items, (TestItem(2, "urn:uuid:2"),))

    def test_each_is_later_than_the_one_before_it(self) -> None:
        times: list[float] = []
        with open_database(self.migrated()) as conn:
            for slot in (900, 1800, *range(9, 90, 9), 1800, 2700):  # it was set back once
                add_item(conn, TestItem(slot, f"urn:uuid:{len(times)}"), 3)
                items, modified_at = newest_items(conn, 3)
                times.append(modified_at)
                self.assertLessEqual(len(items), 3)
        self.assertEqual(times[:3], [900, 1800, 1801])
        self.assertEqual(times[-1], 2700)
        self.assertEqual(times, sorted(set(times)))


class PostgreSQLTests(SQLiteTests):
    def new_url(self) -> str:
        return empty_database()
