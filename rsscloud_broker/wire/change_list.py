"""Encodes change lists, which tell crawlers what sites changed lately.

The format is that of weblogs.com's ``changes.xml``: newest ping first, one on each line::

    <?xml version="1.0" encoding="utf-8"?>
    <?xml-stylesheet type="text/css" href="/changes.css"?>
    <weblogUpdates version="2" updated="Tue, 29 Sep 2026 12:00:00 GMT" count="48211">
    <weblog name="A Site" url="https://example.org/" when="2" ts="2026-09-29T11:57:41Z"/>
    </weblogUpdates>
    <!-- records: 1 -->

``count`` is the number of pings ever received.  ``when`` is the age of a ping, in minutes or in
seconds; as published documents and their readers differ, the unit is a setting.  ``ts`` is not
part of the old format: it is the exact time of the ping.  If a ping came from other brokers, the
added attribute ``via`` names them: see ``origin``.  The comment at the end gives the number
of records, and shows that the file is whole.

The second line names the style sheet with which browsers show a list to people
(https://www.w3.org/TR/xml-stylesheet/).  Crawlers ignore it, as it is a processing instruction.

A list may hold 100,000 pings, so the sinks write it in pieces: the opening, then the records some
at a time, then the closing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import formatdate
from functools import lru_cache
from typing import Final, Literal, TypeAlias
from xml.sax.saxutils import escape

from rsscloud_broker.model import Ping
from rsscloud_broker.wire.text import legal
from rsscloud_broker.wire.times import iso_time
from rsscloud_broker.wire.units import HOUR

#: The unit of ``when``.
Unit: TypeAlias = Literal["minutes", "seconds"]

SECONDS_IN: Final[dict[Unit, int]] = {"minutes": 60, "seconds": 1}

# An XML parser reads a bare line break or tab in an attribute as a blank, and a line break would
# also put one record on two lines.
_IN_ATTRIBUTE: Final = {'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}

_CLOSING: Final = re.compile(rb"</weblogUpdates>\n<!-- records: ([0-9]{1,15}) -->\n\Z")

#: The path of the style sheet, which feeds name too.
STYLE_SHEET: Final = "/changes.css"


def style_data(sheet: str = STYLE_SHEET) -> str:
    """The data of the instruction ``xml-stylesheet``."""
    return f'type="text/css" href="{sheet}"'


STYLE: Final = style_data()

#: The largest number of bytes of a closing.
CLOSING_SIZE: Final = 64


def opening(updated: float, count: int) -> bytes:
    """The beginning of a change list, before its records.

    :param updated: when the list was made, in seconds since the epoch.
    :param count: the number of pings ever received.
    """
    date = formatdate(updated, usegmt=True)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f"<?xml-stylesheet {STYLE}?>\n"
        f'<weblogUpdates version="2" updated="{date}" count="{count}">\n'
    ).encode("ascii")


def weblogs(pings: Iterable[Ping], at: float, unit: Unit) -> bytes:
    """The records of some pings, one on each line, in the order given.

    Characters that XML cannot hold are left out.  The ping sink removes them too, but a single
    one here would make the whole list unreadable.

    :param at: when the list was made, in seconds since the epoch; ages are counted from it.
    """
    seconds = SECONDS_IN[unit]
    lines = []
    for ping in pings:
        age = max(0, int((at - ping.received_at) // seconds))
        feed = f' rssUrl="{escape(ping.rss_url, _IN_ATTRIBUTE)}"' if ping.rss_url else ""
        via = f' via="{escape(ping.origin, _IN_ATTRIBUTE)}"' if ping.origin else ""
        lines.append(
            f'<weblog name="{escape(ping.name, _IN_ATTRIBUTE)}"'
            f' url="{escape(ping.url, _IN_ATTRIBUTE)}"'
            f' when="{age}"{feed} ts="{_timestamp(int(ping.received_at))}"{via}/>\n'
        )
    return legal("".join(lines)).encode()


def closing(records: int) -> bytes:
    """The end of a change list, after its records.

    :param records: the number of records between opening and closing.
    """
    return b"</weblogUpdates>\n<!-- records: %d -->\n" % records


def records_told(end: bytes) -> int | None:
    """The number of records that a change list gives in its closing; None if the list is cut off.

    :param end: the last ``CLOSING_SIZE`` bytes of the list, or more.
    """
    found = _CLOSING.search(end)
    return None if found is None else int(found[1])


_timestamp = lru_cache(maxsize=1024)(iso_time)  # many pings in a list have the same second


def archive_path(hour: int) -> tuple[str, ...]:
    """The path of an hour's archive below the root of a broker, as segments.

    :param hour: whole hours since the epoch.
    """
    day = datetime.fromtimestamp(hour * HOUR, UTC)
    # The hours of a day count from 1 to 24: the first one ends at 1 o'clock.
    return (f"{day:%Y}", f"{day:%m}", f"{day:%d}", f"{day.hour + 1:02}.xml")
