"""Reads the change list of another broker again and again, and takes its pings in.

A list covers a short time: five minutes or some hours.  If it was not read for longer, since one of
the two brokers was down, the pings in between are in the other broker's hourly archives.  The store
keeps until when the list was read, and which hours are still missing, so a restart forgets nothing.

``documents`` says how a document is read, and ``archives`` how the hours are completed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker.apps.follows.archives import MissingHours
from rsscloud_broker.apps.follows.documents import (
    JITTER,
    LONGEST_PAUSE,
    CannotRead,
    FollowParts,
    SourceDocuments,
    pause_after,
)
from rsscloud_broker.apps.follows.options import Source
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.model import Validators, host_of
from rsscloud_broker.model.shared import FollowedList
from rsscloud_broker.simplefeed.errors import Stopped
from rsscloud_broker.simplefeed.waiting import Waiting
from rsscloud_broker.util.urls import joined
from rsscloud_broker.wire import links
from rsscloud_broker.wire.change_list_reader import AHEAD, ReadList
from rsscloud_broker.wire.conditional import conditions
from rsscloud_broker.wire.http_dates import http_date
from rsscloud_broker.wire.units import HOUR

#: Seconds that a list covers at least, by its name.
SHORT_COVERS, LONG_COVERS = 300.0, 3600.0


class ListFollower:
    """Follows one list.

    :ivar url: the URL of the list.
    :ivar is_pushed: whether it is also read when its hub says that it has changed.
    :ivar hub: see ``Pushed``.
    """

    log = Logger()

    def __init__(self, source: Source, parts: FollowParts) -> None:
        self.url, self.is_pushed = source.url, source.push
        # The hub, and the URL by which the hub knows the list; None as long as it is unknown.
        self.hub: tuple[str, str] | None = None
        self._source = source
        self._state = FollowedList(source.url)
        self._parts = parts
        self._clock = parts.clock
        self._label = host_of(source.url)
        self._documents = SourceDocuments(source, parts)
        self._missing_hours = MissingHours(source, self._documents, parts)
        # The keys of the pings of the last read: see ``SourceDocuments.take_in``.  And until when
        # the list is complete here, which ``_state`` has too, but not after answers with 304.
        self._seen: frozenset[int] = frozenset()
        self._complete_until: float | None = None
        self._waits = Waiting(parts.clock)  # the pauses between reads, which ``hint`` ends
        self._run: Deferred[None] | None = None

    def start(self, state: FollowedList) -> None:
        """Begin to read.

        :param state: how far the list was read.
        """
        self._state, self._complete_until = state, state.complete_until
        self._waits = Waiting(self._clock)
        self._run = Deferred.fromCoroutine(self._work())

    def stop(self) -> None:
        """Stop reading."""
        self._waits.stop()
        if self._run is not None:
            self._run.cancel()

    async def _work(self) -> None:
        """Read the list again and again until the service stops."""
        try:
            if self._state.retry_at is not None:
                left = self._state.retry_at - self._clock.wall_seconds()
                await deferLater(self._clock, min(max(left, 0.0), LONGEST_PAUSE))
            while True:
                self._waits.hinted = False
                pause = await self._take_turn()
                if not self._waits.hinted or self._state.failures:
                    await self._waits.sleep(pause, hints=not self._state.failures)
        except (CancelledError, Stopped):
            pass  # the service stops

    def hint(self) -> None:
        """Read the list now, since it has probably changed; after a failure the pause goes on."""
        self._waits.hint()

    async def _take_turn(self) -> float:
        """Read the list and some archives once, and return the seconds until the next turn."""
        source = self._source
        try:
            await self._read()
            await self._catch_up()
            if self._state.failures:
                await self._save(failures=0, retry_at=None)
                self.log.info("{url} can be read again.", url=source.url)
        except CannotRead as error:
            return await self._record_failure(str(error), error.retry_after)
        except Unavailable as error:
            return await self._record_failure(str(error), None)
        except CancelledError:
            raise
        except Exception:  # log a bug; the next turn may succeed
            self.log.failure("Following {url} failed.", url=source.url)
            return await self._record_failure("the broker made a mistake", None)
        return source.every * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 # no secret

    async def _record_failure(self, reason: str, retry_after: float | None) -> float:
        """Count, log and store that a read failed; returns the seconds until the next one."""
        self._parts.counters.follow_reads.labels(self._label, "failed").inc()
        failures = self._state.failures + 1
        pause = pause_after(failures, self._source.every, retry_after)
        if failures == 1:
            self.log.warn(
                "{url} cannot be followed: {reason}; it is tried again, next in {seconds:.0f} s.",
                url=self._source.url,
                reason=reason,
                seconds=pause,
            )
        try:
            await self._save(failures=failures, retry_at=self._clock.wall_seconds() + pause)
        except CancelledError:
            raise
        except Exception as error:
            if not isinstance(error, Unavailable):  # log a bug
                self.log.failure("How far {url} was read is not stored.", url=self._source.url)
            self._state = evolve(self._state, failures=failures)
        return pause * random.uniform(1, 1 + JITTER)  # noqa: S311 # no secret

    async def _save(self, **changes: Any) -> None:
        """Store changes of the state, if there are any; ``_state`` changes if that succeeds."""
        changed = evolve(self._state, **changes)
        if changed != self._state:
            await self._parts.store.record_followed(changed, self._clock.wall_seconds())
            self._state = changed

    async def _read(self) -> None:
        """Read the list once, take its pings in, and store what is missing since the last read."""
        source, state, documents = self._source, self._state, self._documents
        known = state.validators
        reply = await documents.get(source.url, conditions(known.etag, known.last_modified))
        self.hub = hub_named(reply.headers, reply.url or source.url)
        if reply.status == 304:
            self._parts.counters.follow_reads.labels(self._label, "unchanged").inc()
            self._note_unchanged(reply.headers)
            return
        found, self._seen = await documents.take_in(
            reply, seen=self._seen, complete_until=state.complete_until
        )
        missing = self._find_gap(found, SHORT_COVERS if source.is_short else LONG_COVERS)
        if missing is not None and source.is_short:
            missing = await self._narrow_gap(missing)
        changes = {} if missing is None else self._hours_to_store(missing)
        validators = Validators(
            reply.headers.get("etag", "")[:1000], reply.headers.get("last-modified", "")[:100]
        )
        self._parts.counters.follow_reads.labels(self._label, "read").inc()
        await self._save(validators=validators, complete_until=found.made_at, **changes)
        self._complete_until = found.made_at

    def _note_unchanged(self, headers: Mapping[str, str]) -> None:
        """Note that the list is complete here until now, since it is the one that was read.

        That is not stored: after a restart some archives may be read for nothing.
        """
        now = self._clock.wall_seconds()
        said = http_date(headers.get("date", ""))
        if self._complete_until is not None:
            until = now if said is None or said > now + AHEAD else said
            self._complete_until = max(self._complete_until, until)

    async def _narrow_gap(self, missing: tuple[float, float]) -> tuple[float, float] | None:
        """Take in the pings of the longer list, if there is one, to fill a gap.

        :param missing: from when to when pings are missing.
        :returns: from when to when pings are missing now; None if none are.
        """
        reply = await self._documents.get(self._source.longer, {}, may_be_missing=True)
        if not reply.success:
            return missing
        until = self._state.complete_until
        longer, _ = await self._documents.take_in(reply, complete_until=until)
        return self._find_gap(longer, LONG_COVERS)

    def _find_gap(self, found: ReadList, covers: float) -> tuple[float, float] | None:
        """From when to when pings are missing; None if there is no gap since the last read.

        :param covers: how many seconds the list covers, even if its records do not show it.
        """
        if self._complete_until is None:
            return None
        # A clock that was ahead at the last read may have been set right.
        before = min(self._complete_until, self._clock.wall_seconds() + AHEAD)
        begins = found.reaches
        if not found.too_many:
            begins = min(begins, found.made_at - covers)
        return (before, begins) if begins > before else None

    def _hours_to_store(self, missing: tuple[float, float]) -> dict[str, Any]:
        """Log a gap, and return the hours to store as missing, as changes of ``FollowedList``.

        Empty if no archives help.
        """
        source, state = self._source, self._state
        first, last = (datetime.fromtimestamp(max(time, 0), UTC) for time in missing)
        if not source.archives:
            self.log.warn(
                "Pings of {url} from {first:%Y-%m-%d %H:%M} to {last:%H:%M} UTC may be missing: it "
                "was not read in between, and no archives are configured for it.",
                url=source.url,
                first=first,
                last=last,
            )
            return {}
        self.log.info(
            "{url} was not read from {first:%Y-%m-%d %H:%M} to {last:%H:%M} UTC: its archives of "
            "that time are read.",
            url=source.url,
            first=first,
            last=last,
        )
        begin, end = (int(time // HOUR) for time in missing)
        begin = begin if state.missing_from is None else min(begin, state.missing_from)
        end = end if state.missing_to is None else max(end, state.missing_to)
        begin = max(begin, self._missing_hours.earliest)
        return {"missing_from": begin, "missing_to": end} if begin <= end else {}

    async def _catch_up(self) -> None:
        """Read some archives of missing hours, and store which hours are missing then."""
        first, last = self._state.missing_from, self._state.missing_to
        if first is None:
            first, last = self._missing_hours.begin_second_look() or (None, None)
        if first is not None and last is not None:
            first, last = await self._missing_hours.read_some(first, last) or (None, None)
            await self._save(missing_from=first, missing_to=last)


def hub_named(headers: Mapping[str, str], url: str) -> tuple[str, str] | None:
    """The hub that the headers of an answer name, if any, and the URL by which it knows ``url``."""
    found = links.parse_or_empty(headers.get("link", ""))
    hub, own = next(iter(links.targets(found, "hub")), ""), links.targets(found, "self")
    hub = hub and joined(url, hub)
    return (hub, joined(url, next(iter(own), url)) or url) if hub else None
