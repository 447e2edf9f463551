"""Measures whether passing pings on delays the notifications of subscribers.

Sites ping the broker all the time, and a relay passes their pings on to five targets.  Meanwhile a
feed with subscribers changes now and then.  The row shows the 99th percentile of the time until a
subscriber is notified, beside the same without targets.
"""

from __future__ import annotations

from benchmarks.broker import Broker, Data
from benchmarks.notify import Audience, slowest
from benchmarks.pings import CALL, THANKS, XML, check
from benchmarks.processes import Deadline, Failed, Helper, Sample
from benchmarks.report import Line, Target, ratio
from benchmarks.rows import Settings

#: How many subscribers the feed has, how many pings a second come, and from how many clients.
_COUNT, _PINGS, _CLIENTS = 1000, 1000, 20

#: How many targets there are, and how many calls a second each gets at most.
_TARGETS, _RATE = 5, 200

#: Seconds for which pings come, for each round.
_SECONDS = 3


def relay(settings: Settings) -> list[Line]:
    """The 99th percentile with five targets, beside that without."""
    deadline = settings.deadline()
    with (
        Helper("receiver", deadline) as receiver,
        Helper("floor_servers", deadline, size=0) as targets,
    ):
        without, _ = _measure(settings, deadline, receiver, "")
        tables = "[sinks.relay]\nwindow = 0\n" + "".join(
            _target(targets.port, number) for number in range(_TARGETS)
        )
        ours, peak = _measure(settings, deadline, receiver, tables)
    work = (
        f"99 % of {settings.count or _COUNT:,} subscribers are notified, while {_PINGS:,} pings/s "
        f"come and go on to {_TARGETS} targets"
    )
    return [Line(work, "ms", ours, peak, without, [Target.at_most(ratio(ours, without), 1.5)])]


def _target(port: int, number: int) -> str:
    url = f"http://127.0.0.1:{port}/RPC2?{number}"
    return f'[[sinks.relay.targets]]\nurl = "{url}"\nrate = {_RATE}\nat_once = 4\n'


def _measure(
    settings: Settings, deadline: Deadline, receiver: Helper, tables: str
) -> tuple[list[Sample], float]:
    """The milliseconds of each of several fan-outs, and the broker's peak memory."""
    audience = Audience.of(receiver, 0, settings.count or _COUNT)
    pings = _PINGS * _SECONDS if settings.count is None else settings.count
    data = Data.make(settings.directory / ("with" if tables else "without"))
    audience.subscribe(data, receiver.port)
    samples = []
    with (
        Broker(data, deadline, more=tables) as broker,
        Helper("load", deadline, port=broker.port, connections=_CLIENTS, sources=_CLIENTS) as load,
    ):
        for number in range(settings.rounds):
            load.ask(
                "build",
                method="POST",
                path="/RPC2",
                headers=XML,
                body=CALL,
                first=number * pings,
                count=pings,
            )
            left = deadline.left("pings")
            load.begin("run", expected=THANKS, seconds=left, rate=_PINGS)
            samples.append(slowest(broker, receiver, audience, deadline))
            check(load.answer(), pings)
            data.wait_for_walks(deadline)
        if tables:
            _wait_for_relays(broker, settings.rounds * (pings + 1), deadline)
        peak = broker.peak_megabytes()
    return samples, peak


def _wait_for_relays(broker: Broker, pings: int, deadline: Deadline) -> None:
    """Wait until every target was notified of every ping, once.

    :raises Failed: a target refused a ping.
    """
    for _ in deadline.polls("all pings to be passed on", 0.2):
        counted = _relayed(broker)
        if set(counted) - {"delivered"}:
            raise Failed(f"some pings were not passed on: {counted}")
        if counted.get("delivered", 0) >= pings * _TARGETS:
            return


def _relayed(broker: Broker) -> dict[str, int]:
    """How many pings were passed on to all targets, by each outcome that there was."""
    counted: dict[str, int] = {}
    for line in broker.get("/metrics", 200).decode().splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("rsscloud_relayed_pings_total{"):
            outcome = name.partition('outcome="')[2].partition('"')[0]
            counted[outcome] = counted.get(outcome, 0) + int(float(value))
    return {outcome: number for outcome, number in counted.items() if number}
