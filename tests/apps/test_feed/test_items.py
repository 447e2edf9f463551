"""How items are stored, on both databases."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.test_feed.items import TABLES, Item, add_item, newest_items
from rsscloud_broker.storage import migrate, open_database
from tests.postgresql import empty_database


class SQLiteTests(SynchronousTestCase):
    def new_url(self) -> str:
        return f"sqlite:///{Path(self.mktemp()).resolve()}/broker.db"

    def test_newest_items_are_kept(self) -> None:
        url = self.new_url()
        migrate(url, {"test_feed": TABLES})
        with open_database(url) as conn:
            self.assertEqual(newest_items(conn, 3), ())
            for number in (5, 6, 7, 2):  # the clock was set back
                add_item(conn, Item(number, f"urn:uuid:{number}"), 3)
        with open_database(url, writes=False) as conn:
            self.assertEqual([each.slot for each in newest_items(conn, 9)], [2, 7, 6])
            self.assertEqual(newest_items(conn, 1), (Item(2, "urn:uuid:2"),))


class PostgreSQLTests(SQLiteTests):
    def new_url(self) -> str:
        return empty_database()
