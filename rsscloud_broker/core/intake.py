"""Takes in pings that were made at other brokers, for those who follow them: see ``IPingIntake``.

Such a ping keeps the time at which it was made.  So it comes into the change lists and archives of
the hours that it belongs to, and anyone who follows this broker in turn can recognise it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import define
from twisted.internet.task import deferLater
from zope.interface import implementer

from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.web_addresses import check_ping
from rsscloud_broker.counters import Counters
from rsscloud_broker.database.disk_space import DiskSpace
from rsscloud_broker.errors import Refused
from rsscloud_broker.events import PingAccepted, PingReceived, PingsTakenIn
from rsscloud_broker.interfaces import IClock, IEventBus, Intake, IPingIntake
from rsscloud_broker.model import Ping
from rsscloud_broker.model.ways import ChangeSource, Way
from rsscloud_broker.policy.access import Access
from rsscloud_broker.storage import Store
from rsscloud_broker.util.urls import normal_form

#: How many pings are recorded in one operation.
PORTION: Final = 200


@implementer(IPingIntake)
@define(eq=False)
class PingIntake:
    """Implements ``IPingIntake``.

    :param space: checks the free disk space.
    """

    _store: Store
    _detector: ChangeDetector
    _bus: IEventBus
    _clock: IClock
    _access: Access
    _counters: Counters
    _space: DiskSpace

    async def take_in(self, pings: Sequence[Ping], precision: float) -> Intake:
        self._space.check()
        taken = refused = 0
        for start in range(0, len(pings), PORTION):
            if start:  # other work gets its turn, and sinks handle the events
                await deferLater(self._clock, 0)
            portion = pings[start : start + PORTION]
            others = [ping for ping in portion if not self._access.came_back(ping.origin)]
            allowed = [ping for ping in others if self._is_allowed(ping)]
            refused += len(others) - len(allowed)
            taken += await self._record_new(allowed, precision) if allowed else 0
        return Intake(taken, len(pings) - taken - refused, refused)

    def _is_allowed(self, ping: Ping) -> bool:
        """Whether the URLs of a ping are valid, and the operator allows pings of its topics."""
        try:
            check_ping(ping)
            self._access.check_publish(*map(normal_form, ping.named_urls))
        except Refused:
            return False
        return True

    async def _record_new(self, pings: Sequence[Ping], precision: float) -> int:
        """Record a portion of pings, and return how many of them were new."""
        wanted = [(ping, precision) for ping in pings]
        known = await self._store.known_pings(wanted)  # most are, and need not be written
        unknown = [one for one, is_known in zip(wanted, known, strict=True) if not is_known]
        if not unknown:
            return 0
        # The clock of the other broker may be ahead: by the time of a ping each fetch would seem to
        # have begun before it, and would be followed by another.
        records = await self._store.add_pings(unknown, self._clock.wall_seconds())
        new = [record for record in records if not record.repeat]
        for record in new:
            ping = record.ping
            self._counters.pings.inc()
            self._bus.publish(PingReceived(ping))
            now = self._clock.wall_seconds()
            self._bus.publish(
                PingAccepted(ping.rss_url or ping.url, now, origin=ping.origin, way=Way.LIST)
            )
            for topic, state in zip(record.watched, record.states, strict=True):
                self._detector.schedule(topic, state, cause=ChangeSource(Way.LIST))
        if new:
            self._bus.publish(PingsTakenIn(min(record.ping.received_at for record in new)))
        return len(new)
