"""Names are looked up in threads, and what is wrong with them is an OSError."""

from __future__ import annotations

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.trial.unittest import TestCase

from rsscloud_broker.outbound import Resolver
from rsscloud_broker.workers import Workers


class ResolverTests(TestCase):
    def setUp(self) -> None:
        workers = Workers(IReactorFromThreads(reactor), "test resolver", 1)
        workers.startService()
        self.addCleanup(workers.stopService)
        self.resolve = Resolver(workers)

    async def test_addresses(self) -> None:
        self.assertEqual(await self.resolve("127.0.0.1"), ["127.0.0.1"])
        self.assertEqual(await self.resolve("::1"), ["::1"])
        self.assertIn("127.0.0.1", await self.resolve("localhost"))

    async def test_no_such_name(self) -> None:
        looking = Deferred.fromCoroutine(self._look("no-such-name.invalid."))
        await self.assertFailure(looking, OSError)

    async def _look(self, host: str) -> list[str]:
        return await self.resolve(host)
