"""The tables of the authoring tool, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attrs import evolve
from sqlalchemy import Connection, Engine, delete, make_url, select, text, update
from sqlalchemy.exc import DBAPIError
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.writing import rows, upload_rows
from rsscloud_broker.apps.writing.model import Enclosure, OutlineItem, Post
from rsscloud_broker.apps.writing.rows import Author, Outdated
from rsscloud_broker.apps.writing.schema import TABLES, author, metadata, post
from rsscloud_broker.apps.writing.upload_rows import StoredUpload, UploadLost
from rsscloud_broker.database import sqlite
from rsscloud_broker.database.engine import for_writing, open_engine
from rsscloud_broker.database.postgresql import gave_way
from rsscloud_broker.storage import migrate
from rsscloud_broker.testing.clock import About
from tests.postgresql import empty_database

BASE = "http://broker.example/people/dave"
NOW = About(1_790_683_200.25)
ITEMS = (OutlineItem("a", "T", "http://a.example/", (OutlineItem("b"),)), OutlineItem("🇩🇪"))

FILE = StoredUpload("a" * 64, "ü.gif", "image/gif", 10)

_databases: list[str] = []


def placed(number: int, position: int, text: str = "x", **more: Any) -> Post:
    post = Post(
        number, f"{BASE}/{number}", 1, text, "", "", None, (), (), NOW, NOW, position, author="dave"
    )
    return evolve(post, **more)


class RowsTests(SynchronousTestCase):
    """On SQLite."""

    engine: Engine

    def setUp(self) -> None:
        url = self.new_url()
        migrate(url, {"writing": TABLES})
        self.open(url)

    def new_url(self) -> str:
        """The URL of a database without tables."""
        path = Path(self.mktemp()).resolve() / "broker.db"
        sqlite.make_database_file(make_url(f"sqlite:///{path}"))
        return f"sqlite:///{path}"

    def open(self, url: str) -> None:
        """Use a database, without what other tests left in it."""
        engine = open_engine(url)
        self.addCleanup(engine.dispose)
        self.engine = for_writing(engine)
        with self.engine.begin() as conn:
            for table in metadata.sorted_tables:
                conn.execute(delete(table))
        self.conn = self.enterContext(self.engine.begin())

    def dave(self) -> Author:
        return rows.ensure_author(self.conn, 1, "dave", BASE)

    def anna(self) -> Author:
        return rows.ensure_author(self.conn, 2, "anna", BASE.replace("dave", "anna"))

    def put(self, owner: Author, new: Post, at: float = NOW) -> Author:
        rows.apply(self.conn, owner, new.id, new, new.position > 0, at)
        found = rows.author_of(self.conn, owner.account_id)
        assert found is not None
        return found

    def test_a_message_is_read_as_it_was_stored(self) -> None:
        new = placed(
            1,
            1,
            "Grüße\n🇩🇪",
            title="T",
            link="http://l.example/",
            enclosure=Enclosure("http://f.example/a.mp3", "audio/mpeg", 2**40, "A song"),
            categories=("ü", "B", "a"),
            items=ITEMS,
        )
        owner = self.put(self.dave(), new)
        self.assertEqual((owner.version, owner.next_id, owner.changed_at), (1, 2, NOW))
        self.assertEqual(rows.find_post(self.conn, owner, 1), new)
        self.assertEqual(rows.published(self.conn, owner, 9), [new])
        self.assertEqual(rows.categories(self.conn, 1), ["a", "B", "ü"])
        self.assertEqual(rows.categories(self.conn, 2), [])
        self.assertEqual(rows.snapshot(self.conn, owner, 9, 1).old, new)
        self.assertIsNone(rows.snapshot(self.conn, owner, 9, 2).old)
        self.assertEqual(rows.authors(self.conn, 9), [owner])

    def test_order_and_paging(self) -> None:
        owner = self.dave()
        for number, position in ((1, 1), (2, 0), (3, 3), (2, 4)):
            owner = self.put(owner, placed(number, position))
        found = [each.id for each in rows.published(self.conn, owner, 9)]
        self.assertEqual(found, [2, 3, 1])
        before = [each.id for each in rows.published(self.conn, owner, 9, before=4)]
        self.assertEqual(before, [3, 1])
        ids = [each.id for each in rows.all_posts(self.conn, 1, 2, None, None)]
        self.assertEqual(ids, [3, 2])
        self.assertEqual(rows.all_posts(self.conn, 1, 9, None, True), [])
        self.assertEqual(owner.next_id, 4)

    def test_authors_page_by_page(self) -> None:
        for number, name in enumerate(("ben", "cleo", "anna"), 1):
            rows.ensure_author(self.conn, number, name, BASE)
        self.conn.execute(update(author).values(changed_at=1))  # all at the same time
        befores = (None, (1, "ben"), (1, "anna"), (2, ""))
        pages = [rows.authors(self.conn, 2, before) for before in befores]
        names = [[each.name for each in page] for page in pages]
        self.assertEqual(names, [["cleo", "ben"], ["anna"], [], ["cleo", "ben"]])

    def test_a_change_that_came_too_late(self) -> None:
        owner = self.dave()
        self.put(owner, placed(1, 1))
        late = (owner, 1, placed(1, 1, "late"), True, NOW)
        self.assertRaises(Outdated, rows.apply, self.conn, *late)
        found = rows.find_post(self.conn, owner, 1)
        assert found is not None
        self.assertEqual(found.text, "x")

    def test_categories_are_limited(self) -> None:
        self.patch(rows, "MAX_CATEGORIES", 2)
        owner = self.dave()
        for number, name in enumerate(("a", "b", "c"), 1):
            new = placed(number, number, categories=(name,))
            owner = self.put(owner, new, NOW + number)
        self.assertEqual(rows.categories(self.conn, 1), ["b", "c"])

    def test_what_is_typed(self) -> None:
        for number in range(4):
            rows.keep_unsent(self.conn, 1, number, {"text": f"ü{number}"}, NOW + number, 3)
        rows.keep_unsent(self.conn, 1, 3, {"text": "again"}, NOW + 9, 3)
        rows.keep_unsent(self.conn, 2, 0, {"text": "hers"}, NOW, 3)
        self.assertIsNone(rows.unsent_of(self.conn, 1, 0))
        self.assertEqual(rows.unsent_of(self.conn, 1, 2), ({"text": "ü2"}, NOW + 2))
        self.assertEqual(rows.unsent_of(self.conn, 1, 3), ({"text": "again"}, NOW + 9))
        self.assertEqual(rows.unsent_of(self.conn, 2, 0), ({"text": "hers"}, NOW))
        rows.drop_unsent(self.conn, 1, 3)
        self.assertIsNone(rows.unsent_of(self.conn, 1, 3))

    def begin(self, file: StoredUpload = FILE, quota: int = 100) -> StoredUpload:
        begun = upload_rows.begin_upload(self.conn, 1, file, NOW, quota)
        assert begun is not None
        return begun

    def store_file(self, file: StoredUpload) -> StoredUpload:
        """Store a file in three pieces."""
        begun = self.begin(file)
        upload_rows.put_chunks(self.conn, begun.id, 0, [b"\x00\xff"], False)
        upload_rows.put_chunks(self.conn, begun.id, 1, [b"more", b"end"], True)
        return evolve(begun, is_whole=True)

    def test_uploads(self) -> None:
        self.patch(upload_rows, "AT_ONCE", 2)
        self.dave()
        file = self.store_file(FILE)
        self.assertEqual(evolve(file, id=0), evolve(FILE, is_whole=True, created_at=NOW))
        renamed = evolve(FILE, name="x")
        self.assertEqual(upload_rows.begin_upload(self.conn, 1, renamed, NOW, 15), file)
        pieces = [upload_rows.get_chunk(self.conn, file.id, number) for number in range(4)]
        self.assertEqual(pieces, [b"\x00\xff", b"more", b"end", None])
        other = evolve(FILE, digest="b" * 64)
        self.assertIsNone(upload_rows.begin_upload(self.conn, 1, other, NOW, 19))
        other = self.store_file(other)
        self.assertEqual(upload_rows.uploads(self.conn, 1, 9), [other, file])
        self.assertEqual(upload_rows.uploads(self.conn, 1, 9, skipped=1), [file])
        self.assertEqual(upload_rows.upload_named(self.conn, "dave", "a" * 64), file)
        self.assertIsNone(upload_rows.upload_named(self.conn, "anna", "a" * 64))
        recorded: list[Connection] = []
        removed = [
            upload_rows.remove_upload(self.conn, account, "a" * 64, recorded.append)
            for account in (2, 1, 1)
        ]
        self.assertEqual(removed, [None, file.id, None])
        self.assertEqual(recorded, [self.conn])
        self.assertEqual(upload_rows.lost_uploads(self.conn, 9), [file.id])
        self.assertTrue(upload_rows.drop_chunks(self.conn, file.id))
        self.assertEqual(upload_rows.lost_uploads(self.conn, 9), [file.id])
        self.assertFalse(upload_rows.drop_chunks(self.conn, file.id))
        self.assertEqual(upload_rows.lost_uploads(self.conn, 9), [])
        self.assertEqual(upload_rows.uploads(self.conn, 1, 9), [other])

    def test_uploads_that_are_not_whole(self) -> None:
        self.dave()
        first = self.begin()
        upload_rows.put_chunks(self.conn, first.id, 0, [b"a"], False)
        self.assertEqual(upload_rows.uploads(self.conn, 1, 9), [])
        self.assertIsNone(upload_rows.upload_named(self.conn, "dave", FILE.digest))
        # It counts in the quota, but not beside another attempt at the same file.
        other = evolve(FILE, digest="b" * 64)
        self.assertIsNone(upload_rows.begin_upload(self.conn, 1, other, NOW, 19))
        second = self.begin(quota=10)
        with self.assertRaises(UploadLost):
            upload_rows.put_chunks(self.conn, first.id, 1, [b"b"], True)
        self.assertEqual(upload_rows.lost_uploads(self.conn, 9), [first.id])
        upload_rows.drop_unfinished(self.conn, NOW - 1)
        upload_rows.put_chunks(self.conn, second.id, 0, [b"a"], False)
        upload_rows.drop_unfinished(self.conn, NOW + 1)
        with self.assertRaises(UploadLost):
            upload_rows.put_chunks(self.conn, second.id, 1, [b"b"], True)
        whole = self.store_file(FILE)
        upload_rows.drop_unfinished(self.conn, NOW + 1)
        upload_rows.give_up(self.conn, whole.id)
        self.assertEqual(upload_rows.uploads(self.conn, 1, 9), [whole])

    def test_messages_with_a_file(self) -> None:
        url = f"{BASE}/files/{FILE.digest}.gif"
        below = (OutlineItem("a", items=(OutlineItem("b", link=url),)),)
        enclosure = Enclosure(url, "image/gif", 10)
        owner = self.dave()
        cases: list[dict[str, Any]] = [
            {"items": below},
            {"enclosure": enclosure},
            {"link": url},
            {"text": f"see {url}"},
        ]
        for number, more in enumerate(cases, 1):
            owner = self.put(owner, placed(number, number, **more))
            self.assertEqual(rows.post_with_file(self.conn, 1, FILE.digest), number)
        self.assertIsNone(rows.post_with_file(self.conn, 1, "b" * 64))
        self.assertIsNone(rows.post_with_file(self.conn, 2, FILE.digest))

    def test_all_of_an_account_that_was_removed_goes(self) -> None:
        for owner in (self.dave(), self.anna()):
            account = owner.account_id
            self.put(owner, placed(1, 1, account_id=account, categories=("c",)))
            rows.keep_unsent(self.conn, account, 0, {"text": "secret"}, NOW, 3)
            upload_rows.begin_upload(self.conn, account, FILE, NOW, 100)
        self.assertFalse(rows.is_former(self.conn, "dave"))
        rows.forget(self.conn, 1)
        rows.forget(self.conn, 1)  # again, as after a crash
        self.assertTrue(rows.is_former(self.conn, "dave"))
        self.assertFalse(rows.is_former(self.conn, "anna"))
        for table in metadata.sorted_tables:
            if "account_id" in table.c:
                left = self.conn.execute(select(table.c.account_id)).scalars()
                self.assertEqual(list(left), [2], table.name)

    def test_very_many_messages_go_in_portions(self) -> None:
        self.patch(rows, "FORGOTTEN_AT_ONCE", 2)
        left = []
        self.put(self.anna(), placed(1, 1, account_id=2))
        owner = self.dave()
        for number in range(1, 6):
            owner = self.put(owner, placed(number, number))
        while rows.forget_some(self.conn, 1):
            owners = self.conn.execute(select(post.c.account_id).order_by(post.c.id)).scalars()
            left.append(list(owners).count(1))
        rows.forget(self.conn, 1)
        self.assertEqual(left, [3, 1])
        self.assertEqual(self.conn.execute(select(post.c.account_id)).scalars().all(), [2])

    def test_drafts_make_no_author_public(self) -> None:
        """So nobody remembers the name, either."""
        owner = self.put(self.dave(), placed(1, 0))
        self.assertFalse(owner.is_public)
        self.assertEqual(rows.authors(self.conn, 9), [])
        rows.forget(self.conn, 1)
        self.assertFalse(rows.is_former(self.conn, "dave"))

    def test_a_successor_takes_the_name(self) -> None:
        """Before its owner is forgotten, or after that."""
        self.put(self.dave(), placed(1, 1))
        rows.keep_unsent(self.conn, 1, 0, {"text": "secret"}, NOW, 3)
        for number in (7, 8):
            elsewhere = "http://elsewhere.example/people/dave"
            new = rows.ensure_author(self.conn, number, "dave", elsewhere)
            self.assertEqual((new.base, new.next_id, new.is_public), (BASE, 2, False))
            self.assertEqual(rows.published(self.conn, new, 9), [])
            self.assertIsNone(rows.author_of(self.conn, 1))
            self.assertIsNone(rows.unsent_of(self.conn, number, 0))
            rows.forget(self.conn, number)


class RowsOnPostgreSQLTests(RowsTests):
    """On PostgreSQL."""

    def setUp(self) -> None:
        if not _databases:
            url = self.new_url()
            migrate(url, {"writing": TABLES})
            _databases.append(url)
        self.open(_databases[0])

    def new_url(self) -> str:
        return empty_database()

    def test_two_nodes_change_something_at_the_same_moment(self) -> None:
        change = (self.dave(), 1, placed(1, 1), True, NOW)
        self.conn.commit()
        with ThreadPoolExecutor(1) as others, self.engine.begin() as conn:
            rows.apply(conn, *change)
            other = others.submit(self.run_elsewhere, rows.apply, *change)
            conn.commit()
            self.assertIsInstance(other.exception(30), Outdated)
        with self.engine.begin() as conn:
            found = rows.author_of(conn, 1)
            assert found is not None
            self.assertEqual((found.version, len(rows.published(conn, found, 9))), (1, 1))

    def test_two_nodes_store_a_file_at_the_same_moment(self) -> None:
        """What is whole stays, and the other node runs its transaction again."""
        self.dave()
        begun, beginning = self.begin(), (upload_rows.begin_upload, 1, FILE, NOW, 100)
        self.conn.commit()
        with ThreadPoolExecutor(1) as others, self.engine.begin() as conn:
            upload_rows.put_chunks(conn, begun.id, 0, [b"a"], True)
            other = others.submit(self.run_elsewhere, *beginning)
            while not conn.execute(text("SELECT 1 FROM pg_locks WHERE NOT granted")).first():
                self.assertFalse(other.done())
            conn.commit()
            error = other.exception(30)
        assert isinstance(error, DBAPIError)
        self.assertTrue(gave_way(error))
        self.assertEqual(self.run_elsewhere(*beginning), evolve(begun, is_whole=True))

    def run_elsewhere(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in a transaction of its own."""
        with self.engine.begin() as conn:
            return function(conn, *args)
