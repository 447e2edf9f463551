"""Change lists: which sites changed lately, for crawlers to read.

The format is that of weblogs.com's ``changes.xml``, newest first, one site a
line::

    <?xml version="1.0" encoding="utf-8"?>
    <?xml-stylesheet type="text/css" href="/changes.css"?>
    <weblogUpdates version="2" updated="Tue, 29 Sep 2026 12:00:00 GMT" count="48211">
    <weblog name="A Site" url="https://example.org/" when="2" ts="2026-09-29T11:57:41Z"/>
    </weblogUpdates>
    <!-- records: 1 -->

``count`` is the number of pings ever received.  ``when`` is the age of a ping,
in minutes or in seconds: documents and consumers differ, so it is a setting.
``ts`` is not part of the old format; it says the same exactly.  The comment at
the end tells how many records came before it, and that none are missing.

The second line tells browsers where the style sheet is by which they show a list to people
(https://www.w3.org/TR/xml-stylesheet/).  Crawlers pass over it: it is a processing instruction.

A list may hold 100,000 pings, so it is rendered in pieces: the opening, then
the records slice by slice, then the closing.
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

#: In what ``when`` counts.
Unit: TypeAlias = Literal["minutes", "seconds"]

_SECONDS_IN: Final[dict[Unit, int]] = {"minutes": 60, "seconds": 1}

# A bare line break or tab in an attribute would be read as a blank, and a line
# break would also spoil "one site a line".
_IN_ATTRIBUTE: Final = {'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}

_CLOSING: Final = re.compile(rb"</weblogUpdates>\n<!-- records: ([0-9]{1,15}) -->\n\Z")

#: Where the style sheet of change lists is.
STYLE_SHEET: Final = "/changes.css"

#: A closing is never longer than this many bytes.
CLOSING_SIZE: Final = 64


def opening(updated: float, count: int) -> bytes:
    """What a change list begins with.

    :param updated: when the list was made.
    :param count: the number of pings ever received.
    """
    date = formatdate(updated, usegmt=True)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<?xml-stylesheet type="text/css" href="{STYLE_SHEET}"?>\n'
        f'<weblogUpdates version="2" updated="{date}" count="{count}">\n'
    ).encode("ascii")


def weblogs(pings: Iterable[Ping], at: float, unit: Unit) -> bytes:
    """The records of some pings, one a line, in the order given.

    Characters that XML cannot hold are left out; intake removes them too, but a
    single one here would make the whole list unreadable.

    :param at: when the list was made; ages are counted to it.
    """
    seconds = _SECONDS_IN[unit]
    lines = []
    for ping in pings:
        age = max(0, int((at - ping.received_at) // seconds))
        feed = f' rssUrl="{escape(ping.rss_url, _IN_ATTRIBUTE)}"' if ping.rss_url else ""
        lines.append(
            f'<weblog name="{escape(ping.name, _IN_ATTRIBUTE)}"'
            f' url="{escape(ping.url, _IN_ATTRIBUTE)}"'
            f' when="{age}"{feed} ts="{_timestamp(int(ping.received_at))}"/>\n'
        )
    return legal("".join(lines)).encode()


def closing(records: int) -> bytes:
    """What a change list ends with.

    :param records: how many pings were rendered between opening and closing.
    """
    return b"</weblogUpdates>\n<!-- records: %d -->\n" % records


def records_told(end: bytes) -> int | None:
    """How many records a change list says it holds; None if it is not whole.

    :param end: its last ``CLOSING_SIZE`` bytes, or more.
    """
    found = _CLOSING.search(end)
    return None if found is None else int(found[1])


@lru_cache(maxsize=1024)  # neighbours in a list often share their second
def _timestamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
