"""The SQL that finds and deletes files; ``saving`` stores them.

Each function runs in a transaction that the caller began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import field, frozen
from sqlalchemy import Connection, Row, and_, delete, select, update

from rsscloud_broker.apps.hosting.documents import HostedDocument, NotStored
from rsscloud_broker.apps.hosting.schema import feed, version
from rsscloud_broker.database.columns import MICROSECONDS, record_of, to_seconds
from rsscloud_broker.interfaces import Account
from rsscloud_broker.wire.conditional import ALWAYS, Condition

#: The ``account_id`` of deleted files whose account is gone: those who ask for one learn that it is
#: gone for good.  Who gets the name next takes them over.
NOBODY: Final = 0


@frozen
class File:
    """A file of an account.

    :ivar account: the name of the account.
    :ivar path: below the name of the account.
    :ivar size: the bytes of its present version.
    :ivar versions: how many versions are kept.
    :ivar saved_at: when the present version was saved.
    :ivar is_topic: whether others may subscribe to it.
    """

    account: str
    path: str
    size: int
    versions: int
    saved_at: float
    is_topic: bool


@frozen
class Version:
    """A version of a file.

    :ivar is_present: whether it is the one that is served.
    """

    id: int
    size: int
    media_type: str
    saved_at: float
    is_present: bool


@frozen
class StoredFile:
    """The present version of a file, as it is served.

    :ivar version: its id; 0 if the file was deleted.
    :ivar content: what is served; None if the caller has it, or the file was deleted.
    """

    version: int
    content: Served | None = None


@frozen
class Served:
    """A content with what its headers say.

    :ivar packed: the body compressed by gzip; empty if that is no shorter.
    :ivar modified_at: seconds since the epoch, whole.
    """

    body: bytes = field(repr=False)
    packed: bytes = field(repr=False)
    media_type: str
    digest: bytes
    modified_at: int
    is_topic: bool


_PRESENT = feed.outerjoin(version, version.c.id == feed.c.version_id)
#: Selects files with what is known of their present versions.
FILES = select(
    feed, version.c.digest, version.c.media_type, version.c.saved_at, version.c.modified_at
).select_from(_PRESENT)


def tag_of(digest: bytes) -> str:
    """What identifies a content with a digest; the ETags of a file begin with it."""
    return digest.hex()[:32]


def check_condition(condition: Condition, row: Row[Any] | None) -> None:
    """Raise ``NotStored`` if a condition does not hold of a file.

    :param row: one of ``FILES``; None if there is no file.
    """
    tag, modified_at = None, 0.0
    if row is not None and row.version_id is not None:
        tag, modified_at = tag_of(row.digest), to_seconds(row.modified_at)
    if not condition.holds(tag, modified_at):
        raise NotStored(
            "Nothing was changed, since the file is not as your request says (If-Match, "
            "If-None-Match or If-Unmodified-Since): somebody has changed it. Read it again.",
            412,
        )


def remove(
    conn: Connection,
    account: str,
    path: str,
    condition: Condition = ALWAYS,
    record: Callable[[Any], None] = lambda conn: None,
) -> bool:
    """Delete a file with its versions, by the name of its account, which may be gone.

    That it was there is remembered.

    :param condition: what must hold of the file.
    :param record: what else happens if there was such a file.
    :returns: whether there was such a file.
    :raises NotStored: the condition does not hold.
    """
    there = (feed.c.account == account, feed.c.path == path, feed.c.version_id.is_not(None))
    row = conn.execute(FILES.where(*there)).first()
    if row is None:
        return False
    check_condition(condition, row)
    conn.execute(delete(version).where(version.c.feed_id == row.id))
    nothing = {"version_id": None, "size": 0, "stored": 0, "versions": 0}
    conn.execute(update(feed).where(feed.c.id == row.id).values(nothing))
    record(conn)
    return True


def next_file_of(conn: Connection, account_id: int) -> File | None:
    """The first file that is still stored of an account that is gone; None if none is."""
    mine = (feed.c.account_id == account_id, feed.c.version_id.is_not(None))
    row = conn.execute(FILES.where(*mine).order_by(feed.c.id).limit(1)).first()
    return None if row is None else record_of(File, row)


def public_file(conn: Connection, account: str, path: str) -> File | None:
    """A file that is served, by the name of its account; None if there is none."""
    there = (feed.c.account == account, feed.c.path == path, feed.c.version_id.is_not(None))
    row = conn.execute(FILES.where(*there)).first()
    return None if row is None else record_of(File, row)


def disown(conn: Connection, account_id: int) -> None:
    """Remember the deleted files of an account that is gone, as files of nobody."""
    mine = (feed.c.account_id == account_id, feed.c.version_id.is_(None))
    conn.execute(update(feed).where(*mine).values(account_id=NOBODY))


def files(conn: Connection, account: Account) -> list[File]:
    """The files of an account, by path."""
    mine = (feed.c.account_id == account.id, feed.c.version_id.is_not(None))
    return [record_of(File, row) for row in conn.execute(FILES.where(*mine).order_by(feed.c.path))]


def files_named(conn: Connection, account: str, limit: int) -> list[File]:
    """The files that are served below the name of an account, the newest first."""
    named = (feed.c.account == account, feed.c.version_id.is_not(None))
    newest = FILES.where(*named).order_by(version.c.saved_at.desc(), feed.c.path).limit(limit)
    return [record_of(File, row) for row in conn.execute(newest)]


def versions(conn: Connection, account: Account, path: str) -> list[Version]:
    """The versions of a file, the newest first."""
    mine = (feed.c.account_id == account.id, feed.c.path == path)
    columns = (version.c.id, version.c.size, version.c.media_type, version.c.saved_at)
    found = select(*columns, feed.c.version_id).join(feed, feed.c.id == version.c.feed_id)
    rows = conn.execute(found.where(*mine).order_by(version.c.id.desc()))
    return [record_of(Version, row, is_present=row.id == row.version_id) for row in rows]


def one_version(conn: Connection, account: Account, path: str, key: int) -> HostedDocument | None:
    """A version of a file by its id; None if the account has no such version."""
    mine = (feed.c.account_id == account.id, feed.c.path == path, version.c.id == key)
    columns = (version.c.body, version.c.media_type, version.c.packed, feed.c.is_topic)
    found = select(*columns).join(feed, feed.c.id == version.c.feed_id)
    row = conn.execute(found.where(*mine)).first()
    return None if row is None else record_of(HostedDocument, row)


def present(conn: Connection, account: str, path: str, known: int = 0) -> StoredFile | None:
    """The present version of a file.

    :param account: the name of the account.
    :param known: the id of the version that the caller has.
    :returns: None if there never was such a file.
    """
    wanted = (feed.c.account == account, feed.c.path == path)
    # The version that the caller has is not joined, so that its bytes are not read.
    unknown = and_(version.c.id == feed.c.version_id, version.c.id != known)
    found = select(feed.c.version_id, feed.c.is_topic, version).select_from(
        feed.outerjoin(version, unknown)
    )
    row = conn.execute(found.where(*wanted)).first()
    if row is None:
        return None
    if row.body is None:
        return StoredFile(row.version_id or 0)
    second = row.modified_at // MICROSECONDS
    content = Served(row.body, row.packed, row.media_type, row.digest, second, row.is_topic)
    return StoredFile(row.version_id, content)
