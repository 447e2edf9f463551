"""Reads the change lists of other brokers: ``changes.xml``, ``shortChanges.xml``, hourly archives.

``change_list`` describes the format.  A ping in such a list has its age in ``when``, counted from
the time at which the list was made.  weblogs.com counted seconds, and the description in "RSS Feed
State" says minutes, so a reader has to know.  A list of this broker also has the exact time, in
``ts``, and the brokers that the ping has passed before, in ``via``.

Strangers write these documents.  So the document is parsed as all XML from strangers is; a faulty
record is left out and counted, and does not keep the others from being read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from attrs import field, frozen

from rsscloud_broker.errors import DocumentFault
from rsscloud_broker.model import Ping
from rsscloud_broker.wire import xml
from rsscloud_broker.wire.change_list import SECONDS_IN, Unit
from rsscloud_broker.wire.http_dates import http_date
from rsscloud_broker.wire.origin import BadOrigin, extended, read_origin, read_time
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.web_address import MAX_URL, fault_of

#: Seconds by which the clock of another server may be ahead.
AHEAD: Final = 300.0

_AGE: Final = re.compile(r"[0-9]{1,9}")

_Attributes: TypeAlias = Mapping[str, str]


class NotAList(DocumentFault):
    """A document is not a change list.  The text says what is wrong with it, as a clause."""


@frozen
class ReadList:
    """What a change list says.

    :ivar made_at: when the list was made, by the clock of its server, unless that is ahead.
    :ivar is_dated: whether the list or its server says when it was made.
    :ivar ahead: by how many seconds the clock of its server is ahead, if that is more than
        ``AHEAD``; then all times are corrected.  Else 0.
    :ivar exact: the pings whose times are exact to a second, newest first.
    :ivar rough: the pings whose times are exact to the unit of their age, newest first.
    :ivar reaches: the time since which the list seems to have all pings, by the times of those
        that were read; ``made_at`` if it has none.
    :ivar too_old: how many records are older than what was asked for.
    :ivar too_many: how many records were left out since there are too many; the oldest.
    :ivar invalid: how many records have faults.
    :ivar fault: the first of these faults, for people; empty if there is none.
    """

    made_at: float
    exact: tuple[Ping, ...] = field(repr=False)
    rough: tuple[Ping, ...] = field(repr=False)
    reaches: float
    is_dated: bool = True
    ahead: float = 0.0
    too_old: int = 0
    too_many: int = 0
    invalid: int = 0
    fault: str = ""

    @property
    def records(self) -> int:
        """How many pings were read."""
        return len(self.exact) + len(self.rough)


def read_list(
    document: bytes,
    *,
    now: float,
    made_at: float | None,
    date: float | None,
    since: float,
    unit: Unit,
    source: str,
    limit: int,
    charset: str | None = None,
) -> ReadList:
    """Read a change list.

    :param now: the time; records from later than ``AHEAD`` seconds after it are faulty.
    :param made_at: when the list was made, if it does not say so itself: the end of the hour of an
        archive.  None for ``date``.
    :param date: the ``Date`` of the answer with the list; None if it has none.
    :param since: records from before this time are left out.
    :param source: the URL that names the server of the list; it becomes the end of the origin of
        each ping.
    :param limit: how many pings are read at most, the newest.
    :param charset: the charset parameter of the Content-Type of the answer.
    :raises NotAList: the document is not a change list.
    """
    try:
        # At most 200,000 records: the root, its records, and nothing within them.
        root = xml.parse(document, charset, max_depth=3, max_elements=200_000 + 1)
    except xml.MalformedXML as error:
        raise NotAList(f"it is not a change list: {error.reason}") from None
    if xml.local_name(root) != "weblogUpdates":
        raise NotAList(
            f"its root element is {xml.local_name(root)[:60]!r}; that of a change list is "
            "'weblogUpdates'"
        )
    own_time = http_date(str(root.get("updated", "")))
    ahead = _seconds_ahead(own_time, date, now)
    # The list itself is believed first, then the caller, then the answer.
    known = [None if time is None else time - ahead for time in (own_time, made_at, date)]
    believed = [time for time in known if time is not None and time <= now + AHEAD]
    made = next(iter(believed), now)
    reader = _Reader(now, made, SECONDS_IN[unit], source, ahead)
    found: list[tuple[Ping, bool]] = []
    invalid, fault = 0, ""
    for element in root:
        if xml.local_name(element) != "weblog":
            continue
        try:
            found.append(reader.read_record({str(k): str(v) for k, v in element.attrib.items()}))
        except ValueError as error:
            invalid += 1
            fault = fault or f"line {element.sourceline}: {error}"
    recent = [record for record in found if record[0].received_at >= since]
    recent.sort(key=lambda record: -record[0].received_at)
    kept = recent[:limit]
    return ReadList(
        made_at=made,
        exact=tuple(ping for ping, is_exact in kept if is_exact),
        rough=tuple(ping for ping, is_exact in kept if not is_exact),
        reaches=_complete_since(made, [ping.received_at for ping, _ in kept]),
        is_dated=bool(believed),
        ahead=ahead,
        too_old=len(found) - len(recent),
        too_many=len(recent) - len(kept),
        invalid=invalid,
        fault=fault,
    )


def _seconds_ahead(said: float | None, date: float | None, now: float) -> float:
    """By how many seconds the clock of a server is ahead, if that is more than ``AHEAD``; else 0.

    A copy in a cache has times of the past.  So times of the future come from a wrong clock, if
    the list and the answer agree; otherwise the one of the two is nonsense.
    """
    if date is None or said is None or min(said, date) <= now + AHEAD:
        return 0.0
    return date - now


def _complete_since(made: float, times: Sequence[float]) -> float:
    """The time since which a list seems to have all pings.

    :param made: when the list was made.
    :param times: the times of its pings, newest first.
    """
    reached = made
    for at in times:
        # If no step between its newest records is longer than ten minutes, a list is taken to have
        # all pings since then.  A record that is older by more than that may stand alone.
        if reached - at > 600.0:
            break
        reached = min(reached, at)
    return reached


@frozen
class _Reader:
    """Reads the records of a list.

    :ivar seconds: the unit of ages.
    :ivar ahead: by how many seconds the exact times are too late.
    """

    now: float
    made_at: float
    seconds: float
    source: str
    ahead: float

    def read_record(self, said: _Attributes) -> tuple[Ping, bool]:
        """Read a record from its attributes: the ping, and whether its time is exact.

        :raises ValueError: the record has a fault; the text says which.
        """
        url, feed = clean(said.get("url", "")), clean(said.get("rssUrl", ""))
        for each in filter(None, (url, feed)):
            if fault := fault_of(each):
                raise ValueError(fault)
        if not url:
            raise ValueError("the weblog has no URL")
        at, is_exact = self._time_of(said)
        if at > self.now + AHEAD:
            raise ValueError("the time of the ping is in the future")
        try:
            via = read_origin(clean(said.get("via", "")))
        except BadOrigin as error:
            raise ValueError(str(error)) from None
        name = clean(said.get("name", ""))[:MAX_URL] or url
        return Ping(name, url, at, rss_url=feed, origin=extended(via, self.source)), is_exact

    def _time_of(self, said: _Attributes) -> tuple[float, bool]:
        """The time of a ping, corrected by ``ahead``, and whether it is exact; else ValueError."""
        exact = read_time(said.get("ts", ""))
        if exact is not None:
            return exact - self.ahead, not self.ahead
        age = said.get("when", "").strip()
        if not _AGE.fullmatch(age):
            raise ValueError(f"'when' is {age[:20]!r}; it must be a whole number, 0 or more")
        return self.made_at - int(age) * self.seconds, False
