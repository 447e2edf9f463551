"""Measures how long it takes to plan the polls of very many topics, and the longest batch.

The broker's reactor is blocked while it plans a batch.
"""

from __future__ import annotations

import resource
import time

from benchmarks.processes import Failed, Sample
from benchmarks.report import Line, Target, middle
from benchmarks.rows import Settings
from rsscloud_broker.core.polling import AT_ONCE
from rsscloud_broker.core.polling_plan import PollIntervals, plan
from rsscloud_broker.model import Topic, TopicStatus

_COUNT = 100_000
_NOW = 1_790_683_200.0
_HINTS = {"ttl_minutes": 60, "skip_hours": [0, 1, 2, 3], "skip_days": [5, 6]}


def planning(settings: Settings) -> list[Line]:
    """The CPU seconds for one plan of each topic, in batches as large as the broker's."""
    count = settings.count or _COUNT
    statuses = [_status(number) for number in range(count)]
    pace = PollIntervals()
    seconds, longest = [], []
    for _ in range(settings.rounds):
        began, worst = time.process_time(), 0.0
        plans: list[float] = []
        for first in range(0, count, AT_ONCE):
            batch = time.process_time()
            due = statuses[first : first + AT_ONCE]
            plans += [plan(status, _NOW, pace).at or 0.0 for status in due]
            worst = max(worst, time.process_time() - batch)
        took = time.process_time() - began
        if len(plans) != count or min(plans) < _NOW:
            raise Failed("a topic was not planned, or for a time that has passed")
        seconds.append(Sample(took, took))
        longest.append(Sample(worst * 1000, took))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    work = f"plan the polls of {count:,} topics"
    return [
        Line(work, "s", seconds, peak, (), [Target.at_most(middle(seconds), 1, "s")]),
        Line(f"{work}: the longest batch", "ms", longest, peak),
    ]


def _status(number: int) -> TopicStatus:
    """The status of a typical topic: half of them have hints, and a tenth fails."""
    return TopicStatus(
        Topic(f"http://site{number}.example/rss.xml", changed_at=_NOW - number % 86_400),
        asked_at=_NOW - number % 3600,
        failures=number % 10 // 9,
        fresh_seconds=300.0,
        poll_interval=3600.0,
        planned_at=_NOW - 3600,
        feed={"hints": _HINTS} if number % 2 else {},
    )
