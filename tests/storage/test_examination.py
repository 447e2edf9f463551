"""The examination of a database finds out what it should, and changes nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

from sqlalchemy import create_engine, make_url, text
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.storage import UnfitDatabase, database_file, examine, migrate, shown
from rsscloud_broker.storage.upgrade import LATEST_REVISION
from tests.notes import FIRST
from tests.postgresql import borrowed_database, empty_database
from tests.storage import next_version
from tests.storage.databases import file_database

#: What a role needs that owns nothing.
TABLES = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public"
SEQUENCES = "USAGE ON ALL SEQUENCES IN SCHEMA public"

#: Numbers for the names of roles, since all databases of a server share their roles.
_numbers = count(1)


class ExaminationTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.url = file_database(self)
        file = database_file(self.url)
        assert file is not None
        self.file = file

    def state(self) -> dict[str, bytes]:
        """The bytes of the database file and of the files that SQLite makes beside it."""
        beside = self.file.parent.glob(f"{self.file.name}*")
        return {path.name: path.read_bytes() for path in beside}

    def change(self, statement: str) -> None:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute(statement)

    def test_latest_or_older_ones(self) -> None:
        before = self.state()
        found = examine(self.url)
        self.assertEqual((found.revision, found.latest), (LATEST_REVISION, LATEST_REVISION))
        with next_version.installed():
            found = examine(self.url)
        self.assertEqual((found.revision, found.latest), (LATEST_REVISION, next_version.REVISION))
        self.assertEqual(self.state(), before)

    def test_one_of_another_program(self) -> None:
        """It may migrate its tables with the same library, and number its revisions alike."""
        self.change("UPDATE alembic_version SET version_num = 'a1b2c3'")
        error = self.assertRaises(UnfitDatabase, examine, self.url)
        self.assertIn("another program uses the database: its table alembic_version", str(error))
        self.file.unlink()
        for statement, said in (
            ("CREATE TABLE topic (name)", "it has tables named topic, which rsscloud-broker did"),
            ("DROP TABLE topic", ""),
            ("CREATE TABLE alembic_version (version_num)", ""),
            (
                "INSERT INTO alembic_version VALUES ('0001')",
                "it has a table alembic_version, which",
            ),
        ):
            self.change(statement)
            before = self.state()
            if said:
                error = self.assertRaises(UnfitDatabase, examine, self.url)
                self.assertIn(said, str(error))
                self.assertIn("Name a database of the broker's own", str(error))
                self.assertEqual(self.state(), before)
                self.assertRaises(UnfitDatabase, migrate, self.url)

    def test_an_empty_one(self) -> None:
        self.file.write_bytes(b"")
        self.assertEqual(examine(self.url).revision, "")
        self.assertEqual(self.state(), {self.file.name: b""})

    def test_no_database(self) -> None:
        self.file.write_bytes(b"This is a text and no database.\n" * 100)
        before = self.state()
        error = self.assertRaises(Unavailable, examine, self.url)
        self.assertIn("not a database", str(error))
        self.assertEqual(self.state(), before)

    def test_beside_somebody_who_reads_and_writes(self) -> None:
        with closing(sqlite3.connect(self.file)) as other:
            other.execute("CREATE TABLE extra (a)")
            other.execute("INSERT INTO extra VALUES (1)")
            other.commit()
            before = self.state()
            self.assertIn(f"{self.file.name}-wal", before)
            examine(self.url)
            self.assertEqual(self.state().keys(), before.keys())
            self.assertEqual(self.state()[f"{self.file.name}-wal"], before[f"{self.file.name}-wal"])
            other.execute("INSERT INTO extra VALUES (2)")
            other.commit()

    def test_files(self) -> None:
        self.assertEqual(database_file("sqlite:////var/lib/x.db"), Path("/var/lib/x.db"))
        for url in ("sqlite://", "sqlite:///:memory:", "sqlite:///file:x?uri=true"):
            self.assertIsNone(database_file(url), url)


class PostgresqlTests(SynchronousTestCase):
    """The examination of a database on a server by a role that owns nothing in it."""

    def setUp(self) -> None:
        self.role = f"guest{next(_numbers)}"

    def run_as_owner(self, url: str, *statements: str) -> None:
        engine = create_engine(url)
        try:
            with engine.begin() as connection:
                for statement in statements:
                    connection.execute(text(statement))
        finally:
            engine.dispose()

    def borrowed(self, *grants: str) -> str:
        """The URL of a database with tables, for a role that has only the given rights."""
        owner = self.enterContext(borrowed_database())
        self.addCleanup(
            self.run_as_owner, owner, f"DROP OWNED BY {self.role}", f"DROP ROLE {self.role}"
        )
        self.run_as_owner(
            owner,
            f"CREATE ROLE {self.role} LOGIN",
            *(f"GRANT {grant} TO {self.role}" for grant in grants),
        )
        return self.as_role(owner)

    def as_role(self, url: str) -> str:
        return make_url(url).set(username=self.role).render_as_string(hide_password=False)

    def refusal(self, url: str) -> str:
        return str(self.assertRaises(UnfitDatabase, examine, url))

    def test_an_empty_one(self) -> None:
        self.assertEqual(examine(empty_database()).revision, "")

    def test_all_rights(self) -> None:
        for sequences in (SEQUENCES, SEQUENCES.replace("USAGE", "UPDATE")):  # either takes ids
            url = self.borrowed(TABLES, sequences)
            self.assertEqual(examine(url).revision, LATEST_REVISION, sequences)
            self.role = f"guest{next(_numbers)}"

    def test_a_role_without_one_of_the_sequences(self) -> None:
        url = self.borrowed(TABLES, SEQUENCES)
        owner = make_url(url).set(username="postgres").render_as_string(hide_password=False)
        self.run_as_owner(owner, f"REVOKE USAGE ON ping_id_seq FROM {self.role}")
        self.assertEqual(
            self.refusal(url),
            f"the role {self.role} lacks USAGE on the sequences ping_id_seq; "
            "grant that, or let it own the tables",
        )

    def test_a_role_that_may_only_read(self) -> None:
        said = self.refusal(self.borrowed("SELECT ON ALL TABLES IN SCHEMA public"))
        self.assertIn(f"the role {self.role} lacks INSERT, UPDATE, DELETE on account, ", said)
        self.assertIn(", and USAGE on the sequences ", said)

    def test_a_role_that_may_make_no_tables(self) -> None:
        owner = empty_database()
        self.run_as_owner(owner, f"CREATE ROLE {self.role} LOGIN")
        self.addCleanup(self.run_as_owner, owner, f"DROP ROLE {self.role}")
        self.assertEqual(
            self.refusal(self.as_role(owner)),
            f"the role {self.role} may make no tables in it; grant CREATE on the schema",
        )

    def test_a_command_of_a_role_that_may_do_nothing(self) -> None:
        said = str(self.assertRaises(Unavailable, migrate, self.borrowed()))
        self.assertIn("permission denied for table", said)
        self.assertIn("Use the role that owns the tables", said)

    def test_a_role_that_would_have_to_migrate(self) -> None:
        url = self.borrowed(TABLES, SEQUENCES)
        with next_version.installed():
            said = self.refusal(url)
        self.assertIn(f"the start migrates it, and the role {self.role} does not own ", said)

    def test_tables_of_an_application(self) -> None:
        """Who may make no tables may use only those that are there."""
        url = self.borrowed(TABLES, SEQUENCES)
        examine(url)
        said = str(self.assertRaises(UnfitDatabase, examine, url, {"notes": FIRST}))
        self.assertIn("may make no tables in it; grant CREATE on the schema", said)

    def test_a_database_that_takes_no_changes(self) -> None:
        url = empty_database()
        name = make_url(url).database
        self.run_as_owner(url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        self.assertIn("it takes no changes", self.refusal(url))


class ShownTests(SynchronousTestCase):
    def test_no_password_is_shown(self) -> None:
        for place in ("me:sesame@h/x?sslmode=require", "me@h/x?sslmode=require&password=sesame"):
            said = shown(f"postgresql+psycopg://{place}")
            self.assertNotIn("sesame", said)
            self.assertIn("sslmode=require", said)


class AdviceTests(SynchronousTestCase):
    """Anyone who cannot reach a server reads what to do."""

    def test_what_to_do(self) -> None:
        url = make_url(empty_database())
        for changed, said in (
            (url.set(database="nosuch"), "Make that database (createdb), or correct its name"),
            (url.set(username="nosuch"), "Correct the user and the password in the URL"),
            (url.set(query={"host": "/nosuch"}), "See whether the server runs, and whether"),
            (make_url("postgresql+psycopg://u@127.0.0.1:9/x"), "See whether the server runs"),
            (make_url("postgresql+psycopg://u@host.invalid/x"), "Correct the host in the URL."),
        ):
            address = changed.render_as_string(hide_password=False)
            error = self.assertRaises(Unavailable, examine, address)
            self.assertIn(f"Nothing was changed. {said}", str(error))
