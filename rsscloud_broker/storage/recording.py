"""Records what fetches have found, and what applications publish.

Both end in ``_record``, which takes many topics at once: many authors may publish at the same
moment, and a statement for all of them takes hardly longer than one for each.  The functions run in
a transaction that the caller has begun, and may run again after a rollback.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, cast

from attrs import evolve
from sqlalchemy import Connection, Row, and_, select, update

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.columns import (
    insert_missing,
    lock_rows,
    to_micros,
    to_micros_or_none,
    to_seconds,
    to_seconds_or_none,
)
from rsscloud_broker.database.many_values import OfMany
from rsscloud_broker.database.methods import Batched, Operation, in_turns
from rsscloud_broker.model import FetchResult, Need, Ping
from rsscloud_broker.model.frozen import frozen
from rsscloud_broker.model.ways import Way
from rsscloud_broker.model.work import Bounds, FetchRecord, KeptChange
from rsscloud_broker.storage.checks import DEFAULT_BOUNDS, NO_CHECK, cause
from rsscloud_broker.storage.contents import (
    insert_content,
    is_kept,
    is_waited_for,
    remove_outdated,
    remove_unneeded,
    topics_with_contents,
)
from rsscloud_broker.storage.hints import READ, hint
from rsscloud_broker.storage.idle import evict_idle
from rsscloud_broker.storage.kept_changes import keep_changes
from rsscloud_broker.storage.nodes import present_time
from rsscloud_broker.storage.pings import insert_pings
from rsscloud_broker.storage.polls import with_change
from rsscloud_broker.storage.schema import fanout, subscription, topic
from rsscloud_broker.storage.topic_urls import TOPICS, TOPICS_BY_URL, as_topic, named
from rsscloud_broker.storage.topics import (
    UPDATE,
    a_fanout,
    begin_fanouts,
    lock_topic,
    revive_topic,
    topic_row,
)

#: No fetch takes longer than this, in microseconds.
_LONGEST_FETCH = to_micros(300)

# These are built once, since to build them takes longer than to execute them.
_BY_URL = OfMany(lambda among: TOPICS_BY_URL.where(among(named.c.url, "urls")))
_WANT_CONTENT = OfMany(
    lambda among: (
        select(subscription.c.topic_id)
        .where(among(subscription.c.topic_id, "keys"), subscription.c.wants_content)
        .distinct()
    )
)


@frozen
class Publishing:
    """A call of ``Store.publish``; the ping is that of the first topic."""

    fetched: Sequence[FetchResult]
    ping: Ping
    operation: Operation[Any]


@frozen
class _Found:
    """What a fetch has found.

    :ivar row: the row of the topic, as ``TOPICS`` selects it.
    :ivar ping: the ping to record if the topic has changed; None for none.
    :ivar is_outdated: whether another node has recorded a fetch of the topic that began after it.
    """

    row: Row[Any]
    fetched: FetchResult
    ping: Ping | None
    node: int | None
    is_outdated: bool

    @property
    def key(self) -> int:
        """The id of the topic."""
        return int(self.row.id)

    @property
    def is_idle(self) -> bool:
        """Whether the topic has no subscriptions."""
        return not self.row.counted

    @property
    def is_asked_again(self) -> bool:
        """Whether a check was requested after the fetch began, which this process has claimed."""
        asked_at, read_at = self.row.check_requested_at, to_micros(self.fetched.started_at)
        if self.is_outdated:
            read_at = max(read_at, self.row.read_at)
        is_own = self.node is not None and self.row.check_node_id == self.node
        return is_own and asked_at is not None and asked_at > read_at

    @property
    def outdated_record(self) -> FetchRecord:
        """The record of an outdated fetch, which changes nothing."""
        return FetchRecord(as_topic(self.row), changed=False, asked_again=self.is_asked_again)

    @property
    def shown(self) -> bool:
        """Whether strangers may know of the fetch."""
        return bool(self.row.is_public or self.fetched.way.is_open)

    @property
    def news(self) -> bool:
        """Whether it has another content than strangers know of, and they may know of this one.

        Whether a private follower has had the topic fetched meanwhile makes no difference.
        """
        return self.shown and self.row.public_digest != self.fetched.digest

    @property
    def changed(self) -> bool:
        """Whether subscribers are notified: it has another content than the last one, or news."""
        now = self.fetched.digest, self.fetched.size
        return (self.row.digest, self.row.size) != now or self.news

    @property
    def kept_change(self) -> KeptChange:
        """The change as it is kept for the feeds."""
        fetched = self.fetched
        is_ping = fetched.pinged and fetched.way is Way.FETCH
        way = Way.PING if is_ping else fetched.way.shown
        return KeptChange(0, self.row.url, fetched.started_at, way, fetched.origin, fetched.content)


def _find(
    conn: Connection, row: Row[Any], fetched: FetchResult, ping: Ping | None, node: int | None
) -> _Found:
    """What a fetch has found, beside what others have recorded.

    The clocks of the nodes are compared here, so they must agree to a fraction of a second.  If a
    fetch seems to have begun much later than this one, or is still to come, a clock was wrong.
    """
    by_other = node is not None and row.reader_id not in (None, node)
    later_by = (row.read_at or 0) - to_micros(fetched.started_at)
    may_be_outdated = by_other and 0 < later_by < _LONGEST_FETCH
    is_outdated = may_be_outdated and to_seconds(row.read_at) <= present_time(conn)
    return _Found(row, fetched, ping, node, is_outdated)


def record_fetch(
    conn: Connection,
    fetched: FetchResult,
    ping: Ping | None,
    bounds: Bounds = DEFAULT_BOUNDS,
    node: int | None = None,
    *,
    if_asked: bool = False,
) -> FetchRecord:
    """Record what a fetch found at the present URL of a topic.

    If the content differs from the last fetch (or this is the first), the topic has
    changed: a fan-out begins if the topic has subscriptions, and ``ping`` is recorded.
    Checks that were requested before the fetch began are done.

    If another node has recorded a fetch that began later, this one is not recorded, nor if the
    topic has ended meanwhile.

    If some subscription of the topic wants content, the store keeps the content, one copy
    for all of them, while a walk or a pending notification needs it.  If the content does
    not fit, the fan-out begins without it, with ``Fanout.lacks_content`` set.

    When the store has too many topics without subscriptions, it forgets those fetched longest ago.

    :param if_asked: whether the ping is recorded only if a check waits that was requested
        because of a ping, as it is after a fetch for private followers.
    """
    lock_topic(conn, fetched.url)
    row = topic_row(conn, fetched.url, TOPICS)
    if row.ended:  # its checks were dropped then
        shown = _find(conn, row, fetched, ping, node).shown
        return FetchRecord(as_topic(row), changed=False, shown=shown)
    if if_asked or fetched.way is Way.FOLLOWED:
        # A ping may have come during the fetch.  The fetch that answers it will find no change.
        waits = cause(row).is_ping
        ping = evolve(ping, origin=row.check_origin) if ping and waits else None
    return _record(conn, [_find(conn, row, fetched, ping, node)], bounds)[0]


def publish(
    conn: Connection,
    asked: Sequence[Publishing],
    bounds: Bounds = DEFAULT_BOUNDS,
    node: int | None = None,
) -> list[tuple[Any, list[FetchRecord]] | Exception]:
    """Record the contents of topics that the broker itself serves.

    As ``record_fetch`` for each, together with what an operation stores: see ``IDatabase``.
    A topic that has ended is revived.

    :returns: for each caller what the operation returned, and the records in the order of the
        topics; or the exception by which it is refused.
    """
    outcomes: list[tuple[Any, list[FetchRecord]] | Exception] = []
    for together in in_turns(asked, lambda each: (fetched.url for fetched in each.fetched)):
        results = list(_run_operations(conn, [each.operation for each in together]))
        accepted = [
            each
            for each, result in zip(together, results, strict=True)
            if not isinstance(result, Exception)
        ]
        records = iter(_publish(conn, accepted, bounds, node))
        for each, result in zip(together, results, strict=True):
            if isinstance(result, Exception):
                outcomes.append(result)
            else:
                outcomes.append((result, [next(records) for _ in each.fetched]))
    return outcomes


def _run_operations(conn: Connection, operations: Sequence[Operation[Any]]) -> Iterator[Any]:
    """Run the operations of applications; batched ones of one kind that stand together at once."""
    for function, some in groupby(operations, lambda each: getattr(each, "function", None)):
        if function is None:
            yield from (operation(conn) for operation in some)
        else:
            yield from function(conn, [cast(Batched[Any, Any], each).argument for each in some])


def _publish(
    conn: Connection, asked: Sequence[Publishing], bounds: Bounds, node: int | None
) -> list[FetchRecord]:
    """Record topics, of which none is named twice; the records are in the same order."""
    wanted = [
        (fetched, None if number else each.ping)
        for each in asked
        for number, fetched in enumerate(each.fetched)
    ]
    rows = _lock_active_rows(conn, [fetched.url for fetched, _ in wanted])
    found = [_find(conn, rows[fetched.url], fetched, ping, node) for fetched, ping in wanted]
    if len({each.key for each in found}) == len(found):
        return _record(conn, found, bounds)
    # Two URLs lead to one topic, which has moved: its second record must see the first one.
    return [record_fetch(conn, fetched, ping, bounds, node) for fetched, ping in wanted]


def _lock_active_rows(conn: Connection, urls: Sequence[str]) -> dict[str, Row[Any]]:
    """The rows of topics by these URLs.  Topics that are unknown or have ended become active."""

    def read() -> dict[str, Row[Any]]:
        return {row.asked: row for row in conn.execute(_BY_URL.on(conn), {"urls": urls})}

    rows = read()
    if unknown := [{"url": url} for url in sorted(urls) if url not in rows]:
        insert_missing(conn, topic, unknown, topic.c.id)
        rows = read()
    if not sqlite.serves(conn):
        lock_rows(conn, topic.c.id, [row.id for row in rows.values()])
        rows = read()  # as they are now, since others may have changed them until they were locked
    ended = [url for url, row in rows.items() if row.ended]
    for url in ended:
        revive_topic(conn, url)
    return read() if ended else rows


def _record(conn: Connection, found: Sequence[_Found], bounds: Bounds) -> list[FetchRecord]:
    """Record what was found of some topics, each given once.  Outdated fetches change nothing."""
    outdated = {each.key for each in found if each.is_outdated}
    if outdated:
        others = iter(_record(conn, [each for each in found if each.key not in outdated], bounds))
        # The later fetch has answered the checks that were requested before it.
        is_answered = topic.c.check_requested_at <= topic.c.read_at
        conn.execute(update(topic).where(topic.c.id.in_(outdated), is_answered).values(NO_CHECK))
        return [each.outdated_record if each.key in outdated else next(others) for each in found]
    keys = [each.key for each in found]
    becoming_idle = sum(each.is_idle and each.row.idle_at is None for each in found)
    if becoming_idle:
        evict_idle(conn, bounds.idle_topics, becoming_idle, spared=keys)
    _update(conn, found)
    for each in found:
        if each.row.check_awaited and not each.is_asked_again:
            hint(conn, READ, each.key)
    changed = [each for each in found if each.changed]
    news = [each for each in changed if each.news]
    keep_changes(conn, bounds.history, [each.kept_change for each in news])
    contents = _keep_contents(conn, changed, bounds)
    for each in found:
        if not each.changed and not each.is_idle:
            contents[each.key] = _store_awaited_content(conn, each, bounds)
    wanted = [each.ping for each in news if each.ping is not None]
    pings = iter(insert_pings(conn, wanted, next((each.node for each in news), None)))
    return [
        FetchRecord(
            topic=_topic_now(each),
            changed=each.changed,
            ping=next(pings) if each.news and each.ping is not None else None,
            content_awaited=not each.changed and contents.get(each.key) is not None,
            asked_again=each.is_asked_again,
            news=each.news,
            shown=each.shown,
        )
        for each in found
    ]


def _update(conn: Connection, found: Sequence[_Found]) -> None:
    """Update the rows of topics; those that get the same columns by one statement."""
    groups: defaultdict[frozenset[str], list[dict[str, object]]] = defaultdict(list)
    for each in found:
        values = {"key": each.key, **_new_values(each)}
        groups[frozenset(values)].append(values)
    for values_of_some in groups.values():
        conn.execute(UPDATE, values_of_some)


def _new_values(found: _Found) -> dict[str, object]:
    """The columns of a topic's row that a fetch changes."""
    row, fetched = found.row, found.fetched
    read_at = to_micros(fetched.started_at)
    values: dict[str, object] = {
        "read_at": read_at,
        "etag": fetched.validators.etag,
        "last_modified": fetched.validators.last_modified,
        "fresh_seconds": to_micros_or_none(fetched.fresh_seconds),
        "asked_at": read_at,
        "reader_id": found.node,
        "result": fetched.result,
        "failures": 0,
        "idle_at": read_at if found.is_idle else None,
    }
    if found.news:
        values["public_digest"] = fetched.digest
        if row.public_digest is None:  # the first content that strangers see is no change for them
            values["pinged_at"] = None  # only private followers knew of that ping
        else:
            values["change_days"] = with_change(row.change_days, fetched.started_at)
    # Strangers see when a public topic was pinged: what only a private follower learned is no ping.
    if fetched.pinged and not (row.is_public and fetched.way is Way.FOLLOWED):
        values["pinged_at"] = read_at
    if found.changed:
        values |= {"digest": fetched.digest, "size": fetched.size, "changed_at": read_at}
    if row.check_requested_at is not None and row.check_requested_at <= read_at:
        values |= NO_CHECK
    return values


