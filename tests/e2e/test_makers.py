"""Several brokers, one PostgreSQL: all serve the same files for crawlers."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

from sqlalchemy import func, select

from rsscloud_broker.model import Ping
from rsscloud_broker.storage import migrate, open_database
from rsscloud_broker.storage.pings import insert_pings
from rsscloud_broker.storage.schema import node
from rsscloud_broker.storage.shared_schema import document, job
from rsscloud_broker.wire.change_list import archive_path
from rsscloud_broker.wire.units import HOUR
from tests.e2e.fixture import (
    Answer,
    Broker,
    EndToEndTestCase,
    request,
    until,
)
from tests.postgresql import empty_database

CONFIGURATION = 'database = "{}"\n'

#: So many hours have pings, and so many pings each; they take a node some seconds.
HOURS, PINGS = 24, 2000

LISTS = ("/changes.xml", "/shortChanges.xml")
VALIDATORS = ("etag", "last-modified", "content-length")


class Node(Broker):
    """One of several brokers on one database."""

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory, CONFIGURATION.format(url))
        self._url = url

    @property
    def database(self) -> str:
        return self._url

    def read(self, path: str, **headers: str) -> Answer:
        """What it serves at a path."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return request(self.url + path, headers=named)


class MakersTests(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.url = empty_database()

    def fill(self) -> None:
        """Fill the database with the pings of some hours."""
        migrate(self.url)
        this_hour = int(time.time() // HOUR)
        self.hours = range(this_hour - HOURS, this_hour)
        self.archives = ["/" + "/".join(archive_path(hour)) for hour in self.hours]
        with open_database(self.url) as connection:
            for hour in self.hours:
                times = (hour * HOUR + number * HOUR / PINGS for number in range(PINGS))
                insert_pings(
                    connection, [Ping("A Site", f"http://site.example/{at}", at) for at in times]
                )

    def node(self) -> Node:
        """Start a broker with a data directory of its own."""
        one = Node(self.directory(), self.url)
        self.addCleanup(one.end)
        one.start()
        self._marks[one] = 0
        return one

    def stored(self) -> set[str]:
        """The documents in the database."""
        with open_database(self.url, writes=False) as connection:
            return set(
                connection.execute(select(document.c.name).where(document.c.whole)).scalars()
            )

    def claimant(self, name: str) -> int:
        """The process id of the node that has claimed a job; 0 if none has."""
        with open_database(self.url, writes=False) as connection:
            found = connection.execute(
                select(node.c.name).join(job, job.c.node_id == node.c.id).where(job.c.name == name)
            ).scalar()
        return int(found.split()[-1]) if found else 0

    def are_same(self, one: Node, other: Node, path: str) -> bool:
        """Whether two nodes have made the same list; they may be at it at this moment."""
        both = [each.read(path) for each in (one, other)]
        made = [[each.body, *map(each.headers.get, VALIDATORS)] for each in both]
        return both[0].status == 200 and made[0] == made[1]

    def same(self, one: Node, other: Node, path: str) -> None:
        """Check that two nodes serve the same at a path, plain and gzipped."""
        for coding in ("identity", "gzip"):
            both = [each.read(path, accept_encoding=coding) for each in (one, other)]
            self.assertEqual([answer.status for answer in both], [200, 200], path)
            self.assertEqual(both[0].body, both[1].body, path)
            for name in VALIDATORS:
                self.assertEqual(both[0].headers[name], both[1].headers[name], path)
            again = other.read(path, accept_encoding=coding, if_none_match=both[0].headers["etag"])
            self.assertEqual(again.status, 304)

    def test_no_hour_is_missed_if_the_maker_dies(self) -> None:
        self.fill()
        nodes = [self.node(), self.node()]
        until(lambda: len(self.stored() & {*self.archives}) > 2, "some archives to be made")
        maker = until(lambda: self.claimant("archive"), "a maker")
        (killed,) = [one for one in nodes if one.pid == maker]
        killed.kill()
        before = len(self.stored() & {*self.archives})
        self.assertLess(before, HOURS, "it was killed too late")
        (left,) = [one for one in nodes if one is not killed]
        until(lambda: self.stored() >= {*self.archives}, "all files to be made")
        until(lambda: self.claimant("archive") == 0, "the job to be done")
        joined = self.node()
        for path in (*self.archives[:3], self.archives[-1]):
            answer = left.read(path)
            self.assertIn(f"<!-- records: {PINGS} -->".encode(), answer.body)
            self.same(left, joined, path)
        listed = until(lambda: self.files(joined) >= {*self.archives}, "all archives to be copied")
        self.assertTrue(listed)
        for path in LISTS:
            until(lambda: self.are_same(left, joined, path), f"the same {path}")  # noqa: B023
        killed.start()
        for path in (*self.archives, "/resourcesync/resourcelist.xml"):
            self.same(joined, killed, path)
        # A list that a node stores at this moment is not whole either, so wait for it.
        until(lambda: self.unfinished() == 0, "no document to be left unfinished")

    def unfinished(self) -> int:
        """How many documents in the database are not whole."""
        found = select(func.count()).select_from(document).where(~document.c.whole)
        with open_database(self.url, writes=False) as connection:
            return int(connection.execute(found).scalar_one())

    def files(self, one: Node) -> set[str]:
        """The archives on the disk of a node, whole and with their twins."""
        public = one.data / "public"
        return {
            f"/{file.relative_to(public)}"
            for file in public.glob("20*/*/*/*.xml")
            if gzip.decompress(Path(f"{file}.gz").read_bytes()) == file.read_bytes()
        }
