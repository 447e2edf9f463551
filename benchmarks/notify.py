"""Fan-out: how fast a change is carried to many subscribers.

The floor posts to the same subscribers from a bare loop.  Ours runs from the
ping, over reading the feed, to the moment when the last subscriber was told and
the end of the walk is on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from attrs import frozen

from benchmarks.addresses import MOST, address
from benchmarks.broker import Broker, Data
from benchmarks.certificates import Authority
from benchmarks.processes import Deadline, Failed, Helper, Sample, Stopwatch
from benchmarks.report import Line, Target, ratio
from benchmarks.rows import Settings

#: Notifications at a time, of the floor as of the broker.
CONCURRENCY = 200

_COUNT = 10_000
_MEMORY = 120.0


@frozen
class Audience:
    """The subscribers of one topic.

    :ivar topic: its URL.
    :ivar first: the number of the first subscriber.
    :ivar count: how many there are.
    """

    topic: str
    first: int
    count: int

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.count)

    @property
    def body(self) -> str:
        """What each is sent."""
        return urlencode({"url": self.topic})

    @classmethod
    def of(cls, receiver: Helper, first: int, count: int) -> Audience:
        """Subscribers of a topic of their own, which changes when the receiver is told so."""
        return cls(f"http://127.0.0.1:{receiver.port}/changing/{first}", first, count)

    def callbacks(self, port: int, scheme: str = "http") -> Iterator[str]:
        """A callback for each, on an address of its own."""
        return (f"{scheme}://{address(number)}:{port}/n/{number}" for number in self.numbers)


def fan_out(broker: Broker, receiver: Helper, audience: Audience, deadline: Deadline) -> Sample:
    """Have a topic change, ping it, and see that everybody is told once.

    :returns: notifications a second.
    :raises Failed: it was not so.
    """
    expect(receiver, audience)
    receiver.ask("change")
    watch = Stopwatch.start(broker)
    broker.ping_topic(audience.topic)
    receiver.ask("await", count=audience.count, seconds=deadline.left("notifications") * 0.95)
    check_counts(receiver, audience)
    over = broker.data.wait_for_walks(deadline)
    sample = watch.rate(audience.count, over)
    check_counts(receiver, audience)
    return sample


def expect(receiver: Helper, audience: Audience) -> None:
    """Have the receiver begin to count."""
    receiver.ask("expect", first=audience.first, count=audience.count, body=audience.body)


def check_counts(receiver: Helper, audience: Audience) -> None:
    """Everybody was notified once, and nobody else.

    :raises Failed: it is not so.
    """
    counts = receiver.ask("counts")
    wrong = {name: counts[name] for name in ("missing", "repeated", "strange") if counts[name]}
    if wrong:
        raise Failed(f"of {audience.count} subscribers {wrong}: each must be notified once")


def floor(
    receiver: Helper, audience: Audience, deadline: Deadline, authority: Path | None = None
) -> Sample:
    """Notifications a second of the bare loop."""
    expect(receiver, audience)
    port = receiver.ready["secure"] if authority else receiver.port
    with Helper(
        "floor_clients",
        deadline,
        port=port,
        first=audience.first,
        count=audience.count,
        concurrency=CONCURRENCY,
        body=audience.body,
        authority=str(authority) if authority else None,
    ) as client:
        watch = Stopwatch.start(client)
        answer = client.ask("go")
        sample = watch.rate(audience.count, answer["ended"])
    if answer["delivered"] != audience.count:
        raise Failed(f"the floor delivered {answer['delivered']} of {audience.count}")
    check_counts(receiver, audience)
    return sample


@contextmanager
def _started(
    settings: Settings, deadline: Deadline, receiver: Helper, audiences: Sequence[Audience]
) -> Iterator[Broker]:
    """A broker with subscriptions, which has read no topic yet."""
    data = Data.make(settings.directory / "data")
    for audience in audiences:
        data.subscribe({audience.topic: audience.callbacks(receiver.port)})
    with Broker(data, deadline) as broker:
        yield broker


def new_connections(settings: Settings) -> list[Line]:
    """10,000 callbacks by http-post, each at its own address."""
    deadline = settings.deadline()
    with Helper("receiver", deadline) as receiver:
        audience = Audience.of(receiver, 0, settings.count or _COUNT)
        bare, ours = [], []
        with _started(settings, deadline, receiver, [audience]) as broker:
            for _ in range(settings.rounds):
                bare.append(floor(receiver, audience, deadline))
                ours.append(fan_out(broker, receiver, audience, deadline))
            peak = broker.peak_megabytes()
    targets = [Target.at_least(ratio(ours, bare), 0.7), Target.at_most(peak, _MEMORY, "MB")]
    work = f"notify {audience.count:,} callbacks, each on its own address"
    return [Line(work, "notifications/s", ours, peak, bare, targets)]


def large(settings: Settings) -> list[Line]:
    """Ten times as many callbacks, beside the number above."""
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


def tls(settings: Settings) -> list[Line]:
    """Callbacks by https-post, each at its own address."""
    deadline = settings.deadline()
    file = settings.directory / "authority.pem"
    Authority.make().save(file)
    count = settings.count or _COUNT
    bare, ours = [], []
    with Helper("receiver", deadline, authority=str(file), first=0, count=count) as receiver:
        audience = Audience.of(receiver, 0, count)
        data = Data.make(settings.directory / "data")
        callbacks = audience.callbacks(receiver.ready["secure"], "https")
        data.subscribe({audience.topic: callbacks}, "https-post")
        with Broker(data, deadline, trusted=file) as broker:
            for _ in range(settings.rounds):
                bare.append(floor(receiver, audience, deadline, file))
                ours.append(fan_out(broker, receiver, audience, deadline))
            peak = broker.peak_megabytes()
    targets = [Target.at_least(ratio(ours, bare), 0.75)]
    work = f"notify {count:,} callbacks over TLS, each on its own address"
    return [Line(work, "notifications/s", ours, peak, bare, targets)]


def one_host(settings: Settings) -> list[Line]:
    """Callbacks that are all on one host, beside as many that are not."""
    deadline = settings.deadline()
    count = settings.count or _COUNT
    with Helper("receiver", deadline) as receiver:
        apart = Audience.of(receiver, 0, count)
        together = Audience.of(receiver, count, count)
        data = Data.make(settings.directory / "data")
        data.subscribe({apart.topic: apart.callbacks(receiver.port)})
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
