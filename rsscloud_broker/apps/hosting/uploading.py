"""Saves and deletes files by PUT and DELETE of their URLs.

==========  ======================================================================
Status      What came of it
==========  ======================================================================
201, 204    it was saved: for the first time, or again; ``Location`` is its URL
400         the name cannot be the name of a file, or the body is only a part of one
401         who makes the request is not said, or not rightly
403         the file belongs to another account, or the token lacks the scope ``publish``
412         the file is not as ``If-Match``, ``If-None-Match`` or ``If-Unmodified-Since`` says
413         it is too large
415         it is of another type than its name says
422         it is no well-formed feed
429         the account saves too often, or a password was wrong too often
507         the account has no room for it
==========  ======================================================================
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.web.server import Request
from zope.interface import implementer

from rsscloud_broker.apps.hosting.documents import NotStored, check_path
from rsscloud_broker.apps.hosting.gate import CHALLENGE, Gate
from rsscloud_broker.apps.hosting.hosting import Hosting
from rsscloud_broker.apps.hosting.options import prefixes_of
from rsscloud_broker.apps.hosting.serving import FileResource
from rsscloud_broker.errors import Forbidden, Refused, SignInFailed, TooMany
from rsscloud_broker.http.answering import PLAIN, Answer, Answers, plain
from rsscloud_broker.http.requests import body_of, client_address, header
from rsscloud_broker.interfaces import Caller, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.wire.conditional import Condition


@implementer(IFrontDoor)
class FilesDoor(RoutesOnly):
    """The front door that serves the files to everybody, and takes them in.

    A reverse proxy may pass on the path of the URL below which the files are public.
    """

    name = "hosting_files"

    def __init__(self, hosting: Hosting, gate: Gate) -> None:
        self._hosting = hosting
        self._gate = gate

    def routes(self) -> list[Route]:
        limit, cache = self._hosting.max_bytes, self._hosting.cache
        return [
            route
            for prefix in prefixes_of(self._hosting.base)
            for route in (
                Route(f"{prefix}/*", "GET", FileResource(cache, prefix), for_everybody=True),
                Route(f"{prefix}/*", "PUT", self._answers(self._put, prefix), body_limit=limit),
                Route(f"{prefix}/*", "DELETE", self._answers(self._delete, prefix)),
            )
        ]

    def _answers(
        self, change: Callable[[Request, Caller, str], Awaitable[Answer]], prefix: str
    ) -> Answers:
        """A resource that changes a file of the caller, or says why not."""

        async def answer(request: Request) -> Answer:
            try:
                return await change(request, *await self._caller_and_path(prefix, request))
            except TooMany:
                raise  # ``Answers`` makes 429 of it, with the seconds to wait
            except Refused as error:
                return _answer_refusal(error)

        return Answers(answer)

    async def _put(self, request: Request, caller: Caller, path: str) -> Answer:
        """Save the body as a file."""
        if header(request, "content-range"):
            raise NotStored("This is a part, by its Content-Range: send the whole file.", 400)
        body, source = body_of(request), client_address(request)
        said = header(request, "content-type")
        created = await self._hosting.save(caller, path, body, source, said, _condition(request))
        headers = {"location": self._hosting.url_of(caller.name, path)}
        return Answer(b"", PLAIN, 201 if created else 204, headers)

    async def _delete(self, request: Request, caller: Caller, path: str) -> Answer:
        """Delete a file."""
        source = client_address(request)
        if not await self._hosting.remove(caller, path, source, _condition(request)):
            return Answer(b"There is no such file here.\n", PLAIN, 404)
        return Answer(b"", PLAIN, 204)

    async def _caller_and_path(self, prefix: str, request: Request) -> tuple[Caller, str]:
        """The caller, and the path below the account's name; raises ``Refused`` if not allowed."""
        caller = await self._gate.by_header(request)
        whole = request.path.decode("latin-1").removeprefix(f"{prefix}/")
        name, _, path = whole.partition("/")
        if name != caller.name:
            raise NotStored(f"You are {caller.name}: save below {prefix}/{caller.name}/.", 403)
        return caller, check_path(path)


def _condition(request: Request) -> Condition:
    """What must hold of a file, or else a request does not change it."""
    names = ("if-match", "if-none-match", "if-unmodified-since")
    return Condition(*(header(request, name) for name in names))


def _answer_refusal(error: Refused) -> Answer:
    """The answer to a request that was refused, with the status that the module describes."""
    text, status = str(error), 400
    if isinstance(error, NotStored):
        status = error.status
    elif isinstance(error, SignInFailed | Forbidden):
        text = f"This was not accepted: {text}."
        status = 401 if isinstance(error, SignInFailed) else 403
    return plain(status, text, {"www-authenticate": CHALLENGE} if status == 401 else {})
