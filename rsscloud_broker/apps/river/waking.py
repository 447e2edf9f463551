"""Wakes the node that tends the feeds, when another node has stored something for it to do."""

from __future__ import annotations

from typing import Final

from zope.interface import implementer

from rsscloud_broker.apps.river.tending import JOB, Tending
from rsscloud_broker.events import Event, WorkHinted
from rsscloud_broker.interfaces import IEventSink

_KIND: Final = f"job.{JOB}"


@implementer(IEventSink)
class Wake:
    """The sink that hears the hints of other nodes."""

    name = "river_tending"
    handles = (WorkHinted,)

    def __init__(self, tending: Tending) -> None:
        self._tending = tending

    async def handle(self, event: Event) -> None:
        """See ``IEventSink``."""
        if isinstance(event, WorkHinted) and event.kind == _KIND:
            self._tending.wake()