def _topic_now(found: _Found) -> Any:
    """The topic as it is after a fetch."""
    row, fetched = found.row, found.fetched
    read_at = to_micros(fetched.started_at)
    return evolve(
        as_topic(row),
        digest=fetched.digest,
        size=fetched.size,
        read_at=to_seconds_or_none(read_at),
        changed_at=to_seconds_or_none(read_at if found.changed else row.changed_at),
        validators=fetched.validators,
        public_digest=fetched.digest if found.news else row.public_digest,
        need=Need.CHANGES,  # who lacks content yet requests it
    )


def _keep_contents(
    conn: Connection, changed: Sequence[_Found], bounds: Bounds
) -> dict[int, int | None]:
    """Store the contents of topics that have changed, if something needs them and they fit; begin
    the fan-outs of these topics.

    :returns: the keys of the contents by those of the topics; None for those that are not stored.
    """
    watched = [each.key for each in changed if not each.is_idle]
    wanting = set(conn.scalars(_WANT_CONTENT.on(conn), {"keys": watched})) if watched else set()
    keeping = topics_with_contents(conn, [each.key for each in changed])
    stored: dict[int, int | None] = {}
    fanouts = []
    for each in changed:
        key, content, content_key = each.key, each.fetched.content, None
        if key in wanting and content is not None:
            content_key = insert_content(conn, key, each.fetched.url, content, bounds)
        stored[key] = content_key
        if content_key is None and key in keeping:
            remove_outdated(conn, key)
        if each.is_idle:
            continue
        carried = None if content_key is None else content
        lacks = key in wanting and content_key is None
        # When the fetch was requested, or when it began if nobody knows.
        asked_at = each.fetched.asked_at
        at = to_micros(each.fetched.started_at if asked_at is None else asked_at)
        fanouts.append(a_fanout(key, at, content_key, carried, lacks_content=lacks))
        if carried is not None:
            # At once: contents that no fan-out carries make room for the next one.
            begin_fanouts(conn, fanouts)
            fanouts.clear()
    if fanouts:
        begin_fanouts(conn, fanouts)
    if renewed := [each.fetched.url for each in changed if stored[each.key] is not None]:
        remove_unneeded(conn, renewed)  # their older contents
    return stored


def _store_awaited_content(conn: Connection, found: _Found, bounds: Bounds) -> int | None:
    """Store the content of a topic that has not changed, if notifications wait for it, and give it
    to the fan-outs that lack it.

    The store may lack it: when the topic changed, no subscription wanted it, or it did not fit.
    The pending notifications that wait for it may be a million, so the distribution calls
    ``make_due_for_content`` after this transaction.

    :returns: its key; None if it is not stored.
    """
    key, fetched = found.key, found.fetched
    if fetched.content is None or is_kept(conn, key):
        return None
    lacks_content = and_(fanout.c.topic_id == key, fanout.c.later)
    lacking = conn.execute(select(fanout.c.id).where(lacks_content).limit(1)).first()
    if lacking is None and not is_waited_for(conn, key):
        return None
    content_key = insert_content(conn, key, fetched.url, fetched.content, bounds)
    if content_key is not None:
        has_content = {"content_id": content_key, "content_size": fetched.size, "later": False}
        conn.execute(update(fanout).where(lacks_content).values(has_content))
        remove_unneeded(conn, [fetched.url])
    return content_key
