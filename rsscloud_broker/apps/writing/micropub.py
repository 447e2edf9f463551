"""Micropub: programs create, change and delete messages (W3C Recommendation of 23 May 2017).

``/micropub`` takes forms, forms with files, and JSON::

    POST /micropub
    Authorization: Bearer rsb_...
    Content-Type: application/x-www-form-urlencoded

    h=entry&content=Hello+World&category[]=news

    HTTP/1.1 201 Created
    Location: https://broker.example/people/anna/7

``/micropub/media`` takes one file (section 3.6), whose URL can then be a ``photo``.  ``GET``
queries the configuration, categories and messages (section 3.7).

A token is an API token of the broker with the scope ``publish``, in the header ``Authorization`` or
in the field ``access_token``.  A session of a browser does not count, so no other site can post
with it.  A deleted message is gone; there is no ``undelete``.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

from attrs import evolve, frozen
from twisted.web.server import Request

from rsscloud_broker.apps.writing.editors import SCOPE
from rsscloud_broker.apps.writing.interface import IWriting
from rsscloud_broker.apps.writing.model import InvalidPost, Post
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.apps.writing.properties import (
    new_post,
    of_form,
    of_json,
    properties_of,
    updated,
)
from rsscloud_broker.apps.writing.rules import checked
from rsscloud_broker.errors import Forbidden, Refused, TooMany
from rsscloud_broker.interfaces import AppParts, Caller, Route
from rsscloud_broker.web import file_forms
from rsscloud_broker.web.answers import Answer, Answers, body_of, parameter
from rsscloud_broker.web.callers import header
from rsscloud_broker.web.file_forms import Form, UnreadableForm
from rsscloud_broker.wire.text import decode

ENDPOINT: Final = "/micropub"
MEDIA_ENDPOINT: Final = "/micropub/media"

_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"
_JSON: Final = "application/json"

#: How many bytes a request may have beside the files in it.
_MAX_OVERHEAD: Final = 1024 * 1024

#: How many messages a query returns at most, and how many if it does not say.
_MAX_POSTS, _POSTS = 100, 20

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


class _Refusal(Exception):
    """A request gets an error (section 3.8).

    :ivar status: the HTTP status.
    :ivar error: the error code.
    """

    def __init__(self, status: int, error: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.error = error


@frozen
class _Sent:
    """What a request brought.

    :ivar document: the object, if it is JSON; else what concerns the endpoint of the form.
    :ivar form: the form; None if it is JSON.
    """

    document: Mapping[str, Any]
    form: Form | None = None

    @property
    def token(self) -> str:
        """The token in the body; empty if there is none."""
        return self.form.fields.get("access_token", "") if self.form else ""


class Micropub:
    """Answers the requests of both endpoints.

    :param options: the limits.
    """

    def __init__(self, writing: IWriting, parts: AppParts, options: WritingOptions) -> None:
        self._writing = writing
        self._parts = parts
        self._options = options
        self._body_limit = options.max_upload_bytes + _MAX_OVERHEAD

    def routes(self) -> list[Route]:
        """The routes of the two endpoints."""
        kinds, limit = frozenset({_FORM, _MULTIPART, _JSON}), self._body_limit
        files = frozenset({_MULTIPART})
        return [
            Route(ENDPOINT, "GET", _answers(self._query), for_everybody=True),
            Route(ENDPOINT, "POST", _answers(self._post), frozenset(), kinds, True, limit),
            Route(MEDIA_ENDPOINT, "GET", _answers(self._query_media), for_everybody=True),
            Route(MEDIA_ENDPOINT, "POST", _answers(self._upload), frozenset(), files, True, limit),
        ]

    # who asks

    async def _caller(self, request: Request, token: str = "") -> Caller:
        """The caller of a request.

        :param token: the one in the body of the request.
        :raises _Refusal: there is no token, or it does not allow the caller to post.
        """
        scheme, _, in_header = header(request, "authorization").strip().partition(" ")
        in_header = in_header.strip() if scheme.lower() == "bearer" else ""
        if in_header and token:
            raise _Refusal(
                400, "invalid_request", "the token came twice: send it in the header or in the body"
            )
        caller = None
        if in_header or token:
            caller = await self._parts.accounts.caller_of_token(in_header or token)
        if caller is None:
            what = "has expired or was never valid" if in_header or token else "is missing"
            raise _Refusal(
                401,
                "unauthorized",
                f"the token {what}: send Authorization: Bearer TOKEN with an API token, which you "
                "make on the page /account",
            )
        if SCOPE not in caller.scopes:
            raise _Refusal(
                401,
                "insufficient_scope",
                f"the token lacks the scope {SCOPE}: make one that has it on the page /account",
            )
        return caller

    # /micropub

    async def _post(self, request: Request) -> Answer:
        sent = await self._read(request)
        caller = await self._caller(request, sent.token)
        document, source = sent.document, str(request.getClientAddress().host)
        action = document.get("action", "")
        if action == "":
            return await self._create(caller, sent, source)
        if action not in ("update", "delete"):  # it may be of any type
            text = "a deleted message is gone" if action == "undelete" else "there is none such"
            raise InvalidPost(f"the actions are update and delete: {text}")
        if action == "update" and media_type(request) != _JSON:
            raise InvalidPost(f"an update must be sent as {_JSON}")
        post = await self._post_at(caller, document.get("url"))
        if action == "delete":
            if not await self._writing.delete(caller, post.id, source):
                raise _no_such_post()
            return Answer(b"", _JSON, 204)
        old = self._properties(post)
        new = await self._parts.in_thread(lambda: new_post(updated(old, document), post))
        await self._writing.edit(caller, post.id, new, source)
        return Answer(b"", _JSON, 204)

    async def _create(self, caller: Caller, sent: _Sent, source: str) -> Answer:
        if sent.form is None:
            properties = of_json(sent.document)
        elif sent.document.get("h", "entry") != "entry":
            raise InvalidPost("h must be entry: messages are the only thing to create here")
        else:
            properties = of_form(sent.form.pairs)
        files = sent.form.files if sent.form else ()
        await self._parts.in_thread(self._check, properties, files)
        for field, name, data in files:
            upload = await self._writing.upload(caller, name, data, source)
            properties.setdefault(field.removesuffix("[]"), []).append(upload.url)
        new = await self._parts.in_thread(new_post, properties)
        post = await self._writing.add(caller, new, source)
        return Answer(b"", _JSON, 201, {"location": self._writing.page_url(post)})

    def _check(
        self, properties: Mapping[str, list[Any]], files: Sequence[tuple[str, str, bytes]]
    ) -> None:
        """Check a message before its files are stored, which would be left over otherwise.

        :raises InvalidPost: it breaks a rule.
        """
        most = self._options.max_upload_bytes
        for field, _, data in files:
            if field.removesuffix("[]") not in _FILES:
                raise InvalidPost(f"files must be in fields named {', '.join(_FILES)}")
            if not 0 < len(data) <= most:
                raise InvalidPost(
                    f"a file has {len(data):,} bytes; it must have some, and may have {most:,}"
                )
        new = new_post(properties)
        if files and not new.enclosure_url:
            new = evolve(new, enclosure_url=f"{self._parts.public_url}/")  # it will have one
        checked(new, self._options.max_characters)

    async def _query(self, request: Request) -> Answer:
        caller = await self._caller(request)
        match parameter(request, "q"):
            case "config":
                return _json(await self._config(caller))
            case "syndicate-to":
                return _json({"syndicate-to": []})
            case "category":
                return _json({"categories": await self._categories(caller, request)})
            case "source" if url := parameter(request, "url"):
                post = await self._post_at(caller, url)
                return _json(_source(self._properties(post), _asked(request)))
            case "source":
                return _json(await self._newest(caller, request))
        raise InvalidPost("q must be config, syndicate-to, category or source")

    async def _config(self, caller: Caller) -> dict[str, Any]:
        return {
            "media-endpoint": f"{self._parts.public_url}{MEDIA_ENDPOINT}",
            "syndicate-to": [],
            "post-types": [{"type": kind, "name": name} for kind, name in _POST_TYPES.items()],
            "categories": await self._writing.categories(caller),
            "q": ["config", "syndicate-to", "category", "source"],
        }

    async def _categories(self, caller: Caller, request: Request) -> list[str]:
        part = parameter(request, "filter").casefold()
        names = await self._writing.categories(caller)
        return [name for name in names if part in name.casefold()]

    async def _newest(self, caller: Caller, request: Request) -> dict[str, Any]:
        """The newest messages, or those before the one that ``after`` names."""
        limit = min(max(_number(request, "limit", _POSTS), 1), _MAX_POSTS)
        after = _number(request, "after", 0) or None
        posts = await self._writing.posts(caller, limit, after)
        items = [{"type": ["h-entry"], "properties": self._properties(post)} for post in posts]
        more = {"paging": {"after": str(posts[-1].id)}} if len(posts) == limit else {}
        return {"items": items, **more}

    def _properties(self, post: Post) -> dict[str, list[Any]]:
        return properties_of(post, self._writing.page_url(post))

    async def _post_at(self, caller: Caller, url: Any) -> Post:
        """The message of the caller whose page has a URL.

        :raises _Refusal: there is none; messages of others are none.
        """
        if not isinstance(url, str) or not url:
            raise InvalidPost("url must be the URL of a message")
        number = url.rstrip("/").rpartition("/")[2]
        if number.isascii() and number.isdigit() and len(number) <= 18:  # 64 bits
            post = await self._writing.post(caller, int(number))
            if post is not None and self._writing.page_url(post) == url.rstrip("/"):
                return post
        raise _no_such_post()

    # /micropub/media

    async def _upload(self, request: Request) -> Answer:
        sent = await self._read(request)
        caller = await self._caller(request, sent.token)
        named = [each for each in sent.form.files if each[0] == "file"] if sent.form else []
        if len(named) != 1:
            raise InvalidPost("send one file, in a field named file")
        (_, name, data) = named[0]
        source = str(request.getClientAddress().host)
        upload = await self._writing.upload(caller, name, data, source)
        return Answer(b"", _JSON, 201, {"location": upload.url})

    async def _query_media(self, request: Request) -> Answer:
        caller = await self._caller(request)
        match parameter(request, "q"):
            case "source":
                limit = min(max(_number(request, "limit", _POSTS), 1), _MAX_POSTS)
                uploads = await self._writing.uploads(caller, limit)
                return _json({"items": [{"url": upload.url} for upload in uploads]})
            case "last":
                uploads = await self._writing.uploads(caller, 1)
                return _json({"url": uploads[0].url} if uploads else {})
        raise InvalidPost("q must be source or last")

    # bodies

    async def _read(self, request: Request) -> _Sent:
        """Read the body of a request.

        :raises Refused: it cannot be read.
        """
        body = body_of(request)
        kind = media_type(request)
        if kind == _MULTIPART:
            form = await self._parts.in_thread(
                file_forms.read, header(request, "content-type"), body
            )
            return _sent(form)
        if len(body) > _MAX_OVERHEAD:
            raise UnreadableForm(f"a request without files has at most {_MAX_OVERHEAD} bytes")
        read = _document if kind == _JSON else _fields
        sent: _Sent = await self._parts.in_thread(read, body)
        return sent


def _fields(body: bytes) -> _Sent:
    """Read a form without files.  The site limits the number of its fields."""
    fields = parse_qsl(body, keep_blank_values=True)
    return _sent(Form(tuple((decode(name), decode(value)) for name, value in fields), ()))


def _sent(form: Form) -> _Sent:
    named = form.fields
    return _Sent({name: named[name] for name in ("h", "action", "url") if name in named}, form)


def _document(body: bytes) -> _Sent:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidPost("the body is not JSON in UTF-8, as its Content-Type says") from None
    if not isinstance(document, dict):
        raise InvalidPost('the body must be an object, such as {"type": ["h-entry"], ...}')
    return _Sent(document)


def media_type(request: Request) -> str:
    """The media type of the body of a request, in lower case."""
    return header(request, "content-type").partition(";")[0].strip().lower()


# --- queries ------------------------------------------------------------------------


def _asked(request: Request) -> list[str]:
    """The names of the properties that a query asks for."""
    arguments = request.args or {}
    return [
        decode(value)
        for name in (b"properties", b"properties[]")
        for value in arguments.get(name, ())
    ]


def _source(properties: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """The answer to a query for the source of a message (section 3.7.2).

    :param names: the properties to show; empty for all.
    """
    if not names:
        return {"type": ["h-entry"], "properties": properties}
    return {"properties": {name: properties[name] for name in names if name in properties}}


def _number(request: Request, name: str, otherwise: int) -> int:
    text = parameter(request, name) or str(otherwise)
    if not (text.isascii() and text.isdigit() and len(text) <= 18):  # 64 bits
        raise InvalidPost(f"{name} must be a number")
    return int(text)


# --- answers ------------------------------------------------------------------------


def _no_such_post() -> _Refusal:
    return _Refusal(404, "invalid_request", "you have no message at this URL")


def _json(value: Any) -> Answer:
    return Answer(
        json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"),
        _JSON,
        headers={"cache-control": "no-store"},
    )


def _answers(respond: Callable[[Request], Awaitable[Answer]]) -> Answers:
    """A resource that answers errors as the specification says."""

    async def answer(request: Request) -> Answer:
        try:
            return await respond(request)
        except _Refusal as error:
            return _error(error.status, error.error, str(error))
        except TooMany as error:
            return _error(429, "too_many_requests", str(error), error.retry_after)
        except Forbidden as error:
            return _error(403, "forbidden", str(error))
        except Refused as error:
            return _error(400, "invalid_request", str(error))

    return Answers(answer)


def _error(status: int, error: str, text: str, retry_after: int = 0) -> Answer:
    headers = {"retry-after": str(retry_after)} if retry_after else {}
    if status == 401:  # RFC 6750, section 3
        code = f', error="{error}", scope="{SCOPE}"' if error == "insufficient_scope" else ""
        headers["www-authenticate"] = f'Bearer realm="micropub"{code}'
    body = {"error": error, "error_description": text}
    if error == "insufficient_scope":
        body["scope"] = SCOPE
    return Answer(json.dumps(body, ensure_ascii=False).encode(), _JSON, status, headers)
