"""Answers a cloud's rssCloud notifications: by form, by XML-RPC and by SOAP.

By form (``http-post``), after a challenge if the registration had a domain::

    GET  /notify?url=http://example.org/rss.xml&challenge=x91
                                                           200, x91
    POST /notify    url=http://example.org/rss.xml         200

By ``xml-rpc`` the cloud calls the procedure of the registration (``rssCloud.notify``) with the
topic as its only parameter; by ``soap`` it calls an operation of that name, with one parameter
too, whose name is mostly ``url``.  The answer to both is true.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Final

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorTCP
from twisted.web.resource import Resource
from twisted.web.server import Request

from rsscloud_broker.wire import soap, xmlrpc
from rsscloud_broker.wire.text import decode
from rsscloud_broker.wire.xml import MalformedXML

DEFAULT_PROCEDURE: Final = "rssCloud.notify"
#: Notifications are a few hundred bytes; larger bodies are refused.
MAX_BODY_BYTES: Final = 64 * 1024

_UNKNOWN = "not subscribed to that url here"


class Listener(Resource):
    """The resource that a cloud calls, at any path.

    :param topics: the topics that were registered.  Other topics are refused, so that nobody can
        register this callback for them by its answer to a challenge.
    :param on_notification: called with the URL of the topic that has changed.
    :param procedure: the procedure that XML-RPC calls must name.
    """

    isLeaf = True

    def __init__(
        self,
        topics: Container[str],
        on_notification: Callable[[str], None],
        procedure: str = DEFAULT_PROCEDURE,
    ) -> None:
        super().__init__()
        self._topics = topics
        self._on_notification = on_notification
        self._procedure = procedure

    def render_GET(self, request: Request) -> bytes:
        """Repeat a challenge."""
        challenge = _argument(request, b"challenge")
        if not challenge:  # not from a cloud, but from a person or a monitor
            return _plain(request, "send notifications here by POST")
        if decode(_argument(request, b"url")) not in self._topics:
            return _refuse(request, 404, _UNKNOWN)
        request.setHeader("Content-Type", "text/plain")
        request.setHeader("X-Content-Type-Options", "nosniff")
        return challenge

    def render_POST(self, request: Request) -> bytes:
        """Accept a notification by any of the three protocols."""
        assert request.content is not None  # Twisted renders a request once its body is there
        body: bytes = request.content.read(MAX_BODY_BYTES + 1)
        if len(body) > MAX_BODY_BYTES:
            return _refuse(request, 413, f"a notification has at most {MAX_BODY_BYTES} bytes")
        if b"url" in request.args:
            if not self._notify(decode(_argument(request, b"url"))):
                return _refuse(request, 404, _UNKNOWN)
            request.setHeader("Content-Type", "text/plain")
            return b"Thanks for the update."
        request.setHeader("Content-Type", "text/xml; charset=utf-8")
        if request.getHeader("SOAPAction") is not None:
            return self._answer_soap(request, body)
        return self._answer_xmlrpc(body)

    def _answer_xmlrpc(self, body: bytes) -> bytes:
        """Accept a call by XML-RPC; the answer is a fault if it is not acceptable."""
        try:
            method, parameters = xmlrpc.decode_call(body)
        except MalformedXML as error:
            return xmlrpc.encode_fault(xmlrpc.PARSE_ERROR, error.reason)
        if method != self._procedure:
            return xmlrpc.encode_fault(
                xmlrpc.METHOD_NOT_FOUND, f"{method} is not defined here, {self._procedure} is"
            )
        if len(parameters) != 1 or not self._notify(parameters[0]):
            return xmlrpc.encode_fault(xmlrpc.INVALID_PARAMS, _UNKNOWN)
        return xmlrpc.encode_response(True)

    def _answer_soap(self, request: Request, body: bytes) -> bytes:
        """Accept a call by SOAP, whose only parameter may have any name; or answer with a fault."""
        try:
            call = soap.decode_call(body)
            if call.operation != self._procedure.rpartition(".")[2]:
                raise soap.SoapFault("Client", f"{call.operation} is not defined here")
            only = next(iter(call.parameters.values())) if len(call.parameters) == 1 else None
            if not self._notify(call.parameters.get("url", only)):
                raise soap.SoapFault("Client", _UNKNOWN)
            return soap.encode_response(call, True)
        except MalformedXML as error:
            fault = soap.SoapFault("Client", error.reason)
        except soap.SoapFault as error:
            fault = error
        request.setResponseCode(500)
        return soap.encode_fault(fault.code, fault.string)

    def _notify(self, topic: object) -> bool:
        """Pass a notification on; return False if its topic was not registered."""
        if not isinstance(topic, str) or topic not in self._topics:
            return False
        self._on_notification(topic)
        return True


def _argument(request: Request, name: bytes) -> bytes:
    """The first value of a parameter of the query or the form; empty if there is none."""
    values: list[bytes] = request.args.get(name, [b""])
    return values[0]


def _refuse(request: Request, status: int, reason: str) -> bytes:
    request.setResponseCode(status)
    return _plain(request, reason)


def _plain(request: Request, text: str) -> bytes:
    """A text without its backslash escapes."""
    request.setHeader("Content-Type", "text/plain; charset=utf-8")
    return f"{text}\n".encode()


def bind(reactor: IReactorTCP, site: Any, host: str, port: int) -> int:
    """Listen on a TCP port.

    :param site: the factory that serves the listener (by its type, a wrapped factory is not a
        ``ServerFactory``).
    :param host: the address to listen on; empty for all.
    :param port: the number of the port; 0 for any that is free.
    :returns: the number of the port.
    :raises CannotListenError: the port is taken, or the address is not this machine's.
    """
    try:
        # "::" usually accepts IPv4 as well.
        bound = reactor.listenTCP(port, site, interface=host or "::")
    except CannotListenError:
        bound = reactor.listenTCP(port, site, interface=host)
    address = bound.getHost()
    assert isinstance(address, IPv4Address | IPv6Address)
    return address.port
