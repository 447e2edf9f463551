"""Tests that a callback whose answer ends couriers is found, and harms nobody else."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent

from rsscloud_broker.couriers.further import STAYS
from rsscloud_broker.couriers.spawning import COMMAND
from rsscloud_broker.errors import OutboundError, Unavailable
from rsscloud_broker.interfaces import OutboundReply
from tests.couriers.crashing import ANSWER
from tests.couriers.fixture import REACTOR, CrewTestCase


class SuspectCallsTests(CrewTestCase):
    command = (*COMMAND[:-1], "tests.couriers.crashing")

    def setUp(self) -> None:
        super().setUp()
        self.callback.bodies[b"/deadly"] = ANSWER

    async def outcome(self, path: str) -> OutboundReply | Exception:
        """What comes of a call, while the pauses pass until couriers start again."""
        ends: list[Any] = []
        self.request(path).addBoth(ends.append)
        while not ends:
            self.clock.advance(0.1)
            await deferLater(REACTOR, 0.01)
        return ends[0] if isinstance(ends[0], OutboundReply) else ends[0].value

    async def outcomes(self, path: str, times: int) -> list[str]:
        """The names of what comes of so many calls, one after the other."""
        return [type(await self.outcome(path)).__name__ for _ in range(times)]

    async def test_the_call_fails(self) -> None:
        """The third time, and from then on; each time it ends one further courier only."""
        with capturedLogs() as events:
            found = await self.outcomes("/deadly", 3)
            self.assertEqual(found, ["CourierEnded", "CourierEnded", "OutboundError"])
            await self.outcome("/")
            process = self.courier._process
            self.assertEqual(await self.outcomes("/deadly", 2), ["OutboundError"] * 2)
        self.assertIs(self.courier._process, process)
        said = [line for line in map(formatEvent, events) if "ends the couriers" in str(line)]
        self.assertEqual(len(said), 1)
        self.assertIn(f"{self.url}/deadly", str(said[0]))
        error = await self.outcome("/deadly")
        self.assertIsInstance(error, OutboundError)
        self.assertEqual(str(error), "the processes that call it end while they do")

    async def test_who_answers_is_innocent(self) -> None:
        await self.outcomes("/deadly", 3)
        self.callback.bodies.clear()
        self.assertEqual(await self.outcomes("/deadly", 2), ["OutboundReply"] * 2)
        self.assertFalse(self.crew._suspects)

    async def test_one_courier_may_end_for_other_reasons(self) -> None:
        """Such as an operator who kills it; then all are called again as usual."""
        slow = self.request("/slow")
        await self.callback.asked
        self.courier.kill()
        await self.assertFailure(slow, Unavailable)
        self.assertEqual(await self.outcomes("/", 1), ["OutboundReply"])
        self.callback.asked = Deferred()
        slow = self.request("/slow")
        self.callback.got.clear()
        while not self.callback.got:
            await deferLater(REACTOR, 0.01)
        self.assertEqual(self.crew._further, [])
        self.callback.got[0][1].finish()
        await slow
        self.assertFalse(self.crew._suspects)

    async def test_others_are_put_off_twice(self) -> None:
        """Callbacks that never answer are suspect too, but hold the others up for a second only."""
        for _ in range(2):
            self.callback.asked = Deferred()
            slow = self.request("/slow")
            while not self.callback.asked.called:
                self.clock.advance(0.1)
                await deferLater(REACTOR, 0.01)
            await self.outcome("/deadly")
            await self.assertFailure(slow, Unavailable)
        self.callback.asked = Deferred()
        slow = self.request("/slow")
        while not self.callback.asked.called:
            self.clock.advance(0.1)
            await deferLater(REACTOR, 0.01)
        self.assertEqual(await self.outcomes("/deadly", 1), ["OutboundError"])
        await self.assertFailure(slow, Unavailable, OutboundError)
        self.assertEqual(await self.outcomes("/", 1), ["OutboundReply"])

    async def test_further_courier_leaves(self) -> None:
        await self.outcomes("/deadly", 3)
        (further,) = self.crew._further
        self.assertNotEqual(further.number, self.courier.number)
        self.clock.advance(STAYS)
        self.assertEqual(self.crew._further, [])
