"""Places for calls to strangers: so many in all, and a part of them for each host.

A host that takes its time, or says nothing until the deadline, holds up those who wait
for that host, and nobody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from twisted.internet.defer import DeferredSemaphore


class Rooms:
    """Lets in who has a place at its host, and then one of all places.

    :param places: calls at the same time, in all.
    :param of_host: calls at the same time of one host.
    """

    def __init__(self, places: int, of_host: int) -> None:
        self._all = DeferredSemaphore(places)
        self._of_host = of_host
        self._hosts: dict[str, DeferredSemaphore] = {}
        self._left: deque[str | None] = deque()
        self._letting_in = False

    def __len__(self) -> int:
        """The number of hosts that are called, or waited for."""
        return len(self._hosts)

    @asynccontextmanager
    async def place(self, host: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it as long as the context lasts."""
        room = self._hosts.get(host)
        if room is None:
            room = self._hosts[host] = DeferredSemaphore(self._of_host)
        await room.acquire()
        try:
            await self._all.acquire()
            try:
                yield
            finally:
                self._leave(None)
        finally:
            self._leave(host)

    def _leave(self, host: str | None) -> None:
        """Give back the place at a host, or the one of all, and let the next one in.

        Who is done at once leads back here: however many those are, the stack does
        not grow with them.
        """
        self._left.append(host)
        if self._letting_in:
            return
        self._letting_in = True
        try:
            while self._left:
                self._let_in(self._left.popleft())
        finally:
            self._letting_in = False

    def _let_in(self, host: str | None) -> None:
        if host is None:
            self._all.release()
            return
        room = self._hosts[host]
        room.release()
        if room.tokens == room.limit:  # nobody is there, nor waits
            del self._hosts[host]
