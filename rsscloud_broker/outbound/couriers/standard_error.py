"""What the process of a courier writes to its standard error: last words, and what C code prints.

The process gets one end of a pipe, and nothing of the broker's.  The broker does not wait for what
comes; it looks once in a beat, and when the process has ended.  So a flood costs it one look.  The
pipe keeps no writer waiting either: what does not fit is lost.  A courier must not hang because
the broker stands still.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

#: How many bytes are read at a time; as many as a pipe holds on Linux.
_AT_A_TIME: Final = 64 * 1024

#: How many of the lines that were read at a time are logged.  What crashed is in the first ones,
#: and which exception was not caught in the last ones.
_FIRST: Final = 3
_LAST: Final = 5


class StandardError:
    """The pipe of one process.

    :ivar theirs: the descriptor for the process; call ``close_theirs`` when it has started.
    :raises OSError: the system has no descriptor left.
    """

    def __init__(self) -> None:
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        os.set_blocking(self.theirs, False)

    def close_theirs(self) -> None:
        """Close the end of the process, which has its own copy or never will."""
        os.close(self.theirs)

    def lines(self) -> list[str]:
        """Take what was written since the last time: at most nine lines, of 64 KiB."""
        data = b""
        with suppress(OSError):  # there is nothing
            data = os.read(self._ours, _AT_A_TIME)
        lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
        if len(lines) > _FIRST + _LAST + 1:
            lines[_FIRST:-_LAST] = [f"({len(lines) - _FIRST - _LAST} lines are left out)"]
        return lines

    def close(self) -> None:
        """Read no more; the process has ended."""
        os.close(self._ours)
