"""Stores the intents that wait to be verified.

Each function runs as one step of a transaction that the caller began.  If that transaction is
rolled back and run again, the function does the same again.
"""

from __future__ import annotations

from sqlalchemy import Connection, Row, delete, func, select, update

from rsscloud_broker.model import Callback, Intent
from rsscloud_broker.records import PendingIntent
from rsscloud_broker.storage.conflicts import insert_missing
from rsscloud_broker.storage.schema import (
    intent,
    options_from_text,
    options_to_text,
)
from rsscloud_broker.tables import (
    to_micros,
    to_seconds_or_none,
)


def add_intent(conn: Connection, wanted: Intent, limit: int) -> PendingIntent | None:
    """See ``IStore.add_intent``.

    An intent that replaces another gets a new id.  So the queue, which may still be verifying the
    replaced intent, can neither remove nor postpone the new one.
    """
    identity = {
        "topic": wanted.topic,
        "callback_url": wanted.callback.url,
        "protocol": wanted.callback.protocol,
        "procedure": wanted.callback.procedure,
    }
    replaced = conn.execute(delete(intent).filter_by(**identity)).rowcount
    if not replaced:
        kept = conn.execute(select(func.count()).select_from(intent)).scalar_one()
        if kept >= limit:
            return None
    values = {
        "lease_seconds": wanted.lease_seconds,
        "challenge": wanted.challenge,
        "source": wanted.source,
        "options": options_to_text(wanted.options),
        "unsubscribe": wanted.unsubscribe,
        "written_topic": wanted.written,
        **identity,
    }
    while not (made := insert_missing(conn, intent, [values], intent.c.id)):
        # Another node has just stored such an intent, which this one replaces.
        conn.execute(delete(intent).filter_by(**identity))
    return PendingIntent(made.pop(), wanted)


def postpone_intent(conn: Connection, key: int, attempts: int, retry_at: float) -> None:
    """See ``IStore.postpone_intent``."""
    conn.execute(
        update(intent)
        .where(intent.c.id == key)
        .values(attempts=attempts, retry_at=to_micros(retry_at))
    )


def remove_intent(conn: Connection, key: int) -> None:
    """See ``IStore.remove_intent``."""
    conn.execute(delete(intent).where(intent.c.id == key))


def intents(conn: Connection) -> list[PendingIntent]:
    """See ``IStore.intents``."""
    return [_pending(row) for row in conn.execute(select(intent).order_by(intent.c.id))]


def _pending(row: Row[tuple[object, ...]]) -> PendingIntent:
    return PendingIntent(
        row.id,
        Intent(
            topic=row.topic,
            callback=Callback(row.callback_url, row.protocol, row.procedure),
            lease_seconds=row.lease_seconds,
            challenge=row.challenge,
            source=row.source,
            options=options_from_text(row.options),
            unsubscribe=row.unsubscribe,
            written=row.written_topic,
        ),
        row.attempts,
        to_seconds_or_none(row.retry_at),
    )
