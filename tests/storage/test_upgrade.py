"""Migrations make the tables of the schema, once, and never go back in time."""

from __future__ import annotations

import logging
import re
import sqlite3
import sys
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from attrs import evolve
from sqlalchemy import Connection, inspect, text
from twisted.internet.defer import gatherResults
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.model import Check, Ping, Reading, Unavailable
from rsscloud_broker.storage import UnfitDatabase, migrate, open_database
from rsscloud_broker.storage.engine import open_engine
from rsscloud_broker.storage.intents import intents
from rsscloud_broker.storage.moves import move_topic
from rsscloud_broker.storage.pings import count_pings, insert_pings, prune_pings
from rsscloud_broker.storage.polls import polls_due
from rsscloud_broker.storage.schema import metadata
from rsscloud_broker.storage.subscriptions import put_subscription, subscriptions
from rsscloud_broker.storage.topics import checks_due, record_reading
from rsscloud_broker.storage.walks import fanouts, record_slice

#: What the tables of the first version may hold.
FIRST_VERSION = (
    "INSERT INTO topic (id, url) VALUES (4, 'http://feeds.example/idle.xml')",
    "INSERT INTO topic (id, url, digest, size, read_at, check_requested_at) "
    "VALUES (3, 'http://feeds.example/rss.xml', 'd', 1, 1000000, 2000000)",
    "INSERT INTO subscription (id, topic_id, protocol, callback_url, granted_at, lease_seconds, "
    "expires_at, consecutive_errors, last_error, marked) "
    "VALUES (7, 3, 'http-post', 'http://reader.example/notify', 0, 60, 60000000, 0, '', 0)",
    "INSERT INTO subscription SELECT 8, topic_id, protocol, 'http://b/', host, procedure, "
    "granted_at, lease_seconds, expires_at, consecutive_errors, last_error, last_error_at, marked "
    "FROM subscription",
    "DELETE FROM subscription WHERE id = 8",
    "INSERT INTO waiting (subscription_id, attempts, due_at) VALUES (7, 2, 5)",
    "INSERT INTO fanout (id, topic_id, cursor, begun_at) VALUES (6, 3, 5, 0), (9, 3, 0, 0)",
    "DELETE FROM fanout WHERE id = 9",
)

_SUBSCRIBED = (
    "INSERT INTO subscription (topic_id, asked_url, protocol, callback_url, granted_at, "
    "lease_seconds, expires_at, consecutive_errors, last_error, marked) "
    "VALUES ({}, '{}', 'http-post', 'http://r/{}', 0, {}, {}, 0, '', 0)"
)
_INTENDED = (
    "INSERT INTO intent (topic, callback_url, protocol, procedure, lease_seconds, challenge, "
    "source, terms, ends) VALUES ('{}', 'http://r/1', 'websub', '', 60, 0, '', '', 0)"
)


def _subscribed(topic: int, reader: int, seconds: int = 60, asked: str = "") -> str:
    return _SUBSCRIBED.format(topic, asked, reader, seconds, seconds * 1_000_000)


#: What the tables may hold that knew URLs only as they were written.
OTHER_SPELLINGS = (
    # Three spellings of one topic, of which one subscriber used two.
    "INSERT INTO topic (id, url, digest, size) VALUES (1, 'http://a/~x', 'd', 1), "
    "(2, 'http://a/%7Ex', 'e', 1), (3, 'HTTP://A/~x', 'f', 1)",
    _subscribed(1, 1, 60),
    _subscribed(1, 2, 30),
    _subscribed(2, 2, 90),
    _subscribed(2, 1, 10),
    _subscribed(3, 3),
    "INSERT INTO fanout (id, topic_id, cursor, begun_at) VALUES (1, 2, 0, 0)",
    # One alone.
    f"INSERT INTO topic (id, url, digest, size) VALUES (4, 'http://B', x'{b'd'.hex() * 32}', 1)",
    _subscribed(4, 1),
    # One that has moved, with a subscriber who asked for it before.
    "INSERT INTO topic (id, url) VALUES (5, 'http://c/new')",
    "INSERT INTO topic (id, url, moved_to_id) VALUES (6, 'http://c/%2e/', 5)",
    _subscribed(5, 1, asked="http://c/%2e/"),
    # One that has moved to another spelling of itself.
    "INSERT INTO topic (id, url) VALUES (7, 'http://d')",
    "INSERT INTO topic (id, url, moved_to_id) VALUES (8, 'http://d/', 7)",
    _subscribed(7, 1, asked="http://d/"),
    _subscribed(7, 2),
    _INTENDED.format("http://a/~x"),
    _INTENDED.format("http://a/%7Ex"),
)


