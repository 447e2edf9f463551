"""Makes the calls by which a relay passes a ping on, and judges the answers.

===========  ==================================================================================
protocol     what is sent for a ping
===========  ==================================================================================
``xml-rpc``  ``weblogUpdates.extendedPing(name, url, check, rss, tags)`` if the ping names a feed,
             else ``weblogUpdates.ping(name, url)``
``soap``     the same as SOAP 1.1, with the SOAPAction ``"/weblogUpdates"``
``get``      ``name``, ``url`` and ``rssUrl`` as parameters of the URL; or in the places that the
             URL has for them, as in ``http://sink.example/ping?u={url}``
``rsscloud`` a form with ``url``, the feed, or the site if the ping names no feed
``websub``   a form with ``hub.mode=publish`` and ``hub.url``, the same
===========  ==================================================================================

A ping server that does not know ``extendedPing`` answers with a fault.  Then ``ping`` is sent
instead, and for an hour the server is sent nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote, urlencode

from attrs import evolve, frozen
from twisted.internet.interfaces import IReactorTime

from rsscloud_broker.errors import AddressRefused, OutboundError, Unavailable
from rsscloud_broker.interfaces import IOutbound, OutboundReply, OutboundRequest
from rsscloud_broker.model import Ping
from rsscloud_broker.wire import soap, xml, xmlrpc
from rsscloud_broker.wire.http_dates import retry_after
from rsscloud_broker.wire.origin import headers_of
from rsscloud_broker.wire.text import charset_of, clean
from rsscloud_broker.wire.weblog_updates import says_error

#: The protocols of targets.
Protocol: TypeAlias = Literal["xml-rpc", "soap", "get", "rsscloud", "websub"]

#: Statuses of 400 to 499 after which the same ping may be accepted later.
PASSING: Final = frozenset({408, 425, 429})

XML: Final = {"content-type": "text/xml; charset=utf-8"}
_FORM: Final = {"content-type": "application/x-www-form-urlencoded"}
_SOAP: Final = {**XML, "soapaction": '"/weblogUpdates"'}


@frozen
class RelayAnswer:
    """What became of a call.

    :ivar accepted: whether the target accepted the ping.
    :ivar text: what it answered, or why it did not accept the ping, for people.
    :ivar healthy: whether it answered as such a server does, even if it refused the ping.
    :ivar again: whether the same ping may be accepted later.
    :ivar retry_after: how many seconds it asked to wait; None if it did not ask.
    :ivar unknown: whether it may not know the method that was called.
    """

    accepted: bool
    text: str = ""
    healthy: bool = True
    again: bool = False
    retry_after: float | None = None
    unknown: bool = False


def message_of(protocol: Protocol, url: str, ping: Ping, *, plain: bool = False) -> OutboundRequest:
    """The request that passes a ping on.

    :param url: of the target.
    :param plain: whether to call ``ping`` even if the ping names a feed.
    """
    topic = ping.rss_url or ping.url
    match protocol:
        case "xml-rpc":
            method, values = _weblog_updates(ping, plain=plain)
            call = xmlrpc.encode_call(f"weblogUpdates.{method}", list(values.values()))
            return OutboundRequest("POST", url, XML, call)
        case "soap":
            method, values = _weblog_updates(ping, plain=plain)
            return OutboundRequest("POST", url, _SOAP, soap.encode_call(method, values))
        case "get":
            return OutboundRequest("GET", _with_parameters(url, ping))
        case "rsscloud":
            return OutboundRequest("POST", url, _FORM, urlencode({"url": topic}).encode())
        case "websub":
            form = {"hub.mode": "publish", "hub.url": topic, "hub.topic": topic}
            return OutboundRequest("POST", url, _FORM, urlencode(form).encode())


def _weblog_updates(ping: Ping, *, plain: bool) -> tuple[str, dict[str, str]]:
    """The method of weblogUpdates for a ping, and its parameters in their order."""
    values = {"weblogname": ping.name, "weblogurl": ping.url}
    if plain or not is_extended(ping):
        return "ping", values
    values |= {"changesurl": ping.changes_url, "rssurl": ping.rss_url}
    if ping.tags:
        values["tags"] = "|".join(ping.tags)
    return "extendedPing", values


def is_extended(ping: Ping) -> bool:
    """Whether a ping says more than ``weblogUpdates.ping`` can."""
    return bool(ping.changes_url or ping.rss_url or ping.tags)


def _with_parameters(url: str, ping: Ping) -> str:
    """The URL of a target by ``get``, with the ping in its places, or as parameters."""
    values = {"name": ping.name, "url": ping.url, "rssUrl": ping.rss_url}
    if "{" in url:
        for name, value in values.items():
            url = url.replace(f"{{{name}}}", quote(value, safe=""))
        return url
    given = urlencode({name: value for name, value in values.items() if value})
    return f"{url}{'&' if '?' in url else '?'}{given}"


def judge(protocol: Protocol, reply: OutboundReply) -> RelayAnswer:
    """Judge the answer of a target."""
    if protocol == "soap" and reply.status == 500:  # faults have this status
        return _judge_weblog_updates(soap.decode_response, reply)
    if not reply.success:
        pause = retry_after(reply.headers)
        again = reply.status >= 500 or reply.status in PASSING or pause is not None
        text = f"the target answered with status {reply.status}"
        return RelayAnswer(accepted=False, text=text, healthy=False, again=again, retry_after=pause)
    match protocol:
        case "xml-rpc":
            return _judge_weblog_updates(xmlrpc.decode_response, reply)
        case "soap":
            return _judge_weblog_updates(soap.decode_response, reply)
        case "rsscloud":
            return _judge_rsscloud(reply)
    return RelayAnswer(accepted=True, text=f"status {reply.status}")


def _judge_weblog_updates(
    decode: Callable[[bytes, str | None], Any], reply: OutboundReply
) -> RelayAnswer:
    """Judge an answer of weblogUpdates: ``flerror`` and ``message``.

    Any fault may mean that the target does not know the method.  Only a fault of SOAP with the code
    ``Server`` says that the same ping may be accepted later.

    :param decode: reads the value in the body, given its charset; raises a fault, or
        ``MalformedXML``.
    """
    try:
        value = decode(reply.body, charset_of(reply.headers.get("content-type", "")))
    except (xmlrpc.XMLRPCFault, soap.SoapFault) as fault:
        text = _shortened(f"the target answered with a fault: {fault}")
        again = isinstance(fault, soap.SoapFault) and fault.code == "Server"
        return RelayAnswer(accepted=False, text=text, again=again, unknown=True)
    except xml.MalformedXML:
        text = f"the target answered with status {reply.status}, but not as a ping server does"
        # Only SOAP comes here with this status: without a fault the server itself has failed.
        return RelayAnswer(accepted=False, text=text, healthy=False, again=reply.status == 500)
    if not isinstance(value, Mapping):  # some answer with true alone
        refused = value is False or value is None
        return RelayAnswer(
            accepted=not refused, text="the target refused it, without a reason" if refused else ""
        )
    text = _shortened(str(value.get("message", "")))
    if says_error(value):
        return RelayAnswer(
            accepted=False,
            text=f"the target refused it: {text}" if text else "the target refused it",
        )
    return RelayAnswer(accepted=True, text=text)


def _judge_rsscloud(reply: OutboundReply) -> RelayAnswer:
    """Judge an answer of rssCloud's REST interface; other answers with 2xx are a success."""
    try:
        root = xml.parse(reply.body, charset_of(reply.headers.get("content-type", "")))
    except xml.MalformedXML:
        return RelayAnswer(accepted=True, text=f"status {reply.status}")
    text = _shortened(root.get("msg", ""))
    if root.get("success") == "false":
        return RelayAnswer(accepted=False, text=f"the target refused it: {text}")
    return RelayAnswer(accepted=True, text=text)


