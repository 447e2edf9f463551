"""The SQL of the application.  Each function runs in a transaction that the caller began."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import field, frozen
from sqlalchemy import Connection, Row, and_, bindparam, delete, insert, select, update

from rsscloud_broker.apps.hosting.documents import Document, NotStored
from rsscloud_broker.apps.hosting.schema import feed, version
from rsscloud_broker.interfaces import Account
from rsscloud_broker.tables import MICROSECONDS, to_micros, to_seconds

#: How many versions of a file are kept.
VERSIONS: Final = 20


@frozen
class Limits:
    """How much an account may have.

    :ivar bytes: how many bytes all files together, and how many bytes all versions of all files.
    :ivar files: how many files.
    """

    bytes: int
    files: int


@frozen
class File:
    """A file of an account.

    :ivar path: below the name of the account.
    :ivar size: the bytes of its present version.
    :ivar versions: how many versions are kept.
    :ivar saved_at: when the present version was saved.
    :ivar is_topic: whether others may subscribe to it.
    """

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
class Stored:
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


@frozen
class Saved:
    """What came of a save.

    :ivar created: whether there was no such file before.
    :ivar changed: whether the bytes or their type differ from those before.
    """

    created: bool
    changed: bool


_PRESENT = feed.outerjoin(version, version.c.id == feed.c.version_id)
_FILES = select(
    feed, version.c.digest, version.c.media_type, version.c.saved_at, version.c.modified_at
).select_from(_PRESENT)

# These are built once, since to build them takes longer than to execute them.
_OF_ACCOUNT = _FILES.where(feed.c.account == bindparam("name"))
_ADD_VERSION = insert(version)
_COUNT = (
    update(feed)
    .where(feed.c.id == bindparam("key"))
    .values(stored=feed.c.stored + bindparam("more"), versions=feed.c.versions + bindparam("one"))
)
_DELETE_VERSION = delete(version).where(version.c.id == bindparam("key"))
_SURPLUS = (
    select(version.c.id, version.c.feed_id, version.c.size)
    .where(version.c.feed_id == bindparam("key"))
    .order_by(version.c.id.desc())
    .limit(1000)
    .offset(VERSIONS)
)


def save(
    conn: Connection, account: Account, path: str, document: Document, at: float, limits: Limits
) -> Saved:
    """Store a new version of a file, and delete versions that are too many.

    :raises NotStored: the account has no room for it.
    """
    rows = _rows_of(conn, account)
    known = next((row for row in rows if row.path == path), None)
    is_there = known is not None and known.version_id is not None
    if (
        known is not None
        and known.digest == document.digest
        and known.media_type == document.media_type
    ):
        return Saved(created=False, changed=False)
    size = len(document.body)
    others = [row for row in rows if row is not known and row.version_id is not None]
    _check_room(others, size, limits, is_new=not is_there)
    _make_room(conn, rows, size, limits)
    feed_id = _feed_id(conn, account, path, known, rows, limits)
    now = to_micros(at)
    second = now - now % MICROSECONDS
    if known is not None and known.modified_at is not None:
        second = max(second, known.modified_at + MICROSECONDS)
    values = {
        "feed_id": feed_id,
        "account_id": account.id,
        "saved_at": now,
        "modified_at": second,
        "size": size,
        "media_type": document.media_type,
        "digest": document.digest,
        "body": document.body,
        "packed": document.packed,
    }
    made = conn.execute(_ADD_VERSION, values).inserted_primary_key
    assert made is not None
    present = {"version_id": made[0], "size": size, "is_topic": document.is_topic}
    conn.execute(_COUNT, {"key": feed_id, "more": size, "one": 1, **present})
    if known is not None and known.versions >= VERSIONS:
        _prune(conn, feed_id)
    return Saved(created=not is_there, changed=True)


def _rows_of(conn: Connection, account: Account) -> Sequence[Row[Any]]:
    """The files of an account, deleted ones too; those of a former one of its name are removed."""
    rows = conn.execute(_OF_ACCOUNT, {"name": account.name}).all()
    if any(row.account_id != account.id for row in rows):
        former = (feed.c.account == account.name, feed.c.account_id != account.id)
        conn.execute(delete(feed).where(*former))
        rows = [row for row in rows if row.account_id == account.id]
    return rows


def _check_room(others: Sequence[Row[Any]], size: int, limits: Limits, *, is_new: bool) -> None:
    if is_new and len(others) >= limits.files:
        raise NotStored(
            f"Your account has {len(others)} files, and no more than {limits.files} are allowed: "
            "delete one first.",
            507,
        )
    used = sum(row.size for row in others)
    if used + size > limits.bytes:
        raise NotStored(
            f"There is no room for {size:,} bytes: the other files of your account have {used:,}, "
            f"and all together may have {limits.bytes:,}. Delete some first.",
            507,
        )


def _make_room(conn: Connection, rows: Sequence[Row[Any]], size: int, limits: Limits) -> None:
    """Delete the oldest versions of an account until a new one fits."""
    excess = sum(row.stored for row in rows) + size - limits.bytes
    if excess <= 0:
        return
    present = {row.version_id for row in rows}
    mine = version.c.feed_id.in_([row.id for row in rows])
    old = select(version.c.id, version.c.feed_id, version.c.size).where(mine)
    for row in conn.execute(old.order_by(version.c.id)).all():
        if excess > 0 and row.id not in present:
            _delete(conn, row)
            excess -= row.size


def _prune(conn: Connection, feed_id: int) -> None:
    """Delete the versions of a file that are too many."""
    for row in conn.execute(_SURPLUS, {"key": feed_id}).all():
        _delete(conn, row)


def _delete(conn: Connection, row: Any) -> None:
    """Delete a version, given its row."""
    conn.execute(_DELETE_VERSION, {"key": row.id})
    conn.execute(_COUNT, {"key": row.feed_id, "more": -row.size, "one": -1})


def _feed_id(
    conn: Connection,
    account: Account,
    path: str,
    known: Row[Any] | None,
    rows: Sequence[Row[Any]],
    limits: Limits,
) -> int:
    """The id of a file, which is made if need be."""
    if known is not None:
        return int(known.id)
    deleted = [row.id for row in rows if row.version_id is None]
    if len(deleted) >= limits.files:  # so many are remembered, and no more
        conn.execute(delete(feed).where(feed.c.id == min(deleted)))
    values = {"account": account.name, "account_id": account.id, "path": path}
    empty = {"size": 0, "stored": 0, "versions": 0, "is_topic": False}
    made = conn.execute(insert(feed).values(values | empty)).inserted_primary_key
    assert made is not None
    return int(made[0])


def remove(conn: Connection, account: Account, path: str) -> bool:
    """Delete a file with its versions.  That it was there is remembered.

    :returns: whether there was such a file.
    """
    mine = (feed.c.account_id == account.id, feed.c.path == path)
    row = conn.execute(select(feed).where(*mine, feed.c.version_id.is_not(None))).first()
    if row is None:
        return False
    conn.execute(delete(version).where(version.c.feed_id == row.id))
    nothing = {"version_id": None, "size": 0, "stored": 0, "versions": 0}
    conn.execute(update(feed).where(feed.c.id == row.id).values(nothing))
    return True


def files(conn: Connection, account: Account) -> list[File]:
    """The files of an account, by path."""
    mine = (feed.c.account_id == account.id, feed.c.version_id.is_not(None))
    rows = conn.execute(_FILES.where(*mine).order_by(feed.c.path))
    return [
        File(row.path, row.size, row.versions, to_seconds(row.saved_at), row.is_topic)
        for row in rows
    ]


def versions(conn: Connection, account: Account, path: str) -> list[Version]:
    """The versions of a file, the newest first."""
    mine = (feed.c.account_id == account.id, feed.c.path == path)
    columns = (version.c.id, version.c.size, version.c.media_type, version.c.saved_at)
    found = select(*columns, feed.c.version_id).join(feed, feed.c.id == version.c.feed_id)
    rows = conn.execute(found.where(*mine).order_by(version.c.id.desc()))
    return [
        Version(
            row.id, row.size, row.media_type, to_seconds(row.saved_at), row.id == row.version_id
        )
        for row in rows
    ]


def one_version(conn: Connection, account: Account, path: str, key: int) -> Document | None:
    """A version of a file by its id; None if the account has no such version."""
    mine = (feed.c.account_id == account.id, feed.c.path == path, version.c.id == key)
    columns = (version.c.body, version.c.media_type, version.c.packed, feed.c.is_topic)
    found = select(*columns).join(feed, feed.c.id == version.c.feed_id)
    row = conn.execute(found.where(*mine)).first()
    return None if row is None else Document(row.body, row.media_type, row.packed, row.is_topic)


def present(conn: Connection, account: str, path: str, known: int = 0) -> Stored | None:
    """The present version of a file.

    :param account: the name of the account.
    :param known: the id of the version that the caller has.
    :returns: None if there never was such a file.
    """
    wanted = (feed.c.account == account, feed.c.path == path)
    unknown = and_(version.c.id == feed.c.version_id, version.c.id != known)
    found = select(feed.c.version_id, feed.c.is_topic, version).select_from(
        feed.outerjoin(version, unknown)
    )
    row = conn.execute(found.where(*wanted)).first()
    if row is None:
        return None
    if row.body is None:
        return Stored(row.version_id or 0)
    second = row.modified_at // MICROSECONDS
    content = Served(row.body, row.packed, row.media_type, row.digest, second, row.is_topic)
    return Stored(row.version_id, content)
