"""Writes messages: stores them and publishes the feeds that change with them.

A message, the new feeds and the beginning of the notifications are one transaction, so a crash
leaves all of it or nothing.  Two changes at the same moment are made in turn: see ``rows``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from attrs import evolve
from twisted.internet.defer import DeferredLock

from rsscloud_broker.apps.writing.enclosures import Enclosures
from rsscloud_broker.apps.writing.feeds import FORMATS, AccountFeeds
from rsscloud_broker.apps.writing.file_urls import FileUrls, shown_name
from rsscloud_broker.apps.writing.model import (
    Enclosure,
    InvalidPost,
    Missing,
    NewPost,
    Post,
    Revise,
)
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.apps.writing.pace import PerMinuteLimit
from rsscloud_broker.apps.writing.rows import Author, Outdated, Snapshot, apply, forget
from rsscloud_broker.apps.writing.rules import check_and_tidy
from rsscloud_broker.apps.writing.store import PostStore, Uploads
from rsscloud_broker.apps.writing.upload_rows import StoredUpload
from rsscloud_broker.errors import DiskFull, Forbidden, Unavailable
from rsscloud_broker.interfaces import AppParts, Caller
from rsscloud_broker.model import Content
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.web.feed_answers import WrittenFeed, later_second
from rsscloud_broker.wire.units import MINUTE

#: How many messages are in a feed, the newest: readers fetch more often than that many are written.
FEED_ITEMS = 50

#: Makes the new state of a message from what is there; None if it is to be deleted.
_Make = Callable[[Snapshot, float], Post | None]


class _SentAgain(Exception):
    """A message is the newest one, which was sent again.  Nothing was stored.

    :ivar post: the newest one.
    """

    def __init__(self, post: Post) -> None:
        super().__init__(post.id)
        self.post = post


class _Changed(Exception):
    """A message has changed since its new content was made from it.  Nothing was stored."""


class Writing:
    """Writes and reads the messages of accounts, and reads feeds for those who serve them.

    Who may act for an account is the front door's business: each method does what the caller's
    account can do.  ``source`` is the address from which the caller calls.

    Methods that change something raise ``InvalidPost`` if what was sent breaks a rule, ``TooMany``
    if the account has written too often, ``Forbidden`` if the operator has blocked the source or
    the feed, ``DiskFull`` if the disk is nearly full, and ``Unavailable`` if the database cannot be
    used.  After each of these nothing has changed.

    :ivar options: the limits.
    :ivar kept_files: keeps them.
    """

    def __init__(self, options: WritingOptions, parts: AppParts) -> None:
        self.options = options
        self.feeds = AccountFeeds(parts.public_url, parts.has_hub, parts.has_cloud)
        self.files = FileUrls(parts.public_url)
        self.store = PostStore(parts.database)
        self.kept_files = Uploads(self.store, parts.clock, options.quota_bytes, parts.in_thread)
        self._enclosures = Enclosures(parts.web, self.files, self.store)
        self._parts = parts
        per_minute = options.posts_per_minute
        self._limit_of_changes = PerMinuteLimit(parts.clock, per_minute, "changes of messages")
        self._limit_of_uploads = PerMinuteLimit(parts.clock, per_minute, "uploads")
        self._locks: dict[int, DeferredLock] = {}  # by account, of which there are never many
        self._feeds_kept: BoundedDict[int, tuple[int, Mapping[str, WrittenFeed]]] = BoundedDict(
            100  # How many authors' feeds are kept in memory.
        )

    async def post(self, caller: Caller, post_id: int) -> Post | None:
        """A message of the caller, which may be a draft; None if there is no such message."""
        author = await self.store.author_of(caller.account.id)
        return await self.store.find_post(author, post_id) if author else None

    async def feeds_of(self, author: Author) -> Mapping[str, WrittenFeed]:
        """The present feeds of an author, by their URLs; those used last are kept in memory."""
        version, feeds = self._feeds_kept.get(author.account_id, (-1, {}))
        if version != author.version:
            posts = await self.store.published(author, FEED_ITEMS)
            feeds = await self._write(author, posts)
            self._feeds_kept[author.account_id] = (author.version, feeds)
        return feeds

    async def _write(self, author: Author, posts: Sequence[Post]) -> Mapping[str, WrittenFeed]:
        """The feeds of an author with some messages, by their URLs; they are made in a thread."""
        feeds: Mapping[str, WrittenFeed] = await self._parts.in_thread(
            self.feeds.write, author, posts
        )
        return feeds

    async def rss_of(self, author: Author, posts: Sequence[Post]) -> AsyncIterator[bytes]:
        """Messages of an author as an RSS feed, in one piece."""
        yield await self._parts.in_thread(self.feeds.write_rss, author, posts)

    async def add(self, caller: Caller, new: NewPost, source: str) -> Post:
        """Store a message.  Unless it is a draft, it is published and subscribers are notified.

        A message that was published within the last minute, with nothing after it, is not published
        again: somebody has pressed twice, or an editor had no answer and has tried again.
        """
        post = check_and_tidy(new, self.options.max_characters)
        self._limit_of_changes.take(caller.account.id)
        file = await self._enclosures.of(post)

        def make(snapshot: Snapshot, at: float) -> Post:
            made = self._new_state(snapshot, snapshot.author.next_id, post, file, at)
            for newest in snapshot.published[:1]:
                is_last = newest.id == made.id - 1 and abs(at - newest.created_at) < MINUTE
                if is_last and newest.as_new() == made.as_new():
                    raise _SentAgain(newest)
            return made

        try:
            made = await self._change(await self._ensure_author(caller), None, make, source)
        except _SentAgain as again:
            return again.post
        assert made is not None  # `make` never deletes
        return made

    async def preview(self, caller: Caller, new: NewPost) -> Post:
        """A message as it would look.  Nothing is stored, and no other server is asked."""
        post = check_and_tidy(new, self.options.max_characters)
        url = self.files.as_stored(post.enclosure_url)
        others = None if self.files.parse_url(url) else Enclosure(url, "", 0)
        file = await self._enclosures.of(post, others)
        home = self.feeds.home_url(caller.name)
        nothing = Snapshot(Author(caller.account.id, caller.name, home, 0, 1, 0.0), (), None)
        return self._new_state(nothing, 0, post, file, self._parts.clock.wall_seconds())

    async def edit(self, caller: Caller, post_id: int, new: NewPost | Revise, source: str) -> Post:
        """Give a message of the caller a new content.

        A draft is published if ``new.is_draft`` is false.  A published message that becomes a
        draft disappears from the feeds.

        :param new: the content; or what makes it, which is called again if the message has changed
            meanwhile, so that nothing is lost of two changes at the same moment.
        :raises InvalidPost: the caller has no such message, too.
        """
        file: Enclosure | None = None
        for attempt in range(100):  # as many changes of a message at once are not lost
            old = await self.post(caller, post_id)
            if old is None:
                raise Missing(post_id)
            wanted = new if isinstance(new, NewPost) else await new(old)
            post = check_and_tidy(wanted, self.options.max_characters)
            if attempt == 0:
                self._limit_of_changes.take(caller.account.id)
            file = await self._enclosures.of(post, old.enclosure, file)
            with suppress(_Changed):
                return await self._replace(caller, old, post, file, source)
        raise Unavailable("your message is being changed from somewhere else all the time")

    async def _replace(
        self, caller: Caller, old: Post, new: NewPost, file: Enclosure | None, source: str
    ) -> Post:
        """Give a message a new content.

        :raises _Changed: it is no longer ``old``.
        """

        def make(snapshot: Snapshot, at: float) -> Post:
            if snapshot.old is None:
                raise Missing(old.id)
            if snapshot.old != old:
                raise _Changed
            return self._new_state(snapshot, old.id, new, file, at)

        made = await self._change(await self._ensure_author(caller), old.id, make, source)
        assert made is not None  # `make` never deletes
        return made

    async def delete(self, caller: Caller, post_id: int, source: str) -> bool:
        """Delete a message of the caller.  Returns whether there was such a message."""
        if await self.post(caller, post_id) is None:
            return False
        self._limit_of_changes.take(caller.account.id)
        return await self.remove(await self._ensure_author(caller), post_id, source)

    async def remove(
        self,
        author: Author,
        post_id: int,
        source: str,
        record: Callable[[Any], None] = lambda conn: None,
        *,
        drafts: bool = True,
    ) -> bool:
        """Delete a message, unless it is a draft and ``drafts`` is false.

        :param record: what else happens in the same transaction.
        :returns: whether there was such a message.
        """

        def make(snapshot: Snapshot, at: float) -> None:
            old = snapshot.old  # as it is now, if another process was faster
            if old is None or (old.is_draft and not drafts):
                raise Missing(post_id)

        try:
            await self._change(author, post_id, make, source, record)
        except Missing:
            return False
        return True

    async def remove_file(self, author: Author, digest: str, record: Callable[[Any], None]) -> bool:
        """Delete a file of an author; returns whether it was there.  Messages that have it stay."""
        async with self._lock_of(author):
            return await self.kept_files.remove(author.account_id, digest, record)

    def _new_state(
        self, snapshot: Snapshot, post_id: int, new: NewPost, file: Enclosure | None, at: float
    ) -> Post:
        """The new state of a message, with its place among the others."""
        old = snapshot.old
        position = 0 if new.is_draft else snapshot.author.version + 1
        created_at = at
        if old is not None and (new.is_draft or not old.is_draft):
            created_at = old.created_at
        if old is not None and not new.is_draft and not old.is_draft:
            position = old.position
        return Post(
            post_id,
            f"{snapshot.author.base}/{post_id}",
            snapshot.author.account_id,
            new.text,
            new.title,
            self.files.as_stored(new.link),
            file,
            new.categories,
            self.files.outline_as_stored(new.items),
            created_at,
            max(at, created_at),
            position,
            author=snapshot.author.name,
        )

    async def _change(
        self,
        author: Author,
        post_id: int | None,
        make: _Make,
        source: str,
        also_store: Callable[[Any], None] = lambda conn: None,
    ) -> Post | None:
        """Change, add or delete a message, and publish the feeds unless it is and was a draft.

        :param post_id: None for a new message.
        :param make: returns the new state of the message; None to delete it.
        :param also_store: an operation that is part of the transaction that publishes the feeds.
        :returns: the message afterwards; None if it was deleted.
        """
        async with self._lock_of(author):
            for _ in range(10):  # each further time only if another process was faster
                with suppress(Outdated):
                    return await self._change_once(author, post_id, make, source, also_store)
        raise Unavailable("your messages are being changed from somewhere else all the time")

    def _lock_of(self, author: Author) -> DeferredLock:
        """Held while messages or files of an author change, so that changes wait for each other."""
        return self._locks.setdefault(author.account_id, DeferredLock())

    async def _change_once(
        self,
        author: Author,
        post_id: int | None,
        make: _Make,
        source: str,
        also_store: Callable[[Any], None],
    ) -> Post | None:
        """Change, add or delete a message, and publish the feeds: one attempt of ``_change``.

        :raises Outdated: another process was faster.  Nothing has changed.
        """
        # One more than a feed has: if a message leaves the feed, the next older one comes in.
        snapshot = await self.store.snapshot(author, FEED_ITEMS + 1, post_id)
        at = self._parts.clock.wall_seconds()
        new = make(snapshot, at)
        old = snapshot.old
        is_public = any(each is not None and not each.is_draft for each in (old, new))
        present = new or old
        number = present.id if present else 0
        at = later_second(at, snapshot.author.changed_at)
        change = (snapshot.author, number, new, is_public, at)
        if not is_public:
            if new is not None:
                self._parts.publisher.check(self.feeds.url(snapshot.author.name), source)
            await self.store.apply(*change)
            return new
        others = [each for each in snapshot.published if each.id != number]
        public = [*others, new] if new is not None and not new.is_draft else others
        newest = sorted(public, key=lambda each: -each.position)[:FEED_ITEMS]
        after = evolve(snapshot.author, version=snapshot.author.version + 1, changed_at=at)
        feeds = await self._write(after, newest)
        contents = {url: feed.content for url, feed in feeds.items()}

        def store_change(conn: Any) -> None:
            apply(conn, *change)
            also_store(conn)

        await self._publish(contents, store_change, source)
        self._feeds_kept[after.account_id] = (after.version, feeds)
        return new

    async def _publish(
        self, contents: Mapping[str, Content], operation: Callable[[Any], None], source: str
    ) -> None:
        """Store a change, and publish the feeds that it changes.

        Without a caller, an administrator takes something down, which must be possible in a blocked
        feed too, and when the disk is nearly full.  A feed that cannot be published then is only
        stored: those who read it do not find any more what is gone.

        :param contents: the new feeds by URL.
        :param source: the address of the caller; empty if there is no caller.
        """
        if not source:
            contents = {url: one for url, one in contents.items() if self._may_be_published(url)}
        if contents:
            await self._parts.publisher.publish_all(contents, operation, source)
        else:
            await self._parts.database.write(operation)

    def _may_be_published(self, url: str) -> bool:
        """Whether a feed may be published now if there is no caller."""
        try:
            self._parts.publisher.check(url, "")
        except (DiskFull, Forbidden):
            return False
        return True

    async def _ensure_author(self, caller: Caller) -> Author:
        """Find or make the author of the caller, in place of a removed account of that name."""
        found = await self.store.author_of(caller.account.id)
        if found is not None:
            return found
        base = self.feeds.home_url(caller.name)
        former = await self.store.author_named(caller.name)
        if former is not None and former.account_id < caller.account.id:
            while await self.store.forget_some(former.account_id):
                pass
        return await self.store.ensure_author(caller.account.id, caller.name, base)

    async def forget_account(self, account_id: int) -> None:
        """Delete all that a removed account has: its messages and its files; its feeds end."""
        while await self.store.forget_some(account_id):
            pass
        author = await self.store.author_of(account_id)
        feeds = [self.feeds.url(author.name, file) for file in FORMATS] if author else []
        if author is None or not author.is_public:
            await self.store.forget(account_id)
        else:
            reason = "the account that wrote it was removed"
            for url in feeds[:-1]:
                await self._parts.publisher.remove(url, reason, lambda conn: None, "")
            # What belongs to it goes last: until then a crash only means that this is done again.
            await self._parts.publisher.remove(
                feeds[-1], reason, lambda conn: forget(conn, account_id), ""
            )
        self._feeds_kept.pop(account_id, (-1, {}))
        self._locks.pop(account_id, None)
        await self.kept_files.sweep()

    async def upload(self, caller: Caller, name: str, data: bytes, source: str) -> StoredUpload:
        """Store a file, whose URL (``files.url``) can then be the enclosure of a message.

        :param name: the name that the client gave it; it may be anything.
        """
        most = self.options.max_upload_bytes
        if not data:
            raise InvalidPost("the file is empty; choose another one")
        if len(data) > most:
            raise InvalidPost(f"the file has {len(data):,} bytes; it may have {most:,}")
        self._limit_of_uploads.take(caller.account.id)
        author = await self._ensure_author(caller)
        self._parts.publisher.check(self.feeds.url(caller.name), source)
        async with self._lock_of(author):
            return await self.kept_files.keep(caller.account, shown_name(name), data)

    async def remove_upload(self, caller: Caller, digest: str) -> bool:
        """Delete an uploaded file.  Returns whether the caller had it.

        :raises InvalidPost: the file is in a message of the caller.
        """
        account_id, author = caller.account.id, await self.store.author_of(caller.account.id)
        if author is None or await self.store.upload_named(author.name, digest) is None:
            return False
        async with self._lock_of(author):
            if number := await self.store.post_with_file(account_id, digest):
                raise InvalidPost(
                    f"the file belongs to your message {number}; delete the message first, or take "
                    "the file out of it"
                )
            return await self.kept_files.remove(account_id, digest)
