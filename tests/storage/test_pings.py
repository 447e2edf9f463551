"""Several pings are recorded together."""

from __future__ import annotations

import json

from attrs import evolve
from sqlalchemy import select
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import Ping
from rsscloud_broker.storage import open_database
from rsscloud_broker.storage import pings as operations
from rsscloud_broker.storage.schema import ping
from tests.storage.databases import file_database

PING = Ping(name="A", url="http://a.example/", received_at=1000.0)


class GroupTests(SynchronousTestCase):
    def test_each_gets_the_id_of_its_row(self) -> None:
        """However many pings there are, and however similar."""
        url = file_database(self)
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

    def test_fingerprints_stay_as_they_are(self) -> None:
        """A later version compares its fingerprints with those in the database."""
        record = evolve(PING, name='Caf\u00e9 "\U0001f600"\n', rss_url="http://a.example/rss")
        self.assertEqual(operations.fingerprint(record).hex(), "cdeb27525bf39b1d37f4e5157396b251")
