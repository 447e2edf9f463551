"""Measures how fast the broker notifies many subscribers of a change.

The floor posts to the same subscribers from a bare loop.  The broker's time runs from the ping,
through the fetch of the feed, until the last subscriber was notified and the end of the walk is on
the disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

from attrs import evolve, frozen

from benchmarks.addresses import MOST, address, secret
from benchmarks.broker import Broker, Data
from benchmarks.certificates import Authority
from benchmarks.name_server import name
from benchmarks.processes import Deadline, Failed, Helper, Sample, Stopwatch, busy_processes
from benchmarks.report import Line, Target, cpu_ratio, ratio
from benchmarks.rows import Settings
from rsscloud_broker.wire import websub as wire

#: How many notifications the floor makes at the same time; the broker's default.
CONCURRENCY = 200

_COUNT = 10_000
#: Of all processes, with a courier on each of two processors.
_MEMORY, _MEMORY_OF_TLS = 220.0, 280.0

#: How many busy processes run beside a row that is measured under pressure.
BUSY = 3

#: How many callbacks are on one slow host, and the seconds that each takes.
SLOW = ((60, 0.1), (100, 0.05))
#: How many slots one host has.
SLOTS_PER_HOST = 4

#: The size in bytes of a feed whose subscribers get its URL, and of one whose subscribers get its
#: content.
_FEED_SIZE, _CONTENT_SIZE = 4000, 20_000

#: Seconds that the name server takes, like one in the same town.
DISTANCE = 0.02

_HUB = "http://127.0.0.1/websub"
_FORM = "Content-Type: application/x-www-form-urlencoded\r\n"


@frozen
class Audience:
    """The subscribers of one topic.

    :ivar topic: the topic's URL.
    :ivar first: the number of the first subscriber.
    :ivar count: how many subscribers there are.
    :ivar protocol: the protocol by which they are notified.
    :ivar zone: where the names of the callbacks' hosts are; empty if they have addresses.
    """

    topic: str
    first: int
    count: int
    protocol: str = "http-post"
    zone: str = ""

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.count)

    @property
    def gets_content(self) -> bool:
        """Whether each notification carries the signed content; if not, the topic's URL."""
        return self.protocol == "websub"

    @property
    def headers(self) -> str:
        """The header lines of the floor's notifications, as long as those of the broker."""
        if not self.gets_content:
            return _FORM
        link, signature = wire.link_header(_HUB, self.topic), wire.sign(b"", "")
        return f"Content-Type: text/xml\r\nLink: {link}\r\nX-Hub-Signature: {signature}\r\n"

    @classmethod
    def of(cls, receiver: Helper, first: int, count: int, protocol: str = "http-post") -> Audience:
        """The subscribers of a topic that the receiver changes on command."""
        topic = f"http://127.0.0.1:{receiver.port}/changing/{first}"
        return cls(topic, first, count, protocol)

    def callbacks(self, port: int) -> Iterator[str]:
        """The callbacks, each on an address of its own."""
        scheme = "https" if self.protocol == "https-post" else "http"
        zone = self.zone
        return (
            f"{scheme}://{name(number, zone) if zone else address(number)}:{port}/n/{number}"
            for number in self.numbers
        )

    def subscribe(self, data: Data, port: int) -> None:
        """Add the subscriptions to a database."""
        options = _options if self.gets_content else None
        data.subscribe({self.topic: self.callbacks(port)}, self.protocol, options)


def _options(callback: str) -> dict[str, str]:
    number = int(callback.rpartition("/")[2])
    return {wire.HUB: _HUB, wire.SECRET: secret(number)}


def fan_out(broker: Broker, receiver: Helper, audience: Audience, deadline: Deadline) -> Sample:
    """Change a topic, ping it, and check that every subscriber is notified once.

    :returns: notifications a second.
    :raises Failed: a subscriber was not notified, or more than once.
    """
    expect(receiver, audience)
    watch = Stopwatch.start(broker)
    broker.ping_topic(audience.topic)
    receiver.ask("await", count=audience.count, seconds=deadline.left("notifications") * 0.95)
    check_counts(receiver, audience)
    over = broker.data.wait_for_walks(deadline)
    sample = watch.rate(audience.count, over)
    check_counts(receiver, audience)
    return sample


