"""Stores which work may have ended processes of the broker.

If the node ends that has claimed some work, the work is *suspect*: it may be the reason.  Nearly
always it is not.  A row says how many nodes have ended so.  At first, all that a node had claimed
gets one, as nobody knows what it was at.  From then on the work is only begun in a *trial*, which
says so in its row; and only a node that ends during a trial counts again.  So who waits for a
trial is not blamed for what another one has done.  ``trials`` makes them, a few at a time or alone.

Notifications are not counted: docs/decisions/0024 says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, func, select, update

from rsscloud_broker.database.columns import insert_into, to_micros
from rsscloud_broker.model.shared import Work, WorkKind
from rsscloud_broker.storage.operating_schema import suspect
from rsscloud_broker.storage.schema import intent, topic
from rsscloud_broker.storage.topic_urls import key_of

#: Seconds after which suspects are forgotten.  Whatever is repeated is repeated each day.
REMEMBERED: Final = 7 * 86_400.0

#: What is suspect if it was claimed, by the columns with the ids of the nodes.
_KINDS: Final[Mapping[Any, str]] = {
    topic.c.check_node_id: WorkKind.TOPIC,
    topic.c.poll_node_id: WorkKind.TOPIC,
    intent.c.node_id: WorkKind.INTENT,
}


def suspect_claimed(
    conn: Connection, claim: Any, keys: Sequence[Any], now: ColumnElement[int]
) -> None:
    """Make work suspect that nodes had claimed when they ended.

    :param claim: the column with the ids of the nodes.
    :param keys: the keys of the rows.
    :param now: the time, in microseconds.
    """
    kind = _KINDS.get(claim)
    if kind is not None and keys:
        new = insert_into(conn, suspect).values(
            kind=kind, key=bindparam("of_row"), ends=1, ended_at=now
        )
        conn.execute(new.on_conflict_do_nothing(), [{"of_row": key} for key in sorted(keys)])


def count_ends(conn: Connection, nodes: Sequence[int], now: ColumnElement[int]) -> None:
    """Count that nodes have ended during trials, and forget suspects of ``REMEMBERED`` ago."""
    ended = update(suspect).where(suspect.c.node_id.in_(nodes))
    conn.execute(ended.values(ends=suspect.c.ends + 1, node_id=None, ended_at=now))
    forgotten = suspect.c.ended_at < now - to_micros(REMEMBERED)
    conn.execute(delete(suspect).where(forgotten, suspect.c.node_id.is_(None)))


def newest_end(conn: Connection) -> int | None:
    """When the last end of a node was found that made work suspect; None if nothing is suspect."""
    found: int | None = conn.scalar(select(func.max(suspect.c.ended_at)))
    return found


def suspects(conn: Connection) -> dict[Work, int]:
    """The suspects, each with how many nodes have ended because of it, as it seems."""
    of_topic = and_(suspect.c.kind == WorkKind.TOPIC, topic.c.id == suspect.c.key)
    known = select(suspect.c.kind, suspect.c.key, suspect.c.ends, topic.c.url)
    known = known.join(topic, of_topic, isouter=True).where(suspect.c.kind.in_(WorkKind))
    return {
        Work(WorkKind(row.kind), row.key if row.url is None else row.url): row.ends
        for row in conn.execute(known)
    }


def is_left_alone(conn: Connection, work: Work, seconds: float, now: ColumnElement[int]) -> bool:
    """Whether a suspect seems to have ended a node in the last ``seconds``, and so must wait."""
    lately = suspect.c.ended_at > now - to_micros(seconds)
    return conn.execute(select(suspect.c.ends).where(_is_suspect(work), lately)).first() is not None


def begin_trial(conn: Connection, work: Work, node: int) -> None:
    """Say that this node is at a suspect from now on."""
    conn.execute(update(suspect).where(_is_suspect(work)).values(node_id=node))


def end_trial(conn: Connection, work: Work, node: int, *, harmless: bool) -> None:
    """Say that this node is not at a suspect any more.

    :param harmless: whether the work came to its end, so that it is not suspect any more.
    """
    own = and_(_is_suspect(work), suspect.c.node_id == node)
    conn.execute(
        delete(suspect).where(own) if harmless else update(suspect).where(own).values(node_id=None)
    )


def _is_suspect(work: Work) -> ColumnElement[bool]:
    """The condition for the row of a suspect, whose name is the URL of a topic, or an id."""
    key = key_of(work.name) if isinstance(work.name, str) else work.name
    return and_(suspect.c.kind == work.kind, suspect.c.key == key)
