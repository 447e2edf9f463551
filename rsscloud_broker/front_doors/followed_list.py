"""Reads the change list of another broker again and again, and takes its pings in.

A list covers a short time: five minutes or some hours.  If it was not read for longer, since one of
the two brokers was down, the pings in between are in the other broker's hourly archives.  The store
keeps until when the list was read, and which hours are still missing, so a restart forgets nothing.

A ping is taken in once, however often it is read: it is recognised by its name, its URLs and its
time.  The time is exact if the list says it (``ts``); otherwise it follows from the age of the
ping, and two readings may differ by a minute.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
from attrs import evolve, field, frozen
from attrs.validators import and_, ge, in_, le
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import OutboundError, TooLarge, Unavailable
from rsscloud_broker.interfaces import (
    IClock,
    IFollowStore,
    IOutbound,
    IPingIntake,
    OutboundReply,
)
from rsscloud_broker.model import NO_VALIDATORS, Ping, Validators, host_of
from rsscloud_broker.records import FollowedList
from rsscloud_broker.wire.change_list import HOUR, Unit, archive_path
from rsscloud_broker.wire.change_list_reader import NotAList, ReadList, read_list
from rsscloud_broker.wire.http_dates import http_date, retry_after
from rsscloud_broker.wire.origin import site_of
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.web_address import fault_of

#: The name of a list that covers five minutes; and of the longer one, which lies beside it.
SHORT, LONG = "shortChanges.xml", "changes.xml"

#: Seconds that a list covers at least, by its name.
SHORT_COVERS, LONG_COVERS = 300.0, 3600.0

#: Seconds after the end of an hour until its archive is there, and after which an hour without an
#: archive counts as one without pings.
ARCHIVED_AFTER, EMPTY_AFTER = 120.0, 900.0

#: How many archives are read in one turn.
ARCHIVES_AT_ONCE: Final = 4

#: By how many seconds the times of one ping may differ between two readings, if the list says them
#: exactly; and beside the unit of ages, if it does not.
EXACT, ROUND = 1.0, 1.0

#: Of a list without exact times, only this much of what was read before is looked at again.
OVERLAP: Final = 600.0

#: The longest pause after failures, in seconds; by what part the pauses differ at random.
LONGEST_PAUSE, JITTER = 3600.0, 0.1

#: How many redirects are followed.
REDIRECTS: Final = 5

#: How many characters of a fault are logged: strangers cause them.
MAX_FAULT: Final = 200


def is_list(source: Any, key: attrs.Attribute[Any], url: str) -> None:
    """Require a URL that can be read, or none."""
    if url and (fault := fault_of(url)):
        raise ValueError(
            f"'{key.name}' is {url[:100]!r}, which cannot be read: {fault}; write a whole URL such "
            'as "http://broker.example/changes.xml"'
        )


def _not_empty(source: Any, key: attrs.Attribute[Any], url: str) -> None:
    if not url:
        raise ValueError(f"'{key.name}' must not be empty")


@frozen
class Source:
    """A list that is followed.

    :ivar url: the URL of the list.
    :ivar unit: the unit of ages in the list, for lists that do not say the exact times.
    :ivar every: seconds between two reads.
    :ivar archives: the URL below which its hourly archives are; empty for none.
    :ivar catch_up_hours: how far back archives are read; no older ping is taken in.
    :ivar max_pings: how many pings of one document are taken in, the newest.
    """

    url: str = field(validator=and_(_not_empty, is_list))
    unit: Unit = field(default="minutes", validator=in_(("minutes", "seconds")))
    every: float = field(default=60.0, validator=and_(ge(1), le(86_400)))
    archives: str = field(default="", validator=is_list)
    catch_up_hours: int = field(default=24, validator=and_(ge(1), le(24)))
    max_pings: int = field(default=50_000, validator=and_(ge(1), le(200_000)))

    @property
    def precision(self) -> float:
        """By how many seconds the rough times of one ping may differ between two readings."""
        return (60.0 if self.unit == "minutes" else 1.0) + ROUND

    @property
    def is_short(self) -> bool:
        """Whether a longer list lies beside it."""
        return urlsplit(self.url).path.rpartition("/")[2] == SHORT

    @property
    def longer(self) -> str:
        """The URL of the longer list."""
        return self.url.replace(SHORT, LONG)


@frozen
class FollowParts:
    """What a follower is given; see ``FrontDoorParts``."""

    intake: IPingIntake
    store: IFollowStore
    web: IOutbound
    clock: IClock
    counters: Counters
    in_thread: Any


@frozen
class _Understood:
    """A document that was read, and what is new in it.

    :ivar new: the pings with exact times that the last reading of the list had not.
    :ivar rough: the pings with rough times that may be new.
    :ivar keys: stand for all pings with exact times.
    """

    found: ReadList
    new: Sequence[Ping]
    rough: Sequence[Ping]
    keys: frozenset[int]


def _understand(read: Callable[[], ReadList], seen: frozenset[int], since: float) -> _Understood:
    """Read a document, and find out what is new in it.

    :param seen: the keys of the last reading.
    :param since: pings with rough times from before this time are not new.
    :raises NotAList: the document is not a change list.
    """
    found = read()
    keyed = {
        hash((ping.name, ping.url, ping.rss_url, ping.received_at)): ping for ping in found.exact
    }
    return _Understood(
        found,
        [ping for key, ping in keyed.items() if key not in seen],
        [ping for ping in found.rough if ping.received_at >= since],
        frozenset(keyed),
    )


class CannotRead(Exception):
    """A list or an archive cannot be read now.  The text says why, as a clause.

    :ivar retry_after: how many seconds its server asked to wait; None if it did not ask.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(clean(reason)[:MAX_FAULT])
        self.retry_after = retry_after


