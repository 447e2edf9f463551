"""The page that a cloud calls: notifications by form, by XML-RPC and by SOAP.

By form (``http-post``), after a challenge if we gave our name::

    GET  /notify?url=http://example.org/rss.xml&challenge=x91
                                                           200, x91
    POST /notify    url=http://example.org/rss.xml         200

By ``xml-rpc`` the procedure that we named (``rssCloud.notify``) is called with
the topic as its only parameter; by ``soap`` an operation of that name, with a
parameter ``url``.  Both are answered with true.
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
MAX_BODY_BYTES: Final = 64 * 1024

_UNKNOWN = "not subscribed to that url here"


class Listener(Resource):
    """Answers clouds, at whatever path it is put.

    :param topics: what we asked to be told about; anything else is refused, so
        that nobody can subscribe us to something with our own echo.
    :param on_notification: called with the URL of the topic.
    :param procedure: the name that XML-RPC calls must use.
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
        if not challenge:  # somebody looks whether anything is there
            return _plain(request, "notifications are taken here, by POST")
        if decode(_argument(request, b"url")) not in self._topics:
            return _refuse(request, 404, _UNKNOWN)
        request.setHeader("Content-Type", "text/plain")
        request.setHeader("X-Content-Type-Options", "nosniff")
        return challenge

    def render_POST(self, request: Request) -> bytes:
        """Take a notification, in whichever protocol it comes."""
        assert request.content is not None  # Twisted renders what has arrived in whole
        body: bytes = request.content.read(MAX_BODY_BYTES + 1)
        if len(body) > MAX_BODY_BYTES:
            return _refuse(request, 413, f"a notification has at most {MAX_BODY_BYTES} bytes")
        if b"url" in request.args:
            return self._by_form(request)
        request.setHeader("Content-Type", "text/xml; charset=utf-8")
        if request.getHeader("SOAPAction") is not None:
            return self._by_soap(request, body)
        return self._by_xmlrpc(body)

    def _by_form(self, request: Request) -> bytes:
        if not self._take(decode(_argument(request, b"url"))):
            return _refuse(request, 404, _UNKNOWN)
        request.setHeader("Content-Type", "text/plain")
        return b"Thanks for the update."

    def _by_xmlrpc(self, body: bytes) -> bytes:
        try:
            method, parameters = xmlrpc.decode_call(body)
        except MalformedXML as error:
            return xmlrpc.encode_fault(xmlrpc.PARSE_ERROR, error.reason)
        if method != self._procedure:
            return xmlrpc.encode_fault(
                xmlrpc.METHOD_NOT_FOUND, f"{method} is not defined here, {self._procedure} is"
            )
        if len(parameters) != 1 or not self._take(parameters[0]):
            return xmlrpc.encode_fault(xmlrpc.INVALID_PARAMS, _UNKNOWN)
        return xmlrpc.encode_response(True)

    def _by_soap(self, request: Request, body: bytes) -> bytes:
        try:
            call = soap.decode_call(body)
            if call.operation != self._procedure.rpartition(".")[2]:
                raise soap.SoapFault("Client", f"{call.operation} is not defined here")
            if not self._take(call.parameters.get("url")):
                raise soap.SoapFault("Client", _UNKNOWN)
            return soap.encode_response(call, True)
        except MalformedXML as error:
            fault = soap.SoapFault("Client", error.reason)
        except soap.SoapFault as error:
            fault = error
        request.setResponseCode(500)
        return soap.encode_fault(fault.code, fault.string)

    def _take(self, topic: object) -> bool:
        """Pass a notification on, if it is one that we asked for."""
        if not isinstance(topic, str) or topic not in self._topics:
            return False
        self._on_notification(topic)
        return True


def _argument(request: Request, name: bytes) -> bytes:
    """A parameter of a query or a form; empty if there is none."""
    values: list[bytes] = request.args.get(name, [b""])
    return values[0]


def _refuse(request: Request, status: int, reason: str) -> bytes:
    request.setResponseCode(status)
    return _plain(request, reason)


def _plain(request: Request, text: str) -> bytes:
    request.setHeader("Content-Type", "text/plain; charset=utf-8")
    return f"{text}\n".encode()


def bind(reactor: IReactorTCP, site: Any, host: str, port: int) -> int:
    """Listen; the number of the port.

    :param site: the factory that serves the listener; a wrapped one is no
        ``ServerFactory`` by its type.
    :param host: the address to listen on; empty for all of them.
    :param port: 0 for any that is free.
    :raises CannotListenError: it is taken, or not ours.
    """
    try:
        # Where "::" can be had, it usually takes IPv4 as well.
        bound = reactor.listenTCP(port, site, interface=host or "::")
    except CannotListenError:
        bound = reactor.listenTCP(port, site, interface=host)
    address = bound.getHost()
    assert isinstance(address, IPv4Address | IPv6Address)
    return address.port
