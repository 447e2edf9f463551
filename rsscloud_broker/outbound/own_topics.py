"""The broker's own files as topics.

The guard lets nobody have the broker call itself.  But its change lists and archives
can be subscribed to like any other topic, so they are read where they lie.  Only what lies
there is a topic: what is made anew again and again is made at the start for the first time.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

from twisted.python.filepath import FilePath
from zope.interface import implementer

from rsscloud_broker.errors import TopicUnreadable
from rsscloud_broker.interfaces import ITopicFetcher, IURLPolicy
from rsscloud_broker.model import NO_VALIDATORS, Content, Fetched, Validators
from rsscloud_broker.outbound.bodies import in_bytes

#: Names that lead nowhere else than to the files below the directory, but for the twin of
#: each, which is served in its place.
_PATH: Final = re.compile(
    r"(?!.*\.(?:gz|part)\Z)(?:/\.well-known)?(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)+\.?[A-Za-z0-9]*"
)

_NOTHING: Final = "this broker has no such file"

InThread = Callable[[Callable[[], bytes]], Awaitable[bytes]]


@implementer(ITopicFetcher, IURLPolicy)
class OwnTopics:
    """Reads the broker's own files, and leaves all other topics to others.

    :param public_url: the broker's own address, without a slash at the end.
    :param directory: what is served there.
    :param in_thread: calls a function in a thread.
    """

    def __init__(
        self,
        fetcher: ITopicFetcher,
        judge: IURLPolicy,
        public_url: str,
        directory: FilePath[str],
        in_thread: InThread,
    ) -> None:
        self._fetcher = fetcher
        self._judge = judge
        self._prefix = f"{public_url}/"
        self._directory = directory
        self._in_thread = in_thread

    async def fetch(
        self, url: str, known: Validators = NO_VALIDATORS, subscribers: int = 0
    ) -> Fetched:
        if not url.startswith(self._prefix):
            return await self._fetcher.fetch(url, known, subscribers)
        file = self._file(url)
        try:
            body = await self._in_thread(file.getContent)
        except OSError as error:
            raise TopicUnreadable(url, _NOTHING, lasting=True) from error
        content = Content(body, "text/xml; charset=utf-8")
        return Fetched(content, result=f"a file of this broker, {in_bytes(body)}")

    async def check(self, url: str) -> None:
        if not url.startswith(self._prefix):
            await self._judge.check(url)

    def _file(self, url: str) -> FilePath[str]:
        path = url.removeprefix(self._prefix.rstrip("/"))
        if not _PATH.fullmatch(path):
            raise TopicUnreadable(url, _NOTHING, lasting=True)
        file: FilePath[str] = self._directory.descendant(path.lstrip("/").split("/"))
        return file
