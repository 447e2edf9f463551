"""Tests of the migrations that hold for SQLite and PostgreSQL, with the data of older versions."""

from __future__ import annotations

from collections.abc import Sequence

from alembic import command
from attrs import evolve
from sqlalchemy import Connection, inspect, make_url, text
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.engine import for_writing, open_engine
from rsscloud_broker.model import FetchResult, Ping
from rsscloud_broker.model.work import Check
from rsscloud_broker.storage import UnfitDatabase, alembic_steps, migrate, open_database
from rsscloud_broker.storage.intents import intents
from rsscloud_broker.storage.moves import move_topic
from rsscloud_broker.storage.ping_counters import count_pings
from rsscloud_broker.storage.pings import insert_pings, prune_pings
from rsscloud_broker.storage.polls import polls_due
from rsscloud_broker.storage.recording import record_fetch
from rsscloud_broker.storage.subscriptions import put_subscription, subscriptions
from rsscloud_broker.storage.upgrade import LATEST_REVISION, check_known, revisions_of
from rsscloud_broker.storage.walks import fanouts, record_slice
from tests.storage.waiting import read_checks

#: Rows that the tables of the first version may have.
FIRST_VERSION = (
    "INSERT INTO topic (id, url) VALUES (4, 'http://feeds.example/idle.xml')",
    "INSERT INTO topic (id, url, digest, size, read_at, check_requested_at) "
    "VALUES (3, 'http://feeds.example/rss.xml', 'd', 1, 1000000, 2000000)",
    "INSERT INTO subscription (id, topic_id, protocol, callback_url, granted_at, lease_seconds, "
    "expires_at, consecutive_errors, last_error, marked) "
    "VALUES (7, 3, 'http-post', 'http://reader.example/notify', 0, 60, 60000000, 0, '', false)",
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
    "VALUES ({}, '{}', 'http-post', 'http://r/{}', 0, {}, {}, 0, '', false)"
)
_INTENDED = (
    "INSERT INTO intent (topic, callback_url, protocol, procedure, lease_seconds, challenge, "
    "source, terms, ends) VALUES ('{}', 'http://r/1', 'websub', '', 60, false, '', '', false)"
)


def _subscribed(topic: int, reader: int, seconds: int = 60, asked: str = "") -> str:
    return _SUBSCRIBED.format(topic, asked, reader, seconds, seconds * 1_000_000)


#: Rows of a version that did not bring URLs into normal form.
OTHER_SPELLINGS = (
    # Three spellings of one topic; one subscriber subscribed to two of them.
    "INSERT INTO topic (id, url, digest, size) VALUES (1, 'http://a/~x', 'd', 1), "
    "(2, 'http://a/%7Ex', 'e', 1), (3, 'HTTP://A/~x', 'f', 1)",
    _subscribed(1, 1, 60),
    _subscribed(1, 2, 30),
    _subscribed(2, 2, 90),
    _subscribed(2, 1, 10),
    _subscribed(3, 3),
    "INSERT INTO fanout (id, topic_id, cursor, begun_at) VALUES (1, 2, 0, 0)",
    # Pushed contents of two spellings, which are pending for the subscriber of both.
    "INSERT INTO content (id, topic_id, content_type, link, body) "
    "VALUES (1, 2, '', '', ''), (2, 1, '', '', ''), (3, 2, '', '', '')",
    "INSERT INTO waiting (subscription_id, attempts, due_at, content_id, content_topic_id) "
    "SELECT id, 3, 5, 3 - topic_id, topic_id FROM subscription WHERE callback_url = 'http://r/2'",
    "INSERT INTO queued (subscription_id, content_id) "
    "SELECT id, 3 FROM subscription WHERE callback_url = 'http://r/2' AND topic_id = 2",
    # A pending notification for a subscription that is merged into another.
    "INSERT INTO waiting (subscription_id, attempts, due_at) "
    "SELECT id, 7, 5 FROM subscription WHERE callback_url = 'http://r/1' AND topic_id = 2",
    # A topic with one spelling.
    f"INSERT INTO topic (id, url, digest, size) VALUES (4, 'http://B', '{'d' * 32}', 1)",
    _subscribed(4, 1),
    # A topic that has moved, with a subscription from before.
    "INSERT INTO topic (id, url) VALUES (5, 'http://c/new')",
    "INSERT INTO topic (id, url, moved_to_id) VALUES (6, 'http://c/%2e/', 5)",
    _subscribed(5, 1, asked="http://c/%2e/"),
    # A topic that has moved to another spelling of its URL.
    "INSERT INTO topic (id, url) VALUES (7, 'http://d')",
    "INSERT INTO topic (id, url, moved_to_id) VALUES (8, 'http://d/', 7)",
    _subscribed(7, 1, asked="http://d/"),
    _subscribed(7, 2),
    _INTENDED.format("http://a/~x"),
    _INTENDED.format("http://a/%7Ex"),
)


