"""Takes the items below an item out of a feed: ``<rssCloud:item>``, which may nest.

::

    <item>
      <title>Three ways to listen</title>
      <rssCloud:item><title>On the radio</title></rssCloud:item>
      <rssCloud:item>
        <title>In a browser</title>
        <rssCloud:item><title>Any browser</title></rssCloud:item>
      </rssCloud:item>
    </item>

Source: the rssCloud implementor's guide, "How rssCloud uses RSS".
"""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree

from rsscloud_broker.apps.river.cleaning import plain, safe_html, web_url, weight
from rsscloud_broker.apps.river.model import SubItem
from rsscloud_broker.wire import xml

#: How deep sub-items are read, how many of one item, and how much their HTML weighs.
MAX_DEPTH, MAX_NUMBER, MAX_WEIGHT = 20, 500, 100_000


class _Reader:
    """Reads the sub-items of one item, within the bounds."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._left = MAX_NUMBER
        self._left_weight = MAX_WEIGHT

    def read_below(self, element: etree._Element, depth: int = 1) -> tuple[SubItem, ...]:
        """The sub-items directly below an element, with all below them."""
        if depth > MAX_DEPTH:
            return ()
        return tuple(self._read_each(element, depth))

    def _read_each(self, element: etree._Element, depth: int) -> Iterator[SubItem]:
        """The sub-items directly below an element, one by one, while there is room."""
        for child in _sub_items(element):
            if self._left == 0 or self._left_weight <= 0:
                return
            self._left -= 1
            texts = {xml.local_name(each): each.text or "" for each in reversed(child)}
            html = safe_html(texts.get("description", ""), self._base)
            self._left_weight -= weight(html)
            yield SubItem(
                plain(texts.get("title", "")),
                html,
                web_url(texts["link"], self._base) if texts.get("link") else "",
                self.read_below(child, depth + 1),
            )


def take_out(element: etree._Element, base: str) -> tuple[SubItem, ...]:
    """The sub-items of an item, which are removed from the item.

    :param base: the URL against which relative links are resolved.
    """
    found = _Reader(base).read_below(element)
    for child in _sub_items(element):
        element.remove(child)
    return found


def _sub_items(element: etree._Element) -> list[etree._Element]:
    return [child for child in element if xml.local_name(child) == "item"]
