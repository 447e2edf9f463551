"""Tests of the migrations that hold for SQLite and PostgreSQL."""

from __future__ import annotations

from alembic import command
from sqlalchemy import Connection, inspect, make_url, text
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.engine import for_writing
from rsscloud_broker.storage import UnfitDatabase, alembic_steps, examine, migrate, open_database
from rsscloud_broker.storage.upgrade import LATEST_REVISION, revisions_of
from tests.storage import next_version, recorded
from tests.storage.databases import engine_for
from tests.storage.filling import COUNT, installed


class MigrationSteps(SynchronousTestCase):
    """The tests that hold for every kind of database."""

    def new_url(self) -> str:
        """The URL of a database without tables."""
        raise NotImplementedError

    def restore(self, url: str) -> None:
        """Make the tables of version 1.0 with their rows in a new database: see ``recorded``."""
        raise NotImplementedError

    def definitions(self, conn: Connection) -> object:
        """The columns, constraints and indexes of a database."""
        raise NotImplementedError

    def migrated(self, *changes: str) -> str:
        """The URL of a database with the tables of this version, changed by statements."""
        url = self.new_url()
        migrate(url)
        self.change(url, *changes)
        return url

    def change(self, url: str, *statements: str) -> None:
        with open_database(url) as conn:
            for statement in statements:
                conn.execute(text(statement))

    def empty(self) -> str:
        """The URL of a database without tables, whose file is there."""
        url = self.new_url()
        if url.startswith("sqlite:"):
            sqlite.make_database_file(make_url(url))
        return url

    def test_makes_the_same_as_create_all(self) -> None:
        """Down to the details that Alembic does not compare.  A new database runs no steps.

        So it is for the tables of the broker and of all applications that come with it.
        """
        found = []
        for make in (self.migrate_at_once, self.migrate_by_steps):
            url = self.empty()
            make(url)
            with open_database(url, writes=False) as conn:
                found.append((self.definitions(conn), revisions_of(conn)))
        self.assertEqual(*found)

    def migrate_at_once(self, url: str) -> None:
        migrate(url, installed())

    def migrate_by_steps(self, url: str) -> None:
        """Make the tables of the first release, and run all the steps since."""
        engine = engine_for(self, url)
        with for_writing(engine).begin() as conn:
            alembic_steps.run(conn)
            for name, each in installed().items():
                version = f"{name}_alembic_version"
                alembic_steps.run(conn, each.migrations, version, each.metadata)

    def test_recorded_database_is_migrated(self) -> None:
        """A database of 1.0 gets the tables of this version, and keeps its rows."""
        url, present = self.empty(), self.new_url()
        self.restore(url)
        migrate(present, installed())
        with open_database(present, writes=False) as conn:
            wanted, latest = self.definitions(conn), revisions_of(conn)
        with open_database(url, writes=False) as conn:
            before = recorded.rows(conn)
            if latest == [recorded.REVISION]:
                self.assertEqual(self.definitions(conn), wanted, recorded.__doc__)
        self.assertEqual({len(rows) for rows in before.values()}, {COUNT})
        migrate(url, installed())
        with open_database(url, writes=False) as conn:
            self.assertEqual((self.definitions(conn), revisions_of(conn)), (wanted, latest))
            after = recorded.rows(conn)
        for table, rows in before.items():
            kept = [{name: row[name] for name in rows[0]} for row in after[table]]
            self.assertEqual(kept, rows, table)

    def test_revisions_are_known_without_alembic(self) -> None:
        latest = {alembic_steps.OF_BROKER: LATEST_REVISION}
        latest |= {each.migrations: each.latest for each in installed().values()}
        for migrations, revision in latest.items():
            numbers = range(int(revision), 0, -1)
            self.assertEqual(
                alembic_steps.revisions(migrations), [f"{number:04}" for number in numbers]
            )

    def test_tables_of_somebody_else_are_not_taken(self) -> None:
        """A database may be used for something else, by a mistake in the configuration."""
        url = self.empty()
        self.change(url, "CREATE TABLE topic (name TEXT)")
        error = self.assertRaises(UnfitDatabase, migrate, url)
        self.assertIn("tables named topic,", str(error))
        with open_database(url, writes=False) as conn:
            self.assertEqual(inspect(conn).get_table_names(), ["topic"])

    def test_a_step_and_back(self) -> None:
        """The next version has one step more.  Rows stay, and this version refuses its tables."""
        url = self.migrated("INSERT INTO counter (name, value) VALUES ('kept', 7)")
        with open_database(url) as conn:
            before = self.definitions(conn)
        with next_version.installed():
            for _ in "twice":
                migrate(url)
                with open_database(url) as conn:
                    rows = conn.execute(text("SELECT name, value, note FROM counter")).tuples()
                    self.assertEqual(rows.all(), [("kept", 7, "kept")])
                    self.assertEqual(revisions_of(conn), [next_version.REVISION])
        error = self.assertRaises(UnfitDatabase, migrate, url)
        self.assertIn(f"does not know its revision {next_version.REVISION}", str(error))
        with open_database(url) as conn:
            steps = alembic_steps.config(conn, next_version.MIGRATIONS)
            command.downgrade(steps, LATEST_REVISION)
            self.assertEqual(self.definitions(conn), before)
        migrate(url)
        with open_database(url) as conn:
            rows = conn.execute(text("SELECT name, value FROM counter")).tuples()
            self.assertEqual(rows.all(), [("kept", 7)])

    def test_tables_of_no_release(self) -> None:
        """A build from before 1.0.0 gave its tables the first revision too."""
        for change, missing in (
            ("ALTER TABLE counter DROP COLUMN value", "the column counter.value"),
            ("DROP TABLE counter", "the table counter"),
        ):
            url = self.migrated(change)
            for check in (migrate, examine):
                said = str(self.assertRaises(UnfitDatabase, check, url))
                self.assertIn(
                    f"the database lacks {missing}: a build of rsscloud-broker from", said
                )

    def test_tables_of_no_release_are_not_migrated(self) -> None:
        url = self.migrated("ALTER TABLE host_state DROP COLUMN retry_at")
        with next_version.installed():
            said = str(self.assertRaises(UnfitDatabase, migrate, url))
        self.assertIn("the database lacks the column host_state.retry_at", said)
        with open_database(url, writes=False) as conn:
            self.assertEqual(revisions_of(conn), [LATEST_REVISION])

    def test_what_others_added_stays(self) -> None:
        """A newer version that fits the nodes of this one adds columns and tables."""
        url = self.migrated(
            "ALTER TABLE counter ADD COLUMN note TEXT", "CREATE TABLE notes (note TEXT)"
        )
        for check in (migrate, examine):
            check(url)

    def test_unknown_revisions_are_refused(self) -> None:
        """A newer version made the database, or one from before the first release."""
        url = self.migrated()
        for revision in ("9999", "0026"):
            self.change(url, f"UPDATE alembic_version SET version_num = '{revision}'")
            for check in (migrate, examine):
                said = str(self.assertRaises(UnfitDatabase, check, url))
                self.assertIn("by a newer version of rsscloud-broker", said)
                self.assertIn("or by one from before the first release", said)
                self.assertIn(f"does not know its revision {revision}.", said)
