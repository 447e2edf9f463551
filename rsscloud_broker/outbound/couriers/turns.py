"""Lets what may end a courier begin one after the other; the hosts that wait take turns."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractAsyncContextManager
from itertools import takewhile
from typing import Final

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime

from rsscloud_broker.errors import CallsUnavailable

#: How many may wait in all, and how many of one host.  The others are told to come again.
MOST: Final = 50
OF_A_HOST: Final = 10

#: Seconds for which a place is kept for a host that was told so, and how many such hosts there are.
KEPT: Final = 120.0
MOST_HOSTS: Final = 1000


class Turns:
    """Gives turns, one at a time.

    Hosts that found no place get the next ones in the order in which they asked first.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._hosts: OrderedDict[str, dict[_Turn, None]] = OrderedDict()
        self._turned_away: OrderedDict[str, float] = OrderedDict()  # and when they asked last
        self._current: _Turn | None = None

    def of(self, host: str) -> AbstractAsyncContextManager[None]:
        """Wait for a turn, which lasts as long as the context.

        :raises CallsUnavailable: as it is entered: too many wait.
        """
        return _Turn(self, host)

    async def _wait(self, turn: _Turn) -> None:
        if self._current is None:
            self._current = turn
            return
        if not self._has_place(turn.host):
            raise CallsUnavailable("too much that may have ended a courier waits to be tried alone")
        self._hosts.setdefault(turn.host, {})[turn] = None
        try:
            await turn.ready
        except CancelledError:
            self._remove(turn)
            raise

    def _has_place(self, host: str) -> bool:
        """Whether one more of a host may wait; if others have all places, it is remembered."""
        if len(self._hosts.get(host, ())) >= OF_A_HOST:
            return False
        now = self._clock.seconds()
        while self._turned_away and next(iter(self._turned_away.values())) <= now - KEPT:
            self._turned_away.popitem(last=False)
        ahead = sum(1 for _ in takewhile(lambda each: each != host, self._turned_away))
        free = MOST - sum(map(len, self._hosts.values()))
        if free > ahead:
            self._turned_away.pop(host, None)
            return True
        if host in self._turned_away or len(self._turned_away) < MOST_HOSTS:
            self._turned_away[host] = now
        return False

    def _remove(self, turn: _Turn) -> None:
        turns = self._hosts[turn.host]
        del turns[turn]
        if not turns:
            del self._hosts[turn.host]

    def _end(self, turn: _Turn) -> None:
        """Let the next one begin."""
        self._current = None
        if self._hosts:
            host, turns = next(iter(self._hosts.items()))
            self._hosts.move_to_end(host)
            following = next(iter(turns))
            self._remove(following)
            self._current = following
            following.ready.callback(None)


@define(eq=False)
class _Turn(AbstractAsyncContextManager[None]):
    """The context of one turn.

    :ivar ready: fires when it may begin.
    """

    turns: Turns
    host: str
    ready: Deferred[None] = field(factory=Deferred, init=False)

    async def __aenter__(self) -> None:
        await self.turns._wait(self)

    async def __aexit__(self, *_: object) -> None:
        self.turns._end(self)
