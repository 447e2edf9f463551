"""Turns the plain texts of messages into HTML, for feeds, and into elements, for pages.

Web addresses in a text become links.  Everything else is shown as it was typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Final

from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.apps.writing.model import OutlineItem
from rsscloud_broker.web.pages import linked
from rsscloud_broker.wire.links import is_absolute

_ADDRESS: Final = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)

#: What ends a sentence and not the address before it.
_END: Final = ".,;:!?')]}\u2019\u201d\u2026"


def _split_at_addresses(text: str) -> Iterator[tuple[str, bool]]:
    """The parts of a text, each with whether it is an address."""
    at = 0
    for found in _ADDRESS.finditer(text):
        url = found[0].rstrip(_END)
        if url.count("(") > url.count(")") and found[0][len(url) :].startswith(")"):
            url += ")"  # as in addresses of Wikipedia
        if not is_absolute(url):
            continue
        yield text[at : found.start()], False
        yield url, True
        at = found.start() + len(url)
    yield text[at:], False


def to_html(text: str) -> str:
    """A text as HTML."""
    return "".join(
        f'<a href="{escape(part)}">{escape(part)}</a>'
        if is_address
        else escape(part).replace("\n", "<br>\n")
        for part, is_address in _split_at_addresses(text)
    )


def item_html(item: OutlineItem) -> str:
    """An item of an outline as HTML, without what is below it."""
    shown = escape(item.title) if item.title else ""
    text = to_html(item.text)
    if item.link:
        named = shown or (escape(item.text) if item.text else escape(item.link))
        shown = f'<a href="{escape(item.link)}">{named}</a>'
        text = text if item.title and item.text else ""
    return " ".join(filter(None, (shown, text)))


def outline_html(items: tuple[OutlineItem, ...]) -> str:
    """An outline as nested lists in HTML."""
    if not items:
        return ""
    inside = "".join(f"<li>{item_html(each)}{outline_html(each.items)}</li>" for each in items)
    return f"<ul>{inside}</ul>"


def shown(text: str) -> list[Flattenable]:
    """A text as elements for a page."""
    return [
        linked(part, part) if is_address else _break_lines(part)
        for part, is_address in _split_at_addresses(text)
    ]


def _break_lines(text: str) -> list[Flattenable]:
    """A text with a ``br`` for each line break, as elements."""
    first, *others = text.split("\n")
    return [first, *(piece for line in others for piece in (tags.br(), line))]


def outline_elements(items: tuple[OutlineItem, ...]) -> Tag | str:
    """An outline as elements for a page; items with others below them can be folded."""
    if not items:
        return ""
    return tags.ul(*(tags.li(_item_elements(each)) for each in items), class_="outline")


def _item_elements(item: OutlineItem) -> Flattenable:
    """An item of an outline, with all below it, as elements."""
    if item.link:
        named = item.title or item.text or item.link
        text: list[Flattenable] = [linked(item.link, named)]
        text += [" ", *shown(item.text)] if item.title and item.text else []
    else:
        text = [tags.strong(item.title), " "] if item.title else []
        text += shown(item.text)
    if not item.items:
        return tags.bdi(text)
    return tags.details(tags.summary(tags.bdi(text)), outline_elements(item.items), open="open")
