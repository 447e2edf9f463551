"""Serves the WSDL documents, which describe the SOAP operations for clients."""

from __future__ import annotations

from twisted.web.resource import Resource
from twisted.web.server import Request

from rsscloud_broker.http.requests import respond


class DescriptionPage(Resource):
    """The page with one WSDL document, at ``/soap?wsdl`` for instance.

    :param document: the WSDL.
    """

    isLeaf = True

    def __init__(self, document: bytes) -> None:
        super().__init__()
        self._document = document

    def render_GET(self, request: Request) -> bytes:
        return respond(request, 200, "text/xml; charset=utf-8", self._document)
