"""Measures what couriers bring: the same work with the processes of ``auto``, and with none.

Both brokers run at the same time, and work in turns, each while the other has nothing to do.  The
time runs from the ping to the last notification and the end of the walk on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.broker import Broker, Data
from benchmarks.certificates import Authority
from benchmarks.notify import Audience, fan_out
from benchmarks.pings import CONNECTIONS, topics
from benchmarks.processes import Deadline, Helper, Sample
from benchmarks.report import Line, Target, ratio
from benchmarks.rows import Settings

_COUNT = 10_000
_TOPICS, _TIMES = 1000, 3
_MEMORY = 260.0


@contextmanager
def _both(
    settings: Settings,
    deadline: Deadline,
    subscribe: Callable[[Data], object],
    trusted: Path | None = None,
) -> Iterator[tuple[Broker, Broker]]:
    """A broker with couriers and one without, with the same subscriptions."""
    one, other = (Data.make(settings.directory / name) for name in ("with", "without"))
    subscribe(one)
    subscribe(other)
    more = "[delivery]\nprocesses = {}\n"
    with (
        Broker(one, deadline, trusted, more=more.format('"auto"')) as with_couriers,
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