def slowest(broker: Broker, receiver: Helper, audience: Audience, deadline: Deadline) -> Sample:
    """Change a topic, ping it, and check that every subscriber is notified once.

    :returns: the 99th percentile of the milliseconds from the ping's answer to the notification.
    """
    expect(receiver, audience)
    watch = Stopwatch.start(broker)
    broker.ping_topic(audience.topic)
    acknowledged = time.monotonic()
    receiver.ask("await", count=audience.count, seconds=deadline.left("notifications") * 0.95)
    cpu = watch.cpu()
    check_counts(receiver, audience)
    percentiles = receiver.ask("latencies", since=acknowledged)
    return Sample(max(percentiles["p99"], 1e-6) * 1000, cpu)


def expect(receiver: Helper, audience: Audience, signed: bool | None = None) -> str:
    """Change the topic, and make the receiver begin to count.

    :param signed: whether the receiver checks signatures; None if the protocol has them.
    :returns: the body that every notification must have.
    """
    size = _CONTENT_SIZE if audience.gets_content else _FEED_SIZE
    document: str = receiver.ask("change", size=size)["document"]
    body = document if audience.gets_content else urlencode({"url": audience.topic})
    signed = audience.gets_content if signed is None else signed
    receiver.ask("expect", first=audience.first, count=audience.count, body=body, signed=signed)
    return body


def check_counts(receiver: Helper, audience: Audience) -> None:
    """Check that every subscriber was notified once, and nobody else.

    :raises Failed: that is not the case.
    """
    counts = receiver.ask("counts")
    wrong = {name: counts[name] for name in ("missing", "repeated", "strange") if counts[name]}
    if wrong:
        raise Failed(f"of {audience.count} subscribers {wrong}: each must be notified once")


def floor(
    receiver: Helper,
    audience: Audience,
    deadline: Deadline,
    authority: Path | None = None,
    processes: int = 1,
) -> Sample:
    """Measure the bare loop, in notifications a second.

    :param processes: how many processes run it, each for a part of the subscribers.
    """
    body = expect(receiver, audience, signed=False)  # the loop does not sign
    port = receiver.ready["secure"] if authority else receiver.port
    parts = [audience.numbers[part::processes] for part in range(processes)]
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                Helper(
                    "floor_clients",
                    deadline,
                    port=port,
                    first=part.start,
                    count=len(part),
                    step=processes,
                    concurrency=CONCURRENCY // processes,
                    headers=audience.headers,
                    body=body,
                    authority=str(authority) if authority else None,
                )
            )
            for part in parts
        ]
        watches = [Stopwatch.start(client) for client in clients]
        for client in clients:
            client.begin("go")
        answers = [client.answer() for client in clients]
        sample = watches[0].rate(audience.count, max(answer["ended"] for answer in answers))
        sample = evolve(sample, cpu=sum(watch.cpu() for watch in watches))
    delivered = sum(answer["delivered"] for answer in answers)
    if delivered != audience.count:
        raise Failed(f"the floor delivered {delivered} of {audience.count}")
    check_counts(receiver, audience)
    return sample


def scaling(settings: Settings) -> list[Line]:
    """The floor as two processes, compared with one: what a second courier can gain here."""
    deadline = settings.deadline()
    one, two = [], []
    with Helper("receiver", deadline) as receiver:
        audience = Audience.of(receiver, 0, settings.count or _COUNT)
        for _ in range(settings.rounds):
            one.append(floor(receiver, audience, deadline))
            two.append(floor(receiver, audience, deadline, processes=2))
        peak = receiver.peak_megabytes()
    work = f"the floor of {audience.count:,} notifications as two processes (floor: as one)"
    return [Line(work, "notifications/s", two, peak, one)]


@contextmanager
def _started(
    settings: Settings, deadline: Deadline, receiver: Helper, audiences: Sequence[Audience]
) -> Iterator[Broker]:
    """A broker with subscriptions that has not fetched a topic yet."""
    data = Data.make(settings.directory / "data")
    for audience in audiences:
        audience.subscribe(data, receiver.port)
    with Broker(data, deadline) as broker:
        yield broker


