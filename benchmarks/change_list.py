"""Measures how fast ``changes.xml`` is served, and whether writing it delays other requests."""

from __future__ import annotations

import re
import shutil
import socket
import time
import zlib
from collections.abc import Callable
from email.utils import formatdate
from math import ceil
from threading import Event

from benchmarks import processes
from benchmarks.broker import Broker, Data
from benchmarks.report import Line, Target, ratio
from benchmarks.rows import Settings

#: As many as ``changes.xml`` holds at most by default.
_COUNT = 50_000

#: The pings are from the last this many seconds, so that all are in the list of three hours until
#: the run ends.
_WINDOW = 9000.0

#: Seconds between two requests that find out whether the reactor is blocked.
_PAUSE = 0.001

_TINY = b"GET /nothing-here HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def serving(settings: Settings) -> list[Line]:
    """GET of ``changes.xml``, gzipped; and a conditional GET that is answered 304."""
    deadline = settings.deadline()
    data, count = _filled(settings)
    gzip = {"Accept-Encoding": "gzip"}
    large, small = min(300, count), min(5000, count)
    with Broker(data, deadline) as broker:
        _wait_for_list(data, deadline)
        packed = broker.get("/changes.xml", 200, gzip)
        _check_list(packed, count)
        bare, ours, bare_unchanged, unchanged = [], [], [], []
        with processes.Helper("floor_servers", deadline, size=len(packed)) as constant:
            for _ in range(settings.rounds):
                bare.append(get(constant, constant.port, "/bytes", gzip, 200, large, deadline))
                ours.append(get(broker, broker.port, "/changes.xml", gzip, 200, large, deadline))
                known = {"If-None-Match": '"same"'}
                bare_unchanged.append(
                    get(constant, constant.port, "/bytes", known, 304, small, deadline)
                )
                known = gzip | {"If-Modified-Since": _date_of_list(data)}
                unchanged.append(
                    get(broker, broker.port, "/changes.xml", known, 304, small, deadline)
                )
        peak = broker.peak_megabytes()
    work = f"GET changes.xml with {count:,} pings"
    size = f"{len(packed) / 1e6:.1f} MB, gzip"
    return [
        Line(
            f"{work}: {size}",
            "answers/s",
            ours,
            peak,
            bare,
            [Target.at_least(ratio(ours, bare), 0.7)],
        ),
        Line(
            f"{work}: 304",
            "answers/s",
            unchanged,
            peak,
            bare_unchanged,
            [Target.at_least(ratio(unchanged, bare_unchanged), 0.7)],
        ),
    ]


def making(settings: Settings) -> list[Line]:
    """The longest time in which the broker answers no request while it writes ``changes.xml``.

    A client requests a tiny page all the time.  The floor is the same while nothing is written.
    """
    deadline = settings.deadline()
    data, count = _filled(settings)
    made, idle, cpu, peaks = [], [], [], []
    for _ in range(settings.rounds):
        shutil.rmtree(data.directory / "public", ignore_errors=True)
        with Broker(data, deadline) as broker:
            watch = processes.Stopwatch.start(broker)
            made.append(_longest(broker, deadline, data.change_list.exists))
            cpu.append(watch.cpu())
            took = time.monotonic() - watch.began
            _check_list_is_whole(broker, count)
            until = time.monotonic() + max(took, 0.2)
            idle.append(_longest(broker, deadline, lambda: time.monotonic() >= until))  # noqa: B023 # called at once
            peaks.append(broker.peak_megabytes())
    work = f"the longest wait while changes.xml with {count:,} pings is made"
    worst = processes.Sample(max(made), max(cpu))
    targets = [Target.at_most(worst.value, 20, "ms")]
    return [Line(work, "ms", [worst], max(peaks), [processes.Sample(max(idle))], targets)]


def _filled(settings: Settings) -> tuple[Data, int]:
    count = settings.count or _COUNT
    data = Data.make(settings.directory / "data")
    data.add_pings(count, _WINDOW)
    return data, count


def _wait_for_list(data: Data, deadline: processes.Deadline) -> None:
    for _ in deadline.polls("changes.xml"):
        if data.change_list.exists():
            return


def _check_list_is_whole(broker: Broker, count: int) -> None:
    _check_list(broker.get("/changes.xml", 200, {"Accept-Encoding": "gzip"}), count)


def _check_list(packed: bytes, count: int) -> None:
    """Check that a change list holds ``count`` pings.

    :raises Failed: it holds another number.
    """
    found = len(re.findall(rb"<weblog ", zlib.decompress(packed, wbits=zlib.MAX_WBITS + 16)))
    if found != count:
        raise processes.Failed(f"changes.xml has {found} of {count} pings")


def _date_of_list(data: Data) -> str:
    """The Last-Modified of the list, which is not written again within twenty seconds."""
    seconds = time.time() % 60
    if seconds > 40:
        time.sleep(65 - seconds)  # it is written at each full minute
    return formatdate(ceil(data.change_list.stat().st_mtime), usegmt=True)


def get(
    server: processes.Running,
    port: int,
    path: str,
    headers: dict[str, str],
    status: int,
    count: int,
    deadline: processes.Deadline,
) -> processes.Sample:
    """How many times a second a page is served."""
    page = {"method": "GET", "path": path, "headers": headers, "body": ""}
    sample, answer = processes.answered(server, port, count, deadline, 10, 0, "", **page)
    if answer["statuses"] != {str(status): count}:
        raise processes.Failed(
            f"{path}: the statuses {answer['statuses']} where all must be {status}"
        )
    return sample


def _longest(broker: Broker, deadline: processes.Deadline, done: Callable[[], bool]) -> float:
    """The longest wait for a tiny page, in milliseconds, until ``done`` returns True."""
    longest = 0.0
    pause = Event()
    with socket.create_connection(("127.0.0.1", broker.port)) as sock:
        sock.settimeout(deadline.left("a tiny page"))
        while not done():
            deadline.left("changes.xml")
            asked = time.monotonic()
            sock.sendall(_TINY)
            if not sock.recv(65536).startswith(b"HTTP/1.1 404"):
                raise processes.Failed("a page that is not there was not answered by 404")
            longest = max(longest, time.monotonic() - asked)
            pause.wait(_PAUSE)
    return longest * 1000
