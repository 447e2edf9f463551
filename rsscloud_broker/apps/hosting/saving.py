"""The SQL that saves files, for many callers at once.

Each function runs in a transaction that the caller began.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from attrs import evolve, frozen
from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from rsscloud_broker.apps.hosting.documents import HostedDocument, NotStored
from rsscloud_broker.apps.hosting.rows import FILES, NOBODY, check_condition
from rsscloud_broker.apps.hosting.schema import feed, version
from rsscloud_broker.database.columns import MICROSECONDS, to_micros, to_seconds
from rsscloud_broker.database.methods import in_turns
from rsscloud_broker.interfaces import Account
from rsscloud_broker.web.feed_answers import later_second
from rsscloud_broker.wire.conditional import ALWAYS, Condition

#: How many versions of a file are kept.
VERSIONS: Final = 20

#: How many files an account may have: people have a handful of feeds.
MAX_FILES: Final = 100

#: How many bytes of documents one statement stores, if they are several.
PORTION: Final = 16 * 1024 * 1024


@frozen
class Save:
    """A new version of a file that somebody wants to save.

    :ivar at: the present time, in seconds since the epoch.
    :ivar max_bytes: how many bytes all files of the account may have together, and how many bytes
        all their versions.
    :ivar condition: what must hold of the present version.
    """

    account: Account
    path: str
    document: HostedDocument
    at: float
    max_bytes: int
    condition: Condition = ALWAYS


# These are built once, since to build them takes longer than to execute them.
_OF_ACCOUNTS = FILES.where(feed.c.account.in_(bindparam("names", expanding=True)))
_ADD_FEEDS = insert(feed).returning(feed.c.id, sort_by_parameter_order=True)
_ADD_VERSIONS = insert(version).returning(version.c.id, sort_by_parameter_order=True)
# A parameter with the name of another column sets that column, too.
_ADD_TO_COUNTS = (
    update(feed)
    .where(feed.c.id == bindparam("key"))
    .values(
        stored=feed.c.stored + bindparam("added_bytes"),
        versions=feed.c.versions + bindparam("added_versions"),
    )
)
_DELETE_VERSION = delete(version).where(version.c.id == bindparam("key"))
_NEWEST_FIRST = (
    select(version.c.id, version.c.feed_id, version.c.size)
    .where(version.c.feed_id.in_(bindparam("keys", expanding=True)))
    .order_by(version.c.feed_id, version.c.id.desc())
)


def save_all(conn: Connection, saves: Sequence[Save]) -> list[bool | NotStored]:
    """Store new versions of files for several callers, and delete versions that are too many.

    :returns: whether there was no such file before each; an exception if the account has no room.
    """
    outcomes: list[bool | NotStored] = []
    # The room of an account depends on what is stored, so its saves come one after the other.
    for some in in_turns(saves, lambda each: [each.account.name]):
        outcomes += _save_for_different(conn, some)
    return outcomes


@frozen
class _Place:
    """Where a new version belongs.

    :ivar digest: that of its document.
    :ivar known: the row of the file; None if there never was such a file.
    :ivar feed_id: the id of the file; 0 if it is still to be made.
    """

    save: Save
    digest: bytes
    known: Row[Any] | None
    feed_id: int

    @property
    def is_new(self) -> bool:
        """Whether there is no such file now."""
        return self.known is None or self.known.version_id is None


def _save_for_different(conn: Connection, saves: Sequence[Save]) -> list[bool | NotStored]:
    """Store new versions of files, one for each of several accounts; see ``save_all``."""
    of_accounts: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for row in conn.execute(_OF_ACCOUNTS, {"names": [each.account.name for each in saves]}):
        of_accounts[row.account].append(row)
    outcomes: list[bool | NotStored] = []
    places: list[_Place] = []
    for each in saves:
        try:
            place = _make_place(conn, each, of_accounts[each.account.name])
        except NotStored as error:
            outcomes.append(error)
            continue
        if place is not None:
            places.append(place)
        outcomes.append(place is not None and place.is_new)
    for some in _portions(_make_feed_rows(conn, places)):
        _add_versions(conn, some)
    return outcomes


def _portions(places: Sequence[_Place]) -> Iterator[Sequence[_Place]]:
    """Divide places, so that the documents of each portion fit into one statement."""
    begin, size = 0, 0
    for index, place in enumerate(places):
        own = len(place.save.document.body) + len(place.save.document.packed)
        if begin < index and size + own > PORTION:
            yield places[begin:index]
            begin, size = index, 0
        size += own
    if places:
        yield places[begin:]


def _make_place(conn: Connection, wanted: Save, rows: Sequence[Row[Any]]) -> _Place | None:
    """Make room for a new version, and say where it belongs; None if the file has this content.

    :param rows: the files of the account, deleted ones too.
    :raises NotStored: the account has no room for it, or the condition does not hold.
    """
    document = wanted.document
    rows = _take_over_deleted(conn, wanted.account, rows)
    known = next((row for row in rows if row.path == wanted.path), None)
    check_condition(wanted.condition, known)
    digest = document.digest  # hashed once: a file may have megabytes
    new = (digest, document.media_type)
    if known is not None and (known.digest, known.media_type) == new:
        return None
    place = _Place(wanted, digest, known, 0 if known is None else known.id)
    others = [row for row in rows if row is not known and row.version_id is not None]
    _check_room(others, place)
    _make_room(conn, rows, others, wanted)
    deleted = [row.id for row in rows if row.version_id is None]
    # This many deleted files are remembered, and no more.
    if known is None and len(deleted) >= MAX_FILES:
        conn.execute(delete(feed).where(feed.c.id == min(deleted)))
    return place


def _make_feed_rows(conn: Connection, places: Sequence[_Place]) -> list[_Place]:
    """The same places, each with the id of its file; files that are new are made."""
    empty = {"size": 0, "stored": 0, "versions": 0, "is_topic": False}
    unknown = [
        {"account": save.account.name, "account_id": save.account.id, "path": save.path, **empty}
        for save in (place.save for place in places if not place.feed_id)
    ]
    made = iter(conn.scalars(_ADD_FEEDS, unknown).all() if unknown else [])
    return [each if each.feed_id else evolve(each, feed_id=next(made)) for each in places]


def _add_versions(conn: Connection, places: Sequence[_Place]) -> None:
    """Store new versions, make them the present ones, and delete versions that are too many."""
    made = conn.scalars(_ADD_VERSIONS, [_version_columns(each) for each in places]).all()
    present = [
        {
            "key": each.feed_id,
            "added_bytes": len(each.save.document.body),
            "added_versions": 1,
            "version_id": key,
            "size": len(each.save.document.body),
            "is_topic": each.save.document.is_topic,
        }
        for each, key in zip(places, made, strict=True)
    ]
    conn.execute(_ADD_TO_COUNTS, present)
    known = [each.known for each in places if each.known is not None]
    _prune(conn, [row.id for row in known if row.versions >= VERSIONS])


def _version_columns(place: _Place) -> dict[str, object]:
    """The columns of a new version; ``modified_at`` is in a later second than the last one's.

    The date of a deleted file is forgotten; but none was sent that is later than now, as no date in
    the future ever is.
    """
    document, account = place.save.document, place.save.account
    known, before = place.known, 0.0
    if known is not None:
        deleted = known.modified_at is None
        before = place.save.at if deleted else to_seconds(known.modified_at)
    return {
        "feed_id": place.feed_id,
        "account_id": account.id,
        "saved_at": to_micros(place.save.at),
        "modified_at": int(later_second(place.save.at, before)) * MICROSECONDS,
        "size": len(document.body),
        "media_type": document.media_type,
        "digest": place.digest,
        "body": document.body,
        "packed": document.packed,
    }


def _take_over_deleted(
    conn: Connection, account: Account, rows: Sequence[Row[Any]]
) -> Sequence[Row[Any]]:
    """Take over the deleted files of a removed account that had the same name.

    :param rows: all rows with the name of the account.
    :returns: the same rows, which are all of the account now.
    :raises NotStored: the files of the former account are still being deleted.
    """
    owners = {row.account_id for row in rows}
    if owners <= {account.id}:
        return rows
    if owners - {account.id, NOBODY}:
        raise NotStored(
            "An account that had your name was removed a moment ago, and its files are still being "
            "deleted. Try again in a minute.",
            503,
        )
    of_nobody = (feed.c.account == account.name, feed.c.account_id == NOBODY)
    conn.execute(update(feed).where(*of_nobody).values(account_id=account.id))
    return rows


def _check_room(others: Sequence[Row[Any]], place: _Place) -> None:
    """Raise ``NotStored`` if a document does not fit beside the other files."""
    if place.is_new and len(others) >= MAX_FILES:
        raise NotStored(
            f"Your account has {len(others)} files, and no more than {MAX_FILES} are allowed: "
            "delete one first.",
            507,
        )
    size, most = len(place.save.document.body), place.save.max_bytes
    used = sum(row.size for row in others)
    if used + size > most:
        raise NotStored(
            f"There is no room for {size:,} bytes: the other files of your account have {used:,}, "
            f"and all together may have {most:,}. Delete some first.",
            507,
        )


def _make_room(
    conn: Connection, rows: Sequence[Row[Any]], others: Sequence[Row[Any]], wanted: Save
) -> None:
    """Delete the oldest versions of an account until a new one fits.

    :param rows: all files of the account.
    :param others: those of which the new version is none.
    """
    excess = sum(row.stored for row in rows) + len(wanted.document.body) - wanted.max_bytes
    if excess <= 0:
        return
    present = {row.version_id for row in others}
    mine = version.c.feed_id.in_([row.id for row in rows])
    old = select(version.c.id, version.c.feed_id, version.c.size).where(mine)
    for row in conn.execute(old.order_by(version.c.id)).all():
        if excess > 0 and row.id not in present:
            _delete_versions(conn, [row])
            excess -= row.size


def _prune(conn: Connection, feed_ids: Sequence[int]) -> None:
    """Delete the oldest versions of files that have more than ``VERSIONS``."""
    if not feed_ids:
        return
    kept: Counter[int] = Counter()
    surplus = []
    for row in conn.execute(_NEWEST_FIRST, {"keys": feed_ids}):
        kept[row.feed_id] += 1
        if kept[row.feed_id] > VERSIONS:
            surplus.append(row)
    if surplus:
        _delete_versions(conn, surplus)


def _delete_versions(conn: Connection, rows: Sequence[Any]) -> None:
    """Delete versions, given their rows."""
    conn.execute(_DELETE_VERSION, [{"key": row.id} for row in rows])
    conn.execute(
        _ADD_TO_COUNTS,
        [{"key": row.feed_id, "added_bytes": -row.size, "added_versions": -1} for row in rows],
    )
