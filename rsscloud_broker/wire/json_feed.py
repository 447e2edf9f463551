"""Writes feeds as JSON Feed 1.1 (https://www.jsonfeed.org/version/1.1/).

The outline below an item is a nested list in its HTML, as JSON Feed has no member for it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from rsscloud_broker.wire.feed_document import FeedDocument, FeedEntry
from rsscloud_broker.wire.times import iso_time

MEDIA_TYPE: Final = "application/feed+json"

_VERSION: Final = "https://jsonfeed.org/version/1.1"


def encode(feed: FeedDocument) -> bytes:
    """Write a feed as JSON Feed 1.1, in UTF-8."""
    document: dict[str, Any] = {
        "version": _VERSION,
        "title": feed.title,
        "home_page_url": feed.url,
        "feed_url": feed.self_url,
        "description": feed.description,
        "authors": [{"name": feed.author, "url": feed.url}],
    }
    if feed.hub:
        document["hubs"] = [{"type": "WebSub", "url": feed.hub}]
    document["items"] = [_item(entry) for entry in feed.entries]
    return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"


def _item(entry: FeedEntry) -> dict[str, Any]:
    """An entry as an item of a JSON Feed."""
    item: dict[str, Any] = {"id": entry.id, "url": entry.url}
    if entry.link:
        item["external_url"] = entry.link
    if entry.title:
        item["title"] = entry.title
    item["content_html"] = entry.full_html
    if entry.text:
        item["content_text"] = entry.text
    item["date_published"] = iso_time(entry.published)
    item["date_modified"] = iso_time(entry.updated)
    if entry.categories:
        item["tags"] = list(entry.categories)
    if file := entry.enclosure:
        attachment: dict[str, Any] = {"url": file.url, "mime_type": file.media_type}
        if file.size:
            attachment["size_in_bytes"] = file.size
        item["attachments"] = [attachment]
    return item
