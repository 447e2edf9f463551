"""Shares the work of the core with other nodes: takes a share of the limits, and takes over checks
and intents of nodes that have ended.  If other nodes have taken over what this one had claimed,
such as polls, it forgets that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from zope.interface import implementer

from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.intents import IntentQueue
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import ClaimsLost, Event, NodesCounted, WorkHinted
from rsscloud_broker.interfaces import IEventSink


@implementer(IEventSink)
class TakeoverSink:
    """Looks for checks and intents that no node handles: at the hint ``freed``, which says that the
    claims of a node are free, and at the hint without a kind that comes each second.

    :param share: functions that are called with the number of live nodes when it has changed.
    :param lose: further functions that are called when this node has lost its claims.
    """

    name = "taking over"
    handles = (WorkHinted, NodesCounted, ClaimsLost)

    def __init__(
        self,
        detector: ChangeDetector,
        intents: IntentQueue,
        share: Sequence[Callable[[int], None]] = (),
        lose: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._detector = detector
        self._intents = intents
        self._share = share
        self._lose = (intents.lose_claims, *lose)

    async def handle(self, event: Event) -> None:
        """Share the limits, forget what was claimed, or take over, as the event says."""
        if isinstance(event, NodesCounted):
            for share in self._share:
                share(event.live)
        elif isinstance(event, ClaimsLost):
            for lose in self._lose:  # first, as the detector drops fetches that nobody waits for
                lose()
            await self._detector.lose_claims()
        elif isinstance(event, WorkHinted) and event.kind in {"", "freed"}:
            self._detector.take_over()
            with suppress(Unavailable):  # the next hint comes in a second
                await self._intents.take_over()
