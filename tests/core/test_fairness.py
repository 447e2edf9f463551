"""Tests that five hostile callers, for more than a minute, do not delay the requests of others."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from rsscloud_broker.errors import TooMany, TopicUnreadable
from rsscloud_broker.model import (
    NO_VALIDATORS,
    Callback,
    Intent,
    Outcome,
    Validators,
    host_of,
)
from rsscloud_broker.model.fetching import EVERYTHING, Fetched, Wanted
from rsscloud_broker.testing import FakeFetcher
from tests.core.house import CALLBACK, FEED, BrokerTestCase

#: Seconds until the broker gives a silent host up, and seconds that a good host takes.
DEADLINE, MOMENT = 30.0, 0.05

#: Seconds for which the hostile callers call, and seconds between their calls.
TROUBLE, STEP = 80, 0.2

#: The hostile callers; two of them are in one network.
BAD = ("192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1", "2001:db8:1::1")

GOOD = "198.51.100.7"

#: Names and addresses of silent hosts; their owner gets as many as they like.
HOSTS = 500


def silent(number: int, path: str) -> str:
    return f"http://{number % HOSTS}.silent.example/{path}/{number}"


class FairnessTests(BrokerTestCase):
    """The limiter has few slots here, so that few hostile calls are enough.

    :ivar waits: how long the good caller waited, by the kind of its request.
    :ivar silence: the silent hosts that are being called.
    """

    slots, under_way = 10, 20
    max_intents = 10_000

    def setUp(self) -> None:
        super().setUp()
        self.patch(self.fetcher, "fetch", self.fetch)
        self.patch(self.notifier, "verify", self.verify)
        self.patch(self.topic_policy, "check", self.check)
        self.patch(self.carrier, "verify", self.verify)
        self.waits: dict[str, list[float]] = {}
        self.number = self.silence = 0
        self.deadline = DEADLINE
        self.addCleanup(self.end_trouble)

    def end_trouble(self) -> None:
        """Let all waiting calls end."""
        self.deadline = 0.0
        while self.silence:
            self.clock.advance(DEADLINE)

    async def answer(self, url: str) -> bool:
        if host_of(url).endswith("silent.example"):
            self.silence += 1
            await deferLater(self.clock, self.deadline)
            self.silence -= 1
            return False
        await deferLater(self.clock, MOMENT)
        return True

    async def fetch(
        self,
        url: str,
        known: Validators = NO_VALIDATORS,
        subscribers: int = 0,
        wanted: Wanted = EVERYTHING,
    ) -> Fetched:
        if not await self.answer(url):
            raise TopicUnreadable(url, "no answer within 30 s")
        return await FakeFetcher(self.fetcher.contents).fetch(url, known, subscribers)

    async def verify(self, intent: Intent) -> Outcome:
        success = await self.answer(intent.callback.url)
        return Outcome(success, "" if success else "no answer", answered=success)

    async def check(self, url: str) -> None:
        if host_of(url).endswith("silent.example"):
            await deferLater(self.clock, 3.0)

    def start_call(self, call: Awaitable[Any]) -> None:
        """Start a call and ignore its result."""

        async def calling() -> None:
            with contextlib.suppress(TooMany, TopicUnreadable):
                await call

        Deferred.fromCoroutine(calling())

    def good(self, what: str, call: Awaitable[Any]) -> None:
        """Make a request of the good caller, and note how long it takes."""
        began = self.clock.seconds()
        waits = self.waits.setdefault(what, [])
        index = len(waits)
        waits.append(TROUBLE)

        def done(result: object) -> None:
            waits[index] = self.clock.seconds() - began

        Deferred.fromCoroutine(_awaited(call)).addCallback(done)

    def trouble(self, source: str, count: int) -> None:
        """Make slow requests: fetches, of the good topic too, and verifications."""
        first, self.number = self.number, self.number + count
        urls = [silent(number, "feed") for number in range(first, first + count)]
        self.start_call(self.broker.publish([*urls, FEED], source))
        self.start_call(self.broker.ping_topic(silent(first, "pinged"), source))
        for number in range(first, first + count, 5):
            callback = Callback(silent(number, "hook"), "carrier")
            intent = Intent(FEED, callback, 90_000, challenge=True, source=source)
            self.start_call(self.broker.accept(intent))

    def test_a_good_caller_does_not_notice(self) -> None:
        self.subscribe()
        for source in BAD:
            self.trouble(source, 40)
        steps_of_a_second = round(1 / STEP)
        for step in range(TROUBLE * steps_of_a_second):
            if step % steps_of_a_second == 0:
                second = step // steps_of_a_second
                if second % 2:
                    self.trouble(BAD[second // 2 % len(BAD)], 1)
                self.fetcher.contents[FEED] = b"<rss>%d</rss>" % second
                self.good("ping", self.broker.ping_topic(FEED, GOOD))
                if second % 10 == 5:
                    self.register(second)
            self.clock.advance(STEP)
        self.clock.advance(1)
        self.assertGreater(self.silence, self.under_way / 2, "there is trouble to the end")
        for what, waits in self.waits.items():
            p99 = sorted(waits)[int(0.99 * len(waits))]
            self.assertLess(p99, 1.0, what)
        self.assertEqual(len(self.waits["ping"]), TROUBLE)
        self.assertGreaterEqual(len(self.subscriptions()), TROUBLE // 6)

    def register(self, second: int) -> None:
        callback = evolve(CALLBACK, url=f"http://reader.example/{second}")
        intent = Intent(FEED, callback, 90_000, source=GOOD)
        self.good("subscription", self.broker.subscribe(intent))
        later = evolve(intent, callback=evolve(callback, protocol="carrier"), challenge=True)
        self.good("request", self.broker.accept(later))


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call
