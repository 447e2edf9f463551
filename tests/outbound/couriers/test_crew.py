"""Tests a crew with real processes, which call real servers on loopback."""

from __future__ import annotations

import errno
import hmac
import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlencode

from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.logger import capturedLogs, formatEvent

from rsscloud_broker.errors import (
    AddressRefused,
    CallsUnavailable,
    Interrupted,
    OutboundError,
    OwnAddress,
    Unavailable,
)
from rsscloud_broker.interfaces import OutboundReply, OutboundRequest, Signing
from rsscloud_broker.model import Callback, Content, Notification, Outcome
from rsscloud_broker.model.administration import Block
from rsscloud_broker.outbound.couriers import courier as module
from rsscloud_broker.outbound.couriers.crew import Crew
from rsscloud_broker.outbound.couriers.messages import Call, Setup
from rsscloud_broker.outbound.couriers.spawning import COMMAND, megabytes
from rsscloud_broker.util.deferreds import BreakOff
from rsscloud_broker.wire.websub import sign
from tests.outbound.couriers.crashing import ANSWER
from tests.outbound.couriers.fixture import LIMITS, OWN_PORT, REACTOR, CrewTestCase, until
from tests.outbound.servers import page
from tests.processes import files_of


def out_of_memory_score(pid: int) -> int:
    """What the kernel adds to the memory of a process when it chooses one to end."""
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text(encoding="ascii"))


class RequestTests(CrewTestCase):
    async def test_request_and_answer(self) -> None:
        body, headers = b"\0\xff" * 10, {"content-type": "text/xml", "x-a": "é"}
        reply = await self.request(method="POST", headers=headers, body=body)
        self.assertEqual(
            (reply.status, reply.body, reply.url), (202, b"\xff\0 body", self.url + "/")
        )
        self.assertEqual(reply.headers["x-seen"], "1")
        (seen,) = self.callback.seen
        self.assertEqual((seen.method, seen.body), ("POST", body))
        self.assertEqual(seen.headers.getRawHeaders("user-agent"), ["tests/1.0"])
        self.assertEqual(seen.headers.getRawHeaders(b"x-a"), ["é".encode()])

    async def test_redirects(self) -> None:
        reply = await self.request("/away", redirects=1)
        self.assertEqual(reply.hops, ((302, f"{self.url}/here"),))
        self.assertEqual((await self.request("/away")).status, 302)

    async def test_courier_signs(self) -> None:
        """A content crosses once, and each request with its own secret."""
        sent = self.watch_sent()
        body = bytes(range(256)) * 100
        keys = [("sesame", "sha256"), ("sesamé", "sha1"), ("sesame", "sha512")]
        for secret, method in keys:
            await self.request(method="POST", body=body, signing=Signing(secret, method))
        await self.request(method="POST", body=body)
        self.assertEqual(
            [seen.headers.getRawHeaders("x-hub-signature") for seen in self.callback.seen],
            [
                [f"{method}={hmac.new(secret.encode(), body, method).hexdigest()}"]
                for secret, method in keys
            ]
            + [None],
        )
        self.assertEqual([seen.body for seen in self.callback.seen], [body] * 4)
        self.assertEqual([type(each).__name__ for each in sent].count("Body"), 1)
        calls = [each for each in sent if isinstance(each, Call)]
        self.assertEqual([bool(each.request.signing) for each in calls], [True, True, True, False])
        self.assertNotIn("sesam", repr(calls))

    async def test_text_that_cannot_be_sent(self) -> None:
        """It is an error of this request alone, which says no secret."""
        for request in (
            {"headers": {"x-a": "\ud800"}},
            {"method": "POST", "signing": Signing("sesame\ud800", "sha256")},
        ):
            with self.assertRaises(OutboundError) as raised:
                await self.request(**request)
            self.assertNotIn("sesame", str(raised.exception))
            self.assertEqual((await self.request()).status, 202)

    async def test_refused_addresses(self) -> None:
        for url, kind in (
            ("http://10.0.0.1/", AddressRefused),
            ("http://[::1]:8080/", AddressRefused),
            (f"http://127.0.0.1:{OWN_PORT}/", OwnAddress),
            ("http://127.0.0.1:9999/", OutboundError),
        ):
            with self.assertRaises(kind) as raised:
                await self.crew.request(OutboundRequest("GET", url))
        self.assertTrue(raised.exception.port_only)  # of the last, where nobody listens

    async def test_networks_and_blocked_hosts_change(self) -> None:
        spam = Block("host", "127.0.0.1", "spam", "alice", 0.0)
        for allowed, blocked, why in (
            ([], [], "is not public"),
            (["127.0.0.0/8"], [spam], "blocked here: spam"),
        ):
            self.crew.allow(allowed)
            self.crew.block(blocked)
            with self.assertRaises(AddressRefused) as raised:
                await self.request()
            self.assertIn(why, str(raised.exception))
        self.crew.block([])
        self.assertEqual((await self.request()).status, 202)

    async def test_body_that_the_courier_has_not(self) -> None:
        """It is an error of this request alone."""
        with mock.patch.object(self.courier._bodies, "send_once", lambda body, link: 4711):
            answer = self.request(method="POST", body=bytes(2000))
            await self.assertFailure(answer, Unavailable)
        self.assertEqual((await self.request(method="POST", body=bytes(2000))).status, 202)

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
        self.assertEqual(sorted(each._pending.last for each in self.crew.couriers), [0, 0, 12])


