"""What the apps of WordPress and other editors call under ``wp``.

The apps find ``/RPC2`` by ``/rsd.xml``, ask ``wp.getUsersBlogs``, ``wp.getOptions`` and
``wp.getProfile``, list messages with ``wp.getPosts`` and write them with ``metaWeblog.newPost`` or
``wp.newPost``.  There are no pages, comments, tags or other people here: lists of them are empty.
Tags that an editor sends become categories.

Source: https://codex.wordpress.org/XML-RPC_WordPress_API, and what the apps call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve
from twisted.web.xmlrpc import Fault

from rsscloud_broker import __version__
from rsscloud_broker.apps.writing.arguments import (
    BAD_REQUEST,
    NOT_FOUND,
    count_in,
    number_of,
    struct_in,
    text_in,
    texts_in,
)
from rsscloud_broker.apps.writing.editors import MAX_POSTS, Call, EditorAPI, editing, file_of
from rsscloud_broker.apps.writing.entries import check_date, is_draft, merged, time_of
from rsscloud_broker.apps.writing.model import NewPost, Post
from rsscloud_broker.apps.writing.pictures import html_of, media_of
from rsscloud_broker.interfaces import Caller

#: How many messages or files a list leaves out at most; more than any account has.
_MAX_OFFSET: Final = 10**9

#: Among how many files, the newest, one is looked up by its number.
_MAX_FILES: Final = 2000

_STATUSES: Final = {"draft": "Draft", "publish": "Published"}
_FORMATS: Final = {"standard": "Standard"}


class WordPressAPI(EditorAPI):
    """``wp``: what the apps of WordPress call."""

    # about the blog and its owner

    @editing("name password")
    async def xmlrpc_getUsersBlogs(self, call: Call) -> list[dict[str, Any]]:
        """Return the one blog of an account: name, password."""
        return self._blogs(call.caller)

    @editing("blog name password wanted")
    async def xmlrpc_getOptions(self, call: Call, wanted: Any = None) -> dict[str, Any]:
        """Return the options of the blog: blogid, name, password, names of options."""
        home, public_url = self._writing.home_url(call.caller.name), self.editors.parts.public_url
        values = {
            "software_name": ("Software", "rsscloud-broker"),
            "software_version": ("Version", __version__),
            "blog_url": ("Address of the blog", home),
            "home_url": ("Address of the home page", home),
            "login_url": ("Address to sign in", f"{public_url}/signin"),
            "admin_url": ("Address to write", f"{public_url}/write"),
            "blog_title": ("Title", call.caller.name),
            "blog_tagline": ("Tagline", ""),
            "time_zone": ("Time zone", "0"),
            "date_format": ("Date format", "Y-m-d"),
            "time_format": ("Time format", "H:i"),
            "users_can_register": ("Open to strangers", False),
            "post_thumbnail": ("Thumbnails", False),
        }
        names = texts_in(wanted, "the names of options") if wanted else list(values)
        return {
            each: {"desc": values[each][0], "value": values[each][1], "readonly": True}
            for each in names
            if each in values
        }

    @editing("blog name password")
    async def xmlrpc_getProfile(self, call: Call) -> dict[str, Any]:
        """Return what is known of the account: blogid, name, password."""
        return self._person(call.caller)

    @editing("blog name password filter_")
    async def xmlrpc_getUsers(self, call: Call, filter_: Any = None) -> list[dict[str, Any]]:
        """Return the people of the blog, which is the account: blogid, name, password, filter."""
        offset = str(struct_in(filter_ or {}, "the filter").get("offset", 0))
        return [self._person(call.caller)] if offset == "0" else []

    @editing("blog name password")
    async def xmlrpc_getAuthors(self, call: Call) -> list[dict[str, Any]]:
        """Return those who write, which is the account: blogid, name, password."""
        return [self._person(call.caller)]

    def _person(self, caller: Caller) -> dict[str, Any]:
        return {
            "user_id": str(caller.account.id),
            "user_login": caller.name,
            "username": caller.name,
            "nickname": caller.name,
            "nicename": caller.name,
            "display_name": caller.name,
            "first_name": "",
            "last_name": "",
            "email": "",
            "bio": "",
            "url": self._writing.home_url(caller.name),
            "roles": ["author"],
        }

    @editing("blog name password filter_")
    async def xmlrpc_getPostFormats(self, call: Call, filter_: Any = None) -> dict[str, Any]:
        """Return the formats of messages: blogid, name, password, filter."""
        return {"all": _FORMATS, "supported": list(_FORMATS)} if filter_ else dict(_FORMATS)

    @editing("blog name password")
    async def xmlrpc_getPostStatusList(self, call: Call) -> dict[str, str]:
        """Return the states of messages: blogid, name, password."""
        return dict(_STATUSES)

    @editing("blog name password")
    async def xmlrpc_getPostTypes(self, call: Call) -> dict[str, Any]:
        """Return the types of messages: blogid, name, password."""
        return {"post": {"name": "post", "label": "Messages", "public": True}}

    # messages

    @editing("blog name password filter_")
    async def xmlrpc_getPosts(self, call: Call, filter_: Any = None) -> list[dict[str, Any]]:
        """Return the newest messages: blogid, name, password, filter with number and offset."""
        wanted = struct_in(filter_ or {}, "the filter")
        if str(wanted.get("post_type") or "post") not in {"post", "any"}:
            return []
        sent = texts_in(wanted.get("post_status") or "any", "post_status")
        states = {each.strip() for text in sent for each in text.split(",")}
        drafts = not states.isdisjoint({"draft", "any"})
        published = not states.isdisjoint({"publish", "any"})
        if not (drafts or published):
            return []
        posts = await self._writing.posts(
            call.caller,
            count_in(wanted.get("number", 10), MAX_POSTS),
            is_draft=None if drafts and published else drafts,
            skipped=_offset_in(wanted),
        )
        return [self._entry(post) for post in posts]

    @editing("blog name password post_id")
    async def xmlrpc_getPost(self, call: Call, post: Post) -> dict[str, Any]:
        """Return a message: blogid, name, password, postid."""
        return self._entry(post)

    @editing("blog name password entry")
    async def xmlrpc_newPost(self, call: Call, entry: Any) -> str:
        """Write a message: blogid, name, password, struct.  Returns its id."""
        return await self._add(call, await self._read(call, entry, None))

    @editing("blog name password post_id entry")
    async def xmlrpc_editPost(self, call: Call, post: Post, entry: Any) -> bool:
        """Change a message: blogid, name, password, postid, struct."""
        return await self._edit(call, post, await self._read(call, entry, post))

    @editing("blog name password post_id")
    async def xmlrpc_deletePost(self, call: Call, post: Post) -> bool:
        """Delete a message: blogid, name, password, postid."""
        return await self._delete(call, post)

    async def _read(self, call: Call, sent: Any, old: Post | None) -> NewPost:
        """The message that a struct of ``wp.newPost`` or ``wp.editPost`` means."""
        entry = struct_in(sent, "the message")
        if text_in(entry.get("post_type", "post"), "post_type") not in {"post", ""}:
            raise Fault(BAD_REQUEST, "Messages of the type post are the only thing to write here.")
        check_date(entry, self.editors.parts.clock.wall_seconds())
        # As in WordPress, a new message is a draft unless its struct says something else.
        new = old.as_new() if old else NewPost("", is_draft=True)
        new = evolve(
            new,
            title=text_in(entry.get("post_title", new.title), "post_title"),
            categories=await self._terms(call, entry, new.categories),
            is_draft=is_draft(entry.get("post_status"), None, new.is_draft),
        )
        if "post_content" not in entry:
            return new
        html = text_in(entry["post_content"], "post_content")
        return await self.editors.with_html(call.caller, new, html, old)

    async def _terms(
        self, call: Call, entry: Mapping[str, Any], before: tuple[str, ...]
    ) -> tuple[str, ...]:
        """The categories of a message, which come as names, as numbers, or both."""
        if not entry.keys() & {"terms", "terms_names"}:
            return before
        lists = struct_in(entry.get("terms_names") or {}, "terms_names").values()
        names = [name for each in lists for name in texts_in(each, "the names of terms")]
        numbers = struct_in(entry.get("terms") or {}, "terms").values()
        known = {
            str(number_of(each)): each
            for each in (*before, *await self._writing.categories(call.caller))
        }
        for number in (each for some in numbers for each in texts_in(some, "the ids of terms")):
            if number not in known:
                raise Fault(BAD_REQUEST, f"You have no category with the id {number[:40]}.")
            names.append(known[number])
        return merged(names)

    def _entry(self, post: Post) -> dict[str, Any]:
        """A message as a struct of ``wp.getPost``."""
        created, changed = time_of(post.created_at), time_of(post.changed_at)
        pictures = [link.url for kind, link in media_of(post) if kind == "image"]
        thumbnail: Any = (
            {"attachment_id": str(number_of(pictures[0])), "link": pictures[0]} if pictures else []
        )
        return {
            "post_id": str(post.id),
            "post_title": post.title,
            "post_date": created,
            "post_date_gmt": created,
            "post_modified": changed,
            "post_modified_gmt": changed,
            "post_status": _status(post),
            "post_type": "post",
            "post_format": "standard",
            "post_name": "",
            "post_author": str(post.account_id),
            "post_password": "",
            "post_excerpt": "",
            "post_content": html_of(post),
            "post_parent": "0",
            "link": self._writing.page_url(post),
            "guid": post.guid,
            "comment_status": "closed",
            "ping_status": "closed",
            "sticky": False,
            "post_thumbnail": thumbnail,
            "terms": [_term(name) for name in post.categories],
            "custom_fields": [],
        }

    # categories

    @editing("blog name password")
    async def xmlrpc_getCategories(self, call: Call) -> list[dict[str, Any]]:
        """Return the categories that were used: blogid, name, password."""
        return await self._categories(call)

    @editing("blog name password part")
    async def xmlrpc_suggestCategories(self, call: Call, part: Any = "") -> list[dict[str, Any]]:
        """Return categories with a part of their names: blogid, name, password, part."""
        part = text_in(part, "the part of the name").casefold()
        names = await self._writing.categories(call.caller)
        return [
            {"category_id": str(number_of(each)), "category_name": each}
            for each in names
            if part in each.casefold()
        ]

    @editing("blog name password category")
    async def xmlrpc_newCategory(self, call: Call, category: Any) -> int:
        """Return the number of a category.  It exists once a message has it."""
        return _number_in(category)

    @editing("blog name password term")
    async def xmlrpc_newTerm(self, call: Call, term: Any) -> str:
        """Return the number of a category.  It exists once a message has it."""
        return str(_number_in(term))

    @editing("blog name password kind filter_")
    async def xmlrpc_getTerms(
        self, call: Call, kind: Any = "category", filter_: Any = None
    ) -> list[dict[str, Any]]:
        """Return the categories that were used: blogid, name, password, taxonomy, filter."""
        if kind != "category":
            return []
        wanted = struct_in(filter_ or {}, "the filter")
        part = text_in(wanted.get("search", ""), "search").casefold()
        names = await self._writing.categories(call.caller)
        return [_term(each) for each in names if part in each.casefold()]

    @editing("blog name password")
    async def xmlrpc_getTaxonomies(self, call: Call) -> list[dict[str, Any]]:
        """Return the kinds of terms, which are the categories: blogid, name, password."""
        return [
            {
                "name": "category",
                "label": "Categories",
                "hierarchical": False,
                "public": True,
                "object_type": ["post"],
            }
        ]

    # files

    @editing("blog name password file")
    async def xmlrpc_uploadFile(self, call: Call, file: Any) -> dict[str, Any]:
        """Store a file: blogid, name, password, struct of name, type and bits.  Returns its url."""
        return await self._upload(call, file)

    @editing("blog name password filter_")
    async def xmlrpc_getMediaLibrary(self, call: Call, filter_: Any = None) -> list[dict[str, Any]]:
        """Return the files that were uploaded: blogid, name, password, filter."""
        wanted = struct_in(filter_ or {}, "the filter")
        number = count_in(wanted.get("number", MAX_POSTS), MAX_POSTS)
        uploads = await self._writing.uploads(call.caller, number, skipped=_offset_in(wanted))
        return [file_of(upload) for upload in uploads]

    @editing("blog name password number")
    async def xmlrpc_getMediaItem(self, call: Call, number: Any) -> dict[str, Any]:
        """Return a file that was uploaded: blogid, name, password, attachment_id."""
        uploads = await self._writing.uploads(call.caller, _MAX_FILES)
        for upload in uploads:
            if str(number_of(upload.url)) == str(number):
                return file_of(upload)
        raise Fault(NOT_FOUND, f"You have no file with the id {str(number)[:40]}.")

    # what there is not

    @editing("blog name password")
    async def xmlrpc_getTags(self, call: Call) -> list[Any]:
        """Return the tags: there are none, but categories."""
        return []

    xmlrpc_getPages = xmlrpc_getPageList = xmlrpc_getComments = xmlrpc_getTags


def _offset_in(wanted: Mapping[str, Any]) -> int:
    """How many messages or files a filter leaves out at the beginning of a list."""
    return count_in(wanted["offset"], _MAX_OFFSET) if wanted.get("offset") else 0


def _status(post: Post) -> str:
    return "draft" if post.is_draft else "publish"


def _term(name: str) -> dict[str, Any]:
    """A category as a struct of ``wp.getTerms``."""
    number = str(number_of(name))
    return {
        "term_id": number,
        "term_taxonomy_id": number,
        "term_group": "0",
        "name": name,
        "slug": name,
        "description": "",
        "parent": "0",
        "count": 0,
        "taxonomy": "category",
    }


def _number_in(category: Any) -> int:
    """The number of a category that a client wants to make."""
    name = text_in(struct_in(category, "the category").get("name", ""), "name").strip()
    if not name:
        raise Fault(BAD_REQUEST, "A category needs a name.")
    return number_of(name)
