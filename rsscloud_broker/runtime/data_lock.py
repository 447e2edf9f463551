"""The lock of a data directory, so that only one broker at a time uses it.

The file of a database has a lock of its own, ``NAME.lock`` beside it, since brokers with different
data directories may name the same file.

While a broker holds the lock, the file has the URL at which a browser on this machine reaches it.
"""

from __future__ import annotations

from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from time import sleep
from typing import IO, Final

#: The name of the lock file of a data directory.
NAME: Final = "lock"


def hold(data: str, address: str = "", name: str = NAME) -> IO[bytes]:
    """Lock a data directory.  The system releases the lock when the process ends.

    :param address: the URL of the broker for a browser on this machine; empty for no broker.
    :param name: the name of the lock file.
    :returns: a file that holds the lock while it is open.
    :raises BlockingIOError: another process holds the lock.
    :raises OSError: the lock file cannot be created or opened.
    """
    # Without a buffer nothing is left to be written, and to fail, when the file is closed.
    file = Path(data, name).open("ab", buffering=0)  # noqa: SIM115 # open as long as it locks
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:  # perhaps somebody only looks whether it is held
        sleep(0.1)
        flock(file, LOCK_EX | LOCK_NB)
    with suppress(OSError):  # the disk may be full, and a broker can do without
        file.truncate(0)
        file.write(address.encode())
    return file


def address_of(data: str) -> str:
    """The URL of the broker that holds the lock; empty if none does, or if it cannot be read."""
    try:
        return Path(data, NAME).read_text(encoding="utf-8") if is_held(data) else ""
    except (OSError, UnicodeDecodeError):
        return ""


def is_held(data: str, name: str = NAME) -> bool:
    """Whether a broker holds the lock of a data directory; False if that cannot be found out."""
    try:
        with Path(data, name).open("rb") as file:
            flock(file, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
