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
from twisted.web.server import Request
from twisted.web.xmlrpc import Fault

from rsscloud_broker import __version__
from rsscloud_broker.apps.writing.editors import (
    BAD_REQUEST,
    NOT_FOUND,
    count_in,
    editing,
    file_of,
    number_of,
    source_of,
    struct_in,
    text_in,
    texts_in,
)
from rsscloud_broker.apps.writing.entries import check_date, is_draft, merged, time_of
from rsscloud_broker.apps.writing.metaweblog import MAX_POSTS, EditorAPI
from rsscloud_broker.apps.writing.model import NewPost, Post
from rsscloud_broker.apps.writing.pictures import html_of, media_of
from rsscloud_broker.interfaces import Caller

#: How far back a list of messages may begin.
_MAX_OFFSET: Final = 2000

_STATUSES: Final = {"draft": "Draft", "publish": "Published"}
_FORMATS: Final = {"standard": "Standard"}


class WordPressAPI(EditorAPI):
    """``wp``: what the apps of WordPress call."""

    # about the blog and its owner

    @editing
    async def xmlrpc_getUsersBlogs(
        self, request: Request, name: Any, password: Any, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the one blog of an account: name, password."""
        return self._blogs(await self._editors.caller(request, name, password))

    @editing
    async def xmlrpc_getOptions(
        self, request: Request, blog: Any, name: Any, password: Any, wanted: Any = None, *_: Any
    ) -> dict[str, Any]:
        """Return the options of the blog: blogid, name, password, names of options."""
        caller = await self._editors.caller(request, name, password)
        home, public_url = self._writing.home_url(caller.name), self._editors.parts.public_url
        values = {
            "software_name": ("Software", "rsscloud-broker"),
            "software_version": ("Version", __version__),
            "blog_url": ("Address of the blog", home),
            "home_url": ("Address of the home page", home),
            "login_url": ("Address to sign in", f"{public_url}/signin"),
            "admin_url": ("Address to write", f"{public_url}/write"),
            "blog_title": ("Title", caller.name),
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

    @editing
    async def xmlrpc_getProfile(
        self, request: Request, blog: Any, name: Any, password: Any, *_: Any
    ) -> dict[str, Any]:
        """Return what is known of the account: blogid, name, password."""
        return self._person(await self._editors.caller(request, name, password))

    @editing
    async def xmlrpc_getUsers(
        self, request: Request, blog: Any, name: Any, password: Any, filter_: Any = None, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the people of the blog, which is the account: blogid, name, password, filter."""
        caller = await self._editors.caller(request, name, password)
        offset = str(struct_in(filter_ or {}, "the filter").get("offset", 0))
        return [self._person(caller)] if offset == "0" else []

    @editing
    async def xmlrpc_getAuthors(
        self, request: Request, blog: Any, name: Any, password: Any, *_: Any
    ) -> list[dict[str, Any]]:
        """Return those who write, which is the account: blogid, name, password."""
        return [self._person(await self._editors.caller(request, name, password))]

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

    @editing
    async def xmlrpc_getPostFormats(
        self, request: Request, blog: Any, name: Any, password: Any, filter_: Any = None, *_: Any
    ) -> dict[str, Any]:
        """Return the formats of messages: blogid, name, password, filter."""
        await self._editors.caller(request, name, password)
        return {"all": _FORMATS, "supported": list(_FORMATS)} if filter_ else dict(_FORMATS)

    @editing
    async def xmlrpc_getPostStatusList(
        self, request: Request, blog: Any, name: Any, password: Any, *_: Any
    ) -> dict[str, str]:
        """Return the states of messages: blogid, name, password."""
        await self._editors.caller(request, name, password)
        return dict(_STATUSES)

    @editing
    async def xmlrpc_getPostTypes(
        self, request: Request, blog: Any, name: Any, password: Any, *_: Any
    ) -> dict[str, Any]:
        """Return the types of messages: blogid, name, password."""
        await self._editors.caller(request, name, password)
        return {"post": {"name": "post", "label": "Messages", "public": True}}

    # messages

    @editing
    async def xmlrpc_getPosts(
        self, request: Request, blog: Any, name: Any, password: Any, filter_: Any = None, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the newest messages: blogid, name, password, filter with number and offset."""
        caller = await self._editors.caller(request, name, password)
        wanted = struct_in(filter_ or {}, "the filter")
        if str(wanted.get("post_type") or "post") not in {"post", "any"}:
            return []
        number = count_in(wanted.get("number", 10), MAX_POSTS)
        offset = count_in(wanted.get("offset") or 0, _MAX_OFFSET) if wanted.get("offset") else 0
        states = set(texts_in(wanted.get("post_status") or [], "post_status"))
        states = {each for text in states for each in text.split(",")} or set(_STATUSES)
        posts = await self._writing.posts(caller, offset + number)
        chosen = [post for post in posts if _status(post) in states or "any" in states]
        return [self._entry(post) for post in chosen[offset:]]

    @editing
    async def xmlrpc_getPost(
        self, request: Request, blog: Any, name: Any, password: Any, post_id: Any, *_: Any
    ) -> dict[str, Any]:
        """Return a message: blogid, name, password, postid."""
        caller = await self._editors.caller(request, name, password)
        return self._entry(await self._editors.post(caller, post_id))

    @editing
    async def xmlrpc_newPost(
        self, request: Request, blog: Any, name: Any, password: Any, entry: Any, *_: Any
    ) -> str:
        """Write a message: blogid, name, password, struct.  Returns its id."""
        caller = await self._editors.caller(request, name, password)
        new = await self._read(caller, struct_in(entry, "the message"), None)
        return str((await self._writing.add(caller, new, source_of(request))).id)

    @editing
    async def xmlrpc_editPost(
        self,
        request: Request,
        blog: Any,
        name: Any,
        password: Any,
        post_id: Any,
        entry: Any,
        *_: Any,
    ) -> bool:
        """Change a message: blogid, name, password, postid, struct."""
        caller = await self._editors.caller(request, name, password)
        old = await self._editors.post(caller, post_id)
        new = await self._read(caller, struct_in(entry, "the message"), old)
        await self._writing.edit(caller, old.id, new, source_of(request))
        return True

    @editing
    async def xmlrpc_deletePost(
        self, request: Request, blog: Any, name: Any, password: Any, post_id: Any, *_: Any
    ) -> bool:
        """Delete a message: blogid, name, password, postid."""
        caller = await self._editors.caller(request, name, password)
        return await self._editors.delete(request, caller, post_id)

    async def _read(self, caller: Caller, entry: Mapping[str, Any], old: Post | None) -> NewPost:
        """The message that a struct of ``wp.newPost`` or ``wp.editPost`` means."""
        if text_in(entry.get("post_type", "post"), "post_type") not in {"post", ""}:
            raise Fault(BAD_REQUEST, "Messages of the type post are the only thing to write here.")
        check_date(entry, self._editors.parts.clock.wall_seconds())
        # As in WordPress, a new message is a draft unless its struct says something else.
        new = old.as_new() if old else NewPost("", is_draft=True)
        new = evolve(
            new,
            title=text_in(entry.get("post_title", new.title), "post_title"),
            categories=await self._terms(caller, entry, new.categories),
            is_draft=is_draft(entry.get("post_status"), None, new.is_draft),
        )
        if "post_content" not in entry:
            return new
        html = text_in(entry["post_content"], "post_content")
        return await self._editors.with_html(new, html, old)

    async def _terms(
        self, caller: Caller, entry: Mapping[str, Any], before: tuple[str, ...]
    ) -> tuple[str, ...]:
        """The categories of a message, which come as names, as numbers, or both."""
        if not entry.keys() & {"terms", "terms_names"}:
            return before
        lists = struct_in(entry.get("terms_names") or {}, "terms_names").values()
        names = [name for each in lists for name in texts_in(each, "the names of terms")]
        numbers = struct_in(entry.get("terms") or {}, "terms").values()
        known = {
            str(number_of(each)): each
            for each in (*before, *await self._writing.categories(caller))
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

    @editing
    async def xmlrpc_getCategories(
        self, request: Request, blog: Any, name: Any, password: Any, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the categories that were used: blogid, name, password."""
        return await self._categories(await self._editors.caller(request, name, password))

    @editing
    async def xmlrpc_suggestCategories(
        self, request: Request, blog: Any, name: Any, password: Any, part: Any = "", *_: Any
    ) -> list[dict[str, Any]]:
        """Return categories with a part of their names: blogid, name, password, part."""
        caller = await self._editors.caller(request, name, password)
        part = text_in(part, "the part of the name").casefold()
        names = await self._writing.categories(caller)
        return [
            {"category_id": str(number_of(each)), "category_name": each}
            for each in names
            if part in each.casefold()
        ]

    @editing
    async def xmlrpc_newCategory(
        self, request: Request, blog: Any, name: Any, password: Any, category: Any, *_: Any
    ) -> int:
        """Return the number of a category.  It exists once a message has it."""
        await self._editors.caller(request, name, password)
        return _number_in(category)

    @editing
    async def xmlrpc_newTerm(
        self, request: Request, blog: Any, name: Any, password: Any, term: Any, *_: Any
    ) -> str:
        """Return the number of a category.  It exists once a message has it."""
        await self._editors.caller(request, name, password)
        return str(_number_in(term))

    @editing
    async def xmlrpc_getTerms(
        self,
        request: Request,
        blog: Any,
        name: Any,
        password: Any,
        kind: Any = "category",
        filter_: Any = None,
        *_: Any,
    ) -> list[dict[str, Any]]:
        """Return the categories that were used: blogid, name, password, taxonomy, filter."""
        caller = await self._editors.caller(request, name, password)
        if kind != "category":
            return []
        wanted = struct_in(filter_ or {}, "the filter")
        part = text_in(wanted.get("search", ""), "search").casefold()
        names = await self._writing.categories(caller)
        return [_term(each) for each in names if part in each.casefold()]

    @editing
    async def xmlrpc_getTaxonomies(
        self, request: Request, blog: Any, name: Any, password: Any, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the kinds of terms, which are the categories: blogid, name, password."""
        await self._editors.caller(request, name, password)
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

    @editing
    async def xmlrpc_uploadFile(
        self, request: Request, blog: Any, name: Any, password: Any, file: Any, *_: Any
    ) -> dict[str, Any]:
        """Store a file: blogid, name, password, struct of name, type and bits.  Returns its url."""
        caller = await self._editors.caller(request, name, password)
        return await self._editors.upload(request, caller, file)

    @editing
    async def xmlrpc_getMediaLibrary(
        self, request: Request, blog: Any, name: Any, password: Any, filter_: Any = None, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the files that were uploaded: blogid, name, password, filter."""
        caller = await self._editors.caller(request, name, password)
        wanted = struct_in(filter_ or {}, "the filter")
        number = count_in(wanted.get("number", MAX_POSTS), MAX_POSTS)
        offset = count_in(wanted["offset"], _MAX_OFFSET) if wanted.get("offset") else 0
        uploads = await self._writing.uploads(caller, offset + number)
        return [file_of(upload) for upload in uploads[offset:]]

    @editing
    async def xmlrpc_getMediaItem(
        self, request: Request, blog: Any, name: Any, password: Any, number: Any, *_: Any
    ) -> dict[str, Any]:
        """Return a file that was uploaded: blogid, name, password, attachment_id."""
        caller = await self._editors.caller(request, name, password)
        uploads = await self._writing.uploads(caller, _MAX_OFFSET)
        for upload in uploads:
            if str(number_of(upload.url)) == str(number):
                return file_of(upload)
        raise Fault(NOT_FOUND, f"You have no file with the id {str(number)[:40]}.")

    # what there is not

    @editing
    async def xmlrpc_getTags(
        self, request: Request, blog: Any, name: Any, password: Any, *_: Any
    ) -> list[Any]:
        """Return the tags: there are none, but categories."""
        await self._editors.caller(request, name, password)
        return []

    xmlrpc_getPages = xmlrpc_getPageList = xmlrpc_getComments = xmlrpc_getTags


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
