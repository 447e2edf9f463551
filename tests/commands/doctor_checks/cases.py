"""A test case with a ``CheckContext``: a configuration and a data directory of the test's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from attrs import evolve
from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from rsscloud_broker.client.feed_requests import FeedAnswer
from rsscloud_broker.client.web import ClientError
from rsscloud_broker.commands.doctor_checks.results import CheckContext
from rsscloud_broker.config import Config
from rsscloud_broker.runtime import data_lock
from rsscloud_broker.util.clock import SystemClock
from tests.processes import free_port

Check: TypeAlias = Callable[[CheckContext], Awaitable[None] | None]


class DoctorTestCase(TestCase):
    def setUp(self) -> None:
        self.home = Path(self.mktemp()).absolute()
        self.data = self.home / "data"
        self.data.mkdir(parents=True)
        listen = f"tcp:{free_port()}:interface=127.0.0.1"
        self.config = Config(data=str(self.data), listen=(listen,))
        self.clock = SystemClock(reactor)
        self.doors = frozenset({"doctor"})
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    async def ask(self, url: str, headers: Mapping[str, str]) -> FeedAnswer:
        """Answer a request of the doctor; tests override it."""
        self.asked.append((url, headers))
        raise ClientError(f"{url}: no connection")

    def context(self, **more: Any) -> CheckContext:
        """A context of a broker with the configuration of this test."""
        return CheckContext(self.config, 100, self.doors, reactor, self.clock, self.ask, **more)

    def change(self, **values: Any) -> None:
        """Change the configuration."""
        self.config = evolve(self.config, **values)

    def run_broker(self) -> None:
        """Hold the lock of the data directory, as a running broker does."""
        self.addCleanup(data_lock.hold(str(self.data)).close)

    async def results(
        self, check: Check, context: CheckContext | None = None
    ) -> list[tuple[str, str, str]]:
        """Level, fact and advice of the results of a check."""
        context = context or self.context()
        context.results.clear()
        if (waiting := check(context)) is not None:
            await waiting
        return [(result.level, result.found, result.advice) for result in context.results]

    async def assert_only(
        self, check: Check, level: str, *parts: str, context: CheckContext | None = None
    ) -> str:
        """Assert that a check has one result, with a level, whose fact or advice says some words.

        :returns: the fact and the advice.
        """
        (result,) = await self.results(check, context)
        text = "; ".join(result[1:])
        self.assertEqual(result[0], level, text)
        for part in parts:
            self.assertIn(part, text)
        return text

    async def assert_levels(self, check: Check, *levels: str) -> list[tuple[str, str, str]]:
        """Assert that the results of a check have these levels; the results."""
        results = await self.results(check)
        self.assertEqual([level for level, _, _ in results], list(levels), results)
        return results
