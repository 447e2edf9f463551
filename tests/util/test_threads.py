"""Tests the thread pools for work that would block the reactor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import gatherResults
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from rsscloud_broker.counters import Counters
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.util.threads import Workers

#: Seconds until a thread gives up waiting for another, and the test fails.
TIMEOUT = 10


class WorkersTests(TestCase):
    def make(self, threads: int = 2, counters: Counters | None = None) -> Workers:
        workers = Workers(IReactorFromThreads(reactor), "test work", threads, counters)
        workers.startService()
        self.addCleanup(lambda: workers.running and workers.stopService())
        return workers

    async def test_result(self) -> None:
        def work(a: int, *, b: int) -> tuple[int, bool]:
            return a + b, threading.current_thread() is threading.main_thread()

        self.assertEqual(await self.make()(work, 1, b=2), (3, False))

    async def test_failure(self) -> None:
        def work() -> None:
            raise KeyError("no good")

        working: Any = self.make()(work)
        error = await self.assertFailure(working, KeyError)
        self.assertEqual(error.args, ("no good",))

    async def test_as_many_at_the_same_time_as_there_are_threads(self) -> None:
        meeting = threading.Barrier(3)
        workers = self.make(threads=3)
        await gatherResults([workers(meeting.wait, TIMEOUT) for _ in range(3)])
        self.assertFalse(meeting.broken)

    async def test_how_busy_they_are(self) -> None:
        released = threading.Event()
        workers = self.make(threads=2)
        calls = [workers(released.wait, TIMEOUT) for _ in range(5)]
        self.assertEqual(workers.busy(), (3, 2))
        released.set()
        await gatherResults(calls)
        self.assertEqual(workers.busy(), (0, 0))

    async def test_threads_at_work_and_calls_that_wait_are_metrics(self) -> None:
        counters = Counters()
        workers = self.make(counters=counters)
        begun, released = threading.Barrier(3), threading.Event()
        self.addCleanup(released.set)

        def work() -> None:
            begun.wait(TIMEOUT)
            released.wait(TIMEOUT)

        def shown() -> list[float | None]:
            names = ("rsscloud_busy_threads", "rsscloud_thread_calls_queued")
            value = counters.registry.get_sample_value
            return [value(name, {"pool": "test work"}) for name in names]

        self.assertEqual(shown(), [0, 0])
        working: list[Any] = [workers(work) for _ in range(2)]
        begun.wait(TIMEOUT)
        working += [workers(released.wait, TIMEOUT) for _ in range(3)]
        self.assertEqual(shown(), [2, 3])
        released.set()
        await gatherResults(working)
        while shown() != [0, 0]:
            await deferLater(IReactorTime(reactor), 0)

    async def test_one_kind_does_not_wait_for_another(self) -> None:
        released = threading.Event()
        slow, quick = self.make(threads=1), self.make(threads=1)
        hanging = slow(released.wait, TIMEOUT)
        await quick(released.set)
        self.assertTrue(await hanging)

    async def test_stopping_waits_for_what_runs(self) -> None:
        begun, done = threading.Event(), []
        workers = self.make(threads=1)

        def work() -> None:
            begun.set()
            done.append(True)

        working = workers(work)
        begun.wait(TIMEOUT)
        await workers.stopService()
        self.assertEqual(done, [True])
        await working

    async def test_stopping_does_not_wait_for_what_hangs(self) -> None:
        clock = ThreadsClock()
        workers = Workers(clock, "hanging work", 2)
        workers.startService()
        begun, released = threading.Event(), threading.Event()
        self.addCleanup(released.set)

        def hang() -> None:
            begun.set()
            released.wait(TIMEOUT)

        workers(hang)
        begun.wait(TIMEOUT)
        threads = [each for each in threading.enumerate() if "hanging work" in each.name]
        self.assertTrue(threads)
        self.assertTrue(all(thread.daemon for thread in threads))
        stopped = workers.stopService()
        clock.advance(0.9)
        self.assertNoResult(stopped)
        clock.advance(0.1)
        self.assertIsNone(self.successResultOf(stopped))


@implementer(IReactorFromThreads)
class ThreadsClock(Clock):
    """A reactor whose time stands still, and that ignores calls from threads."""

    def callFromThread(
        self,
        callable: Callable[..., object],  # noqa: A002 # Twisted's name
        *args: Any,
        **kwargs: Any,
    ) -> None:
        pass
