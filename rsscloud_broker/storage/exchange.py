"""Topics and subscriptions as a JSON document, out of the store and into it.

The documents are described in ``documents``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from attrs import asdict, astuple, evolve, frozen
from sqlalchemy import Connection, Row, bindparam, insert, select, tuple_, update

from rsscloud_broker.model import Subscription, Topic
from rsscloud_broker.storage.documents import (
    InvalidDocument,
    TopicEntry,
    format_time,
    read_document,
)
from rsscloud_broker.storage.polls import make_due
from rsscloud_broker.storage.schema import (
    from_terms,
    subscription,
    to_micros,
    to_micros_or_none,
    to_terms,
    topic,
)
from rsscloud_broker.storage.subscriptions import MATCH_WAITING, lease_values
from rsscloud_broker.storage.topics import NO_VALIDATORS

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

    Where a topic moved, those who subscribed to it before are under the URL that they
    asked for, as if it still were there: once imported, it is found to move again.

    :param now: seconds since the epoch, noted in the document.
    """
    rows = conn.execute(select(topic).order_by(topic.c.url)).all()
    present = {row.id: row for row in rows if row.moved_to_id is None}
    places: dict[str, dict[str, Any]] = {}
    for row in rows:
        places[row.url] = _export_topic(present[row.moved_to_id or row.id], row.url)
    for row in conn.execute(select(subscription).order_by(subscription.c.id)):
        url = row.asked_url or present[row.topic_id].url
        places[url]["subscriptions"].append(_export_subscription(row))
    there = {row.url for row in present.values()}
    topics = [place for url, place in places.items() if url in there or place["subscriptions"]]
    return {
        "format": "rsscloud-broker",
        "version": 1,
        "exported_at": format_time(to_micros(now)),
        "topics": topics,
    }


def _export_topic(row: Row[tuple[object, ...]], url: str) -> dict[str, Any]:
    """A topic, under its URL or one that it moved from."""
    return {
        "url": url,
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
            places = _store_topics(conn, [entry.topic for entry in part])
            _store_subscriptions(conn, places, alive)
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


@frozen
class _Place:
    """Where the subscriptions of a URL are: see ``places``."""

    topic_id: int
    asked_url: str


def _store_topics(conn: Connection, topics: Sequence[Topic]) -> dict[str, _Place]:
    """Store topics; where the subscriptions of their URLs are.

    What is known at a URL where no topic is any more is of no use: it is left out.
    """
    among = topic.c.url.in_([one.url for one in topics])
    table = topic.c
    known = {
        url: None if moved else _last(read_at, changed_at)
        for url, moved, read_at, changed_at in conn.execute(
            select(table.url, table.moved_to_id, table.read_at, table.changed_at).where(among)
        )
    }
    values = {one.url: _topic_values(one) for one in topics}
    missing = [some | {"url": url} for url, some in values.items() if url not in known]
    if missing:
        conn.execute(insert(topic), missing)
    newer = [
        some | {"of_url": url} | NO_VALIDATORS
        for url, some in values.items()
        if (last := known.get(url)) is not None
        and _last(some["read_at"], some["changed_at"]) > last
    ]
    if newer:
        conn.execute(update(topic).where(table.url == bindparam("of_url")), newer)
    conn.execute(update(topic).where(among, table.ended != "").values(next_poll_at=None))
    found = conn.execute(select(table.url, table.id, table.moved_to_id).where(among))
    return {
        url: _Place(moved_to or key, "" if moved_to is None else url)
        for url, key, moved_to in found
    }


def _topic_values(known: Topic) -> dict[str, Any]:
    return {
        "digest": known.digest,
        "size": known.size,
        "read_at": to_micros_or_none(known.read_at),
        "changed_at": to_micros_or_none(known.changed_at),
        "ended": known.ended,
    }


def _last(read_at: int | None, changed_at: int | None) -> int:
    """When a topic was last read or ended; -1 if never."""
    return max(-1 if at is None else at for at in (read_at, changed_at))


def _store_subscriptions(
    conn: Connection, places: dict[str, _Place], wanted: Sequence[Subscription]
) -> None:
    table = subscription.c
    among = {(*astuple(places[one.topic]), one.callback.url) for one in wanted}
    identified = (
        table.topic_id,
        table.asked_url,
        table.callback_url,
        table.protocol,
        table.procedure,
    )
    known = {
        tuple(identity): key
        for key, *identity in conn.execute(
            select(table.id, *identified).where(tuple_(*identified[:3]).in_(among))
        )
    }
    new: list[dict[str, Any]] = []
    renewed: list[dict[str, Any]] = []
    for one in wanted:
        identity = asdict(places[one.topic]) | {
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
    make_due(conn, {place.topic_id for place in places.values()}, 0)


def _state_values(one: Subscription) -> dict[str, Any]:
    return {
        **lease_values(one.lease),
        "consecutive_errors": one.consecutive_errors,
        "last_error": one.last_error,
        "last_error_at": to_micros_or_none(one.last_error_at),
        "marked": one.marked,
        "terms": from_terms(one.terms),
        "wants_content": one.wants_content,
    }
