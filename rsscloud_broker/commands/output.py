"""Stops the output of a command when nobody reads it any more."""

from __future__ import annotations

import os
import sys


def write_no_more() -> None:
    """Discard all further output, after the reader of stdout has closed the pipe.

    Otherwise Python would report an error at exit, when it flushes its buffer.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
