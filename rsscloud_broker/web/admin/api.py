"""Answers requests to the administration API, by the table of operations.

Only API tokens with the scope ``admin`` open it.  The cookie of a session does not: so no other
site can make a browser call the API (CSRF), and no header for scripts of other sites (CORS) is
sent.  Everything that is wrong is answered by RFC 9457, ``application/problem+json``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from attrs import evolve
from twisted.web.server import Request

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.http.answering import Answer, Answers, private, viewer_of
from rsscloud_broker.http.requests import RequestError, body_of, header, media_type, respond
from rsscloud_broker.interfaces import Caller, Route
from rsscloud_broker.web.admin import reference, shapes
from rsscloud_broker.web.admin.api_operation import Operation
from rsscloud_broker.web.admin.openapi import BASE, document
from rsscloud_broker.web.admin.operations import OPERATIONS
from rsscloud_broker.web.admin.page import Console
from rsscloud_broker.web.callers import NO_STORE
from rsscloud_broker.wire.negotiation import wants_page
from rsscloud_broker.wire.text import sentence

#: The longest body, in bytes; the longest reasons and URLs fit into it many times.
MAX_BODY: Final = 64 * 1024

_JSON: Final = "application/json"
_PROBLEM: Final = "application/problem+json"

_TITLES: Final = {
    400: "The request is malformed",
    401: "Who are you?",
    403: "This is not allowed",
    404: "There is no such thing",
    405: "This is called by another method",
    413: "The body is too large",
    415: "The body is not JSON",
    422: "This cannot be done",
    429: "These are too many requests",
    500: "The broker made a mistake",
    503: "The broker cannot answer right now",
}

#: The values that ``{id}`` in a path may have; ``msgspec`` checks how large it is.
_ID: Final = "[0-9]{1,19}"


class Api:
    """The API, and the document that describes it."""

    def __init__(self, console: Console, public_url: str) -> None:
        self._console = console
        described = document(public_url)
        self._document = msgspec.json.format(msgspec.json.encode(described))
        self._reference = reference.slots(described)

    def routes(self) -> Sequence[Route]:
        """The routes of the API.  ``/api/*`` takes paths with an id, and refuses unknown ones."""
        api = Answers(self._answer, _answer_problem)
        paths = [*{f"{BASE}{each.path}" for each in OPERATIONS if "{" not in each.path}, "/api/*"]
        return [
            Route("/api", "GET", Answers(self._describe)),
            Route("/api/openapi.json", "GET", Answers(self._describe)),
            Route("/api/docs", "GET", Answers(self._explain)),
            # The API itself refuses a body of more than ``MAX_BODY``, with a problem in JSON.
            *(
                Route(path, method, api, body_limit=2 * MAX_BODY)
                for path in sorted(paths)
                for method in ("GET", "POST")
            ),
        ]

    async def _describe(self, request: Request) -> Answer:
        """The document as JSON; a browser at ``/api`` gets the page instead."""
        if request.path == b"/api" and wants_page(header(request, "accept"), [_JSON]):
            page = await self._explain(request)
            return evolve(page, headers={**page.headers, "vary": "Accept"})
        return Answer(self._document, _JSON, headers={"vary": "Accept"})

    async def _explain(self, request: Request) -> Answer:
        """The page for people, who need not sign in."""
        viewer = await viewer_of(self._console.callers, request)
        about = ("API for administrators", "admin/reference.html", viewer)
        page = await self._console.pages.render(*about, **self._reference)
        return Answer(page, headers=private(viewer))

    async def _answer(self, request: Request) -> Answer | bytes:
        """Do the operation that a request asks for; its answer as JSON, or a problem."""
        try:
            caller = await self._require_administrator(request)
            operation, path_values = _find_operation(request)
            asked = _read_asked(request, operation, path_values)
            found = await operation.run(self._console.administrator(caller), asked)
        except Unadministrable as error:
            return _answer_problem(request, 404 if error.missing else 422, sentence(str(error)))
        return Answer(msgspec.json.encode(found), _JSON, headers=NO_STORE)

    async def _require_administrator(self, request: Request) -> Caller:
        """The administrator whose token the request has; a refusal if there is none."""
        caller = await self._console.callers.caller(request)
        if caller is None or caller.session is not None:
            raise RequestError(
                401,
                "The API needs a valid API token, in the header Authorization: Bearer TOKEN. "
                "Administrators make one with the scope admin at /account.",
                www_authenticate='Bearer realm="administration"',
            )
        if not caller.is_admin:
            raise RequestError(
                403,
                "The API is for tokens with the scope admin of an administrator's account; this "
                f"token of {caller.name} has {', '.join(sorted(caller.scopes)) or 'no scope'}.",
                www_authenticate='Bearer realm="administration", error="insufficient_scope", '
                'scope="admin"',
            )
        return caller


def _matcher(operation: Operation) -> Callable[[str], re.Match[str] | None]:
    """What matches the paths of an operation, and finds the id in them."""
    pattern = re.escape(f"{BASE}{operation.path}").replace(re.escape("{id}"), f"(?P<id>{_ID})")
    return re.compile(pattern).fullmatch


_MATCHERS: Final = [(each, _matcher(each)) for each in OPERATIONS]


def _find_operation(request: Request) -> tuple[Operation, dict[str, str]]:
    """The operation that a request asks for, and the values in its path; else a refusal."""
    path = request.path.decode("latin-1").rstrip("/")
    found = [(each, match.groupdict()) for each, matches in _MATCHERS if (match := matches(path))]
    if not found:
        raise RequestError(404, "There is no such operation. GET /api describes all of them.")
    method = {b"HEAD": "GET"}.get(request.method, request.method.decode("latin-1"))
    for each, values in found:
        if each.method == method:
            return each, values
    allowed = ", ".join(sorted({each.method for each, _ in found}))
    raise RequestError(405, f"This address takes {allowed} requests.", allow=allowed)


def _read_asked(request: Request, operation: Operation, path_values: dict[str, str]) -> Any:
    """What a request asks of an operation, from its path, and its query or body; else a refusal."""
    if operation.method == "GET":
        return _convert(_read_query(request) | path_values, operation, strict=False)
    values = _read_body(request)
    if request.args:
        raise RequestError(
            400, "This operation takes its values in the body, and none in the query."
        )
    if twice := path_values.keys() & values.keys():
        raise RequestError(400, f"The {' and '.join(twice)} is in the path, and not in the body.")
    values |= {name: int(value) for name, value in path_values.items()}
    return _convert(values, operation, strict=True)


def _read_query(request: Request) -> dict[str, str]:
    """The parameters in the query of a request; a refusal if one is there twice."""
    found = {}
    for name, values in (request.args or {}).items():
        try:
            found[name.decode("utf-8")] = values[0].decode("utf-8")
        except UnicodeDecodeError:
            raise RequestError(400, "The query is not in UTF-8.") from None
        if len(values) > 1:
            raise RequestError(400, f"The parameter {name.decode('utf-8')[:100]} is there twice.")
    return found


def _read_body(request: Request) -> dict[str, Any]:
    """The JSON object that is the body of a request; empty if there is no body."""
    body = body_of(request)
    if len(body) > MAX_BODY:
        raise RequestError(413, f"A body may have {MAX_BODY:,} bytes.")
    if not body:
        return {}
    if media_type(request) != _JSON:
        raise RequestError(415, f"The body must be JSON, with the header Content-Type: {_JSON}.")
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(400, f"The body must be a JSON object: {error}.") from error


def _convert(values: dict[str, Any], operation: Operation, *, strict: bool) -> Any:
    """The values as the operation takes them; a refusal if they break its rules."""
    try:
        return msgspec.convert(values, operation.asks, strict=strict)
    except msgspec.ValidationError as error:
        raise RequestError(
            400, f"{error}. GET /api describes what this operation takes."
        ) from error


def _answer_problem(request: Request, status: int, text: str, **headers: str) -> bytes:
    """Answer that something is wrong, as ``application/problem+json``."""
    body = shapes.Problem(title=_TITLES[status], status=status, detail=text)
    headers = {"cache_control": "no-store", **headers}
    return respond(request, status, _PROBLEM, msgspec.json.encode(body), **headers)
