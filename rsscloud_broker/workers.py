"""Threads for work that would block the reactor, one set for each kind of work.

Work of one kind that hangs (a name server, a slow disk) fills its own threads
and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

P = ParamSpec("P")
T = TypeVar("T")


class Workers(Service):
    """Calls functions in threads.

    :param name: what these threads are for.
    :param threads: how many functions run at the same time.
    """

    def __init__(self, reactor: IReactorFromThreads, name: str, threads: int) -> None:
        self.name = name
        self._reactor = reactor
        self._pool = ThreadPool(0, threads, name=name)

    def startService(self) -> None:
        super().startService()
        self._pool.start()

    def stopService(self) -> None:
        super().stopService()
        self._pool.stop()

    def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """The result of a function that is called in a thread."""
        return deferToThreadPool(self._reactor, self._pool, function, *args, **kwargs)
