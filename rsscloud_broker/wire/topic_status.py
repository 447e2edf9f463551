"""What is known of a topic, written for people and for pages.

As JSON, for whoever makes pages of it; moments are in UTC, and null where there was none::

    {"url": "http://example.org/rss.xml", "moved_from": [], "subscribers": 3,
     "asked_at": "2026-11-21T02:30:00Z", "result": "304, not modified", ...}

As text, a line for each thing that is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rsscloud_broker.model import TopicStatus
from rsscloud_broker.wire.text import clean

#: How many ids of entries are shown as text.
SHOWN_ENTRIES = 3


def to_json(account: TopicStatus) -> dict[str, Any]:
    """An account as ``json.dumps`` takes it."""
    topic = account.topic
    return {
        "url": topic.url,
        "moved_from": list(account.moved_from),
        "ended": topic.ended or None,
        "subscribers": topic.subscribers,
        "asked_at": _moment(account.asked_at),
        "result": account.result,
        "failures": account.failures,
        "read_at": _moment(topic.read_at),
        "changed_at": _moment(topic.changed_at),
        "pinged_at": _moment(account.pinged_at),
        "size": topic.size,
        "sha256": None if topic.digest is None else topic.digest.hex(),
        "etag": topic.validators.etag or None,
        "last_modified": topic.validators.last_modified or None,
        "fresh_seconds": account.fresh_seconds,
        "next_poll_at": _moment(account.next_poll_at),
        "poll_reason": account.poll_reason,
        "feed": dict(account.feed),
    }


def to_text(account: TopicStatus) -> str:
    """An account as lines, without a last line break."""
    return "\n".join(f"{name:<14}{clean(text)}".rstrip() for name, text in _lines(account) if text)


def _lines(account: TopicStatus) -> Iterator[tuple[str, str]]:
    topic, feed = account.topic, account.feed
    yield "topic", topic.url
    yield "moved from", ", ".join(account.moved_from)
    yield "ended", topic.ended
    yield "subscribers", str(topic.subscribers)
    yield "last asked", _said(account.asked_at, account.result)
    yield "failures", f"{account.failures} in a row" if account.failures else ""
    yield "last read", _said(topic.read_at, "" if topic.size is None else f"{topic.size} bytes")
    yield "last changed", _said(topic.changed_at)
    yield "last pinged", _said(account.pinged_at)
    yield "ETag", topic.validators.etag
    yield "Last-Modified", topic.validators.last_modified
    if account.next_poll_at is None:
        yield "next poll", "" if topic.ended else "none: " + (account.poll_reason or "not planned")
    else:
        yield "next poll", _said(account.next_poll_at, account.poll_reason)
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


def _said(at: float | None, what: str = "") -> str:
    """A moment and what there was then; "never" if there was none."""
    moment = _moment(at)
    return "never" if moment is None else f"{moment}  {what}"


def _moment(at: float | None) -> str | None:
    return None if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
