"""Several nodes cut the feeds of one database, and each ping and each change is there once."""

from __future__ import annotations

from itertools import chain
from typing import Any

from attrs import evolve
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime
from twisted.internet.task import deferLater
from twisted.python.filepath import FilePath
from twisted.trial.unittest import TestCase

from rsscloud_broker.apps.events import names, rows
from rsscloud_broker.apps.events.cutter import Cutter
from rsscloud_broker.apps.events.options import EventsOptions
from rsscloud_broker.database.threads import StoreThreads
from rsscloud_broker.model import Ping
from rsscloud_broker.model.work import Bounds, History
from rsscloud_broker.simplefeed import log
from rsscloud_broker.simplefeed.feeds import Archive
from rsscloud_broker.simplefeed.schema import TABLES
from rsscloud_broker.storage import Store, migrate
from rsscloud_broker.testing import front_door_parts
from rsscloud_broker.util.clock import SystemClock
from tests.postgresql import empty_database
from tests.store_contract.basics import a_fetch

PINGS, CHANGES = 300, 60


class Node:
    """A process on the database: its store and its cutter."""

    def __init__(self, case: TestCase, url: str) -> None:
        self.threads = StoreThreads(IReactorFromThreads(reactor))
        bounds = Bounds(history=History())
        self.store = Store(IReactorFromThreads(reactor), url, self.threads, bounds)
        self.store.startService()
        case.addCleanup(self.store.stopService)
        self.cutter = Cutter(
            EventsOptions(pings_days=0),
            front_door_parts(clock=SystemClock(IReactorTime(reactor))),
            self.store,
            self.threads,
            Archive(FilePath(case.mktemp())),
            lambda url: True,
            lambda names: None,
        )
        self.cutter.startService()
        case.addCleanup(self.cutter.stopService)


class NodesTests(TestCase):
    async def test_each_row_becomes_an_entry_once(self) -> None:
        self.patch(rows, "HOSTS_DAYS", 0.0)  # its entries are of 1970
        self.patch(names, "PER_DOCUMENT", 20)
        url = empty_database()
        migrate(url, {"simplefeed": TABLES})
        nodes = [Node(self, url) for _ in range(3)]
        work: list[Deferred[Any]] = []
        for number in range(PINGS):
            node = nodes[number % 3]
            ping = Ping(f"n{number}", f"http://{number}.example/", 1000.0 + number)
            work.append(node.store.add_ping(ping, 60.0))
            if number < CHANGES:
                topic = f"http://host{number % 4}.example/{number}"
                fetched = evolve(a_fetch(b"1", 1000.0 + number, topic))
                work.append(node.store.record_fetch(fetched, None))
        await gatherResults(work)
        pings = await self.entries(nodes[0], "pings", PINGS)
        self.assertEqual(sorted(pings), sorted(f"n{number}" for number in range(PINGS)))
        changes = await self.entries(nodes[0], "changes", CHANGES)
        self.assertEqual(len(set(changes)), CHANGES)
        of_hosts = [
            await self.entries(nodes[0], f"host:host{number}.example", CHANGES // 4)
            for number in range(4)
        ]
        self.assertEqual(sorted(chain.from_iterable(of_hosts)), sorted(changes))

    async def entries(self, node: Node, name: str, count: int) -> list[str]:
        """The titles of a log, when it has as many entries."""
        found = None
        while found is None or found.count < count:
            found = await node.threads.read(lambda conn: log.find_log(conn, name))
            await deferLater(IReactorTime(reactor), 0.1)
        rows = await node.threads.read(lambda conn: log.entries_after(conn, name, 0, 2 * count))
        assert rows is not None
        self.assertEqual([number for number, _ in rows], list(range(1, count + 1)))
        times = [entry.updated for _, entry in rows]
        self.assertEqual(times, sorted(times))
        return [entry.title for _, entry in rows]
