"""Shows metrics and health to programs that watch the broker, such as Prometheus.

===================  ====================================================================
``/metrics``         the metrics, in the text format of Prometheus or as OpenMetrics
``/health/live``     whether the process works, 200 or 503: if not, restart it
``/health/ready``    whether it can accept requests, 200 or 503: if not, send it none
===================  ====================================================================

All take GET.  They answer programs on this machine, and those that send the token of the
configuration or an API token with the scope ``metrics``; everybody else gets 401::

    GET /health/ready HTTP/1.1
    Authorization: Bearer of-16-characters-or-more

    HTTP/1.1 503 Service Unavailable
    Content-Type: application/json

    {"status": "failed", "parts": {"disk": {"status": "failed", "text": "Only 3.2 MB are ..."}}}

The Accept header chooses the format of the metrics (see "Exposition formats" in the manual of
Prometheus), and parameters ``name[]`` choose single metrics.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from hmac import compare_digest
from typing import TypeAlias

from attrs import define, field
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from twisted.web.server import Request
from zope.interface import implementer

from rsscloud_broker.http.answering import Answers
from rsscloud_broker.http.limits import BoundedRequest
from rsscloud_broker.http.requests import bearer_token, header, plain, respond
from rsscloud_broker.interfaces import IFrontDoor, IHealth, PartState, Route, RoutesOnly

METRICS, LIVE, READY = "/metrics", "/health/live", "/health/ready"

#: Says whether a token gives the right to read metrics and health.
TokenCheck: TypeAlias = Callable[[str], Awaitable[bool]]


@implementer(IFrontDoor)
@define(eq=False)
class MonitoringDoor(RoutesOnly):
    """The front door for programs that watch the broker.

    :param token: the token of the configuration; empty for none.
    :param token_checks: say of other tokens, such as those of accounts, whether they may read.
    :param own_endpoint: whether the operator has given this door endpoints of its own; then it
        answers everybody as long as there is no token.
    """

    name = "metrics"

    _registry: CollectorRegistry
    _health: IHealth
    _token: str = field(repr=False)
    _token_checks: Sequence[TokenCheck] = field(default=(), kw_only=True)
    _own_endpoint: bool = field(default=False, kw_only=True)

    def change_token(self, token: str) -> None:
        """Take another token of the configuration from now on."""
        self._token = token

    def routes(self) -> Sequence[Route]:
        answers = {METRICS: self._show_metrics, LIVE: self._show_live, READY: self._show_ready}
        return [Route(path, "GET", self._guard(answer)) for path, answer in answers.items()]

    def _guard(self, answer: Callable[[Request], Awaitable[bytes]]) -> Answers:
        """A resource that gives an answer to those who may read it, and 401 to all others."""

        async def answer_or_refuse(request: Request) -> bytes:
            request.setHeader("cache-control", "no-store")
            if await self._may_read(request):
                return await answer(request)
            text = (
                "Only programs on the machine of this broker may read this, and those that send a "
                "token: Authorization: Bearer TOKEN. The token is that of [metrics] in the "
                "configuration, or an API token with the scope metrics. local_programs in [http] "
                "says which requests come from this machine."
            )
            return plain(request, 401, text, www_authenticate='Bearer realm="metrics"')

        return Answers(answer_or_refuse)

    async def _may_read(self, request: Request) -> bool:
        """Whether a request may read: by the endpoint, its sender's place, or its token."""
        if self._own_endpoint and not self._token:
            return True
        if isinstance(request, BoundedRequest) and request.is_local():
            return True
        token = bearer_token(request)
        if not token:
            return False
        if self._token and compare_digest(self._token.encode(), token.encode()):
            return True
        for check in self._token_checks:
            if await check(token):
                return True
        return False

    async def _show_metrics(self, request: Request) -> bytes:
        """The metrics that ``name[]`` chooses, in the format that Accept chooses."""
        try:
            encode, content_type = choose_encoder(header(request, "accept"))
        except (TypeError, ValueError):  # the header names a version that is no number
            encode, content_type = choose_encoder("")
        names = [name.decode("latin-1") for name in (request.args or {}).get(b"name[]", ())]
        chosen = self._registry.restricted_registry(names) if names else self._registry
        return respond(request, 200, content_type, encode(chosen), vary="Accept")

    async def _show_live(self, request: Request) -> bytes:
        return _states_as_json(request, self._health.alive())

    async def _show_ready(self, request: Request) -> bytes:
        return _states_as_json(request, await self._health.ready())


def _states_as_json(request: Request, states: Sequence[PartState]) -> bytes:
    """The states of parts as JSON."""
    words = {True: "ok", False: "failed"}
    works = all(state.works for state in states)
    found = {
        "status": words[works],
        "parts": {
            state.part: {"status": words[state.works], "text": state.text} for state in states
        },
    }
    body = json.dumps(found, indent=1).encode() + b"\n"
    return respond(request, 200 if works else 503, "application/json", body)
