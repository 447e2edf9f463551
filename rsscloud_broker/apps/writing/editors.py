"""The way of each XML-RPC call of a blog editor: who calls, which message is meant, and faults.

Each call carries a name and a password.  In place of the password a program may send an API token
of the account with the scope ``publish``, which can be taken from it again.  An account has one
blog, whose id is `BLOG_ID`; ids of blogs in calls are not looked at, since people type anything.

The handlers say with `editing` which parameters a procedure has::

    @editing("post_id name password entry publish")
    async def xmlrpc_editPost(self, call, post, entry, publish=None): ...

Editors send what they like: an int in place of a string, a string in place of a boolean.  What has
one meaning only is taken; for all else there is a fault that says what was wrong.  Faults have the
codes of HTTP and of WordPress, by which editors know what to do: with 403 they ask for the password
again.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from attrs import frozen
from twisted.web.server import Request
from twisted.web.xmlrpc import XMLRPC, Fault, withRequest

from rsscloud_broker.accounts.secrets import TOKEN_PREFIX
from rsscloud_broker.apps.writing.markup import SMALL, MarkupLink
from rsscloud_broker.apps.writing.model import InvalidPost, NewPost, Post, Revise
from rsscloud_broker.apps.writing.pictures import media_of, with_html
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.errors import DocumentUnread, Forbidden, Refused, SignInFailed, TooMany
from rsscloud_broker.http.requests import client_address
from rsscloud_broker.interfaces import AppParts, Caller
from rsscloud_broker.wire.text import parse_number, sentence, text_of
from rsscloud_broker.wire.xmlrpc import INVALID_PARAMS

P = ParamSpec("P")
T = TypeVar("T")

#: A method that answers a call.
Method: TypeAlias = Callable[..., Awaitable[T]]

#: The id of the one blog of each account.
BLOG_ID: Final = "1"

#: The scope that a token needs.
SCOPE: Final = "publish"

#: Parameters that are not looked at: the key of the program, and the id of the blog.
_IGNORED: Final = frozenset({"key", "blog"})

#: The types of XML-RPC: of results, by the types in Python; and of parameters that are no strings,
#: by their names.
_RESULTS: Final = {"bool": "boolean", "dict": "struct", "list": "array", "str": "string"}
_PARAMETERS: Final = {
    "chosen": "array",
    "count": "int",
    "entry": "struct",
    "file": "struct",
    "publish": "boolean",
}


class FaultCode:
    """The codes of faults.  No enumeration, since ``xmlrpc.client`` writes none."""

    BAD_REQUEST: Final = 400
    FORBIDDEN: Final = 401
    WRONG_PASSWORD: Final = 403
    NOT_FOUND: Final = 404
    NEEDS_TLS: Final = 426
    TOO_MANY: Final = 429


def no_such_post(number: Any) -> Fault:
    """The fault for a message that does not exist, or belongs to somebody else."""
    return Fault(FaultCode.NOT_FOUND, f"You have no message with the id {str(number)[:40]}.")


def text_in(value: Any, what: str) -> str:
    """The text that somebody sent as a string, or as base64 as some clients do.

    :param what: what it is, for the fault.
    """
    text = text_of(value)
    if text is None:
        raise Fault(FaultCode.BAD_REQUEST, f"The type of {what} must be string.")
    return text


def struct_in(value: Any, what: str) -> Mapping[str, Any]:
    """A struct that somebody sent; ``what`` names it in the fault."""
    if not isinstance(value, dict):
        raise Fault(FaultCode.BAD_REQUEST, f"The type of {what} must be struct.")
    return value


def texts_in(value: Any, what: str) -> list[str]:
    """The texts in an array that somebody sent; a single string is one."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise Fault(FaultCode.BAD_REQUEST, f"The type of {what} must be array.")
    return [text_in(each, what) for each in value]


def flag_in(value: Any) -> bool:
    """A boolean, which some clients send as an int or a string."""
    if isinstance(value, str):
        return value.strip().lower() in {"1", "true", "yes"}
    return value not in (0, None)


def count_in(value: Any, most: int) -> int:
    """How many messages somebody wants: at least one, and at most this many."""
    try:
        return min(max(int(value), 1), most)
    except (TypeError, ValueError):
        raise Fault(FaultCode.BAD_REQUEST, "The number of messages must be an int.") from None


