"""Reads from the database which topics wait to be fetched."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select
from twisted.internet.defer import Deferred

from rsscloud_broker.model.ways import ChangeSource
from rsscloud_broker.model.work import Check, WantedChecks
from rsscloud_broker.storage.schema import topic

#: Why a topic is fetched of whose ping no more is known.
PINGED = ChangeSource(pinged=True)

#: What a process claims that has nothing to do.
SOME = WantedChecks(limit=10, of_host=10, now=10_000.0)


def read_checks(conn: Connection, limit: int) -> list[Check]:
    """The topics that wait to be fetched, longest waiting first, claimed or not."""
    waiting = (
        select(topic.c.url, topic.c.check_pinged)
        .where(topic.c.check_requested_at.is_not(None))
        .order_by(topic.c.check_requested_at, topic.c.id)
        .limit(limit)
    )
    return [Check(url, cause=ChangeSource(pinged=pinged)) for url, pinged in conn.execute(waiting)]


def waiting_checks(store: Any, limit: int) -> Deferred[list[Check]]:
    """As ``read_checks``, from the database of a ``Store``."""
    found: Deferred[list[Check]] = store._database.read(lambda conn: read_checks(conn, limit))
    return found
