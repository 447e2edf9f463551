"""Measures brokers on a PostgreSQL: one beside one on SQLite, and two beside one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp

from attrs import frozen

from benchmarks.broker import Broker, Data
from benchmarks.database import PostgreSQL, SharedData
from benchmarks.notify import Audience, expect, fan_out
from benchmarks.pings import pings
from benchmarks.processes import Deadline, Failed, Helper, Running, Sample, Stopwatch
from benchmarks.report import Line, Target, middle, ratio
from benchmarks.rows import Settings

_MANY = 20_000

#: Seconds that a subscriber takes in the row of a takeover, and how many subscribers there are: not
#: so many that two brokers would share them.
_SLOW, _FEW = 0.3, 500


@frozen
class _Together:
    """Several processes that are measured as one."""

    processes: Sequence[Running]

    def cpu_seconds(self) -> float:
        return sum(process.cpu_seconds() for process in self.processes)

    def peak_megabytes(self) -> float:
        return max(process.peak_megabytes() for process in self.processes)


@frozen
class _Cluster:
    """A PostgreSQL, and brokers on it."""

    server: PostgreSQL
    brokers: Sequence[Broker]

    @property
    def together(self) -> _Together:
        return _Together(self.brokers)


def _start(
    stack: ExitStack,
    settings: Settings,
    deadline: Deadline,
    brokers: int,
    prepare: Callable[[Data], object] = lambda data: None,
    more: str = "",
) -> _Cluster:
    """Start a PostgreSQL of its own, and brokers on it.

    :param prepare: fills the database.
    :param more: more tables of their configuration.
    """
    server = stack.enter_context(PostgreSQL(settings.directory, deadline))
    started = []
    for number in range(brokers):
        data = SharedData.on(server, Path(mkdtemp(dir=settings.directory)) / "data")
        if not number:
            prepare(data)
        broker = Broker(data, deadline, top=data.setting, more=more)
        started.append(stack.enter_context(broker))
    for _ in deadline.polls("all brokers to know of each other"):
        if all(f"{brokers} nodes work" in one.log_end() for one in started) or brokers == 1:
            break
    return _Cluster(server, started)


def notify(settings: Settings) -> list[Line]:
    """10,000 subscribers: one broker on PostgreSQL, beside one on SQLite."""
    deadline, count = settings.deadline(), settings.count or 10_000
    with ExitStack() as stack:
        receiver = stack.enter_context(Helper("receiver", deadline))
        audience = Audience.of(receiver, 0, count)
        data = Data.make(settings.directory / "data")
        audience.subscribe(data, receiver.port)
        alone = stack.enter_context(Broker(data, deadline))
        cluster = _start(
            stack, settings, deadline, 1, lambda data: audience.subscribe(data, receiver.port)
        )
        (ours,) = cluster.brokers
        watch = _watch(cluster.server)
        bare, shared = [], []
        for _ in range(settings.rounds):
            bare.append(fan_out(alone, receiver, audience, deadline))
            shared.append(fan_out(ours, receiver, audience, deadline))
        cost = watch.cpu() / settings.rounds
        peak = ours.peak_megabytes()
    targets = [Target.at_least(ratio(shared, bare), 0.9)]
    work = f"notify {count:,} callbacks, one broker on PostgreSQL{_cost(cost, count)}"
    return [Line(f"{work} (floor: on SQLite)", "notifications/s", shared, peak, bare, targets)]


def accept(settings: Settings) -> list[Line]:
    """Pings by XML-RPC: one broker on PostgreSQL, beside one on SQLite."""
    deadline, count = settings.deadline(), settings.count or 10_000
    with ExitStack() as stack:
        alone = stack.enter_context(Broker(Data.make(settings.directory / "data"), deadline))
        cluster = _start(stack, settings, deadline, 1)
        (ours,) = cluster.brokers
        watch = _watch(cluster.server)
        bare, shared = [], []
        for number in range(settings.rounds):
            bare.append(pings(alone, alone.port, number * count, count, deadline))
            shared.append(pings(ours, ours.port, number * count, count, deadline))
        cost = watch.cpu() / settings.rounds
        peak = ours.peak_megabytes()
        _expect_pings(ours.data, settings.rounds * count)
    targets = [Target.at_least(ratio(shared, bare), 0.6)]
    work = f"weblogUpdates.ping by XML-RPC, one broker on PostgreSQL{_cost(cost, count)}"
    return [Line(f"{work} (floor: on SQLite)", "pings/s", shared, peak, bare, targets)]


def notify_by_two(settings: Settings) -> list[Line]:
    """20,000 subscribers: two brokers on one PostgreSQL, beside one."""
    deadline, count = settings.deadline(), settings.count or _MANY
    rounds: dict[int, list[Sample]] = {1: [], 2: []}
    costs, peak = {}, 0.0
    for brokers, samples in rounds.items():
        with ExitStack() as stack:
            receiver = stack.enter_context(Helper("receiver", deadline))
            audience = Audience.of(receiver, 0, count)
            cluster = _start(
                stack, settings, deadline, brokers,
                lambda data, a=audience, r=receiver: a.subscribe(data, r.port),  # type: ignore[misc]
            )  # fmt: skip
            watch = _watch(cluster.server)
            for _ in range(settings.rounds):
                samples.append(_fan_out(cluster, receiver, audience, deadline))
            costs[brokers] = watch.cpu() / settings.rounds
            peak = cluster.together.peak_megabytes()
    targets = [Target.at_least(ratio(rounds[2], rounds[1]), 1.4)]
    work = f"notify {count:,} callbacks, two brokers on one PostgreSQL{_cost(costs[2], count)}"
    floor = f"one broker{_cost(costs[1], count)}"
    return [
        Line(f"{work} (floor: {floor})", "notifications/s", rounds[2], peak, rounds[1], targets)
    ]


def accept_by_two(settings: Settings) -> list[Line]:
    """Pings by XML-RPC: two brokers on one PostgreSQL, beside one."""
    deadline, count = settings.deadline(), settings.count or 10_000
    rounds: dict[int, list[Sample]] = {1: [], 2: []}
    costs, peak = {}, 0.0
    for brokers, samples in rounds.items():
        with ExitStack() as stack:
            cluster = _start(stack, settings, deadline, brokers)
            watch = _watch(cluster.server)
            for number in range(settings.rounds):
                samples.append(_ping_all(cluster, number * count, count, deadline))
            costs[brokers] = watch.cpu() / settings.rounds
            peak = cluster.together.peak_megabytes()
            _expect_pings(cluster.brokers[0].data, settings.rounds * count)
    targets = [Target.at_least(ratio(rounds[2], rounds[1]), 1.4)]
    work = f"weblogUpdates.ping, two brokers on one PostgreSQL{_cost(costs[2], count)}"
    floor = f"one broker{_cost(costs[1], count)}"
    return [Line(f"{work} (floor: {floor})", "pings/s", rounds[2], peak, rounds[1], targets)]


def take_over(settings: Settings) -> list[Line]:
    """The broker that walks is killed: seconds until the other one goes on."""
    deadline = settings.deadline()
    count = min(_FEW, settings.count or _FEW)
    more = f"[sinks.distribution]\nin_flight = {max(2, count // 10)}\n"
    seconds, peak = [], 0.0
    for _ in range(settings.rounds):
        with ExitStack() as stack:
            receiver = stack.enter_context(Helper("receiver", deadline))
            receiver.ask("take_time", delay=_SLOW)
            audience = Audience.of(receiver, 0, count)
            cluster = _start(
                stack, settings, deadline, 2,
                lambda data, a=audience, r=receiver: a.subscribe(data, r.port),  # type: ignore[misc]
                more,
            )  # fmt: skip
            seconds.append(Sample(_seconds_without(cluster, receiver, audience, deadline)))
            peak = max(one.peak_megabytes() for one in cluster.brokers if not one.ended)
    targets = [Target.at_most(middle(seconds), 10, "s")]
    work = "from SIGKILL of the broker that notifies to the next notification by another"
    return [Line(work, "s", seconds, peak, targets=targets)]


def _watch(server: PostgreSQL) -> Stopwatch:
    return Stopwatch.start(server)


def _cost(cpu: float, count: int) -> str:
    return f"; PostgreSQL: {1e6 * cpu / count:.0f} µs of CPU each"


def _expect_pings(data: Data, count: int) -> None:
    if data.count("ping") != count:
        raise Failed(f"{count} pings were thanked for, {data.count('ping')} are stored")


def _fan_out(cluster: _Cluster, receiver: Helper, audience: Audience, deadline: Deadline) -> Sample:
    """What `fan_out` measures, with the CPU time of all brokers."""
    before = cluster.together.cpu_seconds()
    sample = fan_out(cluster.brokers[0], receiver, audience, deadline)
    return Sample(sample.value, cluster.together.cpu_seconds() - before)


def _ping_all(cluster: _Cluster, first: int, count: int, deadline: Deadline) -> Sample:
    """Ping all brokers at the same time, each its share."""
    share = count // len(cluster.brokers)
    before = cluster.together.cpu_seconds()
    with ThreadPoolExecutor(len(cluster.brokers)) as pool:
        asked = [
            pool.submit(pings, broker, broker.port, first + number * share, share, deadline)
            for number, broker in enumerate(cluster.brokers)
        ]
        rates = [one.result().value for one in asked]
    return Sample(sum(rates), cluster.together.cpu_seconds() - before)


def _seconds_without(
    cluster: _Cluster, receiver: Helper, audience: Audience, deadline: Deadline
) -> float:
    """Kill the broker that notifies, and measure the time until the other goes on."""
    expect(receiver, audience)
    data = cluster.brokers[0].data
    cluster.brokers[0].ping_topic(audience.topic)
    # Few subscribers are soon notified: by then it must be known who does it.
    walking = _walking(cluster, data, deadline)
    for _ in deadline.polls("the first notifications"):
        if receiver.ask("counts")["received"] > audience.count // 10:
            break
    walking.kill()
    killed_at = time.monotonic()
    for _ in deadline.polls("the last notifications of the one that was killed", 2 * _SLOW):
        before = receiver.ask("counts")["received"]
        if time.monotonic() - killed_at > 2 * _SLOW:
            break
    for _ in deadline.polls("the next notification"):
        if receiver.ask("counts")["received"] > before:
            break
    seconds = time.monotonic() - killed_at
    receiver.ask("await", count=audience.count, seconds=deadline.left("all") * 0.95)
    if missing := receiver.ask("counts")["missing"]:
        raise Failed(f"{missing} of {audience.count} subscribers were not notified")
    return seconds


def _walking(cluster: _Cluster, data: Data, deadline: Deadline) -> Broker:
    """Wait until a broker has claimed the fan-out, and return that one."""
    claimed = "SELECT node.name FROM fanout JOIN node ON node.id = fanout.node_id"
    with data.reading() as connection:
        for _ in deadline.polls("a broker to notify"):
            if found := connection.execute(claimed).fetchone():
                (walking,) = (one for one in cluster.brokers if found[0].endswith(f" {one.pid}"))
                return walking
    raise AssertionError("the loop ends by returning or raising")
