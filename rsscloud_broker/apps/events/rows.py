"""Appends entries to the logs of the feeds, and removes old ones.

Each function runs in a transaction that the caller has begun.  Who appends to several logs, or
removes entries, locks the log of changes first, and gives up if another process has locked it.  So
no two processes wait for each other, and each row of the store becomes an entry once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

from sqlalchemy import Connection

from rsscloud_broker.apps.events.entries import Cut
from rsscloud_broker.apps.events.names import CHANGES, HOST, PINGS, TOPIC, description_of
from rsscloud_broker.apps.events.options import EventsOptions
from rsscloud_broker.simplefeed import log, pruning
from rsscloud_broker.simplefeed.entries import Entry
from rsscloud_broker.simplefeed.log import LogState

#: Of how many hosts there are feeds, and for how many days those of quiet hosts are kept.
MAX_HOSTS: Final = 10_000
HOSTS_DAYS: Final = 30.0

#: Of how many topics the contents are kept: each may have a hundred contents of some 100 KB.
MAX_TOPICS: Final = 1000

#: How many logs are looked at in a transaction that removes old entries.
SWEPT_AT_ONCE: Final = 50

#: The id of a feed, and the number of the last document that is removed of it; None for all.
_Removed: TypeAlias = tuple[str, int | None]


def open_feeds(conn: Connection, public_url: str, at: float) -> None:
    """Make the logs of changes and of pings, if they are new."""
    for name in (CHANGES, PINGS):
        log.open_log(conn, description_of(name, public_url), at)


def append_pings(conn: Connection, before: int, last: int, entries: Sequence[Entry]) -> bool:
    """Append the entries of pings.

    :param before, last: the ids of the ping before the first, and of the last.
    :returns: False if another process has appended them, or does so now.
    """
    found = log.lock(conn, PINGS)
    if found is None or found.source != before:
        return False
    log.append(conn, PINGS, entries, last)
    return True


def append_changes(
    conn: Connection, public_url: str, before: int, cut: Sequence[Cut]
) -> tuple[list[str], list[str]] | None:
    """Append the entries of changes to the log of changes, and to those of hosts and topics.

    :param before: the id of the change before the first.
    :param cut: the entries of one change at least.
    :returns: the names of the logs that have new entries, and the ids of the feeds that were
        removed, since there were too many.  None if another process has appended the entries, or
        does so now.
    """
    found = log.lock(conn, CHANGES)
    if found is None or found.source != before:
        return None
    log.append(conn, CHANGES, [each.entry for each in cut], cut[-1].id)
    others: defaultdict[str, list[Entry]] = defaultdict(list)
    for each in cut:
        if each.host:
            others[HOST + each.host].append(each.entry)
        if each.of_topic is not None:
            others[TOPIC + each.url].append(each.of_topic)
    known = log.known_logs(conn, list(others))
    removed = [
        *_make_room(conn, HOST, MAX_HOSTS, others, known),
        *_make_room(conn, TOPIC, MAX_TOPICS, others, known),
    ]
    for name, entries in others.items():
        if name not in known:
            log.open_log(conn, description_of(name, public_url), entries[0].updated)
        log.append(conn, name, entries)
    return [CHANGES, *others], removed


def _make_room(
    conn: Connection, prefix: str, most: int, names: Collection[str], known: Collection[str]
) -> list[str]:
    """Remove the logs of a kind that have not changed for longest, if new ones would be too many.

    A log that has very many entries only loses some of them, and stays until the next call.

    :param prefix: how the names of the kind begin.
    :param names: the names of the logs that get entries; they stay.
    :param known: those of them that are not new.
    :returns: the ids of the feeds that were removed.
    """
    of_kind = [name for name in names if name.startswith(prefix)]
    new = sum(name not in known for name in of_kind)
    excess = log.count_logs(conn, prefix) + new - most if new else 0
    if excess <= 0:
        return []
    stalest = log.stalest_logs(conn, prefix, excess + len(of_kind))
    surplus = [each for each in stalest if each.name not in names][:excess]
    return [each.feed_id for each in surplus if _remove_log(conn, each)]


def _remove_log(conn: Connection, found: LogState) -> bool:
    """Remove a log; or some of its entries, if it has very many.

    :returns: whether it was removed.
    """
    if pruning.prune(conn, found.name, found.document - 1).more:
        return False
    return log.remove_log(conn, found.name)


def sweep(
    conn: Connection, options: EventsOptions, after: str, now: float
) -> tuple[str | None, list[_Removed]] | None:
    """Remove the entries, documents and logs that are too old, from some of the logs.

    :param after: the name of the last log of the call before; empty at first.
    :returns: the name of the last log that is done, None if there are no more logs; and what is
        removed, now or earlier, as ids of feeds with the number of the last document, None for
        all: another process that did so has another directory.  None alone if another process
        appends now.
    """
    if log.lock(conn, CHANGES) is None:
        return None
    found = log.logs(conn, after, SWEPT_AT_ONCE)
    removed: list[_Removed] = []
    for one in found:
        swept, more = _sweep_log(conn, options, one, now)
        if more:
            return after, removed
        after = one.name
        removed += [swept] if swept else []
    return (after if len(found) == SWEPT_AT_ONCE else None), removed


def _kept_of(options: EventsOptions, name: str) -> tuple[int, float]:
    """How many entries of a log are kept, and for how many days; 0 for no limit.

    :param name: the name of the log, such as ``changes`` or ``host:example.org``.
    """
    kind, _, host_or_url = name.partition(":")
    if kind == "host":
        return 0, HOSTS_DAYS
    if kind == "topic":
        kept = options.kept(host_or_url)
        return kept.entries, kept.days
    return 0, {"changes": options.days, "pings": options.pings_days}.get(kind, 0.0)


def _sweep_log(
    conn: Connection, options: EventsOptions, found: LogState, now: float
) -> tuple[_Removed | None, bool]:
    """Remove entries that are too old or too many, with their documents; or all of a stale log.

    :returns: what is removed, None if nothing is; and whether more of it is still to be removed.
    """
    most, days = _kept_of(options, found.name)
    before = now - days * 86_400.0 if days else 0.0
    is_of_one = ":" in found.name  # of one host or topic; it is made again with its next entry
    if is_of_one and found.updated < before:
        is_removed = _remove_log(conn, found)
        return ((found.feed_id, None) if is_removed else None), not is_removed
    through = pruning.archived_before(conn, found.name, before)
    if most:
        through = max(through, pruning.archived_through(conn, found.name, found.count - most))
    if not through:
        return None, False
    pruned = pruning.prune(conn, found.name, through)
    return (found.feed_id, through), pruned.more
