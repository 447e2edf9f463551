"""What an account takes away: its messages as feeds, its drafts, and its files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from rsscloud_broker.apps.writing.model import Post
from rsscloud_broker.apps.writing.rows import Author
from rsscloud_broker.apps.writing.upload_rows import CHUNK, StoredUpload
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import AccountFile, Caller

#: How many messages are in each feed, and how many files are read at a time.
AT_ONCE: Final = 200


class TakingAway:
    """The files with all that an account has written and uploaded."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    async def files(self, caller: Caller) -> AsyncIterator[AccountFile]:
        """The files of an account: feeds of messages and of drafts, and uploads.  See ``IApp``."""
        author = await self._writing.store.author_of(caller.account.id)
        if author is None:
            return
        for name, is_draft in (("messages", False), ("drafts", True)):
            before, number = None, 0
            while posts := await self._writing.posts(caller, AT_ONCE, before, is_draft):
                before, number = posts[-1].id, number + 1
                yield AccountFile(f"{name}/{number}.xml", self._feed(author, posts))
        skipped = 0
        while files := await self._writing.store.uploads(author.account_id, AT_ONCE, skipped):
            skipped += len(files)
            for each in files:
                yield AccountFile(f"files/{each.digest[:12]} {each.name}", self._pieces(each))

    async def _feed(self, author: Author, posts: Sequence[Post]) -> AsyncIterator[bytes]:
        """Some messages as a feed, made when the file is read."""
        yield await self._writing.rss_of(author, posts)

    async def _pieces(self, upload: StoredUpload) -> AsyncIterator[bytes]:
        """An upload, piece by piece."""
        for number in range(-(-upload.size // CHUNK)):  # rounded up
            piece = await self._writing.store.get_chunk(upload.id, number)
            if piece is None:
                raise Unavailable("a file was deleted meanwhile")
            yield piece
