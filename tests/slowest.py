"""Lists the tests that took longest and those that failed, after a run by several processes.

Each process that runs tests writes into a directory when each of its tests began (`record`).
Afterwards ``main`` lists the slowest, with the seconds that each
took and how many of them it and its own processes kept a processor busy::

    The slowest 20 of 3134 tests, which took 650 s (560 s busy) in all:
     12.3 s ( 11.9 s busy)  tests.delivery.test_faults.DeliveryTests.test_everybody_is_told
    ...

What trial says of failures can be long, and is further up; the last lines name them once more.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from attrs import frozen
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from zope.interface import provider

#: How many tests are listed.
LISTED = 20

#: What trial logs when it starts a test.
_BEGINS = re.compile(r"--> (\S+) <--")

#: What trial writes after an error, and after that the names of the tests that had it.
_ERROR = re.compile(
    r"^={70,}\n\[(?:FAIL|ERROR)\]\n(.*?)\n\n((?:[\w.]+\n)+)(?=[=-]{70,}$)", re.MULTILINE | re.DOTALL
)

#: What comes before the words that say what was wrong.
_FRAME = re.compile(r"^(?:  File .*\n(?:    .*\n)*|Traceback .*\n)", re.MULTILINE)


@frozen(order=True)
class Timed:
    """A test that has run.

    :ivar seconds: how long it took.
    :ivar busy: how many seconds of processors it used, with those of its processes that ended.
    """

    seconds: float
    busy: float
    name: str


def record(directory: Path) -> None:
    """Write down when each test begins that this process runs.

    :param directory: is made if needed, and gets a file for this process.  Each line has the
        time in seconds, the processor time used so far, and the name of the test that begins.
        The last line has no name: that is when the process ended.
    """
    directory.mkdir(parents=True, exist_ok=True)
    file = (directory / str(os.getpid())).open("a", encoding="utf-8", buffering=1)

    def note(name: str = "") -> None:
        file.write(f"{time.monotonic():.3f} {sum(os.times()[:4]):.3f} {name}\n")

    @provider(ILogObserver)
    def observe(event: LogEvent) -> None:
        if begins := _BEGINS.fullmatch(event.get("log_text", "")):
            note(begins[1])

    globalLogPublisher.addObserver(observe)
    atexit.register(note)


def timed(directory: Path) -> Iterator[Timed]:
    """The tests of which `record` wrote into a directory."""
    for file in directory.iterdir():
        lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
        for (began, used, name), (ended, used_then, *_) in pairwise(lines):
            yield Timed(float(ended) - float(began), float(used_then) - float(used), name)


def report(directory: Path) -> str:
    """The slowest tests of a run, slowest first, a line for each."""
    tests = sorted(timed(directory), reverse=True)
    seconds, busy = sum(test.seconds for test in tests), sum(test.busy for test in tests)
    listed = tests[:LISTED]
    lines = [
        f"The slowest {len(listed)} of {len(tests)} tests, "
        f"which took {seconds:.0f} s ({busy:.0f} s busy) in all:"
    ]
    lines += [f"{test.seconds:5.1f} s ({test.busy:5.1f} s busy)  {test.name}" for test in listed]
    return "\n".join(lines)


def failures(output: str) -> str:
    """The tests that failed, a line for each with what was wrong.

    :param output: what trial has written.
    """
    lines = []
    for error, names in _ERROR.findall(output):
        *_, wrong = _FRAME.split(error)
        lines += [f"{name} failed: {' '.join(wrong.split())[:300]}\n" for name in names.split()]
    return "".join(lines)


def main() -> None:
    """List the slowest tests of a directory, and the failures in a file with what trial wrote."""
    times, output = map(Path, sys.argv[1:])
    said = output.read_text(encoding="utf-8", errors="replace")
    sys.stdout.write(report(times) + "\n" + failures(said))
