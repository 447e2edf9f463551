"""What goes wrong around a broker: subscribers, its database, its disk, its files.

It goes on, says what it cannot do, recovers by itself, and loses nothing that
it acknowledged.
"""

from __future__ import annotations

import contextlib
import socket
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from resource import RLIMIT_FSIZE, RLIMIT_NOFILE, prlimit
from urllib.parse import urlsplit
from xmlrpc.client import dumps

from tests.e2e.fixture import (
    TIMEOUT,
    Answer,
    Broker,
    EndToEndTestCase,
    request,
    until,
)
from tests.e2e.many import (
    Babbling,
    Closing,
    Connection,
    Dripping,
    Flooding,
    ManyServers,
    Resetting,
    Silent,
    Subscriber,
)
from tests.e2e.publishing import subscribe_all
from tests.e2e.servers import HttpPostReceiver
from tests.name_server import NameServer

MEGABYTE = 1024 * 1024

#: Bytes of memory that subscribers may cost, whatever they answer.
MEMORY = 48 * MEGABYTE


def ping_site(broker: Broker, name: str, feed: str) -> Answer:
    """Ping as weblogs.com had it; nothing is fetched before the answer."""
    document = dumps((name, "http://site.example/", feed), "weblogUpdates.ping").encode()
    return request(f"{broker.url}/RPC2", "POST", document, {"content-type": "text/xml"})


def thanked(answer: Answer) -> bool:
    return "Thanks for the ping." in answer.text


class BadSubscribersTests(EndToEndTestCase):
    """Some subscribers are well, and there are more of those that are not."""

    BAD: tuple[type[Connection], ...] = (Silent, Dripping, Flooding, Babbling, Resetting, Closing)
    #: Of each bad kind.
    EACH = 8
    HEALTHY = 30

    def setUp(self) -> None:
        super().setUp()
        self.heard: dict[str, set[str]] = {}
        self.servers = ManyServers()
        self.servers.start()
        self.addCleanup(self.servers.stop)
        self.broker = self.own_broker()
        self.feeds = [self.origin().feed(path) for path in ("/a.xml", "/b.xml")]
        healthy = [self.servers.listen(f"127.0.1.{n}", self.well) for n in range(1, 11)]
        bad = [
            self.servers.listen(f"127.0.2.{number}", make)
            for number, make in enumerate(self.BAD, 1)
        ]
        for feed in self.feeds:
            self.heard[feed] = set()
            # The bad ones come first, as subscribers are notified in the order they came.
            callbacks = [f"{url}/{number}" for url in bad for number in range(self.EACH)]
            callbacks += [f"{healthy[n % 10]}/{n}" for n in range(self.HEALTHY)]
            subscribe_all(self.broker, feed, callbacks)
        self.broker.start()

    def well(self) -> Subscriber:
        return Subscriber(self.hear)

    def hear(self, callback: str, topic: str) -> int:
        self.heard[topic].add(callback)
        return 200

    def memory(self) -> int:
        """The most memory that the broker ever had, in bytes."""
        status = Path(f"/proc/{self.broker.pid}/status").read_text(encoding="utf-8")
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024

    def test_the_others_are_told_meanwhile(self) -> None:
        before = self.memory()
        for feed in self.feeds:
            self.assertTrue(thanked(self.broker.ping(feed)))
            until(
                lambda: len(self.heard[feed]) == self.HEALTHY,  # noqa: B023 # called at once
                "the healthy subscribers to be notified",
            )
            silent = "127.0.2.1"
            self.assertGreater(self.servers.connected[silent], 0, "none is silent any more")
        self.assertTrue(thanked(ping_site(self.broker, "A Site", self.feeds[0])))
        self.assertLess(self.memory() - before, MEMORY)

        self.broker.terminate()
        self.broker.ended()
        self.assertIn("Server Shut Down", self.broker.log)


