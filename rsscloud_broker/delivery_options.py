"""The configuration of couriers, ``[delivery]``: how many of them make calls for the broker."""

from __future__ import annotations

import os
import sys
from typing import Any, Final, Literal

from attrs import Attribute, field, frozen

#: The most couriers that ``auto`` stands for, and the most at all.
AUTO: Final = 8
MOST: Final = 64


def _is_count(_: object, key: Attribute[Any], number: int | str) -> None:
    if number != "auto" and not (isinstance(number, int) and 0 <= number <= MOST):
        raise ValueError(f"'{key.name}' is {number}; it must be \"auto\", or from 0 to {MOST}")


@frozen
class Delivery:
    """``[delivery]``: who carries notifications out and reads topics.

    :ivar processes: how many couriers there are, child processes that call the callbacks and read
        the topics; ``auto`` is one for each processor but one, up to eight.  With 0 the broker
        does it itself.
    """

    processes: int | Literal["auto"] = field(default=0, validator=_is_count)

    @property
    def couriers(self) -> int:
        """How many couriers that is on this machine."""
        if self.processes == "auto":
            return min(AUTO, _cores() - 1)
        return self.processes


def _cores() -> int:
    """How many cores this process may run on; how many there are, if the system does not say."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
