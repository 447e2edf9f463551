"""A further courier, which tries what may have ended others."""

from __future__ import annotations

from typing import Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rsscloud_broker.outbound.couriers.courier import Courier

#: Seconds for which the further courier stays when nothing is left to try.
STAYS: Final = 15.0


class Engaging(Protocol):
    """What starts and ends further couriers: ``Crew``."""

    def engage(self) -> Courier: ...
    def has(self, courier: Courier) -> bool: ...
    async def dismiss(self, courier: Courier) -> None: ...


class FurtherCourier:
    """Starts a courier beside the crew when it is needed, and ends it a while after that."""

    def __init__(self, crew: Engaging, clock: IReactorTime) -> None:
        self._crew = crew
        self._clock = clock
        self._uses = 0
        self._courier: Courier | None = None
        self._leaving: IDelayedCall | None = None

    def taken(self) -> Courier:
        """The courier, until it is given back.

        :raises CallsUnavailable: the crew is not at work.
        """
        if self._courier is None or not self._crew.has(self._courier):
            self._courier = self._crew.engage()
        if self._leaving is not None and self._leaving.active():
            self._leaving.cancel()
        self._uses += 1
        return self._courier

    def given_back(self) -> None:
        """Have the courier leave in a while, if nobody else has taken it."""
        self._uses -= 1
        if self._uses == 0:
            self._leaving = self._clock.callLater(STAYS, self._dismiss)

    def _dismiss(self) -> None:
        courier, self._courier = self._courier, None
        if courier is not None:
            Deferred.fromCoroutine(self._crew.dismiss(courier))
