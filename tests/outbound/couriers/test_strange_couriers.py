"""Couriers and brokers that send each other what they should not, or nothing."""

from __future__ import annotations

import os
import socket
from subprocess import Popen

from attrs import evolve
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import TestCase

from rsscloud_broker.errors import Interrupted, Unavailable
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.outbound.couriers import courier as module
from rsscloud_broker.outbound.couriers.messages import (
    Alive,
    Answered,
    Beat,
    Failed,
    Forget,
    Networks,
    Said,
    Setup,
)
from rsscloud_broker.outbound.couriers.spawning import megabytes
from tests.outbound.couriers.fixture import COURIER, LIMITS, REACTOR, StrangeProgramTestCase, until
from tests.outbound.couriers.test_link import framed


class StrangeProgramTests(StrangeProgramTestCase):
    """What a courier sends in which something else runs ends it, and not the broker."""

    async def test_garbage(self) -> None:
        """Also a frame that is longer than any content, and what only the broker sends."""
        longest = self.crew._limits().frame
        self.assertLess(longest, 8 * 1024 * 1024)  # by default, five of them are for a content
        for sent, expected in (
            (b"GET / HTTP/1.1", "a frame of 1,195,725,856"),
            (b"\0\0\0\3abc", "cannot be read"),
            ((longest + 1).to_bytes(4, "big"), f"{longest + 1:,} bytes; {longest:,} are"),
            (framed(Forget(1)), "cannot be read"),
        ):
            courier = self.with_program(f"s.sendall({sent!r}); time.sleep(60)")
            with capturedLogs() as events:
                courier.start()
                await self.assertFailure(self.request(), Unavailable)
                await self.until_ended()
            said = " ".join(filter(None, map(formatEvent, events)))
            self.assertIn(expected, said)
            self.assertIn("it is replaced, and the 1 requests", said)

    async def test_what_nobody_asked_for(self) -> None:
        """Answers to other requests change nothing, and long lines are cut."""
        others = Answered(99, OutboundReply(200, {}, b"", "")), Failed(98, "Nonsense", "")
        sent = framed(*others, Said("x" * 10**6))
        courier = self.with_program(
            f"s.sendall({sent[: -(10**6)]!r} + b'x' * 10**6); time.sleep(60)"
        )
        with capturedLogs() as events:
            courier.start()
            answer = self.request().addErrback(lambda failure: failure.trap(Unavailable))
            await until(lambda: events)
        self.assertNoResult(answer)
        self.assertEqual(formatEvent(events[0]), f"Courier 0: {'x' * 1000}")

    async def test_answers_nothing_but_beats(self) -> None:
        """It is replaced when a request has waited for too many beats, and not before."""
        sent = framed(Alive(0))
        courier = self.with_program(f"[s.sendall({sent!r}) for _ in iter(lambda: s.recv(99), b'')]")
        courier._limits = lambda: evolve(LIMITS, answer=10 * module.BEAT)
        with capturedLogs() as events:
            courier.start()
            answer = self.request()
            for _ in range(10):
                self.clock.advance(module.BEAT)
                await until(lambda: not courier._unanswered)
            self.assertNoResult(answer)
            self.clock.advance(module.BEAT)
            await self.assertFailure(answer, Interrupted)
        self.assertIn("did not answer a request", str(formatEvent(events[0])))

    async def test_says_too_much(self) -> None:
        """The log has a few lines of it in each beat, without control characters."""
        sent = framed(*[Said("\x1b[2Jone\ntwo")] * 1000, Alive(7))
        courier = self.with_program(f"s.sendall({sent!r}); time.sleep(60)")
        with capturedLogs() as events:
            courier.start()
            await until(lambda: courier.idle == 7)
        lines = [formatEvent(event) for event in events if "said" in event]
        self.assertEqual(lines[:-1], ["Courier 0: [2Jone two"] * (module.MAX_LINES - 1))
        self.assertIn("left out", str(lines[-1]))

    async def test_closes_the_connection_and_lives_on(self) -> None:
        courier = self.with_program("s.close(); time.sleep(60)")
        courier.start()
        pid = courier._process.pid
        await self.assertFailure(self.request(), Unavailable)
        await self.until_ended()
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    async def test_ends_in_the_middle_of_a_frame(self) -> None:
        courier = self.with_program("s.sendall(b'\\0\\0\\1\\0abc')")
        courier.start()
        await self.assertFailure(self.request(), Unavailable)

    async def test_first_sign_of_life(self) -> None:
        """A process that starts slowly has more time than one that has been at work."""
        courier = self.with_program("time.sleep(60)")
        courier.start()
        answer = self.request()
        for _ in range(int(LIMITS.first_sign)):
            self.clock.advance(module.BEAT)
        self.assertNoResult(answer)
        self.clock.advance(module.BEAT)
        await self.assertFailure(answer, Unavailable)

    async def test_full_pipe(self) -> None:
        """What a courier does not read stays with those who send it, and is not copied."""
        courier = self.with_program("time.sleep(60)")
        courier.start()
        bodies = [bytes([number]) * 2 * 1024 * 1024 for number in range(40)]
        before = megabytes(os.getpid())
        answers = [self.request(method="POST", body=body) for body in bodies]
        await deferLater(REACTOR, 0)
        self.assertLess(megabytes(os.getpid()) - before, 20)  # and not the 80 of the bodies
        await courier.stop()
        for answer in answers:
            await self.assertFailure(answer, Unavailable)


class GarbledBatchTests(TestCase):
    """A courier that gets something strange: it ends by itself, or fails this call alone."""

    timeout = 120

    def sent_to_a_courier(self, data: bytes) -> bytes:
        """Send something to a courier, and read what it sends until its end."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                number = theirs.fileno()
                process = Popen([*COURIER, str(number)], pass_fds=[number])
            self.addCleanup(process.kill)
            ours.sendall(data)
            ours.settimeout(self.timeout)
            answers = b"".join(iter(lambda: ours.recv(65_536), b""))
            self.assertEqual(process.wait(self.timeout), 0)
        return answers

    def test_garbage(self) -> None:
        for garbage in (b"\0\0\0\1\xc1", b"GET / HTTP/1.1\r\n\r\n"):
            self.assertEqual(self.sent_to_a_courier(garbage), b"")

    def test_rules_that_cannot_be_followed(self) -> None:
        """Without them, the courier might call what it must not."""
        setup = Setup("tests/1.0", [], [], 15.0, 65_536)
        answers = self.sent_to_a_courier(framed(setup, Networks(["no network"]), Beat()))
        self.assertIn(b"Networks failed, so it ends: ValueError", answers)
        self.assertNotIn(b"Alive", answers)
