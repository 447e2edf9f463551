"""The archive sink: writes the pings of each hour to a file, as a change list.

The archive of an hour is ``YYYY/MM/DD/HH.xml``, in UTC, where HH runs from 01 to 24: the hour that
begins at 00:00 is 01, the one that begins at 23:00 is 24 of the same day.  Ages in it are counted
to the end of that hour.  An hour without a ping has no archive.

The sink writes an archive if the store has more pings of that hour than the archive says it holds.
So a restart in the middle of an hour loses nothing and repeats nothing, and an archive is written
again if pings of its hour were committed late, or were taken in later from another broker.  An
archive is only ever replaced by one that holds more, so it stays when the pings of its hour are
deleted from the store.

If several nodes share a database, one of them writes an archive for all.  If it dies before
it is done, another one continues from the time since when the job was not done.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from attrs import field, frozen, validators
from twisted.python.filepath import FilePath
from zope.interface import implementer

from rsscloud_broker.events import Event, PingsTakenIn
from rsscloud_broker.interfaces import IEventSink, SinkParts
from rsscloud_broker.sinks import files
from rsscloud_broker.util.cluster_jobs import PeriodicClusterJob, old_by
from rsscloud_broker.wire.change_list import Unit, archive_path
from rsscloud_broker.wire.units import HOUR

#: How many pings are deleted at a time.
_PORTION: Final = 1000

#: How many past hours are checked each minute, for pings that are committed later still.
_LOOK_BACK: Final = 2


@frozen
class ArchiveOptions:
    """Options of the archive sink.

    :ivar keep_hours: hours for which a ping stays in the database after it was archived; at
        least 24, since ``changes.xml`` may reach back that far.
    :ivar unit: what ``when`` counts: ``minutes`` or ``seconds``.
    """

    keep_hours: int = field(
        default=168, validator=validators.and_(validators.ge(24), validators.le(876_000))
    )
    unit: Unit = field(default="minutes", validator=validators.in_(("minutes", "seconds")))


@implementer(IEventSink)
class ArchiveSink(PeriodicClusterJob):
    """Writes the archives that are missing, and deletes old pings that are archived.

    It works at its start and then each minute, so an hour that could not be archived, because
    the disk was full for instance, is tried again until it can be.
    """

    name = "archive"
    handles: tuple[type[Event], ...] = (PingsTakenIn,)

    def __init__(self, options: ArchiveOptions, parts: SinkParts) -> None:
        super().__init__(
            parts.clock,
            60,
            self._archive_and_prune,
            parts.store,
            name=self.name,
            # The sink works five seconds after each full minute: by then a ping that arrived at
            # the end of an hour is most likely committed.
            after=5,
            at_start=True,
        )
        self._parts = parts
        self._options = options
        self._look_from = 0  # an hour; all hours before it are archived
        self._pruned_to = 0  # an hour; the pings of all hours before it were deleted last

    async def handle(self, event: Event) -> None:
        """Look at past hours again, as pings of these hours were taken in.

        The event is only a hint: what it reports is found before the pings are deleted at the
        latest.
        """
        if isinstance(event, PingsTakenIn):
            self.want(event.oldest)

    async def _archive_and_prune(self, due_at: float) -> None:
        """Write the missing archives, and delete pings that were archived long ago.

        :param due_at: when this was due, or the time of older pings that were taken in.
        """
        now = self._parts.clock.wall_seconds()
        this_hour = int(now // HOUR)
        # Hours that this node has not looked at, or that no node has.
        first = min(self._look_from, int(due_at // HOUR) - _LOOK_BACK)
        self._look_from = this_hour - _LOOK_BACK
        try:
            await self._write_missing(first, this_hour)
        except Exception:
            self._look_from = min(first, self._look_from)  # none of these hours is left out
            raise
        keep_from = int(old_by(now, due_at) // HOUR) - self._options.keep_hours
        if keep_from != self._pruned_to:  # it is less after the clock was set back
            # Compare with their archives once more what is about to be deleted.
            await self._write_missing(0, keep_from)
            await self.in_portions(partial(self._prune, keep_from * HOUR))
            self._pruned_to = keep_from

    async def _prune(self, before: float) -> bool:
        """Delete some of the pings from before a time; returns whether there may be more."""
        removed: int = await self._parts.store.prune_pings(before, _PORTION)
        return removed == _PORTION

    async def _write_missing(self, first: int, end: int) -> None:
        """Write the missing archives of the hours from ``first`` to before ``end``."""
        parts = self._parts
        stored = await parts.store.ping_hours(first * HOUR, end * HOUR)
        names = {hour: files.name_of(parts, self._target(hour)) for hour in stored}
        documents = await parts.store.shared_documents(list(names.values()))
        shared = {one.name: one.records for one in documents}
        for hour, records in sorted(stored.items()):
            target = self._target(hour)
            archived = shared.get(names[hour])
            if archived is None:
                archived = await parts.in_thread(files.records_in, target)
            if archived is None or archived < records:
                await self._write_archive(hour, target)

    async def _write_archive(self, hour: int, target: FilePath[str]) -> None:
        """Write the archive of an hour, and publish it on all nodes."""
        parts = self._parts
        async with files.drafted(parts, target) as draft:
            listed = await files.write_change_list(
                parts,
                draft,
                hour * HOUR,
                (hour + 1) * HOUR,
                unit=self._options.unit,
                count=parts.store.count_pings,
            )
            await files.publish_draft(parts, draft, target, job=self.name, records=listed)
        files.tell_published(parts, target)

    def _target(self, hour: int) -> FilePath[str]:
        return self._parts.public_directory.descendant(archive_path(hour))
