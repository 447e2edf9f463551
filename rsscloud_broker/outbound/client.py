"""The base class of the outbound clients, which follows redirects and applies one deadline to all;
and the client for callbacks.

A broker makes one small request to each of very many hosts.  For each request the client looks the
host name up, has the guard check every address, connects to one of them, sends the request, and
reads the status and a body of limited size, all under one deadline.

Unlike with treq, a request to a callback needs no Deferred, unless a name is looked up, and no
timer of its own.
"""

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
from rsscloud_broker.interfaces import IDirectOutbound, OutboundReply, OutboundRequest
from rsscloud_broker.model import host_of
from rsscloud_broker.model.administration import Block
from rsscloud_broker.outbound.bodies import TruncatingBody, WholeBody
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.exchanges import HTTPExchanger
from rsscloud_broker.outbound.expiry import Expiry
from rsscloud_broker.outbound.guard import AddressGuard, Network
from rsscloud_broker.outbound.http1 import AnswerHeaders, HTTPAnswer, message
from rsscloud_broker.outbound.resolver import Resolve
from rsscloud_broker.outbound.tls import TLSContext
from rsscloud_broker.outbound.urls import check_circle, redirected, target_of
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.util.deferreds import BreakOff, Done, from_callback, nothing_to_break_off
from rsscloud_broker.wire.websub import SIGNATURE, sign

#: Redirects after which the same request is made to another URL (RFC 9110, section 15.4).
_REDIRECTS: Final = frozenset({301, 302, 307, 308})


@implementer(IDirectOutbound)
class Client(Service, ABC):
    """Makes guarded HTTP requests; a subclass makes the single exchanges.

    Stopping this service cancels requests under way and closes idle connections.

    :param deadline: seconds for a whole request: name, connection, TLS, headers, body and every
        redirect.
    :param body_limit: how many bytes an answer may have.
    :param budget: counts the answers in memory; None for a budget of this client alone.
    :param blocks: the hosts that administrators have blocked, which are not called; None if none
        ever are.
    :param idle: ``idle_limit`` and ``idle_seconds`` of ``HTTPExchanger``.
    :ivar blocks: what administrators have blocked.
    :ivar pending: the requests under way, whose deadlines it watches.
    :cvar body: the class that collects the body of an answer.
    """

    body: ClassVar[type[TruncatingBody] | type[WholeBody]]

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
        self.blocks = blocks or Blocks()
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
        self.pending: Expiry[_Call] = Expiry(reactor, deadline, self._time_out)

    def stopService(self) -> None:
        super().stopService()
        for call in self.pending.clear():
            call.break_off()
        self._exchanger.idle_connections.close()

    @property
    def under_way(self) -> int:
        """How many requests are under way."""
        return len(self.pending)

    @property
    def idle(self) -> int:
        """How many connections are kept open for further requests."""
        return len(self._exchanger.idle_connections)

    def allow(self, networks: Iterable[Network]) -> None:
        """Have the guard allow these networks from now on, and no others.

        Connections made until now are not used again; requests under way go on.
        """
        self._guard.allow(networks)
        self._exchanger.call_anew()

    async def request(self, request: OutboundRequest) -> OutboundReply:
        """Make a request, and wait for the reply: see ``IOutbound``."""
        return await from_callback(lambda done: self.begin(done, request))

    def begin(self, done: Done[OutboundReply], request: OutboundRequest) -> BreakOff:
        """Begin a request, perhaps signed; ``done`` gets the reply or an error.  What this returns
        breaks the request off.
        """
        headers = {"user-agent": self._user_agent, **request.headers}
        if (signing := request.signing) is not None:
            headers[SIGNATURE] = sign(request.body, signing.secret, signing.method)
        call = _Call(self, request, headers, done)
        self.pending.add(call)
        call.begin()
        return call.break_off

    def _time_out(self, call: _Call) -> None:
        """End a call whose deadline has passed."""
        call.stop(OutboundError(f"no whole answer within {self._deadline:g} seconds"))

    def block_of(self, url: str) -> Block | None:
        """The block because of which a URL is not called; None if there is none."""
        return self.blocks.of_host(host_of(url))

    @abstractmethod
    def exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        done: Done[OutboundReply | HTTPAnswer],
    ) -> BreakOff:
        """Begin one request, without following redirects.

        :param done: is called with its reply or the answer that it is made of, perhaps before this
            returns.
        :raises OutboundError: it cannot begin.
        """