class NameServerTests(EndToEndTestCase):
    HEALTHY, SILENT = 30, 500

    def setUp(self) -> None:
        super().setUp()
        self.heard: set[str] = set()
        self.servers = ManyServers()
        self.servers.start()
        self.addCleanup(self.servers.stop)
        port = urlsplit(self.servers.listen("127.0.1.1", lambda: Subscriber(self.hear))).port
        self.names = self.name_server()
        self.broker = self.own_broker(f'[egress]\nname_servers = ["{self.names.place}"]')
        self.feed = self.origin().feed("/a.xml")
        callbacks = [f"http://{n}.silent.example:{port}/" for n in range(self.SILENT)]
        callbacks += [f"http://{n}.well.example:{port}/{n}" for n in range(self.HEALTHY)]
        subscribe_all(self.broker, self.feed, callbacks)
        self.broker.start()

    def name_server(self, port: int = 0) -> NameServer:
        server = NameServer({"well.example": ["127.0.1.1"], "silent.example": None}, port)
        server.start()
        self.addCleanup(server.stop)
        return server

    def hear(self, callback: str, topic: str) -> int:
        self.heard.add(callback)
        return 200

    def test_some_names_have_no_answer(self) -> None:
        self.assertTrue(thanked(self.broker.ping(self.feed)))
        until(lambda: len(self.heard) == self.HEALTHY, "the healthy subscribers to be notified")
        self.assertNotIn("given up", self.broker.log)
        until(lambda: "no name server has answered" in self.broker.log, "the silent ones to fail")

    def test_no_name_server(self) -> None:
        self.names.stop()
        self.assertTrue(thanked(self.broker.ping(self.feed)))
        until(lambda: "no name server can be reached" in self.broker.log, "it to say so")
        self.assertNotIn("was not notified", self.broker.log)  # it is nobody's fault but ours
        self.name_server(self.names.port)
        until(lambda: len(self.heard) == self.HEALTHY, "the healthy subscribers to be notified")


