"""The courier's side: makes the requests that the broker sends, and sends the outcomes back."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from ipaddress import ip_network
from typing import Any

from attrs import evolve
from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred

from rsscloud_broker.errors import OutboundError, Unavailable
from rsscloud_broker.interfaces import IDirectNotifier, IOutbound
from rsscloud_broker.model import Callback, Content, Notification, Outcome
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
    Notify,
    NotNotified,
    Read,
    ReadDone,
    Said,
    Setup,
    TopicRules,
    Unread,
)
from rsscloud_broker.outbound.couriers.reading import Reader
from rsscloud_broker.util.deferreds import BreakOff, nothing_to_break_off, run_with_callback


class Carrier:
    """Makes the requests of one broker.

    :param make: makes the client, as the first message says.
    :param block: takes the kinds and names of what is blocked, with the reasons.
    :param reader: reads topics.
    :param notifiers: makes the notifiers, by protocol, which call by a client.
    :param outdated: says why another courier has to take over; empty if none has to.
    """

    def __init__(
        self,
        make: Callable[[Setup], Client],
        block: Callable[[Sequence[tuple[str, str, str]]], object],
        reader: Reader,
        notifiers: Callable[[IOutbound], Mapping[str, IDirectNotifier]],
        outdated: Callable[[], str],
    ) -> None:
        self._make = make
        self._block = block
        self._reader = reader
        self._make_notifiers = notifiers
        self._notifiers: Mapping[str, IDirectNotifier] = {}
        self._outdated = outdated
        self._client: Client | None = None
        self._bodies: dict[int, bytes] = {}  # large ones, by their numbers
        self._under_way: dict[int, BreakOff] = {}  # what ends each request, by its number
        self.link: Link[FromCourier, FromBroker]

    def refuse(self, message: FromCourier, why: str) -> None:
        """Send the broker an error in place of a message that cannot be encoded."""
        if isinstance(message, Answered | ReadDone):
            self.link.send(Failed(message.number, "OutboundError", f"the answer is faulty: {why}"))
        elif isinstance(message, NotNotified):
            outcome = evolve(message.outcome, reason=why, exchange=None)
            self.link.send(NotNotified(message.number, outcome))
        elif isinstance(message, Failed | Unread):
            self.link.send(replace(message, reason=ascii(message.reason)))

    def take(self, batch: Sequence[FromBroker]) -> None:
        """Do what the broker asks for.

        A call that cannot even begin fails alone.  If anything else fails, the courier ends: it
        may not know a network or a host that it must not call.
        """
        for message in batch:
            match message:
                case Notify():
                    self._notify(message)
                case Call(request=request):
                    making = self._make_request(message, self._body_of(message.body))
                    self._track(message.number, f"{request.method} {request.url}", making)
                case Read():
                    reading = self._reader.read(message, self.link)
                    self._track(message.number, f"reading {message.url}", reading)
                case _:
                    try:
                        self._obey(message)
                    except Exception as error:
                        self._leave(f"{type(message).__name__} failed, so it ends: {error!r}")
                        return

    def _obey(self, message: FromBroker) -> None:
        """Obey a message that has no outcome: cancel, keep a body, obey new rules."""
        match message:
            case Cancel():
                if break_off := self._under_way.get(message.number):
                    break_off()
            case Body():
                self._bodies[message.number] = message.data
            case Forget():
                self._bodies.pop(message.number, None)
            case Beat():
                self._answer_beat()
            case Networks():
                self._ready_client.allow(map(ip_network, message.allowed))
            case TopicRules():
                self._reader.obey(message)
            case Blocked():
                self._block(message.blocks)
            case Setup():
                self._client = self._make(message)
                self._notifiers = self._make_notifiers(self._client)

    def _answer_beat(self) -> None:
        """Say that this courier is alive; or leave, if another one has to take over."""
        if why := self._outdated():
            self._leave(why)
        else:
            self.link.send(Alive(self._ready_client.idle, self._reader.idle_connections))

    def _leave(self, why: str) -> None:
        """Tell the broker why this courier ends, and close the link, which ends it."""
        self.link.send(Leaving(why))
        self.link.close()

    @property
    def _ready_client(self) -> Client:
        """The client that ``Setup`` had made."""
        assert self._client is not None  # the broker sends ``Setup`` first
        return self._client

    def _body_of(self, sent: bytes | int | None) -> bytes | None:
        """The body that a message names; it is looked up at once, since the broker may have the
        courier forget it next.
        """
        return self._bodies.get(sent) if isinstance(sent, int) else sent

    def _notify(self, message: Notify) -> None:
        """Begin to notify a subscriber; ``_send_outcome`` gets the outcome, perhaps at once."""
        number = message.number
        body = None if message.body is None else self._body_of(message.body)
        notifier = self._notifiers.get(message.protocol)
        self._under_way[number] = nothing_to_break_off
        if notifier is None or (body is None and message.body is not None):
            lack = f"notifier of {message.protocol}" if notifier is None else "such content"
            self._send_outcome(message, Unavailable(f"the courier has no {lack}"))
            return
        content = None if body is None else Content(body, message.content_type, message.link)
        callback = Callback(message.url, message.protocol, message.procedure)
        notification = Notification(message.topic, callback, message.options, content)
        break_off = notifier.begin(notification, partial(self._send_outcome, message))
        if number in self._under_way:  # it has no outcome yet
            self._under_way[number] = break_off

    def _send_outcome(self, message: Notify, result: Outcome | Exception) -> None:
        """Send the broker an outcome: only the number, if the subscriber was notified."""
        del self._under_way[message.number]
        if not isinstance(result, Outcome):
            self._send_error(message.number, message.url, result)
        elif result.success:
            self.link.send(message.number)
        else:
            self.link.send(NotNotified(message.number, result))

    def _send_error(self, number: int, what: str, error: Exception) -> None:
        """Send the broker the error for which something has no result."""
        if isinstance(error, CancelledError):
            return  # nobody waits for it
        if isinstance(error, OutboundError | Unavailable):
            port_only = isinstance(error, OutboundError) and error.port_only
            self.link.send(Failed(number, type(error).__name__, str(error), port_only))
        else:  # a bug: this one fails, and the others go on
            self.link.send(Said(f"{what}: {error!r}"))
            self.link.send(Failed(number, "Unavailable", f"a courier failed: {error!r}"))

    def _track(self, number: int, what: str, work: Coroutine[Deferred[Any], Any, None]) -> None:
        """Begin some work, which the broker may cancel by its number; send its error if it fails.

        :param what: the work, for the log.
        """

        def ended(error: Exception | None) -> None:
            del self._under_way[number]
            if error is not None:
                self._send_error(number, what, error)

        self._under_way[number] = nothing_to_break_off
        break_off = run_with_callback(work, ended)
        if number in self._under_way:
            self._under_way[number] = break_off

    async def _make_request(self, call: Call, body: bytes | None) -> None:
        """Make the request that a message names, and send its answer."""
        if body is None:
            raise LookupError(f"there is no body {call.body!r}")
        reply = await self._ready_client.request(evolve(call.request, body=body))
        reply = evolve(reply, headers=dict(reply.headers))  # only a dict can be sent
        self.link.send(Answered(call.number, reply), len(reply.body))
