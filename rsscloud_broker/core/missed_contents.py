"""Has topics read once more whose contents are not kept any more, though somebody waits."""

from __future__ import annotations

from zope.interface import implementer

from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.events import ContentMissed, Event
from rsscloud_broker.interfaces import IEventSink


@implementer(IEventSink)
class MissedContentsSink:
    """Has a topic read whose content a notification was to carry.

    The store has asked for that already, and forgotten its validators: so is what is
    remembered of them here.
    """

    name = "missed contents"
    handles = (ContentMissed,)

    def __init__(self, detector: ChangeDetector) -> None:
        self._detector = detector

    async def handle(self, event: Event) -> None:
        if isinstance(event, ContentMissed):
            self._detector.forget(event.topic)
            self._detector.schedule(event.topic)
