"""The WSDL: tells SOAP clients what can be called, and where."""

from __future__ import annotations

from twisted.web.resource import Resource
from twisted.web.server import Request

from rsscloud_broker.front_doors.requests import respond
from rsscloud_broker.wire.wsdl import wsdl


class SoapDescription(Resource):
    """GET ``/soap?wsdl``.

    :param public_url: the broker's own address, to which calls are to go.
    """

    isLeaf = True

    def __init__(self, public_url: str) -> None:
        super().__init__()
        self._document = wsdl(f"{public_url}/soap", f"{public_url}/weblogUpdates")

    def render_GET(self, request: Request) -> bytes:
        return respond(request, 200, "text/xml; charset=utf-8", self._document)
