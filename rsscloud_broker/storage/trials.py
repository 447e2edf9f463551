"""Has work that may have ended a process of the broker begun a few at a time, or alone.

``suspects`` stores which work that is, and how many processes have ended.  It may have been one
until now, which had claimed hundreds of other things, or two.  Then:

- After one, at most ``FEW`` of a kind are under way at a time.
- After two, it is under way without another such one of its kind, in a process that has lived for a
  while.
- After ``TOO_MANY``, it is given up: for ``LEFT_ALONE`` seconds it fails without being tried.  Then
  it is tried alone again.

What comes to an end is not suspect any more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from sqlalchemy import Connection
from twisted.internet.defer import CancelledError, DeferredLock, DeferredSemaphore
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker.database.threads import StoreThreads
from rsscloud_broker.errors import GivenUp, Unavailable
from rsscloud_broker.model.shared import Work, WorkKind
from rsscloud_broker.storage import suspects
from rsscloud_broker.storage.nodes import database_clock

#: How many suspects of a kind are under way at a time after one process has ended.
FEW: Final = 16

#: After how many processes have ended a suspect is given up.
TOO_MANY: Final = 3

#: Seconds for which it is left alone then.
LEFT_ALONE: Final = 3600.0

#: Seconds that a process has lived before it tries something alone.  Processes that somebody kills
#: one after the other do not live that long, so that nothing is given up because of them.  The
#: kinds do not begin together, so that an intent is not blamed for its topic.
CALM: Final[Mapping[WorkKind, float]] = {
    WorkKind.TOPIC: 20.0,
    WorkKind.INTENT: 25.0,
}

_WITH_ARTICLE: Final[Mapping[WorkKind, str]] = {
    WorkKind.TOPIC: "A topic",
    WorkKind.INTENT: "An intent",
}

_REASON: Final = (
    f"the broker has ended or stood still {TOO_MANY} times while it was at this, "
    "so it is left alone for an hour"
)


class Trials:
    """The suspects as this process knows them, and the places in which they are under way.

    :param ensure_node: returns the node id of this process, and registers it if need be, in the
        thread of the writer.
    """

    log = Logger()

    def __init__(
        self, reactor: Any, database: StoreThreads, ensure_node: Callable[[Connection], int]
    ) -> None:
        self._reactor = reactor
        self._database = database
        self._ensure_node = ensure_node
        self._places_of_few = {kind: DeferredSemaphore(FEW) for kind in WorkKind}
        self._places_alone = {kind: DeferredLock() for kind in WorkKind}
        # The node id of this process, since when it has that id, and when a node was last found to
        # have ended; then the suspects, each with how many nodes have ended because of it.
        self._node: int | None = None
        self._registered_at = 0.0
        self._newest_end: int | None = None
        self._ends: dict[Work, int] = {}

    def read(self, conn: Connection, node: int) -> None:
        """Read what is suspect, in a transaction that has claimed something for a node."""
        if node != self._node:
            self._node, self._registered_at = node, self._reactor.seconds()
        newest = suspects.newest_end(conn)
        if newest != self._newest_end:
            self._ends, self._newest_end = suspects.suspects(conn), newest

    def __contains__(self, work: Work) -> bool:
        return work in self._ends

    @asynccontextmanager
    async def __call__(self, work: Work) -> AsyncIterator[None]:
        """Work is under way as long as this context.

        If it is suspect, who enters the context waits until it may begin: few suspects are
        under way at a time, and one of those that two nodes were at when they ended.  A process
        that ends meanwhile counts against it.  Suspects of different kinds may be in each other's
        contexts only as an intent waits for its topic.

        :raises GivenUp: as it is entered: too many nodes have ended because of it.
        :raises Unavailable: as it is entered: the database cannot be used now.
        """
        ends = self._ends.get(work)
        if not ends:
            yield
            return
        if ends >= TOO_MANY and await self._database.read(
            lambda conn: suspects.is_left_alone(conn, work, LEFT_ALONE, database_clock(conn))
        ):
            what, name = _WITH_ARTICLE[work.kind], work.name
            self.log.error("{what} is given up ({name}): {why}.", what=what, name=name, why=_REASON)
            raise GivenUp(_REASON)
        if ends > 1:
            lived = self._reactor.seconds() - self._registered_at
            await deferLater(self._reactor, max(0.0, CALM[work.kind] - lived))
        place = self._places_alone[work.kind] if ends > 1 else self._places_of_few[work.kind]
        await place.acquire()
        try:
            await self._database.write(
                lambda conn: suspects.begin_trial(conn, work, self._ensure_node(conn))
            )
            yield
        except GeneratorExit:  # the process ends in the middle of it: nobody is to begin
            raise
        except (CancelledError, Unavailable):
            await self._end(work, place, harmless=False)
            raise
        except BaseException:
            await self._end(work, place, harmless=True)
            raise
        await self._end(work, place, harmless=True)

    async def _end(
        self, work: Work, place: DeferredLock | DeferredSemaphore, *, harmless: bool
    ) -> None:
        """End a trial, so that the next suspect in this place may begin.

        :param harmless: whether the work is not suspect any more.
        """
        if harmless:
            self._ends.pop(work, None)
        ended = self._database.write(
            lambda conn: suspects.end_trial(conn, work, self._ensure_node(conn), harmless=harmless)
        )
        place.release()  # what the next one writes comes after that
        with suppress(Unavailable):  # then it stays suspect
            await ended
