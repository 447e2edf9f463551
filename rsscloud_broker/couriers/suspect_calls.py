"""Finds the callback whose answer ends the courier that calls it.

When a courier ends, each callback that it was calling may be why.  Nearly always none is, so the
calls are put off and made again as usual.  A callback is *suspect* if a second courier ends while
it calls it, and it has not answered in between.  Suspects are called one after the other by a
further courier, so that nobody else's notifications are put off any more.  If that one ends too,
the call has failed like a call to a server that is down: it counts as an error of the subscriber,
is tried again by the schedule of its protocol, and given up in the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rsscloud_broker.bounded_dict import BoundedDict
from rsscloud_broker.couriers.courier import Courier, CourierEnded
from rsscloud_broker.couriers.further import Engaging, FurtherCourier
from rsscloud_broker.couriers.turns import Turns
from rsscloud_broker.direct import Done
from rsscloud_broker.errors import OutboundError, Unavailable
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.model import host_of

#: A callback is suspect, and then to blame, when so many couriers have ended that called it.
SUSPECT: Final = 2
TO_BLAME: Final = 3

#: Seconds after which the next suspect is called although the one before has not answered: only
#: an answer ends a courier.
LONGEST: Final = 1.0

#: How many callbacks are remembered that couriers were calling when they ended.
MOST: Final = 10_000


class SuspectCalls:
    """The callbacks that may have ended a courier, by their URLs."""

    log = Logger()

    def __init__(self, crew: Engaging, clock: IReactorTime) -> None:
        self._ended: BoundedDict[str, int] = BoundedDict(MOST)  # how many couriers have ended
        self._turns = Turns(clock, LONGEST)
        self._further = FurtherCourier(crew, clock)

    def __bool__(self) -> bool:
        """Whether there is any callback to which other rules apply."""
        return bool(self._ended)

    def __contains__(self, url: str) -> bool:
        """Whether a callback is suspect."""
        return self._ended.get(url, 0) >= SUSPECT

    def add(self, urls: Iterable[str]) -> None:
        """Count that a courier has ended while it called these, before anybody is told of it."""
        for url in urls:
            self._ended[url] = ended = self._ended.get(url, 0) + 1
            if ended == TO_BLAME:
                self.log.error(
                    "{url} ends the couriers that call it, so these calls fail. Please report it "
                    "to the makers of the broker.",
                    url=url,
                )

    def watched(self, url: str, done: Done[OutboundReply]) -> Done[OutboundReply]:
        """What is told instead of ``done``, so that a callback which answers is innocent."""
        if url not in self._ended:
            return done

        def over(result: OutboundReply | Exception) -> None:
            if not isinstance(result, Unavailable):
                self._ended.pop(url, 0)
            done(result)

        return over

    async def alone(
        self, url: str, call: Callable[[Courier], Awaitable[OutboundReply]]
    ) -> OutboundReply:
        """Call a suspect by the further courier, when it is its turn.

        :param call: calls it by a courier.
        :raises OutboundError: there is no answer, and perhaps the courier ended.
        :raises CallsUnavailable: too many suspects wait, or the broker stops.
        """
        async with self._turns.of(host_of(url)):
            courier = self._further.taken()
            try:
                reply = await call(courier)
            except CourierEnded:
                if self._ended.get(url, 0) < TO_BLAME:
                    raise
                raise OutboundError("the processes that call it end while they do") from None
            except OutboundError:
                self._ended.pop(url, 0)
                raise
            finally:
                self._further.given_back()
            self._ended.pop(url, 0)
            return reply
