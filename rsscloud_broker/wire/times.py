"""Writes times as RFC 3339 and W3C datetimes do, in UTC: ``2026-11-21T02:30:00Z``."""

from __future__ import annotations

from datetime import UTC, datetime


def iso_time(seconds: float) -> str:
    """A time to the second, which is cut off and not rounded.

    :param seconds: seconds since the epoch.
    """
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"


def exact_iso_time(seconds: float) -> str:
    """A time to the microsecond: ``2026-11-21T02:30:00.123456Z``.

    :param seconds: seconds since the epoch.
    """
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
