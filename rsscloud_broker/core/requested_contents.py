"""Fetches a topic again when a notification needs content that the store no longer keeps."""

from __future__ import annotations

from zope.interface import implementer

from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.events import ContentRequested, Event
from rsscloud_broker.interfaces import IEventSink


@implementer(IEventSink)
class RequestedContentsSink:
    """Schedules a fetch of the topic at each ``ContentRequested`` event.

    The store has already stored the request and deleted the topic's validators, so that the
    fetch is unconditional.  The sink makes the detector forget its copy of the validators.
    """

    name = "requested contents"
    handles = (ContentRequested,)

    def __init__(self, detector: ChangeDetector) -> None:
        self._detector = detector

    async def handle(self, event: Event) -> None:
        if isinstance(event, ContentRequested):
            self._detector.forget(event.topic)
            self._detector.schedule(event.topic)
