"""Finds the callback whose answer ends the courier that calls it.

When a courier ends, each callback that it was calling may be why.  Nearly always none is, so the
calls are put off and made again as usual.  A callback is *suspect* if it was being called when two
couriers ended within an hour.  Suspects are called by a further courier that does nothing else, so
that nobody else's notifications are put off any more.  One that answers there is innocent.  If that
courier ends too, those that it was calling are called alone, one after the other, by another
further courier.  If that one ends twice while it calls the same one, the call has failed like a
call to a server that is down: it counts as an error of the subscriber, is tried again by the
schedule of its protocol, and given up in the end.

A callback that answers another courier stays what it was: whoever ends couriers on purpose can
answer well in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.model import host_of
from rsscloud_broker.outbound.couriers.courier import Courier, CourierEnded
from rsscloud_broker.outbound.couriers.further import Engaging, FurtherCourier
from rsscloud_broker.outbound.couriers.turns import Turns
from rsscloud_broker.util.bounded_dict import BoundedDict

#: When a callback is suspect, when it is called alone, and when it is to blame: how many couriers
#: have ended that called it, each within so many seconds of the one before.
SUSPECT: Final = 2
ALONE: Final = 3
TO_BLAME: Final = 5
WITHIN: Final = 3600.0

#: How many callbacks are remembered that couriers were calling when they ended.
MOST: Final = 10_000


class SuspectCalls:
    """The callbacks that may have ended a courier, by their URLs."""

    log = Logger()

    def __init__(self, crew: Engaging, clock: IReactorTime) -> None:
        self._clock = clock
        # How many couriers have ended, and when the last one did.
        self._ended: BoundedDict[str, tuple[int, float]] = BoundedDict(MOST)
        self._turns = Turns(clock)
        self._of_many = FurtherCourier(crew, clock)
        self._of_one = FurtherCourier(crew, clock)

    def __bool__(self) -> bool:
        """Whether there may be suspects."""
        return bool(self._ended)

    def __contains__(self, url: str) -> bool:
        """Whether a callback is suspect."""
        return self._count(url) >= SUSPECT

    def _count(self, url: str) -> int:
        count, at = self._ended.get(url, (0, 0.0))
        return count if self._clock.seconds() < at + WITHIN else 0

    def add(self, urls: Iterable[str]) -> None:
        """Count that a courier has ended while it called these, before anybody is told of it."""
        now = self._clock.seconds()
        for url in urls:
            self._ended[url] = self._count(url) + 1, now

    async def call(
        self, url: str, call: Callable[[Courier], Awaitable[OutboundReply]]
    ) -> OutboundReply:
        """Call a suspect by a further courier.

        :param call: calls it by a courier.
        :raises OutboundError: there is no answer, and perhaps the courier ended.
        :raises CallsUnavailable: too many suspects wait, or the broker stops.
        """
        if self._count(url) < ALONE:
            return await self._by(self._of_many, url, call)
        async with self._turns.of(host_of(url)):
            try:
                return await self._by(self._of_one, url, call)
            except CourierEnded:
                if self._count(url) < TO_BLAME:
                    raise
                self.log.error(
                    "{url} ends the couriers that call it, so these calls fail. Please report it "
                    "to the makers of the broker.",
                    url=url,
                )
                raise OutboundError("the processes that call it end while they do") from None

    async def _by(
        self,
        further: FurtherCourier,
        url: str,
        call: Callable[[Courier], Awaitable[OutboundReply]],
    ) -> OutboundReply:
        courier = further.taken()
        try:
            reply = await call(courier)
        finally:
            further.given_back()
        self._ended.pop(url, (0, 0.0))
        return reply
