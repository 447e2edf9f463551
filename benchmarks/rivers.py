"""Measures how soon a post arrives in the rivers of many people who read them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.broker import Broker, Data
from benchmarks.posts import FEED, NAME
from benchmarks.processes import Deadline, Helper, Running, Sample, Stopwatch, free_port
from benchmarks.report import Line, Target
from benchmarks.rows import Settings
from rsscloud_broker.accounts.secrets import digest_of, new_secret
from rsscloud_broker.apps.river.feeds_sql import add_and_follow
from rsscloud_broker.apps.river.schema import TABLES
from rsscloud_broker.storage import migrate, open_database
from rsscloud_broker.storage.accounts import add_account, add_session

#: How many posts there are in a round, one after the other.
POSTS = 20

#: About as many bytes as an event of the river has, in the floor.
EVENT = 450

_DAY = 86_400.0

_MORE = f"""
[apps.{NAME}]
enabled = true
[apps.river]
enabled = true
"""


def rivers(settings: Settings) -> list[Line]:
    """A post to its arrival in the streams of 1,000 accounts that follow its feed."""
    deadline = settings.deadline()
    count = settings.count or 1000
    data = Data(settings.directory / "data")
    data.directory.mkdir()
    port = free_port()
    public_url = f"http://localhost:{port}"
    cookies = _readers(data, public_url + FEED, count)
    plugins = _plugins(settings.directory)
    more = f'public_url = "{public_url}"\n'
    bare: list[list[Sample]] = []
    ours: list[list[Sample]] = []
    with (
        Helper("floor_servers", deadline, size=0) as floor,
        Broker(data, deadline, port=port, top=more, more=_MORE, plugins=plugins) as broker,
    ):
        _wait_for_feed(data, deadline)
        for number in range(settings.rounds):
            bare.append(_round(floor, floor.port, "/events", [""] * count, number, deadline))
            ours.append(_round(broker, port, "/river/events", cookies, number, deadline))
        peak = broker.peak_megabytes()
    work = f"a post to its arrival in {count:,} rivers"
    p99 = max(each[1].value for each in ours)
    return [
        _line(f"{work}: median", 0, ours, bare, peak, []),
        _line(f"{work}: 99th percentile", 1, ours, bare, peak, [Target.at_most(p99, 1000, "ms")]),
    ]


def _line(
    work: str,
    which: int,
    ours: Sequence[Sequence[Sample]],
    bare: Sequence[Sequence[Sample]],
    peak: float,
    targets: Sequence[Target],
) -> Line:
    own, floor = ([each[which] for each in rounds] for rounds in (ours, bare))
    return Line(work, "ms", own, peak, floor, targets)


def _readers(data: Data, feed: str, count: int) -> list[str]:
    """Add accounts that follow a feed, with a session each; their cookies."""
    migrate(data.url, {"river": TABLES})
    cookies = []
    now = time.time()
    with open_database(data.url) as connection:
        for number in range(count):
            account = add_account(connection, f"reader{number}", "", False, now)
            assert account is not None  # no other has this name
            secret = new_secret()
            digest = digest_of(secret)
            add_session(connection, account.id, "", digest, now, now + _DAY, "", "", b"", 10)
            add_and_follow(connection, account.id, {feed: "Posts"}, now, 500)
            cookies.append(f"rsscloud-session={secret}")
    return cookies


def _plugins(directory: Path) -> Path:
    """A directory with the application that posts, as a plugin."""
    top = directory / "plugins"
    package = top / "rsscloud_broker" / "plugins"
    package.mkdir(parents=True)
    text = "from benchmarks.posts import PostsMaker\n\nposts = PostsMaker()\n"
    (package / "benchmark_posts.py").write_text(text, encoding="utf-8")
    return top


def _wait_for_feed(data: Data, deadline: Deadline) -> None:
    """Wait until the river follows the feed at the broker."""
    connection = sqlite3.connect(f"file:{data.database}?mode=ro", uri=True)
    followed = "SELECT count(*) FROM river_feed WHERE reads_until IS NOT NULL"
    for _ in deadline.polls("the river to follow the feed", 0.05):
        if connection.execute(followed).fetchone()[0]:
            break
    connection.close()


def _round(
    server: Running,
    port: int,
    path: str,
    cookies: Sequence[str],
    number: int,
    deadline: Deadline,
) -> list[Sample]:
    """The median and the 99th percentile of all arrivals, in milliseconds."""
    seconds: list[float] = []
    left: Callable[[], float] = lambda: deadline.left("arrivals")  # noqa: E731 # read at each use
    with Helper(
        "stream_readers",
        deadline,
        port=port,
        path=path,
        cookies=cookies,
        greeting=": the ",
        seconds=left(),
    ) as readers:
        watch = Stopwatch.start(server)
        for post in range(POSTS):
            marker = f"Post {number}-{post}-"
            text = marker if path != "/events" else marker.ljust(EVENT, "x")
            answer = readers.ask("post", text=text, marker=marker, seconds=left())
            seconds += answer["seconds"]
        cpu = watch.cpu()
    seconds.sort()
    places = (len(seconds) // 2, len(seconds) * 99 // 100)
    return [Sample(seconds[place] * 1000, cpu) for place in places]
