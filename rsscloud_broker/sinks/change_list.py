"""The change list sink: writes ``changes.xml`` and ``shortChanges.xml`` at the top of each minute.

Both lists are written from the store alone, so a restart neither loses nor repeats a ping.  If a
run takes longer than a minute, the next one is skipped; if a run fails, the old files stay.

If several nodes share a database, one of them writes the lists for all.
"""

from __future__ import annotations

from typing import Final

from attrs import field, frozen, validators
from zope.interface import implementer

from rsscloud_broker.events import Event
from rsscloud_broker.interfaces import IEventSink, SinkParts
from rsscloud_broker.sinks.files import publish_change_list
from rsscloud_broker.util.clock import OnOneNode
from rsscloud_broker.wire.change_list import Unit

SHORT_SECONDS: Final = 5 * 60  # as weblogs.com had it


@frozen
class ChangeListOptions:
    """Options of the change list sink.

    :ivar hours: how many hours ``changes.xml`` covers, 1 to 24.  weblogs.com had three hours.
    :ivar unit: what ``when`` counts: ``minutes`` or ``seconds``.  Crawlers written for
        weblogs.com itself expect seconds.
    :ivar max_lines: how many pings either list holds at most; if there are more, the newest are
        listed.  The archives hold all of them.
    """

    hours: int = field(default=3, validator=[validators.ge(1), validators.le(24)])
    unit: Unit = field(default="minutes", validator=validators.in_(("minutes", "seconds")))
    max_lines: int = field(default=50_000, validator=validators.ge(1))


@implementer(IEventSink)
class ChangeListSink(OnOneNode):
    """Writes the two change lists at its start and then each minute."""

    name = "change_list"

    handles: tuple[type[Event], ...] = ()

    def __init__(self, options: ChangeListOptions, parts: SinkParts) -> None:
        super().__init__(parts.clock, 60, self._make, parts.store, name=self.name, at_start=True)
        self._parts = parts
        self._options = options
        self._windows = {
            "shortChanges.xml": SHORT_SECONDS,
            "changes.xml": options.hours * 3600,
        }

    async def handle(self, event: Event) -> None:
        """Do nothing: the sink handles no events and reads the pings from the store."""

    async def _make(self, due_at: float) -> None:
        now = self._parts.clock.wall_seconds()
        for name, seconds in self._windows.items():
            target = self._parts.public_directory.child(name)
            await publish_change_list(
                self._parts,
                target,
                now - seconds,
                now,
                unit=self._options.unit,
                job=self.name,
                limit=self._options.max_lines,
            )
