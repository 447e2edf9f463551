"""A copy of a database has the same rows, between SQLite and PostgreSQL in both directions."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import delete, func, insert, select, text
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import AppTables
from rsscloud_broker.storage import (
    UnfitDatabase,
    copy_database,
    jobs,
    migrate,
    nodes,
    open_database,
)
from rsscloud_broker.storage.schema import node, ping, subscription, topic
from rsscloud_broker.storage.upgrade import LATEST_REVISION, revisions_of
from tests.notes import FIRST, SECOND
from tests.postgresql import empty_database
from tests.storage.databases import file_database
from tests.storage.filling import COUNT, fill, installed, tables, value

Rows = Mapping[str, list[tuple[Any, ...]]]


def rows(url: str, apps: Mapping[str, AppTables]) -> Rows:
    with open_database(url, writes=False) as conn:
        return {
            table.name: sorted(map(tuple, conn.execute(select(table))), key=repr)
            for table in tables(apps)
        }


class CopyTests(SynchronousTestCase):
    def filled(self, apps: Mapping[str, AppTables]) -> str:
        url = file_database(self)
        migrate(url, apps)
        with open_database(url) as conn:
            fill(conn, apps)
        return url

    def new_file(self) -> str:
        return f"sqlite:///{Path(self.mktemp()).resolve()}.sqlite"

    def test_there_and_back(self) -> None:
        apps = installed()
        self.assertGreater(len(apps), 4)
        first, second, third = self.filled(apps), empty_database(), self.new_file()
        before = rows(first, apps)
        self.assertEqual({len(some) for some in before.values()}, {COUNT})
        copied = copy_database(first, second, apps)
        self.assertEqual(copied.left_out, [])
        self.assertEqual({*copied.rows.values()}, {COUNT})
        self.assertEqual(copied.rows.keys(), before.keys() - {"node"})
        self.assertEqual(copy_database(second, third, apps), copied)
        after = rows(third, apps)
        self.assertEqual(after, rows(second, apps))
        self.assertEqual(after["node"], [])
        for table in tables(apps):
            if table is node:
                continue
            # Nobody has claimed what is the same in all else.
            claims = {
                position
                for position, column in enumerate(table.columns)
                if column in nodes.ALL_CLAIMS
                or any(key.column.table is node for key in column.foreign_keys)
            }
            free = [
                tuple(None if at in claims else each for at, each in enumerate(row))
                for row in before[table.name]
            ]
            self.assertEqual(after[table.name], sorted(free, key=repr), table.name)

    def test_ids_are_not_used_again(self) -> None:
        first, second, third = file_database(self), empty_database(), self.new_file()
        with open_database(first) as conn:
            fill(conn, {})
            conn.execute(delete(ping))
            conn.execute(delete(node))
        copy_database(first, second, {})
        copy_database(second, third, {})
        for url in (second, third):
            with open_database(url) as conn:
                for table in (ping, topic, node):
                    values = {
                        column.name: value(column, COUNT + 1)
                        for column in table.columns
                        if not column.primary_key and not column.foreign_keys
                    }
                    made = conn.execute(insert(table).values(values)).inserted_primary_key
                    self.assertEqual(made, (COUNT + 1,), table.name)

    def test_jobs_of_a_broker_that_was_killed_are_done_on_the_copy(self) -> None:
        """No node is copied, so that nobody would free its jobs any more."""
        first, second = file_database(self), self.new_file()
        with open_database(first) as conn:
            killed = nodes.ensure_registered(conn, None)
            self.assertTrue(jobs.claim_job(conn, "relay", 1000.0, 60.0, killed).claimed)
        copy_database(first, second, {})
        with open_database(second) as conn:
            here = nodes.ensure_registered(conn, None)
            self.assertTrue(jobs.claim_job(conn, "relay", 2000.0, 60.0, here).claimed)

    def test_many_rows(self) -> None:
        """More than are in memory at a time."""
        first, second = file_database(self), empty_database()
        many = (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000) "
            "INSERT INTO subscription (topic_id, protocol, callback_url, granted_at, "
            "lease_seconds, expires_at, consecutive_errors, last_error, dropping) "
            "SELECT 1, 'http-post', 'http://reader.example/' || i, 0, 1, i, 0, '', 0 FROM n"
        )
        with open_database(first) as conn:
            conn.execute(insert(topic).values(url="http://feeds.example/"))
            conn.execute(text(many))
        copied = copy_database(first, second, {})
        self.assertEqual(copied.rows, {"topic": 1, "subscription": 4000})
        with open_database(second, writes=False) as conn:
            found = conn.execute(select(func.sum(subscription.c.expires_at))).scalar_one()
            self.assertEqual(found, sum(range(4001)))
            # The server plans queries for a full table at once.
            size = text("SELECT reltuples FROM pg_class WHERE relname = 'subscription'")
            self.assertEqual(conn.execute(size).scalar_one(), 4000)

    def test_text_that_postgresql_cannot_store(self) -> None:
        first, second = file_database(self), empty_database()
        with open_database(first) as conn:
            conn.execute(insert(topic).values(url="http://feeds.example/a\0b"))
        copy_database(first, second, {})
        with open_database(second, writes=False) as conn:
            self.assertEqual(
                conn.execute(select(topic.c.url)).scalar_one(), "http://feeds.example/a�b"
            )

    def test_older_database_is_migrated(self) -> None:
        first, second = file_database(self), empty_database()
        migrate(first, {"notes": FIRST})
        with open_database(first) as conn:
            conn.execute(text("INSERT INTO notes_note (id) VALUES (7)"))
        copied = copy_database(first, second, {"notes": SECOND})
        self.assertEqual(copied.rows, {"notes_note": 1})
        with open_database(second, writes=False) as conn:
            self.assertEqual(conn.execute(text("SELECT id, text FROM notes_note")).one(), (7, ""))

    def test_what_is_not_installed_is_named(self) -> None:
        first = file_database(self)
        migrate(first, {"notes": FIRST})
        self.assertEqual(copy_database(first, self.new_file(), {}).left_out, [])
        with open_database(first) as conn:
            conn.execute(text("INSERT INTO notes_note (id) VALUES (7)"))
        self.assertEqual(copy_database(first, self.new_file(), {}).left_out, ["notes_note"])


class RefusalTests(SynchronousTestCase):
    """What may not be copied, or copied into, is left as it is."""

    def setUp(self) -> None:
        self.source = file_database(self)
        self.target = empty_database()
        with open_database(self.source) as conn:
            conn.execute(insert(topic).values(url="http://feeds.example/"))

    def refused(self, source: str, target: str) -> str:
        return str(self.assertRaises(UnfitDatabase, copy_database, source, target, {}))

    def assert_target_is_empty(self) -> None:
        with open_database(self.target, writes=False) as conn:
            if revisions_of(conn):
                self.assertIsNone(conn.execute(select(topic)).first())

    def test_target_with_rows(self) -> None:
        migrate(self.target)
        with open_database(self.target) as conn:
            conn.execute(insert(topic).values(url="http://other.example/"))
        said = self.refused(self.source, self.target)
        self.assertIn("/test", said)
        self.assertIn("is not empty: there are rows in topic. Name a new database", said)
        with open_database(self.target, writes=False) as conn:
            self.assertEqual(
                conn.execute(select(topic.c.url)).scalars().all(), ["http://other.example/"]
            )

    def test_brokers_work_on_either(self) -> None:
        migrate(self.target)
        with open_database(self.target) as conn:
            nodes.ensure_registered(conn, None)
        for source, target in ((self.source, self.target), (self.target, self.source)):
            said = self.refused(source, target)
            self.assertIn("brokers work on it: ", said)
            self.assertIn("stop them", said)

    def test_file_that_is_in_use(self) -> None:
        file = self.source.removeprefix("sqlite:///")
        with closing(sqlite3.connect(file)) as other:
            other.execute("SELECT count(*) FROM topic").fetchone()
            for source, target in ((self.source, self.target), (file_database(self), self.source)):
                said = self.refused(source, target)
                self.assertIn(f"another process uses {file}: stop", said)
        copy_database(self.source, self.target, {})

    def test_the_same_database_by_two_urls(self) -> None:
        migrate(self.target)
        said = self.refused(self.target, f"{self.target}&application_name=other")
        self.assertIn("migrates or copies its tables right now", said)

    def test_nothing_to_copy_or_the_same(self) -> None:
        missing = Path(self.mktemp()).resolve()
        for source, target, said in (
            (f"sqlite:///{missing}", self.target, f"{missing} does not exist"),
            ("sqlite://", self.target, "in memory"),
            (empty_database(), self.target, "nothing to copy"),
            (self.source, self.source, "must name another one"),
            (self.target, self.target, "must name another one"),
        ):
            self.assertIn(said, self.refused(source, target))
        self.assertFalse(missing.exists())

    def test_newer_source(self) -> None:
        with open_database(self.source) as conn:
            conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        self.assertIn("made by a newer version", self.refused(self.source, self.target))
        self.assert_target_is_empty()

    def test_row_that_cannot_be_copied(self) -> None:
        """It is as if nothing had been copied."""
        with closing(sqlite3.connect(self.source.removeprefix("sqlite:///"))) as raw, raw:
            raw.execute(
                "INSERT INTO content (topic_id, content_type, link, body) VALUES (77, '', '', '')"
            )
        error = self.assertRaises(Unavailable, copy_database, self.source, self.target, {})
        self.assertIn("rows of content cannot be written: ", str(error))
        self.assert_target_is_empty()
        with open_database(self.source, writes=False) as conn:
            self.assertEqual(revisions_of(conn), [LATEST_REVISION])