def _shortened(text: str) -> str:
    # How many characters of an answer are kept: strangers write them.
    return clean(text)[:200]


@frozen
class Sender:
    """Sends messages of relays.

    :ivar outbound: makes the requests; it connects only to addresses that are allowed.
    :ivar identity: the URL by which other brokers know this one; empty if they cannot.
    """

    outbound: IOutbound
    identity: str

    async def send(self, protocol: Protocol, message: OutboundRequest, ping: Ping) -> RelayAnswer:
        """Send a message about a ping, and judge the answer.  Raises nothing."""
        headers = {**message.headers, **headers_of(ping, self.identity)}
        try:
            # It follows up to three redirects, with the same method and body.
            reply = await self.outbound.request(evolve(message, headers=headers, redirects=3))
        except AddressRefused as error:
            return RelayAnswer(accepted=False, text=_shortened(str(error)), healthy=False)
        except (OutboundError, Unavailable) as error:
            return RelayAnswer(
                accepted=False, text=_shortened(str(error)), healthy=False, again=True
            )
        return judge(protocol, reply)


class TargetCalls:
    """Calls one target: by ``extendedPing``, or *plain* by ``ping`` if it knows only that."""

    def __init__(self, sender: Sender, clock: IReactorTime, protocol: Protocol, url: str) -> None:
        self._sender = sender
        self._clock = clock
        self._protocol = protocol
        self._url = url
        self._plain_until = 0.0

    async def __call__(self, ping: Ping) -> RelayAnswer:
        """Pass a ping on, and judge the answer.  Raises nothing."""
        plain = self._clock.seconds() < self._plain_until
        answer = await self._send(ping, plain=plain)
        may_be_plain = self._protocol in ("xml-rpc", "soap") and is_extended(ping) and not plain
        if answer.unknown and may_be_plain:
            answer = await self._send(ping, plain=True)
            if answer.accepted:
                # After an hour the target may know ``extendedPing``.
                self._plain_until = self._clock.seconds() + 3600.0
        return answer

    async def _send(self, ping: Ping, *, plain: bool) -> RelayAnswer:
        message = message_of(self._protocol, self._url, ping, plain=plain)
        return await self._sender.send(self._protocol, message, ping)
