"""The HTTP clients for callbacks and for topics: guarded, with one deadline for all redirects.

A broker makes one small request to each of very many hosts.  For each request the client looks the
host name up, has the guard check every address, connects to one of them, sends the request, and
reads the status and a body of limited size.  A request to a callback needs no Deferred, unless a
name is looked up, and no timer of its own.
"""

from __future__ import annotations

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
from rsscloud_broker.outbound.bodies import Fields, TruncatingBody, WholeBody
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.decoding import BodyDecoder, InThread, content_coding
from rsscloud_broker.outbound.exchanges import HTTPExchanger
from rsscloud_broker.outbound.expiry import Expiry
from rsscloud_broker.outbound.guard import AddressGuard, Network
from rsscloud_broker.outbound.http1 import HTTPAnswer, message
from rsscloud_broker.outbound.resolver import Resolve
from rsscloud_broker.outbound.tls import TLSContext
from rsscloud_broker.outbound.urls import check_circle, redirected, target_of
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.util.deferreds import (
    BreakOff,
    Done,
    from_callback,
    nothing_to_break_off,
    run_with_callback,
)
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire.codings import ACCEPTED
from rsscloud_broker.wire.websub import SIGNATURE, sign

#: Redirects after which the same request is made to another URL (RFC 9110, section 15.4).
_REDIRECTS: Final = frozenset({301, 302, 307, 308})

#: Headers that are lists, of which a server may send several (RFC 9110, section 5.3).
_LISTS: Final = frozenset({"cache-control", "link", "vary"})


@implementer(IDirectOutbound)
class Client(Service):
    """Makes guarded HTTP requests.

    Stopping this service cancels requests under way and closes idle connections.

    :param deadline: seconds for a whole request: name, connection, TLS, headers, body and every
        redirect.
    :param body_limit: how many bytes an answer may have.
    :param budget: counts the answers in memory; None for a budget of this client alone.
    :param blocks: the hosts that administrators have blocked, which are not called; None if none
        ever are.
    :param idle: ``idle_limit`` and ``idle_seconds`` of ``HTTPExchanger``.
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
        self._pending: Expiry[_Call] = Expiry(reactor, deadline, self._time_out)

    def stopService(self) -> None:
        super().stopService()
        for call in self._pending.clear():
            call.break_off()
        self._exchanger.idle_connections.close()

    @property
    def under_way(self) -> int:
        """How many requests are under way."""
        return len(self._pending)

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
        self._pending.add(call)
        call.begin()
        return call.break_off

    def _time_out(self, call: _Call) -> None:
        """End a call whose deadline has passed."""
        call.stop(OutboundError(f"no whole answer within {self._deadline:g} seconds"))

    def forget(self, call: _Call) -> None:
        """Take a call that is over off the pending ones, so that it does not time out."""
        self._pending.discard(call)

    def check_block(self, url: str) -> None:
        """Raise if an administrator has blocked a URL.

        :raises AddressRefused: it is blocked.
        """
        if self._blocks and (block := self._block_of(self._blocks, url)):
            raise AddressRefused(f"the {block.kind} is blocked here: {block.reason}")

    def _block_of(self, blocks: Blocks, url: str) -> Block | None:
        """The block because of which a URL is not called; None if there is none."""
        return blocks.of_host(host_of(url))

    def exchange(
        self, request: OutboundRequest, url: str, headers: Mapping[str, str], done: Done[Any]
    ) -> BreakOff:
        """Begin one request, without following redirects.

        :param url: where: that of the request, or of a redirect.
        :param headers: all headers but those that every request has.
        :param done: is called with the reply, or with the error, perhaps before this returns.
        :raises OutboundError: it cannot begin.
        """

        def answered(answer: HTTPAnswer | Exception) -> None:
            if isinstance(answer, HTTPAnswer):
                done(OutboundReply(answer.status, answer.headers(), answer.body, url))
            else:
                done(answer)

        target = target_of(url)
        asked = message(request.method, target, headers, request.body)
        return self._exchanger.begin(target, asked, answered)


class CallbackClient(Client):
    """Makes guarded requests to callbacks; a body longer than ``body_limit`` is truncated."""

    body = TruncatingBody


class TopicClient(Client):
    """Makes guarded requests for topics; too long an answer is an error.

    :param body_limit: how many bytes an answer may have, both before and after decompression.
    :param in_thread: calls a function in a thread and returns its result.
    """

    body = WholeBody

    def __init__(
        self,
        *args: Any,
        body_limit: int,
        in_thread: InThread,
        budget: AnswerBudget | None = None,
        **options: Any,
    ) -> None:
        self._budget = budget or AnswerBudget()
        super().__init__(*args, body_limit=body_limit, budget=self._budget, **options)
        self._decoder = BodyDecoder(body_limit, self._budget, in_thread)

    def change_body_limit(self, limit: int) -> None:
        """Use another limit for the size of answers, on new connections.

        :param limit: bytes, before and after decompression.
        """
        self._exchanger.make_body = partial(self.body, limit=limit)
        self._decoder.limit = limit
        self._budget.set_body_limit(limit)
        self._exchanger.call_anew()

    def _block_of(self, blocks: Blocks, url: str) -> Block | None:
        """The block of a topic or its host.  A redirect may lead to another topic."""
        return blocks.of_topic(normal_form(url))

    def exchange(
        self, request: OutboundRequest, url: str, headers: Mapping[str, str], done: Done[Any]
    ) -> BreakOff:
        return run_with_callback(self._exchange(request, url, headers), done)

    async def _exchange(
        self, request: OutboundRequest, url: str, headers: Mapping[str, str]
    ) -> OutboundReply:
        """Make one request; the reply, with its body decompressed."""
        target = target_of(url)
        headers = {**headers, "accept-encoding": ACCEPTED}
        asked = message(request.method, target, headers, request.body)
        answer = await from_callback(partial(self._exchanger.begin, target, asked))
        body = await self._decoder.decode(answer)
        is_compressed = bool(content_coding(answer.fields))
        return OutboundReply(
            answer.status, _headers_of(answer.fields), body, url, compressed=is_compressed
        )


def _headers_of(fields: Fields) -> dict[str, str]:
    """The headers of an answer that was decoded, by their names in lower case.  Of several values
    the last one counts, unless they are a list.
    """
    found: dict[str, str] = {}
    for name, value in fields:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        found[key] = f"{found[key]}, {text}" if key in _LISTS and key in found else text
    if content_coding(fields):
        del found["content-encoding"]
    return found


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
            client.check_block(url)
            self._cancel = client.exchange(request, url, self._headers, self._handle_reply)
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
            self._client.forget(self)
            done(result)

    def _handle_reply(self, reply: OutboundReply | Exception) -> None:
        """Follow a redirect while the request allows one more; else end with the reply."""
        if self._done is None:
            return
        if isinstance(reply, OutboundReply) and not reply.success:
            location = _location_to_follow(reply, self._request.method)
            if location and len(self._hops) < self._request.redirects:
                self._follow_redirect(reply, location)
                return
        if self._hops and isinstance(reply, OutboundReply):
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
