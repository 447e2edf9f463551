"""One timeline of what the event log says of a topic or a host, for the pages about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import FrontDoorParts, IEventLog
from rsscloud_broker.model.disclosure import Disclosure
from rsscloud_broker.model.log_entry import LogEntry, LogFilter
from rsscloud_broker.model.ways import Way
from rsscloud_broker.util.caches import TimedCache
from rsscloud_broker.web.log_lines import PLAIN_WORDS, count_of, line_of
from rsscloud_broker.web.words import clipped, counted, moment, strangers_text

#: Of each of these kinds and outcomes (all if empty) the timeline of a topic has some entries, so
#: that many notifications that failed leave room for the fetches before them.
_OF_TOPIC: Final = (
    ("ping", ""),
    ("fetch", ""),
    ("fan-out", ""),
    ("topic", ""),
    ("notification", "failed"),
    ("notification", "given up"),
)

#: How many entries of a kind a timeline has at most, and how many in all.
OF_KIND, SHOWN = 10, 40

#: How many of them are seen at once; somebody who wants the others opens them.
_FIRST: Final = 6

#: How a reader of a page knows what an entry calls otherwise.
_OUTCOMES: Final = {
    ("fan-out", "begun"): "being notified",
    ("fan-out", "ended"): "notified",
}

#: How people say by which way a ping came, where that is no protocol.
_WAYS: Final[Mapping[str, str]] = {
    Way.PUBLISHED: " and published here",
    Way.PAGE: " on a page",
    Way.LIST: " from a list",
    Way.PING: "",
}

#: The colours of outcomes.
_COLOURS: Final = {
    **dict.fromkeys(("accepted", "changed", "delivered", "verified"), "good"),
    **dict.fromkeys(("refused", "failed", "given up", "denied", "dropped", "unreachable"), "bad"),
    "begun": "waiting",
}


def known_entries(
    parts: FrontDoorParts, read: Callable[[IEventLog, str], Awaitable[Sequence[LogEntry]]]
) -> TimedCache[str, Sequence[LogEntry]]:
    """The newest entries about topics, or about hosts, with what strangers may see of them.

    Those of 500 are remembered, each for a second.  There are none if the store cannot be read, or
    the broker keeps no event log: the rest of a page does not need them.

    :param read: reads those of one.
    """

    async def find(name: str) -> Sequence[LogEntry]:
        """The entries about a topic or a host."""
        if parts.event_log is None:
            return ()
        try:
            found = await read(parts.event_log, name)
        except Unavailable:
            return ()
        return [parts.disclosure.entry(entry) for entry in found]

    return TimedCache(find, parts.clock, 1.0, 500)


async def entries_of_topic(log: IEventLog, url: str) -> list[LogEntry]:
    """The newest entries about a topic, newest first.

    :raises Unavailable: the store cannot be read.
    """
    found: list[LogEntry] = []
    for kind, outcome in _OF_TOPIC:
        wanted = LogFilter(topic=url, kind=kind, outcome=outcome)
        found += await log.entries(wanted, None, OF_KIND)
    # By their ids: the clock may have been set back.
    found.sort(key=lambda entry: (-entry.id, -entry.at))
    # A fan-out that has ended needs no entry that says that it began.
    over = next((n for n, entry in enumerate(found) if _is_fan_out(entry, "ended")), len(found))
    before = [entry for entry in found[over:] if not _is_fan_out(entry, "begun")]
    return (found[:over] + before)[:SHOWN]


def _is_fan_out(entry: LogEntry, outcome: str) -> bool:
    return (entry.kind, entry.outcome) == ("fan-out", outcome)


async def entries_of_host(log: IEventLog, host: str, disclosure: Disclosure) -> list[LogEntry]:
    """The newest entries about a host, newest first, as far as strangers may find entries by it."""
    wanted = LogFilter(host=host)
    found = await log.entries(disclosure.permitted(wanted), None, SHOWN)
    return [
        entry
        for entry in found
        if wanted.passes(disclosure.entry(entry)) and not _is_fan_out(entry, "begun")
    ]


def verdict(entries: Sequence[LogEntry], now: float) -> Flattenable:
    """Whether the last change reached the subscribers, in a sentence.

    :param entries: those of a topic, newest first.
    :returns: empty if there is no fan-out among the entries, or the newest one concerned nobody.
    """
    last = next((entry for entry in entries if entry.kind == "fan-out"), None)
    if last is None:
        return ""
    if last.outcome == "begun":
        return tags.p("Its subscribers are being notified of the last change.")
    notified = count_of(last, "delivered")
    others = count_of(last, "failed") + count_of(last, "waiting")
    if not notified + others:
        return ""
    what = f", reached {notified:,} of {counted(notified + others, 'subscriber')} at once"
    more = "; below stands what became of the others" if others else ""
    changed_at = last.at - last.numbers.get("last_seconds", 0.0)
    return tags.p("The last change, ", moment(changed_at, now), f"{what}{more}.")


def timeline(entries: Sequence[LogEntry], now: float, topic: str = "") -> Tag:
    """A list of entries with only those parts that the readers may see: see ``Disclosure``.

    The earlier ones are folded.

    :param topic: what the entries call the topic of the page; empty to write its address.
    """
    items = [_item(entry, now, topic) for entry in entries]
    if earlier := items[_FIRST:]:
        fold = tags.details(tags.summary(f"{len(earlier)} earlier"), tags.ol(*earlier))
        items[_FIRST:] = [tags.li(fold(class_="folded"), class_="more")]
    return tags.ol(*items, class_="timeline")


def _item(entry: LogEntry, now: float, topic: str) -> Tag:
    """An entry as an item: when, what in a few words, and its sentence."""
    kind = PLAIN_WORDS.get(entry.kind, entry.kind)
    plain = PLAIN_WORDS.get(entry.outcome, entry.outcome)
    outcome = _OUTCOMES.get((entry.kind, entry.outcome), plain)
    colour = _COLOURS.get(entry.outcome, "")
    badge = tags.span(f"{kind} {outcome}", class_=f"badge {colour}".strip())
    protocol: Flattenable = [" by ", strangers_text(entry.protocol)] if entry.protocol else ""
    what = tags.span(badge, _WAYS.get(entry.protocol, protocol), class_="what")
    return tags.li(moment(entry.at, now), what, tags.span(_sentence(entry, topic)))


def _sentence(entry: LogEntry, topic: str) -> Tag:
    """What an entry says, in a sentence, as the page of the event log says it."""
    line = line_of(entry)
    named = topic or clipped(line.topic)
    if not line.before:
        named = f"{named[:1].upper()}{named[1:]}" if topic else named
    return strangers_text(f"{line.before}{named if line.topic else ''}{line.after}", length=400)
