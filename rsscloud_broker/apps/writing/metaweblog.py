"""The MetaWeblog API, the Blogger API and the API of Movable Type, at the paths for XML-RPC calls.

Editors such as MarsEdit and Open Live Writer write messages with these::

    metaWeblog.newPost("1", "anna", PASSWORD, {"title": "News", "description": "<p>Hi</p>"}, true)

Sources: https://xmlrpc.com/metaWeblogApi; the Blogger API 1.0; the XML-RPC API of Movable Type;
and what Open Live Writer, MarsEdit and the apps of WordPress call.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import evolve
from twisted.web.server import Request
from twisted.web.xmlrpc import XMLRPC, Fault

from rsscloud_broker.apps.writing.editors import (
    BAD_REQUEST,
    BLOG_ID,
    Editors,
    count_in,
    editing,
    flag_in,
    number_of,
    source_of,
    struct_in,
    text_in,
)
from rsscloud_broker.apps.writing.entries import (
    category_of,
    entry_of,
    is_draft,
    merged,
    read_entry,
    time_of,
)
from rsscloud_broker.apps.writing.model import NewPost, Post
from rsscloud_broker.apps.writing.pictures import html_of
from rsscloud_broker.interfaces import Caller

#: How many messages a call returns at most.
MAX_POSTS: Final = 100


class EditorAPI(XMLRPC):
    """A base for the handlers of these APIs."""

    def __init__(self, editors: Editors) -> None:
        super().__init__(allowNone=True)
        self._editors = editors
        self._writing = editors.writing

    def _blogs(self, caller: Caller) -> list[dict[str, Any]]:
        """The one blog of an account, in a list."""
        return [
            {
                "blogid": BLOG_ID,
                "blogName": caller.name,
                "url": self._writing.home_url(caller.name),
                "xmlrpc": f"{self._editors.parts.public_url}/RPC2",
                "isAdmin": False,
                "isPrimary": True,
            }
        ]

    async def _recent(self, caller: Caller, count: Any) -> list[Post]:
        return await self._writing.posts(caller, count_in(count, MAX_POSTS))

    async def _categories(self, caller: Caller) -> list[dict[str, Any]]:
        names = await self._writing.categories(caller)
        return [category_of(self._writing, caller.name, name) for name in names]


class MetaWeblogAPI(EditorAPI):
    """``metaWeblog``: messages as structs like RSS items, and files."""

    @editing
    async def xmlrpc_newPost(
        self,
        request: Request,
        blog: Any,
        name: Any,
        password: Any,
        entry: Any,
        publish: Any = None,
        *_: Any,
    ) -> str:
        """Write a message: blogid, name, password, struct, publish.  Returns its id."""
        caller = await self._editors.caller(request, name, password)
        published = None if publish is None else flag_in(publish)
        new = await read_entry(self._editors, entry, None, published)
        post = await self._writing.add(caller, new, source_of(request))
        return str(post.id)

    @editing
    async def xmlrpc_editPost(
        self,
        request: Request,
        post_id: Any,
        name: Any,
        password: Any,
        entry: Any,
        publish: Any = None,
        *_: Any,
    ) -> bool:
        """Change a message: postid, name, password, struct, whether to publish it."""
        caller = await self._editors.caller(request, name, password)
        old = await self._editors.post(caller, post_id)
        published = None if publish is None else flag_in(publish)
        new = await read_entry(self._editors, entry, old, published)
        await self._writing.edit(caller, old.id, new, source_of(request))
        return True

    @editing
    async def xmlrpc_getPost(
        self, request: Request, post_id: Any, name: Any, password: Any, *_: Any
    ) -> dict[str, Any]:
        """Return a message as a struct: postid, name, password."""
        caller = await self._editors.caller(request, name, password)
        return entry_of(self._writing, await self._editors.post(caller, post_id))

    @editing
    async def xmlrpc_getRecentPosts(
        self, request: Request, blog: Any, name: Any, password: Any, count: Any = 10, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the newest messages, drafts too: blogid, name, password, how many."""
        caller = await self._editors.caller(request, name, password)
        return [entry_of(self._writing, post) for post in await self._recent(caller, count)]

    @editing
    async def xmlrpc_getCategories(
        self, request: Request, blog: Any, name: Any, password: Any, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the categories that were used: blogid, name, password."""
        return await self._categories(await self._editors.caller(request, name, password))

    @editing
    async def xmlrpc_newMediaObject(
        self, request: Request, blog: Any, name: Any, password: Any, file: Any, *_: Any
    ) -> dict[str, Any]:
        """Store a file: blogid, name, password, struct of name, type and bits.  Returns its url."""
        caller = await self._editors.caller(request, name, password)
        return await self._editors.upload(request, caller, file)

    @editing
    async def xmlrpc_deletePost(
        self, request: Request, key: Any, post_id: Any, name: Any, password: Any, *_: Any
    ) -> bool:
        """Delete a message: appkey, postid, name, password, publish.  As in blogger."""
        caller = await self._editors.caller(request, name, password)
        return await self._editors.delete(request, caller, post_id)

    @editing
    async def xmlrpc_getUsersBlogs(
        self, request: Request, key: Any, name: Any, password: Any, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the one blog of an account: appkey, name, password.  As in blogger."""
        return self._blogs(await self._editors.caller(request, name, password))


class BloggerAPI(EditorAPI):
    """``blogger``: messages as HTML, which may begin with a title in ``<title>``."""

    @editing
    async def xmlrpc_getUsersBlogs(
        self, request: Request, key: Any, name: Any, password: Any, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the one blog of an account: appkey, name, password."""
        return self._blogs(await self._editors.caller(request, name, password))

    @editing
    async def xmlrpc_getUserInfo(
        self, request: Request, key: Any, name: Any, password: Any, *_: Any
    ) -> dict[str, str]:
        """Return what is known of an account: appkey, name, password."""
        caller = await self._editors.caller(request, name, password)
        return {
            "userid": str(caller.account.id),
            "nickname": caller.name,
            "firstname": caller.name,
            "lastname": "",
            "email": "",
            "url": self._writing.home_url(caller.name),
        }

    @editing
    async def xmlrpc_newPost(
        self,
        request: Request,
        key: Any,
        blog: Any,
        name: Any,
        password: Any,
        content: Any,
        publish: Any = True,
        *_: Any,
    ) -> str:
        """Write a message: appkey, blogid, name, password, HTML, whether to publish it."""
        caller = await self._editors.caller(request, name, password)
        empty = NewPost("", is_draft=is_draft(None, flag_in(publish), False))
        new = await self._editors.with_html(empty, text_in(content, "the content"), None)
        post = await self._writing.add(caller, new, source_of(request))
        return str(post.id)

    @editing
    async def xmlrpc_editPost(
        self,
        request: Request,
        key: Any,
        post_id: Any,
        name: Any,
        password: Any,
        content: Any,
        publish: Any = True,
        *_: Any,
    ) -> bool:
        """Change a message: appkey, postid, name, password, HTML, whether to publish it."""
        caller = await self._editors.caller(request, name, password)
        old = await self._editors.post(caller, post_id)
        # The title is in the content; without one, the message has none.
        bare = evolve(old.as_new(), title="", is_draft=is_draft(None, flag_in(publish), False))
        new = await self._editors.with_html(bare, text_in(content, "the content"), old)
        await self._writing.edit(caller, old.id, new, source_of(request))
        return True

    @editing
    async def xmlrpc_deletePost(
        self, request: Request, key: Any, post_id: Any, name: Any, password: Any, *_: Any
    ) -> bool:
        """Delete a message: appkey, postid, name, password, publish."""
        caller = await self._editors.caller(request, name, password)
        return await self._editors.delete(request, caller, post_id)

    @editing
    async def xmlrpc_getPost(
        self, request: Request, key: Any, post_id: Any, name: Any, password: Any, *_: Any
    ) -> dict[str, Any]:
        """Return a message: appkey, postid, name, password."""
        caller = await self._editors.caller(request, name, password)
        return _blogger_post(await self._editors.post(caller, post_id))

    @editing
    async def xmlrpc_getRecentPosts(
        self, request: Request, key: Any, blog: Any, name: Any, password: Any, count: Any, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the newest messages: appkey, blogid, name, password, how many."""
        caller = await self._editors.caller(request, name, password)
        return [_blogger_post(post) for post in await self._recent(caller, count)]


def _blogger_post(post: Post) -> dict[str, Any]:
    title = f"<title>{_escaped(post.title)}</title>" if post.title else ""
    return {
        "postid": str(post.id),
        "userid": str(post.account_id),
        "dateCreated": time_of(post.created_at),
        "content": title + html_of(post),
    }


class MovableTypeAPI(EditorAPI):
    """``mt``: the categories of a message, and what else editors ask of Movable Type."""

    @editing
    async def xmlrpc_getCategoryList(
        self, request: Request, blog: Any, name: Any, password: Any, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the categories that were used: blogid, name, password."""
        return await self._categories(await self._editors.caller(request, name, password))

    @editing
    async def xmlrpc_getPostCategories(
        self, request: Request, post_id: Any, name: Any, password: Any, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the categories of a message: postid, name, password."""
        caller = await self._editors.caller(request, name, password)
        post = await self._editors.post(caller, post_id)
        return [
            {"categoryId": str(number_of(each)), "categoryName": each, "isPrimary": place == 0}
            for place, each in enumerate(post.categories)
        ]

    @editing
    async def xmlrpc_setPostCategories(
        self, request: Request, post_id: Any, name: Any, password: Any, chosen: Any, *_: Any
    ) -> bool:
        """Set the categories of a message: postid, name, password, structs with categoryId."""
        caller = await self._editors.caller(request, name, password)
        post = await self._editors.post(caller, post_id)
        if not isinstance(chosen, list):
            raise Fault(BAD_REQUEST, "The categories must be an array of structs.")
        used = await self._writing.categories(caller)
        by_number = {str(number_of(each)): each for each in (*post.categories, *used)}
        names = [_category_in(each, by_number) for each in chosen]
        new = evolve(post.as_new(), categories=merged(names))
        if new.categories != post.categories:
            await self._writing.edit(caller, post.id, new, source_of(request))
        return True

    @editing
    async def xmlrpc_getRecentPostTitles(
        self, request: Request, blog: Any, name: Any, password: Any, count: Any, *_: Any
    ) -> list[dict[str, Any]]:
        """Return the titles of the newest messages: blogid, name, password, how many."""
        caller = await self._editors.caller(request, name, password)
        return [
            {
                "postid": str(post.id),
                "userid": str(post.account_id),
                "dateCreated": time_of(post.created_at),
                "title": post.title or post.text[:60],
            }
            for post in await self._recent(caller, count)
        ]

    @editing
    async def xmlrpc_publishPost(
        self, request: Request, post_id: Any, name: Any, password: Any, *_: Any
    ) -> bool:
        """Publish a draft: postid, name, password."""
        caller = await self._editors.caller(request, name, password)
        post = await self._editors.post(caller, post_id)
        if post.is_draft:
            new = evolve(post.as_new(), is_draft=False)
            await self._writing.edit(caller, post.id, new, source_of(request))
        return True

    @editing
    async def xmlrpc_supportedTextFilters(self, request: Request, *_: Any) -> list[Any]:
        """Return the formats of texts besides HTML: there are none."""
        return []

    @editing
    async def xmlrpc_supportedMethods(self, request: Request, *_: Any) -> list[str]:
        """Return the names of the procedures for editors."""
        return [
            f"{prefix}.{name}"
            for prefix, handler in METHODS.items()
            for name in handler(self._editors).listProcedures()
        ]


def _category_in(value: Any, by_number: dict[str, str]) -> str:
    """The name of a category that a client means by its id, or by its name in place of one."""
    category = struct_in(value, "a category")
    sent = text_in(category.get("categoryId", category.get("categoryName", "")), "categoryId")
    if sent in by_number:
        return by_number[sent]
    if not sent or sent.isdigit():
        raise Fault(BAD_REQUEST, f"You have no category with the id {sent[:40]!r}.")
    return sent


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


#: The handlers by prefix.
METHODS: Final = {
    "metaWeblog": MetaWeblogAPI,
    "blogger": BloggerAPI,
    "mt": MovableTypeAPI,
}
