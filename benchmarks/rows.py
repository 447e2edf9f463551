"""The type of a row: a function that takes ``Settings`` and returns the lines of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from attrs import frozen

from benchmarks.processes import Deadline
from benchmarks.report import Line


@frozen
class Settings:
    """How a row is measured.

    :ivar directory: an empty directory for data.
    :ivar count: the size of the work, such as the number of pings; None for the row's default.
    :ivar rounds: how often each value is measured; the median is shown.
    :ivar seconds: how long the row may take.
    """

    directory: Path
    count: int | None = None
    rounds: int = 3
    seconds: float = 600.0

    def deadline(self) -> Deadline:
        """A deadline for a row that begins now."""
        return Deadline.within(self.seconds)


#: Runs one row.
Row: TypeAlias = Callable[[Settings], Sequence[Line]]
