"""Measures what very large databases cost: ``python -m benchmarks.sizes --scale 0.1``.

It fills two databases: a large one, and one with a hundredth of its rows.  What the broker does for
each ping, subscription and notification should cost the same in both; and whatever tidies the large
one up should hold up no ping.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import click
from sqlalchemy import Connection, Engine, create_engine, make_url, text

from benchmarks.broker import Broker, Data
from benchmarks.control import Message
from benchmarks.processes import Deadline, Helper, Sample
from benchmarks.report import Line, Target, as_text, machine, ratio
from benchmarks.size_data import Sizes, fill, topic_url
from rsscloud_broker.database.engine import for_writing, open_engine
from rsscloud_broker.model import Callback, FetchResult, Lease, Ping, Subscription
from rsscloud_broker.model.work import PollPlan
from rsscloud_broker.storage import nodes, pings, polls, recording, subscriptions, walks
from rsscloud_broker.storage.due import claim_found, find_due

#: The small database has this part of the rows of the large one, but not less than the least scale,
#: at which there are enough subscriptions for a slice and a claim.
_PART, _LEAST = 0.01, 0.001

#: How often each operation is measured, in either database in turn.
_TIMES = 100

#: Subscriptions in a slice of a walk, notifications in a claim, and polls that are planned at once.
_SLICE, _CLAIM, _POLLS = 100, 100, 100

#: The host that all waiting notifications are for, in one of the measurements.
_BUSY = "busy.example"

_numbers = count(1)


class Filled:
    """A database that was filled.

    :ivar url: its SQLAlchemy URL.
    :ivar sizes: how many rows it got.
    """

    def __init__(self, url: str, sizes: Sizes) -> None:
        self.url = url
        self.sizes = sizes
        self._engine = open_engine(url, of_broker=True)
        with self.writing() as conn:
            self.node = nodes.ensure_registered(conn, None)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes."""
        with for_writing(self._engine).begin() as conn:
            yield conn

    @contextmanager
    def changing_much(self) -> Iterator[Connection]:
        """A transaction without the broker's limits of time."""
        engine = create_engine(self.url)
        try:
            with engine.begin() as conn:
                yield conn
        finally:
            engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads."""
        with self._engine.begin() as conn:
            yield conn

    def dispose(self) -> None:
        """Close the connections."""
        self._engine.dispose()


#: Does something once, and returns the seconds that it took.
Operation = Callable[[Filled], float]


def _ping(data: Filled) -> float:
    """A ping of a topic that has subscriptions."""
    number = next(_numbers)
    url = topic_url(3 + number % (data.sizes.topics - 2))
    ping = Ping(f"Ping {number}", url, time.time())
    began = time.perf_counter()
    with data.writing() as conn:
        pings.add_pings(conn, [pings.AskedPing(ping, 60.0)], data.node)
    return time.perf_counter() - began


def _subscription(data: Filled) -> float:
    number = next(_numbers)
    topic = topic_url(3 + number % (data.sizes.topics - 2))
    callback = Callback(f"http://new{number}.example/notify", "http-post")
    began = time.perf_counter()
    with data.writing() as conn:
        subscriptions.put_subscription(
            conn, Subscription(topic, callback, Lease(time.time(), 90_000))
        )
    return time.perf_counter() - began


def _slice(data: Filled) -> float:
    """A slice in the middle of the subscriptions of the popular topic."""
    after = data.sizes.popular * 5 + next(_numbers)
    began = time.perf_counter()
    with data.reading() as conn:
        found = subscriptions.subscriptions(conn, topic_url(1), after, _SLICE)
    seconds = time.perf_counter() - began
    assert found
    return seconds


def _change(data: Filled) -> float:
    """A fetch that finds a change of a topic, and the claim of its fan-out."""
    number = next(_numbers)
    url = topic_url(3 + number % (data.sizes.topics - 2))
    fetched = FetchResult(url, b"%032d" % number, 5, time.time())
    began = time.perf_counter()
    with data.writing() as conn:
        recording.record_fetch(conn, fetched, None, node=data.node)
    with data.writing() as conn:
        (walk,) = walks.claim_fanouts(conn, [each.id for each in walks.fanouts(conn, 1)], data.node)
    seconds = time.perf_counter() - began
    with data.writing() as conn:
        walks.record_slice(conn, walk, 0, [], True, [], data.node)
    return seconds


def _claim(data: Filled, busy: Sequence[str] = ()) -> float:
    began = time.perf_counter()
    now = time.time()
    with data.reading() as conn:
        due = find_due(conn, now, _CLAIM, busy)
    with data.writing() as conn:
        found = claim_found(conn, due.keys, data.node, now)
    seconds = time.perf_counter() - began
    assert len(found) == _CLAIM
    with data.writing() as conn:
        conn.execute(text("UPDATE pending_notification SET node_id = NULL WHERE node_id > 0"))
    return seconds


def _claim_beside_busy(data: Filled) -> float:
    """A claim while most notifications, and all of the oldest, are for a busy host."""
    return _claim(data, [_BUSY])


def _poll(data: Filled) -> float:
    """The plans of polls that are due."""
    now = time.time()
    urls = [topic_url(3 + next(_numbers) % (data.sizes.topics - 2)) for _ in range(_POLLS)]
    with data.writing() as conn:
        polls.plan_polls(conn, None, [PollPlan(url, now - 1, "due", 3600.0, now) for url in urls])
    began = time.perf_counter()
    with data.writing() as conn:
        due = polls.claim_polls(conn, now, _POLLS, data.node)
    with data.writing() as conn:
        plans = [PollPlan(each.topic.url, now + 90_000, "planned", 3600.0, now) for each in due]
        polls.plan_polls(conn, data.node, plans)
    seconds = time.perf_counter() - began
    assert due
    return seconds


def _let_wait(data: Filled) -> None:
    """Let notifications wait: very many for a busy host, and behind them some for other hosts."""
    now = int(time.time() * 1_000_000)
    waiting = (
        "SELECT id, 0, {due}, {host} FROM subscription WHERE id % 10 IN ({digits}) AND id {which}"
    )
    insert = "INSERT INTO pending_notification (subscription_id, attempts, due_at, host) "
    ends = data.sizes.popular * 10
    busy = waiting.format(
        due=now - 10_000_000, host=f"'{_BUSY}'", digits="2, 4, 6", which=f"<= {ends}"
    )
    others = waiting.format(due=now - 1_000_000, host="host", digits="3", which="<= 20000")
    with data.changing_much() as conn:
        conn.execute(text(insert + busy))
        conn.execute(text(insert + others))
    with data.changing_much() as conn:
        conn.execute(text("ANALYZE pending_notification"))


_OPERATIONS: dict[str, Operation] = {
    "a ping of a topic with subscribers": _ping,
    "a subscription": _subscription,
    f"{_SLICE} subscriptions of a topic with very many": _slice,
    "a change, and the claim of its fan-out": _change,
    f"{_POLLS} polls that are due, planned": _poll,
    f"{_CLAIM} notifications that are due, claimed": _claim,
    "the same behind very many for a busy host": _claim_beside_busy,
}

_TIDYING = {
    "move": "a popular topic moves, and another moves to it",
    "sweep": "expired subscriptions are removed",
    "prune": "half of the pings are removed",
}


def costs(large: Filled, small: Filled, times: int) -> Iterator[Line]:
    """What each operation costs in either database, in milliseconds."""
    for work, operation in _OPERATIONS.items():
        if operation is _claim:
            for data in (large, small):
                _let_wait(data)
        ours, floor = [], []
        for _ in range(times):
            floor.append(Sample(operation(small) * 1000))
            ours.append(Sample(operation(large) * 1000))
        target = Target.at_most(ratio(ours, floor), 1.5)
        yield Line(work, "ms", ours, 0.0, floor, [target])


def _start(data: Filled, directory: Path, deadline: Deadline) -> Line:
    """The time until the first page, and the memory a while later, when nothing is to be done."""
    with Broker(
        Data(directory),
        deadline,
        polls=True,
        top=f"database = '{data.url}'\n",
        more="[sinks.archive]\nenabled = false\n",
    ) as broker:
        for _ in deadline.polls("the first change list"):
            if (directory / "public" / "changes.xml").exists():
                break
        seconds = broker.answered_at - broker.started_at
        sample, peak = Sample(seconds, broker.cpu_seconds()), broker.peak_megabytes()
    targets = [Target.at_most(seconds, 5, "s"), Target.at_most(peak, 150, "MB")]
    return Line("start, until the first page", "s", [sample], peak, (), targets)


def _waits(data: Filled, deadline: Deadline) -> Iterator[Line]:
    """How long pings wait while something is done, beside how long they do so otherwise."""
    idle = waits_for(data, "nothing", deadline)
    for work, name in _TIDYING.items():
        found = waits_for(data, work, deadline)
        how_long = "" if found["done"] else f" (the first {found['seconds']:.0f} s)"
        for key, of in (("longest", "the longest wait"), ("most", "99 % of the waits")):
            target = Target.at_most(found[key] - idle[key], 50, "ms more")
            ours, floor = [Sample(found[key])], [Sample(idle[key])]
            yield Line(f"{of} of a ping while {name}{how_long}", "ms", ours, 0.0, floor, [target])


def waits_for(data: Filled, work: str, deadline: Deadline) -> Message:
    """How long pings wait while something is done: what ``size_waits`` answers."""
    with Helper("size_waits", deadline, url=data.url, work=work) as helper:
        found: Message = helper.ready
    return found


def measure(
    urls: tuple[str, str], scale: float, directory: Path, times: int = _TIMES
) -> list[Line]:
    """Fill two empty databases, and measure.

    :param urls: the SQLAlchemy URLs of the databases.
    :param directory: an empty directory for the data of the broker.
    """
    filled = []
    for url, part in zip(urls, (scale, max(_LEAST, scale * _PART)), strict=True):
        sizes = Sizes.at(part)
        began = time.monotonic()
        fill(url, sizes)
        click.echo(f"{sizes}: filled in {time.monotonic() - began:.0f} s", err=True)
        filled.append(Filled(url, sizes))
    large, small = filled
    deadline = Deadline.within(7200.0)
    lines = []
    for line in _all(large, small, directory, deadline, times):
        click.echo(as_text([line]), err=True)
        lines.append(line)
    return lines


def _let_rest(data: Filled) -> None:
    """Remove what waits, so that the broker has nothing to do."""
    with data.changing_much() as conn:
        conn.execute(text("DELETE FROM pending_notification"))


def _all(
    large: Filled, small: Filled, directory: Path, deadline: Deadline, times: int
) -> Iterator[Line]:
    yield from costs(large, small, times)
    _let_rest(large)
    large.dispose()
    small.dispose()
    yield _start(large, directory, deadline)
    yield from _waits(large, deadline)


@contextmanager
def _databases(server: str | None, directory: Path) -> Iterator[tuple[str, str]]:
    """Make two empty databases, which are removed in the end.

    :param server: the URL of a database of a PostgreSQL server; None for files of SQLite.
    """
    if server is None:
        yield f"sqlite:///{directory}/large.sqlite", f"sqlite:///{directory}/small.sqlite"
        return
    names = ("rsscloud_sizes_large", "rsscloud_sizes_small")
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    try:
        for name in names:
            _run(engine, f"CREATE DATABASE {name}")
        large, small = (make_url(server).set(database=name) for name in names)
        yield (
            large.render_as_string(hide_password=False),
            small.render_as_string(hide_password=False),
        )
    finally:
        for name in names:
            _run(engine, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        engine.dispose()


def _run(engine: Engine, statement: str) -> None:
    with engine.connect() as conn:
        conn.execute(text(statement))


@click.command()
@click.option("--scale", default=0.01, show_default=True, help="1 for 10,000,000 subscriptions.")
@click.option("--postgresql", metavar="URL", help="A database of a server for two more of them.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="The directory of the data; it must be on a disk.  [default: that for temporary files]",
)
def main(scale: float, postgresql: str | None, directory: Path | None) -> None:
    """Measure what very large databases cost."""
    with tempfile.TemporaryDirectory(prefix="sizes-", dir=directory) as temporary:
        place = Path(temporary).resolve()
        data = place / "data"
        data.mkdir()
        with _databases(postgresql, place) as urls:
            lines = measure(urls, scale, data)
            click.echo(f"{machine(place)}\n\n{as_text(lines)}")


if __name__ == "__main__":
    main()
