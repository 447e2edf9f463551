"""Stores the intents that wait to be verified."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, Row, delete, func, select, update

from rsscloud_broker.database.columns import columns_of, insert_missing, record_of, to_micros
from rsscloud_broker.errors import ClaimLost
from rsscloud_broker.model import Callback, Intent
from rsscloud_broker.model.work import PendingIntent
from rsscloud_broker.storage.schema import intent, options_from_text, options_to_text
from rsscloud_broker.storage.topic_urls import same


def add_intent(
    conn: Connection, wanted: Intent, limit: int, node: int | None = None
) -> PendingIntent | None:
    """Store an intent until it is verified, in place of an earlier one with the same topic
    and callback.

    An intent that replaces another gets a new id.  So the queue, which may still be verifying the
    replaced intent, can neither remove nor postpone the new one.

    :param node: the node that claims the intent; None to leave it free.
    :returns: None if ``limit`` intents are stored already.
    """
    if not drop_intent(conn, wanted.topic, wanted.callback):
        kept = conn.execute(select(func.count()).select_from(intent)).scalar_one()
        if kept >= limit:
            return None
    values = columns_of(
        wanted,
        intent,
        callback_url=wanted.callback.url,
        protocol=wanted.callback.protocol,
        procedure=wanted.callback.procedure,
        options=options_to_text(wanted.options),
        written_topic=wanted.written,
        node_id=node,
    )
    while not (made := insert_missing(conn, intent, [values], intent.c.id)):
        # Another node has just stored such an intent, which this one replaces.
        drop_intent(conn, wanted.topic, wanted.callback)
    return PendingIntent(made.pop(), wanted)


def drop_intent(conn: Connection, topic: str, callback: Callback) -> bool:
    """Remove the intent with a topic and a callback, as a later request is to count.

    :returns: whether one waited.
    """
    waiting = delete(intent).where(
        same(conn, intent.c.topic, topic),
        same(conn, intent.c.callback_url, callback.url),
        intent.c.protocol == callback.protocol,
        intent.c.procedure == callback.procedure,
    )
    return conn.execute(waiting).rowcount > 0


def _is_not_others(key: int, node: int | None) -> ColumnElement[bool]:
    """The condition that an intent has a key, and no other node than this one has claimed it."""
    return (intent.c.id == key) & (intent.c.node_id.is_(None) | (intent.c.node_id == node))


def postpone_intent(
    conn: Connection, node: int | None, key: int, attempts: int, retry_at: float
) -> None:
    """Record that the verification of an intent failed, and when it is tried again.  An intent
    that was removed or replaced meanwhile is not touched.

    :param attempts: how many times it has failed by now.
    :param retry_at: a time of the wall clock.
    """
    conn.execute(
        update(intent)
        .where(_is_not_others(key, node))
        .values(attempts=attempts, retry_at=to_micros(retry_at))
    )


def has_intent(conn: Connection, key: int) -> bool:
    """Whether an intent waits: it was neither settled nor replaced by a later one."""
    return conn.execute(select(intent.c.id).where(intent.c.id == key)).first() is not None


def remove_intent(conn: Connection, node: int | None, key: int) -> None:
    """Remove an intent, unless another node has claimed it."""
    conn.execute(delete(intent).where(_is_not_others(key, node)))


def settle_intent(conn: Connection, key: int | None, node: int | None = None) -> None:
    """Remove the intent that this transaction carries out by adding or removing a subscription.

    :param key: the id of the intent; None if there is none, so that nothing is done.
    :param node: the node id of this process; None if it has none, and so has claimed no intent.
    :raises ClaimLost: it was replaced meanwhile, or another node has claimed it.
    """
    if (
        key is not None
        and not conn.execute(delete(intent).where(_is_not_others(key, node))).rowcount
    ):
        raise ClaimLost


def intents(
    conn: Connection, after: int, limit: int, node: int | None = None
) -> list[PendingIntent]:
    """The intents that are not verified yet, oldest first.

    If there can be several nodes, those that this process has claimed.

    :param after: only intents with a greater key.
    :param node: the node id of this process; None if it is the only one.
    """
    query = select(intent).where(intent.c.id > after).order_by(intent.c.id).limit(limit)
    if node is not None:
        query = query.where(intent.c.node_id == node)
    return [_pending(row) for row in conn.execute(query)]


def take_over(conn: Connection, after: int, limit: int, node: int) -> list[PendingIntent]:
    """Claim intents on SQLite, where those of an earlier process are this one's now."""
    found = intents(conn, after, limit)
    claimed = update(intent).where(intent.c.id.in_([each.id for each in found]))
    conn.execute(claimed.values(node_id=node))
    return found


def claim_intents(conn: Connection, limit: int, node: int) -> list[PendingIntent]:
    """Claim intents that no node has claimed: the node that accepted them has ended.

    A node can neither postpone nor remove an intent that another has claimed.
    """
    free = select(intent).where(intent.c.node_id.is_(None)).order_by(intent.c.id).limit(limit)
    found = conn.execute(free.with_for_update(skip_locked=True)).all()
    claimed = update(intent).where(intent.c.id.in_([row.id for row in found]))
    conn.execute(claimed.values(node_id=node))
    return [_pending(row) for row in found]


def _pending(row: Row[tuple[object, ...]]) -> PendingIntent:
    """The intent that a row stores."""
    wanted = record_of(
        Intent,
        row,
        callback=Callback(row.callback_url, row.protocol, row.procedure),
        options=options_from_text(row.options),
        written=row.written_topic,
        present=False,  # it is not stored
    )
    return record_of(PendingIntent, row, intent=wanted)
