"""The change list sink: writes ``changes.xml`` and ``shortChanges.xml`` for each minute.

Both lists are written from the store alone, so a restart neither loses nor repeats a ping.  If a
run takes longer than a minute, the next one is skipped; if a run fails, the old files stay.

If several nodes share a database, each writes the lists for itself.  Whatever a list says depends
on the minute and on the pings in the database, not on the clock of the node.  So all nodes serve
the same bytes, with the same ETag and Last-Modified.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from attrs import field, frozen, validators
from zope.interface import implementer

from rsscloud_broker.events import Event
from rsscloud_broker.interfaces import IEventSink, SinkParts
from rsscloud_broker.sinks.files import drafted, tell_published, write_change_list
from rsscloud_broker.util.clock import EachPeriod
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
class ChangeListSink(EachPeriod):
    """Writes the two change lists at its start and then each minute."""

    name = "change_list"

    handles: tuple[type[Event], ...] = ()

    def __init__(self, options: ChangeListOptions, parts: SinkParts) -> None:
        super().__init__(
            parts.clock,
            60,
            self._make,
            name=self.name,
            # By then the pings of the minute before are committed, so that all nodes find them.
            after=1,
            at_start=True,
        )
        self._parts = parts
        self._options = options
        self._windows = {
            "shortChanges.xml": SHORT_SECONDS,
            "changes.xml": options.hours * 3600,
        }
        # Without other nodes, the first lists have the pings until now.
        self._is_first_of_all = not parts.store.shares_work()

    async def handle(self, event: Event) -> None:
        """Do nothing: the sink handles no events and reads the pings from the store."""

    async def _make(self) -> None:
        """Write both lists of the pings until the minute began."""
        until = self.period_began()
        if self._is_first_of_all:
            until = self._parts.clock.wall_seconds()
        for name, seconds in self._windows.items():
            target = self._parts.public_directory.child(name)
            async with drafted(self._parts, target) as draft:
                await write_change_list(
                    self._parts,
                    draft,
                    until - seconds,
                    until,
                    unit=self._options.unit,
                    count=partial(self._parts.store.count_pings, until),
                    limit=self._options.max_lines,
                )
                await self._parts.in_thread(draft.publish, until)
            tell_published(self._parts, target)
        self._is_first_of_all = False
