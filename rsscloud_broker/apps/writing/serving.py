"""Serves what accounts publish to the broker, and hands it to the accounts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from rsscloud_broker.apps.writing.upload_rows import CHUNK, StoredUpload
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import AccountFile, Caller
from rsscloud_broker.model import Content
from rsscloud_broker.model.administration import PublishedWork
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire.text import parse_number

#: How many messages are in each feed that an account takes away, and how many files are read at a
#: time.
AT_ONCE: Final = 200


class FeedTopics:
    """Reads feeds as topics, for the broker; for administrators, says what accounts publish and
    takes it down; and for accounts, hands out all that they have.
    """

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    async def read(self, url: str) -> Content | None:
        """The content of a feed by its URL; None if it is not the URL of a feed."""
        name = url.removeprefix(f"{self._writing.feeds.home_url('')}").partition("/")[0]
        author = await self._writing.store.author_named(name)
        if author is None or not author.is_public:
            return None
        found = (await self._writing.feeds_of(author)).get(url)
        return found.content if found else None

    async def published(self, name: str, limit: int) -> list[PublishedWork]:
        """What an account publishes: see ``ServedTopics.published``."""
        writing = self._writing
        author = await writing.store.author_named(name)
        if author is None:
            return []
        posts = await writing.store.published(author, limit)
        files = await writing.store.uploads(author.account_id, limit)
        page_url, file_url = writing.feeds.page_url, writing.files.url
        return [
            PublishedWork(page_url(each), "message", each.title or each.text, each.created_at)
            for each in posts
        ] + [
            PublishedWork(file_url(name, each), "file", each.name, each.created_at)
            for each in files
        ]

    async def take_down(self, url: str, reason: str, record: Callable[[Any], None]) -> bool:
        """Delete a message or an uploaded file: see ``ServedTopics.take_down``.

        A message that has a file which was taken down stays, and its link leads to nothing.
        """
        writing = self._writing
        if (file := writing.files.parse_url(url)) is not None:
            name, digest = file
            author = await writing.store.author_named(name)
            return author is not None and await writing.remove_file(author, digest, record)
        home, _, last = url.rpartition("/")
        number = parse_number(last)
        author = await writing.store.author_named(home.rpartition("/")[2])
        if author is None or number is None:
            return False
        if normal_form(writing.feeds.home_url(author.name)) != normal_form(home):
            return False
        # Nobody else can read a draft.
        return await writing.remove(author, number, "", record, drafts=False)

    async def account_files(self, caller: Caller) -> AsyncIterator[AccountFile]:
        """The files of an account: feeds of messages and of drafts, and uploads.  See ``IApp``."""
        author = await self._writing.store.author_of(caller.account.id)
        if author is None:
            return
        for name, is_draft in (("messages", False), ("drafts", True)):
            before, number = None, 0
            while posts := await self._writing.store.all_posts(
                author.account_id, AT_ONCE, before, is_draft
            ):
                before, number = posts[-1].id, number + 1
                yield AccountFile(f"{name}/{number}.xml", self._writing.rss_of(author, posts))
        last = None  # others may be deleted and added while these are sent
        while files := await self._writing.store.uploads(author.account_id, AT_ONCE, before=last):
            last = files[-1].id
            for each in files:
                yield AccountFile(f"files/{each.digest[:12]} {each.name}", self._pieces(each))

    async def _pieces(self, upload: StoredUpload) -> AsyncIterator[bytes]:
        """The bytes of a file, a piece at a time."""
        for number in range(-(-upload.size // CHUNK)):  # rounded up
            piece = await self._writing.store.get_chunk(upload.id, number)
            if piece is None:
                raise Unavailable("a file was deleted meanwhile")
            yield piece
