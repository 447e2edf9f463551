"""The tables of the application and its SQL, on SQLite and PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve
from sqlalchemy import text
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.hosting import rows, saving
from rsscloud_broker.apps.hosting.documents import HostedDocument, NotStored
from rsscloud_broker.apps.hosting.rows import Served, StoredFile
from rsscloud_broker.apps.hosting.saving import VERSIONS, Save
from rsscloud_broker.apps.hosting.schema import TABLES
from rsscloud_broker.database.engine import for_writing, open_engine
from rsscloud_broker.database.methods import Batched
from rsscloud_broker.interfaces import Account
from rsscloud_broker.storage import migrate
from tests.postgresql import empty_database

DAVE, ANNA = Account(1, "dave", False, 1.0), Account(2, "anna", False, 1.0)
PATH, MOST = "rss.xml", 1000


def a_document(body: bytes = b"<rss/>", media_type: str = "application/rss+xml") -> HostedDocument:
    return HostedDocument(body, media_type, b"packed " + body, True)


class RowsTests(SynchronousTestCase):
    """On SQLite, in one transaction."""

    def new_url(self) -> str:
        return f"sqlite:///{Path(self.mktemp()).resolve()}"

    def setUp(self) -> None:
        self.patch(saving, "MAX_FILES", 3)
        url = self.new_url()
        migrate(url, {"hosting": TABLES})
        engine = open_engine(url)
        self.addCleanup(engine.dispose)
        self.conn = self.enterContext(for_writing(engine).begin())

    def save(
        self, body: bytes = b"<rss/>", account: Account = DAVE, path: str = PATH, at: float = 1000.0
    ) -> bool:
        """Save a file.  Returns whether there was none before."""
        return Batched(saving.save_all, Save(account, path, a_document(body), at, MOST))(self.conn)

    def remove(self, path: str = PATH, account: Account = DAVE) -> bool:
        return rows.remove(self.conn, account.name, path)

    def present(self, path: str = PATH, name: str = "dave") -> StoredFile | None:
        return rows.present(self.conn, name, path)

    def content(self, path: str = PATH, name: str = "dave") -> Served:
        found = self.present(path, name)
        assert found is not None and found.content is not None
        return found.content

    def body(self, path: str = PATH, name: str = "dave") -> bytes:
        return self.content(path, name).body

    def versions(self, account: Account = DAVE) -> list[rows.Version]:
        return rows.versions(self.conn, account, PATH)

    def count(self, table: str) -> int:
        return int(self.conn.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())

    # saving

    def test_saves_of_many_at_once(self) -> None:
        """Each sees those before it, also of the same account, and one that fails harms none."""
        for number in range(VERSIONS):
            self.save(b"anna %d" % number, ANNA)
        carl = Account(3, "carl", False, 1.0)
        wanted = [
            Save(DAVE, PATH, a_document(b"dave 1"), 2000.0, MOST),
            Save(ANNA, PATH, a_document(b"anna last"), 2000.0, MOST),
            Save(carl, PATH, a_document(b"too large"), 2000.0, 5),
            Save(DAVE, PATH, a_document(b"dave 2"), 2000.0, MOST),
            Save(DAVE, PATH, a_document(b"dave 2"), 2000.0, MOST),
            Save(DAVE, "a.xml", a_document(b"another"), 2000.0, MOST),
        ]
        outcomes = saving.save_all(self.conn, wanted)
        self.assertIsInstance(outcomes.pop(2), NotStored)
        self.assertEqual(outcomes, [True, False, False, False, True])
        self.assertEqual(self.body(), b"dave 2")
        self.assertEqual((self.body("a.xml"), self.body(name="anna")), (b"another", b"anna last"))
        self.assertIsNone(self.present(name="carl"))
        self.assertEqual((len(self.versions()), len(self.versions(ANNA))), (2, VERSIONS))
        self.assertEqual([file.versions for file in rows.files(self.conn, ANNA)], [VERSIONS])

    def test_large_documents_are_stored_in_portions(self) -> None:
        self.patch(saving, "PORTION", 30)
        accounts = [Account(number, f"author{number}", False, 1.0) for number in range(1, 6)]
        wanted = [
            Save(each, PATH, a_document(b"%d" % each.id * 5), 2000.0, MOST) for each in accounts
        ]
        saving.save_all(self.conn, wanted)
        bodies = [self.body(name=each.name) for each in accounts]
        self.assertEqual(bodies, [b"%d" % each.id * 5 for each in accounts])

    def test_first_save(self) -> None:
        every_byte = bytes(range(256))
        self.assertIsNone(self.present())
        self.assertTrue(self.save(every_byte))
        found, document = self.present(), a_document(every_byte)
        assert found is not None
        values = (document.body, document.packed, document.media_type, document.digest)
        self.assertEqual(found.content, Served(*values, 1000, is_topic=True))
        known = rows.present(self.conn, "dave", PATH, found.version)
        self.assertEqual(known, StoredFile(found.version))

    def test_newer_version_is_served(self) -> None:
        self.save(b"1")
        self.assertFalse(self.save(b"2", at=2000.5))
        self.assertEqual(self.body(), b"2")
        newer, older = self.versions()
        self.assertEqual((newer.is_present, older.is_present), (True, False))
        self.assertEqual((newer.saved_at, older.saved_at), (2000.5, 1000))

    def test_same_bytes_are_no_version(self) -> None:
        self.save()
        self.assertFalse(self.save(at=2000))
        self.assertEqual(len(self.versions()), 1)
        other = a_document(media_type="text/xml")
        saving.save_all(self.conn, [Save(DAVE, PATH, other, 2000, MOST)])
        self.assertEqual(len(self.versions()), 2)

    def test_last_versions_are_kept(self) -> None:
        for number in range(VERSIONS + 5):
            self.save(b"%d" % number, at=1000 + number)
        versions = self.versions()
        self.assertEqual((len(versions), versions[-1].saved_at), (VERSIONS, 1005))
        (file,) = rows.files(self.conn, DAVE)
        self.assertEqual((file.versions, file.size), (VERSIONS, 2))
        self.assertEqual(self.count("hosting_version"), VERSIONS)

    def dates(self, *times: float) -> list[int]:
        """Save something at each of some times; the dates that the versions get."""
        dates = []
        for at in times:
            self.save(b"%f" % at, at=at)
            dates.append(self.content().modified_at)
        return dates

    def test_each_version_has_a_later_date(self) -> None:
        """Clients that know no ETags must see each change, even within a second."""
        dates = self.dates(1000.1, 1000.9, 1000.95, 5000.0, 1.0)
        self.assertEqual(dates, [1000, 1001, 1002, 5000, 5001])

    def test_a_file_that_comes_back_has_a_later_date(self) -> None:
        """Than any at which somebody can have read the one that was deleted."""
        self.dates(1000.1, 1000.2)
        self.remove()
        self.assertEqual(self.dates(1001.1, 1001.2), [1002, 1003])

    # limits

    def refusal(self, body: bytes, path: str = PATH) -> str:
        before = rows.files(self.conn, DAVE)
        error = self.assertRaises(NotStored, self.save, body, path=path)
        self.assertEqual(error.status, 507)
        self.assertEqual(rows.files(self.conn, DAVE), before)
        return str(error)

    def test_bytes_of_an_account(self) -> None:
        self.save(b"x" * 900)
        self.assertIn("1,000", self.refusal(b"x" * 101, "b.xml"))
        self.save(b"x" * 100, path="b.xml")
        self.save(b"x" * 500, ANNA)
        self.save(b"y" * 900)  # in place of the first, for which no room is left
        self.assertEqual([(each.size, each.is_present) for each in self.versions()], [(900, True)])
        self.assertEqual(self.body(), b"y" * 900)
        self.refusal(b"y" * 901)

    def test_files_of_an_account(self) -> None:
        for path in ("a.xml", "b.xml", "c.xml"):
            self.save(path=path)
        self.assertIn("3 files", self.refusal(b"x", "d.xml"))
        self.save(b"again", path="a.xml")
        self.remove("a.xml")
        self.save(path="d.xml")
        self.assertIn("3 files", self.refusal(b"x", "a.xml"))

    def test_old_versions_give_way(self) -> None:
        for number in range(5):
            self.save(b"%d" % number * 300, path=f"{number % 2}.xml")
        self.assertEqual([file.versions for file in rows.files(self.conn, DAVE)], [2, 1])
        self.assertEqual(self.body("1.xml"), b"3" * 300)
        self.assertEqual(self.body("0.xml"), b"4" * 300)
        sums = "SELECT sum(stored), (SELECT sum(size) FROM hosting_version) FROM hosting_feed"
        self.assertEqual(tuple(self.conn.execute(text(sums)).one()), (900, 900))

    # deleting

    def test_deleted_file_is_remembered(self) -> None:
        self.save()
        self.assertFalse(self.remove(account=ANNA))
        self.assertTrue(self.remove())
        self.assertEqual(self.present(), StoredFile(0))
        self.assertFalse(self.remove())
        self.assertFalse(self.remove("never.xml"))
        self.assertEqual((rows.files(self.conn, DAVE), self.versions()), ([], []))
        self.assertEqual(self.count("hosting_version"), 0)
        self.assertTrue(self.save())

    def test_not_more_deleted_files_are_remembered_than_there_may_be(self) -> None:
        for number in range(10):
            self.save(path=f"{number}.xml")
            self.remove(f"{number}.xml")
        self.assertEqual(self.count("hosting_feed"), 3)
        self.assertEqual(self.present("9.xml"), StoredFile(0))
        self.assertIsNone(self.present("0.xml"))

    # accounts

    def test_others_see_nothing(self) -> None:
        self.save()
        (version,) = self.versions()
        for account in (ANNA, evolve(DAVE, id=3)):
            self.assertEqual(rows.files(self.conn, account), [])
            self.assertEqual(self.versions(account), [])
            self.assertIsNone(rows.one_version(self.conn, account, PATH, version.id))
        self.assertEqual(rows.one_version(self.conn, DAVE, PATH, version.id), a_document())
        self.assertIsNone(rows.one_version(self.conn, DAVE, "other.xml", version.id))

    def test_another_account_of_that_name_begins_anew(self) -> None:
        self.save(b"1")
        self.save(path="secret.xml")
        new = evolve(DAVE, id=3)
        error = self.assertRaises(NotStored, self.save, b"2", new)
        self.assertIn("was removed a moment ago", str(error))
        self.assertEqual(self.body(), b"1")
        while (file := rows.next_file_of(self.conn, DAVE.id)) is not None:
            rows.remove(self.conn, file.account, file.path)
        rows.disown(self.conn, DAVE.id)
        self.assertTrue(self.save(b"2", new))
        self.assertEqual(len(self.versions(new)), 1)
        self.assertEqual(self.present("secret.xml"), StoredFile(0))
        self.assertEqual([file.path for file in rows.files(self.conn, new)], [PATH])
        self.assertEqual(self.count("hosting_version"), 1)


class PostgreSQLRowsTests(RowsTests):
    """On PostgreSQL."""

    def new_url(self) -> str:
        return empty_database()
