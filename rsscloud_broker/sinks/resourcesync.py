"""The ResourceSync sink: writes lists of the hourly archives, for clients that copy them.

=====================================  ================================================
``/.well-known/resourcesync``          the source description: where clients begin
``/resourcesync/capabilitylist.xml``   the capability list: names the lists and the channel
``/resourcesync/resourcelist.xml``     every archive, with its hash and size
``/resourcesync/changelist.xml``       the last changes of archives, oldest first
``/resourcesync/notification.xml``     the channel: the last notification that was sent
=====================================  ================================================

When an archive was written, the sink writes both lists again.  Then it pushes a framework
notification to the channel, a topic that clients can subscribe to by WebSub (ResourceSync
Framework Notification).

The sink keeps no state but these lists, so that its memory does not grow with the archives.  At a
start it compares every archive on the disk with the resource list, by size and time.  It writes
the change list first, so a crash between the two lists loses no change.  After a crash before the
push, clients are notified when the next archive is written.

If several nodes share a database, one of them does this for all.  Each learns which archives
another one has made (``FileCopied``).  A node copies the present lists before it makes new ones.
What is in the database, and it has yet to copy, is not taken for deleted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial
from hashlib import file_digest
from os import fstat
from pathlib import Path
from typing import Final

from attrs import define, evolve, frozen
from twisted.python.filepath import FilePath
from zope.interface import implementer

from rsscloud_broker.config import NoOptions
from rsscloud_broker.events import Event, FileCopied, FilePublished, TopicChanged
from rsscloud_broker.interfaces import IEventSink, SinkParts
from rsscloud_broker.model import Content
from rsscloud_broker.outbound.own_topics import (
    CAPABILITY_LIST,
    CHANGE_LIST,
    CHANNEL,
    DESCRIPTION,
    RESOURCE_LIST,
    RESOURCESYNC_DOCUMENTS,
)
from rsscloud_broker.sinks.files import archives_in, publish_document, tell_published
from rsscloud_broker.util.cluster_jobs import PeriodicClusterJob
from rsscloud_broker.wire import links
from rsscloud_broker.wire import resourcesync as codec
from rsscloud_broker.wire.resourcesync import Ln, ResourceDocument, ResourceEntry
from rsscloud_broker.wire.times import iso_time

#: How many archives are listed: as many URLs as a sitemap may have; five years of hours.
MAX_RESOURCES: Final = 50_000
#: How many changes are listed: about those of six weeks.
MAX_CHANGES: Final = 1000

_ARCHIVE: Final = re.compile(r"/[0-9]{4}/[0-9]{2}/[0-9]{2}/[0-9]{2}\.xml")
_MEDIA_TYPE: Final = "text/xml"


def pushed_prefixes(options: NoOptions, public_url: str, has_hub: bool) -> tuple[str, ...]:
    """The URL of the channel, if the source has one; see ``IPushesContent``."""
    return (public_url + CHANNEL,) if has_hub else ()


@implementer(IEventSink)
class ResourceSyncSink(PeriodicClusterJob):
    """Keeps the source's documents up to date, and pushes a notification when they change.

    Work that failed, because the disk was full for instance, is tried again each minute.
    """

    name = "resourcesync"
    handles: tuple[type[Event], ...] = (FilePublished, FileCopied)

    def __init__(self, options: NoOptions, parts: SinkParts) -> None:
        super().__init__(
            parts.clock, 60, self._catch_up, parts.store, name=self.name, at_start=True
        )
        self._parts = parts
        # Without a hub nobody could subscribe to the channel, so there is no channel.
        self._source = SourceFiles(
            parts.public_directory, parts.public_url, has_channel=parts.has_hub
        )
        self._check_all = True  # every archive on the disk has to be checked
        self._paths: set[str] = set()  # paths of archives that have to be checked
        self._to_push: bytes | None = None

    async def handle(self, event: Event) -> None:
        if isinstance(event, FilePublished | FileCopied) and _ARCHIVE.fullmatch(event.path):
            self._paths.add(event.path)
            if isinstance(event, FilePublished):
                self.want(event.at, soon=True)

    async def _catch_up(self, due_at: float) -> None:
        """Have the present documents on this disk, and make new ones if archives were written."""
        for path in RESOURCESYNC_DOCUMENTS:
            await self._parts.copy_file(path)
        if self._check_all or self._paths:
            await self._make_lists()

    async def _claim_and_do(self) -> None:
        """Do the job; then push the notification that it has left, or that failed the last time."""
        await super()._claim_and_do()
        if self._to_push is not None:  # also if it could not be pushed the last time
            await self._push(self._to_push)
            self._to_push = None

    async def _make_lists(self) -> None:
        """Make and publish the documents that are not up to date."""
        paths, self._paths = self._paths, set()
        now = self._parts.clock.wall_seconds()
        to_check = None if self._check_all else paths
        try:
            shared = await self._shared_files() if self._check_all else ()
            making = partial(self._source.make, to_check, now, shared)
            documents, notification = await self._parts.in_thread(making)
            for path, content in documents:
                await self._publish(path, content, self.name)
        except Exception:
            self._paths |= paths
            raise
        self._check_all = False
        if notification is not None:
            for path in (CHANGE_LIST, RESOURCE_LIST):
                tell_published(self._parts, self._source.file(path))
            self._to_push = notification

    async def _shared_files(self) -> Collection[str]:
        """The paths of the files in the database, some of which this node may have yet to copy."""
        paths: list[str] = []
        while documents := await self._parts.store.documents_since(0.0, (paths or [""])[-1], 1000):
            paths += (one.name for one in documents)
        return paths

    async def _publish(self, path: str, content: bytes, job: str = "") -> None:
        file = self._source.file(path)
        await publish_document(self._parts, file, content, job=job)

    async def _push(self, notification: bytes) -> None:
        """Push a notification to the channel, if there is one."""
        if not self._source.has_channel:
            return
        # The file first: rssCloud subscribers are notified without the content, and fetch the file.
        await self._publish(CHANNEL, notification)
        now = self._parts.clock.wall_seconds()
        topic = self._source.url(CHANNEL)
        content = Content(notification, "application/xml", self._source.channel_link)
        if await self._parts.store.push_content(topic, content, now):
            self._parts.bus.publish(TopicChanged(topic, now))


@define
class _Known:
    """What the resource list and the change list on the disk say.

    :ivar entries: the entries of the resource list, by URL, with all listed changes applied.
    :ivar changes: the entries of the change list.
    :ivar since: when the change list begins.
    :ivar behind: whether the resource list on the disk lacks some of the changes.
    """

    entries: dict[str, ResourceEntry]
    changes: list[ResourceEntry]
    since: str
    behind: bool

    @property
    def latest(self) -> str:
        """The time of the last change."""
        return self.changes[-1].datetime if self.changes else self.since


@frozen
class SourceFiles:
    """Reads and writes the source's documents on the disk.

    :ivar directory: the public directory.
    :ivar public_url: the broker's own address, without a slash at the end.
    :ivar has_channel: whether clients can subscribe to notifications.
    """

    directory: FilePath[str]
    public_url: str
    has_channel: bool

    def url(self, path: str) -> str:
        """The URL at which a path is served."""
        return self.public_url + path

    def file(self, path: str) -> FilePath[str]:
        """The file on the disk that is served at a path."""
        file: FilePath[str] = self.directory.descendant(path.strip("/").split("/"))
        return file

    @property
    def channel_link(self) -> str:
        """The Link header of a notification (Framework Notification, section 4.1)."""
        return links.encode(
            [
                (self.url(CHANNEL), "self"),
                (self.url(links.HUB_PATHS[0]), "hub"),
                (self.url(CAPABILITY_LIST), "resourcesync"),
            ]
        )

    def make(
        self, paths: Collection[str] | None, now: float, shared: Collection[str]
    ) -> tuple[list[tuple[str, bytes]], bytes | None]:
        """Make the documents that are not up to date.  Blocks.

        :param paths: the paths of archives that may have changed; None for every archive.
        :param now: the time of the changes, in seconds since the epoch.
        :param shared: the paths of files that need not be here, as other nodes have them.
        :returns: the paths and contents of these documents, in the order in which they are to be
            written; and the notification to push, None if nothing has changed.
        :raises OSError: a file cannot be read.
        """
        at = iso_time(now)
        known = self._read_known()
        changes: list[ResourceEntry] = []
        change_of_list = "updated"
        if known is not None:
            # If the clock was set back: a change list is in the order of its times.
            changes = self._changes(known, paths, max(at, known.latest), shared)
        else:  # the change list begins with what is there now
            known = _Known(self._archives({}), [], at, behind=True)
            change_of_list = "created"
        documents = self._fixed_documents()
        lacks_channel = self.has_channel and not self.file(CHANNEL).exists()
        if not (changes or known.behind or lacks_channel):
            return documents, None
        documents += self._lists(known, changes, at)
        return documents, self._notification(change_of_list, at)

    def _read_known(self) -> _Known | None:
        """The lists on the disk; None unless both are there, whole and for this public URL."""
        resources, changes = self._read(RESOURCE_LIST), self._read(CHANGE_LIST)
        if resources is None or changes is None or not changes.since:
            return None
        listed = {entry.loc: entry for entry in resources.entries}
        entries = dict(listed)
        for change in changes.entries:
            _apply(entries, change)
        behind = entries != listed
        return _Known(entries, list(changes.entries), changes.since, behind=behind)

    def _read(self, path: str) -> ResourceDocument | None:
        """A document on the disk; None unless it is there, whole and for this public URL."""
        try:
            document = codec.decode(
                self.file(path).getContent(),
                max_elements=4 * (MAX_RESOURCES + 1),  # an entry has four
            )
        except (FileNotFoundError, codec.InvalidDocument):
            return None
        is_ours = codec.first_link(document.links, "up") == self.url(CAPABILITY_LIST)
        return document if is_ours else None

    def _changes(
        self, known: _Known, paths: Collection[str] | None, at: str, shared: Collection[str]
    ) -> list[ResourceEntry]:
        """The changes since the lists were written.  They are applied to ``known``, too.

        :param paths: the files that may have changed; None for all archives.
        :param shared: see ``make``.
        """
        found = (
            self._archives(known.entries) if paths is None else self._described(sorted(paths), {})
        )
        checked = known.entries if paths is None else map(self.url, paths)
        missing = known.entries.keys() & set(checked) - found.keys()
        changes = [
            ResourceEntry(url, change="deleted", datetime=at)
            for url in sorted(missing - set(map(self.url, shared)))
            if not self.file(url.removeprefix(self.public_url)).exists()
        ]
        for url, entry in found.items():
            before = known.entries.get(url)
            if entry != before:
                kind = "updated" if before else "created"
                changes.append(evolve(entry, change=kind, datetime=at))
        for change in changes:
            _apply(known.entries, change)
        return changes

    def _archives(self, known: dict[str, ResourceEntry]) -> dict[str, ResourceEntry]:
        """The entries of all archives on the disk, by URL; the newest, if there are too many.

        :param known: entries that are reused for files of the same size and time.
        """
        return self._described(archives_in(self.directory)[-MAX_RESOURCES:], known)

    def _described(
        self, paths: Iterable[str], known: dict[str, ResourceEntry]
    ) -> dict[str, ResourceEntry]:
        """The entries of archives, by URL, without those that are gone.

        :param known: entries that are reused for files of the same size and time.
        """
        found: dict[str, ResourceEntry] = {}
        for path in paths:
            url = self.url(path)
            with suppress(FileNotFoundError):  # deleted by the operator
                found[url] = _describe(url, Path(self.file(path).path), known.get(url))
        return found

    def _lists(
        self, known: _Known, changes: list[ResourceEntry], at: str
    ) -> list[tuple[str, bytes]]:
        """The change list and the resource list after changes, without the oldest of too many."""
        listed = [*known.changes, *changes]
        dropped, listed = listed[:-MAX_CHANGES], listed[-MAX_CHANGES:]
        since = dropped[-1].datetime if dropped else known.since
        newest = [known.entries[url] for url in sorted(known.entries)[-MAX_RESOURCES:]]
        return [
            (CHANGE_LIST, self._encode("changelist", listed, since=since)),
            (RESOURCE_LIST, self._encode("resourcelist", newest, at=at)),
        ]

    def _fixed_documents(self) -> list[tuple[str, bytes]]:
        """The source description and the capability list, if they are missing or wrong."""
        lists = [
            ResourceEntry(self.url(RESOURCE_LIST), "resourcelist"),
            ResourceEntry(self.url(CHANGE_LIST), "changelist"),
        ]
        if self.has_channel:
            hub = (Ln("hub", self.url(links.HUB_PATHS[0])),)
            lists.append(ResourceEntry(self.url(CHANNEL), codec.FRAMEWORK, links=hub))
        all_lists = ResourceEntry(self.url(CAPABILITY_LIST), "capabilitylist")
        wanted = (
            (CAPABILITY_LIST, self._encode("capabilitylist", lists, up=DESCRIPTION)),
            (DESCRIPTION, codec.encode(ResourceDocument("description", (all_lists,)))),
        )
        return [
            (path, content)
            for path, content in wanted
            if not self.file(path).exists() or self.file(path).getContent() != content
        ]

    def _encode(
        self,
        capability: str,
        entries: Iterable[ResourceEntry],
        up: str = CAPABILITY_LIST,
        **times: str,
    ) -> bytes:
        """A document that leads up to another one, which is served at the path ``up``."""
        link = Ln("up", self.url(up))
        return codec.encode(ResourceDocument(capability, tuple(entries), (link,), **times))

    def _notification(self, change_of_list: str, at: str) -> bytes:
        entries = (
            # Each resource list counts as a new one, a snapshot of one moment.
            ResourceEntry(self.url(RESOURCE_LIST), "resourcelist", "created", at),
            ResourceEntry(self.url(CHANGE_LIST), "changelist", change_of_list, at),
        )
        return self._encode(codec.FRAMEWORK, entries)


def _describe(url: str, file: Path, known: ResourceEntry | None) -> ResourceEntry:
    """The entry of a file.

    :param known: is returned if it has the size and time of the file.
    :raises FileNotFoundError: there is no such file.
    """
    with file.open("rb") as opened:
        status = fstat(opened.fileno())
        lastmod = iso_time(status.st_mtime)
        if known is not None and (known.lastmod, known.length) == (lastmod, status.st_size):
            return known
        digest = file_digest(opened, "sha256").hexdigest()
    return ResourceEntry(
        url, lastmod=lastmod, hash=f"sha-256:{digest}", length=status.st_size, type=_MEDIA_TYPE
    )


def _apply(entries: dict[str, ResourceEntry], change: ResourceEntry) -> None:
    """Apply a change to the entries of a resource list."""
    if change.change == "deleted":
        entries.pop(change.loc, None)
    else:
        entries[change.loc] = evolve(change, change="", datetime="")
