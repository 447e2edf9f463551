"""The tables of the application and its SQL, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import evolve
from sqlalchemy import Connection, text
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.hosting import rows, saving
from rsscloud_broker.apps.hosting.documents import HostedDocument, NotStored
from rsscloud_broker.apps.hosting.rows import StoredFile
from rsscloud_broker.apps.hosting.saving import VERSIONS, AccountLimits, Save, Saved, save_all
from rsscloud_broker.apps.hosting.schema import TABLES
from rsscloud_broker.database.engine import for_writing, open_engine
from rsscloud_broker.database.methods import Batched
from rsscloud_broker.interfaces import Account
from rsscloud_broker.storage import migrate
from tests.postgresql import empty_database

DAVE, ANNA = Account(1, "dave", False, 1.0), Account(2, "anna", False, 1.0)
LIMITS = AccountLimits(1000, 3)
PATH = "rss.xml"


def a_document(body: bytes = b"<rss/>", media_type: str = "application/rss+xml") -> HostedDocument:
    return HostedDocument(body, media_type, b"packed " + body, True)


class RowsTests(SynchronousTestCase):
    """On SQLite."""

    def new_url(self) -> str:
        return f"sqlite:///{Path(self.mktemp()).resolve()}"

    def setUp(self) -> None:
        url = self.new_url()
        migrate(url, {"hosting": TABLES})
        self.engine = open_engine(url)
        self.addCleanup(self.engine.dispose)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with for_writing(self.engine).begin() as conn:
            yield conn

    def save(
        self,
        body: bytes = b"<rss/>",
        account: Account = DAVE,
        path: str = PATH,
        at: float = 1000.0,
        limits: AccountLimits = LIMITS,
    ) -> Saved:
        with self.writing() as conn:
            return Batched(save_all, Save(account, path, a_document(body), at, limits))(conn)

    def present(self, path: str = PATH, known: int = 0, name: str = "dave") -> StoredFile | None:
        with self.engine.connect() as conn:
            return rows.present(conn, name, path, known)

    def body(self, path: str = PATH, name: str = "dave") -> bytes:
        found = self.present(path, name=name)
        assert found is not None and found.content is not None
        return found.content.body

    def versions(self, path: str = PATH, account: Account = DAVE) -> list[rows.Version]:
        with self.engine.connect() as conn:
            return rows.versions(conn, account, path)

    def files(self, account: Account = DAVE) -> list[rows.File]:
        with self.engine.connect() as conn:
            return rows.files(conn, account)

    def count(self, table: str) -> int:
        with self.engine.connect() as conn:
            return int(conn.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())

    # saving

    def test_saves_of_many_at_once(self) -> None:
        """Each sees those before it, also of the same account, and one that fails harms none."""
        for number in range(VERSIONS):
            self.save(b"anna %d" % number, ANNA)
        carl = Account(3, "carl", False, 1.0)
        small = AccountLimits(5, 3)
        wanted = [
            Save(DAVE, PATH, a_document(b"dave 1"), 2000.0, LIMITS),
            Save(ANNA, PATH, a_document(b"anna last"), 2000.0, LIMITS),
            Save(carl, PATH, a_document(b"too large"), 2000.0, small),
            Save(DAVE, PATH, a_document(b"dave 2"), 2000.0, LIMITS),
            Save(DAVE, PATH, a_document(b"dave 2"), 2000.0, LIMITS),
            Save(DAVE, "a.xml", a_document(b"another"), 2000.0, LIMITS),
        ]
        with self.writing() as conn:
            outcomes = saving.save_all(conn, wanted)
        new, next_one, same = Saved(True, True), Saved(False, True), Saved(False, False)
        self.assertIsInstance(outcomes.pop(2), NotStored)
        self.assertEqual(outcomes, [new, next_one, next_one, same, new])
        self.assertEqual(self.body(), b"dave 2")
        self.assertEqual((self.body("a.xml"), self.body(name="anna")), (b"another", b"anna last"))
        self.assertIsNone(self.present(name="carl"))
        self.assertEqual((len(self.versions()), len(self.versions(account=ANNA))), (2, VERSIONS))
        self.assertEqual([file.versions for file in self.files(ANNA)], [VERSIONS])

    def test_large_documents_are_stored_in_portions(self) -> None:
        self.patch(saving, "PORTION", 30)
        accounts = [Account(number, f"author{number}", False, 1.0) for number in range(1, 6)]
        wanted = [
            Save(each, PATH, a_document(b"%d" % each.id * 5), 2000.0, LIMITS) for each in accounts
        ]
        with self.writing() as conn:
            saving.save_all(conn, wanted)
        bodies = [self.body(name=each.name) for each in accounts]
        self.assertEqual(bodies, [b"%d" % each.id * 5 for each in accounts])

    def test_first_save(self) -> None:
        self.assertIsNone(self.present())
        self.assertEqual(self.save(), Saved(created=True, changed=True))
        found = self.present()
        assert found is not None and found.content is not None
        content = found.content
        self.assertEqual(
            (content.body, content.packed, content.media_type, content.modified_at),
            (b"<rss/>", b"packed <rss/>", "application/rss+xml", 1000),
        )
        self.assertEqual(content.digest, a_document().digest)
        self.assertTrue(content.is_topic)
        self.assertEqual(self.present(known=found.version), StoredFile(found.version))

    def test_every_byte(self) -> None:
        self.save(bytes(range(256)))
        self.assertEqual(self.body(), bytes(range(256)))

    def test_newer_version_is_served(self) -> None:
        self.save(b"1")
        self.assertEqual(self.save(b"2", at=2000.5), Saved(created=False, changed=True))
        self.assertEqual(self.body(), b"2")
        newer, older = self.versions()
        self.assertEqual((newer.is_present, older.is_present), (True, False))
        self.assertEqual((newer.saved_at, older.saved_at), (2000.5, 1000))

    def test_same_bytes_are_no_version(self) -> None:
        self.save()
        self.assertEqual(self.save(at=2000), Saved(created=False, changed=False))
        self.assertEqual(len(self.versions()), 1)
        with self.writing() as conn:
            other = a_document(media_type="text/xml")
            self.assertTrue(Batched(save_all, Save(DAVE, PATH, other, 2000, LIMITS))(conn).changed)

    def test_last_versions_are_kept(self) -> None:
        for number in range(VERSIONS + 5):
            self.save(b"%d" % number, at=1000 + number)
        versions = self.versions()
        self.assertEqual(len(versions), VERSIONS)
        self.assertEqual(versions[-1].saved_at, 1005)
        (file,) = self.files()
        self.assertEqual((file.versions, file.size), (VERSIONS, 2))
        self.assertEqual(self.count("hosting_version"), VERSIONS)

    def test_each_version_has_a_later_date(self) -> None:
        """Clients that know no ETags must see each change, even within a second."""
        dates = []
        for number, at in enumerate((1000.1, 1000.9, 1000.95, 5000.0, 1.0)):
            self.save(b"%d" % number, at=at)
            found = self.present()
            assert found is not None and found.content is not None
            dates.append(found.content.modified_at)
        self.assertEqual(dates, [1000, 1001, 1002, 5000, 5001])

    def test_a_file_that_comes_back_has_a_later_date(self) -> None:
        """Than any at which somebody can have read the one that was deleted."""
        for at in (1000.1, 1000.2):
            self.save(b"%d" % int(at * 10), at=at)
        with self.writing() as conn:
            rows.remove(conn, DAVE.name, PATH)
        dates = []
        for number, at in enumerate((1001.1, 1001.2)):
            self.save(b"back %d" % number, at=at)
            found = self.present()
            assert found is not None and found.content is not None
            dates.append(found.content.modified_at)
        self.assertEqual(dates, [1002, 1003])

    # limits

    def refusal(self, body: bytes, path: str = PATH, limits: AccountLimits = LIMITS) -> str:
        before = self.files()
        error = self.assertRaises(NotStored, self.save, body, path=path, limits=limits)
        self.assertEqual(error.status, 507)
        self.assertEqual(self.files(), before)
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
        with self.writing() as conn:
            rows.remove(conn, DAVE.name, "a.xml")
        self.save(path="d.xml")
        self.assertIn("3 files", self.refusal(b"x", "a.xml"))

    def test_old_versions_give_way(self) -> None:
        for number in range(5):
            self.save(b"%d" % number * 300, path=f"{number % 2}.xml")
        self.assertEqual([file.versions for file in self.files()], [2, 1])
        self.assertEqual(self.body("1.xml"), b"3" * 300)
        self.assertEqual(self.body("0.xml"), b"4" * 300)
        with self.engine.connect() as conn:
            sums = "SELECT sum(stored), (SELECT sum(size) FROM hosting_version) FROM hosting_feed"
            stored, kept = conn.execute(text(sums)).one()
        self.assertEqual((stored, kept), (900, 900))

    # deleting

    def remove(self, path: str = PATH, account: Account = DAVE) -> bool:
        with self.writing() as conn:
            return rows.remove(conn, account.name, path)

    def test_deleted_file_is_remembered(self) -> None:
        self.save()
        self.assertFalse(self.remove(account=ANNA))
        self.assertTrue(self.remove())
        self.assertEqual(self.present(), StoredFile(0))
        self.assertFalse(self.remove())
        self.assertFalse(self.remove("never.xml"))
        self.assertEqual((self.files(), self.versions()), ([], []))
        self.assertEqual(self.count("hosting_version"), 0)
        self.assertEqual(self.save(), Saved(created=True, changed=True))

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
        with self.engine.connect() as conn:
            for account in (ANNA, evolve(DAVE, id=3)):
                self.assertEqual(rows.files(conn, account), [])
                self.assertEqual(rows.versions(conn, account, PATH), [])
                self.assertIsNone(rows.one_version(conn, account, PATH, version.id))
            self.assertEqual(rows.one_version(conn, DAVE, PATH, version.id), a_document())
            self.assertIsNone(rows.one_version(conn, DAVE, "other.xml", version.id))

    def test_another_account_of_that_name_begins_anew(self) -> None:
        self.save(b"1")
        self.save(path="secret.xml")
        new = evolve(DAVE, id=3)
        error = self.assertRaises(NotStored, self.save, b"2", new)
        self.assertIn("was removed a moment ago", str(error))
        self.assertEqual(self.body(), b"1")
        with self.writing() as conn:
            while (file := rows.next_file_of(conn, DAVE.id)) is not None:
                rows.remove(conn, file.account, file.path)
            rows.disown(conn, DAVE.id)
        self.assertEqual(self.save(b"2", new), Saved(created=True, changed=True))
        self.assertEqual(len(self.versions(account=new)), 1)
        self.assertEqual(self.present("secret.xml"), StoredFile(0))
        self.assertEqual([file.path for file in self.files(new)], [PATH])
        self.assertEqual(self.count("hosting_version"), 1)


class PostgreSQLRowsTests(RowsTests):
    """On PostgreSQL."""

    def new_url(self) -> str:
        return empty_database()
