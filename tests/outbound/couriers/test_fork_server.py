"""Tests the process that forks couriers, with real processes."""

from __future__ import annotations

import os
import signal
import socket

from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Interrupted, Unavailable
from rsscloud_broker.outbound.couriers import courier as module
from rsscloud_broker.outbound.couriers.crew import Crew
from rsscloud_broker.outbound.couriers.fork_server import _NOTICE, _STARTED, Forked, ForkServer
from rsscloud_broker.outbound.couriers.spawning import COMMAND, Limits, megabytes
from tests.outbound.couriers.fixture import (
    REACTOR,
    CrewTestCase,
    parent_of,
    privately,
    stat_of,
    until,
)


def has_ended(pid: int) -> bool:
    """Whether a process has ended, also if nobody has asked how."""
    try:
        return stat_of(pid)[0] == "Z"
    except FileNotFoundError:
        return True


def end_if_there(pid: int) -> None:
    if not has_ended(pid):
        os.kill(pid, signal.SIGKILL)


class ForkServerTests(CrewTestCase):
    fork_server = ForkServer

    async def pids(self, crew: Crew) -> list[int]:
        """The numbers of the processes of a crew."""
        while not all(each._process.pid for each in crew.couriers):
            await deferLater(REACTOR, 0.01)
        return [each._process.pid for each in crew.couriers]

    async def test_one_program_for_all(self) -> None:
        """Couriers have one parent, which is no courier, and share its memory."""
        crew = self.made(3)
        pids = await self.pids(crew)
        while not all(each._has_lived for each in crew.couriers):
            await deferLater(REACTOR, 0.01)
        (server,) = set(map(parent_of, pids))
        self.assertNotIn(server, pids)
        self.assertEqual(parent_of(server), os.getpid())
        for pid in pids:
            self.assertLess(privately(pid), megabytes(server) * 1024 // 2)

    async def test_it_ends(self) -> None:
        """Its couriers end with it, and other ones take their places."""
        crew = self.made(2)
        before = await self.pids(crew)
        server = parent_of(before[0])
        answer = self.request("/slow")
        await self.callback.asked
        with capturedLogs() as events:
            os.kill(parent_of(self.courier._process.pid), signal.SIGKILL)
            await self.assertFailure(answer, Interrupted)
            os.kill(server, signal.SIGKILL)
            for each in crew.couriers:
                await self.until_ended(each)
        self.clock.advance(module.FIRST_PAUSE)
        await self.until_restarted()
        self.assertEqual(set(before) & set(await self.pids(crew)), set())
        said = [str(formatEvent(event)) for event in events]
        self.assertIn("the process that starts couriers has ended: ", " ".join(said))

    async def test_stopped_couriers_end_with_it(self) -> None:
        """They notice nothing by themselves, so the kernel has to end them."""
        await self.request()
        pid = await self.pid()
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(end_if_there, pid)
        os.kill(parent_of(pid), signal.SIGKILL)
        await until(lambda: has_ended(pid))

    async def test_next_one_starts_before_the_last_connection_has_closed(self) -> None:
        """Its end is not that of the next one, nor of the process that starts them."""
        await self.request()
        before = self.courier._process
        before.exited = lambda reason: None  # the test says it itself, below
        self.clock.advance(11.0)  # who has lived for so long is replaced at once
        self.courier._handle_exit("signal 9")
        self.clock.advance(0.0)
        after = self.courier._process
        self.assertIsNot(after, before)
        await self.request()
        self.assertIs(self.courier._process, after)

    async def test_how_couriers_end(self) -> None:
        await self.request()
        with capturedLogs() as events:
            self.courier.kill()
            await self.until_ended()
        (said,) = [str(formatEvent(event)) for event in events if "reason" in event]
        self.assertIn("Courier 0 has ended (signal 9); another one is started", said)

    async def test_it_hangs(self) -> None:
        """It is ended when a courier has had its time for the first sign of life."""
        await self.request()
        server = parent_of(await self.pid())
        os.kill(server, signal.SIGSTOP)
        assert self.courier._link is not None
        self.courier._link.abort("it was a test")  # the courier ends, and nobody is notified
        further = self.crew._make_courier(1)
        self.crew.couriers.append(further)
        further.start()
        for _ in range(int(Limits().first_sign) + 3):
            self.clock.advance(module.BEAT)
        await self.until_ended(further)
        self.assertRaises(ProcessLookupError, os.kill, server, 0)
        self.clock.advance(module.LONGEST_PAUSE)
        await self.until_restarted()

    async def test_it_is_stopped(self) -> None:
        server = parent_of(await self.pid())
        await self.crew.stopService()
        await self.forks.stopService()
        self.assertRaises(ProcessLookupError, os.kill, server, 0)


class NoServerTests(CrewTestCase):
    fork_server = ForkServer
    command = (*COMMAND[:2], "-c", "raise SystemExit('no such library')")

    async def test_what_it_says(self) -> None:
        """Requests fail, and the log says why."""
        with capturedLogs() as events:
            await self.assertFailure(self.request(), Unavailable)
            await self.until_ended()
        said = [str(formatEvent(event)) for event in events]
        self.assertIn("The process that starts couriers: no such library", said)


class NoProcessTests(CrewTestCase):
    fork_server = ForkServer
    command = (
        *COMMAND[:2],
        "-c",
        "import errno, os; from rsscloud_broker.composition import courier\n"
        "fork, times = os.fork, []\n"
        "def full():\n"
        "    times.append(1)\n"
        "    if len(times) < 3: raise OSError(errno.EAGAIN, '')\n"
        "    return fork()\n"
        "os.fork = full; courier.main()",
    )

    async def test_the_system_is_full(self) -> None:
        """It is tried again after a pause."""
        with capturedLogs() as events:
            await self.until_restarted()
        said = [str(formatEvent(event)) for event in events if "reason" in event]
        self.assertEqual(len(said), 2)
        self.assertIn(f"it cannot be started: {os.strerror(11)}", said[0])


class NoticesTests(SynchronousTestCase):
    """What the broker does at the notices of the server."""

    def setUp(self) -> None:
        self.server = ForkServer(REACTOR)
        self.server._socket, theirs = socket.socketpair()
        for each in (self.server._socket, theirs):
            each.setblocking(False)
            self.addCleanup(each.close)
        self.tell = theirs.send
        self.ended: list[str] = []
        self.killed: list[int] = []
        self.patch(os, "kill", lambda pid, number: self.killed.append(pid))

    def test_unwanted_one_is_ended_as_it_starts(self) -> None:
        """Unless it has ended: its number may be that of another process by now, or of none."""
        for end, killed, ended in (
            (b"", [4711], []),
            (_NOTICE.pack(4711, 0), [], ["exit status 0"]),
        ):
            self.killed.clear()
            self.server._asked.append(unwanted := Forked(self.ended.append, self.server))
            unwanted.is_unwanted = True
            self.tell(_NOTICE.pack(4711, _STARTED) + end)
            self.server.doRead()
            self.assertEqual((self.killed, self.ended), (killed, ended))
