"""Reads the requests of Micropub clients: first who asks, and then what came.

A token is an API token of the broker with the scope ``publish``, in the header ``Authorization``,
or in the field ``access_token`` of a form without files (RFC 6750, section 2.2).  A session of a
browser does not count, so no other site can post with it.

A body that may be large or takes long to parse, which is one with files and one of JSON, is parsed
only once the caller is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from attrs import frozen
from twisted.web.server import Request

from rsscloud_broker.apps.writing.editors import SCOPE
from rsscloud_broker.apps.writing.model import InvalidPost
from rsscloud_broker.http.requests import bearer_token, body_of, header, media_type
from rsscloud_broker.interfaces import AppParts, Caller
from rsscloud_broker.web import file_forms
from rsscloud_broker.web.file_forms import Form, UnreadableForm
from rsscloud_broker.wire.text import decode

FORM: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
JSON: Final = "application/json"

#: How many bytes a request may have beside the files in it.
MAX_OVERHEAD: Final = 1024 * 1024


class Refusal(Exception):
    """A request gets an error (W3C Micropub, section 3.8)."""

    def __init__(self, status: int, error: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.error = error


@frozen
class Sent:
    """What a request brought.

    :ivar document: the object, if it is JSON; of a form, its fields ``h``, ``action`` and ``url``,
        which say what to do.
    :ivar form: all fields and files of the form; None if it is JSON.
    """

    document: Mapping[str, Any]
    form: Form | None = None


async def read_request(parts: AppParts, request: Request) -> tuple[Caller, Sent]:
    """The caller of a request, and what it brought.

    :raises Refusal: there is no token, or it does not allow the caller to post.
    :raises Refused: the body cannot be read.
    """
    token = bearer_token(request)
    if media_type(request) != FORM:
        caller = await caller_of(parts, token)
        sent = await _read_body(parts, request)
    else:
        sent = await _read_body(parts, request)
        caller = await caller_of(parts, token or _token_in(sent))
    if token and _token_in(sent):
        raise Refusal(
            400, "invalid_request", "the token came twice: send it in the header or in the body"
        )
    return caller, sent


def _token_in(sent: Sent) -> str:
    """The token in a body; empty if there is none."""
    return sent.form.fields.get("access_token", "") if sent.form else ""


async def caller_of(parts: AppParts, token: str) -> Caller:
    """The caller with a token; raises ``Refusal`` if it does not allow to post."""
    caller = await parts.accounts.caller_of_token(token) if token else None
    if caller is None:
        what = "has expired or was never valid" if token else "is missing"
        raise Refusal(
            401,
            "unauthorized",
            f"the token {what}: send Authorization: Bearer TOKEN with an API token, which you "
            "make on the page /account",
        )
    if SCOPE not in caller.scopes:
        raise Refusal(
            401,
            "insufficient_scope",
            f"the token lacks the scope {SCOPE}: make one that has it on the page /account",
        )
    return caller


async def _read_body(parts: AppParts, request: Request) -> Sent:
    """Read the body of a request; raises ``Refused`` if it cannot be read."""
    body, kind = body_of(request), media_type(request)
    if kind == MULTIPART:
        return _sent_form(
            await parts.in_thread(file_forms.read, header(request, "content-type"), body)
        )
    if len(body) > MAX_OVERHEAD:
        raise UnreadableForm(f"a request without files has at most {MAX_OVERHEAD} bytes")
    sent: Sent = await parts.in_thread(_read_json if kind == JSON else _read_form, body)
    return sent


def _read_form(body: bytes) -> Sent:
    """Read a form without files.  The site limits the number of its fields."""
    # Given bytes, parse_qsl fails at those beyond ASCII.  In Latin-1 each byte is a character.
    fields = parse_qsl(body.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    return _sent_form(Form(tuple((_text(name), _text(value)) for name, value in fields), ()))


def _text(field: str) -> str:
    """The text of a name or a value in a form, which was read as Latin-1."""
    return decode(field.encode("latin-1"))


def _sent_form(form: Form) -> Sent:
    """What a form brought: the fields that say what to do, and all of the form."""
    named = form.fields
    return Sent({name: named[name] for name in ("h", "action", "url") if name in named}, form)


def _read_json(body: bytes) -> Sent:
    """Read JSON, which must be an object."""
    try:
        document = json.loads(body)
    except RecursionError:
        raise InvalidPost("the body is nested too deeply") from None
    except ValueError:
        raise InvalidPost("the body is not JSON in UTF-8, as its Content-Type says") from None
    if not isinstance(document, dict):
        raise InvalidPost('the body must be an object, such as {"type": ["h-entry"], ...}')
    return Sent(document)
