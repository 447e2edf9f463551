"""Keeps the sums of the sizes of contents, for each host that they came from and in total.

The row of the total comes first in every transaction that changes sums.  So who holds it sees
sums and contents that belong together.

Each function here runs in one transaction; only ``correct_sums`` runs several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from sqlalchemy import Connection, delete, func, insert, select

from rsscloud_broker.database.columns import insert_into, lock_rows, put_rows
from rsscloud_broker.database.portions import (
    Run,
    different_values,
    end_of_portion,
    in_portions,
    within,
)
from rsscloud_broker.storage.schema import content, content_sum

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
