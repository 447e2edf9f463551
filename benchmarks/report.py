"""Prints the results of the benchmarks as tables, for a terminal and for the documentation."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

from attrs import field, frozen

from benchmarks.processes import Sample
from rsscloud_broker import __version__

HEADINGS = (
    "work",
    "unit",
    "floor",
    "ours",
    "ratio",
    "CPU, floor",
    "CPU, ours",
    "peak MB",
    "target",
    "reached",
)

#: The first line of the generated page that the documentation includes.
MARKER = ".. Made by make bench; do not edit."


@frozen
class Target:
    """A target for a result.

    :ivar text: the target, for people.
    :ivar reached: whether the result reached it.
    """

    text: str
    reached: bool

    @classmethod
    def at_least(cls, value: float, least: float, unit: str = "x") -> Target:
        return cls(f">= {least:g} {unit}", value >= least)

    @classmethod
    def at_most(cls, value: float, most: float, unit: str = "x") -> Target:
        return cls(f"<= {most:g} {unit}", value <= most)


@frozen
class Line:
    """One line of the table.

    :ivar work: what was measured.
    :ivar unit: the unit of the values.
    :ivar ours: the rounds of the broker.
    :ivar peak: the peak resident memory of the broker's process, in 10^6 bytes.
    :ivar floor: the rounds of the floor; empty if there is no floor.
    :ivar targets: the targets of the broker.
    """

    work: str
    unit: str
    ours: Sequence[Sample]
    peak: float
    floor: Sequence[Sample] = ()
    targets: Sequence[Target] = field(default=())

    def cells(self) -> list[str]:
        """The texts below ``HEADINGS``; numbers are medians of the rounds."""
        missed = [target.text for target in self.targets if not target.reached]
        reached = f"no: {', '.join(missed)}" if missed else "yes"
        return [
            self.work,
            self.unit,
            _number(middle(self.floor)) if self.floor else "-",
            _number(middle(self.ours)),
            f"{ratio(self.ours, self.floor):.2f}" if self.floor else "-",
            _cpu(self.floor),
            _cpu(self.ours),
            f"{self.peak:.0f}",
            ", ".join(target.text for target in self.targets) or "-",
            reached if self.targets else "-",
        ]


def middle(samples: Iterable[Sample]) -> float:
    """The median of the values."""
    return median(sample.value for sample in samples)


def ratio(ours: Iterable[Sample], floor: Iterable[Sample]) -> float:
    """The broker's median divided by that of the floor; 0 if that of the floor is 0."""
    least = middle(floor)
    return middle(ours) / least if least else 0.0


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cpu(samples: Sequence[Sample]) -> str:
    """The processor time of each unit, if the rounds say how many there were; else of a round."""
    measured = [(sample.cpu, sample.count) for sample in samples if sample.cpu is not None]
    if not measured:
        return "-"
    each = [cpu / count for cpu, count in measured if count]
    return f"{1e6 * median(each):.0f} us" if each else f"{median(cpu for cpu, _ in measured):.2f} s"


def cpu_ratio(ours: Iterable[Sample], floor: Iterable[Sample]) -> float:
    """The median of the broker's processor time divided by that of the floor."""
    # It is never 0, which too short a round has.
    one, other = (median(sample.cpu or 1e-9 for sample in samples) for samples in (ours, floor))
    return one / other


def as_text(lines: Sequence[Line]) -> str:
    """A table for a terminal."""
    rows = [list(HEADINGS), *(line.cells() for line in lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def as_page(lines: Sequence[Line], machine: str) -> str:
    """The generated page of the documentation, in reStructuredText."""
    rows = [list(HEADINGS), *(line.cells() for line in lines)]
    table = "\n".join(
        f"   {'*' if number == 0 else ' '} - {cell}"
        for row in rows
        for number, cell in enumerate(row)
    )
    return (
        f":orphan:\n\n{MARKER}\n\n{machine}\n\n"
        f".. list-table::\n   :header-rows: 1\n   :widths: auto\n\n{table}\n"
    )


def machine(directory: Path) -> str:
    """A sentence about the machine and the software that was measured.

    :param directory: the directory of the databases.
    """
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} with rsscloud-broker {__version__}: "
        f"{_processor()}, {os.cpu_count()} cores, {_memory():.0f} GB; {_system()}, "
        f"Linux {platform.release()}; data on {_file_system(directory)}; "
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"Twisted {version('twisted')}, SQLite {sqlite3.sqlite_version}."
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _memory() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _file_system(directory: Path) -> str:
    """The kind of the file system.  On one in memory nothing is durable, and all is fast."""
    mounts = [
        (Path(fields[1]), fields[2])
        for fields in map(str.split, Path("/proc/mounts").read_text(encoding="utf-8").splitlines())
    ]
    above = [mount for mount in mounts if directory.resolve().is_relative_to(mount[0])]
    return max(above, key=lambda mount: len(mount[0].parts), default=(Path(), "?"))[1]
