"""Units of time, in seconds."""

from __future__ import annotations

from typing import Final

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86_400
YEAR: Final = 365 * DAY


def in_words(seconds: float) -> str:
    """A duration in the largest unit of which it is exactly one, or at least two: "90 minutes"."""
    units = ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"))
    found = ((unit, name) for unit, name in units if seconds == unit or seconds >= 2 * unit)
    unit, name = next(found, (1, "second"))
    number = round(seconds / unit, 1)
    return f"{number:g} {name}{'' if number == 1 else 's'}"
