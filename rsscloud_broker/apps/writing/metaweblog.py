"""The MetaWeblog API and the Blogger API, at the paths for XML-RPC calls.

Editors such as MarsEdit and Open Live Writer write messages with these::

    metaWeblog.newPost("1", "anna", PASSWORD, {"title": "News", "description": "<p>Hi</p>"}, true)

Sources: https://xmlrpc.com/metaWeblogApi; the Blogger API 1.0; and what Open Live Writer and
MarsEdit call, among it the calls of Movable Type (``mt``) for categories.

The members of a struct are those of an RSS item: ``title``, ``link``, ``description``, which is
HTML, ``categories`` and ``enclosure``; with those that Movable Type and WordPress have added.  A
struct for an existing message may leave members out, which then stay as they are.  Dates are not
kept: a message is dated when it is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from attrs import evolve
from twisted.web.xmlrpc import Fault

from rsscloud_broker.apps.writing.editors import (
    EditorAPI,
    EditorCall,
    FaultCode,
    editing,
    flag_in,
    number_of,
    struct_in,
    text_in,
    texts_in,
)
from rsscloud_broker.apps.writing.feeds import AccountFeeds
from rsscloud_broker.apps.writing.model import NewPost, Post
from rsscloud_broker.apps.writing.pictures import html_of
from rsscloud_broker.apps.writing.rules import check_date
from rsscloud_broker.interfaces import Caller

#: Members with a date.
_DATES: Final = ("date_created_gmt", "post_date_gmt", "dateCreated", "post_date")

#: Integers of XML-RPC have 32 bits.
_MAX_INT: Final = 2**31 - 1


class MetaWeblogAPI(EditorAPI):
    """``metaWeblog``: messages as structs like RSS items, and files."""

    @editing("blog name password entry publish")
    async def xmlrpc_newPost(self, call: EditorCall, entry: Any, publish: Any = None) -> str:
        """Write a message: blogid, name, password, struct, publish.  Returns its id."""
        published = None if publish is None else flag_in(publish)
        new = await self._read_entry(call.caller, entry, None, published)
        return await self._add(call, new)

    @editing("post_id name password entry publish")
    async def xmlrpc_editPost(
        self, call: EditorCall, post: Post, entry: Any, publish: Any = None
    ) -> bool:
        """Change a message: postid, name, password, struct, whether to publish it."""
        published = None if publish is None else flag_in(publish)

        async def edited(old: Post) -> NewPost:
            return await self._read_entry(call.caller, entry, old, published)

        return await self._edit(call, post, edited)

    @editing("post_id name password")
    async def xmlrpc_getPost(self, call: EditorCall, post: Post) -> dict[str, Any]:
        """Return a message as a struct: postid, name, password."""
        return _entry_of(self._writing.feeds, post)

    @editing("blog name password count")
    async def xmlrpc_getRecentPosts(
        self, call: EditorCall, count: Any = 10
    ) -> list[dict[str, Any]]:
        """Return the newest messages, drafts too: blogid, name, password, how many."""
        posts = await self._newest_posts(call, count)
        return [_entry_of(self._writing.feeds, post) for post in posts]

    @editing("blog name password")
    async def xmlrpc_getCategories(self, call: EditorCall) -> list[dict[str, Any]]:
        """Return the categories that were used: blogid, name, password."""
        return await self._categories(call)

    @editing("blog name password file")
    async def xmlrpc_newMediaObject(self, call: EditorCall, file: Any) -> dict[str, Any]:
        """Store a file: blogid, name, password, struct of name, type and bits.  Returns its url."""
        file = struct_in(file, "the file")
        bits = file.get("bits")
        if not isinstance(bits, bytes):
            raise Fault(
                FaultCode.BAD_REQUEST, "The struct of a file needs bits, of the type base64."
            )
        name = text_in(file.get("name", ""), "the name of the file")
        upload = await self._writing.upload(call.caller, name, bits, call.source)
        url = self._writing.files.url(call.caller.name, upload)
        return {  # all members that any of the editors looks for
            "id": str(number_of(url)),
            "attachment_id": str(number_of(url)),
            "file": upload.name,
            "title": upload.name,
            "url": url,
            "link": url,
            "type": upload.media_type,
            "metadata": {"filesize": min(upload.size, _MAX_INT)},
        }

    @editing("key post_id name password")
    async def xmlrpc_deletePost(self, call: EditorCall, post: Post) -> bool:
        """Delete a message: appkey, postid, name, password, publish.  As in blogger."""
        return await self._delete(call, post)

    @editing("key name password")
    async def xmlrpc_getUsersBlogs(self, call: EditorCall) -> list[dict[str, Any]]:
        """Return the one blog of an account: appkey, name, password.  As in blogger."""
        return self._blogs(call.caller)

    async def _read_entry(
        self, caller: Caller, sent: Any, old: Post | None, publish: bool | None
    ) -> NewPost:
        """The message that the struct of ``newPost`` or ``editPost`` means.

        :param sent: the struct as it came, of any type.
        :param old: the message until now; None if it is new.
        :param publish: whether it is published; None if the call does not say.
        :raises Fault: a member is of a wrong type or cannot be kept.
        """
        entry = struct_in(sent, "the message")
        new = old.as_new() if old else NewPost("")
        new = evolve(
            new,
            title=text_in(entry.get("title", new.title), "title"),
            link=_link(self._writing.feeds, entry, old, new.link),
            categories=_categories(entry, new.categories),
            is_draft=_is_draft(entry.get("post_status"), publish, new.is_draft),
        )
        if not new.is_draft:
            now = self._parts.clock.wall_seconds()
            # Editors send back the date that they got; the clock may have been set back since.
            _check_dates(entry, max(now, old.created_at) if old else now)
        enclosure = _enclosure_url(entry)
        more = text_in(entry.get("mt_text_more", ""), "mt_text_more")
        if "description" in entry or more:
            before = html_of(old) if old else ""
            html = text_in(entry.get("description", before), "description") + more
            return await self._with_html(caller, new, html, old, enclosure)
        if enclosure is None or enclosure == new.enclosure_url:
            return new
        return evolve(new, enclosure_url=enclosure, enclosure_text="")


class BloggerAPI(EditorAPI):
    """``blogger``: messages as HTML, which may begin with a title in ``<title>``."""

    @editing("key name password")
    async def xmlrpc_getUsersBlogs(self, call: EditorCall) -> list[dict[str, Any]]:
        """Return the one blog of an account: appkey, name, password."""
        return self._blogs(call.caller)

    @editing("key name password")
    async def xmlrpc_getUserInfo(self, call: EditorCall) -> dict[str, str]:
        """Return what is known of an account: appkey, name, password."""
        return {
            "userid": str(call.caller.account.id),
            "nickname": call.caller.name,
            "firstname": call.caller.name,
            "lastname": "",
            "email": "",
            "url": self._writing.feeds.home_url(call.caller.name),
        }

    @editing("key blog name password content publish")
    async def xmlrpc_newPost(self, call: EditorCall, content: Any, publish: Any = True) -> str:
        """Write a message: appkey, blogid, name, password, HTML, whether to publish it."""
        empty = NewPost("", is_draft=not flag_in(publish))
        html = text_in(content, "the content")
        return await self._add(call, await self._with_html(call.caller, empty, html, None))

    @editing("key post_id name password content publish")
    async def xmlrpc_editPost(
        self, call: EditorCall, post: Post, content: Any, publish: Any = True
    ) -> bool:
        """Change a message: appkey, postid, name, password, HTML, whether to publish it."""
        hidden, html = not flag_in(publish), text_in(content, "the content")

        async def edited(old: Post) -> NewPost:
            # The title is in the content; without one, the message has none.
            bare = evolve(old.as_new(), title="", is_draft=hidden)
            return await self._with_html(call.caller, bare, html, old)

        return await self._edit(call, post, edited)

    @editing("key post_id name password")
    async def xmlrpc_deletePost(self, call: EditorCall, post: Post) -> bool:
        """Delete a message: appkey, postid, name, password, publish."""
        return await self._delete(call, post)

    @editing("key post_id name password")
    async def xmlrpc_getPost(self, call: EditorCall, post: Post) -> dict[str, Any]:
        """Return a message: appkey, postid, name, password."""
        return _blogger_post(post)

    @editing("key blog name password count")
    async def xmlrpc_getRecentPosts(self, call: EditorCall, count: Any) -> list[dict[str, Any]]:
        """Return the newest messages: appkey, blogid, name, password, how many."""
        return [_blogger_post(post) for post in await self._newest_posts(call, count)]


def _blogger_post(post: Post) -> dict[str, Any]:
    """A message as a struct of the Blogger API: its title is in the HTML."""
    title = f"<title>{_escaped(post.title)}</title>" if post.title else ""
    return {
        "postid": str(post.id),
        "userid": str(post.account_id),
        "dateCreated": _time_of(post.created_at),
        "content": title + html_of(post),
    }


class _Unchanged(Exception):
    """The message has these categories already."""


class MovableTypeAPI(EditorAPI):
    """``mt``: the categories of a message, which Open Live Writer sets by these calls."""

    @editing("blog name password")
    async def xmlrpc_getCategoryList(self, call: EditorCall) -> list[dict[str, Any]]:
        """Return the categories that were used: blogid, name, password."""
        return await self._categories(call)

    @editing("post_id name password")
    async def xmlrpc_getPostCategories(self, call: EditorCall, post: Post) -> list[dict[str, Any]]:
        """Return the categories of a message: postid, name, password."""
        return [
            {"categoryId": str(number_of(each)), "categoryName": each, "isPrimary": place == 0}
            for place, each in enumerate(post.categories)
        ]

    @editing("post_id name password chosen")
    async def xmlrpc_setPostCategories(self, call: EditorCall, post: Post, chosen: Any) -> bool:
        """Set the categories of a message: postid, name, password, structs with categoryId."""
        if not isinstance(chosen, list):
            raise Fault(FaultCode.BAD_REQUEST, "The categories must be an array of structs.")
        used = await self._writing.store.categories(call.caller.account.id)
        names = (*post.categories, *used)
        known = {each: each for each in names} | {str(number_of(each)): each for each in names}
        categories = _merged([_category_in(each, known) for each in chosen])

        async def edited(old: Post) -> NewPost:
            if old.categories == categories:
                raise _Unchanged
            return evolve(old.as_new(), categories=categories)

        with suppress(_Unchanged):
            await self._edit(call, post, edited)
        return True


def _category_in(value: Any, known: dict[str, str]) -> str:
    """The name of a category that a client means by its id, or by its name in place of one.

    :param known: the names of those that there are, by both.
    """
    category = struct_in(value, "a category")
    sent = text_in(category.get("categoryId", category.get("categoryName", "")), "categoryId")
    if sent in known:
        return known[sent]
    if not sent or sent.isdigit():
        raise Fault(FaultCode.BAD_REQUEST, f"You have no category with the id {sent[:40]!r}.")
    return sent


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _enclosure_url(entry: Mapping[str, Any]) -> str | None:
    """The URL of the enclosure in a struct, empty for none; None if the struct does not say."""
    if "enclosure" not in entry:
        return None
    return text_in(struct_in(entry["enclosure"], "enclosure").get("url", ""), "url")


def _link(feeds: AccountFeeds, entry: Mapping[str, Any], old: Post | None, before: str) -> str:
    """The link of a message, by default the one before."""
    sent = text_in(entry.get("link", before), "link")
    # Editors that send back a struct that they got send the URL of the message's page as its link.
    return before if old is not None and sent == feeds.page_url(old) else sent


def _categories(entry: Mapping[str, Any], before: tuple[str, ...]) -> tuple[str, ...]:
    """The categories of a message; Movable Type calls some of them keywords."""
    names = texts_in(entry["categories"], "categories") if "categories" in entry else [*before]
    keywords = text_in(entry.get("mt_keywords", ""), "mt_keywords").split(",")
    return _merged(names, keywords)


def _merged(*lists: list[str]) -> tuple[str, ...]:
    """The names in some lists, each once, without those that are empty."""
    names = [name.strip() for each in lists for name in each]
    return tuple(dict.fromkeys(filter(None, names)))


def _is_draft(status: Any, publish: bool | None, otherwise: bool) -> bool:
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


def _entry_of(feeds: AccountFeeds, post: Post) -> dict[str, Any]:
    """A message as a struct of ``metaWeblog.getPost``."""
    page = feeds.page_url(post)
    created = _time_of(post.created_at)
    entry: dict[str, Any] = {
        "postid": str(post.id),
        "userid": str(post.account_id),
        "title": post.title,
        "description": html_of(post),
        "link": post.link or page,
        "permaLink": page,
        "dateCreated": created,
        "date_created_gmt": created,
        "date_modified": _time_of(post.changed_at),
        "date_modified_gmt": _time_of(post.changed_at),
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
        kind, size = enclosure.media_type, min(enclosure.size, _MAX_INT)
        entry["enclosure"] = {"url": enclosure.url, "type": kind, "length": size}
    return entry


def _time_of(seconds: float) -> datetime:
    """A time in UTC, which becomes a ``dateTime.iso8601`` without a zone, as editors expect."""
    return datetime.fromtimestamp(int(seconds), UTC).replace(tzinfo=None)


#: The handlers by prefix.
METHODS: Final = {"metaWeblog": MetaWeblogAPI, "blogger": BloggerAPI, "mt": MovableTypeAPI}
