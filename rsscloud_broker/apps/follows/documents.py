"""Reads change lists and hourly archives of another broker, and takes their pings in.

A ping is taken in once, however often it is read: it is recognised by its name, its URLs and its
time.  The time is exact if the list says it (``ts``); otherwise it follows from the age of the
ping, and two readings may differ by a minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import attrs
from attrs import frozen
from twisted.logger import Logger

from rsscloud_broker import interfaces
from rsscloud_broker.apps.follows.options import SHORT, Source
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import DocumentFault, OutboundError, TooLarge
from rsscloud_broker.model import host_of
from rsscloud_broker.util.backoff import backoff
from rsscloud_broker.wire.change_list_reader import ReadList, read_list
from rsscloud_broker.wire.http_dates import http_date, retry_after
from rsscloud_broker.wire.origin import site_of
from rsscloud_broker.wire.text import charset_of, clean
from rsscloud_broker.wire.units import HOUR
from rsscloud_broker.wire.web_address import REDIRECTS

#: The longest pause after failures, in seconds; by what part the pauses differ at random.
LONGEST_PAUSE, JITTER = 3600.0, 0.1

#: How many characters of a fault are logged: strangers cause them.
MAX_FAULT: Final = 200

#: By how many seconds the times of one ping may differ between two readings: if the list says the
#: times exactly; and, added to the unit of its ages (``_UNITS``), if it does not.
EXACT, ROUNDING = 1.0, 1.0

_UNITS: Final = {"minutes": 60.0, "seconds": 1.0}


@frozen
class FollowParts:
    """What a follower is given; see ``FrontDoorParts``."""

    intake: interfaces.IPingIntake
    store: interfaces.IFollowStore
    web: interfaces.IOutbound
    clock: interfaces.IClock
    counters: Counters
    parse: interfaces.Parsing


class CannotRead(Exception):
    """A list or an archive cannot be read now.  The text says why, as a clause.

    :ivar retry_after: how many seconds its server asked to wait; None if it did not ask.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(clean(reason)[:MAX_FAULT])
        self.retry_after = retry_after


def pause_after(failures: int, first: float, asked: float | None) -> float:
    """Seconds until a read that failed is tried again.  They double with each failure.

    :param failures: how many reads in a row have failed, with this one.
    :param first: the pause after the first failure.
    :param asked: how many seconds the server asked to wait; None if it did not ask.
    """
    return max(backoff(first, failures - 1, LONGEST_PAUSE), asked or 0.0)


class SourceDocuments:
    """Reads the documents of one source."""

    log = Logger()

    def __init__(self, source: Source, parts: FollowParts) -> None:
        self._source = source
        self._parts = parts
        self._label = host_of(source.url)
        parts.counters.begin_source(self._label)
        # Whether the last document had faults, or a clock ahead of ours: those are logged once.
        self._faulty = self._ahead = False

    @property
    def since(self) -> float:
        """The time before which no ping is taken in."""
        return self._parts.clock.wall_seconds() - self._source.catch_up_hours * HOUR

    async def get(
        self, url: str, headers: Mapping[str, str], *, may_be_missing: bool = False
    ) -> interfaces.OutboundReply:
        """Request a document.

        :param headers: those of a conditional request, or none.
        :param may_be_missing: whether an answer may say that the document does not exist.
        :returns: an answer with a document; one with status 304 if the request was conditional; or
            one with status 404 or 410 if that is allowed.
        :raises CannotRead: there is no such answer.
        """
        try:
            reply = await self._parts.web.request(
                interfaces.OutboundRequest("GET", url, headers, redirects=REDIRECTS)
            )
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

    async def _read(self, reply: interfaces.OutboundReply, made_at: float | None) -> ReadList:
        """Read a document; ``CannotRead`` if it is not a change list."""
        try:
            return await self._parts.parse(
                self._label,
                read_list,
                reply.body,
                now=self._parts.clock.wall_seconds(),
                made_at=made_at,
                date=http_date(reply.headers.get("date", "")),
                since=self.since,
                unit=self._source.unit,
                source=site_of(self._source.url),
                # How many pings of one document are taken in, the newest: as many as our own lists
                # have.
                limit=50_000,
                charset=charset_of(reply.headers.get("content-type", "")),
            )
        except DocumentFault as error:
            raise CannotRead(str(error)) from error

    async def take_in(
        self,
        reply: interfaces.OutboundReply,
        *,
        made_at: float | None = None,
        seen: frozenset[int] = frozenset(),
        complete_until: float | None = None,
    ) -> tuple[ReadList, frozenset[int]]:
        """Read a document, take in its new pings, count them, and log its faults.

        :param made_at: see ``read_list``.
        :param seen: the keys of the last reading of the same list.
        :param complete_until: the time until which its pings were taken in; None to take in all.
        :returns: the document; and the keys of its pings with exact times, by which the next
            reading recognises these.
        :raises CannotRead: it is not a change list.
        :raises Unavailable: see ``IPingIntake.take_in``.
        """
        found = await self._read(reply, made_at)
        keyed = {
            hash((ping.name, ping.url, ping.rss_url, ping.received_at)): ping
            for ping in found.exact
        }
        new = [ping for key, ping in keyed.items() if key not in seen]
        # Pings without exact times are taken for new if they are not older than ten minutes before
        # the last reading; or before this list was made, if the clock of its server was set back.
        since = 0.0 if complete_until is None else min(complete_until, found.made_at) - 600.0
        rough = [ping for ping in found.rough if ping.received_at >= since]
        # By how many seconds the time of a ping may differ between two readings if its list gives
        # an age alone.  Ages count from when the list was made; if nothing says when that was, it
        # may be a minute old.
        tolerance = _UNITS[self._source.unit] + ROUNDING + (0.0 if found.is_dated else 60.0)
        counts: Counter[str] = Counter(
            invalid=found.invalid, too_old=found.too_old, too_many=found.too_many
        )
        for pings, precision in ((new, EXACT), (rough, tolerance)):
            if pings:
                taken = await self._parts.intake.take_in(pings, precision)
                counts.update(attrs.asdict(taken))
        for outcome, count in counts.items():
            self._parts.counters.follows.labels(self._label, outcome).inc(count)
        self._log_faults(found)
        return found, frozenset(keyed)

    def _log_faults(self, found: ReadList) -> None:
        """Log what is wrong with a document, once until it is right again."""
        if found.invalid and not self._faulty:
            self.log.warn(
                "{url}: {count} of {records} records are left out; the first: {fault}.",
                url=self._source.url,
                count=found.invalid,
                records=found.invalid + found.records + found.too_old + found.too_many,
                fault=clean(found.fault)[:MAX_FAULT],
            )
        if found.ahead and not self._ahead:
            self.log.warn(
                "{url}: the clock of its server is {seconds:.0f} s ahead of this one; the times of "
                "its pings are corrected.",
                url=self._source.url,
                seconds=found.ahead,
            )
        self._faulty, self._ahead = bool(found.invalid), bool(found.ahead)
