"""Stores which files accounts have uploaded; the files themselves are on the disk: see ``uploads``.

Each function runs as one step of a transaction that the caller began; ``store`` runs them as
transactions of their own.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen
from sqlalchemy import Connection, Row, delete, func, insert, select

from rsscloud_broker.apps.writing.schema import author, upload
from rsscloud_broker.tables import to_micros


@frozen
class StoredUpload:
    """An upload as it is stored.

    :ivar digest: SHA-256 of the file, in hexadecimal.
    """

    digest: str
    name: str
    media_type: str
    size: int


def add_upload(
    conn: Connection, account_id: int, new: StoredUpload, at: float, quota: int
) -> StoredUpload | None:
    """Store that an account has uploaded a file.

    :param quota: how many bytes all its files may have together.
    :returns: the upload, which may have been there before; None if it would exceed the quota.
    """
    found = upload_of(conn, account_id, new.digest)
    if found is not None:
        return found
    mine = upload.c.account_id == account_id
    used = conn.execute(select(func.coalesce(func.sum(upload.c.size), 0)).where(mine)).scalar_one()
    if used + new.size > quota:
        return None
    values = {
        "account_id": account_id,
        "digest": new.digest,
        "name": new.name,
        "media_type": new.media_type,
        "size": new.size,
        "created_at": to_micros(at),
    }
    conn.execute(insert(upload).values(values))
    return new


def upload_of(conn: Connection, account_id: int, digest: str) -> StoredUpload | None:
    """An upload of an account by its digest; None if there is none."""
    wanted = (upload.c.account_id == account_id, upload.c.digest == digest)
    row = conn.execute(select(upload).where(*wanted)).first()
    return None if row is None else _upload(row)


def upload_named(conn: Connection, name: str, digest: str) -> StoredUpload | None:
    """An upload by the name of its account and its digest; None if there is none."""
    owner = select(author.c.account_id).where(author.c.name == name)
    account_id = conn.execute(owner).scalar()
    return None if account_id is None else upload_of(conn, account_id, digest)


def uploads(conn: Connection, account_id: int, limit: int, skipped: int = 0) -> list[StoredUpload]:
    """The uploads of an account, the newest first.

    :param skipped: how many of them are left out.
    """
    mine = select(upload).where(upload.c.account_id == account_id)
    newest = mine.order_by(upload.c.id.desc()).limit(limit).offset(skipped)
    return list(map(_upload, conn.execute(newest)))


def remove_upload(conn: Connection, account_id: int, digest: str) -> bool:
    """Forget an upload of an account.  Returns whether the account had it."""
    wanted = (upload.c.account_id == account_id, upload.c.digest == digest)
    return conn.execute(delete(upload).where(*wanted)).rowcount > 0


def _upload(row: Row[Any]) -> StoredUpload:
    return StoredUpload(row.digest, row.name, row.media_type, row.size)
