"""Hourly archives: every ping ever received, one change list for each hour.

The archive of an hour lies at ``YYYY/MM/DD/HH.xml``, in UTC, where HH runs from
01 to 24: the hour that begins at 00:00 is 01, the one that begins at 23:00 is
24 of the same day.  Ages in it are counted to the end of that hour.  An hour
without a ping has no archive.

What is to be made is found by comparing two numbers: how many records an hour
has in the store, and how many its archive says it holds.  So a restart in the
middle of an hour loses nothing and repeats nothing, and an hour whose last
pings were committed late is made again.  An archive is only ever replaced by
one that holds more: when an hour has been pruned from the store, or is being
pruned, its archive stays.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from attrs import field, frozen, validators
from twisted.python.filepath import FilePath
from zope.interface import implementer

from rsscloud_broker.events import Event
from rsscloud_broker.interfaces import IEventSink, SinkParts
from rsscloud_broker.sinks.files import publish_change_list, records_in
from rsscloud_broker.timing import EachPeriod
from rsscloud_broker.wire.change_list import Unit

HOUR: Final = 3600

#: Seconds after each full minute: a ping that arrived at the end of an hour is
#: most likely committed by then.
_AFTER: Final = 5

#: A commit may come later still: so many closed hours are looked at each time.
_LOOK_BACK: Final = 2


@frozen
class ArchiveOptions:
    """What can be set of the archives.

    :ivar keep_hours: how long a ping stays in the database once it is in an
        archive; at least 24, since ``changes.xml`` may reach back that far.
    :ivar unit: what ``when`` counts: ``minutes`` or ``seconds``.
    """

    keep_hours: int = field(default=168, validator=validators.ge(24))
    unit: Unit = field(default="minutes", validator=validators.in_(("minutes", "seconds")))


def archive_path(hour: int) -> tuple[str, ...]:
    """Where the archive of an hour lies, below the public directory.

    :param hour: whole hours since the epoch.
    """
    day = datetime.fromtimestamp(hour * HOUR, UTC)
    return (f"{day:%Y}", f"{day:%m}", f"{day:%d}", f"{day.hour + 1:02}.xml")


@implementer(IEventSink)
class ArchiveSink(EachPeriod):
    """Makes the archives that are missing, and prunes what has long been in one.

    It looks when it starts and then each minute: an hour that could not be
    archived, with a full disk say, is tried again until it can.
    """

    handles: tuple[type[Event], ...] = ()

    def __init__(self, options: ArchiveOptions, parts: SinkParts) -> None:
        super().__init__(parts.clock, 60, self._look, name="archive", after=_AFTER, at_start=True)
        self._parts = parts
        self._options = options
        self._look_from = 0  # moves on only when every hour before it is archived
        self._pruned_to = 0

    async def handle(self, event: Event) -> None:
        """Nothing to do: the next minute finds it in the store."""

    async def _look(self) -> None:
        this_hour = int(self._parts.clock.wall_seconds() // HOUR)
        await self._archive(self._look_from, this_hour)
        self._look_from = this_hour - _LOOK_BACK
        keep_from = this_hour - self._options.keep_hours
        if keep_from > self._pruned_to:
            # Whatever is about to go is compared with its archive once more.
            await self._archive(0, keep_from)
            await self._parts.store.prune_pings(keep_from * HOUR)
            self._pruned_to = keep_from

    async def _archive(self, first: int, end: int) -> None:
        """Make what is missing of the hours from ``first`` to before ``end``."""
        stored = await self._parts.store.ping_hours(first * HOUR, end * HOUR)
        for hour, records in sorted(stored.items()):
            target = self._target(hour)
            archived = await self._parts.in_thread(records_in, target)
            if archived is None or archived < records:
                await publish_change_list(
                    self._parts,
                    target,
                    hour * HOUR,
                    (hour + 1) * HOUR,
                    unit=self._options.unit,
                    count=await self._parts.store.count_pings(),
                )

    def _target(self, hour: int) -> FilePath[str]:
        return self._parts.public_directory.descendant(archive_path(hour))