class DatabaseTests(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.file = self.directory() / "other.sqlite"
        # The default is to wait longer for a lock.
        self.broker = self.own_broker(f'database = "sqlite:///{self.file}?timeout=0.5"')

    @contextmanager
    def locked(self) -> Iterator[None]:
        """As another process locks it that writes, and takes its time."""
        with closing(sqlite3.connect(self.file)) as connection:
            connection.isolation_level = None
            connection.execute("BEGIN EXCLUSIVE")
            yield
            connection.execute("ROLLBACK")

    def test_locked_for_a_while(self) -> None:
        broker, origin = self.broker, self.origin()
        feeds = [origin.feed(path) for path in ("/pinged.xml", "/walked.xml", "/later.xml")]
        broker.start()
        receivers = [self.served(HttpPostReceiver()) for _ in feeds]
        for receiver, feed in zip(receivers, feeds, strict=True):
            self.subscribed(broker, receiver, feed)
            origin.change(feed)
        # The first is acknowledged and not read yet, the second is being notified.
        origin.open.clear()
        self.assertTrue(thanked(ping_site(broker, "Before", feeds[0])))
        self.assertEqual(broker.log.count("cannot be used"), 0)
        with self.locked():
            origin.open.set()
            with ThreadPoolExecutor() as pool:
                pings = [
                    pool.submit(ping_site, broker, "Meanwhile", feeds[1]),
                    pool.submit(broker.ping, feeds[2]),
                ]
                for answer in (ping.result(TIMEOUT) for ping in pings):
                    self.assertEqual(answer.status, 503)
                    self.assertTrue(answer.headers["retry-after"].isdigit())
            self.assertEqual([receiver.heard for receiver in receivers], [[], [], []])
            self.assertEqual(request(f"{broker.url}/").status, 200)
        self.assertIn("the database cannot be used right now: ", broker.log)
        self.assert_told(receivers[0], feeds[0])
        self.assertTrue(thanked(ping_site(broker, "After", feeds[1])))
        self.assert_told(receivers[1], feeds[1])
        self.assertTrue(thanked(broker.ping(feeds[2])))
        self.assert_told(receivers[2], feeds[2])
        broker.restart()
        self.assert_listed(broker, {"name": "Before"}, {"name": "After"}, {"name": feeds[2]})

    def test_out_of_sight_for_a_while(self) -> None:
        broker, origin = self.broker, self.origin()
        feed, receiver = origin.feed(), self.served(HttpPostReceiver())
        broker.start()
        self.subscribed(broker, receiver, feed)
        origin.change(feed)
        origin.open.clear()
        reads = sum(origin.requests.values())
        self.assertTrue(thanked(ping_site(broker, "Before", feed)))
        until(lambda: sum(origin.requests.values()) > reads, "the feed to be read")
        # What was a directory is a file: neither that one is there nor that none is.
        directory, away = self.file.parent, self.file.parent.with_name("away")
        directory.rename(away)
        directory.touch()
        until(lambda: "was removed or replaced" in broker.log, "the broker to notice")
        origin.open.set()
        answer = ping_site(broker, "Meanwhile", feed)
        self.assertEqual(answer.status, 503)
        self.assertTrue(answer.headers["retry-after"].isdigit())
        until(lambda: f"Reading {feed} is put off" in broker.log, "a line in the log")
        directory.unlink()
        away.rename(directory)
        self.assert_told(receiver, feed)
        self.assertTrue(thanked(ping_site(broker, "After", "")))
        self.assertNotIn("Traceback", broker.log)

    def test_replaced(self) -> None:
        """A backup is put in its place, with the broker still running."""
        broker, backup = self.broker, self.file.with_name("backup")
        broker.start()
        self.assertTrue(thanked(ping_site(broker, "Before", "")))
        with closing(sqlite3.connect(self.file)) as one, closing(sqlite3.connect(backup)) as other:
            one.backup(other)
        self.assertTrue(thanked(ping_site(broker, "Lost", "")))
        backup.rename(self.file)
        until(lambda: ping_site(broker, "Meanwhile", "").status == 503, "the broker to notice")
        self.assertIn("was removed or replaced", broker.log)
        broker.stop()
        for ending in ("-wal", "-shm"):
            self.file.with_name(self.file.name + ending).unlink(missing_ok=True)
        broker.start()
        self.assertTrue(thanked(ping_site(broker, "After", "")))
        broker.restart()
        self.assert_listed(broker, {"name": "Before"}, {"name": "After"})
        self.assertNotIn("Lost", [record["name"] for record in broker.change_list()])


class LimitedTests(EndToEndTestCase):
    """The system gives the broker no more of something, and later does again."""

    def setUp(self) -> None:
        super().setUp()
        self.broker, self.origin_ = self.own_broker(), self.origin()
        self.feed = self.origin_.feed()
        self.broker.start()
        self.receiver = self.served(HttpPostReceiver())
        self.subscribed(self.broker, self.receiver, self.feed)

    @contextmanager
    def limited(self, resource: int, limit: int) -> Iterator[None]:
        """Set a limit of the broker's process, and set it back."""
        soft, hard = prlimit(self.broker.pid, resource)
        prlimit(self.broker.pid, resource, (limit, hard))
        try:
            yield
        finally:
            prlimit(self.broker.pid, resource, (soft, hard))

    def files(self) -> int:
        """The limit with which no file can be opened any more: the first number that is free."""
        taken = {int(path.name) for path in Path(f"/proc/{self.broker.pid}/fd").iterdir()}
        return min(set(range(len(taken) + 1)) - taken)

    def take_all(self) -> None:
        """Take the numbers that have become free since: connect until there is none left."""
        while True:
            taken = socket.create_connection(("127.0.0.1", self.broker.port), TIMEOUT)
            self.addCleanup(taken.close)
            taken.settimeout(0.5)
            with contextlib.suppress(TimeoutError):  # which says that it was accepted
                with contextlib.suppress(ConnectionResetError):
                    self.assertEqual(taken.recv(1), b"")
                return

    def ping_is_refused(self) -> bool:
        """Whether there is no connection, or none to read the feed with."""
        self.take_all()  # A parser that ends, or a connection that closes late, leaves numbers.
        try:
            return self.broker.ping(self.feed).status == 503
        except (OSError, HTTPException):
            return True

    def assert_goes_on(self) -> None:
        self.origin_.change(self.feed)
        self.assertTrue(thanked(self.broker.ping(self.feed)))
        self.assert_told(self.receiver, self.feed)

    def until_refused(self, ping: Callable[[int], Answer]) -> list[int]:
        """Ping until there is no room for it; the numbers of those that there was room for."""
        for number in count():
            answer = ping(number)
            if not thanked(answer):
                break
        self.assertEqual(answer.status, 503)
        self.assertTrue(answer.headers["retry-after"].isdigit())
        return list(range(number))

    def changed_and_pinged(self, number: int) -> Answer:
        self.origin_.change(self.feed)
        return self.broker.ping(self.feed)

    def test_full_disk(self) -> None:
        """Files cannot grow, which is to a broker what a full disk is."""
        files = self.broker.data.glob("broker.sqlite*")
        largest = max(len(self.broker.log), *(file.stat().st_size for file in files))
        with self.limited(RLIMIT_FSIZE, largest + 64 * 1024):
            acknowledged = self.until_refused(
                lambda number: ping_site(self.broker, str(number), "")
            )
            changes = self.until_refused(self.changed_and_pinged)
            self.assertIn("Look for a full disk", self.broker.log)
        if changes:
            self.assert_told(self.receiver, self.feed)
        self.assert_goes_on()
        self.broker.restart()
        self.assertTrue(acknowledged, "there was no room for anything")
        self.assert_listed(self.broker, *({"name": str(number)} for number in acknowledged))
        listed = [record["name"] for record in self.broker.change_list()]
        self.assertEqual(listed.count(self.feed), len(changes) + 1)

    def test_no_more_file_descriptors(self) -> None:
        self.origin_.change(self.feed)
        connection = HTTPConnection("127.0.0.1", self.broker.port, timeout=TIMEOUT)
        self.addCleanup(connection.close)
        connection.request("GET", "/")
        connection.getresponse().read()
        before = len(self.broker.log)
        with self.limited(RLIMIT_NOFILE, self.files()):
            until(self.ping_is_refused, "a ping to be refused")
            # A connection that there is already is still served.
            numbers = count()

            def logged() -> bool:
                # A connection that closes late leaves a number with which the feed can be
                # read after all: the next time there is none.
                self.take_all()
                site = (f"Site {next(numbers)}", "http://site.example/", self.feed)
                document = dumps(site, "weblogUpdates.ping")
                connection.request("POST", "/RPC2", document, {"content-type": "text/xml"})
                self.assertIn(b"Thanks for the ping.", connection.getresponse().read())
                return self.feed in self.broker.log[before:]

            until(logged, "a line in the log")
        self.assert_told(self.receiver, self.feed)
        self.assert_goes_on()
        self.broker.restart()
        self.assert_listed(self.broker, *({"name": f"Site {n}"} for n in range(next(numbers))))

    def test_no_more_file_descriptors_while_subscribers_are_told(self) -> None:
        told: set[str] = set()

        def hear(callback: str, topic: str) -> int:
            told.add(callback)
            return 200

        servers = ManyServers()
        servers.start()
        self.addCleanup(servers.stop)
        url = servers.listen("127.0.1.1", lambda: Subscriber(hear))
        # All on one host: that we cannot call it now is not its fault.
        subscribe_all(self.broker, self.feed, [f"{url}/notify{n}" for n in range(10)])
        self.origin_.open.clear()
        self.origin_.change(self.feed)
        reads = sum(self.origin_.requests.values())
        self.assertTrue(thanked(ping_site(self.broker, "A Site", self.feed)))
        until(lambda: sum(self.origin_.requests.values()) > reads, "the feed to be read")
        before = len(self.broker.log)
        with self.limited(RLIMIT_NOFILE, self.files()):
            self.take_all()
            self.origin_.open.set()
            until(lambda: "no connection can be made" in self.broker.log[before:], "a line")
        until(lambda: len(told) == 10, "everybody to be notified")
