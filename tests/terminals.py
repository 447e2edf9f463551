"""Terminals for tests of programs that people run in one."""

from __future__ import annotations

import pty
from unittest import SkipTest


def open_terminal() -> tuple[int, int]:
    """A new terminal: the descriptors of our side and of that of the program.

    :raises SkipTest: this system has none, as some containers.
    """
    try:
        return pty.openpty()
    except OSError as error:
        raise SkipTest(f"this system has no terminals: {error}") from error
