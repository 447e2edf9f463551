"""What pages may read: views of the broker's data that change nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from zope.interface import Interface

from rsscloud_broker.log_entries import LogEntry, LogFilter


class IEventLog(Interface):
    """The event log, for reading.

    If a filter names a topic or a host and anything else, only the next 10,000 entries of that
    topic or host are searched.
    """

    def entries(wanted: LogFilter, before: int | None, limit: int) -> Awaitable[Sequence[LogEntry]]:
        """The newest entries that pass a filter, newest first.

        :param before: only entries with a smaller id, to go on after the last one of the previous
            call; None at first.
        :raises Unavailable: the store cannot be read.
        """

    def entries_after(wanted: LogFilter, after: int, limit: int) -> Awaitable[Sequence[LogEntry]]:
        """The oldest entries with a greater id that pass a filter, oldest first.

        Whoever goes on after the greatest id of one call misses no entry: an entry is returned
        only when no entry with a smaller id can appear any more.

        :raises Unavailable: the store cannot be read.
        """