TOPIC = "http://feeds.example/rss.xml"


class NotifyTests(CrewTestCase):
    """Notifications, which the notifiers of a courier make."""

    def setUp(self) -> None:
        super().setUp()
        self.ends: list[Outcome | Exception] = []

    def begin(self, path: str = "/", protocol: str = "http-post", **more: Any) -> BreakOff:
        callback = Callback(self.url + path, protocol, "river.notify")
        return self.crew.notify(Notification(TOPIC, callback, **more), self.ends.append)

    async def until_over(self, count: int = 1) -> None:
        await until(lambda: len(self.ends) >= count)

    async def test_answer(self) -> None:
        self.begin()
        self.assertEqual(self.crew.under_way, 1)
        await self.until_over()
        self.assertEqual(self.ends, [Outcome(True)])
        (seen,) = self.callback.seen
        self.assertEqual((seen.method, seen.body), ("POST", urlencode({"url": TOPIC}).encode()))
        self.assertEqual(self.crew.under_way, 0)

    async def test_every_protocol(self) -> None:
        content = Content(b"x" * 5000, "text/xml", "<http://l.example/>")
        for protocol in ("http-post", "https-post", "xml-rpc", "soap", "websub"):
            options = {"secret": "s", "method": "sha1"} if protocol == "websub" else {}
            wanted = content if protocol == "websub" else None
            self.begin(protocol=protocol, options=options, content=wanted)
        await self.until_over(5)
        self.assertEqual(self.ends, [Outcome(True)] * 5)
        (seen,) = [seen for seen in self.callback.seen if seen.body == content.body]
        signed = seen.headers.getRawHeaders("X-Hub-Signature")
        self.assertEqual(signed, [sign(content.body, "s", "sha1")])

    async def test_content_that_the_courier_has_not(self) -> None:
        """It is put off, and not delivered without its content."""
        await self.request()
        with mock.patch.object(self.courier._bodies, "send_once", lambda body, link: 4711):
            self.begin(protocol="websub", content=Content(bytes(2000), "text/xml"))
            await self.until_over()
        self.assertIsInstance(self.ends[0], Unavailable)

    async def test_failure_has_its_facts(self) -> None:
        self.callback.answers["/gone"] = page(410)
        self.begin("/gone")
        await self.until_over()
        (outcome,) = self.ends
        assert isinstance(outcome, Outcome)
        self.assertTrue(outcome.gone)
        self.assertTrue(outcome.exchange)
        self.assertIn("410", outcome.reason)

    async def test_no_answer(self) -> None:
        callback = Callback("http://10.0.0.1/", "http-post")
        self.crew.notify(Notification(TOPIC, callback), self.ends.append)
        await self.until_over()
        (outcome,) = self.ends
        assert isinstance(outcome, Outcome)
        self.assertEqual((outcome.answered, outcome.refused), (False, True))

    async def test_protocol_that_couriers_do_not_know(self) -> None:
        self.begin(protocol="smoke")
        await self.until_over()
        self.assertIsInstance(self.ends[0], CallsUnavailable)

    async def test_broken_off(self) -> None:
        break_off = self.begin("/slow")
        gone = (await self.callback.asked).notifyFinish()
        break_off()
        break_off()
        (end,) = self.ends
        self.assertIsInstance(end, CancelledError)
        await self.assertFailure(gone, Exception)

    async def test_bug_of_one_keeps_no_other_waiting(self) -> None:
        def broken(outcome: Outcome | Exception) -> None:
            raise ZeroDivisionError

        await self.request()
        self.crew.notify(Notification(TOPIC, Callback(self.url, "http-post")), broken)
        self.begin()
        await self.until_over()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def test_while_the_courier_reads_slowly(self) -> None:
        """They wait until it reads again."""
        link = await self.full_link()
        self.begin()
        self.assertEqual(self.crew.under_way, 0)
        link.resumeProducing()
        await self.until_over()
        self.assertEqual(self.ends, [Outcome(True)])

    async def test_without_a_process(self) -> None:
        await self.crew.stopService()
        self.begin()
        self.assertIsInstance(self.ends[0], Unavailable)