class ListFollower:
    """Follows one list.

    :param state: how far the list was read.
    """

    log = Logger()

    def __init__(self, source: Source, state: FollowedList, parts: FollowParts) -> None:
        self._source = source
        self._state = state
        self._parts = parts
        self._clock = parts.clock
        self._label = host_of(source.url)
        self._seen: frozenset[int] = frozenset()
        self._faulty = False
        self._run: Deferred[None] | None = None

    def start(self) -> None:
        """Begin to read."""
        self._run = Deferred.fromCoroutine(self._work())

    def stop(self) -> None:
        """Stop reading."""
        if self._run is not None:
            self._run.cancel()

    async def _work(self) -> None:
        try:
            if self._state.retry_at is not None:
                left = self._state.retry_at - self._clock.wall_seconds()
                await deferLater(self._clock, min(max(left, 0.0), LONGEST_PAUSE))
            while True:
                await deferLater(self._clock, await self._turn())
        except CancelledError:
            pass  # the service stops

    async def _turn(self) -> float:
        """Read once, and return the seconds until the next turn."""
        source = self._source
        try:
            await self._read()
            await self._catch_up()
        except CannotRead as error:
            return await self._failed(str(error), error.retry_after)
        except Unavailable as error:
            return await self._failed(str(error), None)
        except CancelledError:
            raise
        except Exception:  # log a bug; the next turn may succeed
            self.log.failure("Following {url} failed.", url=source.url)
            return await self._failed("the broker made a mistake", None)
        if self._state.failures:
            self.log.info("{url} can be read again.", url=source.url)
            await self._save(failures=0, retry_at=None)
        return source.every * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 # no secret

    async def _failed(self, reason: str, retry_after: float | None) -> float:
        """Note that a read failed, and return the seconds until the next one."""
        self._parts.counters.follow_reads.labels(self._label, "failed").inc()
        failures = self._state.failures + 1
        doubled = self._source.every * 2.0 ** min(failures - 1, 16)
        pause = max(min(doubled, LONGEST_PAUSE), retry_after or 0.0)
        if failures == 1:
            self.log.warn(
                "{url} cannot be followed: {reason}; it is tried again, next in {seconds:.0f} s.",
                url=self._source.url,
                reason=reason,
                seconds=pause,
            )
        try:
            await self._save(failures=failures, retry_at=self._clock.wall_seconds() + pause)
        except Unavailable:
            self._state = evolve(self._state, failures=failures)
        return pause * random.uniform(1, 1 + JITTER)  # noqa: S311 # no secret

    async def _save(self, **changes: Any) -> None:
        changed = evolve(self._state, **changes)
        if changed != self._state:
            await self._parts.store.record_followed(changed, self._clock.wall_seconds())
            self._state = changed

    # --- the list

    async def _read(self) -> None:
        source, state = self._source, self._state
        reply = await self._get(source.url, _conditions(state.validators))
        if reply.status == 304:
            self._parts.counters.follow_reads.labels(self._label, "unchanged").inc()
            return
        understood = await self._understood(reply, None)
        await self._take_in(understood)
        self._seen = understood.keys
        found = understood.found
        missing = self._missing(found, SHORT_COVERS if source.is_short else LONG_COVERS)
        if missing is not None and source.is_short:
            longer = await self._understood(await self._get(source.longer, {}), None)
            await self._take_in(longer)
            missing = self._missing(longer.found, LONG_COVERS)
        changes = {} if missing is None else self._noted(missing)
        validators = Validators(
            reply.headers.get("etag", "")[:1000], reply.headers.get("last-modified", "")[:100]
        )
        self._parts.counters.follow_reads.labels(self._label, "read").inc()
        await self._save(validators=validators, complete_until=found.made_at, **changes)

    def _missing(self, found: ReadList, covers: float) -> tuple[float, float] | None:
        """From when to when pings are missing; None if there is no gap since the last read."""
        before = self._state.complete_until
        if before is None or found.oldest <= before:
            return None
        begins = min(found.made_at - covers, found.oldest)
        return (before, begins) if begins > before else None

    def _noted(self, missing: tuple[float, float]) -> dict[str, Any]:
        """What to store of missing pings."""
        source, state = self._source, self._state
        first, last = (datetime.fromtimestamp(max(time, 0), UTC) for time in missing)
        if not source.archives:
            self.log.warn(
                "Pings of {url} from {first:%Y-%m-%d %H:%M} to {last:%H:%M} UTC are missing: it "
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
        earliest = int(self._since() // HOUR)
        begin, end = (int(time // HOUR) for time in missing)
        begin = begin if state.missing_from is None else min(begin, state.missing_from)
        end = end if state.missing_to is None else max(end, state.missing_to)
        begin = max(begin, earliest)
        return {"missing_from": begin, "missing_to": end} if begin <= end else {}

    def _since(self) -> float:
        """The time before which no ping is taken in."""
        return self._clock.wall_seconds() - self._source.catch_up_hours * HOUR

    # --- archives

    async def _catch_up(self) -> None:
        """Read the archives of missing hours, some at a time."""
        for _ in range(ARCHIVES_AT_ONCE):
            hour, last = self._state.missing_from, self._state.missing_to
            if hour is None or last is None:
                return
            over = self._clock.wall_seconds() - (hour + 1) * HOUR
            if over < ARCHIVED_AFTER or not await self._read_archive(hour, over):
                return
            if hour < last:
                await self._save(missing_from=hour + 1)
            else:
                await self._save(missing_from=None, missing_to=None)

    async def _read_archive(self, hour: int, over: float) -> bool:
        """Read the archive of an hour; return whether that is done with.

        :param over: for how many seconds the hour has been over.
        """
        url = "/".join((self._source.archives.rstrip("/"), *archive_path(hour)))
        reply = await self._get(url, {}, may_be_missing=True)
        if reply.status in (404, 410):
            return over >= EMPTY_AFTER
        await self._take_in(await self._understood(reply, (hour + 1) * HOUR))
        return True

    # --- documents

    async def _get(
        self, url: str, headers: dict[str, str], *, may_be_missing: bool = False
    ) -> OutboundReply:
        try:
            reply = await self._parts.web.request("GET", url, headers, redirects=REDIRECTS)
        except TooLarge as error:
            raise CannotRead(
                f"{error}; raise body_limit in [topics], or follow {SHORT} instead"
            ) from error
        except OutboundError as error:
            raise CannotRead(str(error)) from error
        is_expected = reply.status == 304 if headers else False
        if reply.success or is_expected or (may_be_missing and reply.status in (404, 410)):
            return reply
        raise CannotRead(
            f"its server answered with status {reply.status}", retry_after(reply.headers)
        )

    async def _understood(self, reply: OutboundReply, made_at: float | None) -> _Understood:
        """Read a document, in a thread.

        :param made_at: when it was made, if it does not say so; None for the answer's ``Date``.
        """
        read = partial(
            read_list,
            reply.body,
            now=self._clock.wall_seconds(),
            made_at=http_date(reply.headers.get("date", "")) if made_at is None else made_at,
            since=self._since(),
            unit=self._source.unit,
            source=site_of(self._source.url),
            limit=self._source.max_pings,
        )
        before = self._state.complete_until
        since = 0.0 if before is None or made_at is not None else before - OVERLAP
        try:
            found: _Understood = await self._parts.in_thread(_understand, read, self._seen, since)
        except NotAList as error:
            raise CannotRead(str(error)) from error
        return found

    async def _take_in(self, understood: _Understood) -> None:
        """Take in the new pings of a document."""
        found = understood.found
        counts: Counter[str] = Counter(
            invalid=found.invalid, too_old=found.too_old, too_many=found.too_many
        )
        for pings, precision in (
            (understood.new, EXACT),
            (understood.rough, self._source.precision),
        ):
            if pings:
                taken = await self._parts.intake.take_in(pings, precision)
                counts.update(attrs.asdict(taken))
        for outcome, count in counts.items():
            self._parts.counters.follows.labels(self._label, outcome).inc(count)
        self._tell_faults(found)

    def _tell_faults(self, found: ReadList) -> None:
        """Log that a document has faults, once until one has none."""
        if found.invalid and not self._faulty:
            self.log.warn(
                "{url}: {count} of {records} records are left out; the first: {fault}.",
                url=self._source.url,
                count=found.invalid,
                records=found.invalid + found.records + found.too_old + found.too_many,
                fault=clean(found.fault)[:MAX_FAULT],
            )
        self._faulty = bool(found.invalid)


def _conditions(validators: Validators) -> dict[str, str]:
    """The headers of a conditional request (RFC 9110, section 13.1)."""
    if validators == NO_VALIDATORS:
        return {}
    headers = {"if-none-match": validators.etag, "if-modified-since": validators.last_modified}
    return {
        name: value
        for name, value in headers.items()
        if value.isascii() and value.isprintable() and value
    }
