"""Writes the status of a topic as JSON and as text, for the command and for pages.

In JSON, times are in UTC, and null if there was none::

    {"url": "http://example.org/rss.xml", "moved_from": [], "subscribers": 3,
     "asked_at": "2026-11-21T02:30:00Z", "result": "304, not modified", ...}

The text has a line for each fact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rsscloud_broker.model import TopicStatus
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.times import iso_time

#: The number of entry ids that the text shows.
SHOWN_ENTRIES = 3


def to_json(status: TopicStatus) -> dict[str, Any]:
    """A status as a dict for ``json.dumps``."""
    topic = status.topic
    return {
        "url": topic.url,
        "moved_from": list(status.moved_from),
        "ended": topic.ended or None,
        "subscribers": topic.subscribers,
        "asked_at": _iso_or_none(status.asked_at),
        "result": status.result,
        "failures": status.failures,
        "read_at": _iso_or_none(topic.read_at),
        "changed_at": _iso_or_none(topic.changed_at),
        "pinged_at": _iso_or_none(status.pinged_at),
        "size": topic.size,
        "sha256": None if topic.digest is None else topic.digest.hex(),
        "etag": topic.validators.etag or None,
        "last_modified": topic.validators.last_modified or None,
        "fresh_seconds": status.fresh_seconds,
        "next_poll_at": _iso_or_none(status.next_poll_at),
        "poll_reason": status.poll_reason,
        "feed": dict(status.feed),
    }


def to_text(status: TopicStatus) -> str:
    """A status as lines of text, without a line break at the end."""
    return "\n".join(f"{name:<14}{clean(text)}".rstrip() for name, text in _facts(status) if text)


def _facts(status: TopicStatus) -> Iterator[tuple[str, str]]:
    """The name and the text of each fact; a text may be empty."""
    topic, feed = status.topic, status.feed
    yield "topic", topic.url
    yield "moved from", ", ".join(status.moved_from)
    yield "ended", topic.ended
    yield "subscribers", str(topic.subscribers)
    yield "last asked", _dated_text(status.asked_at, status.result)
    yield "failures", f"{status.failures} in a row" if status.failures else ""
    yield (
        "last read",
        _dated_text(topic.read_at, "" if topic.size is None else f"{topic.size} bytes"),
    )
    yield "last changed", _dated_text(topic.changed_at)
    yield "last pinged", _dated_text(status.pinged_at)
    yield "ETag", topic.validators.etag
    yield "Last-Modified", topic.validators.last_modified
    if status.next_poll_at is None:
        yield "next poll", "" if topic.ended else "none: " + (status.poll_reason or "not planned")
    else:
        yield "next poll", _dated_text(status.next_poll_at, status.poll_reason)
    if not feed:
        return
    if "unreadable" in feed:
        yield "feed", f"cannot be read as one: {feed['unreadable']}"
        return
    yield "feed", str(feed.get("format", ""))
    for name in ("title", "link", "self_link"):
        yield name.replace("_", " "), str(feed.get(name, ""))
    yield "hubs", ", ".join(map(str, feed.get("hubs", ())))
    entries = [str(entry) for entry in feed.get("entry_ids", ())]
    more = f" and {len(entries) - SHOWN_ENTRIES} more" if len(entries) > SHOWN_ENTRIES else ""
    yield "entries", ", ".join(entries[:SHOWN_ENTRIES]) + more
    hints = {name: value for name, value in (feed.get("hints") or {}).items() if value}
    yield "hints", ", ".join(f"{name} {value}" for name, value in hints.items())
    for problem in feed.get("problems", ()):
        yield "problem", str(problem)


def _dated_text(seconds: float | None, text: str = "") -> str:
    """A time and a text about it; "never" if there is no time."""
    time = _iso_or_none(seconds)
    return "never" if time is None else f"{time}  {text}"


def _iso_or_none(seconds: float | None) -> str | None:
    """A time in UTC, from seconds since the epoch."""
    return None if seconds is None else iso_time(seconds)
