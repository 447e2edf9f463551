"""What the XML-RPC APIs of blog editors have in common: who calls, faults, and structs.

Each call carries a name and a password.  In place of the password a program may send an API token
of the account with the scope ``publish``, which can be taken from it again.  An account has one
blog, whose id is `BLOG_ID`; ids of blogs in calls are not looked at, since people type anything.

Faults have the codes of HTTP and of WordPress, by which editors know what to do: with 403 they ask
for the password again.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from hashlib import sha256
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from twisted.web.server import Request
from twisted.web.xmlrpc import XMLRPC, Fault, withRequest

from rsscloud_broker.apps.writing.interface import IWriting
from rsscloud_broker.apps.writing.markup import Link
from rsscloud_broker.apps.writing.model import NewPost, Post, Upload
from rsscloud_broker.apps.writing.pictures import media_of, with_html
from rsscloud_broker.errors import Forbidden, Refused, SignInFailed, TooMany
from rsscloud_broker.interfaces import AppParts, Caller
from rsscloud_broker.wire.text import text_of

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", bound=XMLRPC)

#: The id of the one blog of each account.  WordPress, too, has one blog with this id.
BLOG_ID: Final = "1"

#: The scope that a token needs.
SCOPE: Final = "publish"

# The codes of faults.
BAD_REQUEST: Final = 400
FORBIDDEN: Final = 401
WRONG_PASSWORD: Final = 403
NOT_FOUND: Final = 404
NEEDS_TLS: Final = 426
TOO_MANY: Final = 429

#: How API tokens of the broker begin.
_TOKEN_PREFIX: Final = "rsb_"  # noqa: S105 # it is no secret

#: The types of XML-RPC: of results, by the types in Python; and of parameters that are no strings,
#: by their names.
_RESULTS: Final = {
    "bool": "boolean",
    "dict": "struct",
    "int": "int",
    "list": "array",
    "str": "string",
    "Mapping": "struct",
    "Sequence": "array",
}
_PARAMETERS: Final = {
    "category": "struct",
    "chosen": "array",
    "count": "int",
    "entry": "struct",
    "file": "struct",
    "filter_": "struct",
    "number": "int",
    "publish": "boolean",
    "term": "struct",
    "wanted": "array",
}

#: The most digits of an id.
_MAX_DIGITS: Final = 18


def editing(
    method: Callable[Concatenate[H, Request, P], Awaitable[T]],
) -> Callable[Concatenate[H, Request, P], Awaitable[T]]:
    """Mark an ``xmlrpc_`` method that takes the request first, and turn its errors into faults."""

    @wraps(method)
    async def answer(self: H, request: Request, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(self, request, *args, **kwargs)
        except SignInFailed as error:
            raise Fault(WRONG_PASSWORD, _sentence(error)) from error
        except TooMany as error:
            raise Fault(TOO_MANY, _sentence(error)) from error
        except Forbidden as error:
            raise Fault(FORBIDDEN, _sentence(error)) from error
        except Refused as error:
            raise Fault(BAD_REQUEST, _sentence(error)) from error

    answer.signature = [_signature(method)]  # type: ignore[attr-defined] # Twisted reads it there
    marked: Callable[Concatenate[H, Request, P], Awaitable[T]] = withRequest(answer)
    return marked


def _signature(method: Callable[..., Any]) -> list[str]:
    """The type of the result of a procedure, and those of its parameters after the request, for
    ``system.methodSignature``.
    """
    parameters = inspect.signature(method).parameters.values()
    names = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    result = str(method.__annotations__["return"]).partition("[")[0]
    return [_RESULTS[result], *(_PARAMETERS.get(name, "string") for name in names[2:])]


def _sentence(error: Exception) -> str:
    """The text of an error as a sentence, which editors show to people."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


