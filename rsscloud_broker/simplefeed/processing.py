"""Processes the entries of a feed: hands them on in order, and saves how far it has come.

It knows documents only one at a time.  Which documents there are, and in what order they come, is
the business of the follower.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from rsscloud_broker.interfaces import IClock, IEntryHandler, IMarker, Position
from rsscloud_broker.simplefeed.documents import AtomDocument, index_after
from rsscloud_broker.simplefeed.entries import Entry
from rsscloud_broker.simplefeed.errors import EntryFailed, FollowError, Stopped
from rsscloud_broker.simplefeed.waiting import FollowerLimits, Waiting


@define(eq=False)
class Processing:
    """Hands on the entries of one feed, and saves the position.

    :param waits: waits between two attempts.  If it is stopping, no more entries are handed on.
    :param tell: called with sentences for people about what is wrong with the feed.
    :ivar position: of the entry that was processed last, whether it is saved or not.  None if there
        is no such entry, or before ``load``.
    """

    _handler: IEntryHandler
    _marker: IMarker
    _clock: IClock
    _waits: Waiting
    _limits: FollowerLimits
    _tell: Callable[[str], None] = field(kw_only=True)
    position: Position | None = field(default=None, init=False)
    _loaded: bool = field(default=False, init=False)
    # How many entries were processed since the position was saved, and when that was.
    _unsaved: int = field(default=0, init=False)
    _saved_at: float = field(default=0.0, init=False)
    # As in the last document whose times said it.
    _newest_first: bool = field(default=True, init=False)
    _kinds_told: set[str] = field(factory=set, init=False)  # see ``tell_once``

    async def load(self) -> None:
        """Ask the marker for the position, but only the first time."""
        if self._loaded:
            return
        self._saved_at = self._clock.seconds()
        self.position, self._loaded = await self._marker.load(), True

    def skip_to(self, position: Position) -> None:
        """Take all entries up to a position as processed."""
        self.position = position
        self._unsaved += 1

    async def save(self) -> None:
        """Write the position to the marker, if it has changed since it was last written.

        :raises FollowError: the marker cannot be written.
        """
        if not self._unsaved or self.position is None:
            return
        try:
            await self._marker.save(self.position)
        except OSError as error:
            raise FollowError(
                f"the marker cannot be written: {error}. The entries that were processed since it "
                "was last written will be processed again."
            ) from error
        self._unsaved, self._saved_at = 0, self._clock.seconds()

    async def process(self, document: AtomDocument, after: Position | None) -> None:
        """Hand on the entries of a document.

        :param after: of the entries only those after this position.
        :raises FollowError: entries failed too often, or the marker cannot be written.
        :raises Stopped: the follower was stopped before all were handed on.
        """
        entries = self.entries(document)
        start = 0 if after is None else index_after(entries, after) or 0
        permanent = document.permanent
        batch = self._handler.batch
        for first in range(start, len(entries), batch):
            some = entries[first : first + batch]
            await self._hand_on(some, document.url)
            self.position = Position(some[-1].id, some[-1].updated, permanent)
            self._unsaved += len(some)
            # After 0.2 seconds the position is saved, even if fewer entries were processed than
            # the handler allows, so that somebody who is often killed gets on.
            is_late = self._clock.seconds() - self._saved_at >= 0.2
            if self._unsaved >= batch or is_late:
                await self.save()

    async def _hand_on(self, entries: list[Entry], url: str) -> None:
        """Hand entries of the document at a URL on until they are processed, with pauses."""
        failures = 0
        while True:
            if self._waits.stopping:
                raise Stopped
            try:
                await self._handler.handle(entries, url)
                return
            except EntryFailed as error:
                if self._waits.stopping:
                    raise Stopped from error
                failures += 1
                which = f"the entry {entries[0].id} of {url} was not processed: {error}"
                if failures >= self._limits.tries:
                    raise FollowError(
                        f"{which}. Gave up after {failures} attempts. The next start begins with "
                        "this entry."
                    ) from error
                pause = self._limits.backoff(failures - 1)
                self._tell(f"{which}. Trying again in {pause:.0f} s.")
            await self._waits.sleep(pause, hints=False)

    def entries(self, document: AtomDocument) -> list[Entry]:
        """The entries of a document, oldest first."""
        entries, order = document.entries(self._newest_first)
        if order.known:
            self._newest_first = order.newest_first
        if order.mixed:
            self.tell_once(
                "the entries are not in the order of their times, for instance in "
                f"{document.url}. They are processed in the order in which they stand there."
            )
        if order.repeated:
            self.tell_once(
                f"{document.url} has the entry {order.repeated} more than once. It is processed "
                "once."
            )
        return entries

    def tell_once(self, sentence: str) -> None:
        """Tell people what is wrong, but not again for each document."""
        # What comes after the last URL: the URLs differ for each document.
        kind = sentence.rpartition("//")[2].partition(" ")[2]
        if kind not in self._kinds_told:
            self._kinds_told.add(kind)
            self._tell(sentence)