def id_in(value: Any) -> int:
    """The id of a message, which some clients send as an int.  It may be one that never exists."""
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    number = parse_number(text)
    if number is None:
        raise no_such_post(value)
    return number


def number_of(name: str) -> int:
    """A number for a category or a file, made of its name: editors want numbers as ids."""
    return int.from_bytes(sha256(name.encode("utf-8", "replace")).digest()[:4], "big") >> 1 or 1


@frozen
class EditorCall:
    """A call whose caller is known.

    :ivar source: the address from which it came.
    """

    caller: Caller
    source: str


async def call_with_html(
    parts: AppParts,
    caller: Caller,
    html: str,
    function: Callable[P, T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call a function that reads some HTML: another process does, if the HTML is not small.

    :param caller: who has sent it.
    :raises InvalidPost: it takes too much to read, or the function says so.
    """
    if len(html) <= SMALL:
        return function(*args, **kwargs)
    try:
        return await parts.parse(caller.name, function, *args, **kwargs)
    except DocumentUnread as error:
        raise InvalidPost(f"the HTML cannot be read: {error.reason}") from error


class EditorAPI(XMLRPC):
    """A base for the handlers of these APIs: what several of them can do.

    :cvar body_limit: how many bytes a call may have, for the files that editors upload in calls.
    """

    body_limit = 1024 * 1024

    def __init__(self, writing: Writing, parts: AppParts) -> None:
        super().__init__(allowNone=True)
        self._writing = writing
        self._parts = parts

    async def _read(
        self, request: Request, sent: Mapping[str, Any]
    ) -> tuple[EditorCall, Mapping[str, Any]]:
        """Find out who calls and which message is meant.

        :param sent: the parameters by name.
        :returns: the call, and the arguments of the method that answers it.
        """
        given = {name: value for name, value in sent.items() if name not in _IGNORED}
        name, password = given.pop("name"), given.pop("password")
        source = client_address(request)
        caller = await self._authenticate(request, source, name, password)
        if "post_id" in given:
            number = given.pop("post_id")
            given["post"] = await self._writing.post(caller, id_in(number))
            if given["post"] is None:  # or the message is another account's
                raise no_such_post(number)
        return EditorCall(caller, source), given

    async def _authenticate(
        self, request: Request, source: str, name: Any, password: Any
    ) -> Caller:
        """The account with a name and a password, or with a name and a token.

        :raises Fault: the password came where others can read it, or the token may not post.
        :raises SignInFailed: the name or the password is wrong.
        """
        name, password = text_in(name, "the name"), text_in(password, "the password")
        may_be_read = self._writing.options.allow_plain_passwords
        if not (may_be_read or self._parts.callers.is_confidential(request)):
            raise Fault(
                FaultCode.NEEDS_TLS,
                "Passwords must not be sent over http, where others can read them. Use the "
                "https address of this server; or its operator sets allow_plain_passwords in "
                "[apps.writing].",
            )
        accounts = self._parts.accounts
        if not password.startswith(TOKEN_PREFIX):
            return await accounts.caller_of_password(name, password, source)
        caller = await accounts.caller_of_token(password)
        if caller is None or caller.name != name.strip().lower():
            raise SignInFailed
        if SCOPE not in caller.scopes:
            raise Fault(
                FaultCode.FORBIDDEN,
                f"This token lacks the scope {SCOPE}. Make another on the page /account.",
            )
        return caller

    async def _with_html(
        self,
        caller: Caller,
        new: NewPost,
        html: str,
        old: Post | None,
        enclosure: str | None = None,
    ) -> NewPost:
        """A message whose text and pictures are those of some HTML: see ``pictures.with_html``.

        :param caller: who has sent it.
        :param new: the other parts of the message.
        :param old: the message until now; None if it is new.
        :param enclosure: the URL of its new enclosure, empty for none; None if the old one stays.
        """
        media = media_of(old) if old else []
        if enclosure is not None:
            others = [each for each in media if each[1].url != new.enclosure_url]
            # Editors send the enclosure that they got back, without the text that stands for it.
            text = next((link.text for _, link in media if link.url == enclosure), "")
            # Whatever it is, it stays before the pictures in the HTML.
            media = [("", MarkupLink(enclosure, text)), *others] if enclosure else others
        return await call_with_html(self._parts, caller, html, with_html, new, html, media)

    def _blogs(self, caller: Caller) -> list[dict[str, Any]]:
        """The one blog of an account, in a list."""
        return [
            {
                "blogid": BLOG_ID,
                "blogName": caller.name,
                "url": self._writing.feeds.home_url(caller.name),
                "xmlrpc": f"{self._parts.public_url}/RPC2",
                "isAdmin": False,
                "isPrimary": True,
            }
        ]

    async def _newest_posts(self, call: EditorCall, count: Any) -> list[Post]:
        """The newest messages.

        :param count: how many the client wants.
        """
        # A call returns at most a hundred messages.
        return await self._writing.store.all_posts(call.caller.account.id, count_in(count, 100))

    async def _categories(self, call: EditorCall) -> list[dict[str, Any]]:
        """The categories as structs with all members that any of the editors looks for."""
        feeds = self._writing.feeds
        names = await self._writing.store.categories(call.caller.account.id)
        home, rss = feeds.home_url(call.caller.name), feeds.url(call.caller.name)
        return [
            {
                "categoryId": str(number_of(name)),
                "categoryid": str(number_of(name)),
                "parentId": "0",
                "categoryName": name,
                "title": name,
                "description": name,
                "categoryDescription": "",
                "htmlUrl": home,
                "rssUrl": rss,
            }
            for name in names
        ]

    async def _add(self, call: EditorCall, new: NewPost) -> str:
        """Write a message.  Returns its id."""
        return str((await self._writing.add(call.caller, new, call.source)).id)

    async def _edit(self, call: EditorCall, post: Post, new: Revise) -> bool:
        """Change a message.  Returns True, as all of these APIs do."""
        await self._writing.edit(call.caller, post.id, new, call.source)
        return True

    async def _delete(self, call: EditorCall, post: Post) -> bool:
        """Delete a message.  Returns True, as all of these APIs do."""
        if not await self._writing.delete(call.caller, post.id, call.source):
            raise no_such_post(post.id)
        return True


def editing(parameters: str) -> Callable[[Method[T]], Method[T]]:
    """Mark an ``xmlrpc_`` method of an `EditorAPI`.

    The method gets the `EditorCall`, and the parameters by their names, with these exceptions:
    ``name`` and ``password`` become the caller; in place of ``post_id`` it gets ``post``, a message
    of the caller; ``key`` and ``blog`` are left out.  Clients may leave parameters out for which
    the method has a default, and may send more than there are.

    :param parameters: the names of the parameters of the procedure, with blanks between them.
    """
    names = parameters.split()

    def make_procedure(method: Method[T]) -> Method[T]:
        """Make a procedure of a method, with the signature that ``methodSignature`` shows."""
        given = inspect.signature(method).parameters.values()
        optional = {each.name for each in given if each.default is not each.empty}
        needed = [name for name in names if name not in optional]

        async def answer(self: EditorAPI, request: Request, *sent: Any) -> T:
            """Find out who calls, and call the method with the parameters that came, by name."""
            if missing := needed[len(sent) :]:
                raise Fault(
                    INVALID_PARAMS,
                    f"These parameters are missing: {', '.join(missing)}. This procedure takes "
                    f"{', '.join(names)}.",
                )
            with _as_faults():
                named = dict(zip(names, sent, strict=False))
                call, arguments = await self._read(request, named)
                return await method(self, call, **arguments)

        result = str(method.__annotations__["return"]).partition("[")[0]
        types = [_PARAMETERS.get(name, "string") for name in names]
        answer.__doc__ = method.__doc__
        answer.signature = [[_RESULTS[result], *types]]  # type: ignore[attr-defined] # Twisted reads it
        marked: Method[T] = withRequest(answer)
        return marked

    return make_procedure


@contextmanager
def _as_faults() -> Iterator[None]:
    """Turn errors into faults of XML-RPC, whose codes say what the editor can do."""
    try:
        yield
    except SignInFailed as error:
        raise Fault(FaultCode.WRONG_PASSWORD, sentence(str(error))) from error
    except TooMany as error:
        raise Fault(FaultCode.TOO_MANY, sentence(str(error))) from error
    except Forbidden as error:
        raise Fault(FaultCode.FORBIDDEN, sentence(str(error))) from error
    except Refused as error:
        raise Fault(FaultCode.BAD_REQUEST, sentence(str(error))) from error
