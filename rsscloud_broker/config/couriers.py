"""The configuration of couriers, ``[delivery]``: how many of them make calls for the broker."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from attrs import Attribute, field, frozen

#: Where Linux has control groups (version 2), which may limit how much of a processor one gets.
_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUP: Final = Path("/proc/self/cgroup")

#: The most couriers.
MOST: Final = 64


def _is_count(_: object, key: Attribute[Any], number: int | str) -> None:
    """Require a number of couriers, or ``auto``."""
    if number != "auto" and not (isinstance(number, int) and 0 <= number <= MOST):
        raise ValueError(f"'{key.name}' is {number}; it must be \"auto\", or from 0 to {MOST}")


@frozen
class DeliveryConfig:
    """``[delivery]``: who carries notifications out and reads topics.

    :ivar processes: how many couriers there are, child processes that call the callbacks and read
        the topics; ``auto`` is one for each processor, up to eight.  With 0 the broker does it
        itself.
    """

    processes: int | Literal["auto"] = field(default="auto", validator=_is_count)

    @property
    def couriers(self) -> int:
        """How many couriers that is on this machine."""
        if self.processes == "auto":
            # More than eight couriers are started only if somebody asks for them.
            return min(8, processors())
        return self.processes


def processors() -> int:
    """How many processors this process may keep busy, at least 1.

    On Linux these are the ones that it may run on, unless its control group or one above that gets
    less; a part of a processor counts as a whole one.
    """
    if sys.platform != "linux":
        return os.cpu_count() or 1
    return max(1, min([len(os.sched_getaffinity(0)), *_quotas()]))


def _quotas() -> Iterator[int]:
    """The limits of the control groups of this process, in processors, rounded up."""
    try:
        lines = _OWN_GROUP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return  # there is no /proc
    names = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    for name in names:
        group = _GROUPS / name  # in a container, only the parent ``_GROUPS`` itself may exist
        for each in (group, *group.parents):
            with suppress(OSError, ValueError):  # "max": it is not limited
                quota, period = (each / "cpu.max").read_text(encoding="ascii").split()
                yield math.ceil(int(quota) / int(period))
