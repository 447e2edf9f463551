"""Stores the files that accounts have uploaded, in pieces.

Every node that uses the database can serve them, and backups of the database have them.

A file is stored by several transactions, so that others need not wait for a large one: the first
stores what is known about it, and counts it in the quota; then come its pieces.  With the last one
the file is *whole*.  Nobody sees it before.

Each function runs as one step of a transaction that the caller began; ``store`` runs them as
transactions of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from attrs import frozen
from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, tuple_, update

from rsscloud_broker.apps.writing.schema import author, chunk, upload
from rsscloud_broker.database.columns import columns_of, record_of, to_micros

#: How many bytes a piece of a file has; the last one may have fewer.  Anyone who reads a file
#: slowly keeps one of them in memory.
CHUNK: Final = 64 * 1024

#: How many pieces one transaction stores or deletes.
AT_ONCE: Final = 8


class UploadLost(Exception):
    """An upload was removed while its pieces were being stored."""


@frozen
class StoredUpload:
    """A file that an account has uploaded, as it is stored.

    :ivar digest: SHA-256 of the file, in hexadecimal.
    :ivar name: the name for people: that of the file that was uploaded, made harmless.
    :ivar media_type: what the broker found it to be by its first bytes.
    :ivar id: 0 if it is not stored yet.
    """

    digest: str
    name: str
    media_type: str
    size: int
    id: int = 0
    is_whole: bool = False
    created_at: float = 0.0


def begin_upload(
    conn: Connection, account_id: int, new: StoredUpload, at: float, quota: int
) -> StoredUpload | None:
    """Store what is known about a file whose pieces are to be stored.

    What somebody else has stored of the same file, and not finished, is given up.

    :param quota: how many bytes all files of the account may have together.
    :returns: the upload, which may have been there before, whole; None if it would exceed the
        quota.
    """
    # On PostgreSQL, two uploads of an account wait for each other here.
    mine = author.c.account_id == account_id
    conn.execute(select(author.c.version).where(mine).with_for_update())
    same = (upload.c.account_id == account_id, upload.c.digest == new.digest)
    row = conn.execute(select(upload).where(*same)).first()
    if row is not None and row.is_whole:
        return record_of(StoredUpload, row)
    # If another node makes it whole at this moment, it stays, and this is run again.
    conn.execute(delete(upload).where(*same, ~upload.c.is_whole))
    sizes = select(func.coalesce(func.sum(upload.c.size), 0))
    used = conn.execute(sizes.where(upload.c.account_id == account_id)).scalar_one()
    if used + new.size > quota:
        return None
    values = columns_of(new, upload, account_id=account_id, created_at=to_micros(at))
    made = conn.execute(insert(upload).values(values).returning(*upload.c)).one()
    return record_of(StoredUpload, made)


def put_chunks(
    conn: Connection, upload_id: int, number: int, chunks: Sequence[bytes], is_last: bool
) -> None:
    """Store the next pieces of a file.

    :param number: the number of the first of these pieces; the first of all is 0.
    :param is_last: whether the file is whole with them.
    :raises UploadLost: the upload was removed meanwhile.
    """
    same = upload.c.id == upload_id
    if not conn.execute(update(upload).where(same).values(is_whole=is_last)).rowcount:
        raise UploadLost
    rows = [
        {"upload_id": upload_id, "number": number + place, "data": data}
        for place, data in enumerate(chunks)
    ]
    conn.execute(insert(chunk), rows)


def get_chunk(conn: Connection, upload_id: int, number: int) -> bytes | None:
    """A piece of a file; None if it is gone."""
    same = (chunk.c.upload_id == upload_id, chunk.c.number == number)
    return conn.execute(select(chunk.c.data).where(*same)).scalar()


def upload_named(conn: Connection, name: str, digest: str) -> StoredUpload | None:
    """A whole upload by the name of its account and its digest; None if there is none."""
    owned = select(upload).join(author, author.c.account_id == upload.c.account_id)
    wanted = (author.c.name == name, upload.c.digest == digest, upload.c.is_whole)
    row = conn.execute(owned.where(*wanted)).first()
    return None if row is None else record_of(StoredUpload, row)


def uploads(
    conn: Connection, account_id: int, limit: int, skipped: int = 0, before: int | None = None
) -> list[StoredUpload]:
    """The whole uploads of an account, the newest first.

    :param skipped: how many of them are left out.
    :param before: only those with smaller ids.
    """
    mine = select(upload).where(upload.c.account_id == account_id, upload.c.is_whole)
    if before is not None:
        mine = mine.where(upload.c.id < before)
    newest = mine.order_by(upload.c.id.desc()).limit(limit).offset(skipped)
    return [record_of(StoredUpload, row) for row in conn.execute(newest)]


def remove_upload(
    conn: Connection, account_id: int, digest: str, record: Callable[[Any], None] | None = None
) -> int | None:
    """Remove an upload of an account; its pieces stay, for `drop_chunks`.

    :param record: an operation that runs in the same transaction, if there was the upload.
    :returns: its id; None if the account has no such upload.
    """
    removed = _remove(conn, upload.c.account_id == account_id, upload.c.digest == digest)
    if removed is not None and record is not None:
        record(conn)
    return removed


def give_up(conn: Connection, upload_id: int) -> None:
    """Remove an upload that is not whole."""
    _remove(conn, upload.c.id == upload_id, ~upload.c.is_whole)


def drop_unfinished(conn: Connection, before: float) -> None:
    """Remove the uploads that were begun before some time and are not whole."""
    old = upload.c.created_at < to_micros(before)
    conn.execute(delete(upload).where(~upload.c.is_whole, old))


def _remove(conn: Connection, *which: ColumnElement[bool]) -> int | None:
    """Remove the upload that some conditions select.  Returns its id; None if there was none."""
    return conn.execute(delete(upload).where(*which).returning(upload.c.id)).scalar()


def lost_uploads(conn: Connection, limit: int) -> list[int]:
    """The ids of uploads that are gone and of which pieces are left."""
    has_upload = select(upload.c.id).where(upload.c.id == chunk.c.upload_id).exists()
    found = select(chunk.c.upload_id).where(~has_upload).distinct().limit(limit)
    return list(conn.execute(found).scalars())


def drop_chunks(conn: Connection, upload_id: int) -> bool:
    """Delete pieces of an upload that is gone, at most ``AT_ONCE``.

    :returns: whether some may be left.
    """
    key = tuple_(chunk.c.upload_id, chunk.c.number)
    some = select(chunk.c.upload_id, chunk.c.number).where(chunk.c.upload_id == upload_id)
    dropped = conn.execute(delete(chunk).where(key.in_(some.limit(AT_ONCE)))).rowcount
    return dropped == AT_ONCE
