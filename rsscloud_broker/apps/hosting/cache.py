"""Keeps the files in memory that are often read, so that they are served at once.

What is served is never older than the last save of this process.  While a file is being changed it
is read from the store and not kept, and neither is what was read while it was being changed.
Other processes may use the same database, so an entry is compared with the store once a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from attrs import frozen

from rsscloud_broker.apps.hosting.answers import FileAnswers
from rsscloud_broker.apps.hosting.rows import Served, StoredFile
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.util.caches import ByteLimitedCache

#: How many bytes are kept, and the most of one file.
BYTES, LARGEST = 32 * 1024 * 1024, 4 * 1024 * 1024

#: The name of an account, and the path of a file below it.
Key: TypeAlias = tuple[str, str]


@frozen
class CachedFile:
    """A file in memory.

    :ivar answers: the answers to requests for it.
    :ivar checked_at: when it was compared with the store.
    """

    version: int
    content: Served
    answers: FileAnswers
    checked_at: float


class Cache:
    """The files in memory, of limited size.

    :param present: reads a file from the store: see ``rows.present``.
    :param answers: makes the answers for a file.
    """

    def __init__(
        self,
        present: Callable[[str, str, int], Awaitable[StoredFile | None]],
        answers: Callable[[Key, Served], FileAnswers],
        clock: IClock,
    ) -> None:
        self._present = present
        self._answers = answers
        self._clock = clock
        self._entries: ByteLimitedCache[Key, CachedFile] = ByteLimitedCache(
            BYTES, LARGEST, lambda file: file.answers.size
        )
        # How many changes of each file are under way; and a token for the last read of each file.
        # A read keeps what it found only if its token is still there.
        self._changing: Counter[Key] = Counter()
        self._reads: dict[Key, object] = {}

    def fresh(self, key: Key) -> CachedFile | None:
        """A file, if it is in memory and need not be compared with the store."""
        entry = self._entries.get(key)
        # Seconds for which an entry is not compared with the store.
        if entry is None or self._clock.seconds() >= entry.checked_at + 1.0:
            return None
        return entry

    async def read(self, key: Key) -> CachedFile | StoredFile | None:
        """A file as the store has it.

        :returns: None if there never was such a file; a ``StoredFile`` if it was deleted.
        """
        read = self._reads[key] = object()
        known = self._entries.get(key)
        at = self._clock.seconds()
        try:
            stored = await self._present(*key, known.version if known else 0)
            may_keep = self._reads.get(key) is read and not self._changing[key]
        finally:
            if self._reads.get(key) is read:
                del self._reads[key]
        if stored is None or stored.version == 0:
            self._entries.drop(key)
            return stored
        content = stored.content or (known.content if known else None)
        assert content is not None  # the store leaves out nothing but what is known
        entry = CachedFile(stored.version, content, self._answers(key, content), at)
        if may_keep:
            self._entries.keep(key, entry)
        return entry

    @contextmanager
    def changing(self, key: Key) -> Iterator[None]:
        """Do not keep a file while it is being changed."""
        self._changing[key] += 1
        self._forget(key)
        try:
            yield
        finally:
            self._forget(key)
            self._changing[key] -= 1
            if not self._changing[key]:
                del self._changing[key]

    def _forget(self, key: Key) -> None:
        """Drop a file from memory, and keep nothing of the reads of it that are under way."""
        self._reads.pop(key, None)
        self._entries.drop(key)
