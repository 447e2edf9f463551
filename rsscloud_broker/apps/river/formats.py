"""Writes a river for programs: as a JSON Feed, and as river.js.

The JSON Feed (https://www.jsonfeed.org/version/1.1/) has an extension ``_river``.

river.js (http://riverjs.org/) is what River5 makes: a call of ``onGetRiverStream`` with the items
in groups, each from one feed, as they arrived.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from email.utils import formatdate
from html import escape
from itertools import groupby
from typing import Any

from attrs import asdict

from rsscloud_broker.apps.river.cleaning import plain
from rsscloud_broker.apps.river.model import Feed, Item, SubItem
from rsscloud_broker.web.words import clipped
from rsscloud_broker.wire.times import iso_time


def json_feed(
    title: str, url: str, feeds: Sequence[Feed], items: Sequence[Item], seen: int, next_url: str
) -> bytes:
    """A river as a JSON Feed.

    :param url: the URL at which it is served.
    :param seen: the newest item that was marked as seen.
    :param next_url: where older items are; empty if there are none.
    """
    feed: dict[str, Any] = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": title,
        "feed_url": url,
        "items": [_json_item(item) for item in items],
        "_river": {"last_seen": seen, "feeds": [about_feed(feed) for feed in feeds]},
    }
    if next_url:
        feed["next_url"] = next_url
    return json.dumps(feed, ensure_ascii=False).encode()


def about_feed(feed: Feed) -> dict[str, Any]:
    """A feed as it is at the top of the JSON Feed."""
    values = asdict(feed)
    for name in ("renew_at", "verified_at", "added_at"):
        values[name] = None if values[name] is None else iso_time(values[name])
    return values


def _json_item(item: Item) -> dict[str, Any]:
    """An item as it is in the JSON Feed; what JSON Feed has no member for is in ``_river``."""
    # An id that is no URI, such as a number, may be in several feeds.
    own = item.guid if ":" in item.guid else f"{item.feed_id}#{item.guid}"
    written: dict[str, Any] = {
        "id": own,
        "content_html": item.text_html,
        "_river": {
            "id": item.id,
            "feed_id": item.feed_id,
            "arrived_at": iso_time(item.arrived_at),
            "how": item.how,
            "items": [asdict(each) for each in item.items],
        },
    }
    if item.link:
        written["url"] = item.link
    if item.title:
        written["title"] = item.title
    if item.published_at is not None:
        written["date_published"] = iso_time(item.published_at)
    if item.enclosures:
        written["attachments"] = [
            {
                "url": each.url,
                "mime_type": each.media_type or "application/octet-stream",
                **({} if each.size is None else {"size_in_bytes": each.size}),
            }
            for each in item.enclosures
        ]
    return written


def river_js(feeds: Sequence[Feed], items: Sequence[Item], now: float) -> bytes:
    """A river as river.js.

    :param items: newest first.
    """
    by_id = {feed.id: feed for feed in feeds}
    groups = [
        _group(by_id[feed_id], list(found))
        for feed_id, found in groupby(items, key=lambda item: item.feed_id)
        if feed_id in by_id
    ]
    river = {
        "updatedFeeds": {"updatedFeed": groups},
        "metadata": {
            "docs": "http://riverjs.org/",
            "whenGMT": _date(now),
            "whenLocal": _date(now),
            "version": "3",
            "secs": "0",
        },
    }
    return f"onGetRiverStream ({json.dumps(river)})\n".encode("ascii")


def _group(feed: Feed, items: list[Item]) -> dict[str, Any]:
    """Items of one feed as they are in river.js, whose texts are HTML."""
    return {
        "feedUrl": feed.url,
        "websiteUrl": feed.link,
        "feedTitle": escape(feed.title, quote=False),
        "feedDescription": "",
        "whenLastUpdate": _date(items[0].arrived_at),
        "item": [_river_item(item) for item in items],
    }


def _river_item(item: Item) -> dict[str, Any]:
    at = item.arrived_at if item.published_at is None else item.published_at
    written: dict[str, Any] = {
        "title": escape(item.title, quote=False),
        "link": item.link,
        # How many characters of an item's text are in river.js, as in River5.
        "body": escape(clipped(plain(item.text_html), 280), quote=False),
        "pubDate": _date(at),
        "permaLink": item.link,
        "comments": "",
        "id": str(item.id),
    }
    if item.enclosures:
        written["enclosure"] = [
            {"url": each.url, "type": each.media_type, "length": str(each.size or 0)}
            for each in item.enclosures
        ]
    if item.items:
        written["outline"] = {"text": written["title"], "subs": list(map(_outline, item.items))}
    return written


def _outline(item: SubItem) -> dict[str, Any]:
    """An item below another one, with all below it, as an outline of river.js."""
    text = escape(item.title or plain(item.text_html), quote=False)
    subs = {"subs": list(map(_outline, item.items))} if item.items else {}
    return {"text": text, **subs}


def _date(seconds: float) -> str:
    """A time as RFC 822 writes it, with a year of four digits."""
    return formatdate(seconds, usegmt=True)
