"""Tests that documents are parsed by other processes, and that none hurts others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import TestCase

from rsscloud_broker.errors import DocumentFault, DocumentTooCostly, ParsingUnavailable
from rsscloud_broker.outbound.couriers import parser as one_parser
from rsscloud_broker.outbound.couriers import parsers as module
from rsscloud_broker.outbound.couriers.fork_server import ForkServer
from rsscloud_broker.outbound.couriers.link import BESIDES_LAST_BODY
from rsscloud_broker.outbound.couriers.parsers import Parsers
from rsscloud_broker.outbound.couriers.spawning import megabytes
from rsscloud_broker.testing import Clock
from tests.outbound.couriers import parsed
from tests.outbound.couriers.fixture import REACTOR, lasting_fork_server, parent_of, privately


def write(path: Path) -> None:
    path.write_bytes(b"")


def stand_still_until_ended(process: int) -> None:
    while Path(f"/proc/{process}").exists():
        pass


class ParsersTestCase(TestCase):
    """Parsers with real processes, whose timers the test moves."""

    fork_server: Callable[..., ForkServer] = staticmethod(lasting_fork_server)

    def setUp(self) -> None:
        self.clock = Clock()
        self.parsers = self.made()

    def made(self, parsers: int = 2) -> Parsers:
        server = self.fork_server(REACTOR, parsed.COMMAND)
        self.addCleanup(server.stopService)
        made = Parsers(REACTOR, self.clock, server, parsers)
        made.startService()
        self.addCleanup(lambda: made.running and made.stopService())
        return made

    def path(self) -> Path:
        """Where there is no file yet."""
        return Path(self.mktemp()).absolute()

    async def until_gone(self) -> None:
        """Wait until no process is left."""
        while any(each.is_up for each in self.parsers._parsers):
            await deferLater(REACTOR, 0.01)


class ResultTests(ParsersTestCase):
    async def test_result(self) -> None:
        self.assertEqual(await self.parsers("a.example", parsed.upper, "x"), "X")
        self.assertNotEqual(await self.parsers("a.example", parsed.process, ""), os.getpid())

    async def test_fault(self) -> None:
        failing = self.parsers("a.example", parsed.strange, "ab")
        error: Any = await self.assertFailure(failing, parsed.Strange)
        self.assertEqual((error.reason, error.number), ("ab", 2))

    async def test_bug(self) -> None:
        """A mistake of the broker or of a library is logged, and the document has failed."""
        error = await self.assertFailure(
            self.parsers("a.example", parsed.mistaken, "ab"), DocumentFault
        )
        self.assertNotIsInstance(error, DocumentTooCostly)
        self.assertEqual(await self.parsers("a.example", parsed.upper, "x"), "X")

    async def test_a_module_that_is_gone(self) -> None:
        """The document is not blamed, and the log says what is missing."""
        self.patch(parsed.upper, "__module__", "rsscloud_broker.gone")
        with capturedLogs() as events:
            error = await self.assertFailure(
                self.parsers("a.example", parsed.upper, "x"), DocumentFault
            )
        self.assertNotIsInstance(error, DocumentTooCostly)
        self.assertIn("No module named", " ".join(str(formatEvent(event)) for event in events))

    async def test_an_answer_that_is_read_after_the_end_of_the_process(self) -> None:
        """The broker may stand still until the process has ended: the document is not blamed."""
        parsers = self.made(1)
        process = await parsers("a.example", parsed.process, "")
        path = self.path()
        document = parsers("a.example", parsed.leaving, str(path))
        await deferLater(REACTOR, 0.1)  # so that the document is sent
        write(path)
        stand_still_until_ended(process)
        self.assertEqual(len(await document), 140_000)
        self.assertEqual(await parsers("a.example", parsed.upper, "x"), "X")

    async def test_an_answer_that_is_no_unicode(self) -> None:
        """Somebody who broke into the process may send anything, and the caller hears of it."""
        await self.assertFailure(
            self.parsers("a.example", parsed.forged, b"\xa1\xff"), DocumentFault
        )

    async def test_arguments_that_cannot_be_sent(self) -> None:
        for argument in ("\ud800", 10**30):
            failing = self.parsers("a.example", parsed.anything, argument)
            await self.assertFailure(failing, DocumentFault)

    async def test_the_process_stays(self) -> None:
        first = await self.parsers("a.example", parsed.process, "")
        self.assertEqual(await self.parsers("b.example", parsed.process, ""), first)


class CostlyTests(ParsersTestCase):
    async def given_up(self, function: Any, *arguments: Any) -> None:
        """A document is given up, and the next ones of its owner and of others are parsed."""
        document = self.parsers("evil.example", function, *arguments)
        good = self.parsers("good.example", parsed.upper, "x")
        await self.assertFailure(document, DocumentTooCostly)
        self.assertEqual(await good, "X")
        self.assertEqual(await self.parsers("evil.example", parsed.upper, "x"), "X")

    async def test_time(self) -> None:
        await self.given_up(parsed.endless, "")

    async def test_memory(self) -> None:
        await self.given_up(parsed.large, 2**30)

    async def test_much_memory_is_given_back(self) -> None:
        self.assertEqual(await self.parsers("a.example", parsed.large, 2**27), 2**27)
        self.assertEqual(await self.parsers("a.example", parsed.upper, "x"), "X")

    async def test_endless_answer(self) -> None:
        self.patch(one_parser, "ANSWER", 2 * BESIDES_LAST_BODY)
        await self.given_up(parsed.many, 2 * BESIDES_LAST_BODY)

    async def test_end_of_the_process(self) -> None:
        await self.given_up(parsed.deadly, "")

    async def test_process_that_only_waits(self) -> None:
        """The kernel counts no time of a process that does not run: looks at it do."""
        await self.parsers("a.example", parsed.upper, "x")  # so that the process has started
        document = self.parsers("evil.example", parsed.until_there, str(self.path()))
        while not document.called:
            self.clock.advance(1.0)
            await deferLater(REACTOR, 0.01)
        await self.assertFailure(document, DocumentTooCostly)

    async def test_others_need_not_wait(self) -> None:
        """Who was slow before leaves a parser to others, however many slow ones there are."""
        path = self.path()
        evil = [f"evil{number}.example" for number in range(3)]
        for each in evil:
            await self.assertFailure(self.parsers(each, parsed.deadly, ""), DocumentTooCostly)
        slow = [self.parsers(each, parsed.until_there, str(path)) for each in evil]
        self.assertEqual(await self.parsers("good.example", parsed.upper, "x"), "X")
        self.assertFalse(any(each.called for each in slow))
        write(path)
        await gatherResults(slow)


class ForkedTests(ParsersTestCase):
    """Parsers are forked by the process that forks couriers."""

    async def test_shared_memory(self) -> None:
        """A parser has less memory for itself than half of what was loaded before."""
        process = await self.parsers("a.example", parsed.process, "")
        self.assertLess(privately(process), megabytes(parent_of(process)) * 1024 // 2)

    async def test_end_of_the_server(self) -> None:
        """Parsers end with it, no document is blamed, and another parser takes the next one."""
        self.fork_server = ForkServer
        self.parsers = self.made()
        process = await self.parsers("a.example", parsed.process, "")
        document = self.parsers("a.example", parsed.until_there, str(self.path()))
        os.kill(parent_of(process), signal.SIGKILL)
        await self.assertFailure(document, ParsingUnavailable)  # which is not to blame
        self.clock.advance(1.0)
        self.assertNotEqual(await self.parsers("a.example", parsed.process, ""), process)

    async def test_a_process_that_outlives_the_server(self) -> None:
        """Its document has failed, and the next one gets another parser."""
        self.fork_server = lambda reactor, _: ForkServer(reactor, parsed.OUTLIVING)
        parsers, path = self.made(1), self.path()
        self.addCleanup(write, path)
        process = await parsers("a.example", parsed.process, "")
        document = parsers("a.example", parsed.until_there, str(path))
        os.kill(parent_of(process), signal.SIGKILL)
        await self.assertFailure(document, ParsingUnavailable)
        self.clock.advance(1.0)
        self.assertNotEqual(await parsers("a.example", parsed.process, ""), process)


class TurnTests(ParsersTestCase):
    async def test_owners_take_turns(self) -> None:
        parsers = self.made(1)
        order: list[str] = []
        waiting = [
            parsers(owner, parsed.upper, owner).addCallback(order.append)
            for owner in ("a", "a", "a", "b", "c")
        ]
        await gatherResults(waiting)
        self.assertEqual(order, ["A", "A", "B", "C", "A"])

    async def test_a_cancelled_document_is_not_parsed(self) -> None:
        parsers = self.made(1)
        first, second, third = (parsers("a", parsed.upper, each) for each in ("x", "y", "z"))
        second.addErrback(lambda failure: None)
        second.cancel()
        self.assertEqual(await gatherResults([first, third]), ["X", "Z"])

    async def test_too_many_wait(self) -> None:
        parsers = self.made(1)
        self.patch(module, "WAITING_OF_ONE", 2)
        given = [parsers("a", parsed.upper, "x") for _ in range(4)]
        await self.assertFailure(given[-1], ParsingUnavailable)
        self.assertEqual(await parsers("b", parsed.upper, "x"), "X")
        await gatherResults(given[:-1])

    async def test_too_many_bytes_wait(self) -> None:
        self.patch(module, "WAITING_BYTES", 1000)
        parsers = self.made(1)
        given = [parsers(owner, parsed.upper, "x" * 600) for owner in "abc"]
        await self.assertFailure(given[-1], ParsingUnavailable)
        given[1].addErrback(lambda failure: None)
        given[1].cancel()  # which makes room
        given[2] = parsers("c", parsed.upper, "x" * 600)
        await gatherResults(given)


class EndTests(ParsersTestCase):
    async def test_stop(self) -> None:
        """Anyone who waits hears that the broker stops."""
        path = str(self.path())
        begun = self.parsers("a", parsed.until_there, path)
        waiting = self.parsers("a", parsed.upper, "x")
        stopping: Deferred[Any] = self.parsers.stopService()
        for each in (begun, waiting, self.parsers("b", parsed.upper, "x")):
            await self.assertFailure(each, ParsingUnavailable)
        await stopping
        self.assertFalse(any(each.is_up for each in self.parsers._parsers))

    async def test_idle_processes_end(self) -> None:
        await self.parsers("a", parsed.upper, "x")
        for _ in range(120 + 1):
            self.clock.advance(1.0)
        await self.until_gone()
        self.assertEqual(await self.parsers("a", parsed.upper, "x"), "X")

    async def test_program_that_does_not_start(self) -> None:
        """Nobody is blamed for it, and it is started again after a pause only."""
        self.fork_server = lambda reactor, _: ForkServer(reactor, ["/bin/false"])
        parsers = self.made(1)
        for has_failed in (False, True):
            document = parsers("a", parsed.upper, "x")
            self.assertFalse(has_failed and parsers._parsers[0].is_up)
            while not document.called:
                self.clock.advance(1.0)
                await deferLater(REACTOR, 0.01)
            await self.assertFailure(document, ParsingUnavailable)
        self.assertFalse(parsers._is_slow("a"))
