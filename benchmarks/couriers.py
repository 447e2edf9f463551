"""Measures what couriers bring: the same work with the processes of ``auto``, and with none.

Both brokers run at the same time, and work in turns, each while the other has nothing to do.  The
time runs from the ping to the last notification and the end of the walk on the disk.

The rows that say what further cores bring are computed, since most machines have few: a broker with
eight couriers can make as many notifications a second as its own process, or eight couriers with a
core each, whichever is less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.broker import Broker, Data
from benchmarks.certificates import Authority
from benchmarks.notify import Audience, check_counts, expect, fan_out, floor
from benchmarks.pings import CONNECTIONS, topics
from benchmarks.processes import Deadline, Helper, Sample
from benchmarks.report import Line, Target, cpu_ratio, middle, ratio
from benchmarks.rows import Settings

_COUNT = 10_000
_TOPICS, _TIMES = 1000, 3
_MEMORY = 260.0

#: The processor time of all processes may be this many times that of a broker without couriers.
_MORE_WORK = 1.15

#: How many changes are notified to a single subscriber, and how many milliseconds each may take
#: longer.
_PINGS, _LONGER = 100, 2.0

#: The couriers of the model, and the part that the broker's own process may have of the processor
#: time of the floor.
_MODEL, _SHARE = 8, 0.5


@contextmanager
def _both(
    settings: Settings,
    deadline: Deadline,
    subscribe: Callable[[Data], object],
    trusted: Path | None = None,
    processes: int | None = None,
) -> Iterator[tuple[Broker, Broker]]:
    """A broker with couriers and one without, with the same subscriptions.

    :param processes: how many couriers there are; None for those of ``auto``.
    """
    one, other = (Data.make(settings.directory / name) for name in ("with", "without"))
    subscribe(one)
    subscribe(other)
    more = "[delivery]\nprocesses = {}\n"
    with (
        Broker(one, deadline, trusted, more=more.format(processes or '"auto"')) as with_couriers,
        Broker(other, deadline, trusted, more=more.format(0)) as without,
    ):
        yield with_couriers, without


def _compared(
    settings: Settings, protocol: str, work: str, least: float, authority: Path | None = None
) -> Line:
    deadline = settings.deadline()
    count = settings.count or _COUNT
    more = {"authority": str(authority), "first": 0, "count": count} if authority else {}
    with Helper("receiver", deadline, **more) as receiver:
        audience = Audience.of(receiver, 0, count, protocol)
        port = receiver.ready["secure"] if authority else receiver.port
        with _both(settings, deadline, lambda data: audience.subscribe(data, port), authority) as (
            ours,
            partner,
        ):
            samples: list[Sample] = []
            partners: list[Sample] = []
            for _ in range(settings.rounds):
                partners.append(fan_out(partner, receiver, audience, deadline))
                samples.append(fan_out(ours, receiver, audience, deadline))
            peak = ours.peak_megabytes()
    return Line(
        f"{work.format(count)} with couriers (floor: without)",
        "notifications/s",
        samples,
        peak,
        partners,
        [
            Target.at_least(ratio(samples, partners), least),
            Target.at_most(peak, _MEMORY, "MB"),
            Target.at_most(cpu_ratio(samples, partners), _MORE_WORK, "x CPU"),
        ],
    )


def plain(settings: Settings) -> list[Line]:
    """10,000 callbacks by http-post, each on its own address."""
    return [_compared(settings, "http-post", "notify {:,} callbacks", 1.5)]


def tls(settings: Settings) -> list[Line]:
    """The same over TLS."""
    file = settings.directory / "authority.pem"
    Authority.make().save(file)
    return [_compared(settings, "https-post", "notify {:,} callbacks over TLS", 1.7, file)]


def websub(settings: Settings) -> list[Line]:
    """Contents of 20 KB, signed with the secret of each callback."""
    return [_compared(settings, "websub", "deliver 20,000 bytes to {:,} WebSub callbacks", 1.5)]


def latency(settings: Settings) -> list[Line]:
    """The milliseconds from a ping to the notification of a single subscriber."""
    deadline = settings.deadline()
    count = settings.rounds * min(settings.count or _PINGS, _PINGS)
    ours: list[Sample] = []
    partners: list[Sample] = []
    with Helper("receiver", deadline) as receiver:
        audience = Audience.of(receiver, 0, 1)
        with _both(settings, deadline, lambda data: audience.subscribe(data, receiver.port)) as (
            with_couriers,
            without,
        ):
            for _ in range(count):
                partners.append(_told(without, receiver, audience, deadline))
                ours.append(_told(with_couriers, receiver, audience, deadline))
            peak = with_couriers.peak_megabytes()
    longer = middle(ours) - middle(partners)
    work = "from a ping to the notification of one subscriber, with couriers (floor: without)"
    return [
        Line(work, "ms", ours, peak, partners, [Target.at_most(longer, _LONGER, "ms longer")]),
    ]


def _told(broker: Broker, receiver: Helper, audience: Audience, deadline: Deadline) -> Sample:
    """The milliseconds from a ping to the only notification."""
    expect(receiver, audience)
    began = time.monotonic()
    broker.ping_topic(audience.topic)
    receiver.ask("await", count=1, seconds=deadline.left("a notification") * 0.95)
    broker.data.wait_for_walks(deadline)
    check_counts(receiver, audience)
    return Sample(1000 * receiver.ask("latencies", since=began)["p50"])


def model(settings: Settings) -> list[Line]:
    """The processor time of each process for a notification, and what follows from it."""
    deadline = settings.deadline()
    count = settings.count or _COUNT
    bare, own, ours, partners = [], [], [], []
    with Helper("receiver", deadline) as receiver:
        audience = Audience.of(receiver, 0, count)
        subscribe = partial(audience.subscribe, port=receiver.port)
        with _both(settings, deadline, subscribe, processes=_MODEL) as (with_couriers, without):
            for _ in range(settings.rounds):
                bare.append(_cost(floor(receiver, audience, deadline), count))
                before = with_couriers.own_cpu_seconds()
                sample = fan_out(with_couriers, receiver, audience, deadline)
                spent = with_couriers.own_cpu_seconds() - before
                own.append(_cost(Sample(0, spent), count))
                each = ((sample.cpu or 0.0) - spent) / _MODEL
                ours.append(Sample(count / max(spent, each, 1e-9)))
                partner = fan_out(without, receiver, audience, deadline)
                partners.append(Sample(count / max(partner.cpu or 0.0, 1e-9)))
            peak = with_couriers.peak_megabytes()
    least = Target.at_most(ratio(own, bare), _SHARE)
    return [
        Line(
            f"processor time of a broker with {_MODEL} couriers for a notification, "
            "without theirs (floor: a bare loop)",
            "us",
            own,
            peak,
            bare,
            [least],
        ),
        Line(
            f"model: {_MODEL} couriers with a core each (floor: a broker without couriers)",
            "notifications/s",
            ours,
            peak,
            partners,
        ),
    ]


def _cost(sample: Sample, count: int) -> Sample:
    """The microseconds of processor time for one of ``count`` notifications."""
    return Sample(max(sample.cpu or 0.0, 1e-9) / count * 1e6, sample.cpu)


def pings(settings: Settings) -> list[Line]:
    """Pings by rssCloud of topics that have not changed; the courier reads each."""
    deadline = settings.deadline()
    count = settings.count or _TOPICS
    ours: list[Sample] = []
    partners: list[Sample] = []
    with (
        Helper("receiver", deadline) as origin,
        _both(settings, deadline, lambda data: None) as (with_couriers, without),
    ):
        for broker in (with_couriers, without):  # the first fetch of each counts as a change
            topics(origin, broker, broker.port, "/rsscloud/ping", count, 1, deadline)
        for _ in range(settings.rounds):
            for broker, samples in ((without, partners), (with_couriers, ours)):
                samples.append(
                    topics(origin, broker, broker.port, "/rsscloud/ping", count, _TIMES, deadline)
                )
        peak = with_couriers.peak_megabytes()
    work = f"rssCloud pings of {count:,} unchanged topics, {CONNECTIONS} connections"
    return [
        Line(
            f"{work}, with couriers (floor: without)",
            "pings/s",
            ours,
            peak,
            partners,
            [
                Target.at_least(ratio(ours, partners), 1.6),
                Target.at_most(peak, _MEMORY, "MB"),
            ],
        )
    ]
