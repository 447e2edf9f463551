"""Sinks of the core.  One shares its work with other nodes; the other fetches a topic again when a
notification needs content that the store no longer keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from attrs import define
from zope.interface import implementer

from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.intents import IntentQueue
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import ClaimsLost, ContentRequested, Event, NodesCounted, WorkHinted
from rsscloud_broker.interfaces import IEventSink


@implementer(IEventSink)
@define(eq=False)
class TakeoverSink:
    """Shares the work of the core with other nodes: takes a share of the limits, and takes over
    checks and intents that no node handles: at the hint ``freed``, which says that the claims of a
    node are free, and at the hint without a kind that comes each second.  If other nodes have taken
    over what this one had claimed, such as polls, it forgets that.

    :param share: functions that are called with the number of live nodes when it has changed.
    :param lose: further functions that are called when this node has lost its claims.
    """

    name = "taking over"
    handles = (WorkHinted, NodesCounted, ClaimsLost)

    _detector: ChangeDetector
    _intents: IntentQueue
    _share: Sequence[Callable[[int], None]] = ()
    _lose: Sequence[Callable[[], None]] = ()

    async def handle(self, event: Event) -> None:
        """Share the limits, forget what was claimed, or take over, as the event says."""
        if isinstance(event, NodesCounted):
            for share in self._share:
                share(event.live)
        elif isinstance(event, ClaimsLost):
            # First, as the detector drops fetches that nobody waits for.
            for lose in (self._intents.lose_claims, *self._lose):
                lose()
            await self._detector.lose_claims()
        elif isinstance(event, WorkHinted) and event.kind in {"", "freed"}:
            self._detector.take_over()
            with suppress(Unavailable):  # the next hint comes in a second
                await self._intents.take_over()


@implementer(IEventSink)
@define(eq=False)
class RequestedContentsSink:
    """Schedules a fetch of the topic at each ``ContentRequested`` event.

    The store has already stored the request and deleted the topic's validators, so that the
    fetch is unconditional.  The sink makes the detector forget its copy of the validators.
    """

    name = "requested contents"
    handles = (ContentRequested,)

    _detector: ChangeDetector

    async def handle(self, event: Event) -> None:
        if isinstance(event, ContentRequested):
            self._detector.reader.forget(event.topic)
            self._detector.schedule(event.topic)