class DeathTests(CrewTestCase):
    async def test_killed(self) -> None:
        """What was under way has failed; another process goes on with the same rules."""
        self.crew.allow(["127.0.0.0/8"])
        answer = self.request("/slow")
        await self.callback.asked
        self.courier.kill()
        await self.assertFailure(answer, Interrupted)
        self.assertEqual(self.crew.under_way, 0)
        await self.until_restarted()

    def freeze(self) -> None:
        """Have the courier hang, and let it be noticed."""
        os.kill(self.courier._process.pid, signal.SIGSTOP)
        for _ in range(int(LIMITS.silent) + 1):
            self.clock.advance(module.BEAT)

    async def hang(self) -> Deferred[OutboundReply]:
        """A request that was under way when the process hung, which has ended by now."""
        await self.request()
        slow = self.request("/slow")
        await self.callback.asked
        self.callback.asked = Deferred()
        self.freeze()
        await self.until_ended()
        return slow

    async def kill(self) -> None:
        """End the process, once it has started."""
        await self.request()
        self.courier.kill()
        await self.until_ended()

    async def test_hangs(self) -> None:
        """The next process gets at once what it had, and what it was sent and has not read."""
        await self.request()
        body = bytes(2000)  # crosses again: the next process has none
        slow = self.request("/slow", method="POST", body=body)
        await self.callback.asked
        self.callback.asked = Deferred()
        with capturedLogs() as events:
            os.kill(self.courier._process.pid, signal.SIGSTOP)
            unread, broken_off = self.request("/2", method="POST", body=body), self.request("/3")
            self.freeze()
            await self.until_ended()
        broken_off.addErrback(lambda _: None).cancel()
        self.assertEqual(self.crew.under_way, 2)
        self.clock.advance(module.FIRST_PAUSE)
        self.assertEqual((await unread).status, 202)
        (await self.callback.asked).finish()
        await slow
        paths = [seen.uri for seen in self.callback.seen]
        self.assertEqual([paths.count(path) for path in ("/slow", "/2", "/3")], [2, 1, 0])
        posted = [seen.body for seen in self.callback.seen if seen.method == "POST"]
        self.assertEqual(posted, [body] * 3)
        said = [str(line) for line in map(formatEvent, events) if "3 requests" in str(line)]
        self.assertEqual(len(said), 2)
        for line in said:
            self.assertRegex(line, "under way are handed to the next one.$")

    async def test_hangs_twice(self) -> None:
        """What two processes had at their end has failed."""
        slow = await self.hang()
        self.clock.advance(module.FIRST_PAUSE)
        await self.callback.asked
        self.freeze()
        await self.assertFailure(slow, Interrupted)

    async def test_hangs_while_the_system_is_full(self) -> None:
        """What no process can be started for is put off."""
        slow = await self.hang()
        full = OSError(errno.EAGAIN, "no process is left")
        with mock.patch.object(self.courier, "_spawn", side_effect=full):
            self.clock.advance(module.FIRST_PAUSE)
        await self.assertFailure(slow, Unavailable)
        await self.until_restarted()

    async def test_hangs_when_the_crew_stops(self) -> None:
        """Who waits for the next process is notified."""
        slow = await self.hang()
        stopping = self.crew.stopService()
        await self.assertFailure(slow, Unavailable)
        await stopping

    async def test_requests_wait_for_the_next_process(self) -> None:
        """Nothing is put off only because a courier is being started."""
        await self.kill()
        answers = [self.request(f"/{number}") for number in range(20)]
        self.assertEqual(self.crew.under_way, 20)
        answers[7].cancel()
        await self.assertFailure(answers.pop(7), CancelledError)
        self.assertEqual(self.crew.under_way, 19)
        self.clock.advance(module.FIRST_PAUSE)
        for answer in answers:
            self.assertEqual((await answer).status, 202)
        self.assertNotIn("/7", [seen.uri for seen in self.callback.seen])
        self.assertEqual(self.crew.under_way, 0)

    async def test_stopped_while_requests_wait(self) -> None:
        await self.kill()
        answer = self.request()
        await self.crew.stopService()
        await self.assertFailure(answer, Unavailable)

    async def test_the_broker_stood_still(self) -> None:
        """Then a courier is not to blame for answers that nobody has read."""
        await self.request()
        pid = self.courier._process.pid
        for _ in range(3):
            self.clock.advance(3 * LIMITS.silent)
        self.assertEqual((await self.request()).status, 202)
        self.assertEqual(self.courier._process.pid, pid)

    async def test_never_starts(self) -> None:
        os.kill(await self.pid(), signal.SIGSTOP)
        answer = self.request()
        for _ in range(int(LIMITS.first_sign) + 2):
            self.clock.advance(module.BEAT)
        await self.assertFailure(answer, Unavailable)

    async def test_lateness(self) -> None:
        """How long it took to answer a beat, until it has answered another one."""
        await self.request()
        self.assertEqual(self.crew.lateness, 0.0)
        os.kill(self.courier._process.pid, signal.SIGSTOP)
        self.clock.advance(module.BEAT)
        self.clock.advance(0.75)
        os.kill(self.courier._process.pid, signal.SIGCONT)
        await self.request()
        self.assertAlmostEqual(self.crew.lateness, 0.75, places=3)
        self.clock.advance(0.25)
        await self.request()
        self.assertAlmostEqual(self.crew.lateness, 0.0, places=3)

    async def test_beats_while_it_lives(self) -> None:
        """A courier that answers is not replaced, however long it has nothing to do."""
        pid = await self.pid()
        for _ in range(20):
            self.clock.advance(module.BEAT)
            await self.request()
        self.assertEqual(self.courier._process.pid, pid)

    async def test_uses_too_much_memory(self) -> None:
        """A courier that what it was sent has made too large is replaced; no other is."""
        await self.request()
        pid = self.courier._process.pid
        limits = evolve(LIMITS, megabytes=megabytes(pid) + 16)
        self.courier._limits = lambda: limits
        self.clock.advance(module.BEAT)
        await self.request()
        self.assertEqual(self.courier._process.pid, pid)
        for number in range(8):
            await self.request(method="POST", body=bytes([number]) * 4 * 1024 * 1024)
        self.clock.advance(module.BEAT)
        await self.until_restarted()
        self.assertNotEqual(self.courier._process.pid, pid)

    def test_many_calls_may_use_more_memory(self) -> None:
        setup = Setup("tests/1.0", [], [], 15.0, 65_536)
        for calls, more in ((0, 0), (6_200, 0), (31_000, 1_736)):
            crew = Crew(REACTOR, self.clock, self.forks, 1, setup, [], calls=calls)
            (courier,) = crew.couriers
            self.assertEqual(courier._limits().megabytes, LIMITS.megabytes + more)

    async def test_ends_again_and_again(self) -> None:
        """The pauses between its starts grow."""
        pauses = []
        for _ in range(4):
            await self.kill()
            again = self.courier._next_start
            assert again is not None
            pauses.append(again.getTime() - self.clock.seconds())
            self.clock.advance(pauses[-1] + 0.1)
        for earlier, later in pairwise(pauses):
            self.assertLess(abs(later - 2 * earlier), 0.1)

    async def test_no_room_for_a_process(self) -> None:
        """It is tried again, and meanwhile requests are put off."""
        await self.request()
        full = OSError(errno.EAGAIN, "no process is left")
        with mock.patch.object(self.courier, "_spawn", side_effect=full):
            self.courier.kill()
            await self.until_ended()
            answer = self.request()
            self.clock.advance(1)
            await self.assertFailure(answer, Unavailable)
        await self.until_restarted()

    async def test_bug_at_its_start_is_not_the_end(self) -> None:
        """Before there is a process, and after that."""
        for where, what in ((self.courier, "_spawn"), (REACTOR, "adoptStreamConnection")):
            await self.request()
            with mock.patch.object(where, what, side_effect=ZeroDivisionError):
                self.courier.kill()
                await self.until_ended()
                answer = self.request()
                self.clock.advance(module.FIRST_PAUSE)
                await self.assertFailure(answer, Unavailable)
                await self.until_ended()
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
            await self.until_restarted()
            self.clock.advance(10.0 + 1)

    async def test_no_room_for_its_connection(self) -> None:
        """The process that has no connection is ended, and another one is started later."""
        await self.kill()
        full = OSError(errno.EMFILE, "no descriptor is left")
        with mock.patch.object(REACTOR, "adoptStreamConnection", side_effect=full):
            answer = self.request()
            self.clock.advance(module.FIRST_PAUSE)
            process = self.courier._process
            await self.assertFailure(answer, Unavailable)
            self.assertIsNone(self.courier._link)
            await self.until_ended()
        self.assertRaises(ProcessExitedAlready, process.signalProcess, "KILL")
        await self.until_restarted()

    async def test_ends_while_requests_wait_for_room(self) -> None:
        """They go on with the next process."""
        for end in (lambda link: self.courier.kill(), lambda link: link.abort("it was a test")):
            link = await self.full_link()
            answers = [self.request(), self.request()]
            end(link)
            await self.until_ended()
            self.clock.advance(module.LONGEST_PAUSE)
            for answer in answers:
                self.assertEqual((await answer).status, 202)

    async def test_stopped(self) -> None:
        """When the crew has stopped, its processes have ended, and nothing is under way."""
        pid = await self.pid()
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
        named = files_of(courier._process.pid, "/")
        self.assertEqual([each for each in named if not each.startswith("/dev/")], [])
        self.assertEqual(os.readlink(process / "fd" / "1"), os.devnull)
        self.assertEqual(
            os.readlink(process / "fd" / "2"),
            os.readlink(f"/proc/self/fd/{courier._standard_error._ours}"),
        )
        self.assertEqual(os.readlink(process / "cwd"), "/")
        status = (process / "status").read_text(encoding="ascii")
        self.assertIn("NoNewPrivs:\t1\n", status)
        self.assertIn(f"CapEff:\t{'0' * 16}\n", status)
        self.assertIn(f"CapPrm:\t{'0' * 16}\n", status)

    async def test_ends_before_the_broker(self) -> None:
        """If the system has no memory left, it ends a courier first."""
        await self.request()
        ours, theirs = map(out_of_memory_score, (os.getpid(), self.courier._process.pid))
        self.assertLess(ours, theirs)

    async def test_signals_to_the_group(self) -> None:
        """It goes on until the broker has no more need of it, from its first moment on."""
        pid = await self.pid()
        for _ in range(2):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
                os.kill(pid, number)
            self.assertEqual((await self.request()).status, 202)
        self.assertEqual(self.courier._process.pid, pid)
        self.assertEqual(signal.pthread_sigmask(signal.SIG_BLOCK, ()), set())


class DeadlyAnswerTests(CrewTestCase):
    command = (*COMMAND[:-1], "tests.outbound.couriers.crashing")

    async def test_others_are_called(self) -> None:
        """A callback whose answer ends couriers fails each time; so does what is under way with it,
        and is notified the next time.
        """
        self.callback.answers["/deadly"] = page(202, ANSWER)
        for _ in range(2):
            self.callback.asked = Deferred()
            innocent = self.request("/slow")
            await self.callback.asked
            await self.assertFailure(self.request("/deadly"), Interrupted)
            await self.assertFailure(innocent, Interrupted)
            await self.until_restarted()


class WithoutUvloopTests(CrewTestCase):
    command = (
        *COMMAND[:2],
        "-c",
        "from rsscloud_broker.composition import courier; courier.uvloop_reactor.uvloop = None; "
        "courier.main()",
    )

    async def test_couriers_run_on_the_reactor_of_twisted(self) -> None:
        self.assertEqual((await self.request()).status, 202)
