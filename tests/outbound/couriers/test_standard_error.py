"""Tests what the broker takes of the standard error of couriers, and what it does not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.outbound.couriers import courier as module
from rsscloud_broker.outbound.couriers.messages import Alive
from rsscloud_broker.outbound.couriers.spawning import StandardError
from tests.outbound.couriers.fixture import REACTOR, StrangeProgramTestCase, until
from tests.outbound.couriers.test_link import framed

#: Answers each beat, until the broker closes the connection.
ANSWER = f"[s.sendall({framed(Alive(7))!r}) for _ in iter(lambda: s.recv(99), b'')]"


class LinesTests(SynchronousTestCase):
    """What is notified of what a process has written."""

    def setUp(self) -> None:
        self.pipe = StandardError()
        self.addCleanup(self.pipe.close)

    def write(self, data: bytes) -> None:
        os.write(self.pipe.theirs, data)

    def test_a_few_lines(self) -> None:
        self.addCleanup(self.pipe.close_theirs)
        self.assertEqual(self.pipe.lines(), [])
        self.write(b"one\n\n  two \xff\r\nthree")
        self.assertEqual(self.pipe.lines(), ["one", "  two \N{REPLACEMENT CHARACTER}", "three"])
        self.assertEqual(self.pipe.lines(), [])

    def test_many_lines(self) -> None:
        """Their beginning and their end are notified, and fit into what the log has in a beat."""
        self.addCleanup(self.pipe.close_theirs)
        for count in (9, 10, 1000):
            self.write(b"".join(b"%d\n" % number for number in range(count)))
            lines = self.pipe.lines()
            self.assertEqual((lines[:3], len(lines)), (["0", "1", "2"], 9))
            self.assertEqual(lines[-5:], [str(number) for number in range(count - 5, count)])
        self.assertEqual(lines[3], "(992 lines are left out)")
        self.assertLess(len(lines), module.MAX_LINES)

    def test_nobody_waits(self) -> None:
        """Who writes while nobody reads loses what does not fit; a look reads a part of it."""
        self.addCleanup(self.pipe.close_theirs)
        with self.assertRaises(BlockingIOError):
            while True:
                self.write(b"x" * 4096)
        (line,) = self.pipe.lines()
        self.assertLessEqual(len(line), 64 * 1024)

    def test_closed_by_the_process(self) -> None:
        self.write(b"bye")
        self.pipe.close_theirs()
        self.assertEqual([self.pipe.lines() for _ in range(3)], [["bye"], [], []])


class CourierTests(StrangeProgramTestCase):
    """A courier that writes to its standard error, or closes it."""

    @contextmanager
    def logged(self) -> Iterator[list[str]]:
        """What couriers say meanwhile; it is there afterwards."""
        said: list[str] = []
        with capturedLogs() as events:
            yield said
        said += [str(formatEvent(event)) for event in events if "said" in event]

    async def beat(self) -> None:
        """Let a beat pass that the courier answers."""
        self.courier.idle = 0
        self.clock.advance(module.BEAT)
        await until(lambda: self.courier.idle == 7)

    async def started(self, program: str) -> None:
        """Start a courier with a program, and wait until it has answered."""
        self.with_program(program).start()
        await until(lambda: self.courier.idle == 7)

    async def test_last_words(self) -> None:
        """They are in the log of the broker, without control characters, before its end is."""
        with capturedLogs() as events:
            self.with_program("sys.exit('\\x1b[2J1 / 0')").start()
            await self.until_ended()
        lines = [str(formatEvent(event)) for event in events]
        self.assertEqual(lines[0], "Courier 0: [2J1 / 0")
        self.assertIn("has ended", lines[1])

    async def test_each_process_is_heard(self) -> None:
        """Also if none of them lives for a beat."""
        with self.logged() as said:
            self.with_command("/bin/sh", "-c", "seq 20 >&2").start()
            for _ in range(3):
                await self.until_ended()
                self.clock.advance(module.LONGEST_PAUSE)
            await self.until_ended()
        self.assertEqual(said.count("Courier 0: 20"), 4)

    async def test_flood(self) -> None:
        """It costs a few lines in each beat, and the courier is heard all the same."""
        flood = (
            "import threading; os.set_blocking(2, True);"
            "threading.Thread(target=lambda: [os.write(2, b'x' * 99 + b'\\n') for _ in iter(int, "
            "1)], daemon=True).start();"
        )
        await self.started(f"{flood} {ANSWER}")
        pid = self.courier._process.pid
        for _ in range(5):
            with self.logged() as said:
                await self.beat()
            self.assertIn(len(said), range(1, module.MAX_LINES + 1))
        self.assertEqual(self.courier._process.pid, pid)

    async def test_closed(self) -> None:
        await self.started(f"os.close(2); os.close(1); {ANSWER}")
        with self.logged() as said:
            for _ in range(3):
                await self.beat()
        self.assertEqual(said, [])

    async def test_standard_output(self) -> None:
        """Nobody reads it."""
        with self.logged() as said:
            await self.started(f"os.write(1, b'x' * 10 ** 6); {ANSWER}")
            await self.beat()
        self.assertEqual(said, [])

    async def test_end_while_another_process_has_the_pipe(self) -> None:
        """A courier has ended when its process has, whatever that has left behind."""
        self.with_program("os.fork() and os._exit(0); s.recv(99); s.recv(99)").start()
        await self.until_ended()

    async def test_no_descriptor_is_left_behind(self) -> None:
        self.with_command("/bin/sh", "-c", "echo bye >&2").start()
        await self.until_ended()
        before = os.listdir("/proc/self/fd")
        for _ in range(50):
            self.clock.advance(module.LONGEST_PAUSE)
            self.assertIsNone(self.courier._next_start)
            await self.until_ended()
        with mock.patch.object(REACTOR, "spawnProcess", side_effect=OSError("no process is left")):
            self.clock.advance(module.LONGEST_PAUSE)
        # Fewer are there if meanwhile the garbage of another test was collected.
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), len(before))

    async def test_start_without_a_copy_of_the_broker(self) -> None:
        """A fork takes long if the broker has much memory."""
        with mock.patch.object(os, "fork", side_effect=AssertionError("it forks")):
            await self.started(ANSWER)
