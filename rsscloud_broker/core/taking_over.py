"""Takes over what other nodes have left: topics that wait to be fetched, and intents."""

from __future__ import annotations

from contextlib import suppress

from zope.interface import implementer

from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.intents import IntentQueue
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import Event, WorkHinted
from rsscloud_broker.interfaces import IEventSink


@implementer(IEventSink)
class TakingOverSink:
    """Looks for such work at each ``WorkHinted`` that may mean it."""

    name = "taking over"
    handles = (WorkHinted,)

    def __init__(self, detector: ChangeDetector, intents: IntentQueue) -> None:
        self._detector = detector
        self._intents = intents

    async def handle(self, event: Event) -> None:
        if isinstance(event, WorkHinted) and event.kind in {"", "freed"}:
            with suppress(Unavailable):  # the next hint comes in a second
                await self._detector.take_over()
                await self._intents.take_over()
