"""Measures how fast the broker accepts and stores pings, and fetches the pinged topics."""

from __future__ import annotations

from urllib.parse import quote

from benchmarks.broker import Broker, Data
from benchmarks.control import Message
from benchmarks.processes import (
    Deadline,
    Failed,
    Helper,
    Running,
    Sample,
    Stopwatch,
    answered,
    raise_file_limit,
)
from benchmarks.report import Line, Target, ratio
from benchmarks.rows import Settings

CONNECTIONS = 50

#: The text in every server's answer to a ping.
THANKS = "Thanks for the ping."

#: Seconds that the topic's server takes in the row of one topic, as on the open internet.
ORIGIN_DELAY = 0.1

XML = {"Content-Type": "text/xml"}
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}

CALL = (
    '<?xml version="1.0"?>\n<methodCall><methodName>weblogUpdates.ping</methodName><params>'
    "<param><value><string>Weblog {n}</string></value></param>"
    "<param><value><string>http://blog{n}.example/</string></value></param>"
    "</params></methodCall>"
)


def check(answer: Message, count: int) -> None:
    """Check that every ping was answered with status 200 and thanks.

    :raises Failed: one was not.
    """
    if answer["statuses"] != {"200": count} or answer["as_expected"] != count:
        raise Failed(
            f"of {count} pings {answer['as_expected']} were thanked for, with the statuses "
            f"{answer['statuses']}: all must be"
        )


def xmlrpc(settings: Settings) -> list[Line]:
    """``weblogUpdates.ping`` by XML-RPC; the broker stores each ping before it answers."""
    deadline = settings.deadline()
    count = settings.count or 10_000
    bare, ours = [], []
    data = Data.make(settings.directory / "data")
    with Broker(data, deadline) as broker, Helper("floor_servers", deadline, size=0) as constant:
        for number in range(settings.rounds):
            first = number * count
            bare.append(pings(constant, constant.port, first, count, deadline))
            ours.append(pings(broker, broker.port, first, count, deadline))
        peak = broker.peak_megabytes()
    # The broker has been killed; every ping that it answered must be stored all the same.
    if data.count("ping") != settings.rounds * count:
        raise Failed(f"{settings.rounds * count} pings were thanked for, {data.count('ping')} kept")
    targets = [Target.at_least(ratio(ours, bare), 0.8)]
    work = f"weblogUpdates.ping by XML-RPC, {CONNECTIONS} connections"
    return [Line(work, "pings/s", ours, peak, bare, targets)]


def pings(server: Running, port: int, first: int, count: int, deadline: Deadline) -> Sample:
    """How many different pings a second a server accepts."""
    call = {"path": "/RPC2", "headers": XML, "body": CALL, "first": first}
    sample, answer = answered(server, port, count, deadline, CONNECTIONS, 0, THANKS, **call)
    check(answer, count)
    return sample


def cloud(settings: Settings) -> list[Line]:
    """Pings by rssCloud of topics that have not changed; the broker fetches each."""
    return _cloud(settings, validating=False)


def not_modified(settings: Settings) -> list[Line]:
    """The same with a server that answers 304."""
    return _cloud(settings, validating=True)


def _cloud(settings: Settings, *, validating: bool) -> list[Line]:
    deadline = settings.deadline()
    count = settings.count or 1000
    bare, agent, ours = [], [], []
    data = Data.make(settings.directory / "data")
    with (
        Helper("receiver", deadline) as origin,
        Helper("floor_servers", deadline, size=0) as fetching,
        Broker(data, deadline) as broker,
    ):
        if validating:
            origin.ask("validate")
        topics(origin, broker, broker.port, "/rsscloud/ping", count, 1, deadline)
        changed = data.count("ping")  # the first fetch of each topic counts as a change
        for _ in range(settings.rounds):
            bare.append(topics(origin, fetching, fetching.port, "/bare", count, 3, deadline))
            agent.append(topics(origin, fetching, fetching.port, "/agent", count, 3, deadline))
            ours.append(topics(origin, broker, broker.port, "/rsscloud/ping", count, 3, deadline))
            if validating and origin.ask("counts")["not_modified"] != 3 * count:
                raise Failed("topics were sent in full to who had them")
        peak = broker.peak_megabytes()
    if (changed, data.count("ping")) != (count, count):
        raise Failed(f"of {count} topics {changed} were new and {data.count('ping')} changed")
    targets = [Target.at_least(ratio(ours, bare), 0.6)]
    unchanged = "unchanged topics (304)" if validating else "unchanged topics"
    work = f"rssCloud pings of {count:,} {unchanged}, {CONNECTIONS} connections"
    return [
        Line(work, "pings/s", ours, peak, bare, targets),
        Line(f"{work} (floor: by Twisted's Agent)", "pings/s", ours, peak, agent),
    ]