class CallbackClient(Client):
    """Makes guarded requests to callbacks; a body longer than ``body_limit`` is truncated."""

    body = TruncatingBody

    def exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        done: Done[OutboundReply | HTTPAnswer],
    ) -> BreakOff:
        """Begin one request, without redirects; ``done`` gets the answer, or the error."""
        target = target_of(url)
        return self._exchanger.begin(target, message(method, target, headers, body), done)


class _Call:
    """One request of a client, with its redirects.

    No coroutine runs and no Deferred waits for it: they would cost more than the rest of it.
    """

    __slots__ = ("_cancel", "_client", "_done", "_headers", "_hops", "_request", "_url")

    def __init__(
        self,
        client: Client,
        request: OutboundRequest,
        headers: Mapping[str, str],
        done: Done[OutboundReply],
    ) -> None:
        self._client = client
        self._request = request
        self._headers = headers
        self._done: Done[OutboundReply] | None = done
        self._url = request.url
        self._hops: list[tuple[int, str]] = []
        self._cancel: BreakOff = nothing_to_break_off

    def begin(self) -> None:
        """Make the request: the first one, or that to the URL of a redirect."""
        request, client, url = self._request, self._client, self._url
        try:
            if client.blocks.in_force and (block := client.block_of(url)):
                raise AddressRefused(f"the {block.kind} is blocked here: {block.reason}")
            self._cancel = client.exchange(
                request.method, url, self._headers, request.body, self._handle_reply
            )
        except Exception as error:
            self._end(error)

    def break_off(self) -> None:
        """End the call, if it is under way, with a ``CancelledError``."""
        self.stop(CancelledError())

    def stop(self, why: Exception) -> None:
        """End the call with this error, if it is under way, and break its exchange off."""
        if self._done is not None:
            self._end(why)
            self._cancel()

    def _end(self, result: OutboundReply | Exception) -> None:
        """Give the caller the result, unless the call has ended before."""
        done, self._done = self._done, None
        if done is not None:
            self._client.pending.discard(self)
            done(result)

    def _handle_reply(self, reply: OutboundReply | HTTPAnswer | Exception) -> None:
        """Follow a redirect while the request allows one more; else end with the reply."""
        if self._done is None:
            return
        if isinstance(reply, HTTPAnswer):
            headers = AnswerHeaders(reply.fields)
            reply = OutboundReply(reply.status, headers, reply.body, self._url)
        elif isinstance(reply, Exception):
            self._end(reply)
            return
        if reply.status >= 300:
            location = _location_to_follow(reply, self._request.method)
            if location and len(self._hops) < self._request.redirects:
                self._follow_redirect(reply, location)
                return
        if self._hops:
            reply = evolve(reply, hops=tuple(self._hops))
        self._end(reply)

    def _follow_redirect(self, reply: OutboundReply, location: str) -> None:
        """Make the request again, to the URL that a redirect names."""
        try:
            self._url = redirected(self._url, location)
            self._hops.append((reply.status, self._url))
            check_circle(self._request.url, self._hops)
        except OutboundError as error:
            self._end(error)
        else:
            self.begin()


def _location_to_follow(reply: OutboundReply, method: str) -> str:
    """The Location header of a redirect to follow; empty if there is none."""
    if reply.status in _REDIRECTS or (reply.status == 303 and method == "GET"):
        return reply.headers.get("location", "")
    return ""
