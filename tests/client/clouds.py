"""Clouds of other people, as far as a subscriber can tell.

`FirstCloud` keeps to the letter of the article that announced the cloud element in July 2003.
`NodeCloud` answers as rsscloud-server does, a cloud that is written for Node.js.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen
from twisted.web.resource import Resource
from twisted.web.server import Request

from rsscloud_broker.wire import soap, xmlrpc


@frozen
class Registered:
    """What a cloud knows of a registration."""

    procedure: str
    port: int
    path: str
    protocol: str
    urls: tuple[str, ...]

    def notification(self, url: str) -> tuple[dict[str, str], bytes]:
        """The headers and the body of a notification."""
        headers = {"Content-Type": "text/xml"}
        if self.protocol == "xml-rpc":
            return headers, xmlrpc.encode_call(self.procedure, [url])
        call = soap.encode_call(self.procedure.rpartition(".")[2], {"channel": url})
        return {**headers, "SOAPAction": f'"{self.path}"'}, call


class FirstCloud(Resource):
    """A cloud whose procedure takes five parameters, by XML-RPC or SOAP.

    :param protocol: ``xml-rpc`` or ``soap``.
    :ivar faults: the sentences with which it has declined calls.
    """

    isLeaf = True

    def __init__(self, protocol: str) -> None:
        super().__init__()
        self._protocol = protocol
        self.registered: list[Registered] = []
        self.faults: list[str] = []

    def render_POST(self, request: Request) -> bytes:
        assert request.content is not None
        return self.answer(request.content.read())

    def answer(self, body: bytes) -> bytes:
        """The answer to a call."""
        if self._protocol == "xml-rpc":
            fault = self._register(*xmlrpc.decode_call(body))
            return xmlrpc.encode_fault(4, fault) if fault else xmlrpc.encode_response(True)
        call = soap.decode_call(body)
        name = f"xmlStorageSystem.{call.operation}"
        fault = self._register(name, list(call.parameters.values()))
        return soap.encode_fault("Client", fault) if fault else soap.encode_response(call, True)

    def _register(self, name: str, given: list[Any]) -> str:
        """Why a call is declined; empty if it is not."""
        fault = ""
        if name != "xmlStorageSystem.rssPleaseNotify":
            fault = f"There is no procedure {name}"
        elif len(given) != 5:
            fault = "The procedure takes five parameters"
        elif given[3] not in {"xml-rpc", "soap"}:
            fault = f"The protocol {given[3]} is unknown"
        else:
            procedure, port, path, protocol, urls = given
            self.registered.append(Registered(procedure, int(port), path, protocol, tuple(urls)))
        self.faults += [fault] if fault else []
        return fault


class NodeCloud(Resource):
    """A cloud that takes registrations as a form, if it may answer with ``application/xml`` or
    JSON, and by XML-RPC with five or six parameters.

    :ivar declines: how many calls it declines.
    :ivar registered: what it was asked, without the topics.
    """

    isLeaf = True

    def __init__(self, declines: int = 0) -> None:
        super().__init__()
        self.declines = declines
        self.registered: list[tuple[Any, ...]] = []

    def render_POST(self, request: Request) -> bytes:
        assert request.content is not None
        if request.path == b"/RPC2":
            return self.answer(request.content.read())
        accepted = (request.getHeader("accept") or "*/*").split(",")
        ranges = {each.partition(";")[0].strip() for each in accepted}
        if not {"application/xml", "application/*", "*/*", "application/json"} & ranges:
            request.setResponseCode(406)
            return b"Not Acceptable"
        form = {name.decode(): values[0].decode() for name, values in request.args.items()}
        self.registered.append(
            tuple(form.get(name) for name in ("protocol", "port", "path", "domain"))
        )
        request.setHeader("Content-Type", "text/xml")
        return b'<?xml version="1.0"?><notifyResult success="true" msg="It worked."/>'

    def answer(self, body: bytes) -> bytes:
        """The answer to a call by XML-RPC."""
        _, given = xmlrpc.decode_call(body)
        fault = ""
        if len(given) < 5:
            fault = "Can't call \"pleaseNotify\" because there aren't enough parameters."
        elif len(given) > 6:
            fault = 'Can\'t call "pleaseNotify" because there are too many parameters.'
        elif given[3] not in {"http-post", "https-post", "xml-rpc"}:
            fault = f"The protocol, <i>{given[3]}</i>, is unsupported."
        elif len(self.registered) < self.declines:
            fault = "The call failed when we tested the handler."
        self.registered.append((*given[:4], *given[5:]))
        return xmlrpc.encode_fault(4, fault) if fault else xmlrpc.encode_response(True)