def insert(conn: Connection, statements: Sequence[str]) -> None:
    """Run statements that insert rows with given ids.

    PostgreSQL's sequences do not notice these ids, so they are set to go on behind them.
    """
    for statement in statements:
        conn.execute(text(statement))
    if not sqlite.serves(conn):
        conn.execute(text("SELECT setval(format('%I', sequencename), 100) FROM pg_sequences"))
    # Digests are bytes, for which the two databases have different literals.
    for key, digest in conn.execute(text("SELECT id, digest FROM topic")).all():
        if isinstance(digest, str):
            values = {"key": key, "digest": digest.encode()}
            conn.execute(text("UPDATE topic SET digest = :digest WHERE id = :key"), values)


class MigrationSteps(SynchronousTestCase):
    """The tests that hold for every kind of database."""

    def new_url(self) -> str:
        """The URL of a database without tables."""
        raise NotImplementedError

    def definitions(self, conn: Connection) -> object:
        """The columns, constraints and indexes of a database."""
        raise NotImplementedError

    def test_makes_the_same_as_create_all(self) -> None:
        """Down to the details that Alembic does not compare.  A new database runs no steps."""
        found = []
        for make in (migrate, self.migrate_by_steps):
            url = self.new_url()
            make(url)
            with open_database(url, writes=False) as conn:
                found.append((self.definitions(conn), revisions_of(conn)))
        self.assertEqual(*found)

    def migrate_by_steps(self, url: str) -> None:
        """Make the tables of the first version, and run all the steps since."""
        if url.startswith("sqlite:"):
            sqlite.make_parent_directory(make_url(url))
        engine = open_engine(url)
        self.addCleanup(engine.dispose)
        with for_writing(engine).begin() as conn:
            alembic_steps.run(conn)

    def test_revisions_are_known_without_alembic(self) -> None:
        revisions = alembic_steps.revisions()
        self.assertEqual(revisions[0], LATEST_REVISION)
        check_known(revisions)
        self.assertEqual(len(revisions), int(LATEST_REVISION))

    def test_tables_of_somebody_else_are_not_taken(self) -> None:
        """A database may be used for something else, by a mistake in the configuration."""
        url = self.new_url()
        if url.startswith("sqlite:"):
            sqlite.make_parent_directory(make_url(url))
        with open_database(url) as conn:
            conn.execute(text("CREATE TABLE topic (name TEXT)"))
        error = self.assertRaises(UnfitDatabase, migrate, url)
        self.assertIn("tables named topic,", str(error))
        with open_database(url, writes=False) as conn:
            self.assertEqual(inspect(conn).get_table_names(), ["topic"])

    def test_keeps_what_the_first_version_stored(self) -> None:
        url = self.new_url()
        self.migrate_by_steps(url)
        with open_database(url) as conn:
            command.downgrade(alembic_steps.config(conn), "0001")
            insert(conn, FIRST_VERSION)
        migrate(url)
        with open_database(url) as conn:
            (one,) = subscriptions(conn, "http://feeds.example/rss.xml", 0, 10)
            self.assertEqual(one.callback.url, "http://reader.example/notify")
            self.assertEqual(
                (one.attempts, one.options, one.wants_content, one.ended), (2, {}, 0, "")
            )
            (walk,) = fanouts(conn, 10)
            self.assertEqual((walk.id, walk.cursor, walk.content_id), (6, 5, None))
            self.assertEqual(
                read_checks(conn, 10), [Check("http://feeds.example/rss.xml", pinged=False)]
            )
            (due,) = polls_due(conn, 1.0, 10)  # the other topic has no subscriptions
            self.assertEqual((due.topic.url, due.next_poll_at), (one.topic, 0.0))
            record_slice(conn, walk, 7, [], True)
            record_fetch(conn, FetchResult(one.topic, b"n" * 32, 1, 2.0), None)
            (walk,) = fanouts(conn, 10)
            self.assertGreater(walk.id, 9)  # ids are never used again
            self.assertGreater(put_subscription(conn, evolve(one, topic="http://b/")).id, 8)
            self.assertTrue(move_topic(conn, one.topic, "http://b/", 3.0))
            self.assertEqual(len(subscriptions(conn, one.topic, 0, 10)), 2)
            command.downgrade(alembic_steps.config(conn), "0002")
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
            prune_pings(conn, 3.0, 1000)
            config = alembic_steps.config(conn)
            command.downgrade(config, "0003")
            pruned = text("SELECT value FROM tally WHERE name = 'pruned pings'")
            self.assertEqual(conn.execute(pruned).scalars().all(), [2])
            command.upgrade(config, "head")
            self.assertEqual(count_pings(conn), 3)
            pruned = text("SELECT value FROM counter WHERE name = 'pruned pings'")
            self.assertEqual(conn.execute(pruned).scalars().all(), [])
            insert_pings(conn, [ping])
            self.assertEqual(count_pings(conn), 4)

    def test_contents_that_are_there_are_summed_up(self) -> None:
        url = self.new_url()
        migrate(url)
        with open_database(url) as conn:
            config = alembic_steps.config(conn)
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
        """Topics that differ in spelling only are merged, and each subscriber is still told the
        URL that it wrote.
        """
        url = self.new_url()
        migrate(url)
        with open_database(url) as conn:
            command.downgrade(alembic_steps.config(conn), "0006")
            insert(conn, OTHER_SPELLINGS)
            command.upgrade(alembic_steps.config(conn), "head")
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
            first, second, _ = subscriptions(conn, "http://a/~x", 0, 10)
            self.assertEqual((first.attempts, first.content_id), (7, None))
            self.assertEqual((second.attempts, second.content_id), (3, 1))
            queue = text("SELECT subscription_id, content_id FROM queued ORDER BY content_id")
            self.assertEqual(conn.execute(queue).tuples().all(), [(second.id, 2), (second.id, 3)])
            self.assertEqual(read_checks(conn, 10), [Check("http://a/~x", pinged=False)])
            merged = record_fetch(conn, FetchResult("http://a/~x", b"n" * 32, 1, 2.0), None)
            self.assertTrue(merged.changed)
            same = record_fetch(conn, FetchResult("http://b/", b"d" * 32, 1, 2.0), None)
            self.assertFalse(same.changed)
            self.assertEqual([walk.topic for walk in fanouts(conn, 10)], ["http://a/~x"])
            (waiting,) = intents(conn, 0, 10)
            self.assertEqual(
                (waiting.id, waiting.intent.topic, waiting.intent.as_written.topic),
                (2, "http://a/~x", "http://a/%7Ex"),
            )

    def test_back_and_forth(self) -> None:
        url = self.new_url()
        self.migrate_by_steps(url)
        with open_database(url) as conn:
            config = alembic_steps.config(conn)
            before = self.definitions(conn)
            command.downgrade(config, "0001")
            self.assertNotIn("intent", inspect(conn).get_table_names())
            command.upgrade(config, "head")
            self.assertEqual(self.definitions(conn), before)

    def test_twice_changes_nothing(self) -> None:
        url = self.new_url()
        migrate(url)
        with open_database(url) as conn:
            conn.execute(text("INSERT INTO counter (name, value) VALUES ('kept', 1)"))
        migrate(url)
        with open_database(url, writes=False) as conn:
            self.assertEqual(
                conn.execute(text("SELECT name FROM counter WHERE value = 1")).scalar(), "kept"
            )

    def test_newer_database_is_refused(self) -> None:
        url = self.new_url()
        migrate(url)
        with open_database(url) as conn:
            conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        error = self.assertRaises(UnfitDatabase, migrate, url)
        self.assertIn("newer version", str(error))
        self.assertIn("9999", str(error))
