"""Counts the changes of a topic on each of the last days, in a column of the topic.

So a change costs no statement of its own.  The column is a JSON object: days since the epoch (UTC),
each with the number of its changes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Final

from rsscloud_broker.wire.units import DAY

#: How many days are kept, with that of the last change.
_DAYS_KEPT: Final = 30


def with_change(stored: str, at: float) -> str:
    """The value of the column ``stored`` with a further change counted in it.

    :param at: when the topic changed, in seconds since the epoch.
    """
    return merge_change_days(stored, json.dumps({int(at // DAY): 1}))


def merge_change_days(*stored: str) -> str:
    """The value of the column of a topic that has the changes of several, as when topics become
    one.  Only the 30 days up to the newest change are kept.  Empty if there are no changes.
    """
    total = sum((Counter(change_days(one)) for one in stored), Counter[int]())
    newest = max(total, default=0)
    kept = {day: total[day] for day in sorted(total) if day > newest - _DAYS_KEPT}
    return json.dumps(kept, separators=(",", ":")) if kept else ""


def change_days(stored: str) -> Mapping[int, int]:
    """How often a topic changed, by day since the epoch."""
    return {int(day): number for day, number in json.loads(stored or "{}").items()}