class Editors:
    """What the handlers of all these APIs use.

    :param allow_plain_passwords: whether passwords may come over http from other machines.
    :ivar writing: does what the calls ask for.
    :ivar parts: what the broker gives the application.
    """

    def __init__(self, writing: IWriting, parts: AppParts, allow_plain_passwords: bool) -> None:
        self.writing = writing
        self.parts = parts
        self._allow_plain_passwords = allow_plain_passwords

    async def caller(self, request: Request, name: Any, password: Any) -> Caller:
        """The account with a name and a password, or with a name and a token.

        :raises Fault: the password came where others can read it, or the token may not post.
        :raises SignInFailed: the name or the password is wrong.
        """
        name, password = text_in(name, "the name"), text_in(password, "the password")
        if not (self._allow_plain_passwords or self.parts.callers.is_confidential(request)):
            raise Fault(
                NEEDS_TLS,
                "Passwords must not be sent over http, where others can read them. Use the "
                "https address of this server; or its operator sets allow_plain_passwords in "
                "[apps.writing].",
            )
        accounts = self.parts.accounts
        if not password.startswith(_TOKEN_PREFIX):
            return await accounts.caller_of_password(name, password, source_of(request))
        caller = await accounts.caller_of_token(password)
        if caller is None or caller.name != name.strip().lower():
            raise SignInFailed
        if SCOPE not in caller.scopes:
            raise Fault(
                FORBIDDEN, f"This token lacks the scope {SCOPE}. Make another on the page /account."
            )
        return caller

    async def post(self, caller: Caller, number: Any) -> Post:
        """A message of a caller.

        :raises Fault: there is none with this id; messages of others are none.
        """
        post = await self.writing.post(caller, id_in(number))
        if post is None:
            raise no_such_post(number)
        return post

    async def with_html(
        self, new: NewPost, html: str, old: Post | None, enclosure: str | None = None
    ) -> NewPost:
        """A message whose text is that of some HTML.

        :param old: the message until now; None if it is new.
        :param enclosure: the URL of its new enclosure, empty for none; None if the old one stays.
        """
        media = media_of(old) if old else []
        if enclosure is not None:
            others = [each for each in media if each[1].url != new.enclosure_url]
            # Whatever it is, it stays before the pictures in the HTML.
            media = [("", Link(enclosure, "")), *others] if enclosure else others
        result: NewPost = await self.parts.in_thread(with_html, new, html, media)
        return result

    async def delete(self, request: Request, caller: Caller, number: Any) -> bool:
        """Delete a message of a caller.  Returns True, as all of these APIs do."""
        if not await self.writing.delete(caller, id_in(number), source_of(request)):
            raise no_such_post(number)
        return True

    async def upload(self, request: Request, caller: Caller, file: Any) -> dict[str, Any]:
        """Store a file.

        :param file: a struct with ``name``, ``type`` and ``bits``.
        :returns: a struct about it.
        """
        file = struct_in(file, "the file")
        bits = file.get("bits")
        if not isinstance(bits, bytes):
            raise Fault(BAD_REQUEST, "The struct of a file needs bits, of the type base64.")
        name = text_in(file.get("name", ""), "the name of the file")
        upload = await self.writing.upload(caller, name, bits, source_of(request))
        return file_of(upload)


def file_of(upload: Upload) -> dict[str, Any]:
    """A file as a struct, with the members that one or the other editor looks for."""
    return {
        "id": str(number_of(upload.url)),
        "attachment_id": str(number_of(upload.url)),
        "file": upload.name,
        "title": upload.name,
        "url": upload.url,
        "link": upload.url,
        "type": upload.media_type,
        "metadata": {"filesize": min(upload.size, 2**31 - 1)},
    }


def no_such_post(number: Any) -> Fault:
    """The fault for a message that does not exist, or belongs to somebody else."""
    return Fault(NOT_FOUND, f"You have no message with the id {str(number)[:40]}.")


def source_of(request: Request) -> str:
    """The address from which a call came."""
    return str(request.getClientAddress().host)


# --- arguments ----------------------------------------------------------------------


def text_in(value: Any, what: str) -> str:
    """The text that somebody sent as a string, or as base64 as some clients do.

    :param what: what it is, for the fault.
    """
    text = text_of(value)
    if text is None:
        raise Fault(BAD_REQUEST, f"The type of {what} must be string.")
    return text


def struct_in(value: Any, what: str) -> Mapping[str, Any]:
    """A struct that somebody sent."""
    if not isinstance(value, dict):
        raise Fault(BAD_REQUEST, f"The type of {what} must be struct.")
    return value


def texts_in(value: Any, what: str) -> list[str]:
    """The texts in an array that somebody sent; a single string is one."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise Fault(BAD_REQUEST, f"The type of {what} must be array.")
    return [text_in(each, what) for each in value]


def flag_in(value: Any) -> bool:
    """A boolean, which some clients send as an int or a string."""
    if isinstance(value, str):
        return value.strip().lower() in {"1", "true", "yes"}
    return value not in (0, None)


def count_in(value: Any, most: int) -> int:
    """How many messages somebody wants: at least one, and at most so many."""
    try:
        return min(max(int(value), 1), most)
    except (TypeError, ValueError):
        raise Fault(BAD_REQUEST, "The number of messages must be an int.") from None


def id_in(value: Any) -> int:
    """The id of a message, which some clients send as an int.  It may be one that never exists."""
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise no_such_post(value)
    return int(text)


# --- ids ----------------------------------------------------------------------------


def number_of(name: str) -> int:
    """A number for a category or a file, which have no other: editors want numbers as ids."""
    return int.from_bytes(sha256(name.encode("utf-8", "replace")).digest()[:4], "big") >> 1 or 1
