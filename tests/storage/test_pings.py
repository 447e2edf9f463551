"""Several pings are recorded together."""

from __future__ import annotations

import json

from attrs import evolve
from sqlalchemy import Connection, select, text
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import Ping
from rsscloud_broker.storage import open_database
from rsscloud_broker.storage import pings as operations
from rsscloud_broker.storage.schema import ping
from tests.postgresql import borrowed_database
from tests.storage.databases import file_database

PING = Ping(name="A", url="http://a.example/", received_at=1000.0)


class GroupTests(SynchronousTestCase):
    def database(self) -> str:
        return file_database(self)

    def test_each_gets_the_id_of_its_row(self) -> None:
        """However many pings there are, and however similar."""
        url = self.database()
        wanted = [
            evolve(PING, tags=tuple("abc"[: n % 4]), received_at=PING.received_at + n // 8)
            for n in range(300)
        ] + [evolve(PING, url=f"http://{n}.example/") for n in range(200)]
        with open_database(url) as conn:
            records = operations.add_pings(conn, [operations.AskedPing(one, 0) for one in wanted])
            rows = {row.id: row for row in conn.execute(select(ping))}
        self.assertEqual(sorted(rows), sorted(record.ping.id for record in records))
        for one, record in zip(wanted, records, strict=True):
            row = rows[record.ping.id]
            self.assertEqual(record.ping, evolve(one, id=row.id))
            self.assertEqual((row.url, row.received_at), (one.url, one.received_at * 1_000_000))
            self.assertEqual(tuple(json.loads(row.tags or "[]")), one.tags)

    def test_repeats_are_found_among_many(self) -> None:
        """In the hour of the ping, in the one before, and in the group itself."""
        first = [evolve(PING, url=f"http://{n}.example/", received_at=3590.0) for n in range(60)]
        second = [evolve(each, received_at=3610.0) for each in first[::2]] + [PING, PING]
        with open_database(self.database()) as conn:
            operations.add_pings(conn, [operations.AskedPing(one, 0) for one in first])
            records = operations.add_pings(
                conn, [operations.AskedPing(one, 60.0) for one in second]
            )
        self.assertEqual([record.repeat for record in records], [True] * 30 + [False, True])

    def test_fingerprints_stay_as_they_are(self) -> None:
        """A later version compares its fingerprints with those in the database."""
        record = evolve(PING, name='Caf\u00e9 "\U0001f600"\n', rss_url="http://a.example/rss")
        self.assertEqual(operations.fingerprint(record).hex(), "cdeb27525bf39b1d37f4e5157396b251")


class PostgreSQLGroupTests(GroupTests):
    def database(self) -> str:
        return self.enterContext(borrowed_database())

    def test_a_repeat_is_looked_for_by_its_fingerprint(self) -> None:
        """However many pings have been recorded in this hour since the table was analyzed."""
        earlier = [evolve(PING, url=f"http://{n}.example/") for n in range(3000)]
        group = [evolve(PING, url=f"http://{n}.example/feed") for n in range(100)]
        with open_database(self.database()) as conn:
            operations.insert_pings(conn, earlier)
            before = _rows_read(conn)
            operations.known_pings(conn, [(one, 60.0) for one in [*group, *earlier[:5]]])
            self.assertLess(_rows_read(conn) - before, 100)


def _rows_read(conn: Connection) -> int:
    """How many rows of pings this transaction has read, by an index or by all of the table."""
    return int(
        conn.execute(
            text(
                "SELECT sum(pg_stat_get_xact_tuples_returned(oid)) FROM pg_class "
                "WHERE oid = 'ping'::regclass OR oid IN "
                "(SELECT indexrelid FROM pg_index WHERE indrelid = 'ping'::regclass)"
            )
        ).scalar_one()
    )
