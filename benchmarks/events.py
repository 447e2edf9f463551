"""Measures what the feeds of the broker cost pings, and how fast their documents are served."""

from __future__ import annotations

from pathlib import Path

from benchmarks.broker import Broker, Data
from benchmarks.change_list import get
from benchmarks.pings import CONNECTIONS, pings
from benchmarks.processes import Deadline, Failed, Helper, Sample
from benchmarks.report import Line, Target, ratio
from benchmarks.rows import Settings
from rsscloud_broker.simplefeed import log
from rsscloud_broker.storage import open_database

#: How many entries a document has.
PER_DOCUMENT = 100

_WITHOUT = "[front_doors.events]\nenabled = false\n"
_RECENT, _ARCHIVED = "/events/pings/recent", "/events/pings/documents/1"


def appending(settings: Settings) -> list[Line]:
    """Pings by XML-RPC, with the feeds; the floor is the same broker without them."""
    deadline = settings.deadline()
    count = settings.count or 10_000
    without, ours = [], []
    data, other = (Data.make(settings.directory / name) for name in ("with", "without"))
    with Broker(data, deadline) as broker, Broker(other, deadline, more=_WITHOUT) as bare:
        for number in range(settings.rounds):
            without.append(pings(bare, bare.port, number * count, count, deadline))
            ours.append(pings(broker, broker.port, number * count, count, deadline))
            _wait_for_entries(data, (number + 1) * count, deadline)
        peak = broker.peak_megabytes()
    work = f"weblogUpdates.ping by XML-RPC, {CONNECTIONS} connections (floor: without the feeds)"
    return [
        Line(work, "pings/s", ours, peak, without, [Target.at_least(ratio(ours, without), 0.85)])
    ]


def serving(settings: Settings) -> list[Line]:
    """GET of the recent document and of an archived one; the floor are as many constant bytes."""
    deadline = settings.deadline()
    count = settings.count or 5000
    data = Data.make(settings.directory / "data")
    data.add_pings(2 * PER_DOCUMENT, 60.0)
    lines = []
    with Broker(data, deadline) as broker:
        _wait_for_entries(data, 2 * PER_DOCUMENT, deadline)
        for path, name, floor, least in (
            (_RECENT, "recent", "/bytes", 0.7),
            (_ARCHIVED, "archived", "/file", 0.8),
            (_ARCHIVED, "archived", "/bytes", 0.8),
        ):
            size = len(broker.get(path, 200))
            bare, ours = _served(settings, broker, path, floor, size, count, deadline)
            work = (
                f"GET the {name} document of {PER_DOCUMENT} entries, {size:,} bytes "
                f"(floor: {floor})"
            )
            targets = [Target.at_least(ratio(ours, bare), least)]
            lines.append(Line(work, "answers/s", ours, broker.peak_megabytes(), bare, targets))
    _check_files(data.directory / "feeds")
    return lines


def _served(
    settings: Settings,
    broker: Broker,
    path: str,
    floor: str,
    size: int,
    count: int,
    deadline: Deadline,
) -> tuple[list[Sample], list[Sample]]:
    bare, ours = [], []
    with Helper("floor_servers", deadline, size=size) as constant:
        for _ in range(settings.rounds):
            bare.append(get(constant, constant.port, floor, {}, 200, count, deadline))
            ours.append(get(broker, broker.port, path, {}, 200, count, deadline))
    return bare, ours


def _wait_for_entries(data: Data, count: int, deadline: Deadline) -> None:
    """Wait until as many pings are in the feed."""
    for _ in deadline.polls("the entries of the feed", 0.05):
        with open_database(data.url, writes=False) as conn:
            found = log.find_log(conn, "pings")
        if found is not None and found.count > count:
            raise Failed(f"the feed has {found.count} entries for {count} pings")
        if found is not None and found.count == count:
            return


def _check_files(directory: Path) -> None:
    if not list(directory.glob("*/1.atom.gz")):
        raise Failed("the archived document is no file")
