"""The courier's side: makes the requests that the broker sends, and sends the outcomes back."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from ipaddress import ip_network
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred

from rsscloud_broker.errors import OutboundError, Unavailable
from rsscloud_broker.interfaces import OutboundRequest, Signing
from rsscloud_broker.outbound.client import Client
from rsscloud_broker.outbound.couriers.link import Link
from rsscloud_broker.outbound.couriers.messages import (
    Alive,
    Answered,
    Beat,
    Blocked,
    Body,
    Call,
    Cancel,
    Failed,
    Forget,
    FromBroker,
    FromCourier,
    Leaving,
    Networks,
    Read,
    ReadDone,
    Said,
    Setup,
    TopicRules,
    Unread,
)
from rsscloud_broker.outbound.couriers.reading import Reader


class Carrier:
    """Makes the requests of one broker.

    :param make: makes the client, as the first message says.
    :param block: takes the kinds and names of what is blocked, with the reasons.
    :param reader: reads topics.
    :param outdated: says why another courier has to take over; empty if none has to.
    """

    def __init__(
        self,
        make: Callable[[Setup], Client],
        block: Callable[[Sequence[tuple[str, str, str]]], object],
        reader: Reader,
        outdated: Callable[[], str],
    ) -> None:
        self._make = make
        self._block = block
        self._reader = reader
        self._outdated = outdated
        self._client: Client | None = None
        self._bodies: dict[int, bytes] = {}
        self._under_way: dict[int, Deferred[None]] = {}
        self.link: Link[FromCourier, FromBroker]

    def refuse(self, message: FromCourier, why: str) -> None:
        """Say that an answer cannot be sent to the broker."""
        if isinstance(message, Answered | ReadDone):
            self.link.send(Failed(message.number, "OutboundError", f"the answer is faulty: {why}"))
        elif isinstance(message, Failed | Unread):
            self.link.send(replace(message, reason=ascii(message.reason)))

    def take(self, batch: Sequence[FromBroker]) -> None:
        """Do what the broker asks for.

        A call that cannot even begin fails alone.  If anything else fails, the courier ends: it
        may not know a network or a host that it must not call.
        """
        for message in batch:
            if isinstance(message, Call):
                self._begin(message)
                continue
            if isinstance(message, Read):
                self._track(message.number, self._reader.read(message, self.link))
                continue
            try:
                self._follow(message)
            except Exception as error:
                self._leave(f"{type(message).__name__} failed, so it ends: {error!r}")
                return

    def _follow(self, message: FromBroker) -> None:
        match message:
            case Cancel():
                if under_way := self._under_way.get(message.number):
                    under_way.cancel()
            case Body():
                self._bodies[message.number] = message.data
            case Forget():
                self._bodies.pop(message.number, None)
            case Beat():
                self._answer_beat()
            case Networks():
                self._made.allow(map(ip_network, message.allowed))
            case TopicRules():
                self._reader.follow(message)
            case Blocked():
                self._block(message.blocks)
            case Setup():
                self._client = self._make(message)

    def _answer_beat(self) -> None:
        if why := self._outdated():
            self._leave(why)
        else:
            self.link.send(Alive(self._made.idle, self._reader.idle))

    def _leave(self, why: str) -> None:
        self.link.send(Leaving(why))
        self.link.close()

    @property
    def _made(self) -> Client:
        assert self._client is not None  # the broker sends ``Setup`` first
        return self._client

    def _begin(self, call: Call) -> None:
        # The body is looked up now: the broker may have the courier forget it at once.
        body = call.body if isinstance(call.body, bytes) else self._bodies.get(call.body)
        self._track(call.number, self._carry(call, body))

    def _track(self, number: int, work: Coroutine[Deferred[Any], Any, None]) -> None:
        """Begin some work, which the broker may cancel by its number."""
        working = Deferred.fromCoroutine(work)
        if not working.called:
            self._under_way[number] = working

            # A callback must not return the Deferred that it belongs to.
            def over(result: object) -> object:
                del self._under_way[number]
                return result

            working.addBoth(over)

    async def _carry(self, call: Call, body: bytes | None) -> None:
        signing = None if call.key is None else Signing(call.key.secret, call.key.method)
        try:
            if body is None:
                raise LookupError(f"there is no body {call.body!r}")
            reply = await self._made.request(
                OutboundRequest(call.method, call.url, call.headers, body, call.redirects, signing)
            )
        except CancelledError:
            return  # nobody waits for it
        except (OutboundError, Unavailable) as error:
            port_only = isinstance(error, OutboundError) and error.port_only
            self.link.send(Failed(call.number, type(error).__name__, str(error), port_only))
        except Exception as error:  # a bug: this request fails, and the others go on
            self.link.send(Said(f"{call.method} {call.url}: {error!r}"))
            self.link.send(Failed(call.number, "Unavailable", f"a courier failed: {error!r}"))
        else:
            self.link.send(
                Answered(
                    call.number,
                    reply.status,
                    dict(reply.headers),
                    reply.body,
                    reply.url,
                    list(reply.hops),
                ),
                len(reply.body),
            )
