"""The lock of a data directory, so that only one broker at a time uses it."""

from __future__ import annotations

from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from typing import IO


def hold(data: str) -> IO[bytes]:
    """Lock a data directory.  The system releases the lock when the process ends.

    :returns: a file that holds the lock while it is open.
    :raises BlockingIOError: another process holds the lock.
    :raises OSError: the lock file cannot be created or opened.
    """
    file = Path(data, "lock").open("ab")  # noqa: SIM115 # open for as long as it locks
    flock(file, LOCK_EX | LOCK_NB)
    return file


def is_held(data: str) -> bool:
    """Whether a broker holds the lock of a data directory; False if that cannot be found out."""
    try:
        with Path(data, "lock").open("rb") as file:
            flock(file, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
