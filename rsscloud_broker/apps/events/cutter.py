"""Cuts the feeds from the rows of the store: makes an entry of each ping and each change.

The store keeps a ping or a change as a row, in the transaction of the fact.  The cutter reads the
rows in their order, a few hundred at a time, and appends their entries.  In the same transaction it
notes how far it has read.  So each row becomes an entry once, even if the process is killed, and
even if several processes cut from one database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from attrs import define, field
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker.apps.events import rows
from rsscloud_broker.apps.events.entries import make_change_entries, make_ping_entries
from rsscloud_broker.apps.events.names import CHANGES, PINGS
from rsscloud_broker.apps.events.options import EventsOptions
from rsscloud_broker.errors import DocumentFault, Unavailable
from rsscloud_broker.interfaces import FrontDoorParts, IChangeStore, IDatabase
from rsscloud_broker.model import host_of
from rsscloud_broker.model.work import KeptChange
from rsscloud_broker.simplefeed import log
from rsscloud_broker.simplefeed.entries import BYTES, EntryContent, content_of
from rsscloud_broker.simplefeed.feeds import Archive

#: How many pings and how many changes are cut in a transaction, so that no other write waits long.
#: Each change may be appended to three logs.
PINGS_AT_ONCE: Final = 250
CHANGES_AT_ONCE: Final = 50

#: Seconds until the cutter tries again after the database could not be used, or after a bug.
UNAVAILABLE: Final = 5.0


@define(eq=False)
class Cutter(Service):
    """Cuts the feeds while it runs.

    :param is_shown: whether a URL may be in the feeds.
    :param changed: called with the names of logs that have new entries.
    """

    name = "events"
    log = Logger()

    _options: EventsOptions
    _parts: FrontDoorParts
    _changes: IChangeStore
    _database: IDatabase
    _archive: Archive
    _is_shown: Callable[[str], bool]
    _changed: Callable[[Sequence[str]], None]
    # Whether the logs exist, and when old entries are removed next.
    _opened: bool = field(default=False, init=False)
    _sweep_at: float = field(default=0.0, init=False)
    _pause: Deferred[None] | None = field(default=None, init=False)
    _running: Deferred[None] | None = field(default=None, init=False)

    def startService(self) -> None:
        super().startService()
        self._sweep_at = self._parts.clock.seconds()
        self._running = Deferred.fromCoroutine(self._run())

    def stopService(self) -> Deferred[None] | None:
        """Stop; the Deferred fires when the rows that were read have become entries."""
        super().stopService()
        if self._pause is not None:
            self._pause.cancel()
        return self._running

    async def _run(self) -> None:
        """Cut and sweep until the service stops; an error only makes the next pause longer."""
        failing = False
        while self.running:
            pause = 0.5  # seconds between two looks for new rows
            try:
                await self.cut()
                if self._parts.clock.seconds() >= self._sweep_at:
                    await self._sweep()
                failing = False
            except Unavailable as error:
                pause = UNAVAILABLE
                if self.running and not failing:
                    failing = True
                    self.log.error("The feeds of events are put off: {error}", error=error)
            except Exception:  # log a bug, and try again
                pause = UNAVAILABLE
                self.log.failure("The feeds of events could not be made; this is tried again.")
            await self._rest(pause)

    async def _rest(self, seconds: float) -> None:
        """Wait for some seconds, or until the service stops."""
        if not self.running:
            return
        self._pause = deferLater(self._parts.clock, seconds)
        with suppress(CancelledError):
            await self._pause
        self._pause = None

    async def cut(self) -> None:
        """Make entries of all rows that there are.

        :raises Unavailable: the database cannot be used now.
        """
        if not self._opened:
            now = self._parts.clock.wall_seconds()
            opening = partial(rows.open_feeds, public_url=self._parts.public_url, at=now)
            await self._database.write(opening)
            self._opened = True
        for cut_some in (self._cut_changes, self._cut_pings):
            while await self._cut_gently(cut_some) and self.running:
                pass

    async def _cut_gently(self, cut_some: Callable[[], Awaitable[bool]]) -> bool:
        """Cut a portion of the rows, and rest for as long as that took if there may be more.

        There may be millions, if the feeds are new or nothing was cut for days, and others need
        the process too.
        """
        began_at = self._parts.clock.seconds()
        more = await cut_some()
        if more and (seconds := self._parts.clock.seconds() - began_at):
            # A rest takes a second at most: the process may have stood still while it cut.
            await self._rest(min(seconds, 1.0))
        return more

    async def _last_cut_row(self, name: str) -> int:
        """The id of the last row of the store that was cut into the log with a name."""
        found = await self._database.read(partial(log.find_log, name=name))
        return int(found.source)

    async def _cut_changes(self) -> bool:
        """Make entries of some changes; returns whether there may be more."""
        before = await self._last_cut_row(CHANGES)
        changes = await self._changes.kept_changes(before, CHANGES_AT_ONCE)
        if not changes:
            return False
        cut = [
            make_change_entries(self._parts.public_url, each, await self._parse_content(each))
            for each in changes
        ]
        appending = partial(rows.append_changes, public_url=self._parts.public_url)
        appended = await self._database.write(partial(appending, before=before, cut=cut))
        if appended is None:  # another process has appended these changes, or does so now
            return False
        names, removed = appended
        await self._changes.remove_kept_changes(changes[-1].id)
        self._changed(names)
        await self._remove_files((each, None) for each in removed)
        return True

    async def _parse_content(self, change: KeptChange) -> EntryContent | None:
        """The content of an entry; None if the store keeps none; bytes if it cannot be parsed."""
        read = change.content
        if read is None:
            return None
        try:
            return await self._parts.parse(
                host_of(change.url), content_of, read.body, read.content_type
            )
        except DocumentFault:
            return EntryContent(type=BYTES, data=read.body)

    async def _cut_pings(self) -> bool:
        """Make entries of some pings; returns whether there may be more."""
        before = await self._last_cut_row(PINGS)
        pings = await self._changes.pings_after(before, PINGS_AT_ONCE)
        if not pings:
            return False
        entries = make_ping_entries(pings, self._is_shown)
        last = pings[-1].id
        appending = partial(rows.append_pings, before=before, last=last, entries=entries)
        if not await self._database.write(appending):  # another process has appended them
            return False
        self._changed([PINGS])
        return len(pings) == PINGS_AT_ONCE

    async def _sweep(self) -> None:
        """Remove entries, documents and logs that are too old: of some logs at a time, by name.

        ``after`` is the name of the last log that was looked at; None if all were.
        """
        now = self._parts.clock.wall_seconds()
        after: str | None = ""
        while self.running and after is not None:
            sweeping = partial(rows.sweep, options=self._options, after=after, now=now)
            found = await self._database.write(sweeping)
            if found is None:
                return  # another process appends; it is tried again after the pause
            after, removed = found
            await self._remove_files(removed)
        await self._remove_files_of_unknown_feeds()
        # Once an hour is enough, since entries are kept for days.
        self._sweep_at = self._parts.clock.seconds() + 3600.0

    async def _remove_files_of_unknown_feeds(self) -> None:
        """Remove the files of logs that another process has removed, or this one before it ended.

        The directory is read first: each log in it was stored before it had a file.
        """
        try:
            filed = await self._parts.in_thread(self._archive.feed_ids)
        except OSError as error:
            self._log_files_left(error)
            return
        known = await self._database.read(log.feed_ids)
        await self._remove_files((each, None) for each in filed - known)

    async def _remove_files(self, removed: Iterable[tuple[str, int | None]]) -> None:
        """Remove the files of documents whose entries were removed; an error is only logged.

        :param removed: see ``rows.sweep``.
        """
        for feed_id, through in removed:
            try:
                await self._parts.in_thread(self._archive.remove, feed_id, through)
            except OSError as error:
                self._log_files_left(error)

    def _log_files_left(self, error: OSError) -> None:
        self.log.error("Old documents of a feed cannot be removed: {error}", error=error)
