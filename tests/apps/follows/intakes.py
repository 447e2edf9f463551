"""An intake of pings for tests."""

from __future__ import annotations

from collections.abc import Sequence

from zope.interface import implementer

from rsscloud_broker.interfaces import Intake, IPingIntake
from rsscloud_broker.model import Ping


@implementer(IPingIntake)
class FakeIntake:
    """Takes in what it has not got, as the core does.

    :ivar pings: what it has, each with its precision.
    :ivar failure: is raised instead, if it is set.
    """

    def __init__(self) -> None:
        self.pings: list[tuple[Ping, float]] = []
        self.failure: Exception | None = None

    async def take_in(self, pings: Sequence[Ping], precision: float) -> Intake:
        if self.failure is not None:
            raise self.failure
        new = [ping for ping in pings if not self._has(ping, precision)]
        self.pings += [(ping, precision) for ping in new]
        return Intake(taken=len(new), known=len(pings) - len(new))

    def _has(self, ping: Ping, precision: float) -> bool:
        return any(
            ping.url == other.url and abs(ping.received_at - other.received_at) < precision
            for other, _ in self.pings
        )

    @property
    def names(self) -> list[str]:
        return [ping.name for ping, _ in self.pings]
