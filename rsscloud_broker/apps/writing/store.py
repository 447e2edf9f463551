"""The part of the database that belongs to the authoring tool, and the uploaded files in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

from attrs import define

from rsscloud_broker.apps.writing import rows, upload_rows
from rsscloud_broker.apps.writing.file_urls import media_type
from rsscloud_broker.apps.writing.model import InvalidPost
from rsscloud_broker.apps.writing.upload_rows import AT_ONCE, CHUNK, StoredUpload, UploadLost
from rsscloud_broker.database.methods import reading, writing
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import Account, IClock, IDatabase


class PostStore:
    """Runs the functions of ``rows`` and ``upload_rows``, each as one transaction.

    :param database: for the tables of the application.
    """

    def __init__(self, database: IDatabase) -> None:
        self._database = database

    author_of = reading(rows.author_of)
    author_named = reading(rows.author_named)
    authors = reading(rows.authors)
    ensure_author = writing(rows.ensure_author)
    forget = writing(rows.forget)
    forget_some = writing(rows.forget_some)
    is_former = reading(rows.is_former)
    snapshot = reading(rows.snapshot)
    published = reading(rows.published)
    find_post = reading(rows.find_post)
    all_posts = reading(rows.all_posts)
    post_with_file = reading(rows.post_with_file)
    apply = writing(rows.apply)
    categories = reading(rows.categories)
    keep_unsent = writing(rows.keep_unsent)
    unsent_of = reading(rows.unsent_of)
    drop_unsent = writing(rows.drop_unsent)
    begin_upload = writing(upload_rows.begin_upload)
    put_chunks = writing(upload_rows.put_chunks)
    get_chunk = reading(upload_rows.get_chunk)
    give_up = writing(upload_rows.give_up)
    upload_named = reading(upload_rows.upload_named)
    uploads = reading(upload_rows.uploads)
    remove_upload = writing(upload_rows.remove_upload)
    drop_unfinished = writing(upload_rows.drop_unfinished)
    lost_uploads = reading(upload_rows.lost_uploads)
    drop_chunks = writing(upload_rows.drop_chunks)


@define(eq=False)
class Uploads:
    """Keeps the files of all accounts, and deletes what is left over of those that are gone.

    :param quota: how many bytes the files of one account may have together, unless an
        administrator has set another limit for it.
    """

    _store: PostStore
    _clock: IClock
    _quota: int
    _in_thread: Callable[..., Awaitable[Any]]

    async def keep(self, account: Account, name: str, data: bytes) -> StoredUpload:
        """Store a file.  If this fails, nothing of it stays.

        :param name: the name for people.
        :raises InvalidPost: the files of the account would be too large together.
        :raises Unavailable: the database cannot be used, or has no space.
        """
        digest = await self._in_thread(sha256, data)
        new = StoredUpload(digest.hexdigest(), name, media_type(data), len(data))
        at = self._clock.wall_seconds()
        quota = account.max_bytes or self._quota
        begun = await self._store.begin_upload(account.id, new, at, quota)
        if begun is None:
            raise InvalidPost(
                f"your files would have more than {quota:,} bytes together, which is all "
                "that an account may have; delete some that you need no more"
            )
        if not begun.is_whole:
            await self._store_chunks(begun.id, data)
        return begun

    async def _store_chunks(self, upload_id: int, data: bytes) -> None:
        """Store the pieces of a file, or none: then ``Unavailable`` is raised."""
        chunks = [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]
        try:
            for first in range(0, len(chunks), AT_ONCE):
                some, is_last = chunks[first : first + AT_ONCE], first + AT_ONCE >= len(chunks)
                await self._store.put_chunks(upload_id, first, some, is_last)
        except UploadLost:
            await self._drop_chunks(upload_id)
            raise Unavailable("another upload of the same file came in between") from None
        except Unavailable:
            await self._store.give_up(upload_id)
            raise

    async def remove(
        self, account_id: int, digest: str, record: Callable[[Any], None] | None = None
    ) -> bool:
        """Delete a file.  Returns whether the account had it.

        :param record: an operation that is part of the same transaction, if there was the file.
        """
        removed = await self._store.remove_upload(account_id, digest, record)
        if removed is None:
            return False
        await self._drop_chunks(removed)
        return True

    async def sweep(self) -> None:
        """Delete what is left of uploads that a crash interrupted, or whose account is removed."""
        # An upload that is not whole after an hour is given up: its node has crashed.
        await self._store.drop_unfinished(self._clock.wall_seconds() - 3600.0)
        # Of how many uploads one look takes care.
        for upload_id in await self._store.lost_uploads(1000):
            await self._drop_chunks(upload_id)

    async def _drop_chunks(self, upload_id: int) -> None:
        """Delete the pieces of an upload that is gone."""
        while await self._store.drop_chunks(upload_id):
            pass
