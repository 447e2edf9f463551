"""What the outbound clients have in common: redirects, and one deadline over all of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from attrs import evolve
from twisted.application.service import Service
from twisted.internet.defer import CancelledError
from zope.interface import implementer

from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import IOutbound, OutboundReply
from rsscloud_broker.outbound.bodies import TruncatingBody, Whole
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.exchanges import HTTPExchanger, PendingRequest
from rsscloud_broker.outbound.expiry import Expiry
from rsscloud_broker.outbound.guard import AddressGuard, Network
from rsscloud_broker.outbound.resolver import Resolve
from rsscloud_broker.outbound.tls import TLSContext
from rsscloud_broker.outbound.urls import check_circle, redirected

#: Statuses that lead a request on to another place, as it is.
_REDIRECTS: Final = frozenset({301, 302, 307, 308})


@implementer(IOutbound)
class Client(Service, ABC):
    """Makes guarded requests; a subclass says by what means.

    Stopping this service cancels what is under way, and closes what waits for more.

    :param resolve: looks names up.
    :param deadline: seconds for a whole request: name, connection, TLS, headers,
        body and every redirect.
    :param body_limit: bytes that an answer may have.
    :param budget: that of answers under way; one of its own if there is none.
    :param idle: ``idle_limit`` and ``idle_seconds`` of ``HTTPExchanger``.
    :cvar body: what takes the body of an answer.
    """

    body: ClassVar[type[TruncatingBody] | type[Whole]]

    def __init__(
        self,
        reactor: Any,
        resolve: Resolve,
        guard: AddressGuard,
        tls: TLSContext,
        *,
        user_agent: str,
        deadline: float,
        body_limit: int,
        budget: AnswerBudget | None = None,
        **idle: Any,
    ) -> None:
        self._guard = guard
        self._exchanger = HTTPExchanger(
            reactor,
            resolve,
            guard,
            tls,
            seconds=deadline,
            make_body=partial(self.body, limit=body_limit),
            budget=budget or AnswerBudget(),
            **idle,
        )
        self._user_agent = user_agent
        self._deadline = deadline
        self._waiting: Expiry[PendingRequest] = Expiry(reactor, deadline, PendingRequest.timed_out)

    def stopService(self) -> None:
        super().stopService()
        for waiting in self._waiting.clear():
            waiting.waits_for.cancel()
        self._exchanger.close()

    def allow(self, networks: Iterable[Network]) -> None:
        """Let the guard allow these networks from now on, and no longer others.

        No connection is used again that was made until now; what is under way goes on.
        """
        self._guard.allow(networks)
        self._exchanger.call_anew()

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        redirects: int = 0,
    ) -> OutboundReply:
        headers = {"user-agent": self._user_agent, **(headers or {})}
        first = url
        hops: list[tuple[int, str]] = []
        waiting = PendingRequest()
        self._waiting.add(waiting)
        try:
            while True:
                reply = await self._exchange(waiting, method, url, headers, body)
                location = _location(reply, method)
                if not location or len(hops) == redirects:
                    return evolve(reply, hops=tuple(hops)) if hops else reply
                url = redirected(url, location)
                hops.append((reply.status, url))
                check_circle(first, hops)
        except CancelledError:
            if waiting.late:
                raise OutboundError(f"no whole answer within {self._deadline:g} seconds") from None
            raise
        finally:
            self._waiting.discard(waiting)

    @abstractmethod
    async def _exchange(
        self,
        waiting: PendingRequest,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> OutboundReply:
        """One request and its answer.

        :param waiting: is told what this waits for; cancelling that ends it.
        """


def _location(reply: OutboundReply, method: str) -> str:
    """Where an answer leads a request on to; empty if nowhere."""
    if reply.status in _REDIRECTS or (reply.status == 303 and method == "GET"):
        return reply.headers.get("location", "")
    return ""
