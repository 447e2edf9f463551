"""Stores the contents of topics, and removes them when nothing needs them any more.

A fan-out needs the content that it carries.  A pending notification of pushed content needs that
content, and any other pending notification for a subscription that wants content needs the
newest content of the topic.  Whatever ends such a need calls ``remove_unneeded``; the sweep
removes the contents that were missed.

Bytes of contents are limited, for each host that they came from and in total.  If a new content
does not fit, the store evicts contents that only pending notifications need: the oldest of the same
host, or, if the total is the limit, of the hosts with the most bytes.  The broker fetches the
topics of these notifications again when they are due.  If the new content does not fit even then,
since fan-outs carry the rest, the store does not keep it, and the broker fetches its topic again
for its fan-out.  So the limits cost time and requests, and never a notification.  Pushed content
cannot be fetched again: it counts, and is always kept.

The sums of the bytes are rows too.  That of the total comes first in every transaction that changes
sums.  So who holds it sees sums and contents that belong together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, func, insert, or_, select

from rsscloud_broker.database.columns import insert_into, insert_row, lock_rows, put_rows
from rsscloud_broker.database.portions import (
    Run,
    different_values,
    end_of_portion,
    in_portions,
    within,
)
from rsscloud_broker.model import Content, host_of
from rsscloud_broker.model.work import Bounds
from rsscloud_broker.storage.schema import content, content_sum, fanout, pending, queued
from rsscloud_broker.storage.topic_urls import TOPIC_ID, key_of, named

#: The value of the column ``host`` for pushed contents.
_PUSHED = "pushed"

#: Of how many hosts contents are evicted at a time to make room for one content, and how many
#: times that is done at most.
_HOSTS_AT_ONCE, _MAX_PORTIONS = 100, 20

#: How many contents one statement evicts.
_EVICTED_AT_ONCE = 1000

#: Whether a fan-out carries a content.
_CARRIED = select(fanout.c.id).where(fanout.c.content_id == content.c.id).exists()
#: Whether a pending notification needs the newest content of its topic.
_NEWEST_NEEDED = (
    select(pending.c.subscription_id)
    .where(pending.c.content_topic_id == content.c.topic_id)
    .correlate(content)
    .exists()
)
#: Whether a pending or queued notification carries a pushed content.
_PENDING = or_(
    select(pending.c.subscription_id).where(pending.c.content_id == content.c.id).exists(),
    select(queued.c.subscription_id).where(queued.c.content_id == content.c.id).exists(),
)
_of_topic = content.alias("of_topic")
_NEWEST = (
    select(func.max(_of_topic.c.id))
    .where(_of_topic.c.topic_id == content.c.topic_id)
    .scalar_subquery()
)
_WITH_CONTENTS = (
    select(content.c.topic_id)
    .where(content.c.topic_id.in_(bindparam("keys", expanding=True)))
    .distinct()
)
_UNNEEDED = and_(~_CARRIED, ~_PENDING, or_(~_NEWEST_NEEDED, content.c.id < _NEWEST))


def get_content(conn: Connection, key: int) -> Content | None:
    """The content with the key that a fan-out names.  None if nothing needs it any more."""
    return _newest_where(conn, content.c.id == key)


def newest_content(conn: Connection, url: str) -> Content | None:
    """The newest content of a topic that the store keeps; None if it keeps none."""
    return _newest_where(conn, content.c.topic_id == key_of(url))


def _newest_where(conn: Connection, which: ColumnElement[bool]) -> Content | None:
    """The newest content that fulfils a condition; None if there is none."""
    query = (
        select(content.c.body, content.c.content_type, content.c.link)
        .where(which)
        .order_by(content.c.id.desc())
        .limit(1)
    )
    row = conn.execute(query).first()
    return None if row is None else Content(*row)


def insert_content(
    conn: Connection, topic_key: int, url: str, new: Content, bounds: Bounds
) -> int | None:
    """Store a content that was fetched.

    :param url: the URL that it came from.
    :returns: its key, or None if it does not fit.
    """
    host = host_of(url)[:255]
    if host in {TOTAL, _PUSHED}:  # these stand for something else; no host has a question mark
        host = f"{host}?"
    size = _size_of(new)
    fits = _make_room(conn, host, size, bounds)
    return _insert(conn, topic_key, new, host, size) if fits else None


def keep_pushed(conn: Connection, topic_key: int, new: Content) -> int:
    """Store a content that was pushed, and return its key."""
    return _insert(conn, topic_key, new, _PUSHED, _size_of(new))


def _size_of(new: Content) -> int:
    return len(new.body) + len(new.content_type) + len(new.link)


def _insert(conn: Connection, topic_key: int, new: Content, host: str, size: int) -> int:
    """Store a content, add its size to the sums, and return its key."""
    made = insert_row(
        conn,
        content,
        topic_id=topic_key,
        content_type=new.content_type,
        link=new.link,
        body=new.body,
        host=host,
        size=size,
    )
    add_to_sums(conn, {host: size})
    return made


def _make_room(conn: Connection, host: str, size: int, bounds: Bounds) -> bool:
    """Evict contents that no fan-out carries, until a new content of a host fits its limits.

    :returns: whether it fits now.
    """
    of_host, total = sums_of(conn, host)
    excess = of_host + size - bounds.contents_of_host
    if excess > 0:
        freed = _remove_oldest(conn, host, excess)
        if freed < excess:
            return False
        total -= freed
    excess = total + size - bounds.contents
    if excess <= 0:
        return True
    return _evict_from_largest_hosts(conn, excess)


def _evict_from_largest_hosts(conn: Connection, excess: int) -> bool:
    """Evict contents of one host after the other, of those with the most bytes first.

    :param excess: how many bytes are to be removed.
    :returns: whether that many were removed.
    """
    size, host = content_sum.c.size, content_sum.c.host
    hosts = select(host, size).where(host.not_in((TOTAL, _PUSHED)), size > 0)
    some = hosts.order_by(size.desc(), host).limit(_HOSTS_AT_ONCE)
    portion = some
    for _ in range(_MAX_PORTIONS):
        largest = conn.execute(portion).tuples().all()
        for name, _size in largest:
            excess -= _remove_oldest(conn, name, excess)
            if excess <= 0:
                return True
        if len(largest) < _HOSTS_AT_ONCE:
            return False
        name, last = largest[-1]  # the sizes of the hosts behind it are as they were
        portion = some.where(or_(size < last, and_(size == last, host > name)))
    return False


def _remove_oldest(conn: Connection, host: str, enough: int) -> int:
    """Remove the oldest contents of a host that no fan-out carries.

    :param enough: how many bytes to remove, if there are that many.
    :returns: how many bytes were removed.
    """
    of_host = and_(content.c.host == host, ~_CARRIED)
    oldest = select(content.c.id, content.c.size).where(of_host).order_by(content.c.id)
    found = 0
    while found < enough:
        keys = []
        for key, size in conn.execute(oldest.limit(_EVICTED_AT_ONCE)).tuples().all():
            keys.append(key)
            found += size
            if found >= enough:
                break
        if keys:
            _remove(conn, and_(of_host, content.c.id.in_(keys)))
        if len(keys) < _EVICTED_AT_ONCE:
            break
    return found


def _remove(conn: Connection, which: ColumnElement[bool]) -> None:
    """Remove contents, and subtract their sizes from the sums."""
    freed: Counter[str] = Counter()
    gone = delete(content).where(which).returning(content.c.host, content.c.size)
    for host, size in conn.execute(gone):
        freed[host] -= size
    if freed:
        add_to_sums(conn, freed)


def is_waited_for(conn: Connection, topic_key: int) -> bool:
    """Whether a pending notification is to carry the content of a topic."""
    waits = select(pending.c.subscription_id).where(pending.c.content_topic_id == topic_key)
    return conn.execute(waits.limit(1)).first() is not None


def is_kept(conn: Connection, topic_key: int) -> bool:
    """Whether the store has any content of a topic."""
    kept = select(content.c.id).where(content.c.topic_id == topic_key)
    return conn.execute(kept.limit(1)).first() is not None


def topics_with_contents(conn: Connection, topic_keys: Collection[int]) -> set[int]:
    """The ids of those of some topics of which the store has any content."""
    return set(conn.scalars(_WITH_CONTENTS, {"keys": topic_keys})) if topic_keys else set()


def remove_outdated(conn: Connection, topic_key: int) -> None:
    """Remove the fetched contents of a topic that has changed to a content which is not kept.

    A subscription made now must not get the old content.  Fan-outs that carry it are superseded.
    Pushed contents stay until they are delivered.
    """
    carried = select(fanout.c.id).where(fanout.c.content_id == content.c.id, fanout.c.pushed)
    outdated = and_(~carried.exists(), ~_PENDING)
    _remove(conn, and_(content.c.topic_id == topic_key, outdated))


def remove_unneeded(conn: Connection, urls: Collection[str]) -> None:
    """Remove those contents of some topics that nothing needs any more."""
    among = select(TOPIC_ID).where(named.c.url.in_(urls))
    _remove(conn, and_(content.c.topic_id.in_(among), _UNNEEDED))


def remove_all_contents(conn: Connection, topic_keys: Collection[int]) -> None:
    """Remove all contents of topics that are being removed themselves, needed or not."""
    _remove(conn, content.c.topic_id.in_(topic_keys))


def find_unneeded(conn: Connection, after: int, limit: int) -> tuple[list[int], int | None]:
    """The ids of some contents behind an id that nothing needs any more.

    :returns: the ids, and the last id that was looked at; None if that was the last of all.
    """
    until = end_of_portion(conn, content.c.id, after)
    unneeded = select(content.c.id).where(within(content.c.id, after, until), _UNNEEDED)
    keys = list(conn.execute(unneeded.order_by(content.c.id).limit(limit)).scalars())
    return keys, keys[-1] if len(keys) == limit else until


def remove_found(conn: Connection, keys: Collection[int]) -> None:
    """Remove contents that ``find_unneeded`` has found, unless something needs them by now."""
    _remove(conn, and_(content.c.id.in_(keys), _UNNEEDED))


# --- sums of the sizes of contents

#: How many hosts one transaction looks at.
_HOSTS = 200

#: The host that stands for the total.
TOTAL = ""

_hosts = different_values(content.c.host)
_summed = select(func.sum(content.c.size)).where(content.c.host == _hosts.c.value)

#: The hosts that contents came from, the sizes of their contents, and what the sums say.
_COMPARED = (
    select(_hosts.c.value, _summed.correlate(_hosts).scalar_subquery(), content_sum.c.size)
    .outerjoin_from(_hosts, content_sum, content_sum.c.host == _hosts.c.value)
    .where(_hosts.c.value.is_not(None))
    .order_by(_hosts.c.value)
)

_SIZES = select(content_sum.c.host, content_sum.c.size)

#: The sums of all hosts together.
_OF_HOSTS = select(func.sum(content_sum.c.size)).where(content_sum.c.host != TOTAL)


def add_to_sums(conn: Connection, sizes: Mapping[str, int]) -> None:
    """Add the sizes of contents to the sums.

    :param sizes: the bytes that were added, by host; less than 0 if contents were removed.
    """
    new = insert_into(conn, content_sum)
    size = content_sum.c.size + new.excluded.size
    add = new.on_conflict_do_update(index_elements=["host"], set_={"size": size})
    sums = {**sizes, TOTAL: sum(sizes.values())}
    conn.execute(add, [{"host": host, "size": sums[host]} for host in sorted(sums)])


def sums_of(conn: Connection, host: str) -> tuple[int, int]:
    """The bytes of the contents from a host, and those of all contents."""
    rows = conn.execute(_SIZES.where(content_sum.c.host.in_((host, TOTAL))))
    sums = dict(rows.tuples().all())
    return sums.get(host, 0), sums.get(TOTAL, 0)


async def correct_sums(read: Run, write: Run) -> None:
    """Compute those sums anew that are not what they should be, and remove those that are 0."""
    for find in (_find_wrong, _find_empty):
        # The total has the least name, "", so that all hosts come behind it.
        for hosts in await in_portions(read, find, TOTAL):
            if hosts:
                await write(partial(_recompute, hosts))
    if await read(_is_total_wrong):
        await write(partial(_recompute, ()))


def _find_wrong(conn: Connection, after: str) -> tuple[list[str], str | None]:
    """Find hosts that have contents and a wrong sum, in one portion of the hosts with contents.

    :param after: the host behind which the portion begins.
    :returns: these hosts; and where the next portion begins, or None after the last one.
    """
    rows = conn.execute(_COMPARED, {"after": after, "most": _HOSTS}).tuples().all()
    wrong = [host for host, real, known in rows if real != known]
    return wrong, rows[-1][0] if len(rows) == _HOSTS else None


def _find_empty(conn: Connection, after: str) -> tuple[list[str], str | None]:
    """Find hosts that have a sum and no contents, in one portion; see ``_find_wrong``."""
    host = content_sum.c.host
    until = end_of_portion(conn, host, after, _HOSTS)
    has_contents = select(content.c.id).where(content.c.host == host).exists()
    empty = select(host).where(within(host, after, until), ~has_contents)
    return list(conn.execute(empty).scalars()), until


def _is_total_wrong(conn: Connection) -> bool:
    """Whether the stored total differs from the sums of all hosts together.

    One statement adds these up: without the empty ones there is one for each host with contents.
    """
    total = select(content_sum.c.size).where(content_sum.c.host == TOTAL)
    real, known = conn.execute(select(_OF_HOSTS.scalar_subquery(), total.scalar_subquery())).one()
    return (real or 0) != (known or 0)


def _recompute(hosts: Sequence[str], conn: Connection) -> None:
    """Compute the sums of some hosts anew, and then the total of the stored sums."""
    lock_rows(conn, content_sum.c.host, [TOTAL])
    if hosts:
        real = (
            select(content.c.host, func.sum(content.c.size))
            .where(content.c.host.in_(hosts))
            .group_by(content.c.host)
        )
        rows = [{"host": host, "size": int(size)} for host, size in conn.execute(real)]
        conn.execute(delete(content_sum).where(content_sum.c.host.in_(hosts)))
        if rows:
            conn.execute(insert(content_sum), rows)
    total = int(conn.execute(_OF_HOSTS).scalar() or 0)
    put_rows(conn, content_sum, [{"host": TOTAL, "size": total}])