def new_connections(settings: Settings) -> list[Line]:
    """10,000 callbacks by http-post, each on its own address."""
    deadline = settings.deadline()
    with Helper("receiver", deadline) as receiver:
        audience = Audience.of(receiver, 0, settings.count or _COUNT)
        bare, ours = [], []
        with _started(settings, deadline, receiver, [audience]) as broker:
            for _ in range(settings.rounds):
                bare.append(floor(receiver, audience, deadline))
                ours.append(fan_out(broker, receiver, audience, deadline))
            peak = broker.peak_megabytes()
    targets = [
        Target.at_least(ratio(ours, bare), 1.5),
        Target.at_most(cpu_ratio(ours, bare), 1.0, "x CPU"),
        Target.at_most(peak, _MEMORY, "MB"),
    ]
    work = f"notify {audience.count:,} callbacks, each on its own address"
    return [Line(work, "notifications/s", ours, peak, bare, targets)]


def large(settings: Settings) -> list[Line]:
    """Ten times as many callbacks, compared with the row ``notify``."""
    deadline = settings.deadline()
    count = settings.count or _COUNT
    with Helper("receiver", deadline) as receiver:
        few = Audience.of(receiver, 0, count)
        many = Audience.of(receiver, count, min(10 * count, MOST - count))
        with _started(settings, deadline, receiver, [few, many]) as broker:
            small = [fan_out(broker, receiver, few, deadline) for _ in range(settings.rounds)]
            peak = broker.peak_megabytes()
            ours = [fan_out(broker, receiver, many, deadline)]
            peak_of_many = broker.peak_megabytes()
    targets = [
        Target.at_least(ratio(ours, small), 0.9),
        Target.at_most(peak_of_many, _MEMORY, "MB"),
    ]
    return [
        Line(
            f"notify {few.count:,} callbacks, before the next line", "notifications/s", small, peak
        ),
        Line(
            f"notify {many.count:,} callbacks (floor: the line above)",
            "notifications/s",
            ours,
            peak_of_many,
            small,
            targets,
        ),
    ]


def websub(settings: Settings) -> list[Line]:
    """Contents of 20 KB, signed with each callback's secret; then ten times as many callbacks."""
    deadline = settings.deadline()
    count = settings.count or _COUNT
    with Helper("receiver", deadline) as receiver:
        few = Audience.of(receiver, 0, count, "websub")
        many = Audience.of(receiver, count, min(10 * count, MOST - count), "websub")
        bare, small = [], []
        with _started(settings, deadline, receiver, [few, many]) as broker:
            for _ in range(settings.rounds):
                bare.append(floor(receiver, few, deadline))
                small.append(fan_out(broker, receiver, few, deadline))
            peak = broker.peak_megabytes()
            large = [fan_out(broker, receiver, many, deadline)]
            peak_of_many = broker.peak_megabytes()
    work = f"deliver {_CONTENT_SIZE:,} bytes, signed, to {{:,}} WebSub callbacks"
    unit = "notifications/s"
    cheap = Target.at_most(cpu_ratio(small, bare), 1.1, "x CPU")
    flat = Target.at_most(peak_of_many, round(1.1 * peak), "MB")
    return [
        Line(work.format(few.count), unit, small, peak, bare, [cheap]),
        Line(
            f"{work.format(many.count)} (floor: the line above)",
            unit,
            large,
            peak_of_many,
            small,
            [flat],
        ),
    ]


def tls(settings: Settings) -> list[Line]:
    """Callbacks by https-post, each on its own address."""
    return [_tls(settings, "notify {:,} callbacks over TLS, each on its own address", 0.75)]


def tls_under_pressure(settings: Settings) -> list[Line]:
    """The same beside processes that use most of the machine's processor time."""
    with busy_processes(BUSY, settings.seconds):
        work = f"notify {{:,}} callbacks over TLS, beside {BUSY} busy processes"
        return [_tls(settings, work, 0.8)]


def _tls(settings: Settings, work: str, least: float) -> Line:
    deadline = settings.deadline()
    file = settings.directory / "authority.pem"
    Authority.make().save(file)
    count = settings.count or _COUNT
    bare, ours = [], []
    with Helper("receiver", deadline, authority=str(file), first=0, count=count) as receiver:
        audience = Audience.of(receiver, 0, count, "https-post")
        data = Data.make(settings.directory / "data")
        audience.subscribe(data, receiver.ready["secure"])
        with Broker(data, deadline, trusted=file) as broker:
            for _ in range(settings.rounds):
                bare.append(floor(receiver, audience, deadline, file))
                ours.append(fan_out(broker, receiver, audience, deadline))
            peak = broker.peak_megabytes()
    targets = [
        Target.at_least(ratio(ours, bare), least),
        Target.at_most(cpu_ratio(ours, bare), 1.1, "x CPU"),
        Target.at_most(peak, _MEMORY_OF_TLS, "MB"),
    ]
    return Line(work.format(count), "notifications/s", ours, peak, bare, targets)