def steps_on(conn: Connection) -> Config:
    """What Alembic's commands need to know."""
    config = Config()
    config.set_main_option("script_location", "rsscloud_broker.storage:migrations")
    config.attributes["connection"] = conn
    return config


class MigrateTests(SynchronousTestCase):
    def new_url(self) -> str:
        return f"sqlite:///{Path(self.mktemp()).resolve()}/deep/er/broker.db"

    def test_makes_the_tables_and_the_directory(self) -> None:
        url = self.new_url()
        migrate(url)
        with open_database(url, writes=False) as conn:
            tables = set(inspect(conn).get_table_names())
        self.assertEqual(tables, {*metadata.tables, "alembic_version"})

    def test_the_file_is_for_its_owner_alone(self) -> None:
        """It holds the secrets of subscribers; so do the files that SQLite makes beside it."""
        url = self.new_url()
        migrate(url)
        file = Path(url.removeprefix("sqlite:///"))
        with open_database(url) as conn:
            conn.execute(text("UPDATE topic SET url = url"))
            files = list(file.parent.glob("broker.db*"))
            self.assertEqual({path.stat().st_mode & 0o777 for path in files}, {0o600})
            self.assertGreater(len(files), 1)

    def test_agrees_with_the_schema(self) -> None:
        url = self.new_url()
        migrate(url)
        with open_database(url, writes=False) as conn:
            context = MigrationContext.configure(conn)
            self.assertEqual(compare_metadata(context, metadata), [])

    def test_makes_the_same_as_create_all(self) -> None:
        """Down to what Alembic does not compare, such as AUTOINCREMENT."""
        url = self.new_url()
        migrate(url)
        with open_database(url, writes=False) as conn:
            migrated = self.definitions(conn.connection.driver_connection)
        engine = open_engine("sqlite://")
        self.addCleanup(engine.dispose)
        metadata.create_all(engine)
        with engine.begin() as conn:
            self.assertEqual(self.definitions(conn.connection.driver_connection), migrated)

    def definitions(self, connection: sqlite3.Connection | None) -> dict[str, list[str]]:
        """The columns and constraints of each table and index, in no order."""
        assert connection is not None
        rows = connection.execute(
            "SELECT name, sql FROM sqlite_master "
            "WHERE sql IS NOT NULL AND tbl_name NOT IN ('alembic_version', 'sqlite_sequence')"
        )
        # One that refers to a table says so itself where it was added, and else at the end.
        added = re.compile(r"(\w+) INTEGER (CONSTRAINT \w+) REFERENCES")
        as_made = r"\1 INTEGER, \2 FOREIGN KEY(\1) REFERENCES"
        return {
            # SQLite writes a column that was added on the line of the one before it.
            name: sorted(filter(None, (part.strip(" ()\t") for part in re.split(r",\s|\n", sql))))
            for name, sql in (
                # SQLite says of some texts that they are in parentheses.
                (name, added.sub(as_made, sql.replace('"', "").replace("('')", "''")))
                for name, sql in rows
            )
        }

    def test_keeps_what_the_first_version_stored(self) -> None:
        url = self.new_url()
        path = Path(url.removeprefix("sqlite:///"))
        path.parent.mkdir(parents=True)
        path.touch()
        with open_database(url) as conn:
            config = steps_on(conn)
            command.upgrade(config, "0001")
            for statement in FIRST_VERSION:
                conn.execute(text(statement))
        migrate(url)
        with open_database(url) as conn:
            (one,) = subscriptions(conn, "http://feeds.example/rss.xml", 0, 10)
            self.assertEqual(one.callback.url, "http://reader.example/notify")
            self.assertEqual(
                (one.attempts, one.terms, one.wants_content, one.ended), (2, {}, 0, "")
            )
            (walk,) = fanouts(conn, 10)
            self.assertEqual((walk.id, walk.cursor, walk.content_id), (6, 5, None))
            self.assertEqual(
                checks_due(conn, 10), [Check("http://feeds.example/rss.xml", pinged=False)]
            )
            (due,) = polls_due(conn, 1.0, 10)  # the other one has no subscribers
            self.assertEqual((due.topic.url, due.next_poll_at), (one.topic, 0.0))
            record_slice(conn, walk, 7, [], True)
            record_reading(conn, Reading(one.topic, b"n" * 32, 1, 2.0), None)
            (walk,) = fanouts(conn, 10)
            self.assertGreater(walk.id, 9)  # ids that were used are not used again
            self.assertGreater(put_subscription(conn, evolve(one, topic="http://b/")).id, 8)
            self.assertTrue(move_topic(conn, one.topic, "http://b/", 3.0))
            self.assertEqual(len(subscriptions(conn, one.topic, 0, 10)), 2)
            command.downgrade(steps_on(conn), "0002")
            of_topics = text("SELECT id FROM subscription ORDER BY topic_id")
            self.assertEqual(conn.execute(of_topics).scalars().first(), 7)
            waiting = text("SELECT attempts FROM waiting WHERE subscription_id = 7")
            self.assertEqual(conn.execute(waiting).scalars().all(), [2])

    def test_the_number_of_pings_ever_made_is_kept(self) -> None:
        url = self.new_url()
        migrate(url)
        ping = Ping("A", "http://site.example/", 1.0)
        with open_database(url) as conn:
            insert_pings(conn, [ping, evolve(ping, received_at=2.0), evolve(ping, received_at=9.0)])
            prune_pings(conn, 3.0)
            config = steps_on(conn)
            command.downgrade(config, "0003")
            pruned = text("SELECT value FROM tally WHERE name = 'pruned pings'")
            self.assertEqual(conn.execute(pruned).scalars().all(), [2])
            command.upgrade(config, "head")
            self.assertEqual(count_pings(conn), 3)
            self.assertEqual(conn.execute(pruned).scalars().all(), [])
            insert_pings(conn, [ping])
            self.assertEqual(count_pings(conn), 4)

    def test_contents_that_are_there_are_summed_up(self) -> None:
        url = self.new_url()
        migrate(url)
        with open_database(url) as conn:
            config = steps_on(conn)
            command.downgrade(config, "0003")
            for key, place in enumerate(("http://a.example/1", "http://a.example/2", "b")):
                topic = "INSERT INTO topic (id, url) VALUES (:key, :url)"
                conn.execute(text(topic), {"key": key, "url": place})
                conn.execute(
                    text(
                        "INSERT INTO content (topic_id, content_type, link, body) "
                        "VALUES (:key, 'text/x', '', :body)"
                    ),
                    {"key": key, "body": b"x" * 10},
                )
            command.upgrade(config, "head")
            sums = text("SELECT host, size FROM content_sum ORDER BY host")
            self.assertEqual(
                conn.execute(sums).tuples().all(), [("", 48), ("?", 16), ("a.example", 32)]
            )
            kept = text("SELECT DISTINCT host, size FROM content ORDER BY host")
            self.assertEqual(conn.execute(kept).tuples().all(), [("?", 16), ("a.example", 16)])

    def test_topics_are_found_by_the_normal_form(self) -> None:
        """Those that were the same but in their spelling are one, with all their subscribers,
        each of whom is still told the URL that it wrote.
        """
        url = self.new_url()
        migrate(url)
        with open_database(url) as conn:
            command.downgrade(steps_on(conn), "0006")
            for statement in OTHER_SPELLINGS:
                conn.execute(text(statement))
            command.upgrade(steps_on(conn), "head")
            urls = list(conn.execute(text("SELECT url FROM topic ORDER BY id")).scalars())
            self.assertEqual(
                urls, ["http://a/~x", "http://b/", "http://c/new", "http://c/", "http://d/"]
            )
            told = {
                topic: [(one.told_topic, one.callback.url, one.lease.seconds) for one in found]
                for topic in urls
                if (found := subscriptions(conn, topic, 0, 10))
            }
            self.assertEqual(
                told,
                {
                    "http://a/~x": [
                        ("http://a/~x", "http://r/1", 60),
                        ("http://a/%7Ex", "http://r/2", 90),
                        ("HTTP://A/~x", "http://r/3", 60),
                    ],
                    "http://b/": [("http://B", "http://r/1", 60)],
                    "http://c/new": [("http://c/%2e/", "http://r/1", 60)],
                    "http://c/": [("http://c/%2e/", "http://r/1", 60)],
                    "http://d/": [
                        ("http://d/", "http://r/1", 60),
                        ("http://d", "http://r/2", 60),
                    ],
                },
            )
            self.assertEqual(checks_due(conn, 10), [Check("http://a/~x", pinged=False)])
            merged = record_reading(conn, Reading("http://a/~x", b"n" * 32, 1, 2.0), None)
            self.assertTrue(merged.changed)
            same = record_reading(conn, Reading("http://b/", b"d" * 32, 1, 2.0), None)
            self.assertFalse(same.changed)
            self.assertEqual([walk.topic for walk in fanouts(conn, 10)], ["http://a/~x"])
            (waiting,) = intents(conn)
            self.assertEqual(
                (waiting.id, waiting.intent.topic, waiting.intent.as_written.topic),
                (2, "http://a/~x", "http://a/%7Ex"),
            )

    def test_back_and_forth(self) -> None:
        url = self.new_url()
        migrate(url)
        with open_database(url) as conn:
            config = steps_on(conn)
            command.downgrade(config, "0001")
            self.assertNotIn("intent", inspect(conn).get_table_names())
            command.upgrade(config, "head")
            self.assertEqual(compare_metadata(MigrationContext.configure(conn), metadata), [])

    def test_twice_changes_nothing(self) -> None:
        url = self.new_url()
        migrate(url)
        with open_database(url) as conn:
            conn.execute(text("INSERT INTO tally (name, value) VALUES ('kept', 1)"))
        migrate(url)
        with open_database(url, writes=False) as conn:
            self.assertEqual(conn.execute(text("SELECT name FROM tally")).scalar(), "kept")

    def test_newer_database_is_refused(self) -> None:
        url = self.new_url()
        migrate(url)
        with open_database(url) as conn:
            conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        error = self.assertRaises(UnfitDatabase, migrate, url)
        self.assertIn("newer version", str(error))
        self.assertIn("9999", str(error))

    def test_database_in_memory_is_refused(self) -> None:
        for url in ("sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"):
            error = self.assertRaises(UnfitDatabase, migrate, url)
            self.assertIn("Name a file", str(error))

    def test_directory_that_cannot_be_made(self) -> None:
        path = Path(self.mktemp()).resolve()
        path.write_text("in the way", encoding="ascii")
        error = self.assertRaises(Unavailable, migrate, f"sqlite:///{path}/broker.db")
        self.assertIn("directory for the database cannot be made", str(error))

    def test_file_that_cannot_be_opened(self) -> None:
        path = Path(self.mktemp()).resolve()
        path.mkdir()
        error = self.assertRaises(Unavailable, migrate, f"sqlite:///{path}")
        self.assertIn("unable to open database file", str(error))

    def test_leaves_logging_alone(self) -> None:
        root = logging.getLogger()
        before = (list(root.handlers), root.level, logging.getLogger("alembic").level)
        migrate(self.new_url())
        after = (list(root.handlers), root.level, logging.getLogger("alembic").level)
        self.assertEqual(before, after)
        self.assertFalse(logging.getLogger("twisted").disabled)


class AtOnceTests(TestCase):
    async def test_processes_that_migrate_at_once(self) -> None:
        url = f"sqlite:///{self.mktemp()}/broker.db"
        script = "import sys; from rsscloud_broker.storage import migrate; migrate(sys.argv[1])"
        results = await gatherResults(
            [
                getProcessOutputAndValue(
                    sys.executable, ["-c", script, url], env={"PYTHONPATH": ":".join(sys.path)}
                )
                for _ in range(3)
            ]
        )
        self.assertEqual(results, [(b"", b"", 0)] * 3)
