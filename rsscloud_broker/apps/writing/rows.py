"""Stores messages and what belongs to them.

Each function runs as one step of a transaction that the caller began; ``store`` runs them as
transactions of their own.

A change of messages is based on a *version* of all messages of the author: somebody reads them,
makes the feeds with the change, and stores both.  If another change was stored meanwhile, by
another process or another tab, `apply` raises `Outdated` and stores nothing, and the caller begins
again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import asdict, evolve, frozen
from sqlalchemy import Column, Connection, Row, delete, insert, or_, select, tuple_, update

from rsscloud_broker.apps.writing.model import Enclosure, InvalidPost, OutlineItem, Post
from rsscloud_broker.apps.writing.schema import author, category, former, post, unsent, upload
from rsscloud_broker.database.columns import (
    columns_of,
    insert_missing,
    put_rows,
    record_of,
    to_micros,
    to_seconds,
)

#: How many categories of an author are kept for completion; the last used ones.
MAX_CATEGORIES = 300

#: How many messages one transaction deletes at most of an account that was removed.
FORGOTTEN_AT_ONCE = 1000


class Outdated(Exception):
    """A change is based on a version that is not the present one.  Nothing was stored."""


@frozen
class Author:
    """An account that has written something.

    :ivar base: the URL with which the ids of its messages begin.
    :ivar version: how often its messages have changed.
    :ivar next_id: the id of its next message.
    :ivar changed_at: when its feeds last changed; 0 if it has published nothing yet.
    """

    account_id: int
    name: str
    base: str
    version: int
    next_id: int
    changed_at: float

    @property
    def is_public(self) -> bool:
        """Whether it has a page and feeds: it has published something at some time."""
        return self.changed_at > 0


@frozen
class Snapshot:
    """The present messages of an author, as far as a change needs them.

    :ivar published: the newest messages that are published, the newest first.
    :ivar old: the message that is to be changed; None if there is no such message.
    """

    author: Author
    published: tuple[Post, ...]
    old: Post | None


def author_of(conn: Connection, account_id: int) -> Author | None:
    """The author by the account; None if the account has written nothing yet."""
    row = conn.execute(select(author).where(author.c.account_id == account_id)).first()
    return None if row is None else record_of(Author, row)


def author_named(conn: Connection, name: str) -> Author | None:
    """The author by name; None if there is none."""
    row = conn.execute(select(author).where(author.c.name == name)).first()
    return None if row is None else record_of(Author, row)


def authors(conn: Connection, limit: int, before: tuple[int, str] | None = None) -> list[Author]:
    """The authors who have published something, those whose feeds changed last first.

    :param before: of the last author of the page before, when its feeds had changed, in
        microseconds, and its name.
    """
    order = (author.c.changed_at, author.c.name)
    chosen = select(author).where(author.c.changed_at > 0)
    if before is not None:
        chosen = chosen.where(tuple_(*order) < before)
    newest = chosen.order_by(*(column.desc() for column in order)).limit(limit)
    return [record_of(Author, row) for row in conn.execute(newest)]


def ensure_author(conn: Connection, account_id: int, name: str, base: str) -> Author:
    """The author of an account; stores it if need be.

    If an account that is gone had the name, its messages disappear, and the numbers of the new
    ones go on after them: so nobody's feed reader takes a new message for an old one.

    :raises InvalidPost: the account itself is gone, and a later one has the name and has written.
    """
    found = author_of(conn, account_id)
    if found is not None:
        return found
    owner = author_named(conn, name)
    if owner is not None:
        if owner.account_id > account_id:  # ids are never used twice
            raise InvalidPost("your account was removed")
        forget(conn, owner.account_id)
    made = Author(account_id, name, base, 0, 1, 0)
    if (row := _former(conn, name)) is not None:
        made = evolve(made, base=row.base, version=row.version, next_id=row.next_id)
    # Another process may do the same at this moment.
    insert_missing(conn, author, [asdict(made)], author.c.account_id)
    return made


def forget_some(conn: Connection, account_id: int) -> bool:
    """Delete some messages of an account that was removed, if it has very many.

    :returns: whether there may still be very many, so that this is to be called again.
    """
    mine = post.c.account_id == account_id
    first = select(post.c.id).where(mine).order_by(post.c.id)
    following = conn.execute(first.offset(FORGOTTEN_AT_ONCE).limit(1)).scalar()
    if following is not None:
        conn.execute(delete(post).where(mine, post.c.id < following))
    return following is not None


def forget(conn: Connection, account_id: int) -> None:
    """Delete all that an account has, since it was removed.  If it had published something, its
    name is remembered.

    If it has very many messages, delete most of them by ``forget_some`` before.

    The pieces of its uploads stay, for ``upload_rows.lost_uploads``.
    """
    owner = author_of(conn, account_id)
    if owner is not None and owner.is_public:
        known = {"base": owner.base, "version": owner.version, "next_id": owner.next_id}
        put_rows(conn, former, [{"name": owner.name, **known}])
    for table in (author, post, category, unsent, upload):
        conn.execute(delete(table).where(table.c.account_id == account_id))


def is_former(conn: Connection, name: str) -> bool:
    """Whether an account that was removed had published something under a name."""
    return _former(conn, name) is not None


def _former(conn: Connection, name: str) -> Row[Any] | None:
    """What is remembered of a removed account that had published something under a name."""
    return conn.execute(select(former).where(former.c.name == name)).first()


def snapshot(conn: Connection, owner: Author, limit: int, post_id: int | None) -> Snapshot:
    """The state of an author's messages on which a change is based.

    :param owner: only its account is used: the version may have changed meanwhile.
    :param limit: how many published messages.
    :param post_id: the message that is to be changed; None for a new one.
    """
    present = author_of(conn, owner.account_id) or owner
    old = None if post_id is None else find_post(conn, present, post_id)
    return Snapshot(present, tuple(published(conn, present, limit)), old)


def published(conn: Connection, owner: Author, limit: int, before: int | None = None) -> list[Post]:
    """The published messages of an author, the newest first.

    :param before: only those with smaller positions.
    """
    chosen = select(post).where(post.c.account_id == owner.account_id, post.c.position > 0)
    if before is not None:
        chosen = chosen.where(post.c.position < before)
    rows = conn.execute(chosen.order_by(post.c.position.desc()).limit(limit))
    return [_post_of_row(row, owner) for row in rows]


def find_post(conn: Connection, owner: Author, post_id: int) -> Post | None:
    """One message, which may be a draft; None if there is no such message."""
    wanted = (post.c.account_id == owner.account_id, post.c.id == post_id)
    row = conn.execute(select(post).where(*wanted)).first()
    return None if row is None else _post_of_row(row, owner)


def all_posts(
    conn: Connection,
    account_id: int,
    limit: int,
    before: int | None = None,
    is_draft: bool | None = None,
) -> list[Post]:
    """The messages of an account with the largest ids, the newest first.

    :param is_draft: only drafts, or only published ones; None for both.
    """
    owner = author_of(conn, account_id)
    if owner is None:
        return []
    chosen = select(post).where(post.c.account_id == account_id)
    if before is not None:
        chosen = chosen.where(post.c.id < before)
    if is_draft is not None:
        chosen = chosen.where(post.c.position == 0 if is_draft else post.c.position > 0)
    rows = conn.execute(chosen.order_by(post.c.id.desc()).limit(limit))
    return [_post_of_row(row, owner) for row in rows]


def post_with_file(conn: Connection, account_id: int, digest: str) -> int | None:
    """The newest message of an account in which the URL of a file is, as its enclosure, as the link
    of an item, or anywhere else; None if it is in none.

    :param digest: what the URL of the file contains.
    """
    places = (post.c.enclosure_url, post.c.link, post.c.text, post.c["items"])
    is_used = or_(*(place.contains(digest, autoescape=True) for place in places))
    mine = select(post.c.id).where(post.c.account_id == account_id, is_used)
    return conn.execute(mine.order_by(post.c.id.desc()).limit(1)).scalar()


def apply(
    conn: Connection, owner: Author, post_id: int, new: Post | None, is_public: bool, at: float
) -> None:
    """Store a change: a message in its new state, or that it is deleted.

    :param owner: the author before the change.
    :param new: None if the message is deleted.
    :param is_public: whether the feeds change.
    :param at: the time of the change, in seconds since the epoch.
    :raises Outdated: another change was stored meanwhile.
    """
    values: dict[str, int] = {"version": owner.version + 1}
    if is_public:
        values["changed_at"] = to_micros(at)
    if new is not None:
        values["next_id"] = max(owner.next_id, new.id + 1)
    same = (author.c.account_id == owner.account_id, author.c.version == owner.version)
    if not conn.execute(update(author).where(*same).values(values)).rowcount:
        raise Outdated
    wanted = (post.c.account_id == owner.account_id, post.c.id == post_id)
    conn.execute(delete(post).where(*wanted))
    if new is not None:
        conn.execute(insert(post).values(_columns_of(new)))
        for name in new.categories:
            _use_category(conn, owner.account_id, name, to_micros(at))


def _columns_of(given: Post) -> dict[str, object]:
    """The columns of the row of a message."""
    file = given.enclosure or Enclosure("", "", 0)
    return columns_of(
        given,
        post,
        enclosure_url=file.url,
        enclosure_type=file.media_type,
        enclosure_text=file.text,
        enclosure_size=file.size,
        categories=json.dumps(given.categories, ensure_ascii=False),
        items=json.dumps(list(map(_item_to_json, given.items)), ensure_ascii=False),
    )


def _item_to_json(item: OutlineItem) -> list[Any]:
    """An item of an outline as it is stored: [text, title, link, [items below]]."""
    return [item.text, item.title, item.link, list(map(_item_to_json, item.items))]


def _item_from_json(value: list[Any]) -> OutlineItem:
    """An item of an outline, made of what ``_item_to_json`` has stored."""
    text, title, link, items = value
    return OutlineItem(text, title, link, tuple(map(_item_from_json, items)))


def _post_of_row(row: Row[Any], owner: Author) -> Post:
    """The message in a row; its guid begins with the base of its author."""
    file = None
    if row.enclosure_url:
        file = Enclosure(
            row.enclosure_url, row.enclosure_type, row.enclosure_size, row.enclosure_text
        )
    return record_of(
        Post,
        row,
        guid=f"{owner.base}/{row.id}",
        enclosure=file,
        categories=tuple(json.loads(row.categories)),
        items=tuple(map(_item_from_json, json.loads(row.items))),
        author=owner.name,
    )


def categories(conn: Connection, account_id: int) -> list[str]:
    """The categories that an account has used, sorted."""
    rows = conn.execute(select(category.c.name).where(category.c.account_id == account_id))
    return sorted(rows.scalars(), key=str.casefold)


def _use_category(conn: Connection, account_id: int, name: str, at: int) -> None:
    """Note that a category was used; if there are too many, forget the ones used longest ago."""
    put_rows(conn, category, [{"account_id": account_id, "name": name, "used_at": at}])
    _drop_oldest(conn, category.c.name, category.c.used_at, account_id, MAX_CATEGORIES)


def _drop_oldest(
    conn: Connection, key: Column[Any], time: Column[Any], account_id: int, most: int
) -> None:
    """Delete the oldest rows of an account in the table of two columns, if there are too many."""
    table = key.table
    mine = table.c.account_id == account_id
    newest = select(key).where(mine).order_by(time.desc())
    surplus = list(conn.execute(newest.offset(most)).scalars())
    if surplus:
        conn.execute(delete(table).where(mine, key.in_(surplus)))


def keep_unsent(
    conn: Connection, account_id: int, post_id: int, fields: Mapping[str, str], at: float, most: int
) -> None:
    """Store what somebody is typing, in place of what was typed there before.

    :param post_id: the message that is being edited; 0 for a new one.
    :param most: how many such texts an account may have; the oldest are forgotten.
    """
    values = {"account_id": account_id, "post_id": post_id, "saved_at": to_micros(at)}
    text = json.dumps(dict(fields), ensure_ascii=False)
    put_rows(conn, unsent, [values | {"fields": text}])
    _drop_oldest(conn, unsent.c.post_id, unsent.c.saved_at, account_id, most)


def unsent_of(
    conn: Connection, account_id: int, post_id: int
) -> tuple[dict[str, str], float] | None:
    """What somebody was typing, and when it was stored; None if there is nothing."""
    wanted = (unsent.c.account_id == account_id, unsent.c.post_id == post_id)
    row = conn.execute(select(unsent).where(*wanted)).first()
    return None if row is None else (json.loads(row.fields), to_seconds(row.saved_at))


def drop_unsent(conn: Connection, account_id: int, post_id: int) -> None:
    """Forget what somebody was typing."""
    wanted = (unsent.c.account_id == account_id, unsent.c.post_id == post_id)
    conn.execute(delete(unsent).where(*wanted))
