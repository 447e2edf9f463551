"""Lets what may end a courier begin one after the other; the hosts that wait take turns."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractAsyncContextManager
from typing import Final

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rsscloud_broker.errors import CallsUnavailable

#: How many may wait in all, and how many of one host.  The others are told to come again.
MOST: Final = 50
OF_A_HOST: Final = 10


class Turns:
    """Gives turns, one at a time.

    :param longest: seconds after which the next one begins although the one before is not over;
        None if it always waits.
    """

    def __init__(self, clock: IReactorTime, longest: float | None = None) -> None:
        self._clock = clock
        self._longest = longest
        self._hosts: OrderedDict[str, dict[_Turn, None]] = OrderedDict()
        self._current: _Turn | None = None
        self._alarm: IDelayedCall | None = None

    def of(self, host: str) -> AbstractAsyncContextManager[None]:
        """Wait for a turn, which lasts as long as the context.

        :raises CallsUnavailable: as it is entered: too many wait.
        """
        return _Turn(self, host)

    async def _wait(self, turn: _Turn) -> None:
        if self._current is None:
            self._begin(turn)
            return
        waiting = sum(map(len, self._hosts.values()))
        if waiting >= MOST or len(self._hosts.get(turn.host, ())) >= OF_A_HOST:
            raise CallsUnavailable("too much that may have ended a courier waits to be tried alone")
        self._hosts.setdefault(turn.host, {})[turn] = None
        try:
            await turn.ready
        except CancelledError:
            self._remove(turn)
            raise

    def _remove(self, turn: _Turn) -> None:
        turns = self._hosts[turn.host]
        del turns[turn]
        if not turns:
            del self._hosts[turn.host]

    def _begin(self, turn: _Turn) -> None:
        self._current = turn
        if self._longest is not None:
            self._alarm = self._clock.callLater(self._longest, self._end, turn)

    def _end(self, turn: _Turn) -> None:
        """Let the next one begin, if it is still this one's turn."""
        if turn is not self._current:
            return
        self._current = None
        if self._alarm is not None and self._alarm.active():
            self._alarm.cancel()
        if self._hosts:
            host, turns = next(iter(self._hosts.items()))
            self._hosts.move_to_end(host)
            following = next(iter(turns))
            self._remove(following)
            self._begin(following)
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
