"""Imports topics and subscriptions from a document, for the command ``import``.

``documents`` describes and reads the documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import ne
from typing import Any

from attrs import evolve, frozen
from sqlalchemy import Connection, bindparam, select, tuple_, update

from rsscloud_broker.database.columns import insert_missing, to_micros_or_none
from rsscloud_broker.model import Subscription
from rsscloud_broker.model.administration import MAX_BLOCKS, Block
from rsscloud_broker.storage.blocks import count_blocks, count_new_blocks, import_blocks
from rsscloud_broker.storage.checks import NO_VALIDATORS
from rsscloud_broker.storage.documents import (
    WEBSUB,
    InvalidImport,
    TopicEntry,
    read_blocks,
    read_document,
)
from rsscloud_broker.storage.polls import make_due
from rsscloud_broker.storage.schema import subscription, topic
from rsscloud_broker.storage.subscriptions import MATCH_PENDING, state_values
from rsscloud_broker.storage.topic_urls import ASKED_URL, TOPIC_ID, named
from rsscloud_broker.wire import websub
from rsscloud_broker.wire.text import clean

#: How many topics and subscriptions one transaction stores.  It takes a fraction of a second, for
#: which a running broker may have to wait.
_PART = 2000


@frozen
class ImportResult:
    """The result of an import.

    :ivar topics: the number of topics in the document, whether they were known before or not.
    :ivar subscriptions: the number of subscriptions stored.
    :ivar expired: the number of subscriptions left out because their leases had ended.
    :ivar replaced: how many of the stored subscriptions replaced one in the database.
    :ivar dropping: how many of the stored subscriptions the next sweep drops.
    :ivar taken_over: how many of the stored subscriptions are by WebSub and name no hub in the
        document, so that they now name the hub of this broker.
    :ivar blocks: how many blocks of administrators were stored.
    :ivar unspoken: how many subscriptions were left out because no notifier of this broker speaks
        their protocol, by protocol.
    """

    topics: int
    subscriptions: int
    expired: int
    replaced: int = 0
    dropping: int = 0
    taken_over: int = 0
    unspoken: Mapping[str, int] = {}
    blocks: int = 0

    def sentences(self, hub: str) -> Iterator[str]:
        """The result in lines for people.

        :param hub: the URL of this broker's WebSub hub.
        """
        yield f"topics: {self.topics}, subscriptions: {self.subscriptions}"
        if self.replaced:
            yield f"of these, in the place of one that was here: {self.replaced}"
        if self.dropping:
            yield (
                "of these, to be dropped since their callbacks failed too often in a row, "
                f"at the top of the hour: {self.dropping}"
            )
        if self.taken_over:
            yield (
                f"of these, by WebSub from another hub: {self.taken_over}; their deliveries name "
                f"{hub} as the hub; if that is not its address, set public_url in the "
                "configuration, and import again with --config"
            )
        if self.blocks:
            yield f"blocks: {self.blocks}"
        if self.expired:
            yield f"left out because they had expired: {self.expired}"
        for protocol, number in sorted(self.unspoken.items()):
            yield f"left out because no notifier here speaks {clean(protocol)}: {number}"


def import_in_parts(
    begin: Callable[[], AbstractContextManager[Connection]],
    document: object,
    now: float,
    *,
    hub: str = "",
    protocols: Collection[str] | None = None,
) -> ImportResult:
    """Import the topics and subscriptions of a document, in many short transactions.

    So a running broker never waits for long.  If the import fails halfway, the parts stored so far
    stay; it is safe to import the same document again.

    A subscription in the document replaces one with the same topic and callback; other
    subscriptions in the database stay.  If the document and the database both know a topic, the
    one that was fetched or ended later counts.  No subscriber is notified.

    :param begin: begins a transaction, which ends with the context.
    :param document: the document, as ``json.loads`` returns it.
    :param now: seconds since the epoch; subscriptions whose leases ended before are left out.
    :param hub: the URL of this broker's WebSub hub.  A subscription by WebSub that names no hub in
        the document gets this one, and its notifications name it.
    :param protocols: the protocols that the notifiers of this broker speak; subscriptions with
        others are left out.  None to import all.
    :raises InvalidImport: the document is faulty; nothing was written.
    """
    entries, blocks = read_document(document), read_blocks(document)
    stored = expired = replaced = dropping = taken_over = 0
    unspoken: Counter[str] = Counter()
    if blocks:
        with begin() as conn:  # first, so that nothing is stored if there are too many
            _check_room_for_blocks(conn, blocks)
            import_blocks(conn, blocks, now)
    for part in _parts(entries):
        listed = [one for entry in part for one in entry.subscriptions]
        not_expired = [one for one in listed if one.lease.expires_at > now]
        foreign = [one.callback.protocol for one in not_expired if not _speaks(protocols, one)]
        spoken = [one for one in not_expired if _speaks(protocols, one)]
        to_store = [_with_hub(one, hub) for one in spoken]
        with begin() as conn:
            locations = _store_topics(conn, part)
            replaced += _store_subscriptions(conn, locations, to_store)
        stored += len(to_store)
        dropping += sum(one.dropping for one in to_store)
        taken_over += sum(map(ne, to_store, spoken))
        expired += len(listed) - len(not_expired)
        unspoken.update(foreign)
    return ImportResult(
        len(entries), stored, expired, replaced, dropping, taken_over, dict(unspoken), len(blocks)
    )


def _speaks(protocols: Collection[str] | None, one: Subscription) -> bool:
    """Whether a notifier here speaks the protocol of a subscription, if that matters (not None)."""
    return protocols is None or one.callback.protocol in protocols


def _with_hub(one: Subscription, hub: str) -> Subscription:
    """The subscription with this hub among its options, if it is by WebSub and names no hub."""
    if not hub or one.callback.protocol != WEBSUB or websub.HUB in one.options:
        return one
    return evolve(one, options={**one.options, websub.HUB: hub})


def _check_room_for_blocks(conn: Connection, blocks: Sequence[Block]) -> None:
    """Raise if the blocks of a document are too many.

    :raises InvalidImport: they are.
    """
    there, new = count_blocks(conn), count_new_blocks(conn, blocks)
    if there + new > MAX_BLOCKS:
        raise InvalidImport(
            f"blocks: {there:,} are stored and {new:,} would be added, but there may be only "
            f"{MAX_BLOCKS:,}; lift some, or leave some out of the document"
        )


def _parts(entries: Iterable[TopicEntry]) -> Iterator[list[TopicEntry]]:
    """Divide the topics of a document into parts, each for one transaction: see ``_PART``."""
    part: list[TopicEntry] = []
    size = 0
    for piece in _split_large_topics(entries):
        weight = 1 + len(piece.subscriptions)
        if part and size + weight > _PART:
            yield part
            part, size = [], 0
        part.append(piece)
        size += weight
    if part:
        yield part


def _split_large_topics(entries: Iterable[TopicEntry]) -> Iterator[TopicEntry]:
    """Topics with no more subscriptions than fit into a part.

    A topic with more subscriptions comes several times, each time with the next of them.
    """
    for entry in entries:
        of_topic = entry.subscriptions
        for start in range(0, len(of_topic) or 1, _PART):
            yield evolve(entry, subscriptions=of_topic[start : start + _PART])


def _store_topics(conn: Connection, entries: Sequence[TopicEntry]) -> dict[str, tuple[int, str]]:
    """Store topics, and return where the subscriptions to their URLs belong: the ids of the topics,
    each with the ``asked_url`` of the subscriptions (see ``topic_urls``).

    If the topic at a URL has moved, what the document knows of that URL is left out.
    """
    urls = [entry.topic.url for entry in entries]
    among = topic.c.url.in_(urls)
    table = topic.c
    # When the database last knew something of each URL; None for one that its topic has left.
    known = {
        url: None if moved else _last_known(read_at, changed_at)
        for url, moved, read_at, changed_at in conn.execute(
            select(table.url, table.moved_to_id, table.read_at, table.changed_at).where(among)
        )
    }
    values = {entry.topic.url: _topic_values(entry) for entry in entries}
    missing = [some | {"url": url} for url, some in values.items() if url not in known]
    if missing:
        insert_missing(conn, topic, missing, table.id)
    newer = [
        some | {"of_url": url} | NO_VALIDATORS
        for url, some in values.items()
        if (last := known.get(url)) is not None
        and _last_known(some["read_at"], some["changed_at"]) > last
    ]
    if newer:
        conn.execute(update(topic).where(table.url == bindparam("of_url")), newer)
    conn.execute(update(topic).where(among, table.ended != "").values(next_poll_at=None))
    locations = (
        select(named.c.url, topic.c.id, ASKED_URL)
        .join_from(named, topic, topic.c.id == TOPIC_ID)
        .where(named.c.url.in_(urls))
    )
    return {url: (key, asked_url) for url, key, asked_url in conn.execute(locations)}


def _topic_values(entry: TopicEntry) -> dict[str, Any]:
    """The columns of a topic.  Strangers may know its content if it has a public subscription."""
    known = entry.topic
    is_public = not all(one.callback.is_private for one in entry.subscriptions)
    return {
        "public_digest": known.digest if is_public else None,
        "digest": known.digest,
        "size": known.size,
        "read_at": to_micros_or_none(known.read_at),
        "changed_at": to_micros_or_none(known.changed_at),
        "ended": known.ended,
    }


def _last_known(read_at: int | None, changed_at: int | None) -> int:
    """When a topic was last fetched or ended, in microseconds; -1 if never."""
    return max(-1 if at is None else at for at in (read_at, changed_at))


def _store_subscriptions(
    conn: Connection, locations: dict[str, tuple[int, str]], wanted: Sequence[Subscription]
) -> int:
    """Store subscriptions, and return how many of them replaced one in the database."""
    table = subscription.c
    among = {(*locations[one.topic], one.callback.url) for one in wanted}
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
        topic_id, asked_url = locations[one.topic]
        identity = {
            "topic_id": topic_id,
            "asked_url": asked_url,
            "callback_url": one.callback.url,
            "protocol": one.callback.protocol,
            "procedure": one.callback.procedure,
        }
        key = known.get(tuple(identity.values()))
        if key is None:
            host = {"host": one.callback.host}
            new.append(identity | host | state_values(one))
        else:
            renewed.append({"key": key} | state_values(one))
    if new:
        insert_missing(conn, subscription, new, table.id)
    if renewed:
        conn.execute(update(subscription).where(table.id == bindparam("key")), renewed)
        conn.execute(MATCH_PENDING, [{"key": one["key"]} for one in renewed])
    # The polls of topics that had no subscription are due at once.
    make_due(conn, {topic_id for topic_id, _ in locations.values()}, 0)
    return len(renewed)
