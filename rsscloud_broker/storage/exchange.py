"""Topics and subscriptions as a JSON document, out of the store and into it.

The documents are described in ``documents``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from attrs import evolve, frozen
from sqlalchemy import Connection, Row, bindparam, insert, select, tuple_, update

from rsscloud_broker.model import Subscription, Topic
from rsscloud_broker.storage.documents import (
    InvalidDocument,
    TopicEntry,
    format_time,
    read_document,
)
from rsscloud_broker.storage.schema import from_terms, subscription, to_micros, to_terms, topic
from rsscloud_broker.storage.subscriptions import MATCH_WAITING, lease_values

__all__ = [
    "Imported",
    "InvalidDocument",
    "export_document",
    "import_document",
    "import_in_parts",
]

#: How many topics and subscriptions are stored together: a fraction of a second's
#: work, for which others may have to wait.
_PART = 2000


@frozen
class Imported:
    """What an import took in.

    :ivar topics: those in the document, known before or not.
    :ivar subscriptions: those stored.
    :ivar expired: those left out, since their leases had ended.
    """

    topics: int
    subscriptions: int
    expired: int


# --- export


def export_document(conn: Connection, now: float) -> dict[str, Any]:
    """Every topic with its subscriptions, fit for ``json.dumps``.

    :param now: seconds since the epoch, noted in the document.
    """
    topics: dict[int, dict[str, Any]] = {
        row.id: _export_topic(row) for row in conn.execute(select(topic).order_by(topic.c.url))
    }
    for row in conn.execute(select(subscription).order_by(subscription.c.id)):
        topics[row.topic_id]["subscriptions"].append(_export_subscription(row))
    return {
        "format": "rsscloud-broker",
        "version": 1,
        "exported_at": format_time(to_micros(now)),
        "topics": list(topics.values()),
    }


def _export_topic(row: Row[tuple[object, ...]]) -> dict[str, Any]:
    return {
        "url": row.url,
        "digest": row.digest and row.digest.hex(),
        "size": row.size,
        "read_at": _time_or_none(row.read_at),
        "changed_at": _time_or_none(row.changed_at),
        "ended": row.ended,
        "subscriptions": [],
    }


def _export_subscription(row: Row[tuple[object, ...]]) -> dict[str, Any]:
    return {
        "callback": row.callback_url,
        "protocol": row.protocol,
        "procedure": row.procedure,
        "granted_at": format_time(row.granted_at),
        "lease_seconds": row.lease_seconds,
        "consecutive_errors": row.consecutive_errors,
        "last_error": row.last_error,
        "last_error_at": _time_or_none(row.last_error_at),
        "marked": row.marked,
        "terms": to_terms(row.terms),
        "wants_content": row.wants_content,
    }


def _time_or_none(micros: int | None) -> str | None:
    return None if micros is None else format_time(micros)


# --- import


def import_document(conn: Connection, document: object, now: float) -> Imported:
    """Take in the topics and subscriptions of a document, in one transaction.

    A subscription of the same topic and callback is replaced, others are kept.
    Of two readings or ends of a topic the later is kept.  Nobody is notified.

    :param document: as ``json.loads`` gives it.
    :param now: seconds since the epoch; leases that ended before are left out.
    :raises InvalidDocument: before anything is written.
    """
    return import_in_parts(lambda: nullcontext(conn), document, now)


def import_in_parts(
    begin: Callable[[], AbstractContextManager[Connection]], document: object, now: float
) -> Imported:
    """Like `import_document`, but in many short transactions.

    A broker beside it is never kept waiting for long.  If it ends halfway, what
    was stored so far stays; to import the same document again does no harm.

    :param begin: begins a transaction, which ends with the context.
    """
    entries = read_document(document)
    stored = expired = 0
    for part in _parts(entries):
        every = [one for entry in part for one in entry.subscriptions]
        alive = [one for one in every if one.lease.expires_at > now]
        with begin() as conn:
            keys = _store_topics(conn, [entry.topic for entry in part])
            _store_subscriptions(conn, keys, alive)
        stored += len(alive)
        expired += len(every) - len(alive)
    return Imported(topics=len(entries), subscriptions=stored, expired=expired)


def _parts(entries: Iterable[TopicEntry]) -> Iterator[list[TopicEntry]]:
    part: list[TopicEntry] = []
    size = 0
    for piece in _pieces(entries):
        weight = 1 + len(piece.subscriptions)
        if part and size + weight > _PART:
            yield part
            part, size = [], 0
        part.append(piece)
        size += weight
    if part:
        yield part


def _pieces(entries: Iterable[TopicEntry]) -> Iterator[TopicEntry]:
    """Topics with no more subscriptions than fit into a part, the same topic again
    with the next of them.
    """
    for entry in entries:
        of_topic = entry.subscriptions
        for start in range(0, len(of_topic) or 1, _PART):
            yield evolve(entry, subscriptions=of_topic[start : start + _PART])


def _store_topics(conn: Connection, topics: Sequence[Topic]) -> dict[str, int]:
    """Store topics; their ids by URL."""
    among = topic.c.url.in_([one.url for one in topics])
    known = {
        url: _last(read_at, changed_at)
        for url, read_at, changed_at in conn.execute(
            select(topic.c.url, topic.c.read_at, topic.c.changed_at).where(among)
        )
    }
    values = {one.url: _topic_values(one) for one in topics}
    missing = [some | {"url": url} for url, some in values.items() if url not in known]
    if missing:
        conn.execute(insert(topic), missing)
    newer = [
        some | {"of_url": url}
        for url, some in values.items()
        if url in known and _last(some["read_at"], some["changed_at"]) > known[url]
    ]
    if newer:
        conn.execute(update(topic).where(topic.c.url == bindparam("of_url")), newer)
    return dict(conn.execute(select(topic.c.url, topic.c.id).where(among)).tuples().all())


def _topic_values(known: Topic) -> dict[str, Any]:
    return {
        "digest": known.digest,
        "size": known.size,
        "read_at": _micros_or_none(known.read_at),
        "changed_at": _micros_or_none(known.changed_at),
        "ended": known.ended,
    }


def _last(read_at: int | None, changed_at: int | None) -> int:
    """When a topic was last read or ended; -1 if never."""
    return max(-1 if at is None else at for at in (read_at, changed_at))


def _micros_or_none(seconds: float | None) -> int | None:
    return None if seconds is None else to_micros(seconds)


def _store_subscriptions(
    conn: Connection, topic_keys: dict[str, int], wanted: Sequence[Subscription]
) -> None:
    table = subscription.c
    among = {(topic_keys[one.topic], one.callback.url) for one in wanted}
    known = {
        tuple(identity): key
        for key, *identity in conn.execute(
            select(
                table.id, table.topic_id, table.callback_url, table.protocol, table.procedure
            ).where(tuple_(table.topic_id, table.callback_url).in_(among))
        )
    }
    new: list[dict[str, Any]] = []
    renewed: list[dict[str, Any]] = []
    for one in wanted:
        identity = {
            "topic_id": topic_keys[one.topic],
            "callback_url": one.callback.url,
            "protocol": one.callback.protocol,
            "procedure": one.callback.procedure,
        }
        key = known.get(tuple(identity.values()))
        if key is None:
            host = {"host": one.callback.host}
            new.append(identity | host | _state_values(one))
        else:
            renewed.append({"key": key} | _state_values(one))
    if new:
        conn.execute(insert(subscription), new)
    if renewed:
        conn.execute(update(subscription).where(table.id == bindparam("key")), renewed)
        conn.execute(MATCH_WAITING, [{"key": one["key"]} for one in renewed])


def _state_values(one: Subscription) -> dict[str, Any]:
    return {
        **lease_values(one.lease),
        "consecutive_errors": one.consecutive_errors,
        "last_error": one.last_error,
        "last_error_at": _micros_or_none(one.last_error_at),
        "marked": one.marked,
        "terms": from_terms(one.terms),
        "wants_content": one.wants_content,
    }
