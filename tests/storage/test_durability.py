"""Acknowledged changes are in the database, however the process ends."""

from __future__ import annotations

import sys

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorProcess
from twisted.internet.protocol import ProcessProtocol
from twisted.trial.unittest import TestCase

from rsscloud_broker.storage import open_database
from rsscloud_broker.storage.pings import pings
from tests.storage.databases import file_database

# A process that adds pings without end, several at a time, and prints the name of each on a line
# when the store has acknowledged it.
CHILD = """
import sys
from twisted.internet import reactor
from rsscloud_broker.model import Ping
from rsscloud_broker.storage import Store

store = Store(reactor, sys.argv[1])

def add(number):
    ping = Ping(str(number), "http://site.example/", float(number))
    store.add_ping(ping, 60).addCallback(acknowledged, number)

def acknowledged(record, number):
    print(record.ping.name, flush=True)
    add(number + 10)

store.startService()
for number in range(10):
    reactor.callWhenRunning(add, number)
reactor.run()
"""


class Victim(ProcessProtocol):
    """Reads names from a process, kills the process after enough of them, and reads the rest."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.output = b""
        self.errors = b""
        self.ended: Deferred[list[str]] = Deferred()

    def outReceived(self, data: bytes) -> None:
        self.output += data
        if self.output.count(b"\n") >= self.enough and self.transport is not None:
            self.transport.signalProcess("KILL")
            self.enough = sys.maxsize

    def errReceived(self, data: bytes) -> None:
        self.errors += data

    def processEnded(self, reason: object) -> None:
        whole_lines = self.output[: self.output.rfind(b"\n") + 1]
        self.ended.callback(whole_lines.decode().splitlines())


class DurabilityTests(TestCase):
    async def test_acknowledged_pings_survive_a_kill(self) -> None:
        url = file_database(self)
        victim = Victim(enough=100)
        IReactorProcess(reactor).spawnProcess(
            victim,
            sys.executable,
            [sys.executable, "-c", CHILD, url],
            env={"PYTHONPATH": ":".join(sys.path)},
        )
        acknowledged = await victim.ended
        self.assertGreaterEqual(len(acknowledged), 100, victim.errors)
        with open_database(url, writes=False) as conn:
            stored = {ping.name for ping in pings(conn, 0, 1e9, None, 1_000_000)}
        self.assertEqual(set(acknowledged) - stored, set())
