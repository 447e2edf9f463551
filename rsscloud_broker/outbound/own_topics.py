"""The topics that the broker serves itself, and how others subscribe to them.

Sinks make change lists, archives and ResourceSync documents below the public directory, and front
doors serve them.  Each of these files is a topic too.  The address guard never lets the broker
call itself, so `OwnTopics` reads such a topic from the disk, and `OwnTopicsSink` has it read when
its file was published.  A file that does not exist yet is no topic.

Applications serve topics too (``ServedTopics``), and tell `OwnTopics` how to read them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable
from email.utils import formatdate
from errno import EISDIR, ENAMETOOLONG, ENOENT, ENOTDIR
from typing import Any, Final

from attrs import define, evolve
from twisted.python.filepath import FilePath
from zope.interface import implementer

from rsscloud_broker.errors import TopicUnreadable
from rsscloud_broker.events import Event, FilePublished
from rsscloud_broker.interfaces import (
    IClock,
    IEventSink,
    ITopicFetcher,
    IURLPolicy,
    ServedTopics,
    nothing_to_copy,
)
from rsscloud_broker.model import NO_VALIDATORS, Content, Validators
from rsscloud_broker.model.fetching import EVERYTHING, Fetched, Wanted
from rsscloud_broker.storage import Store
from rsscloud_broker.wire.http_dates import http_date
from rsscloud_broker.wire.text import in_bytes

#: Where the documents of the broker's own ResourceSync source are: the source description, at
#: the path that the specification gives it, the lists that it leads to, and the channel of their
#: notifications.
DESCRIPTION: Final = "/.well-known/resourcesync"
CAPABILITY_LIST: Final = "/resourcesync/capabilitylist.xml"
RESOURCE_LIST: Final = "/resourcesync/resourcelist.xml"
CHANGE_LIST: Final = "/resourcesync/changelist.xml"
CHANNEL: Final = "/resourcesync/notification.xml"

RESOURCESYNC_DOCUMENTS: Final = (
    DESCRIPTION,
    CAPABILITY_LIST,
    RESOURCE_LIST,
    CHANGE_LIST,
    CHANNEL,
)

#: Paths that cannot lead out of the public directory.  The path of a gzipped twin or of an
#: unfinished file does not match: nobody subscribes to those.
_PATH: Final = re.compile(
    r"(?!.*\.(?:gz|part)\Z)(?:/\.well-known)?(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)+\.?[A-Za-z0-9]*"
)

_NOTHING: Final = (
    "this broker has no such feed or list; if it is one of its pages, give the address of the feed"
)

#: Errors that say that there is no such file.
_NO_FILE: Final = {ENOENT, ENOTDIR, EISDIR, ENAMETOOLONG}

#: The most seconds by which one node is later than another with a list that both make.  A file that
#: is older still was made after the clock was set back.
LATE: Final = 300.0

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


@implementer(ITopicFetcher, IURLPolicy)
@define(eq=False)
class OwnTopics:
    """Reads the broker's own topics from the disk or from the applications that serve them, and
    passes all other topics on.

    :param fetcher: reads the topics of others.
    :param policy: judges the URLs of others; the broker's own URLs are always allowed.
    :param public_url: the broker's own address, without a slash at the end.
    :param directory: the public directory.
    :param served: returns the topics that applications and front doors serve.
    :param copy_file: copies the present version of a file, which another node may have made,
        before the file is read: see ``FrontDoorParts``.
    :param late: by how many seconds another node that makes the same files may be later; 0 if no
        node shares the work.
    """

    _fetcher: ITopicFetcher
    _policy: IURLPolicy
    _public_url: str
    _directory: FilePath[str]
    _in_thread: InThread
    _served: Callable[[], Iterable[ServedTopics]] = tuple
    _copy_file: Callable[[str], Awaitable[bool]] = nothing_to_copy
    _late: float = 0.0

    async def fetch(
        self,
        url: str,
        known: Validators = NO_VALIDATORS,
        subscribers: int = 0,
        wanted: Wanted = EVERYTHING,
    ) -> Fetched:
        """Fetch a topic: from an application, from the disk, or by the other fetcher.  See
        ``ITopicFetcher``.
        """
        if served := self._served_at(url):
            return _fetched_here(url, await served.read(url))
        if not url.startswith(f"{self._public_url}/"):
            return await self._fetcher.fetch(url, known, subscribers, wanted)
        file = self._file_of(url)
        try:
            await self._copy_file(url.removeprefix(self._public_url))
            body, modified_at = await self._in_thread(lambda: _read(file))
        except OSError as error:
            if error.errno in _NO_FILE:
                raise TopicUnreadable(url, _NOTHING, lasting=True) from error
            # The disk is full, say, or another node's copy is damaged.  The whole text has the path
            # of the file, which is no business of strangers.
            reason = f"the file cannot be read: {error.strerror or error}"
            raise TopicUnreadable(url, reason) from error
        last_read = http_date(known.last_modified) or 0.0
        # Each node writes the change lists.  If another node's was read last, that of this node is
        # not finished yet; but if it is much older, the clock was set back.
        if last_read - self._late <= modified_at < last_read:
            return Fetched(None, known, result="another node has a newer version")
        validators = Validators(last_modified=formatdate(modified_at, usegmt=True))
        return evolve(
            _fetched_here(url, Content(body, "text/xml; charset=utf-8")), validators=validators
        )

    async def check(self, url: str) -> None:
        """Accept the broker's own URLs; the policy judges all others."""
        if not (url.startswith(f"{self._public_url}/") or self._served_at(url)):
            await self._policy.check(url)

    def _served_at(self, url: str) -> ServedTopics | None:
        return next((each for each in self._served() if url.startswith(each.prefix)), None)

    def _file_of(self, url: str) -> FilePath[str]:
        """The file below the public directory; TopicUnreadable if the path is not allowed."""
        path = url.removeprefix(self._public_url)
        if not _PATH.fullmatch(path):
            raise TopicUnreadable(url, _NOTHING, lasting=True)
        file: FilePath[str] = self._directory.descendant(path.lstrip("/").split("/"))
        return file


def _read(file: FilePath[str]) -> tuple[bytes, int]:
    """The content of a file, and the second in which it was modified."""
    with file.open() as opened:
        return opened.read(), int(os.fstat(opened.fileno()).st_mtime)


def _fetched_here(url: str, content: Content | None) -> Fetched:
    """What was fetched from the broker itself."""
    if content is None:
        raise TopicUnreadable(url, _NOTHING, lasting=True)
    return Fetched(content, result=f"a file of this broker, {in_bytes(content.body)}")


@implementer(IEventSink)
@define(eq=False)
class OwnTopicsSink:
    """Treats the publication of a file like a ping: the file is read as a topic if it has
    subscribers.

    :param schedule: reads a topic soon, for which the store has recorded the request.
    :param public_url: the broker's own address, without a slash at the end.
    """

    name = "own topics"
    handles = (FilePublished,)

    _store: Store
    _schedule: Callable[[str], None]
    _clock: IClock
    _public_url: str

    async def handle(self, event: Event) -> None:
        """Have the URL of a published file checked, if the store says that it is a topic."""
        if not isinstance(event, FilePublished):
            return
        url = self._public_url + event.path
        if await self._store.request_check(url, self._clock.wall_seconds()):
            self._schedule(url)
