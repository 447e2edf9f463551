"""Stores the requests and answers of failed attempts, so that administrators can look at them.

The store keeps the last few of each subscription, and the last ten thousand or so in all.  They
are stored in the transaction that stores the outcomes of deliveries.  Deliveries that succeed cost
nothing here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select

from rsscloud_broker.database.columns import record_of, to_micros
from rsscloud_broker.model import Exchange
from rsscloud_broker.model.administration import FailedAttempt
from rsscloud_broker.model.work import Delivery
from rsscloud_broker.storage.operating_schema import failed_attempt
from rsscloud_broker.storage.schema import subscription

_STORED: Final = ("at", "attempt", "reason", "exchange", "request_body", "answer_body")

# It inserts nothing if the subscription was removed meanwhile.
_INSERT = insert(failed_attempt).from_select(
    ["subscription_id", *_STORED],
    select(
        subscription.c.id,
        *(bindparam(f"new_{name}", type_=failed_attempt.c[name].type) for name in _STORED),
    ).where(subscription.c.id == bindparam("key")),
)

_last = failed_attempt.alias("last")

# The id of the third newest failed attempt of a subscription: older ones are removed.  It is null
# if there are fewer, and nothing is removed.
_OLDEST_KEPT = (
    select(_last.c.id)
    .where(_last.c.subscription_id == bindparam("key"))
    .order_by(_last.c.id.desc())
    .offset(2)
    .limit(1)
    .scalar_subquery()
)

_TRIM = delete(failed_attempt).where(
    failed_attempt.c.subscription_id == bindparam("key"), failed_attempt.c.id < _OLDEST_KEPT
)


def add_failed_attempts(conn: Connection, deliveries: Sequence[Delivery], limit: int) -> None:
    """Store the exchanges of those deliveries that failed and have one, and remove older ones.

    :param limit: by how much the ids of those that are kept differ at most; as some of these are
        removed, fewer may be kept.
    """
    rows = [
        _insert_parameters(one, one.outcome.reason, one.outcome.exchange)
        for one in deliveries
        if one.outcome is not None and one.outcome.exchange is not None
    ]
    if not rows:
        return
    conn.execute(_INSERT, rows)
    conn.execute(_TRIM, [{"key": row["key"]} for row in rows])
    newest = select(func.max(_last.c.id)).scalar_subquery()
    conn.execute(delete(failed_attempt).where(failed_attempt.c.id <= newest - limit))


def _insert_parameters(delivery: Delivery, reason: str, exchange: Exchange) -> dict[str, Any]:
    """The parameters of ``_INSERT``."""
    return {
        "key": delivery.subscription.id,
        "new_at": to_micros(delivery.at),
        "new_attempt": (delivery.subscription.attempts or 0) + 1,
        "new_reason": reason,
        "new_exchange": json.dumps(
            {
                "method": exchange.method,
                "url": exchange.url,
                "request": dict(exchange.request_headers),
                "status": exchange.status,
                "answer": dict(exchange.answer_headers),
            },
            separators=(",", ":"),
        ),
        "new_request_body": exchange.request_body,
        "new_answer_body": exchange.answer_body,
    }


def failed_attempts(conn: Connection, key: int) -> tuple[FailedAttempt, ...]:
    """The last failed attempts of a subscription, newest first."""
    kept = failed_attempt.c
    found = conn.execute(
        select(failed_attempt).where(kept.subscription_id == key).order_by(kept.id.desc())
    )
    return tuple(map(_failed_attempt, found))


def _failed_attempt(row: Row[Any]) -> FailedAttempt:
    """The failed attempt that a row stores, with what was sent and answered."""
    stored = json.loads(row.exchange)
    exchange = Exchange(
        method=stored["method"],
        url=stored["url"],
        request_headers=stored["request"],
        request_body=row.request_body,
        status=stored["status"],
        answer_headers=stored["answer"],
        answer_body=row.answer_body,
    )
    return record_of(FailedAttempt, row, exchange=exchange)
