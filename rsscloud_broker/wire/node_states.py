"""Writes which nodes work on a database as JSON and as text, for the command ``nodes``.

In JSON, times are in UTC, and null if they are not known::

    [{"name": "broker1 4711", "version": "1.0", "started_at": "2026-11-21T02:30:00Z",
      "silent_for": 0.4, "clock_ahead": 0.0, "pings": 1200, "ping_rate": 12.5,
      "notifications": 88000, "notification_rate": 340.0,
      "claims": {"fan-outs": 2, "slices": 31, ...}, "jobs": ["archive"]}, ...]

The text has some lines for each node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rsscloud_broker.model.administration import NodeState
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.times import iso_time

#: After this many seconds without a heartbeat the others take over what a node has claimed.
DEAD_AFTER = 8.0

#: The clock of a node is right if it differs from the database's by this many seconds at most.
CLOCK_TOLERANCE = 2.0


def to_json(nodes: Sequence[NodeState]) -> list[dict[str, Any]]:
    """Nodes as a list for ``json.dumps``."""
    return [
        {
            "name": one.name,
            "version": one.version,
            "started_at": iso_time(one.started_at),
            "silent_for": one.silent_for,
            "clock_ahead": one.clock_ahead,
            "pings": one.pings,
            "ping_rate": one.ping_rate,
            "notifications": one.notified,
            "notification_rate": one.notification_rate,
            "claims": claims_of(one),
            "jobs": list(one.jobs),
        }
        for one in nodes
    ]


def to_text(nodes: Sequence[NodeState]) -> str:
    """Nodes as lines of text, without a line break at the end."""
    return "\n".join(line for one in nodes for line in _lines_about(one))


def claims_of(one: NodeState) -> dict[str, int]:
    """How much work of each kind a node has claimed."""
    return {**one.claims, "slices": one.slices, "notifications": one.notifications}


def _lines_about(one: NodeState) -> Iterator[str]:
    """The lines about one node: its name, then a line for each fact."""
    yield clean(one.name)
    held = ", ".join(f"{count:,} {kind}" for kind, count in claims_of(one).items() if count)
    for name, text in (
        ("since", f"{iso_time(one.started_at)}, version {clean(one.version)}"),
        ("heartbeat", _heartbeat_text(one.silent_for)),
        ("clock", clock_of(one)),
        ("pings", _rate_text(one.ping_rate, one.pings)),
        ("notifications", _rate_text(one.notification_rate, one.notified)),
        ("works on", held or "nothing"),
        ("jobs", ", ".join(one.jobs) or "none"),
    ):
        yield f"  {name:<14}{text}"


def _heartbeat_text(silent_for: float | None) -> str:
    """How long ago a node gave a sign of life, in words; None for the only broker on SQLite."""
    if silent_for is None:
        return "none: the only broker on SQLite writes none"
    if silent_for > DEAD_AFTER:
        return f"{silent_for:.0f} seconds ago: it is dead, and others take its work over"
    return f"{silent_for:.1f} seconds ago"


def clock_sentence(ahead: float) -> str:
    """Says by how much the clock of a computer is wrong, and what to do, without a full stop.

    :param ahead: by how many seconds it is ahead of the database's.
    """
    way = "ahead of" if ahead > 0 else "behind"
    return (
        f"{abs(ahead):.0f} seconds {way} that of the database, by which the broker goes: set it, "
        "and keep both in step by NTP"
    )


def clock_of(one: NodeState) -> str:
    """What is to be said of the clock of a node's computer."""
    if one.silent_for is None:
        return "that of the database"
    if abs(one.clock_ahead) <= CLOCK_TOLERANCE:
        return "right"
    return clock_sentence(one.clock_ahead)


def _rate_text(rate: float | None, total: int) -> str:
    """How much a node does, in words; a rate of None is not recorded."""
    return "see /metrics" if rate is None else f"{rate:,.1f} a second, {total:,} since its start"
