"""The broker gives up on a PostgreSQL that does not answer."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.database.engine import as_unavailable
from tests.postgresql import empty_database
from tests.storage.databases import engine_for


class SilenceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.engine = engine_for(self, empty_database(), of_broker=True, silence=0.3)

    def test_statement_without_an_answer(self) -> None:
        with self.engine.connect() as conn:
            conn.execute(text("SET statement_timeout = 0"))  # a server that stands still ends none
            error = self.assertRaises(
                OperationalError,
                conn.execute,
                text("SELECT pg_sleep(60), 'of the test of silence'"),
            )
            self.assertTrue(conn.invalidated)
        self.assertIn("the server has not answered for 0.3 seconds", str(as_unavailable(error)))
        with self.engine.connect() as conn:  # the next statement has a new connection
            self.assertEqual(conn.execute(text("SELECT 1")).scalar_one(), 1)

    def test_statements_in_time(self) -> None:
        """Each has the whole time."""
        with self.engine.connect() as conn:
            for _ in range(3):
                conn.execute(text("SELECT pg_sleep(0.15)"))
            number = conn.execute(text("SELECT count(*) FROM generate_series(1, 1000)"))
            self.assertEqual(number.scalar_one(), 1000)
