"""Measures whether dead hosts delay the notifications of healthy subscribers.

Half of the dead hosts (black holes) accept connections and never answer, half drop the packets of
connections; in another row the name server never answers for their names.  Healthy subscribers,
each on its own address, are mixed with them.  The rows show the 99th percentile of the time until
a healthy subscriber is notified.
"""

from __future__ import annotations

from benchmarks.addresses import address
from benchmarks.broker import Broker, Data
from benchmarks.name_server import name
from benchmarks.notify import DISTANCE, Audience, slowest
from benchmarks.processes import Deadline, Helper, Sample
from benchmarks.report import Line, Target, ratio
from benchmarks.rows import Settings

_COUNT = 12_000
_SHARES = (10, 30)


def latencies(settings: Settings) -> list[Line]:
    """The 99th percentile of the time from the ping's answer to the notification."""
    deadline = settings.deadline()
    with Helper("receiver", deadline) as receiver:
        return _lines(settings, deadline, receiver, "{} % of the hosts are black holes")


def names(settings: Settings) -> list[Line]:
    """The same with callbacks by names; the name server does not answer for the dead hosts."""
    deadline = settings.deadline()
    with (
        Helper("receiver", deadline) as receiver,
        Helper("name_server", deadline, delay=DISTANCE) as server,
    ):
        return _lines(settings, deadline, receiver, "{} % of the names have no answer", server)


def _lines(
    settings: Settings,
    deadline: Deadline,
    receiver: Helper,
    what: str,
    server: Helper | None = None,
) -> list[Line]:
    well, _ = _measure(settings, deadline, receiver, 0, server)
    lines = []
    for share in _SHARES:
        samples, peak = _measure(settings, deadline, receiver, share, server)
        work = f"99 % of the healthy are notified, {what.format(share)}"
        lines.append(_line(f"{work}: first fan-out", samples[:1], well, peak))
        if len(samples) > 1:
            again = f"fan-out {len(samples)}"
            lines.append(_line(f"{work}: {again}", samples[-1:], well, peak))
    return lines


def _line(work: str, samples: list[Sample], well: list[Sample], peak: float) -> Line:
    return Line(work, "ms", samples, peak, well, [Target.at_most(ratio(samples, well), 2)])


def _measure(
    settings: Settings, deadline: Deadline, receiver: Helper, share: int, server: Helper | None
) -> tuple[list[Sample], float]:
    """The milliseconds of each of several fan-outs, with a share of dead hosts in per cent; and
    the broker's peak memory.
    """
    count = settings.count or _COUNT
    # By the last digit, so that dead hosts are spread evenly.
    alive = [number for number in range(count) if number % 10 >= share // 10]
    audience = Audience.of(receiver, 0, len(alive))
    data = Data.make(settings.directory / f"data-{share}")
    callbacks = _callbacks(receiver, count, set(alive), named=server is not None)
    data.subscribe({audience.topic: callbacks})
    samples = []
    with Broker(data, deadline, name_server=server.port if server else None) as broker:
        for number in range(settings.rounds):
            if number:
                data.wait_for_walks(deadline)
            samples.append(slowest(broker, receiver, audience, deadline))
        peak = broker.peak_megabytes()
    return samples, peak


def _callbacks(receiver: Helper, count: int, alive: set[int], named: bool) -> list[str]:
    """The callbacks of all subscribers; the paths of the healthy ones are numbered from 0."""
    callbacks = []
    healthy = 0
    for number in range(count):
        if number in alive:
            host = name(number) if named else address(number)
            callbacks.append(f"http://{host}:{receiver.port}/n/{healthy}")
            healthy += 1
        elif named:
            callbacks.append(f"http://{name(number, 'silent')}:{receiver.port}/")
        else:
            port = receiver.ready["silent" if number // 10 % 2 else "dropping"]
            callbacks.append(f"http://{address(number)}:{port}/")
    return callbacks
