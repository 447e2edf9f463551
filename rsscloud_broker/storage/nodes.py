"""Registers a process of the broker as a node of its database, so that it can claim work.

A *node* is a process.  Its row is made at its start, with an id that is never used again.  The
rows of the work that a node has claimed name its id: fan-outs, slices, pending notifications,
checks, polls, intents and jobs.  Before the row of the node is removed, these are set to null, so
the work is free again.  Nothing else frees it.  So a node that is dead can record nothing under a
claim that others may have: this requires that the row of the work still names the node.  And a
transaction that claims something locks the row of its node, which so cannot be removed meanwhile.

A node may have very many claims.  They are freed in portions, each in a transaction of its own that
waits for nobody.  The first of them marks the row of the node, which from then on counts as gone.
If the node was not asked to end, what it had claimed may be why: see ``suspects``.

Each node writes a heartbeat to its row, by the clock of the database, and removes the rows of nodes
that have had none for ``DEAD_AFTER`` seconds: see ``pulse``.  A process that stood still for
longer finds its row gone.  It registers as a new node, and has lost all its claims.

On SQLite there is one node at a time, as the lock on the data directory guarantees.  So a node that
registers removes the rows of all others, and takes up the work of a killed process at once.

``node_states`` and what follows it read for administrators and metrics what each node has claimed,
how much space the database takes on the disk, and what waits in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from socket import gethostname
from types import MappingProxyType
from typing import Any

from attrs import frozen
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    bindparam,
    column,
    delete,
    func,
    inspect,
    literal_column,
    or_,
    select,
    table,
    update,
)

from rsscloud_broker import __version__
from rsscloud_broker.database import sqlite
from rsscloud_broker.database.columns import insert_row, record_of, to_micros, to_seconds
from rsscloud_broker.errors import StoreUnavailable
from rsscloud_broker.model.administration import NodeState
from rsscloud_broker.storage import pings, suspects
from rsscloud_broker.storage.operating_schema import job
from rsscloud_broker.storage.schema import (
    CHECK_WAITS,
    CLAIMS,
    fanout,
    intent,
    node,
    pending,
    slice_,
    topic,
)
from rsscloud_broker.wire.node_states import DEAD_AFTER

#: How many claims of each kind one transaction frees at most.
PORTION = 1000

#: Whether nobody has begun to remove a node.  Then its heartbeat gets a minus, and counts as none.
_IS_NOT_LEAVING = node.c.beat_at > 0

#: The columns with the ids of nodes that have claimed something.
ALL_CLAIMS = (*CLAIMS, pending.c.node_id, slice_.c.node_id, job.c.node_id)

# A store that stops, and nearly every transaction that writes, run these: they are made once.
_KEYS_OF_CLAIMED = {
    claim: select(*claim.table.primary_key.columns).where(
        claim.in_(bindparam("nodes", expanding=True))
    )
    for claim in ALL_CLAIMS
}

_HAVE_CLAIMS = select(or_(*(keys.exists() for keys in _KEYS_OF_CLAIMED.values())))

_LOCK_LIVING = (
    select(node.c.id)
    .where(node.c.id == bindparam("key"), _IS_NOT_LEAVING)
    .with_for_update(read=True, key_share=True)
)


@frozen
class Removed:
    """What was done to remove nodes.

    :ivar nodes: how many were removed.
    :ivar more: whether they have more claims that can be freed at once.
    """

    nodes: int
    more: bool


def database_clock(conn: Connection) -> ColumnElement[int]:
    """What the clock of the database shows, in microseconds since the epoch.

    On PostgreSQL this is the first function named ``clock_timestamp`` in the ``search_path``.
    """
    if sqlite.serves(conn):
        days = "julianday('now') - 2440587.5"
        return literal_column(f"CAST(({days}) * 86400000000 AS INTEGER)", BigInteger)
    return literal_column("CAST(extract(epoch FROM clock_timestamp()) * 1e6 AS bigint)", BigInteger)


def present_time(conn: Connection) -> float:
    """The time by which all brokers on a database go, in seconds since the epoch."""
    return to_seconds(conn.execute(select(database_clock(conn))).scalar_one())


def ensure_registered(
    conn: Connection,
    key: int | None,
    tables: dict[str, str] | None = None,
    left: Sequence[int] = (),
) -> int:
    """Register this process, unless its row exists, and return its id.

    :param key: the id that the process got before; None if it was never registered.
    :param tables: the revisions of the tables when it was registered first; filled then.
    :param left: further ids that it had before, whose rows are removed if it registers.
    :returns: the id of the process.
    :raises StoreUnavailable: a newer version has migrated the tables since then.
    """
    if key is not None and conn.execute(_LOCK_LIVING, {"key": key}).first():
        return key
    # A node that was never away may work beside a newer version, which has seen it.
    were_there = [leave(conn, each) for each in left]
    if sqlite.serves(conn):
        others = list(conn.execute(select(node.c.id)).scalars())
        while _remove_nodes(conn, others, ended=True).more:
            pass  # nobody else has a row locked
    elif tables is not None and not any(were_there):
        check_tables(conn, tables)
    now = database_clock(conn)
    values = {"started_at": now, "beat_at": now, "version": __version__}
    name = f"{gethostname()} {os.getpid()}"
    return insert_row(conn, node, name=name, **values)


def check_tables(conn: Connection, tables: dict[str, str]) -> None:
    """Check that tables were not migrated while a node did not count as living.

    Nothing stopped a version then which changes them so that this one cannot work with them.

    :param tables: see ``ensure_registered``.
    :raises StoreUnavailable: they were.
    """
    names = [each for each in inspect(conn).get_table_names() if each.endswith("alembic_version")]
    for name in sorted(names):
        found = conn.execute(select(table(name, column("version_num")))).scalars()
        revision = ", ".join(sorted(found))
        if revision != tables.setdefault(name, revision):
            raise StoreUnavailable(
                "a newer version of the broker has migrated the database while this one stood "
                f"still, or was cut off from it ({name} is {revision} now, and was "
                f"{tables[name]}). This one stores nothing any more: install the newer version "
                "here too, and restart it"
            )


def touch(conn: Connection, key: int, done: Mapping[str, float] = MappingProxyType({})) -> bool:
    """Write the heartbeat of a node.  If that raises nothing, the database can be written.

    :param key: the id of the node.
    :param done: what it has done: values of columns of its row.
    :returns: False if its row is gone.
    """
    there = update(node).where(node.c.id == key, _IS_NOT_LEAVING)
    return conn.execute(there.values(beat_at=database_clock(conn), **done)).rowcount > 0


def hand_back(conn: Connection, key: int | None) -> bool:
    """Free a portion of what a node that stops has claimed and will not do, so that others do it.

    It keeps its row, and so its claims of the notifications that are still under way, and of jobs.

    :returns: whether there is more than this portion.
    """
    return key is not None and _free_claims(conn, [key], (*CLAIMS, slice_.c.node_id))


def leave(conn: Connection, key: int | None) -> bool:
    """Remove the row of a node that stops, so that others take up its work at once.

    If it has very many claims, this frees some, and other nodes the rest.

    :returns: whether the row was there: whether the node counted as living until now.
    """
    if key is None:
        return False
    there = conn.execute(_LOCK_LIVING, {"key": key}).first() is not None
    _remove_nodes(conn, [key])
    return there


def remove_dead(conn: Connection) -> Removed:
    """Free a portion of the claims of nodes that are dead, and remove those nodes after the last.

    A node whose transaction is just claiming something is left for the next time, and so is a claim
    whose row another transaction has locked.
    """
    dead = select(node.c.id).where(_is_dead(conn)).with_for_update(skip_locked=True)
    return _remove_nodes(conn, list(conn.execute(dead).scalars()), ended=True)


def living(conn: Connection) -> list[str]:
    """The names of the nodes that live.  On SQLite there are no heartbeats, so none is known to."""
    if sqlite.serves(conn) or not inspect(conn).has_table(node.name):
        return []
    alive = select(node.c.name).where(~_is_dead(conn)).order_by(node.c.id)
    return list(conn.execute(alive).scalars())


def _is_dead(conn: Connection) -> ColumnElement[bool]:
    """The condition that a node has had no heartbeat lately.

    One that is ahead was written before the clock of the database was set back, and none since.
    """
    now, most = database_clock(conn), to_micros(DEAD_AFTER)
    return ~node.c.beat_at.between(now - most, now + most)


def _remove_nodes(conn: Connection, keys: Sequence[int], *, ended: bool = False) -> Removed:
    """Free a portion of the claims of nodes.  If none is left, remove the rows of the nodes.

    :param ended: whether the nodes ended unasked, so that what they had claimed is suspect.
    """
    if not keys:
        return Removed(nodes=0, more=False)
    if ended:
        suspects.count_ends(conn, keys, database_clock(conn))
    of_nodes = node.c.id.in_(keys)
    if _have_claims(conn, keys):
        more = _free_claims(conn, keys, ALL_CLAIMS, ended=ended)
        if more or _have_claims(conn, keys):
            leaving = update(node).where(of_nodes, _IS_NOT_LEAVING)
            # They count as living no more: see ``_IS_NOT_LEAVING``.
            conn.execute(leaving.values(beat_at=-node.c.beat_at))
            return Removed(nodes=0, more=more)
    conn.execute(delete(node).where(of_nodes))
    pings.add_to_total(conn, keys)
    return Removed(nodes=len(keys), more=False)


def _have_claims(conn: Connection, keys: Sequence[int]) -> bool:
    """Whether nodes have claimed anything that is not free again."""
    return bool(conn.execute(_HAVE_CLAIMS, {"nodes": keys}).scalar_one())


def _free_claims(
    conn: Connection, keys: Sequence[int], claims: Sequence[Column[Any]], *, ended: bool = False
) -> bool:
    """Free a portion of the claims of nodes, except those in rows that others have locked.

    So this never waits for a transaction that is slow, nor do two wait for each other.

    :param claims: the columns with the ids of the nodes.
    :param ended: whether the nodes ended unasked, so that what they had claimed is suspect.
    :returns: whether the portion was full, so that there may be more.
    """
    is_full = False
    for claim in claims:
        free = _KEYS_OF_CLAIMED[claim].limit(PORTION)
        free = free.with_for_update(skip_locked=True, key_share=True)
        found = list(conn.execute(free, {"nodes": keys}).scalars())
        if found:
            (key,) = claim.table.primary_key.columns
            some = update(claim.table).where(key.in_(found))
            conn.execute(some.values({claim.name: None}))
            if ended:
                suspects.suspect_claimed(conn, claim, found, database_clock(conn))
        is_full |= len(found) == PORTION
    return is_full


def count(conn: Connection) -> tuple[int, int]:
    """How many nodes live, which is at least 1 since this process does; and how many are dead."""
    is_dead = _is_dead(conn)
    numbers: dict[bool, int] = dict(
        conn.execute(select(is_dead, func.count()).group_by(is_dead)).tuples().all()
    )
    return max(1, numbers.get(False, 0)), numbers.get(True, 0)


# --- what administrators see

#: The kinds of work that ``NodeState.claims`` counts.
_COUNTED_CLAIMS = {
    "fan-outs": fanout.c.node_id,
    "checks": topic.c.check_node_id,
    "polls": topic.c.poll_node_id,
    "intents": intent.c.node_id,
}


def node_states(conn: Connection, here: int | None = None) -> list[NodeState]:
    """The processes that work on the database, in the order in which they started.

    :param here: the id of this process; None if it is none of them.
    """
    now = present_time(conn)
    notifications = _count_claims(conn, pending.c.node_id)
    slices = _count_claims(conn, slice_.c.node_id)
    claims = {kind: _count_claims(conn, claim) for kind, claim in _COUNTED_CLAIMS.items()}
    jobs = conn.execute(select(job).where(job.c.node_id.is_not(None)).order_by(job.c.name)).all()
    # On SQLite nobody writes heartbeats.  That of a node that is just removed has a minus.
    beats = not sqlite.serves(conn)
    return [
        record_of(
            NodeState,
            row,
            here=row.id == here,
            notifications=notifications.get(row.id, 0),
            slices=slices.get(row.id, 0),
            silent_for=max(0.0, now - to_seconds(abs(row.beat_at))) if beats else None,
            claims={kind: counts.get(row.id, 0) for kind, counts in claims.items()},
            jobs=tuple(one.name for one in jobs if one.node_id == row.id),
            notified=row.notifications,
            ping_rate=row.ping_rate if beats else None,
            notification_rate=row.notification_rate if beats else None,
        )
        for row in conn.execute(select(node).order_by(node.c.id))
    ]


def _count_claims(conn: Connection, claim: ColumnElement[int | None]) -> dict[int, int]:
    """How many rows each node has claimed."""
    query = select(claim, func.count()).where(claim.is_not(None)).group_by(claim)
    return dict(conn.execute(query).tuples().all())  # type: ignore[arg-type] # none is null


def measure_sizes(conn: Connection) -> Mapping[str, int]:
    """The bytes of each part of the database.

    :returns: ``main``, the database; and for an SQLite file ``wal``, its write-ahead log.
    """
    if not sqlite.serves(conn):
        size = func.pg_database_size(func.current_database())
        return {"main": conn.execute(select(size)).scalar_one()}
    pages = conn.exec_driver_sql("PRAGMA page_count").scalar_one()
    found = {"main": pages * conn.exec_driver_sql("PRAGMA page_size").scalar_one()}
    path = sqlite.path_of(conn.engine.url)
    if path is not None:
        found["wal"] = 0
        with suppress(FileNotFoundError):  # SQLite removes the log when the broker stops
            found["wal"] = Path(f"{path}-wal").stat().st_size
    return found


def count_waiting_checks(conn: Connection) -> Mapping[str, int]:
    """How many topics wait in the database to be fetched, and no process has them in memory.

    Counted to ten thousand each.

    An index has only the rows that are counted, and PostgreSQL reads an index alone, as nothing
    uses the ids.

    :returns: ``ready``, which any process may claim; and ``put_off``, which are fetched again
        later, as a fetch has failed.
    """
    states = {"ready": CHECK_WAITS, "put_off": topic.c.check_due_at.is_not(None)}
    found = {}
    for state, is_in_it in states.items():
        # Up to how many topics that wait are counted, so that this takes some milliseconds at most.
        some = select(topic.c.id).where(is_in_it).limit(10_000).subquery()
        found[state] = conn.execute(select(func.count()).select_from(some)).scalar_one()
    return found
