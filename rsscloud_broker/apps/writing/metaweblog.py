"""The MetaWeblog API and the Blogger API, at the paths for XML-RPC calls.

Editors such as MarsEdit and Open Live Writer write messages with these::

    metaWeblog.newPost("1", "anna", PASSWORD, {"title": "News", "description": "<p>Hi</p>"}, true)

Sources: https://xmlrpc.com/metaWeblogApi; the Blogger API 1.0; and what Open Live Writer and
MarsEdit call, among it the calls of Movable Type (``mt``) for categories.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from attrs import evolve
from twisted.web.xmlrpc import Fault

from rsscloud_broker.apps.writing.arguments import FaultCode, flag_in, number_of, struct_in, text_in
from rsscloud_broker.apps.writing.editors import EditorAPI, EditorCall, editing
from rsscloud_broker.apps.writing.entries import entry_of, is_draft, merged, read_entry, time_of
from rsscloud_broker.apps.writing.model import NewPost, Post
from rsscloud_broker.apps.writing.pictures import html_of


class MetaWeblogAPI(EditorAPI):
    """``metaWeblog``: messages as structs like RSS items, and files."""

    @editing("blog name password entry publish")
    async def xmlrpc_newPost(self, call: EditorCall, entry: Any, publish: Any = None) -> str:
        """Write a message: blogid, name, password, struct, publish.  Returns its id."""
        published = None if publish is None else flag_in(publish)
        return await self._add(
            call, await read_entry(self.editors, call.caller, entry, None, published)
        )

    @editing("post_id name password entry publish")
    async def xmlrpc_editPost(
        self, call: EditorCall, post: Post, entry: Any, publish: Any = None
    ) -> bool:
        """Change a message: postid, name, password, struct, whether to publish it."""
        published = None if publish is None else flag_in(publish)

        async def edited(old: Post) -> NewPost:
            return await read_entry(self.editors, call.caller, entry, old, published)

        return await self._edit(call, post, edited)

    @editing("post_id name password")
    async def xmlrpc_getPost(self, call: EditorCall, post: Post) -> dict[str, Any]:
        """Return a message as a struct: postid, name, password."""
        return entry_of(self._writing, post)

    @editing("blog name password count")
    async def xmlrpc_getRecentPosts(
        self, call: EditorCall, count: Any = 10
    ) -> list[dict[str, Any]]:
        """Return the newest messages, drafts too: blogid, name, password, how many."""
        return [entry_of(self._writing, post) for post in await self._newest_posts(call, count)]

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
            # Integers of XML-RPC have 32 bits.
            "metadata": {"filesize": min(upload.size, 2**31 - 1)},
        }

    @editing("key post_id name password")
    async def xmlrpc_deletePost(self, call: EditorCall, post: Post) -> bool:
        """Delete a message: appkey, postid, name, password, publish.  As in blogger."""
        return await self._delete(call, post)

    @editing("key name password")
    async def xmlrpc_getUsersBlogs(self, call: EditorCall) -> list[dict[str, Any]]:
        """Return the one blog of an account: appkey, name, password.  As in blogger."""
        return self._blogs(call.caller)


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
        empty = NewPost("", is_draft=is_draft(None, flag_in(publish), otherwise=False))
        new = await self.editors.with_html(
            call.caller, empty, text_in(content, "the content"), None
        )
        return await self._add(call, new)

    @editing("key post_id name password content publish")
    async def xmlrpc_editPost(
        self, call: EditorCall, post: Post, content: Any, publish: Any = True
    ) -> bool:
        """Change a message: appkey, postid, name, password, HTML, whether to publish it."""
        hidden = is_draft(None, flag_in(publish), otherwise=False)
        html = text_in(content, "the content")

        async def edited(old: Post) -> NewPost:
            # The title is in the content; without one, the message has none.
            bare = evolve(old.as_new(), title="", is_draft=hidden)
            return await self.editors.with_html(call.caller, bare, html, old)

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
        "dateCreated": time_of(post.created_at),
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
        categories = merged([_category_in(each, known) for each in chosen])

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


#: The handlers by prefix.
METHODS: Final = {"metaWeblog": MetaWeblogAPI, "blogger": BloggerAPI, "mt": MovableTypeAPI}
