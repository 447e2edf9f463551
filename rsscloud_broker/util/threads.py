"""Thread pools for work that would block the reactor, one pool for each kind of work.

If work of one kind hangs, on a slow disk for instance, it fills only its own pool.  It does not
keep the process alive either: the threads are daemons, and a stop waits for them only a moment.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any, ParamSpec, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.threadpool import ThreadPool

from rsscloud_broker.counters import Counters
from rsscloud_broker.util.deferreds import returns_deferred

P = ParamSpec("P")
T = TypeVar("T")


class _Daemon(Thread):
    """A thread that does not keep the process alive, whatever it is doing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs, daemon=True)


class Daemons(ThreadPool):
    """A pool of threads that do not keep the process alive."""

    threadFactory = _Daemon


def count_threads(pool: Daemons, counters: Counters | None) -> None:
    """Have counters show how many threads of a pool are at work, and how many calls wait.

    :param counters: None to count nothing.
    """
    if counters is not None:
        counters.busy_threads.labels(pool.name).set_function(lambda: len(pool.working))
        counters.thread_queue.labels(pool.name).set_function(pool.q.qsize)


class Workers(Service):
    """Calls functions in the threads of a pool of its own.

    :param name: what the threads are for, in the log.
    :param threads: how many functions run at the same time.
    :param counters: count the threads at work, and what waits for them.
    """

    log = Logger()

    def __init__(
        self,
        reactor: IReactorFromThreads,
        name: str,
        threads: int,
        counters: Counters | None = None,
    ) -> None:
        self.name = name
        self._reactor = reactor
        self._threads = threads
        self._unfinished = 0
        self._pool = Daemons(0, threads, name=name)
        count_threads(self._pool, counters)

    def busy(self) -> tuple[int, int]:
        """How many calls wait for a thread, and how many run."""
        running = min(self._unfinished, self._threads)
        return self._unfinished - running, running

    def startService(self) -> None:
        super().startService()
        self._pool.start()

    @returns_deferred
    async def stopService(self) -> None:
        """Wait a second at most for the functions that still run."""
        super().stopService()
        ended: Deferred[None] = Deferred()

        def join() -> None:
            self._pool.stop()
            self._reactor.callFromThread(ended.callback, None)

        # Joining blocks, so another thread does it.
        Thread(target=join, name=f"end of {self.name}", daemon=True).start()
        # A stopping broker gives a second to work under way.
        ended.addTimeout(1.0, IReactorTime(self._reactor))
        try:
            await ended
        except TimedOut:
            self.log.warn("Not waiting any longer for threads: {name}.", name=self.name)

    def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """Call a function in a thread; the Deferred fires with its result."""
        self._unfinished += 1

        def finished(result: T) -> T:
            self._unfinished -= 1
            return result

        called = deferToThreadPool(self._reactor, self._pool, function, *args, **kwargs)
        return called.addBoth(finished)
