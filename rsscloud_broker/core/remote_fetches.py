"""Lets callers wait for a fetch that another node is about to make, instead of making one more.

A caller may ping a topic, and wait for the result, whose check another node has claimed.  Then this
node requests the check once more, which that node answers with a fetch that begins after this
moment.  When it has recorded the result, it sends a hint, and this node reads the result from the
store.  Hints may be lost, so it also looks once a second.

It does not wait for a node that has died, nor for longer than ``LONGEST`` seconds, nor for a topic
that only private followers have, since what that node finds may be for them alone: then it fetches
the topic itself.
"""

from __future__ import annotations

from collections import defaultdict

from attrs import frozen
from twisted.internet.defer import Deferred
from zope.interface import implementer

from rsscloud_broker.core.sharing import PendingFetch
from rsscloud_broker.errors import TopicUnreadable
from rsscloud_broker.events import Event, WorkHinted
from rsscloud_broker.interfaces import IClock, IEventSink
from rsscloud_broker.model import FetchResult, TopicStatus
from rsscloud_broker.model.work import FetchRecord
from rsscloud_broker.storage import Store

#: Seconds until the store is read although no hint came, and until this node fetches by itself.
LOOK, LONGEST = 1.0, 10.0


@frozen
class RecordedFetch:
    """The result of a fetch, and what the store recorded of it (None if nothing was)."""

    fetched: FetchResult
    record: FetchRecord | None


def record_of(found: RecordedFetch) -> FetchRecord:
    """What was recorded of a fetch that was requested ``to_record``: there is always something."""
    assert found.record is not None
    return found.record


@implementer(IEventSink)
class RemoteFetches:
    """Waits for the fetches of other nodes.

    :ivar live: how many nodes live, this one included.
    """

    name = "fetches of other nodes"
    handles = (WorkHinted,)

    def __init__(self, store: Store, clock: IClock) -> None:
        self._store = store
        self._clock = clock
        # Those who wait for a hint, by its key: the id of a topic.
        self._waiters: defaultdict[int, list[Deferred[None]]] = defaultdict(list)
        self.live = 1

    async def handle(self, event: Event) -> None:
        """Wake those who wait for a topic, at the hint that a node has fetched it."""
        if isinstance(event, WorkHinted) and event.kind == "read":
            for waiter in self._waiters.pop(event.key, ()):
                waiter.callback(None)

    async def answer(self, pending: PendingFetch[RecordedFetch]) -> RecordedFetch | None:
        """Wait until another node has fetched a topic, if one has claimed its check.

        :returns: None if this node is to fetch it.
        :raises TopicUnreadable: the other node could not fetch it.
        """
        if self.live == 1 or pending.requested or not pending.to_record:
            return None
        url, asked_at = pending.url, self._clock.wall_seconds()
        until = self._clock.seconds() + LONGEST
        joined = False
        while self._clock.seconds() < until:
            key = await self._store.join_check(url, asked_at, pending.cause)
            # This node may have claimed the check just after the store was asked.
            if key is None or pending.requested:
                break
            joined = pending.turn.begun = True  # who asks later is answered by the next fetch
            await self._wait_for_hint(key)
            found = _newer_result(await self._store.topic_status(url), asked_at)
            if found is not None:
                return found
        return _newer_result(await self._store.topic_status(url), asked_at) if joined else None

    async def _wait_for_hint(self, key: int) -> None:
        """Wait for the hint that a topic was read, or for ``LOOK`` seconds."""
        waiter: Deferred[None] = Deferred()
        self._waiters[key].append(waiter)
        alarm = self._clock.callLater(LOOK, waiter.callback, None)
        await waiter
        if alarm.active():
            alarm.cancel()
        elif key in self._waiters:
            self._waiters[key].remove(waiter)
            if not self._waiters[key]:
                del self._waiters[key]


def _newer_result(status: TopicStatus | None, asked_at: float) -> RecordedFetch | None:
    """What another node found, if its fetch began at a time or later, by the wall clock."""
    if status is None or (status.asked_at or 0.0) < asked_at:
        return None
    topic = status.topic
    if status.failures or topic.digest is None:
        raise TopicUnreadable(topic.url, status.result)
    fetched = FetchResult(
        url=topic.url,
        digest=topic.digest,
        size=topic.size or 0,
        started_at=status.asked_at or 0.0,
        validators=topic.validators,
        result=status.result,
    )
    changed = (topic.changed_at or 0.0) >= asked_at
    return RecordedFetch(fetched, FetchRecord(topic, changed=changed, news=changed))
