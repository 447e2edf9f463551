"""The verbs of the application: saves, restores and deletes files, and publishes the feeds.

A feed or a list of feeds is a topic.  Its save is one transaction with the ping and the beginning
of the fan-out: see ``IPublisher``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, cast

from twisted.internet.defer import Deferred

from rsscloud_broker.apps.hosting import documents, rows
from rsscloud_broker.apps.hosting.documents import HostedDocument, NotStored, is_path
from rsscloud_broker.apps.hosting.options import PREFIX, HostingOptions
from rsscloud_broker.apps.hosting.rows import File, Served, Version
from rsscloud_broker.apps.hosting.saving import Save, save_all
from rsscloud_broker.apps.hosting.serving import Cache, CachedFile, FileAnswers, Key
from rsscloud_broker.database.methods import Batched, reading, writing
from rsscloud_broker.errors import DocumentUnread, TooMany
from rsscloud_broker.interfaces import AccountFile, AppParts, Caller, IDatabase
from rsscloud_broker.model import Content
from rsscloud_broker.model.administration import PublishedWork
from rsscloud_broker.wire.change_list import STYLE_SHEET
from rsscloud_broker.wire.conditional import ALWAYS, Condition
from rsscloud_broker.wire.links import HUB_PATHS, encode


class HostingStore:
    """Keeps files and their versions; each method is one transaction.

    ``save`` is for files that are no topics.  ``Hosting`` saves topics by ``IPublisher``, which
    stores the version and the change of the topic in one transaction.
    """

    def __init__(self, database: IDatabase) -> None:
        self._database = database

    def save(self, wanted: Save) -> Deferred[bool]:
        """Store a new version of a file that is no topic, with others that are saved now."""
        return cast("Deferred[bool]", self._database.write(Batched(save_all, wanted)))

    files = reading(rows.files)
    files_named = reading(rows.files_named)
    versions = reading(rows.versions)
    one_version = reading(rows.one_version)
    present = reading(rows.present)
    public_file = reading(rows.public_file)
    next_file_of = reading(rows.next_file_of)
    disown = writing(rows.disown)


class Hosting:
    """Stores the files of accounts.

    :ivar base: the URL below which the files are public, without a slash at the end.
    :ivar cache: the files as they are served.
    """

    def __init__(self, options: HostingOptions, parts: AppParts) -> None:
        self.base = options.base_url or f"{parts.public_url}{PREFIX}"
        self.max_bytes = options.max_feed_bytes
        self._max_account_bytes = options.max_account_bytes
        rate = options.saves_per_account
        # Counts a save of the account with a name, and returns 0 or, if it is too many, the seconds
        # to wait.  After a quiet time an account may save at once as often as in 100 seconds.
        self._seconds_to_wait = parts.rate_limit(rate, max(1, round(100 * rate)))
        self._parts = parts
        self._store = HostingStore(parts.database)
        self._hub = parts.public_url + HUB_PATHS[0] if parts.has_hub else ""
        # If the feeds have another host, the URL is a whole one: that host need not have the sheet.
        self._sheet = f"{parts.public_url if options.base_url else ''}{STYLE_SHEET}"
        self.cache = Cache(
            self._store.present, self._make_answers, parts.clock, parts.jobs.shares_work
        )

    def url_of(self, name: str, path: str = "") -> str:
        """The public URL of a file, or of the files of an account.

        :param name: the name of the account.
        """
        return f"{self.base}/{name}/{path}"

    async def save(
        self,
        caller: Caller,
        path: str,
        body: bytes,
        source: str,
        content_type: str = "",
        condition: Condition = ALWAYS,
    ) -> bool:
        """Store a new version of a file, and notify its subscribers.

        :param path: a path that ``documents.check_path`` has returned.
        :param source: the address of the caller.
        :param content_type: the Content-Type header that came with the body; empty if none came.
        :param condition: what must hold of the file as it is now.
        :returns: whether there was no such file before.
        :raises NotStored: the body is not what is stored here, there is no room for it, the caller
            may not save, or the condition does not hold.
        :raises TooMany: the account saves too often.
        :raises Forbidden, Unavailable: see ``IPublisher.publish``.
        """
        self._admit(caller)
        document = await self._check_document(caller, path, body, content_type)
        return await self._store_and_publish(caller, path, document, source, condition)

    async def restore(self, caller: Caller, path: str, version: int, source: str) -> bool:
        """Make an earlier version of a file the present one, by saving it again.

        :returns: whether there is such a version.
        :raises NotStored, TooMany, Forbidden, Unavailable: as for ``save``.
        """
        self._admit(caller)
        document = await self.version(caller, path, version)
        if document is None:
            return False
        await self._store_and_publish(caller, path, document, source)
        return True

    async def remove(
        self, caller: Caller, path: str, source: str, condition: Condition = ALWAYS
    ) -> bool:
        """Delete a file with all versions.  If it is a topic, the topic ends.

        :param condition: what must hold of the file as it is now.
        :returns: whether there was such a file.
        :raises NotStored, TooMany, Forbidden, Unavailable: as for ``save``.
        """
        self._admit(caller)
        files = await self._store.files(caller.account)
        found = next((each for each in files if each.path == path), None)
        if found is None:
            return False
        removing = partial(rows.remove, account=caller.name, path=path, condition=condition)
        return await self._withdraw(found, "its author has deleted it", removing, source)

    async def delete_all_of(self, account: int) -> None:
        """Delete the files of an account that is gone; their topics end.  See ``AccountData``.

        :param account: its id.
        :raises Unavailable: the database cannot be used.
        """
        while (file := await self._store.next_file_of(account)) is not None:
            removing = partial(rows.remove, account=file.account, path=file.path)
            await self._withdraw(file, "the account of its author was removed", removing)
        await self._store.disown(account)

    async def published_by(self, name: str, limit: int) -> list[PublishedWork]:
        """What an account publishes, for administrators: see ``ServedTopics.published``."""
        return [
            PublishedWork(
                self.url_of(name, each.path),
                "feed" if each.is_topic else "file",
                each.path,
                each.saved_at,
            )
            for each in await self._store.files_named(name, limit)
        ]

    async def account_files(self, caller: Caller) -> AsyncIterator[AccountFile]:
        """The present version of each file of an account: see ``IApp.account_files``."""

        async def pieces(path: str) -> AsyncIterator[bytes]:
            found = await self._store.present(caller.name, path)
            if found is not None and found.content is not None:
                yield found.content.body

        for each in await self._store.files(caller.account):
            yield AccountFile(f"feeds/{each.path}", pieces(each.path))

    async def take_down(self, url: str, reason: str, record: Callable[[Any], None]) -> bool:
        """Delete a file for an administrator: see ``ServedTopics.take_down``."""
        name, _, path = url.removeprefix(f"{self.base}/").partition("/")
        file = await self._store.public_file(name, path) if is_path(f"{name}/{path}") else None
        if file is None:
            return False
        removing = partial(rows.remove, account=name, path=path, record=record)
        return await self._withdraw(file, reason, removing)

    async def _withdraw(
        self, file: File, reason: str, removing: Callable[[Any], bool], source: str = ""
    ) -> bool:
        """Delete a file; if it is a topic, the topic ends.

        :param removing: the operation that deletes it, and returns whether it was there.
        :returns: whether it was there.
        """
        key = (file.account, file.path)
        removed: bool
        with self.cache.changing(key):
            if file.is_topic:
                url = self.url_of(*key)
                removed = await self._parts.publisher.remove(url, reason, removing, source)
            else:
                removed = await self._parts.database.write(removing)
        return removed

    async def files(self, caller: Caller) -> list[File]:
        """The files of an account, by path."""
        return await self._store.files(caller.account)

    def max_bytes_of(self, caller: Caller) -> int:
        """How many bytes the files of an account may have; an administrator may have set it."""
        return caller.account.max_bytes or self._max_account_bytes

    async def versions(self, caller: Caller, path: str) -> list[Version]:
        """The versions of a file of an account, the newest first."""
        return await self._store.versions(caller.account, path) if is_path(path) else []

    async def version(self, caller: Caller, path: str, version: int) -> HostedDocument | None:
        """A version of a file of an account; None if there is no such version."""
        if not is_path(path):
            return None
        return await self._store.one_version(caller.account, path, version)

    async def content(self, url: str) -> Content | None:
        """The content of a topic; None if there is no such topic.  See ``ServedTopics``."""
        name, _, path = url.removeprefix(f"{self.base}/").partition("/")
        if not is_path(f"{name}/{path}"):
            return None
        found = await self.cache.read((name, path))
        if not isinstance(found, CachedFile) or not found.content.is_topic:
            return None
        return Content(found.content.body, found.content.media_type)

    async def _check_document(
        self, caller: Caller, path: str, body: bytes, content_type: str = ""
    ) -> HostedDocument:
        """Check the body of a file, and make the document that can be stored.

        If it is not small, a parser process checks it, since that may take long.

        :raises NotStored: it is too large, or not what is stored here.
        """
        if len(body) > self.max_bytes:
            raise NotStored(
                f"This has {len(body):,} bytes; a feed or file may have {self.max_bytes:,}.", 413
            )
        document = (path, body, content_type)
        if len(body) <= documents.SMALL:
            return HostedDocument(body, *documents.check_document(*document))
        try:
            facts = await self._parts.parse(caller.name, documents.check_document, *document)
        except DocumentUnread as error:
            raise NotStored(f"This is not stored: {error.reason}.") from error
        return HostedDocument(body, *facts)

    def _admit(self, caller: Caller) -> None:
        """Let a caller change files now, or raise ``NotStored`` or ``TooMany``."""
        if "publish" not in caller.scopes:
            raise NotStored("This token does not allow to save: it needs the scope publish.", 403)
        if pause := self._seconds_to_wait(caller.name):
            raise TooMany("your account saves too often", pause)

    async def _store_and_publish(
        self,
        caller: Caller,
        path: str,
        document: HostedDocument,
        source: str,
        condition: Condition = ALWAYS,
    ) -> bool:
        """Store a document as the new version of a file, and publish it if it is a topic."""
        key = (caller.name, path)
        now, max_bytes = self._parts.clock.wall_seconds(), self.max_bytes_of(caller)
        wanted = Save(caller.account, path, document, now, max_bytes, condition)
        url = self.url_of(*key)
        with self.cache.changing(key):
            if not document.is_topic:
                self._parts.publisher.check(url, source)
                return await self._store.save(wanted)
            content = Content(document.body, document.media_type)
            saving = Batched(save_all, wanted)
            created: bool = await self._parts.publisher.publish(url, content, saving, source)
            return created

    def _make_answers(self, key: Key, content: Served) -> FileAnswers:
        """Make the answers for a file; those of a topic name the hub, if there is one."""
        link = ""
        if self._hub and content.is_topic:
            link = encode([(self._hub, "hub"), (self.url_of(*key), "self")])
        return FileAnswers.of(content, link, self._parts.clock.wall_seconds(), self._sheet)
