"""Tests that a callback whose answer ends couriers is found, and harms nobody else."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent

from rsscloud_broker.errors import OutboundError, Unavailable
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.outbound.couriers.further import STAYS
from rsscloud_broker.outbound.couriers.spawning import COMMAND
from rsscloud_broker.outbound.couriers.suspect_calls import WITHIN
from tests.outbound.couriers.crashing import ANSWER
from tests.outbound.couriers.fixture import REACTOR, CrewTestCase


class SuspectCallsTests(CrewTestCase):
    command = (*COMMAND[:-1], "tests.outbound.couriers.crashing")

    def setUp(self) -> None:
        super().setUp()
        self.callback.bodies[b"/deadly"] = ANSWER

    def end_pauses(self) -> None:
        """Have couriers start again at once.  Time that passed would make them look silent."""
        for each in self.crew._all:
            if each._again is not None:
                each._again.reset(0)
        self.clock.advance(0)

    async def outcome(self, path: str) -> OutboundReply | Exception:
        """What comes of a call, while the pauses pass until couriers start again."""
        ends: list[Any] = []
        self.request(path).addBoth(ends.append)
        while not ends:
            self.end_pauses()
            await deferLater(REACTOR, 0.01)
        return ends[0] if isinstance(ends[0], OutboundReply) else ends[0].value

    async def outcomes(self, path: str, times: int) -> list[str]:
        """The names of what comes of so many calls, one after the other."""
        return [type(await self.outcome(path)).__name__ for _ in range(times)]

    async def until_suspect(self) -> None:
        """Have two couriers end that call a callback."""
        self.assertEqual(await self.outcomes("/deadly", 2), ["CourierEnded"] * 2)

    async def until_blamed(self) -> None:
        """Have it fail."""
        await self.until_suspect()
        found = await self.outcomes("/deadly", 3)
        self.assertEqual(found, ["CourierEnded", "CourierEnded", "OutboundError"])

    async def test_the_call_fails(self) -> None:
        """From the fifth time on; before that it ends no more couriers that have other work."""
        with capturedLogs() as events:
            await self.until_suspect()
            await self.outcome("/")
            process = self.courier._process
            found = await self.outcomes("/deadly", 5)
        self.assertEqual(found, ["CourierEnded"] * 2 + ["OutboundError"] * 3)
        self.assertIs(self.courier._process, process)
        said = [line for line in map(formatEvent, events) if "ends the couriers" in str(line)]
        self.assertEqual(len(said), 3)
        self.assertIn(f"{self.url}/deadly", str(said[0]))
        error = await self.outcome("/deadly")
        self.assertEqual(str(error), "the processes that call it end while they do")

    async def test_who_answers_is_innocent(self) -> None:
        await self.until_suspect()
        self.callback.bodies.clear()
        self.assertEqual(await self.outcomes("/deadly", 1), ["OutboundReply"])
        self.assertFalse(self.crew._suspects)

    async def test_who_does_not_answer_stays_suspect(self) -> None:
        """Nor does it help to answer another courier well."""
        self.assertEqual(await self.outcomes("/deadly", 1), ["CourierEnded"])
        deadly, self.callback.bodies = self.callback.bodies, {}
        self.assertEqual(await self.outcomes("/deadly", 1), ["OutboundReply"])
        self.callback.bodies = deadly
        self.assertEqual(await self.outcomes("/deadly", 1), ["CourierEnded"])
        self.assertIn(f"{self.url}/deadly", self.crew._suspects)
        self.crew.allow([])
        self.assertEqual(await self.outcomes("/deadly", 1), ["AddressRefused"])
        self.assertIn(f"{self.url}/deadly", self.crew._suspects)

    async def test_an_hour_later(self) -> None:
        self.assertEqual(await self.outcomes("/deadly", 1), ["CourierEnded"])
        self.clock.advance(WITHIN)
        self.assertEqual(await self.outcomes("/deadly", 1), ["CourierEnded"])
        self.assertNotIn(f"{self.url}/deadly", self.crew._suspects)

    async def test_one_courier_may_end_for_other_reasons(self) -> None:
        """Such as an operator who kills it; then all are called again as usual."""
        slow = self.request("/slow")
        await self.callback.asked
        self.courier.kill()
        await self.assertFailure(slow, Unavailable)
        self.assertEqual(await self.outcomes("/", 1), ["OutboundReply"])
        self.callback.asked = Deferred()
        self.callback.got.clear()
        slow = self.request("/slow")
        while not self.callback.got:
            await deferLater(REACTOR, 0.01)
        self.assertEqual(self.crew._further, [])
        self.callback.got[0][1].finish()
        await slow

    async def test_innocent_suspects_are_not_blamed(self) -> None:
        """They were called at the same time twice, and are told in the end."""
        for _ in range(3):
            self.callback.asked = Deferred()
            slow = self.request("/slow")
            while not self.callback.asked.called:
                self.end_pauses()
                await deferLater(REACTOR, 0.01)
            await self.outcome("/deadly")
            await self.assertFailure(slow, Unavailable)
        self.assertIn(f"{self.url}/slow", self.crew._suspects)
        deadly = [self.request("/deadly") for _ in range(2)]
        self.callback.asked = Deferred()
        slow = self.request("/slow")
        while not self.callback.asked.called:
            self.end_pauses()
            await deferLater(REACTOR, 0.01)
        self.callback.got[-1][1].finish()
        self.assertEqual((await slow).status, 200)
        for each in deadly:
            await self.assertFailure(each, Unavailable, OutboundError)

    async def test_further_courier_leaves(self) -> None:
        await self.until_blamed()
        numbers = [self.courier.number, *(each.number for each in self.crew._further)]
        self.assertEqual(numbers, [0, 1, 2])
        self.clock.advance(STAYS)
        self.assertEqual(self.crew._further, [])
