"""The summary of a feed that the store keeps: what the feed says about itself, within limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import asdict, evolve

from rsscloud_broker.model import Content
from rsscloud_broker.wire.feed import read_feed
from rsscloud_broker.wire.feed_facts import FeedFacts
from rsscloud_broker.wire.feed_hints import Hints
from rsscloud_broker.wire.feed_tree import UnreadableFeed

#: How many entry ids a summary keeps.
MAX_ENTRIES: Final = 50

#: How many bytes a summary may have, as JSON.
MAX_SUMMARY: Final = 16 * 1024


def facts_of(content: Content) -> FeedFacts | str:
    """Parse a content as a feed.

    :returns: what the feed says, with as many entries as a summary keeps; or why the content is no
        feed.
    """
    try:
        facts = read_feed(content.body, content.content_type)
    except UnreadableFeed as error:
        return str(error)
    return evolve(facts, entry_ids=facts.entry_ids[:MAX_ENTRIES])


def summary(facts: FeedFacts | str) -> dict[str, Any]:
    """The summary of what ``facts_of`` found.

    :returns: the fields of ``FeedFacts`` as values for JSON; or, if the content is no feed or
        the summary is too large, only ``unreadable`` with the reason.
    """
    if isinstance(facts, str):
        return {"unreadable": facts}
    said = asdict(facts)
    said["entry_ids"] = said["entry_ids"][:MAX_ENTRIES]
    hints = said["hints"]
    for name in ("skip_hours", "skip_days"):
        hints[name] = sorted(hints[name])
    if _size(said) > MAX_SUMMARY:
        said["entry_ids"] = []
    if _size(said) > MAX_SUMMARY:
        return {"unreadable": f"it says more than {MAX_SUMMARY} bytes of itself"}
    return said


def _size(said: Mapping[str, Any]) -> int:
    return len(json.dumps(said))


def hints_of(feed: Mapping[str, Any]) -> Hints:
    """The polling hints in a summary."""
    said = dict(feed.get("hints") or {})
    for name in ("skip_hours", "skip_days"):
        said[name] = frozenset(said.get(name) or ())
    return Hints(**said)
