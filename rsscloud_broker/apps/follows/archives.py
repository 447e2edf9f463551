"""Reads the archives of hours in which a list was not read.

An archive that cannot be read does not keep the others, nor the list, from being read: it is tried
again after pauses of its own, and given up when its hour is older than pings may be.

After an outage the other broker may have to catch up as well, and put pings of these hours into its
archives meanwhile.  So all are read once more after a while.
"""

from __future__ import annotations

from collections import Counter

from twisted.logger import Logger

from rsscloud_broker.apps.follows.documents import (
    CannotRead,
    FollowParts,
    SourceDocuments,
    pause_after,
)
from rsscloud_broker.apps.follows.options import Source
from rsscloud_broker.model import host_of
from rsscloud_broker.wire.change_list import archive_path
from rsscloud_broker.wire.units import HOUR

#: Seconds after the end of an hour until its archive is there, and after which an hour without an
#: archive counts as one without pings.
ARCHIVED_AFTER, EMPTY_AFTER = 120.0, 900.0


class MissingHours:
    """Reads the archives of missing hours, some at a time, and remembers which are done."""

    log = Logger()

    def __init__(self, source: Source, documents: SourceDocuments, parts: FollowParts) -> None:
        self._source = source
        self._documents = documents
        self._clock = parts.clock
        self._failed_reads = parts.counters.follow_reads.labels(host_of(source.url), "failed")
        # Which missing hours are done, and how often each could not be read.
        self._done: set[int] = set()
        self._failed_times: Counter[int] = Counter()
        # How many reads in a row failed, and when the next one may be.
        self._failures = 0
        self._not_before = 0.0
        # The first hour that was missing since all hours were done last.
        self._first_missing: int | None = None
        # The first and the last hour to read a second time, and when; whether it reads them now.
        self._second_look: tuple[int, int, float] | None = None
        self._is_second_look = False

    @property
    def earliest(self) -> int:
        """The first hour whose pings are still taken in, counted since the epoch."""
        return int(self._documents.since // HOUR)

    async def read_some(self, first: int, last: int) -> tuple[int, int] | None:
        """Read the archives of some missing hours.

        :param first, last: the first and the last missing hour, counted since the epoch.
        :returns: the first and the last hour that are missing now; None if none are.
        :raises Unavailable: their pings cannot be stored.
        """
        if self._first_missing is None or first < self._first_missing:
            self._first_missing = first
        first = self._give_up_old(first, last)
        for hour in self._hours_to_read(first, last):
            if self._clock.seconds() < self._not_before:
                break
            try:
                if await self._read(hour):
                    self._done.add(hour)
            except CannotRead as error:
                self._record_failure(hour, error)
                break
            self._failures = 0
        while first in self._done:
            first += 1
        if first <= last:
            return first, last
        if not self._is_second_look:
            # Seconds after which the archives are read once more.
            self._second_look = self._first_missing, last, self._clock.seconds() + 900.0
        self._first_missing, self._is_second_look = None, False
        self._failures, self._not_before = 0, 0.0
        self._done.clear()
        self._failed_times.clear()
        return None

    def begin_second_look(self) -> tuple[int, int] | None:
        """Begin to read hours once more if it is time; returns the first and the last; or None."""
        if self._second_look is None:
            return None
        first, last, begins_at = self._second_look
        if self._clock.seconds() < begins_at:
            return None
        self._second_look, self._is_second_look = None, True
        return max(first, self.earliest), last

    def _give_up_old(self, first: int, last: int) -> int:
        """Give up the hours that are too old; returns the first other one, or ``last + 1``."""
        begin = min(max(first, self.earliest), last + 1) if self._source.archives else last + 1
        if lost := [hour for hour in range(first, begin) if hour not in self._done]:
            self.log.warn(
                "{url}: archives could not be read until they were too old ({count}); their pings "
                "are missing.",
                url=self._source.url,
                count=len(lost),
            )
        return begin

    def _hours_to_read(self, first: int, last: int) -> list[int]:
        """The hours to read in this turn, those first that have failed least."""
        now = self._clock.wall_seconds()
        hours = [
            hour
            for hour in range(first, last + 1)
            if hour not in self._done and now - (hour + 1) * HOUR >= ARCHIVED_AFTER
        ]
        # How many archives are read in one turn.
        return sorted(hours, key=lambda hour: (self._failed_times[hour], hour))[:4]

    async def _read(self, hour: int) -> bool:
        """Read the archive of an hour; returns whether that is done: False if it may still come."""
        url = "/".join((self._source.archives.rstrip("/"), *archive_path(hour)))
        end = (hour + 1.0) * HOUR
        reply = await self._documents.get(url, {}, may_be_missing=True)
        if reply.status in (404, 410):
            return self._clock.wall_seconds() - end >= EMPTY_AFTER
        await self._documents.take_in(reply, made_at=end)
        return True

    def _record_failure(self, hour: int, error: CannotRead) -> None:
        """Count that an archive cannot be read, pause the reads, and log it the first time."""
        self._failed_reads.inc()
        self._failures += 1
        self._failed_times[hour] += 1
        pause = pause_after(self._failures, self._source.every, error.retry_after)
        self._not_before = self._clock.seconds() + pause
        if self._failed_times[hour] == 1:
            self.log.warn(
                "{url}: the archive {archive} cannot be read: {reason}; it is tried again, until "
                "it is {hours} hours old.",
                url=self._source.url,
                archive="/".join(archive_path(hour)),
                reason=str(error),
                hours=self._source.catch_up_hours,
            )
