"""Reads the event log from the store, for pages."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import DeferredSemaphore
from zope.interface import implementer

from rsscloud_broker.interfaces import IEventLog
from rsscloud_broker.model.log_entry import LogEntry, LogFilter
from rsscloud_broker.storage import Store


@implementer(IEventLog)
class EventLog:
    """The event log in the store, for reading.

    Reads of pages run one after the other.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # One read at a time.  The store has few threads that read, and deliveries need them too;
        # but anybody may read the log as often as they like.
        self._turns = DeferredSemaphore(1)

    async def entries(
        self, wanted: LogFilter, before: int | None, limit: int
    ) -> Sequence[LogEntry]:
        await self._turns.acquire()
        try:
            return await self._store.log_entries(wanted, before, limit)
        finally:
            self._turns.release()

    async def entries_after(self, wanted: LogFilter, after: int, limit: int) -> Sequence[LogEntry]:
        return await self._store.log_entries_after(wanted, after, limit)
