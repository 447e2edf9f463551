"""Answers SOAP 1.1 calls: finds the operation that a call means among the front doors'.

A SOAP call arrives at ``/soap`` or at any path that is a SOAPAction, such as
``/weblogUpdates``.  Several services have an operation called ``ping``.  The broker chooses by,
in this order, the prefix of a dotted name as in XML-RPC (``weblogUpdates.ping``), the
SOAPAction, the path, and the names of the parameters.  So a SOAP ping of a weblog goes to the
``ping`` operation of the service ``/weblogUpdates`` that ``ping_sink`` offers.

Clients that were made without a WSDL may not know the names of the parameters, and send names such
as ``param0`` or ``c-gensym3``.  Their parameters are taken in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lxml import etree
from twisted.web.server import Request

from rsscloud_broker.errors import Refused
from rsscloud_broker.http.answering import answer
from rsscloud_broker.http.requests import client_address, header, respond
from rsscloud_broker.interfaces import SoapOperation, SoapService
from rsscloud_broker.wire import soap
from rsscloud_broker.wire.origin import BadOrigin
from rsscloud_broker.wire.xml import MalformedXML

CONTENT_TYPE = "text/xml; charset=utf-8"


def fault_document(request: Request, code: str, text: str) -> bytes:
    """Answer with a fault, with the HTTP status 500 that SOAP 1.1 requires (section 6.2)."""
    return respond(request, 500, CONTENT_TYPE, soap.encode_fault(code, text))


def failure(request: Request, status: int, text: str, **headers: str) -> bytes:
    """Answer with a fault that is not the caller's, with an HTTP status that says so too."""
    return respond(request, status, CONTENT_TYPE, soap.encode_fault("Server", text), **headers)


class SoapRoot:
    """Answers the calls of all SOAP operations that the front doors offer; ``site`` calls it."""

    def __init__(self, services: Sequence[SoapService]) -> None:
        self._services = services
        self._by_action: dict[str, SoapService] = {}
        # Namespaces of services with a WSDL, whose clients know the types of results.
        self._literal = {one.description.namespace for one in services if one.description}
        for service in services:
            for action in (service.action, *service.aliases):
                self._by_action[action] = service

    @property
    def paths(self) -> frozenset[str]:
        """The paths for SOAP calls besides ``/soap``."""
        return frozenset(self._by_action)

    def render_document(self, request: Request, root: etree._Element) -> int:
        """Answer a call whose document has been parsed."""
        return answer(request, self._answer_document(request, root), failure)

    async def _answer_document(self, request: Request, root: etree._Element) -> bytes:
        """Answer the call in a document, or with a fault if there is none."""
        try:
            call = soap.call_from(root)
        except soap.SoapFault as fault:
            return fault_document(request, fault.code, fault.string)
        except MalformedXML as error:
            return fault_document(request, "Client", str(error))
        return await self.answer_call(request, call)

    async def answer_call(self, request: Request, call: soap.SoapCall) -> bytes:
        """The body of the answer to a call: a result, or a fault."""
        try:
            operation = self._find_operation(request, call)
            values = _named_values(call.parameters, operation.parameters)
            caller = request if operation.takes_request else client_address(request)
            result = await operation.answer(values, caller)
        except soap.SoapFault as fault:
            return fault_document(request, fault.code, fault.string)
        except (Refused, BadOrigin) as error:
            return fault_document(request, "Client", str(error))
        literal = call.namespace in self._literal
        document = soap.encode_response(call, result, literal=literal)
        return respond(request, 200, CONTENT_TYPE, document)

    def _find_operation(self, request: Request, call: soap.SoapCall) -> SoapOperation:
        """The operation that a call means, by the prefix of its name, the SOAPAction or the path;
        else the one whose parameters fit best.  Raise SoapFault if there is none.
        """
        action = soap.action_of(header(request, "soapaction"))
        prefix, _, name = call.operation.rpartition(".")
        for service_action in (f"/{prefix}", action, request.path.decode("latin-1")):
            service = self._by_action.get(service_action)
            if service and name in service.operations:
                return service.operations[name]
        candidates = [
            service.operations[name]
            for service in self._services
            if name in service.operations and not prefix
        ]
        if not candidates:
            raise soap.SoapFault(
                "Client", f'Can\'t make the call because "{call.operation}" is not defined.'
            )
        return max(candidates, key=partial(_fitness, call.parameters))


def _fitness(values: Mapping[str, Any], operation: SoapOperation) -> tuple[int, bool, int]:
    """How well an operation fits the parameters of a call: by their names, then their number."""
    names = operation.parameters
    return len(values.keys() & set(names)), len(values) <= len(names), -len(names)


def _named_values(values: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """The values of a call by the operation's names; in their order if the call uses no name."""
    if values.keys() & set(names):
        return values
    ordered = list(values.values())
    if len(ordered) == 1 and len(names) > 1 and isinstance(ordered[0], list):
        ordered = ordered[0]  # the client gave all of them the same name
    return dict(zip(names, ordered, strict=False))
