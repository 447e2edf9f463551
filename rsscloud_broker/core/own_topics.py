"""Notices when a file of the broker's own changes that somebody subscribed to."""

from __future__ import annotations

from zope.interface import implementer

from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.events import Event, FilePublished
from rsscloud_broker.interfaces import IClock, IEventSink, IStore


@implementer(IEventSink)
class OwnTopicsSink:
    """Has a file read as a topic when it was published, as if it were pinged.

    :param public_url: the broker's own address, without a slash at the end.
    """

    name = "own topics"
    handles = (FilePublished,)

    def __init__(
        self, store: IStore, detector: ChangeDetector, clock: IClock, public_url: str
    ) -> None:
        self._store = store
        self._detector = detector
        self._clock = clock
        self._public_url = public_url

    async def handle(self, event: Event) -> None:
        if not isinstance(event, FilePublished):
            return
        url = self._public_url + event.path
        if await self._store.request_check(url, self._clock.wall_seconds()):
            self._detector.schedule(url)
