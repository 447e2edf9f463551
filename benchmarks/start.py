"""Measures how long the broker takes to start with a million subscriptions."""

from __future__ import annotations

from benchmarks.addresses import address
from benchmarks.broker import Broker, Data
from benchmarks.processes import Failed, Sample
from benchmarks.report import Line, Target, middle
from benchmarks.rows import Settings

_COUNT = 1_000_000
_PER_TOPIC = 100
_CHUNK = 20_000


def start(settings: Settings) -> list[Line]:
    """The seconds from the start of the process to the first page that it serves."""
    deadline = settings.deadline()
    count = settings.count or _COUNT
    data = Data.make(settings.directory / "data")
    for first in range(0, count, _CHUNK):
        topics: dict[str, list[str]] = {}
        for number in range(first, min(first + _CHUNK, count)):
            topic = f"http://127.0.0.1:1/feed/{number // _PER_TOPIC}"
            callback = f"http://{address(number)}:1/n/{number}"
            topics.setdefault(topic, []).append(callback)
        data.subscribe(topics)
    if (found := data.count("subscription")) != count:
        raise Failed(f"there are {found} of {count} subscriptions")
    samples, peaks = [], []
    for _ in range(settings.rounds):
        with Broker(data, deadline, polls=True) as broker:
            for _ in deadline.polls("the first change list"):
                if data.change_list.exists():
                    break
            samples.append(Sample(broker.answered_at - broker.started_at, broker.cpu_seconds()))
            peaks.append(broker.peak_megabytes())
        data.change_list.unlink()
    targets = [Target.at_most(middle(samples), 5, "s"), Target.at_most(max(peaks), 150, "MB")]
    work = f"start with {count:,} subscriptions, until the first page"
    return [Line(work, "s", samples, max(peaks), (), targets)]
