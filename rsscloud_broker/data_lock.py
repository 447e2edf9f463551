"""The lock of a data directory: one broker works with it at a time."""

from __future__ import annotations

from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from typing import IO


def hold(data: str) -> IO[bytes]:
    """Lock a data directory for as long as a file is open: for one process, however it ends.

    :returns: that file.
    :raises BlockingIOError: another process has it.
    :raises OSError: the file cannot be made or opened.
    """
    file = Path(data, "lock").open("ab")  # noqa: SIM115 # open for as long as it locks
    flock(file, LOCK_EX | LOCK_NB)
    return file


def is_held(data: str) -> bool:
    """Whether a broker runs with a data directory, as far as this process can tell."""
    try:
        with Path(data, "lock").open("rb") as file:
            flock(file, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
