"""The base class of the outbound clients: follows redirects, and applies one deadline to all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from attrs import evolve
from twisted.application.service import Service
from twisted.internet.defer import CancelledError
from zope.interface import implementer

from rsscloud_broker.errors import AddressRefused, OutboundError
from rsscloud_broker.interfaces import IOutbound, OutboundReply, OutboundRequest
from rsscloud_broker.model import host_of
from rsscloud_broker.model.administration import Block
from rsscloud_broker.outbound.bodies import TruncatingBody, Whole
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.exchanges import HTTPExchanger, PendingRequest
from rsscloud_broker.outbound.expiry import Expiry
from rsscloud_broker.outbound.guard import AddressGuard, Network
from rsscloud_broker.outbound.resolver import Resolve
from rsscloud_broker.outbound.tls import TLSContext
from rsscloud_broker.outbound.urls import check_circle, redirected
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.wire.websub import SIGNATURE, sign

#: Redirects after which the same request is made to another URL (RFC 9110, section 15.4).
_REDIRECTS: Final = frozenset({301, 302, 307, 308})


@implementer(IOutbound)
class Client(Service, ABC):
    """Makes guarded HTTP requests; a subclass makes the single exchanges.

    Stopping this service cancels requests under way and closes idle connections.

    :param resolve: looks host names up.
    :param deadline: seconds for a whole request: name, connection, TLS, headers, body and every
        redirect.
    :param body_limit: how many bytes an answer may have.
    :param budget: counts the answers in memory; None for a budget of this client alone.
    :param blocks: the hosts that administrators have blocked, which are not called; None if none
        ever are.
    :param idle: ``idle_limit`` and ``idle_seconds`` of ``HTTPExchanger``.
    :cvar body: the class that collects the body of an answer.
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
        blocks: Blocks | None = None,
        **idle: Any,
    ) -> None:
        self._guard = guard
        self._blocks = blocks
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
        self._pending: Expiry[PendingRequest] = Expiry(reactor, deadline, PendingRequest.timed_out)

    def stopService(self) -> None:
        super().stopService()
        for pending in self._pending.clear():
            pending.waits_for.cancel()
        self._exchanger.close()

    @property
    def under_way(self) -> int:
        """How many requests are under way."""
        return len(self._pending)

    @property
    def idle(self) -> int:
        """How many connections are kept open for further requests."""
        return self._exchanger.idle

    def allow(self, networks: Iterable[Network]) -> None:
        """Have the guard allow these networks from now on, and no others.

        Connections made until now are not used again; requests under way go on.
        """
        self._guard.allow(networks)
        self._exchanger.call_anew()

    async def request(self, request: OutboundRequest) -> OutboundReply:
        method, url, body, signing = request.method, request.url, request.body, request.signing
        headers = {"user-agent": self._user_agent, **request.headers}
        if signing is not None:
            headers[SIGNATURE] = sign(body, signing.secret, signing.method)
        hops: list[tuple[int, str]] = []
        pending = PendingRequest()
        self._pending.add(pending)
        try:
            while True:
                self._check_block(url)
                reply = await self._exchange(pending, method, url, headers, body)
                location = _location(reply, method)
                if not location or len(hops) == request.redirects:
                    return evolve(reply, hops=tuple(hops)) if hops else reply
                url = redirected(url, location)
                hops.append((reply.status, url))
                check_circle(request.url, hops)
        except CancelledError:
            if pending.late:
                raise OutboundError(f"no whole answer within {self._deadline:g} seconds") from None
            raise
        finally:
            self._pending.discard(pending)

    def _check_block(self, url: str) -> None:
        """Raise if an administrator has blocked a URL.

        :raises AddressRefused: it is blocked.
        """
        if self._blocks is not None and (block := self._block_of(self._blocks, url)):
            raise AddressRefused(f"the {block.kind} is blocked here: {block.reason}")

    def _block_of(self, blocks: Blocks, url: str) -> Block | None:
        """The block because of which a URL is not called; None if there is none."""
        return blocks.of_host(host_of(url))

    @abstractmethod
    async def _exchange(
        self,
        pending: PendingRequest,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> OutboundReply:
        """Make one request and return its answer, without following redirects.

        :param pending: this method sets its ``waits_for``; cancelling that ends the request.
        """


def _location(reply: OutboundReply, method: str) -> str:
    """The Location header of a redirect to follow; empty if there is none."""
    if reply.status in _REDIRECTS or (reply.status == 303 and method == "GET"):
        return reply.headers.get("location", "")
    return ""
