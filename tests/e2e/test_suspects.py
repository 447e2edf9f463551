"""Work that ends the broker is given up, and costs nobody else anything."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable
from itertools import count
from threading import Lock
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

from sqlalchemy import func, select

from rsscloud_broker.storage import open_database
from rsscloud_broker.storage.schema import (
    pending,
    topic,
)
from rsscloud_broker.storage.shared_schema import suspect
from tests.e2e.fixture import Broker, EndToEndTestCase, until
from tests.e2e.publishing import by_weblog_updates, subscribe_all
from tests.e2e.servers import FEED, Handler, Server, http_server

#: How often something may end the broker.
TIMES = 3

DEADLY = "/deadly"


class World(Server):
    """Serves feeds and hears notifications.  Whatever has ``/deadly`` in its path ends the broker.

    :ivar heard: how often each path was called.
    :ivar kills: how often that was.
    :ivar end: ends the broker, or has it stand still.
    """

    def __init__(self) -> None:
        super().__init__(http_server(_WorldHandler, self))
        self.heard: Counter[str] = Counter()
        self.kills = 0
        self.versions = count()
        self.end: Callable[[], object] | None = None
        self._lock = Lock()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def called(self, path: str) -> None:
        with self._lock:
            self.heard[path] += 1
            if DEADLY in path and self.end is not None:
                self.kills += 1
                with contextlib.suppress(ProcessLookupError):
                    self.end()


class _WorldHandler(Handler):
    owner: ClassVar[World]

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.owner.called(parts.path)
        challenge = parse_qs(parts.query).get("hub.challenge")
        item = b"<item><title>%d</title></item>" % next(self.owner.versions)
        self.answer(200, challenge[0].encode() if challenge else FEED % item)

    def do_POST(self) -> None:
        self.body()
        self.owner.called(urlsplit(self.path).path)
        self.owner.open.wait()
        self.answer(200)


class Mortal(Broker):
    """A broker that may end before it answers anything."""

    def live(self, settled: Callable[[], bool], what: str) -> bool:
        """Run until something is settled, or the broker has ended; whether it has not."""
        if not self.running:
            self._spawn(0.0)
        until(lambda: not self.running or settled(), f"{what}, or the broker to end")
        return self.running


class SuspectTests(EndToEndTestCase):
    """A broker, and what ends it."""

    def setUp(self) -> None:
        super().setUp()
        self.world = self.served(World())
        self.broker = Mortal(self.directory())
        self.with_log(self.broker)
        self.addCleanup(self.broker.end)
        self.world.end = lambda: os.kill(self.broker.pid, signal.SIGKILL)
        self.feed = self.world.url("/feed.xml")

    def rows(self, table: object) -> int:
        with open_database(self.broker.database, writes=False) as connection:
            return connection.execute(select(func.count()).select_from(table)).scalar_one()  # type: ignore[arg-type]

    def until_settled(self, settled: Callable[[], bool], what: str) -> None:
        """Start the broker again and again, until something is settled."""
        while not self.broker.live(settled, what):
            self.assertLessEqual(self.world.kills, TIMES)

    def test_topic(self) -> None:
        deadly = self.world.url(f"{DEADLY}.xml")
        subscribe_all(self.broker, deadly, [self.world.url("/others/1")])
        self.broker.start()
        with contextlib.suppress(OSError):
            by_weblog_updates(self.broker, deadly, "A site")

        def settled() -> bool:
            with open_database(self.broker.database, writes=False) as connection:
                row = connection.execute(select(topic)).one()
            return (
                "has ended or stood still 3 times" in row.result and row.check_requested_at is None
            )

        self.until_settled(settled, "the topic to be given up")
        self.assertEqual(self.world.kills, TIMES)
        self.assertIn("A topic is given up", self.broker.log)

    def test_stop_makes_nothing_suspect(self) -> None:
        self.world.end = None
        subscribe_all(self.broker, self.feed, [self.world.url(DEADLY)])
        self.broker.start()
        self.broker.ping(self.feed)
        until(lambda: self.world.heard[DEADLY], "the first notification")
        self.world.open.clear()
        self.broker.ping(self.feed)
        until(lambda: self.world.heard[DEADLY] > 1, "a notification that takes long")
        self.broker.stop()
        self.assertEqual(self.rows(suspect), 0)
        self.world.open.set()
        self.broker.start()
        until(lambda: self.rows(pending) == 0, "the notification to be over")
        self.assertEqual(self.rows(suspect), 0)
