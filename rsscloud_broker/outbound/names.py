"""Keeps the addresses of names for their time to live, so that they are not looked up again.

Only addresses are kept, and not whether the broker may call them: the guard checks them each time.

The cache of ``twisted.names`` has no limit of size, and a timer for each name.  That of c-ares has
no limit either, and c-ares still reads and sorts what it finds there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from twisted.internet.interfaces import IReactorTime

from rsscloud_broker.util.caches import BoundedDict

#: How many names are kept; those go first that were not used for longest.
KEPT: Final = 20_000

#: When one of these files changes, all names are looked up again.
SYSTEM: Final = ("/etc/hosts", "/etc/resolv.conf")

#: Seconds between two looks whether they have changed.
LOOK: Final = 1.0


class Names:
    """The addresses of names.

    :param clock: its time must be monotonic.
    :param files: the files that say how this system looks names up.
    """

    def __init__(self, clock: IReactorTime, files: Sequence[str] = SYSTEM) -> None:
        self._clock = clock
        self._files = files
        self._versions = self._versions_of_files()
        self._next_look = clock.seconds() + LOOK
        self.forget()

    def forget(self) -> None:
        """Forget all names."""
        self._kept: BoundedDict[str, tuple[float, list[str]] | None] = BoundedDict(KEPT)

    def get(self, host: str) -> list[str] | None:
        """The addresses of a host; None if they must be looked up."""
        now = self._clock.seconds()
        if now >= self._next_look:
            self._check_files(now)
        kept = self._kept.get(host, None)
        if kept is None or now >= kept[0]:
            return None
        self._kept[host] = kept  # it was used last
        return kept[1]

    def keep(self, host: str, addresses: list[str], seconds: float) -> None:
        """Keep the addresses of a host.

        :param seconds: their time to live, as its name server says.
        """
        # A name with more addresses is not kept: strangers choose how many there are.
        if seconds > 0 and 0 < len(addresses) <= 16:
            # A name is kept for five minutes at most, however long its name server allows.
            self._kept[host] = self._clock.seconds() + min(seconds, 300.0), addresses

    def _check_files(self, now: float) -> None:
        """Forget all names if the system looks them up in another way than before."""
        self._next_look = now + LOOK
        versions = self._versions_of_files()
        if versions != self._versions:
            self._versions = versions
            self.forget()

    def _versions_of_files(self) -> list[object]:
        return [_version(file) for file in self._files]


def _version(file: str) -> object:
    """What changes with a file; None if there is no such file."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
