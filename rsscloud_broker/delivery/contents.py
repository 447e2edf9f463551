"""Reads from the store the contents that retried notifications carry, and limits the bytes of
contents that are in memory for notifications.

``Attempts`` calls it; a walk reads its own content.  The newest contents of a few topics are
cached, since retries come from many topics in turn.  If the store no longer keeps the newest
content of a topic, the topic is fetched again.

Many notifications may carry the same content, which counts once.  Contents of up to ``SMALL``
bytes do not count, since the number of notifications under way limits them.
"""

from __future__ import annotations

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredLock

from rsscloud_broker.errors import MemoryUnavailable
from rsscloud_broker.events import ContentRequested
from rsscloud_broker.interfaces import IClock, IEventBus
from rsscloud_broker.model import Content
from rsscloud_broker.storage import Store
from rsscloud_broker.util.caches import BoundedDict, ByteLimitedCache

#: A content of up to this many bytes does not count.
SMALL = 64 * 1024

#: How many bytes the contents of walks may have, and those of notifications under way.
OF_WALKS, UNDER_WAY = 12 * 1024 * 1024, 16 * 1024 * 1024


@define(eq=False)
class ContentsUnderWay:
    """Limits the bytes of contents that notifications under way are sending.

    A host that does not answer keeps a content in memory until the deadline.  So half of the
    limit is reserved for hosts that answered quickly the last time.
    """

    _limit: int = UNDER_WAY
    _held: int = field(default=0, init=False)
    # How many notifications send each content, by the content's ``id``.
    _users: dict[int, int] = field(factory=dict, init=False)

    def enter(self, content: Content, *, to_quick_host: bool) -> None:
        """Count a content, which one more notification begins to send.

        :param to_quick_host: whether the host answered quickly the last time.
        :raises MemoryUnavailable: too many bytes are being sent.
        """
        size, key = len(content.body), id(content)
        if size <= SMALL:
            return
        if key not in self._users:
            limit = self._limit if to_quick_host else self._limit // 2
            if self._held and self._held + size > limit:
                raise MemoryUnavailable("as many bytes of contents are being sent as memory is for")
            self._held += size
            self._users[key] = 0
        self._users[key] += 1

    def leave(self, content: Content) -> None:
        """Say that a notification sends a content no more, which ``enter`` has counted."""
        size, key = len(content.body), id(content)
        if size <= SMALL:
            return
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]
            self._held -= size


#: How many topics the time of the last request for a fetch is remembered of, and the seconds
#: until another fetch of the same topic is requested.
MAX_ASKED, ASK_AGAIN = 10_000, 30.0


@define(eq=False)
class Contents:
    """Reads contents from the store, and caches those that were used last.

    :ivar under_way: limits the bytes of contents that are being sent.
    """

    _store: Store
    _bus: IEventBus
    _clock: IClock
    # How many bytes of contents are cached.
    _cache_bytes: int = 8 * 1024 * 1024
    under_way: ContentsUnderWay = field(factory=ContentsUnderWay)
    _cached: ByteLimitedCache[str, Content] = field(init=False)
    # How often topics were forgotten.  A read during which that changes is not cached.
    _changes: int = field(default=0, init=False)
    # One read at a time: many contents on their way from the store would fill the memory.
    _read_lock: DeferredLock = field(factory=DeferredLock, init=False)
    # When the fetch of a topic was last requested, by the monotonic clock.
    _asked: BoundedDict[str, float] = field(factory=lambda: BoundedDict(MAX_ASKED), init=False)

    def __attrs_post_init__(self) -> None:
        most = self._cache_bytes
        self._cached = ByteLimitedCache(most, most, lambda content: len(content.body))

    async def newest(self, topic: str) -> Content | None:
        """The newest content of a topic.

        :returns: None if the store does not keep it; the topic will be fetched then.
        :raises Unavailable: the store cannot be used.
        """
        content = self._cached.get(topic)
        if content is None:
            content = await self._read_lock.run(self._read, topic)
        if content is None:
            await self._request_fetch(topic)
        return content

    def _read(self, topic: str) -> Deferred[Content | None]:
        return Deferred.fromCoroutine(self._read_unless_cached(topic))

    async def _read_unless_cached(self, topic: str) -> Content | None:
        content = self._cached.get(topic)  # another caller may have read it meanwhile
        if content is not None:
            return content
        changes = self._changes
        content = await self._store.newest_content(topic)
        if content is not None and changes == self._changes:  # else it may be outdated
            self._cached.keep(topic, content)
        return content

    async def _request_fetch(self, topic: str) -> None:
        """Have a topic fetched for its content, unless that was requested a moment ago."""
        now = self._clock.seconds()
        if now < self._asked.get(topic, -ASK_AGAIN) + ASK_AGAIN:
            return
        self._asked[topic] = now
        if await self._store.request_content(topic, self._clock.wall_seconds()):
            self._bus.publish(ContentRequested(topic))

    async def pushed(self, key: int) -> Content | None:
        """A pushed content, by the store's key; None if the store no longer keeps it.

        :raises Unavailable: the store cannot be used.
        """
        return await self._store.content(key)

    def forget(self, topic: str) -> None:
        """Remove a topic that has changed from the cache."""
        self._changes += 1
        self._cached.drop(topic)

    def forget_all(self) -> None:
        """Empty the cache, since topics may have changed on other nodes."""
        self._changes += 1
        self._cached.clear()
