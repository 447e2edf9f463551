"""Says in words how the river learns of new items of a feed."""

from __future__ import annotations

from typing import Final

from rsscloud_broker.apps.river.model import Feed, FeedRecord, How
from rsscloud_broker.web.words import counted
from rsscloud_broker.wire.times import iso_time

#: What pushes a feed, and what it is asked for.
_WORDS: Final = {"websub": ("hub", "subscription"), "rsscloud": ("cloud", "registration")}


def feed_view(record: FeedRecord, added_at: float, now: float, *, own: bool) -> Feed:
    """A feed as somebody who follows it sees it.

    :param own: whether this broker serves it, or is its hub or its cloud.
    """
    offer = record.current
    pushed = offer is not None and record.is_pushed(now)
    how: How = "own" if own else offer.kind if offer is not None and pushed else "polled"
    return Feed(
        id=record.id,
        url=record.url,
        title=record.title or record.url,
        link=record.link,
        how=how,
        hub=offer.url if offer is not None and not own else "",
        renew_at=record.push_due_at if how in {"websub", "rsscloud"} else None,
        verified_at=record.verified_at,
        pushed=record.pushed,
        found_by_poll=record.found_by_poll,
        status=_status_in_words(record, how),
        added_at=added_at,
        is_waiting=record.reads_until is None and not record.problem,
    )


def _status_in_words(record: FeedRecord, how: How) -> str:
    if record.reads_until is None and record.problem:
        return f"cannot be read now: {record.problem}; tried again {iso_time(record.read_due_at)}"
    if record.reads_until is None:
        return "will be read for the first time in a moment"
    return "; ".join(
        filter(None, (_how_in_words(record, how), _counts_in_words(record, how), record.problem))
    )


def _how_in_words(record: FeedRecord, how: How) -> str:
    """How the river learns of new items, and why no hub or cloud pushes them, as a clause."""
    offer = record.current
    if how == "own":
        return "notified by this broker itself"
    if offer is None:
        return "polled, since it names no hub and no cloud"
    kind, asked = _WORDS[offer.kind]
    name = f"the {kind} {offer.url}"
    due = f"{iso_time(record.push_due_at)}" if record.push_due_at is not None else "not planned"
    problem = record.push_problem
    if how != "polled":
        failed = f"the last renewal failed: {problem}" if problem else ""
        return "; ".join(filter(None, (f"notified by {name}; next renewal {due}", failed)))
    if record.asked_at is not None:
        return f"polled until {name} confirms the {asked}"
    because = f", since {problem}" if problem else ""
    return f"polled{because}; {name} is asked {due}"


def _counts_in_words(record: FeedRecord, how: How) -> str:
    """How many of the new items were pushed, as a clause; empty if none could be."""
    total = record.pushed + record.found_by_poll
    if not total:
        return "" if how == "polled" else "nothing new has come yet"
    return (
        f"{record.pushed} of {counted(total, 'new item')} {'was' if total == 1 else 'were'} pushed"
    )
