"""The methods of the store that work in portions, in several transactions: see ``portions``.

The SQL is in ``counting``, ``due``, ``due_times``, ``polls``, ``statistics`` and ``sweeping``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection
from twisted.internet.defer import Deferred

from rsscloud_broker.database.operations import Operation
from rsscloud_broker.database.threads import Threads
from rsscloud_broker.model import TopicStatus
from rsscloud_broker.model.work import Bounds, Swept
from rsscloud_broker.storage import counting, due, due_times, polls, statistics, sweeping

T = TypeVar("T")


class PortionMethods:
    """A part of ``Store``, which has these attributes."""

    _database: Threads
    _bounds: Bounds

    def _claiming(self, claim: Callable[[Connection, int], T]) -> Operation[T]:
        """See ``CheckMethods._claiming``."""
        raise NotImplementedError

    def ping_hours(self, since: float, until: float) -> Deferred[dict[int, int]]:
        return Deferred.fromCoroutine(counting.ping_hours(self._database.read, since, until))

    def measure(self) -> Deferred[dict[str, int]]:
        return Deferred.fromCoroutine(counting.measure(self._database.read))

    def prune_statistics(self, now: float, hours: int) -> Deferred[None]:
        return Deferred.fromCoroutine(statistics.prune(self._database.write, now, hours))

    def sweep(self, now: float, idle_topics_before: float, after: int = 0) -> Deferred[Swept]:
        read, write = self._database.read, self._database.write
        return Deferred.fromCoroutine(
            sweeping.sweep(read, write, now, idle_topics_before, self._bounds, after)
        )

    def make_due(self, host: str, origin: str, now: float) -> Deferred[bool]:
        read, write = self._database.read, self._database.write
        return Deferred.fromCoroutine(due.make_due(read, write, host, origin, now))

    def make_due_for_content(self, url: str, at: float) -> Deferred[bool]:
        read, write = self._database.read, self._database.write
        return Deferred.fromCoroutine(due.make_due_for_content(read, write, url, at))

    def set_back(self, seconds: float, now: float) -> Deferred[None]:
        return Deferred.fromCoroutine(due_times.set_back(self._database.write, seconds, now))

    def polls_due(self, now: float, limit: int) -> Deferred[list[TopicStatus]]:
        return Deferred.fromCoroutine(self._polls_due(now, limit))

    async def _polls_due(self, now: float, limit: int) -> list[TopicStatus]:
        """Read first, as most times nothing is due."""
        if not await self._database.read(lambda conn: polls.polls_due(conn, now, 1)):
            return []
        return await self._database.write(
            self._claiming(lambda conn, node: polls.claim_polls(conn, now, limit, node))
        )
