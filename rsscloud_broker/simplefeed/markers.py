"""Remembers how far a follower has come: in a file, or in memory.

The file is JSON::

    {"feed": "http://example.com/recent", "entry": "urn:uuid:fc374b00-75c7-11e2-bcfd-0800200c9a66",
     "updated": 1358341200.0, "document": "http://example.com/documents/3"}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import msgspec
from attrs import asdict, frozen
from twisted.python.filepath import FilePath
from zope.interface import implementer

from rsscloud_broker.interfaces import IMarker, Position
from rsscloud_broker.simplefeed.errors import FollowError
from rsscloud_broker.util.atomic_files import replace_file

#: Calls a function in a thread.
InThread: TypeAlias = Callable[..., Awaitable[Any]]


@frozen
class _Saved:
    """What the file has."""

    feed: str
    entry: str
    updated: float = 0.0
    document: str = ""


_decode: Final = msgspec.json.Decoder(_Saved).decode


@implementer(IMarker)
class MemoryMarker:
    """Forgets the position when the process ends."""

    def __init__(self) -> None:
        self.position: Position | None = None

    async def load(self) -> Position | None:
        return self.position

    async def save(self, position: Position) -> None:
        self.position = position


@implementer(IMarker)
class FileMarker:
    """Keeps the position in a file, which always is the old one or the new one, and whole.

    :param feed: the URL of the feed; the file of another feed is refused.
    :param in_thread: calls a function in a thread, as writing to the disk takes long.
    """

    def __init__(self, file: FilePath[str], feed: str, in_thread: InThread) -> None:
        self._file = file
        self._feed = feed
        self._in_thread = in_thread

    async def load(self) -> Position | None:
        """The position in the file; None if there is no file, or an empty one."""
        if self._file.exists() and not self._file.isfile():  # ``save`` would replace it
            raise FollowError(f"{self._file.path} is no file; name another one for the marker")
        try:
            content: bytes = await self._in_thread(self._file.getContent)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FollowError(f"the marker cannot be read: {error}") from error
        if not content.strip():
            return None
        try:
            saved = _decode(content)
        except msgspec.DecodeError as error:
            raise FollowError(
                f"{self._file.path} is not a marker: {error}. Name another file, or remove this "
                "one to begin anew."
            ) from error
        if saved.feed != self._feed:
            raise FollowError(
                f"{self._file.path} is the marker of another feed, {saved.feed}. Each feed needs "
                "a marker of its own."
            )
        return Position(saved.entry, saved.updated, saved.document)

    async def save(self, position: Position) -> None:
        content = msgspec.json.encode({"feed": self._feed, **asdict(position)})
        await self._in_thread(replace_file, self._file, content + b"\n")