def slow_host(settings: Settings) -> list[Line]:
    """Callbacks on one slow host, which the broker calls as slots of the host come free.

    The floor is the rate that four slots allow, without any overhead.
    """
    deadline = settings.deadline()
    lines = []
    with Helper("receiver", deadline) as receiver:
        data = Data.make(settings.directory / "data")
        audiences = []
        first = 0
        for full_count, delay in SLOW:
            count = min(full_count, settings.count or full_count)
            audience = Audience.of(receiver, first, count)
            host = f"http://{address(first)}:{receiver.port}"
            data.subscribe({audience.topic: (f"{host}/n/{one}" for one in audience.numbers)})
            audiences.append((audience, delay))
            first += count
        with Broker(data, deadline) as broker:
            for audience, delay in audiences:
                receiver.ask("take_time", delay=delay)
                ours = [
                    fan_out(broker, receiver, audience, deadline) for _ in range(settings.rounds)
                ]
                bare = [Sample(SLOTS_PER_HOST / delay)]
                least = Target.at_least(ratio(ours, bare), 0.88)
                work = f"notify {audience.count} callbacks of {delay:g} s on one host"
                unit = "notifications/s"
                lines.append(Line(work, unit, ours, broker.peak_megabytes(), bare, [least]))
    return lines


def one_host(settings: Settings) -> list[Line]:
    """Callbacks that are all on one host, compared with as many on hosts of their own."""
    deadline = settings.deadline()
    count = settings.count or _COUNT
    with Helper("receiver", deadline) as receiver:
        apart = Audience.of(receiver, 0, count)
        together = Audience.of(receiver, count, count)
        data = Data.make(settings.directory / "data")
        apart.subscribe(data, receiver.port)
        host = f"http://{address(together.first)}:{receiver.port}"
        data.subscribe({together.topic: (f"{host}/n/{number}" for number in together.numbers)})
        new, kept = [], []
        with Broker(data, deadline) as broker:
            for _ in range(settings.rounds):
                new.append(fan_out(broker, receiver, apart, deadline))
                kept.append(fan_out(broker, receiver, together, deadline))
            peak = broker.peak_megabytes()
    targets = [Target.at_least(ratio(kept, new), 1.5)]
    work = f"notify {count:,} callbacks on one host (floor: ours, new connections)"
    return [Line(work, "notifications/s", kept, peak, new, targets)]


def names(settings: Settings) -> list[Line]:
    """Callbacks by names, compared with as many by addresses.

    Names of the first line are never kept, those of the second are known from an earlier fan-out.
    """
    deadline = settings.deadline()
    count = settings.count or _COUNT
    with (
        Helper("receiver", deadline) as receiver,
        Helper("name_server", deadline, delay=DISTANCE) as server,
    ):
        addressed = Audience.of(receiver, 0, count)
        new = evolve(Audience.of(receiver, count, count), zone="well")
        known = evolve(Audience.of(receiver, 2 * count, count), zone="kept")
        data = Data.make(settings.directory / "data")
        for audience in (addressed, new, known):
            audience.subscribe(data, receiver.port)
        bare, of_new, of_known = [], [], []
        with Broker(data, deadline, name_server=server.port) as broker:
            fan_out(broker, receiver, known, deadline)
            for _ in range(settings.rounds):
                bare.append(fan_out(broker, receiver, addressed, deadline))
                of_new.append(fan_out(broker, receiver, new, deadline))
                of_known.append(fan_out(broker, receiver, known, deadline))
            peak = broker.peak_megabytes()
    far = f"{1000 * DISTANCE:g} ms"
    work = f"notify {count:,} callbacks by {{}} (floor: by addresses)"
    unit = "notifications/s"
    return [
        Line(
            work.format(f"new names, {far} from a name server"),
            unit,
            of_new,
            peak,
            bare,
            [Target.at_least(ratio(of_new, bare), 0.75)],
        ),
        Line(
            work.format("names within their time to live"),
            unit,
            of_known,
            peak,
            bare,
            [Target.at_least(ratio(of_known, bare), 0.95)],
        ),
    ]
