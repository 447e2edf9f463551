"""Units of time, in seconds."""

from __future__ import annotations

from typing import Final

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86_400
YEAR: Final = 365 * DAY
