"""The access log: the form of its lines, its files, and what is lost if they cannot be written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import Http
from rsscloud_broker.counters import Counters
from rsscloud_broker.http import access_log
from rsscloud_broker.http.access_log import AccessLog
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.site import Root
from rsscloud_broker.testing.clock import Clock
from tests.front_doors.exchange import connected
from tests.front_doors.fixture import NOON, PUBLIC_URL

#: The combined format, as programs that analyse logs read it.
COMBINED = re.compile(
    r"(\S+) (\S+) (\S+) \[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "
    r'"((?:[^"\\]|\\.)*)" (\d{3}) (\d+|-) "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"'
)

STRANGER = "203.0.113.9"


class AccessLogTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock(NOON)
        self.counters = Counters()
        self.path = Path(self.mktemp())
        self.held: list[Callable[[], None]] | None = None  # work of the thread, if it is to wait
        self.serve(str(self.path))

    def serve(self, path: str, http: Http | None = None) -> None:
        self.access = AccessLog(path, self.clock, self.in_thread, self.counters)
        self.access.startService()
        limits = HTTPLimits(http or Http(), self.clock)
        self.factory = bounded_site(
            Root([], PUBLIC_URL), limits, self.counters, access_log=self.access
        )

    def in_thread(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()

        def work() -> None:
            try:
                done.callback(function(*args))
            except Exception:
                done.errback()

        if self.held is None:
            work()
        else:
            self.held.append(work)
        return done

    def ask(
        self,
        target: bytes = b"/",
        headers: Mapping[bytes, bytes] | None = None,
        peer: str = STRANGER,
        method: bytes = b"GET",
    ) -> None:
        exchange = connected(self.factory, peer)
        named = {b"Host": b"b", **(headers or {})}
        lines = [b"%s %s HTTP/1.1" % (method, target)]
        lines += [b"%s: %s" % header for header in named.items()]
        exchange.send(b"\r\n".join([*lines, b"", b""]))

    def write(self) -> None:
        self.clock.advance(1.0)

    def logged(self, *args: Any, **kwargs: Any) -> None:
        """Send a request, and have its line written."""
        self.ask(*args, **kwargs)
        self.write()

    def lines(self, path: Path | None = None) -> list[str]:
        path = path or self.path
        return path.read_text("ascii").splitlines() if path.exists() else []

    def line(self, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        """The fields of the line of one request."""
        self.logged(*args, **kwargs)
        found = COMBINED.fullmatch(self.lines()[-1])
        assert found is not None, self.lines()[-1]
        return found.groups()

    def lost(self) -> float | None:
        name = "rsscloud_access_log_missing_lines_total"
        return self.counters.registry.get_sample_value(name)


class LineTests(AccessLogTestCase):
    def test_combined(self) -> None:
        headers = {b"Referer": b"https://site.example/page", b"User-Agent": b"Agent/1.0 (x; y)"}
        client, ident, user, time, asked, status, size, referrer, agent = self.line(
            b"/nowhere", headers
        )
        self.assertEqual((client, ident, user), (STRANGER, "-", "-"))
        self.assertEqual(time, "29/Sep/2026:12:00:00 +0000")
        self.assertEqual((asked, status), ("GET /nowhere HTTP/1.1", "404"))
        self.assertEqual(int(size), len("There is nothing at this address.\n"))
        self.assertEqual((referrer, agent), ("https://site.example/page", "Agent/1.0 (x; y)"))

    def test_without_headers_and_body(self) -> None:
        *_, size, referrer, agent = self.line(method=b"HEAD")
        self.assertEqual((size, referrer, agent), ("-", "-", "-"))

    def test_time_goes_on(self) -> None:
        self.clock.advance(61)
        self.assertEqual(self.line()[3], "29/Sep/2026:12:01:01 +0000")

    def test_queries_are_left_out(self) -> None:
        headers = {b"Referer": b"http://reader.example/?token=hidden"}
        self.line(b"/websub?hub.callback=http://r.example/?key=hidden", headers)
        self.assertNotIn("hidden", self.path.read_text())
        self.assertIn('"GET /websub HTTP/1.1"', self.path.read_text())
        self.assertIn('"http://reader.example/"', self.path.read_text())

    def test_nobody_can_forge_fields_or_lines(self) -> None:
        evil = b'a" 200 9 "-" "b\\ \x1b[31m\x7f\xe9'
        *_, agent = self.line(b"/%0a", {b"User-Agent": evil, b"Referer": b'"\t"'})
        self.assertEqual(agent, r"a\" 200 9 \"-\" \"b\\ \x1b[31m\x7f\xe9")
        self.assertEqual(len(self.lines()), 1)
        data = self.path.read_bytes()
        self.assertEqual([byte for byte in data[:-1] if not 0x20 <= byte < 0x7F], [])

    def test_fields_are_not_longer_than_they_may_be(self) -> None:
        *_, agent = self.line(headers={b"User-Agent": b"x" * 5000})
        self.assertEqual(len(agent), 1000)

    def test_the_client_behind_a_trusted_proxy(self) -> None:
        self.serve(str(self.path), Http(trusted_proxies=("127.0.0.1",)))
        found = self.line(headers={b"X-Forwarded-For": b"198.51.100.4"}, peer="127.0.0.1")
        self.assertEqual(found[0], "198.51.100.4")


class FileTests(AccessLogTestCase):
    def test_only_owner_and_group_may_read_it(self) -> None:
        self.line()
        self.assertEqual(self.path.stat().st_mode & 0o007, 0)

    def test_lines_are_written_together_and_added_to_what_is_there(self) -> None:
        self.path.write_text("before\n")
        for _ in range(3):
            self.ask()
        self.assertEqual(self.lines(), ["before"])
        self.write()
        self.assertEqual(len(self.lines()), 4)
        self.assertNotIn(self.access._timer, self.clock.getDelayedCalls())

    def test_none_by_default(self) -> None:
        self.serve("")
        self.ask()
        self.assertIsNone(self.access._timer)
        self.assertEqual(self.lines(), [])

    def test_a_file_that_was_renamed(self) -> None:
        self.line(b"/first")
        renamed = self.path.with_suffix(".1")
        self.path.rename(renamed)
        self.logged(b"/second")
        self.assertIn("/second", self.lines(renamed)[-1])  # until somebody says so
        self.access.reopen()
        self.assertTrue(self.path.exists())
        self.line(b"/third")
        self.assertEqual([len(self.lines(path)) for path in (renamed, self.path)], [2, 1])

    def test_another_file(self) -> None:
        self.line()
        other = Path(self.mktemp())
        self.access.change(str(other))
        self.logged(b"/other")
        self.assertIn("/other", self.lines(other)[0])
        self.access.change("")
        self.logged()
        self.assertEqual((len(self.lines()), len(self.lines(other))), (1, 1))

    def test_what_waits_is_written_at_the_end(self) -> None:
        self.ask()
        self.successResultOf(self.access.stopService())
        self.assertEqual(len(self.lines()), 1)
        self.assertIsNone(self.access._timer)

    def test_the_end_waits_for_the_thread(self) -> None:
        self.held = []
        self.logged(b"/first")
        self.ask(b"/second")
        stopped = self.access.stopService()
        self.assertNoResult(stopped)
        while self.held:
            self.held.pop(0)()
        self.successResultOf(stopped)
        self.assertEqual(len(self.lines()), 2)

    def test_stdout(self) -> None:
        """The process's own, even if Twisted has replaced ``sys.stdout``."""
        read, write = os.pipe()
        before = os.dup(1)
        os.dup2(write, 1)
        try:
            self.serve("-")
            self.logged(b"/to-stdout")
        finally:
            os.dup2(before, 1)
            for descriptor in (before, write):
                os.close(descriptor)
        with open(read, encoding="ascii") as pipe:
            self.assertIn('"GET /to-stdout HTTP/1.1"', pipe.read())


