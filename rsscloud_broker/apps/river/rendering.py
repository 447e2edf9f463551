"""Makes the elements of the page that show feeds and items.

The page and the event stream show an item in the same way: the stream sends the elements of an item
as HTML, which the script puts into the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from attrs import evolve
from twisted.web.template import Tag, tags

from rsscloud_broker.apps.river.markup import elements, is_web, picture, plain, shown_host
from rsscloud_broker.apps.river.model import Arrival, Feed, Item, ItemEnclosure, SubItem
from rsscloud_broker.web.pages import flattened, linked
from rsscloud_broker.web.words import clipped, counted, strangers_text
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.times import iso_time

#: A text of more characters than the first number is folded, and shows the second number.
LONG, EXCERPT = 1200, 280

#: The name of a file that is only a hash, and what such files are called by their kind.
_HASH: Final = re.compile(r"[0-9a-f]{32,}(\.[a-z0-9]+)?", re.IGNORECASE)
_KINDS: Final = {"image": "Picture", "audio": "Sound", "video": "Video"}

#: How many enclosures of an item are shown, and how many levels of items below it.
MAX_ENCLOSURES, MAX_LEVELS = 20, 20

#: The largest event of an item, in bytes: for each browser that reads slowly, some are in memory.
MAX_EVENT: Final = 48 * 1024

#: How many characters of a title are shown.
_TITLE: Final = 300

_UNITS: Final = ((1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB"))


def groups(
    items: Iterable[Item], feeds: Mapping[int, Feed], seen: int, stopped: int | None = None
) -> list[Tag]:
    """Items as sections, each with the items of one feed that arrived one after another.

    :param items: newest first.
    :param feeds: the feeds by id.
    :param seen: items with a greater id are new; 0 if none is marked.
    :param stopped: items with a greater id are above the line where somebody stopped; None if there
        is no line here.
    """
    made: list[Tag] = []
    was_new = was_below = False
    lowest = 0 if stopped is None else stopped
    for (feed_id, is_new, is_below), some in groupby(
        items, lambda item: (item.feed_id, bool(seen) and item.id > seen, item.id <= lowest)
    ):
        if was_new and not is_new:
            made.append(_line("New since your last visit", "since"))
        if is_below and not was_below:
            made.append(_line("You stopped here", "stopped"))
        was_new, was_below = is_new, is_below
        articles = [article(item, is_new) for item in some]
        feed = feeds.get(feed_id)
        about = (feed.title, feed.link) if feed else ("A feed", "")
        made.append(section(feed_id, *about, articles))
    if was_new:
        made.append(_line("New since your last visit", "since"))
    if stopped is not None and not was_below:
        made.append(_line("You stopped here", "stopped"))
    return made


def _line(text: str, name: str) -> Tag:
    return tags.p(text, class_="since", id=name)


def section(feed_id: int, title: str, link: str, articles: Sequence[Tag]) -> Tag:
    """Items of one feed below its title."""
    shown = strangers_text(title, _TITLE)
    heading = linked(link, shown) if is_web(link) else shown
    last = int(str(articles[-1].attributes["id"]).removeprefix("item-"))
    stop = tags.button("I stopped here", class_="stop", form="stop", name="id", value=str(last - 1))
    return tags.section(
        tags.h2(heading), *articles, stop, class_="river-feed", **{"data-feed": str(feed_id)}
    )


def article(item: Item, is_new: bool = False) -> Tag:
    """One item."""
    title: Any = strangers_text(item.title, _TITLE) if item.title.strip() else ""
    mark = tags.span("New: ", class_="away") if is_new else ""
    at = item.arrived_at if item.published_at is None else item.published_at
    minute = f"{datetime.fromtimestamp(int(at), UTC):%Y-%m-%d %H:%M}"
    when = tags.time(minute, datetime=iso_time(at))
    if title:
        title = tags.h3(mark, linked(item.link, title) if is_web(item.link) else title)
        mark = ""
    permanent = linked(item.link, when) if is_web(item.link) and not title else when
    return tags.article(
        title,
        tags.div(mark, *_fold_text(item.text_html), class_="text", dir="auto")
        if item.text_html.strip() or mark
        else "",
        [_figure_of(each) for each in item.enclosures[:MAX_ENCLOSURES] if is_web(each.url)],
        _fold_sub_items(item.items, 1),
        tags.p(permanent, class_="where"),
        id=f"item-{item.id}",
        class_="river-item new" if is_new else "river-item",
        tabindex="-1",
    )


def _fold_text(text: str) -> list[Any]:
    """The text of an item, folded if it is long."""
    if len(text) <= LONG or len(words := plain(text, LONG)) <= LONG:
        return elements(text)
    return [
        tags.details(
            tags.summary(tags.span(f"{words[:EXCERPT].rstrip()}…"), class_="excerpt"),
            *elements(text),
        )
    ]


def _fold_sub_items(items: Sequence[SubItem], level: int) -> Tag | str:
    if not items or level > MAX_LEVELS:
        return ""
    return tags.details(
        tags.summary(f"{counted(len(items), 'item')} below"),
        tags.ul(*[tags.li(*_sub_item_parts(each, level)) for each in items]),
        class_="below",
    )


def _sub_item_parts(item: SubItem, level: int) -> list[Any]:
    """The title and the text of an item below another one, and what is below it."""
    title: Any = strangers_text(item.title, _TITLE) if item.title.strip() else ""
    if title:
        title = tags.div(linked(item.link, title) if is_web(item.link) else title)
    text = tags.div(*elements(item.text_html), dir="auto") if item.text_html.strip() else ""
    return [title, text, _fold_sub_items(item.items, level + 1)]


def _figure_of(enclosure: ItemEnclosure) -> Tag:
    """A file of an item: shown or played if browsers do so, and with a link to it."""
    kind = enclosure.media_type.partition("/")[0]
    name = _file_name(enclosure.url)
    if _HASH.fullmatch(name):  # it tells people nothing
        name = _KINDS.get(kind, "File")
    link = linked(enclosure.url, tags.bdi(name))
    label = {"aria-label": name}
    shown: Any = ""
    if kind == "image":
        shown = picture(enclosure.url, name)
    elif kind == "audio":
        shown = tags.audio(controls="controls", preload="none", src=enclosure.url, **label)
    elif kind == "video":
        shown = tags.video(controls="controls", preload="none", src=enclosure.url, **label)
    return tags.figure(shown, tags.figcaption(link, *_type_and_size(enclosure)))


def _type_and_size(enclosure: ItemEnclosure) -> list[Any]:
    size = _size(enclosure.size)
    kind = strangers_text(enclosure.media_type) if enclosure.media_type else ""
    if not (kind or size):
        return []
    return [" (", kind, ", " if kind and size else "", size, ")"]


def _file_name(url: str) -> str:
    try:
        path = unquote(urlsplit(url).path)
    except ValueError:
        return url[:_TITLE]
    return clipped(clean(path.rpartition("/")[2]), _TITLE) or shown_host(url)


def _size(size: int | None) -> str:
    """A size for people: "1.5 MB"; empty if it is unknown or 0."""
    for unit, name in _UNITS:
        if size and size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes" if size else ""


def event(arrival: Arrival) -> bytes:
    """The event that tells a browser of a new item: at most ``MAX_EVENT`` bytes.

    If an item is too large, its event has the beginning of its text, and a link to the rest.
    """
    made = _encode_event(arrival, article(arrival.item, is_new=True))
    if len(made) <= MAX_EVENT:
        return made
    return _encode_event(arrival, _shortened_article(arrival.item))


def _encode_event(arrival: Arrival, made: Tag) -> bytes:
    item = arrival.item
    html = flattened(section(item.feed_id, arrival.title, arrival.link, [made])).decode()
    data = json.dumps({"id": item.id, "feed": item.feed_id, "html": html}, ensure_ascii=False)
    return b"id: %d\ndata: %s\n\n" % (item.id, data.encode("utf-8"))


def _shortened_article(item: Item) -> Tag:
    """The beginning of an item, and a link to the page with the whole of it."""
    words = escape(clipped(plain(item.text_html, EXCERPT), EXCERPT), quote=False)
    made = article(evolve(item, text_html=words, enclosures=(), items=()), is_new=True)
    url = f"/river?before={item.id + 1}"
    return made(tags.p(tags.a("Show the whole item, which is long", href=url)))
