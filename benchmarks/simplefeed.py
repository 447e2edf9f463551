"""Measures the Simplefeed library: appending to a log, and catching up with a long one."""

from __future__ import annotations

import itertools
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen
from sqlalchemy import Engine, make_url

from benchmarks.processes import Deadline, Failed, Running, Sample, environment, free_port
from benchmarks.report import Line, Target
from benchmarks.rows import Settings
from rsscloud_broker.database import sqlite
from rsscloud_broker.database.engine import for_writing, open_engine
from rsscloud_broker.simplefeed import log
from rsscloud_broker.simplefeed.atom import FeedUrls, render
from rsscloud_broker.simplefeed.entries import Entry, EntryContent, EntryLink
from rsscloud_broker.simplefeed.schema import TABLES
from rsscloud_broker.storage import upgrade

_APPENDS = 20_000
#: How many pings the writer of a busy broker commits together.
_GROUP = 50

_ENTRIES = 1_000_000
_BEGAN = 1_000_000_000.0

_SERVER = """
import sys
from twisted.internet import reactor
from twisted.web.server import Site
from twisted.web.static import File
site = Site(File(sys.argv[1], defaultType="application/atom+xml"))
reactor.listenTCP(int(sys.argv[2]), site, interface="127.0.0.1")
reactor.run()
"""


@frozen
class _Follower:
    """A follower that has caught up: the seconds, the CPU seconds, and the peak memory."""

    seconds: float
    cpu: float
    megabytes: float


def appending(settings: Settings) -> list[Line]:
    """Append entries as pings come, with SQLite on the disk: alone, and many in a transaction."""
    count = settings.count or _APPENDS
    lines = []
    for group in (1, _GROUP):
        samples = []
        # A commit for each entry measures the disk, so these are fewer.
        some = max(group, count // (10 if group == 1 else 1) // group * group)
        for turn in range(settings.rounds):
            with _Database(settings.directory / f"{group}-{turn}.db") as engine:
                cpu, began = time.process_time(), time.monotonic()
                for entries in _grouped(some, group):
                    with engine.begin() as conn:
                        log.append(conn, "log", entries)
                took = time.monotonic() - began
                _check_count(engine, some)
            samples.append(Sample(some / took, time.process_time() - cpu))
        work = f"append {some:,} entries to a log, {group} in a transaction"
        lines.append(Line(work, "entries/s", samples, _own_peak()))
    return lines


def catching_up(settings: Settings) -> list[Line]:
    """Follow a long feed from its oldest entry, served from the disk by another process.

    The second line has a tenth of the entries.  It shows that memory does not depend on their
    number.
    """
    deadline = settings.deadline()
    count = settings.count or _ENTRIES
    found = []
    for number in (count, max(1, count // 10)):
        directory = settings.directory / str(number)
        port = free_port()
        _publish(directory, number, f"http://127.0.0.1:{port}")
        with Running([sys.executable, "-c", _SERVER, str(directory), str(port)]):
            _wait_for(port, deadline)
            found.append((number, _follow(port, number, settings.directory, deadline)))
    (_, large), (_, small) = found
    lines = []
    for number, follower in found:
        targets = [Target.at_least(number / follower.seconds, 20_000, "entries/s")]
        if follower is large:
            targets.append(Target.at_most(large.megabytes / small.megabytes, 1.1, "x the memory"))
        sample = Sample(number / follower.seconds, follower.cpu)
        work = f"catch up with a feed of {number:,} entries"
        lines.append(Line(work, "entries/s", [sample], follower.megabytes, targets=targets))
    return lines


class _Database:
    """A database with an empty log."""

    def __init__(self, file: Path) -> None:
        self._url = f"sqlite:///{file}"

    def __enter__(self) -> Engine:
        sqlite.make_database_file(make_url(self._url))
        self._engine = open_engine(self._url)
        writing = for_writing(self._engine)
        with writing.begin() as conn:
            upgrade.upgrade_app(conn, "simplefeed", TABLES)
            log.open_log(conn, log.Description("log", "A log"), _BEGAN)
        return writing

    def __exit__(self, *_: object) -> None:
        self._engine.dispose()


def _grouped(count: int, size: int) -> Iterator[list[Entry]]:
    numbers = iter(range(count))
    while some := list(itertools.islice(numbers, size)):
        yield [
            Entry(
                "https://example.org/feed.xml",
                _BEGAN + number,
                links=(EntryLink("https://example.org/feed.xml", "related"),),
                content=EntryContent("text", f"Change {number} of this feed, by a ping."),
            )
            for number in some
        ]


def _check_count(engine: Engine, count: int) -> None:
    with engine.begin() as conn:
        found = log.find_log(conn, "log")
    if found is None or found.count != count:
        raise Failed(f"the log has {found and found.count} of {count} entries")


def _publish(directory: Path, count: int, base: str) -> None:
    """Write the documents of a feed as files."""
    urls = FeedUrls(f"{base}/recent", f"{base}/documents/")
    (directory / "documents").mkdir(parents=True)
    with _Database(directory / "log.db") as engine:
        for entries in _grouped(count, 1000):
            with engine.begin() as conn:
                before = log.find_log(conn, "log")
                log.append(conn, "log", entries)
                after = log.find_log(conn, "log")
                assert before is not None and after is not None
                for number in range(before.document, after.document):
                    found = log.read_document(conn, "log", number)
                    assert found is not None
                    (directory / "documents" / str(number)).write_bytes(render(found, urls))
        with engine.begin() as conn:
            last = log.read_document(conn, "log")
            assert last is not None
            (directory / "documents" / str(last.number)).write_bytes(render(last, urls))
            (directory / "recent").write_bytes(render(last, urls, recent=True))


def _wait_for(port: int, deadline: Deadline) -> None:
    for _ in deadline.polls("the disk server"):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            continue
        return


def _follow(port: int, count: int, directory: Path, deadline: Deadline) -> _Follower:
    command = Path(sys.executable).with_name("rsscloud-broker")
    marker = directory / f"marker-{count}"
    url = f"http://127.0.0.1:{port}/recent"
    began = time.monotonic()
    process = subprocess.Popen(
        [command, "follow", url, "--once", "--marker", marker],
        stdout=subprocess.PIPE,
        env=environment({}),
    )
    assert process.stdout is not None
    lines = 0
    with process.stdout as output:
        while data := os.read(output.fileno(), 1 << 16):
            lines += data.count(b"\n")
            deadline.left("the follower")
    _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or lines != count:
        raise Failed(f"the follower printed {lines} of {count} entries")
    return _Follower(took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)


def _own_peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
