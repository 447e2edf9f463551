"""Reads what a JSON Feed says about itself (https://www.jsonfeed.org/version/1.1/).

``feed.read_feed`` calls it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rsscloud_broker.wire import cloud, feed_facts
from rsscloud_broker.wire.cloud import Cloud
from rsscloud_broker.wire.feed_tree import MAX_BYTES, UnreadableFeed
from rsscloud_broker.wire.text import clean


def read_json(body: bytes) -> feed_facts.FeedFacts:
    """Read what a JSON Feed says about itself.

    :raises UnreadableFeed: the body is not a JSON Feed, or too large.
    """
    if len(body) > MAX_BYTES:
        raise UnreadableFeed(f"it is larger than {MAX_BYTES} bytes")
    try:
        feed = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableFeed(f"it is not JSON: {clean(str(error))[:200]}") from None
    version = _text(feed, "version")
    items = _list(feed, "items")
    if "jsonfeed.org/version/" not in version:
        raise UnreadableFeed("it is JSON, but its version does not say that it is a JSON Feed")
    problems: list[str] = []
    hubs = _list(feed, "hubs")[: feed_facts.MAX_LINKS]
    push = (_text(hub, "url") for hub in hubs if _text(hub, "type").lower() == "websub")
    ids = ((_text(item, "id") or _text(item, "url"))[: feed_facts.MAX_TEXT] for item in items)
    return feed_facts.FeedFacts(
        format="json feed",
        title=_text(feed, "title")[: feed_facts.MAX_TEXT],
        link=feed_facts.to_url(_text(feed, "home_page_url")),
        self_link=feed_facts.to_url(_text(feed, "feed_url")),
        hubs=tuple(filter(None, map(feed_facts.to_url, push))),
        clouds=_clouds(hubs, problems),
        entry_ids=feed_facts.unique_ids(filter(None, ids)),
        problems=tuple(problems),
    )


def _clouds(hubs: list[Any], problems: list[str]) -> tuple[Cloud, ...]:
    """The rssCloud hubs that a feed names; what is wrong with one becomes a problem."""
    clouds = []
    for hub in hubs:
        if _text(hub, "type").lower() == "rsscloud":
            try:
                clouds.append(cloud.from_url(_text(hub, "url")))
            except cloud.InvalidCloud as error:
                problems.append(str(error))
    return tuple(clouds)


def _text(holder: Any, name: str) -> str:
    """A text in a JSON object, or a number as text, as some feeds have numbers for ids."""
    value = holder.get(name) if isinstance(holder, dict) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    return clean(value[: feed_facts.MAX_FEED_URL + 1]) if isinstance(value, str) else ""


def _list(holder: Any, name: str) -> list[Any]:
    """A list in a JSON object; empty if there is none."""
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, list) else []