def topics(
    origin: Helper,
    server: Running,
    port: int,
    path: str,
    count: int,
    times: int,
    deadline: Deadline,
) -> Sample:
    """How many pings of topics a second a server accepts; each topic is pinged ``times`` times."""
    origin.ask("expect", first=0, count=0, body="")
    with Helper("load", deadline, port=port, connections=CONNECTIONS, sources=CONNECTIONS) as load:
        topic = quote(f"http://127.0.0.1:{origin.port}/feed/", safe="")
        body = f"url={topic}{{n}}"
        load.ask("build", method="POST", path=path, headers=_FORM, body=body, first=0, count=count)
        watch = Stopwatch.start(server)
        for _ in range(times):
            answer = load.ask("run", expected=THANKS, seconds=deadline.left("pings"))
            check(answer, count)
        sample = watch.rate(count * times, answer["ended"])
    fetches = origin.ask("counts")["fetches"]
    if fetches != count * times:
        raise Failed(f"{path}: {count * times} pings of unlike topics made {fetches} fetches")
    return sample


def one_topic(settings: Settings) -> list[Line]:
    """Many pings of one topic at the same time, each on its own connection."""
    deadline = settings.deadline()
    count = settings.count or 10_000
    connections = min(count, raise_file_limit() - 500)
    fetches, seconds, alone = [], [], []
    data = Data.make(settings.directory / "data")
    with Helper("receiver", deadline) as origin, Broker(data, deadline) as broker:
        origin.ask("slow_down", delay=ORIGIN_DELAY)
        for _ in range(settings.rounds):
            alone.append(_at_once(origin, broker, 1, 1, deadline)[1])
            made, took = _at_once(origin, broker, count, connections, deadline)
            fetches.append(made)
            seconds.append(took)
        peak = broker.peak_megabytes()
    work = f"{count:,} pings of one topic at once"
    one = [Sample(1)]
    worst = max(fetches, key=lambda sample: sample.value)
    slowest = max(seconds, key=lambda sample: sample.value)
    in_turn = int(slowest.value / ORIGIN_DELAY) + 2
    return [
        Line(
            work, "fetches", [worst], peak, one, [Target.at_most(worst.value, in_turn, "fetches")]
        ),
        Line(
            f"{work}: until all are answered (floor: one ping)",
            "s",
            [slowest],
            peak,
            alone,
            [Target.at_most(slowest.value, 5, "s")],
        ),
    ]


def _at_once(
    origin: Helper, broker: Broker, count: int, connections: int, deadline: Deadline
) -> tuple[Sample, Sample]:
    """How many fetches the pings of one topic caused, and the seconds until all were answered."""
    origin.ask("expect", first=0, count=0, body="")
    # At most a hundred connections from each address, since the broker limits them.
    sources = connections // 100 + 1
    topic = quote(f"http://127.0.0.1:{origin.port}/feed/one", safe="")
    call = {"path": "/rsscloud/ping", "headers": _FORM, "body": f"url={topic}"}
    sample, answer = answered(
        broker, broker.port, count, deadline, connections, sources, THANKS, **call
    )
    check(answer, count)
    fetches = origin.ask("counts")["fetches"]
    if not fetches:
        raise Failed("the topic was not read at all")
    return Sample(fetches, sample.cpu), Sample(answer["seconds"], sample.cpu)
