"""Finds the topic whose document ends the courier that reads it.

When a courier ends, each topic that it was reading or parsing is *suspect*.  Suspects are read
again one after the other, in a further courier that does nothing else; their hosts take turns.  If
that one ends twice while it reads a topic, the topic is to blame: it is not read for ``PAUSE``
seconds, and then alone again.  Meanwhile the other topics of its host are suspect too, since
whoever made one such document may make more.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from twisted.logger import Logger

from rsscloud_broker.bounded_dict import BoundedDict
from rsscloud_broker.couriers.courier import Courier, CourierEnded
from rsscloud_broker.couriers.further import Engaging, FurtherCourier
from rsscloud_broker.couriers.turns import Turns
from rsscloud_broker.errors import TopicUnreadable
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model import host_of

T = TypeVar("T")

#: How many couriers must end that read a topic alone: one may end for other reasons, for instance
#: since the machine is so busy that it gives no sign of life.
ALONE: Final = 2

#: Seconds for which a topic is not read that has ended so many.
PAUSE: Final = 3600.0

#: How many suspects are remembered, and how many topics and hosts that are to blame.
MOST: Final = 10_000


class Suspects:
    """The topics that may have ended a courier."""

    log = Logger()

    def __init__(self, crew: Engaging, clock: IClock) -> None:
        self._clock = clock
        self._suspected: BoundedDict[str, int] = BoundedDict(MOST)  # how many it has ended alone
        self._blamed: BoundedDict[str, tuple[float, str] | None] = BoundedDict(MOST)
        self._hosts: BoundedDict[str, float] = BoundedDict(MOST)
        self._turns = Turns(clock)
        self._further = FurtherCourier(crew, clock)

    def __contains__(self, url: str) -> bool:
        if not self._suspected:
            return False  # whatever is to blame is suspected too
        now = self._clock.seconds()
        return self._suspected.get(url, -1) >= 0 or self._hosts.get(host_of(url), now) > now

    def add(self, url: str) -> None:
        """Suspect a topic: a courier has ended while it read or parsed it."""
        self._suspected[url] = self._suspected.get(url, 0)

    def clear(self, url: str) -> None:
        """Suspect a topic no more: a courier has read and parsed it, and lives."""
        self._suspected.pop(url, 0)

    def check(self, url: str) -> None:
        """Return, unless a topic is to blame and must not be read now.

        :raises TopicUnreadable: it must not.
        """
        blamed = self._blamed.get(url, None)
        if blamed is not None and blamed[0] > self._clock.seconds():
            raise TopicUnreadable(url, blamed[1], refused=True)

    async def alone(self, url: str, read: Callable[[Courier], Awaitable[T]]) -> T:
        """Read a suspect while no other one is read.

        :param read: reads it by a courier.
        :raises TopicUnreadable: the topic is to blame.
        :raises CourierEnded: the courier ended, and the topic may be to blame.
        :raises CallsUnavailable: too many suspects wait, or the broker stops.
        """
        async with self._turns.of(host_of(url)):
            self.check(url)
            courier = self._further.taken()
            try:
                return await read(courier)
            except CourierEnded:
                self._suspected[url] = ended = self._suspected.get(url, 0) + 1
                if ended < ALONE:
                    raise
                raise self._blame(url) from None
            finally:
                self._further.given_back()

    def _blame(self, url: str) -> TopicUnreadable:
        now = self._clock.seconds()
        until = time.strftime("%H:%M", time.gmtime(self._clock.wall_seconds() + PAUSE))
        reason = (
            f"the processes that read it end while they do: it is not read before {until} UTC, and "
            "its subscribers are not told of changes"
        )
        self._blamed[url] = now + PAUSE, reason
        self._hosts[host_of(url)] = now + PAUSE
        self._suspected[url] = ALONE - 1  # after the pause one more is enough
        self.log.error(
            "{url} ends the couriers that read it: it is not read for an hour. Please report it "
            "to the makers of the broker.",
            url=url,
        )
        return TopicUnreadable(url, reason, refused=True)
