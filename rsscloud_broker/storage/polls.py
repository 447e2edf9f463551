"""Stores the status of topics: the results of fetches, what feeds say about themselves, how often
they changed, and the plans of polls.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Connection, Row, bindparam, or_, select, update

from rsscloud_broker.database.columns import (
    record_of,
    to_micros,
    to_micros_or_none,
    to_seconds_or_none,
)
from rsscloud_broker.model import TopicStatus
from rsscloud_broker.model.work import ANY_PLAN, PollPlan
from rsscloud_broker.storage.hints import READ, hint
from rsscloud_broker.storage.schema import topic
from rsscloud_broker.storage.topic_urls import (
    HAS_SUBSCRIPTIONS,
    TOPICS,
    TOPICS_BY_URL,
    as_topic,
    key_of,
    named,
)
from rsscloud_broker.wire.units import DAY

_PLAN = (
    update(topic)
    .where(
        topic.c.id == key_of(bindparam("of_url")),
        topic.c.ended == "",
        or_(topic.c.poll_node_id.is_(None), topic.c.poll_node_id == bindparam("node")),
        or_(
            bindparam("any_plan", type_=Boolean),
            topic.c.planned_at.is_not_distinct_from(bindparam("replaces", type_=BigInteger)),
        ),
    )
    .values(
        next_poll_at=bindparam("due"),
        poll_reason=bindparam("reason"),
        poll_interval=bindparam("interval"),
        planned_at=bindparam("planned"),
        poll_node_id=None,
    )
)

#: Most feeds say the same after each change: then no row is written.
_RECORD_FEED = (
    update(topic)
    .where(topic.c.id == key_of(bindparam("of_url")), topic.c.feed != bindparam("said"))
    .values(feed=bindparam("said"))
)


def topic_statuses(conn: Connection, urls: Sequence[str]) -> list[TopicStatus | None]:
    """The topic at each URL, with its last fetch and its next poll; None if it is unknown."""
    rows = conn.execute(TOPICS_BY_URL.where(named.c.url.in_(urls))).all()
    found = dict(zip((row.asked for row in rows), _statuses(conn, rows), strict=True))
    return [found.get(url) for url in urls]


def claim_polls(conn: Connection, now: float, limit: int, node: int) -> list[TopicStatus]:
    """Claim the topics whose polls are due, longest due first, with or without subscriptions.

    This process has the claims until it plans the next polls.  Topics that another node has claimed
    are left out.
    """
    claim = topic.c.poll_node_id
    due = (
        select(topic.c.id, claim)
        .where(topic.c.next_poll_at <= to_micros(now), or_(claim.is_(None), claim == node))
        .order_by(topic.c.next_poll_at, topic.c.id)
        .limit(limit)
    )
    found = conn.execute(due.with_for_update(skip_locked=True, key_share=True)).all()
    free = [key for key, claimant in found if claimant is None]
    if free:
        conn.execute(update(topic).where(topic.c.id.in_(free)).values(poll_node_id=node))
    rows = TOPICS.where(topic.c.id.in_([key for key, _ in found])).order_by(
        topic.c.next_poll_at, topic.c.id
    )
    return _statuses(conn, conn.execute(rows).all())


def polls_due(conn: Connection, now: float, limit: int) -> list[TopicStatus]:
    """The topics whose polls are due, longest due first.  Topics that have ended have none."""
    query = (
        TOPICS.where(topic.c.next_poll_at <= to_micros(now))
        .order_by(topic.c.next_poll_at, topic.c.id)
        .limit(limit)
    )
    return _statuses(conn, conn.execute(query).all())


def _statuses(conn: Connection, rows: Sequence[Row[Any]]) -> list[TopicStatus]:
    """The status of topics, in the order of their rows, with the URLs that they have left."""
    old_urls = (
        select(topic.c.moved_to_id, topic.c.url)
        .where(topic.c.moved_to_id.in_([row.id for row in rows]))
        .order_by(topic.c.url)
    )
    moved_from: dict[int, list[str]] = {}
    if rows:
        for key, url in conn.execute(old_urls):
            moved_from.setdefault(key, []).append(url)
    return [_status(row, moved_from.get(row.id, ())) for row in rows]


def _status(row: Row[Any], moved_from: Sequence[str]) -> TopicStatus:
    """The status of a topic by its row, with the URLs that it has left."""
    return record_of(
        TopicStatus,
        row,
        topic=as_topic(row),
        fresh_seconds=to_seconds_or_none(row.fresh_seconds),
        poll_interval=to_seconds_or_none(row.poll_interval),
        feed=json.loads(row.feed) if row.feed else {},
        moved_from=tuple(moved_from),
        change_days=change_days(row.change_days),
    )


def record_failure(
    conn: Connection, url: str, at: float, reason: str, retry_after: float | None = None
) -> None:
    """Record that a fetch of a known topic failed; send the hint ``read`` if nodes wait for it.

    :param retry_after: for how many seconds its server asks not to be asked again, if it does.
    """
    failed = (
        update(topic)
        .where(topic.c.id == key_of(url))
        .values(
            asked_at=to_micros(at),
            result=reason[:300],
            failures=topic.c.failures + 1,
            fresh_seconds=to_micros_or_none(retry_after),
        )
        .returning(topic.c.id, topic.c.check_awaited)
    )
    row = conn.execute(failed).first()
    if row is not None and row.check_awaited:
        hint(conn, READ, row.id)


def record_feeds(
    conn: Connection, summaries: Sequence[tuple[str, Mapping[str, Any]]]
) -> list[None]:
    """Store what feeds say about themselves, each in place of what it said before.

    :param summaries: each with the URL of the feed.
    """
    conn.execute(
        _RECORD_FEED,
        [
            {"of_url": url, "said": json.dumps(dict(feed), separators=(",", ":")) if feed else ""}
            for url, feed in summaries
        ],
    )
    return [None] * len(summaries)


def plan_polls(conn: Connection, node: int | None, plans: Sequence[PollPlan]) -> None:
    """Store when topics are polled next.

    Plans of topics that have ended are ignored, and those made on the ground of a plan that another
    has replaced meanwhile: see ``PollPlan.replaces``.

    :param node: the node id of this process; plans of polls that another has claimed are ignored.
    """
    if not plans:
        return
    conn.execute(
        _PLAN,
        [
            {
                "of_url": plan.url,
                "due": to_micros_or_none(plan.at),
                "reason": plan.reason,
                "interval": to_micros_or_none(plan.interval),
                "planned": to_micros(plan.planned_at),
                "node": node,
                "any_plan": plan.replaces == ANY_PLAN,
                "replaces": to_micros_or_none(plan.replaces),
            }
            for plan in plans
        ],
    )


def forget_ping(conn: Connection, url: str, at: float) -> None:
    """Forget when a topic was last pinged, and make its next poll due now if it is polled."""
    of_url = topic.c.id == key_of(url)
    conn.execute(update(topic).where(of_url).values(pinged_at=None))
    polled = (of_url, topic.c.next_poll_at.is_not(None))
    conn.execute(update(topic).where(*polled).values(next_poll_at=to_micros(at)))


def make_due(conn: Connection, keys: Collection[int], at: int) -> None:
    """Make polls of topics due that have subscriptions and no poll yet.

    :param keys: the ids of the topics.
    :param at: when the polls are due, in microseconds.
    """
    conn.execute(
        update(topic)
        .where(
            topic.c.id.in_(keys),
            topic.c.next_poll_at.is_(None),
            topic.c.ended == "",
            HAS_SUBSCRIPTIONS,
        )
        .values(next_poll_at=at)
    )


# --- how often a topic changed

# The column is a JSON object: days since the epoch (UTC), each with the number of its changes.  So
# a change costs no statement of its own.

#: How many days are kept, with that of the last change.
_DAYS_KEPT: Final = 30


def with_change(stored: str, at: float) -> str:
    """The value of the column ``stored`` with a further change counted in it.

    :param at: when the topic changed, in seconds since the epoch.
    """
    return merge_change_days(stored, json.dumps({int(at // DAY): 1}))


def merge_change_days(*stored: str) -> str:
    """The value of the column of a topic that has the changes of several, as when topics become
    one.  Only the 30 days up to the newest change are kept.  Empty if there are no changes.
    """
    total = sum((Counter(change_days(one)) for one in stored), Counter[int]())
    newest = max(total, default=0)
    kept = {day: total[day] for day in sorted(total) if day > newest - _DAYS_KEPT}
    return json.dumps(kept, separators=(",", ":")) if kept else ""


def change_days(stored: str) -> Mapping[int, int]:
    """How often a topic changed, by day since the epoch."""
    return {int(day): number for day, number in json.loads(stored or "{}").items()}
