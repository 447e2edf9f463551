"""What goes wrong around a broker: its database, its disk, its files.

It says what it cannot do, goes on when it can again, and loses nothing that it acknowledged.
"""

from __future__ import annotations

import contextlib
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from resource import RLIMIT_FSIZE, RLIMIT_NOFILE, prlimit

from tests.e2e.every_protocol import HOME, PLAIN, Call, xmlrpc
from tests.e2e.fixture import TIMEOUT, EndToEndTestCase, until
from tests.e2e.servers import HttpPostReceiver


def ping_of_site(name: str, feed: str = "") -> Call:
    """A ping as weblogs.com had it; nothing is fetched before the answer."""
    return xmlrpc("weblogUpdates.ping", name, HOME, feed)


class DatabaseTests(EndToEndTestCase):
    def test_replaced(self) -> None:
        """A backup is put in its place, with the broker still running."""
        file = self.directory() / "other.sqlite"
        broker = self.own_broker(f'database = "sqlite:///{file}"')
        backup = file.with_name("backup")
        broker.start()
        self.assertTrue(ping_of_site("Before").ask(broker.port).accepted)
        with closing(sqlite3.connect(file)) as one, closing(sqlite3.connect(backup)) as other:
            one.backup(other)
        self.assertTrue(ping_of_site("Lost").ask(broker.port).accepted)
        backup.rename(file)
        meanwhile = ping_of_site("Meanwhile")
        until(lambda: meanwhile.ask(broker.port).status == 503, "the broker to notice")
        self.assertIn("was removed or replaced", broker.log)
        broker.stop()
        for ending in ("-wal", "-shm"):
            file.with_name(file.name + ending).unlink(missing_ok=True)
        broker.start()
        self.assertTrue(ping_of_site("After").ask(broker.port).accepted)
        broker.restart()
        self.assert_listed(broker, {"name": "Before"}, {"name": "After"})
        self.assertNotIn("Lost", [record["name"] for record in broker.change_list()])


class LimitedTests(EndToEndTestCase):
    """The system gives the broker no more of something, and later does again."""

    def setUp(self) -> None:
        super().setUp()
        self.broker, self.origin_ = self.running_broker(), self.origin()
        self.feed = self.origin_.feed()
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
        self.assertIn("Thanks for the ping.", self.broker.ping(self.feed).text)
        self.assert_told(self.receiver, self.feed)

    def until_refused(self, ping: Callable[[str], Call]) -> list[str]:
        """Ping until there is no room for it; the names of those that there was room for."""
        for number in count():
            reply = ping(str(number)).ask(self.broker.port)
            if not reply.accepted:
                break
        self.assertTrue(reply.says_try_again, reply)
        return [*map(str, range(number))]

    def changed_and_pinged(self, name: str) -> Call:
        self.origin_.change(self.feed)
        return PLAIN["rssCloud by form"](self.feed, name)

    def test_full_disk(self) -> None:
        """Files cannot grow, which is to a broker what a full disk is."""
        files = self.broker.data.glob("broker.sqlite*")
        largest = max(len(self.broker.log), *(file.stat().st_size for file in files))
        with self.limited(RLIMIT_FSIZE, largest + 64 * 1024):
            acknowledged = self.until_refused(ping_of_site)
            changes = self.until_refused(self.changed_and_pinged)
            self.assertIn("Look for a full disk", self.broker.log)
        if changes:
            self.assert_told(self.receiver, self.feed)
        self.assert_goes_on()
        self.broker.restart()
        self.assertTrue(acknowledged, "there was no room for anything")
        self.assert_listed(self.broker, *({"name": name} for name in acknowledged))
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
                ping = ping_of_site(f"Site {next(numbers)}", self.feed)
                connection.request("POST", ping.path, ping.body, dict(ping.headers))
                self.assertIn(b"Thanks for the ping.", connection.getresponse().read())
                return self.feed in self.broker.log[before:]

            until(logged, "a line in the log")
        self.assert_told(self.receiver, self.feed)
        self.assert_goes_on()
        self.broker.restart()
        self.assert_listed(self.broker, *({"name": f"Site {n}"} for n in range(next(numbers))))
