"""Reads and writes outlines as people type them: a line for each item, indented below another.

::

    Three things about boats
      They float
        Most of them <https://example.org/sinking>
      They are expensive

Two blanks or a tab are one level.  A line that is indented by more than one level below the line
before it counts as one level below it.  A URL in angle brackets at the end of a line is the link of
the item.  Titles of items, which only programs can make, are not shown.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import define, field

from rsscloud_broker.apps.writing.model import OutlineItem
from rsscloud_broker.apps.writing.rules import MAX_DEPTH, MAX_ITEMS, too_deep, too_many_items

#: How wide a level is, in blanks.
WIDTH: Final = 2

_LINE: Final = re.compile(r"([ \t]*)(.*)", re.DOTALL)
_LINK: Final = re.compile(r"(?:(.*)[ \t])?<(https?://[^<>\s]+)>[ \t]*", re.DOTALL | re.IGNORECASE)


@define
class _Open:
    """An item, with its indent in blanks, to which others may still be added below."""

    indent: int
    text: str
    link: str = ""
    below: list[_Open] = field(factory=list)


def parse(text: str) -> tuple[OutlineItem, ...]:
    """Read an outline.

    :raises InvalidPost: it is too deep or has too many items.
    """
    top = _Open(-1, "")
    path = [top]  # the item read last, after those above it
    number = 0
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None or not found[2].strip():
            continue
        number += 1
        if number > MAX_ITEMS:
            raise too_many_items()
        indent = len(found[1].expandtabs(WIDTH))
        while path[-1].indent >= indent:
            path.pop()
        if len(path) > MAX_DEPTH:
            raise too_deep()
        link = _LINK.fullmatch(found[2])
        item = _Open(indent, (link[1] or "") if link else found[2], link[2] if link else "")
        path[-1].below.append(item)
        path.append(item)
    return _freeze(top)


def _freeze(item: _Open) -> tuple[OutlineItem, ...]:
    """The items below an item; no deeper than ``MAX_DEPTH``, so it may recurse."""
    return tuple(
        OutlineItem(each.text.strip(), link=each.link, items=_freeze(each)) for each in item.below
    )


def write(items: tuple[OutlineItem, ...], level: int = 0) -> str:
    """Write an outline as `parse` reads it."""
    return "".join(
        f"{' ' * WIDTH * level}{_write_line(each)}\n{write(each.items, level + 1)}"
        for each in items
    )


def _write_line(item: OutlineItem) -> str:
    """An item as a line, without what is below it."""
    text = item.text or item.title
    return f"{text} <{item.link}>".strip() if item.link else text
