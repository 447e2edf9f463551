"""Tests a crew with real processes, which call real servers on loopback."""

from __future__ import annotations

import errno
import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from rsscloud_broker.admin_records import Block
from rsscloud_broker.couriers import courier as module
from rsscloud_broker.couriers.crew import Crew
from rsscloud_broker.couriers.messages import Setup
from rsscloud_broker.errors import AddressRefused, OutboundError, OwnAddress, Unavailable
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.testing import Clock

_OWN_PORT = 5337

_reactor: Any = reactor


class Callback(Resource):
    """A callback: answers at once, or when the test says so.

    :ivar got: the method, the headers and the body of each request.
    :ivar asked: fires at the next request of ``/slow``, which is never answered.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.got: list[tuple[bytes, Request, bytes]] = []
        self.asked: Deferred[Request] = Deferred()

    def render(self, request: Request) -> Any:
        assert request.content is not None
        self.got.append((request.method, request, request.content.read()))
        if request.path == b"/slow":
            self.asked.callback(request)
            return NOT_DONE_YET
        if request.path == b"/away":
            request.redirect(b"/here")
            return b""
        request.setHeader(b"X-Seen", b"1")
        request.setResponseCode(202)
        return b"\xff\0 body"


class CrewTestCase(TestCase):
    """A crew of one courier whose timers the test moves, and a callback."""

    timeout = 60

    def setUp(self) -> None:
        self.clock = Clock()
        self.callback = Callback()
        port: Any = _reactor.listenTCP(0, Site(self.callback), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.url = f"http://127.0.0.1:{port.getHost().port}"
        self.crew = self.made()
        (self.courier,) = self.crew.couriers

    def made(self, processes: int = 1) -> Crew:
        """A crew that has started, and stops with the test."""
        setup = Setup("tests/1.0", [], [("127.0.0.1", _OWN_PORT)], 15.0, 65_536)
        crew = Crew(_reactor, self.clock, processes, setup, ["127.0.0.0/8"])
        crew.startService()
        self.addCleanup(lambda: crew.running and crew.stopService())
        return crew

    def request(self, path: str = "/", **more: Any) -> Deferred[OutboundReply]:
        return Deferred.fromCoroutine(
            self.crew.request(more.pop("method", "GET"), self.url + path, **more)
        )

    async def until_restarted(self) -> None:
        """Let the pause pass, and wait until the new process answers."""
        while True:
            self.clock.advance(1)
            try:
                await self.request()
            except Unavailable:
                await deferLater(_reactor, 0.01)  # it is not dead yet
            else:
                return


class RequestTests(CrewTestCase):
    async def test_request_and_answer(self) -> None:
        body, headers = b"\0\xff" * 10, {"content-type": "text/xml", "x-a": "é"}
        reply = await self.request(method="POST", headers=headers, body=body)
        self.assertEqual(
            (reply.status, reply.body, reply.url), (202, b"\xff\0 body", self.url + "/")
        )
        self.assertEqual(reply.headers["x-seen"], "1")
        ((method, got, sent),) = self.callback.got
        self.assertEqual((method, sent), (b"POST", body))
        self.assertEqual(got.getHeader("user-agent"), "tests/1.0")
        self.assertEqual(got.getHeader(b"x-a"), "é".encode())

    async def test_redirects(self) -> None:
        reply = await self.request("/away", redirects=1)
        self.assertEqual(reply.hops, ((302, f"{self.url}/here"),))
        self.assertEqual((await self.request("/away")).status, 302)

    async def test_large_body_crosses_once(self) -> None:
        """Other bodies and many requests between them change nothing."""
        sent: list[Any] = []
        link = self.courier._link
        assert link is not None
        original = link.send

        def send(message: Any, size: int = 0) -> None:
            sent.append(message)
            original(message, size)

        link.send = send  # type: ignore[method-assign]
        one, two = bytes(100_000), b"2" * 50_000
        for body in (one, two, one, b"small", one):
            await self.request(method="POST", body=body)
        self.assertEqual([got[2] for got in self.callback.got], [one, two, one, b"small", one])
        self.assertEqual([type(each).__name__ for each in sent].count("Body"), 2)

    async def test_bodies_are_forgotten(self) -> None:
        """The courier keeps a bounded number of them."""
        self.patch(module, "KEPT", 2)
        bodies = [bytes([number]) * 2000 for number in range(5)]
        for body in [*bodies, *bodies]:
            await self.request(method="POST", body=body)
        self.assertEqual([got[2] for got in self.callback.got], [*bodies, *bodies])
        self.assertEqual(len(self.courier._bodies), 2)
        self.assertEqual(self.courier._body_bytes, 4000)

    async def test_refused_addresses(self) -> None:
        for url, kind in (
            ("http://10.0.0.1/", AddressRefused),
            ("http://[::1]:8080/", AddressRefused),
            (f"http://127.0.0.1:{_OWN_PORT}/", OwnAddress),
        ):
            with self.assertRaises(kind):
                await self.crew.request("GET", url)

    async def test_no_connection(self) -> None:
        with self.assertRaises(OutboundError) as raised:
            await self.crew.request("GET", "http://127.0.0.1:9999/")
        self.assertTrue(raised.exception.port_only)

    async def test_networks_change(self) -> None:
        self.crew.allow([])
        with self.assertRaises(AddressRefused):
            await self.request()
        self.crew.allow(["127.0.0.0/8"])
        self.assertEqual((await self.request()).status, 202)

    async def test_blocked_hosts(self) -> None:
        self.crew.block([Block("host", "127.0.0.1", "spam", "alice", 0.0)])
        with self.assertRaises(AddressRefused) as raised:
            await self.request()
        self.assertIn("blocked here: spam", str(raised.exception))
        self.crew.block([])
        self.assertEqual((await self.request()).status, 202)

    async def test_text_that_cannot_be_sent(self) -> None:
        """It is an error of this request alone."""
        with self.assertRaises(OutboundError):
            await self.request(headers={"x-a": "\ud800"})
        self.assertEqual((await self.request()).status, 202)

    async def test_cancelled(self) -> None:
        """The courier breaks it off too."""
        answer = self.request("/slow")
        asked = await self.callback.asked
        gone = asked.notifyFinish()
        answer.addErrback(lambda _: None).cancel()
        await self.assertFailure(gone, Exception)
        self.assertEqual(self.crew.under_way, 0)

    async def test_counters(self) -> None:
        self.request("/slow").addErrback(lambda _: None)
        await self.callback.asked
        self.assertEqual(self.crew.under_way, 1)
        await self.request()
        self.clock.advance(module.BEAT)  # the courier is asked
        await self.request()
        self.assertEqual(self.crew.idle, 1)

    async def test_a_host_belongs_to_one_courier(self) -> None:
        self.crew = self.made(3)
        for number in range(12):
            await self.request(f"/{number}")
        self.assertEqual(sorted(each._last for each in self.crew.couriers), [0, 0, 12])


class DeathTests(CrewTestCase):
    async def test_killed(self) -> None:
        """What was under way is put off; another process goes on with the same rules."""
        self.crew.allow(["127.0.0.0/8"])
        answer = self.request("/slow")
        await self.callback.asked
        self.courier.kill()
        await self.assertFailure(answer, Unavailable)
        self.assertEqual(self.crew.under_way, 0)
        await self.until_restarted()

    async def test_hangs(self) -> None:
        await self.request()
        os.kill(self.courier._process.pid, signal.SIGSTOP)
        answer = self.request()
        for _ in range(int(module.SILENT) + 2):
            self.clock.advance(module.BEAT)
        await self.assertFailure(answer, Unavailable)
        await self.until_restarted()

    async def test_starts_slowly(self) -> None:
        """On a busy machine it may take long until it gives its first sign."""
        pid = self.courier._process.pid
        os.kill(pid, signal.SIGSTOP)
        answer = self.request()
        for _ in range(int(module.SILENT) + 2):
            self.clock.advance(module.BEAT)
        os.kill(pid, signal.SIGCONT)
        self.assertEqual((await answer).status, 202)
        self.assertEqual(self.courier._process.pid, pid)

    async def test_never_starts(self) -> None:
        os.kill(self.courier._process.pid, signal.SIGSTOP)
        answer = self.request()
        for _ in range(int(module.STARTING) + 2):
            self.clock.advance(module.BEAT)
        error = await self.assertFailure(answer, Unavailable)
        self.assertNotIsInstance(error, module.CourierEnded)

    async def test_beats_while_it_lives(self) -> None:
        """A courier that answers is not replaced, however long it has nothing to do."""
        pid = self.courier._process.pid
        for _ in range(20):
            self.clock.advance(module.BEAT)
            await self.request()
        self.assertEqual(self.courier._process.pid, pid)

    async def test_uses_too_much_memory(self) -> None:
        pid = self.courier._process.pid
        await self.request()
        with mock.patch.object(module, "MEMORY", 1):
            self.clock.advance(module.BEAT)
        await self.until_restarted()
        self.assertNotEqual(self.courier._process.pid, pid)

    async def test_garbage(self) -> None:
        """A frame that cannot be read ends the courier, and not the broker."""
        await self.request()
        link = self.courier._link
        assert link is not None
        link.stringReceived(b"\xc1")
        await self.until_restarted()

    async def test_ends_again_and_again(self) -> None:
        """The pauses between its starts grow."""
        pauses = []
        for _ in range(4):
            await self.request()
            self.courier.kill()
            while self.courier._again is None:
                await deferLater(_reactor, 0.01)
            again = self.courier._again
            pauses.append(again.getTime() - self.clock.seconds())
            self.clock.advance(pauses[-1] + 0.1)
        for earlier, later in pairwise(pauses):
            self.assertLess(abs(later - 2 * earlier), 0.1)

    async def test_no_room_for_a_process(self) -> None:
        """It is tried again, and meanwhile requests are put off."""
        await self.request()
        full = OSError(errno.EAGAIN, "no process is left")
        with mock.patch.object(_reactor, "spawnProcess", side_effect=full):
            self.courier.kill()
            while self.courier._again is None:
                await deferLater(_reactor, 0.01)
            self.clock.advance(1)
            await self.assertFailure(self.request(), Unavailable)
        await self.until_restarted()

    async def test_stopped(self) -> None:
        """When the crew has stopped, its processes have ended, and nothing is under way."""
        pid = self.courier._process.pid
        answer = self.request("/slow")
        await self.callback.asked
        stopping = self.crew.stopService()
        await self.assertFailure(answer, Unavailable)
        await stopping
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)
        await self.assertFailure(self.request(), Unavailable)

    async def test_stopped_while_it_hangs(self) -> None:
        await self.request()
        os.kill(self.courier._process.pid, signal.SIGSTOP)
        await self.crew.stopService()


class IsolationTests(CrewTestCase):
    async def test_what_a_courier_has(self) -> None:
        """None of the operator's environment, and no file but its end of the connection."""
        with mock.patch.dict(os.environ, {"DATABASE_PASSWORD": "sesame"}):
            self.crew = self.made()
        (courier,) = self.crew.couriers
        await self.request()
        process = Path(f"/proc/{courier._process.pid}")
        self.assertNotIn(b"sesame", (process / "environ").read_bytes())
        open_files = {os.readlink(each) for each in (process / "fd").iterdir()}
        named = {
            each for each in open_files if each.startswith("/") and not each.startswith("/dev/")
        }
        self.assertEqual(named - {os.readlink("/proc/self/fd/2")}, set())
        self.assertEqual(os.readlink(process / "cwd"), "/")
        self.assertIn("NoNewPrivs:\t1", (process / "status").read_text(encoding="ascii"))

    async def test_signals_to_the_group(self) -> None:
        """It goes on until the broker has no more need of it."""
        await self.request()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(self.courier._process.pid, number)
        self.assertEqual((await self.request()).status, 202)
