"""What every row of the table is: a function from settings to lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from attrs import frozen

from benchmarks.processes import Deadline
from benchmarks.report import Line


@frozen
class Settings:
    """How large a row is, and where.

    :ivar directory: an empty one, for data.
    :ivar count: how many of what the row counts; None for as many as it is meant for.
    :ivar rounds: how often each is measured; the median is shown.
    :ivar seconds: that the row may take.
    """

    directory: Path
    count: int | None = None
    rounds: int = 3
    seconds: float = 600.0

    def deadline(self) -> Deadline:
        """The end of the row's time, from now on."""
        return Deadline.within(self.seconds)


#: Runs one row.
Row: TypeAlias = Callable[[Settings], Sequence[Line]]