class LossTests(AccessLogTestCase):
    def test_a_file_that_cannot_be_written(self) -> None:
        """One line in the log of the broker, and one when the file is written again."""
        directory = self.path.parent / "later"
        self.serve(str(directory / "access.log"))
        with capturedLogs() as logs:
            for _ in range(3):
                self.logged()
        self.assertEqual([event["log_level"].name for event in logs], ["error"])
        self.assertEqual(self.lost(), 3)
        directory.mkdir()
        with capturedLogs() as logs:
            self.logged()
        self.assertEqual([event["log_level"].name for event in logs], ["info"])
        self.assertEqual(len(self.lines(directory / "access.log")), 1)
        self.assertEqual(self.lost(), 3)

    def test_a_disk_that_becomes_full_within_a_line(self) -> None:
        writes = os.write
        room = [20]

        def write(descriptor: int, data: memoryview) -> int:
            if not room[0]:
                raise OSError("No space left on device")
            size = writes(descriptor, data[: room[0]])
            room[0] -= size
            return size

        self.patch(os, "write", write)
        with capturedLogs():
            for target, more in ((b"/cut", 10_000), (b"/next", 0), (b"/last", 0)):
                self.logged(target)
                room[0] += more
        cut, following, last = self.lines()
        self.assertEqual(len(cut), 20)
        for line, path in ((following, "/next"), (last, "/last")):
            self.assertRegex(line, rf'\A{STRANGER} .*"GET {path} ')

    def test_a_disk_that_hangs(self) -> None:
        """What waits is bounded, and requests go on."""
        self.patch(access_log, "MAX_LINES", 10)
        self.held = []
        self.logged()
        for _ in range(15):
            self.logged()
        self.assertEqual((len(self.held), self.lost()), (1, 5))
        (work,) = self.held
        self.held = None
        work()
        self.write()
        self.assertEqual(len(self.lines()), 11)

    def test_portions_for_a_pipe(self) -> None:
        portions = access_log._join_lines(["x" * 10] * 5, 25)
        self.assertEqual([len(portion) for portion in portions], [22, 22, 11])

    def test_a_bug_is_not_the_end(self) -> None:
        self.patch(self.access, "_append", mock.Mock(side_effect=ZeroDivisionError))
        self.logged(b"/lost")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.lost(), 1)
        self.patch(self.access, "_append", partial(AccessLog._append, self.access))
        self.assertEqual(self.line(b"/kept")[4], "GET /kept HTTP/1.1")
        self.successResultOf(self.access.stopService())
