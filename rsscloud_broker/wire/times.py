"""Writes times as RFC 3339 and W3C datetimes do, in UTC: ``2026-11-21T02:30:00Z``."""

from __future__ import annotations

from datetime import UTC, datetime


def iso_time(seconds: float) -> str:
    """A time to the second, which is cut off and not rounded.

    :param seconds: seconds since the epoch.
    """
    return _written(int(seconds), "seconds")


def exact_iso_time(seconds: float) -> str:
    """A time to the microsecond: ``2026-11-21T02:30:00.123456Z``.

    :param seconds: seconds since the epoch.
    """
    return _written(seconds, "microseconds")


def _written(seconds: float, precision: str) -> str:
    # Not by ``%Y``: on Linux it writes a year before 1000 with fewer than four digits.
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat("T", precision) + "Z"
