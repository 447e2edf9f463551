"""Micropub: programs create, change and delete messages (W3C Recommendation of 23 May 2017).

``/micropub`` takes forms, forms with files, and JSON: see ``docs/applications/posting.rst``.
``/micropub/media`` takes one file (section 3.6), whose URL can then be a ``photo``.  ``GET``
queries the configuration, categories and messages (section 3.7).

``micropub_requests`` finds out who asks.  A deleted message is gone; there is no ``undelete``.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from attrs import evolve
from twisted.web.server import Request

from rsscloud_broker.apps.writing.editors import SCOPE, call_with_html
from rsscloud_broker.apps.writing.micropub_requests import (
    FORM,
    JSON,
    MAX_OVERHEAD,
    MULTIPART,
    Refusal,
    Sent,
    caller_of,
    read_request,
)
from rsscloud_broker.apps.writing.model import InvalidPost, NewPost, Post
from rsscloud_broker.apps.writing.properties import (
    apply_update,
    check_published,
    html_in,
    new_post,
    properties_of,
    properties_of_form,
    properties_of_json,
)
from rsscloud_broker.apps.writing.rules import check_and_tidy
from rsscloud_broker.apps.writing.upload_rows import StoredUpload
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.http.answering import Answer, Answers
from rsscloud_broker.http.requests import (
    bearer_token,
    client_address,
    media_type,
    parameter,
    respond,
)
from rsscloud_broker.interfaces import AppParts, Caller, Route
from rsscloud_broker.wire.text import decode, parse_number

ENDPOINT: Final = "/micropub"
MEDIA_ENDPOINT: Final = "/micropub/media"

#: How many messages or files a query returns at most, and how many if it does not say.
_MAX_POSTS, _POSTS = 100, 20

#: What errors are called that every front door answers alike, by their status.
_ERRORS: Final = {
    400: "invalid_request",
    403: "forbidden",
    429: "too_many_requests",
    500: "server_error",
    503: "temporarily_unavailable",
}

#: The kinds of files that a message may come with.
_FILES: Final = ("photo", "video", "audio")

#: What can be posted, with the names by which people know it.
_POST_TYPES: Final = {
    "note": "Note",
    "article": "Titled note",
    "photo": "Photo",
    "audio": "Audio",
    "video": "Video",
    "reply": "Reply",
    "bookmark": "Bookmark",
    "repost": "Repost",
    "like": "Like",
}


class Micropub:
    """Answers the requests of both endpoints."""

    def __init__(self, writing: Writing, parts: AppParts) -> None:
        self._writing = writing
        self._parts = parts

    def routes(self) -> list[Route]:
        """The routes of the two endpoints."""
        limit = self._writing.options.max_upload_bytes + MAX_OVERHEAD
        files = frozenset({MULTIPART})
        route = partial(Route, for_everybody=True)
        act, upload = _make_resource(self._act), _make_resource(self._upload)
        forms = frozenset({FORM})  # the site parses these, also those of strangers
        return [
            route(ENDPOINT, "GET", _make_resource(self._query)),
            route(ENDPOINT, "POST", act, content_types=forms, body_limit=MAX_OVERHEAD),
            route(ENDPOINT, "POST", act, content_types=files | {JSON}, body_limit=limit),
            route(MEDIA_ENDPOINT, "GET", _make_resource(self._query_media)),
            route(MEDIA_ENDPOINT, "POST", upload, content_types=files, body_limit=limit),
        ]

    async def _act(self, request: Request) -> Answer:
        """Create, update or delete a message, as a request asks for."""
        caller, sent = await read_request(self._parts, request)
        document, source = sent.document, client_address(request)
        action = document.get("action", "")
        if action == "":
            return await self._create(caller, sent, source)
        if action not in ("update", "delete"):  # it may be of any type
            text = "a deleted message is gone" if action == "undelete" else "there is none such"
            raise InvalidPost(f"the actions are update and delete: {text}")
        if action == "update" and media_type(request) != JSON:
            raise InvalidPost(f"an update must be sent as {JSON}")
        post = await self._post_at(caller, document.get("url"))
        if action == "delete":
            if not await self._writing.delete(caller, post.id, source):
                raise _no_such_post()
            return Answer(b"", JSON, 204)

        async def updated(old: Post) -> NewPost:
            properties = apply_update(self._properties(old), document)
            return await self._make_new_post(caller, properties, old)

        await self._writing.edit(caller, post.id, updated, source)
        return Answer(b"", JSON, 204)

    async def _create(self, caller: Caller, sent: Sent, source: str) -> Answer:
        """Create a message; it is checked before any of the files that came with it is stored."""
        if sent.form is None:
            properties = properties_of_json(sent.document)
        elif sent.document.get("h", "entry") != "entry":
            raise InvalidPost("h must be entry: messages are the only thing to create here")
        else:
            properties = properties_of_form(sent.form.pairs)
        files = sent.form.files if sent.form else ()
        new = await self._make_new_post(caller, properties)
        self._check_with_files(new, files)
        for field, name, data in files:
            upload = await self._writing.upload(caller, name, data, source)
            url = self._writing.files.url(caller.name, upload)
            properties.setdefault(field.removesuffix("[]"), []).append(url)
        if files:
            new = await self._make_new_post(caller, properties)
        post = await self._writing.add(caller, new, source)
        return Answer(b"", JSON, 201, {"location": self._writing.feeds.page_url(post)})

    async def _make_new_post(
        self, caller: Caller, properties: dict[str, list[Any]], old: Post | None = None
    ) -> NewPost:
        """The message with some properties: see ``new_post``.  Another process reads large HTML."""
        html = html_in(properties)
        new = await call_with_html(self._parts, caller, html, new_post, properties, old)
        if not new.is_draft:
            now = self._parts.clock.wall_seconds()
            # An old message has its own date; the clock may have been set back since.
            check_published(properties, max(now, old.created_at) if old else now)
        return new

    def _check_with_files(self, new: NewPost, files: Sequence[tuple[str, str, bytes]]) -> None:
        """Check a message before its files are stored, which would be left over otherwise.

        :raises InvalidPost: it breaks a rule.
        """
        options = self._writing.options
        most, at_once = options.max_upload_bytes, options.posts_per_minute
        if len(files) > at_once:
            raise InvalidPost(
                f"the message has {len(files)} files, and an account may upload {at_once} in a "
                f"minute; send some of them to {MEDIA_ENDPOINT} before"
            )
        for field, _, data in files:
            if field.removesuffix("[]") not in _FILES:
                raise InvalidPost(f"files must be in fields named {', '.join(_FILES)}")
            if not 0 < len(data) <= most:
                raise InvalidPost(
                    f"a file has {len(data):,} bytes; it must have some, and may have {most:,}"
                )
        if files and not new.enclosure_url:
            new = evolve(new, enclosure_url=f"{self._parts.public_url}/")  # it will have one
        check_and_tidy(new, options.max_characters)

    async def _query(self, request: Request) -> Answer:
        """Answer a query for the configuration, categories or messages: the parameter ``q``."""
        caller = await caller_of(self._parts, bearer_token(request))
        match parameter(request, "q"):
            case "config":
                return _json_answer(await self._config(caller))
            case "syndicate-to":
                return _json_answer({"syndicate-to": []})
            case "category":
                return _json_answer({"categories": await self._categories(caller, request)})
            case "source" if url := parameter(request, "url"):
                properties = self._properties(await self._post_at(caller, url))
                return _json_answer(_source_of(properties, request))
            case "source":
                return _json_answer(await self._newest_posts(caller, request))
        raise InvalidPost("q must be config, syndicate-to, category or source")

    async def _config(self, caller: Caller) -> dict[str, Any]:
        """What clients must know of this endpoint (section 3.7.1)."""
        return {
            "media-endpoint": f"{self._parts.public_url}{MEDIA_ENDPOINT}",
            "syndicate-to": [],
            "post-types": [{"type": kind, "name": name} for kind, name in _POST_TYPES.items()],
            "categories": await self._writing.store.categories(caller.account.id),
            "q": ["config", "syndicate-to", "category", "source"],
        }

    async def _categories(self, caller: Caller, request: Request) -> list[str]:
        """The categories of the caller whose names contain the parameter ``filter``."""
        part = parameter(request, "filter").casefold()
        names = await self._writing.store.categories(caller.account.id)
        return [name for name in names if part in name.casefold()]

    async def _newest_posts(self, caller: Caller, request: Request) -> dict[str, Any]:
        """The newest messages, or those before the one that ``after`` names."""
        limit, after = _part_of_list(request)
        posts = await self._writing.store.all_posts(caller.account.id, limit, after)
        items = [{"type": ["h-entry"], "properties": self._properties(post)} for post in posts]
        return _list_answer(items, posts, limit)

    def _properties(self, post: Post) -> dict[str, list[Any]]:
        return properties_of(post, self._writing.feeds.page_url(post))

    async def _post_at(self, caller: Caller, url: Any) -> Post:
        """The message of the caller whose page has a URL.

        :raises Refusal: there is none; messages of others are none.
        """
        if not isinstance(url, str) or not url:
            raise InvalidPost("url must be the URL of a message")
        number = parse_number(url.rstrip("/").rpartition("/")[2])
        if number is not None:
            post = await self._writing.post(caller, number)
            if post is not None and self._writing.feeds.page_url(post) == url.rstrip("/"):
                return post
        raise _no_such_post()

    async def _upload(self, request: Request) -> Answer:
        """Store the one file of a request, and answer with its URL."""
        caller, sent = await read_request(self._parts, request)
        named = [each for each in sent.form.files if each[0] == "file"] if sent.form else []
        if len(named) != 1:
            raise InvalidPost("send one file, in a field named file")
        (_, name, data) = named[0]
        upload = await self._writing.upload(caller, name, data, client_address(request))
        url = self._writing.files.url(caller.name, upload)
        return Answer(b"", JSON, 201, {"location": url})

    async def _query_media(self, request: Request) -> Answer:
        """Answer a query for the newest files of the caller, or for the last one."""
        caller = await caller_of(self._parts, bearer_token(request))
        match parameter(request, "q"):
            case "source":
                limit, after = _part_of_list(request)
                return _json_answer(await self._newest_files(caller, limit, after))
            case "last":
                return _json_answer(next(iter((await self._newest_files(caller, 1))["items"]), {}))
        raise InvalidPost("q must be source or last")

    async def _newest_files(
        self, caller: Caller, limit: int, after: int | None = None
    ) -> dict[str, Any]:
        """The newest files, or those before the one that ``after`` names."""
        uploads = await self._writing.store.uploads(caller.account.id, limit, before=after)
        items = [{"url": self._writing.files.url(caller.name, upload)} for upload in uploads]
        return _list_answer(items, uploads, limit)


def _source_of(properties: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """The answer to a query for the source of a message (section 3.7.2), which may want only some
    of its properties.
    """
    sent = request.args or {}
    names = [decode(each) for key in (b"properties", b"properties[]") for each in sent.get(key, ())]
    if not names:
        return {"type": ["h-entry"], "properties": properties}
    return {"properties": {name: properties[name] for name in names if name in properties}}


def _number_of(request: Request, name: str, otherwise: int) -> int:
    """A parameter that is a number, or ``otherwise`` if it is not there."""
    number = parse_number(parameter(request, name) or str(otherwise))
    if number is None:
        raise InvalidPost(f"{name} must be a number")
    return number


def _part_of_list(request: Request) -> tuple[int, int | None]:
    """How many entries of a list a query wants, and the id after which they begin, if any."""
    limit = min(max(_number_of(request, "limit", _POSTS), 1), _MAX_POSTS)
    return limit, _number_of(request, "after", 0) or None


def _list_answer(
    items: Sequence[Any], listed: Sequence[Post | StoredUpload], limit: int
) -> dict[str, Any]:
    """A part of a list, with what leads to the next one if there may be one."""
    more = {"paging": {"after": str(listed[-1].id)}} if len(listed) == limit else {}
    return {"items": items, **more}


def _no_such_post() -> Refusal:
    return Refusal(404, "invalid_request", "you have no message at this URL")


def _json_answer(value: Any) -> Answer:
    """The answer to a query, which no cache may keep."""
    return Answer(
        json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"),
        JSON,
        headers={"cache-control": "no-store"},
    )


def _make_resource(act: Callable[[Request], Awaitable[Answer]]) -> Answers:
    """A resource that answers errors as the specification says."""

    async def answer(request: Request) -> Answer:
        try:
            return await act(request)
        except Refusal as error:
            return _error_answer(error.status, error.error, str(error))

    return Answers(answer, _answer_failure)


def _answer_failure(request: Request, status: int, text: str, **headers: str) -> bytes:
    """Answer an error that every front door answers alike, with Micropub's code for it."""
    answer = _error_answer(status, _ERRORS[status], text)
    return respond(request, status, answer.content_type, answer.body, **headers)


def _error_answer(status: int, error: str, text: str) -> Answer:
    """The answer to a request that failed: Micropub's code, and a text for people."""
    headers = {}
    if status == 401:  # RFC 6750, section 3
        code = f', error="{error}", scope="{SCOPE}"' if error == "insufficient_scope" else ""
        headers["www-authenticate"] = f'Bearer realm="micropub"{code}'
    body = {"error": error, "error_description": text}
    if error == "insufficient_scope":
        body["scope"] = SCOPE
    return Answer(json.dumps(body, ensure_ascii=False).encode(), JSON, status, headers)
