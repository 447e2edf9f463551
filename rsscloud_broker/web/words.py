"""Times, numbers and texts of strangers, in words and elements for pages; and the elements that
many pages have: lists of facts, forms, tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.times import iso_time

#: The texts of strangers are cut to this many characters.
MAX_SHOWN: Final = 80

_UNITS: Final = ((86_400, "day"), (3600, "hour"), (60, "minute"))


def clipped(text: str, length: int = MAX_SHOWN) -> str:
    """A text, cut to ``length`` characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def ago(seconds: float) -> str:
    """A time in the past, in words such as "3 hours ago"."""
    duration = _duration(seconds)
    return f"{duration} ago" if duration else "just now"


def ahead(seconds: float) -> str:
    """A time in the future, in words such as "in 3 hours"."""
    duration = _duration(seconds)
    return f"in {duration}" if duration else "any moment"


def _duration(seconds: float) -> str:
    """A duration in its largest unit; empty if it is less than a minute."""
    for unit, name in _UNITS:
        if (number := int(seconds // unit)) >= 1:
            return counted(number, name)
    return ""


def counted(number: float, noun: str) -> str:
    """A number with its noun: "1 ping", "2,000 pings", "2 fetches"."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,g} {noun}" if number == 1 else f"{number:,.15g} {plural}"


def moment(at: float, now: float) -> Tag:
    """A ``time`` element that says how long ago a time was, or how far ahead it is.

    Its title says the time itself, for people who point at it.

    :param at, now: seconds since the epoch.
    """
    words = ago(now - at) if at <= now else ahead(at - now)
    return tags.time(words, datetime=iso_time(at), title=clock_time(at))


def dated(at: float) -> Tag:
    """A ``time`` element that says a time itself: "2026-11-21 02:30:00"."""
    return tags.time(clock_time(at).removesuffix(" UTC"), datetime=iso_time(at))


def clock_time(at: float) -> str:
    """A time such as "2026-11-21 02:30:00 UTC"."""
    return iso_time(at).replace("T", " ").replace("Z", " UTC")


def strangers_text(text: str, length: int = MAX_SHOWN) -> Tag:
    """A text that a stranger wrote, cut to ``length`` characters.

    It may be in a script that runs from right to left; ``bdi`` keeps it from reversing the text
    beside it.
    """
    return tags.bdi(clipped(clean(text), length))


def facts(pairs: Iterable[tuple[Flattenable, Flattenable]], kind: str = "facts") -> Tag:
    """A list of facts; those with an empty content are left out.  ``kind`` is its class."""
    shown = [tags.div(tags.dt(name), tags.dd(content)) for name, content in pairs if content]
    return tags.dl(*shown, class_=kind)


def hidden(fields: Mapping[str, str]) -> list[Tag]:
    """Hidden fields of a form."""
    return [tags.input(type="hidden", name=name, value=value) for name, value in fields.items()]


def one_button(button: Tag | str, action: str, csrf: str, **fields: str) -> Tag:
    """A form with nothing but a button, which is given as an element or as its text."""
    button = button if isinstance(button, Tag) else tags.button(button)
    return tags.form(*hidden({"csrf": csrf, **fields}), button, action=action, method="post")


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Flattenable]],
    empty: str,
    kind: str = "cards console",
) -> Tag:
    """A table, or a sentence if it has no rows.

    :param caption: what it shows, for screen readers.
    :param empty: what to say without rows.
    :param kind: its class, by which the style sheet knows it.
    """
    head = tags.tr(*(tags.th(column, scope="col") for column in columns))
    body = [tags.tr(*map(_cell, columns, row)) for row in rows]
    if not body:
        return tags.p(empty, class_="quiet")
    said = tags.caption(caption, class_="away")
    return tags.table(said, tags.thead(head), tags.tbody(*body), class_=kind)


def _cell(column: str, content: Flattenable) -> Tag:
    """A cell.  One with a button or a telling link has no name on a phone, where rows are cards."""
    if isinstance(content, Tag) and (content.tagName == "form" or content.children == [column]):
        return tags.td(content)
    return tags.td(content, **{"data-label": column})
