"""Makes rows in tables, for tests that need very many of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, insert

from rsscloud_broker.storage.schema import subscription, topic

#: Where the callbacks of subscriptions are.
HOST = "reader.example"


def add_topics(conn: Connection, urls: Iterable[str], **values: Any) -> list[int]:
    """Add topics; return their ids."""
    rows = [{"url": url, **values} for url in urls]
    return sorted(conn.scalars(insert(topic).returning(topic.c.id), rows))


def add_subscriptions(
    conn: Connection, topic_id: int, callbacks: Iterable[str], *hosts: str
) -> list[int]:
    """Add subscriptions of a topic, which never end; return their ids.

    :param hosts: the host that is stored for each callback; else it is ``HOST``.
    """
    common = {
        "topic_id": topic_id,
        "protocol": "http-post",
        "host": HOST,
        "granted_at": 0,
        "lease_seconds": 90_000,
        "expires_at": 10**16,
        "consecutive_errors": 0,
        "last_error": "",
        "dropping": False,
    }
    rows = [{**common, "callback_url": each} for each in callbacks]
    for row, host in zip(rows, hosts, strict=False):
        row["host"] = host
    added = conn.scalars(insert(subscription).returning(subscription.c.id), rows) if rows else ()
    return sorted(added)
