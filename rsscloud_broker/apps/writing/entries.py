"""Reads and writes messages as the structs of the MetaWeblog API and its extensions.

The members are those of an RSS item (https://xmlrpc.com/metaWeblogApi): ``title``, ``link``,
``description``, which is HTML, ``categories`` and ``enclosure``; with those that Movable Type and
WordPress have added.  A struct for an existing message may leave members out, which then stay as
they are.  Dates are not kept: a message is dated when it is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from attrs import evolve
from twisted.web.xmlrpc import Fault

from rsscloud_broker.apps.writing.arguments import FaultCode, struct_in, text_in, texts_in
from rsscloud_broker.apps.writing.editors import Editors
from rsscloud_broker.apps.writing.model import NewPost, Post
from rsscloud_broker.apps.writing.pictures import html_of
from rsscloud_broker.apps.writing.rules import check_date
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.interfaces import Caller

#: Members with a date.
_DATES: Final = ("date_created_gmt", "post_date_gmt", "dateCreated", "post_date")

_EMPTY: Final = NewPost("")


async def read_entry(
    editors: Editors, caller: Caller, sent: Any, old: Post | None, publish: bool | None
) -> NewPost:
    """The message that a struct of ``metaWeblog.newPost`` or ``editPost`` means.

    :param old: the message until now; None if it is new.
    :param publish: whether it is published; None if the call does not say.
    :param sent: the struct as it came, of any type.
    :raises Fault: a member is of a wrong type or cannot be kept.
    """
    entry = struct_in(sent, "the message")
    new = old.as_new() if old else _EMPTY
    new = evolve(
        new,
        title=text_in(entry.get("title", new.title), "title"),
        link=_link(editors.writing, entry, old, new.link),
        categories=_categories(entry, new.categories),
        is_draft=is_draft(entry.get("post_status"), publish, new.is_draft),
    )
    if not new.is_draft:
        now = editors.parts.clock.wall_seconds()
        # Editors send back the date that they got; the clock may have been set back since.
        _check_dates(entry, max(now, old.created_at) if old else now)
    enclosure = _enclosure_url(entry)
    more = text_in(entry.get("mt_text_more", ""), "mt_text_more")
    if "description" in entry or more:
        before = html_of(old) if old else ""
        html = text_in(entry.get("description", before), "description") + more
        return await editors.with_html(caller, new, html, old, enclosure)
    if enclosure is None or enclosure == new.enclosure_url:
        return new
    return evolve(new, enclosure_url=enclosure, enclosure_text="")


def _enclosure_url(entry: Mapping[str, Any]) -> str | None:
    """The URL of the enclosure in a struct, empty for none; None if the struct does not say."""
    if "enclosure" not in entry:
        return None
    return text_in(struct_in(entry["enclosure"], "enclosure").get("url", ""), "url")


def _link(writing: Writing, entry: Mapping[str, Any], old: Post | None, link: str) -> str:
    """The link of a message.  Editors that copy a struct send the address of its page."""
    sent = text_in(entry.get("link", link), "link")
    return link if old is not None and sent == writing.feeds.page_url(old) else sent


def _categories(entry: Mapping[str, Any], before: tuple[str, ...]) -> tuple[str, ...]:
    """The categories of a message.  What Movable Type calls keywords are categories, too."""
    names = texts_in(entry["categories"], "categories") if "categories" in entry else [*before]
    keywords = text_in(entry.get("mt_keywords", ""), "mt_keywords").split(",")
    return merged(names, keywords)


def merged(*lists: list[str]) -> tuple[str, ...]:
    """The names in some lists, each once, without those that are empty."""
    names = [name.strip() for each in lists for name in each]
    return tuple(dict.fromkeys(filter(None, names)))


def is_draft(status: Any, publish: bool | None, otherwise: bool) -> bool:
    """Whether a message is a draft.

    :param status: the status as WordPress has it, which counts more; None if there is none.
    :param publish: whether it is published; None if the call does not say.
    :param otherwise: whether it is a draft if nothing says it.
    """
    match status:
        case None:
            return otherwise if publish is None else not publish
        case "publish" | "draft" | "pending" | "auto-draft":
            return bool(status != "publish")
    raise Fault(
        FaultCode.BAD_REQUEST, "Messages are public here: their post_status is publish or draft."
    )


def _check_dates(entry: Mapping[str, Any], now: float) -> None:
    """Check that a message shall not be published later: see ``rules.check_date``."""
    for name in _DATES:
        date = entry.get(name)
        if isinstance(date, datetime):
            in_utc = name.endswith("_gmt") and not date.tzinfo
            check_date(name, date.replace(tzinfo=UTC) if in_utc else date, now)


def entry_of(writing: Writing, post: Post) -> dict[str, Any]:
    """A message as a struct of ``metaWeblog.getPost``."""
    page = writing.feeds.page_url(post)
    created = time_of(post.created_at)
    entry: dict[str, Any] = {
        "postid": str(post.id),
        "userid": str(post.account_id),
        "title": post.title,
        "description": html_of(post),
        "link": post.link or page,
        "permaLink": page,
        "dateCreated": created,
        "date_created_gmt": created,
        "date_modified": time_of(post.changed_at),
        "date_modified_gmt": time_of(post.changed_at),
        "categories": list(post.categories),
        "mt_keywords": "",
        "mt_excerpt": "",
        "mt_text_more": "",
        "mt_allow_comments": 0,
        "mt_allow_pings": 0,
        "post_status": "draft" if post.is_draft else "publish",
        "wp_author_id": str(post.account_id),
        "wp_author_display_name": post.author,
        "wp_slug": "",
        "wp_password": "",
    }
    if enclosure := post.enclosure:
        kind, size = enclosure.media_type, min(enclosure.size, 2**31 - 1)  # an int of XML-RPC
        entry["enclosure"] = {"url": enclosure.url, "type": kind, "length": size}
    return entry


def time_of(seconds: float) -> datetime:
    """A time in UTC, which becomes a ``dateTime.iso8601`` without a zone, as editors expect."""
    return datetime.fromtimestamp(int(seconds), UTC).replace(tzinfo=None)
