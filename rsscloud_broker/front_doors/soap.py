"""SOAP 1.1: finds the operation that a call means, and answers it.

A SOAP call arrives at ``/soap`` or at any path that is a SOAPAction, such as
``/weblogUpdates``.  Several services have an operation called ``ping``; which
one is meant is said, in this order, by the SOAPAction, by the path, by the
names of the parameters.  So a SOAP ping of a weblog goes to the ``ping``
operation of the service ``/weblogUpdates`` that ``ping_sink`` offers.
"""

from __future__ import annotations

from collections.abc import Sequence

from lxml import etree
from twisted.logger import Logger
from twisted.web.server import Request

from rsscloud_broker.front_doors.answering import answer
from rsscloud_broker.front_doors.requests import caller, header, respond
from rsscloud_broker.interfaces import SoapOperation, SoapService
from rsscloud_broker.model import Refused, Unavailable
from rsscloud_broker.wire import soap
from rsscloud_broker.wire.xml import MalformedXML

CONTENT_TYPE = "text/xml; charset=utf-8"


def fault_document(request: Request, code: str, text: str) -> bytes:
    """A fault, with the HTTP status 500 that SOAP 1.1 asks for (section 6.2)."""
    return respond(request, 500, CONTENT_TYPE, soap.encode_fault(code, text))


class SoapRoot:
    """All the SOAP operations that the front doors offer."""

    log = Logger()

    def __init__(self, services: Sequence[SoapService]) -> None:
        self._services = services
        self._by_action: dict[str, SoapService] = {}
        for service in services:
            for action in (service.action, *service.aliases):
                if action in self._by_action:
                    raise ValueError(f"two front doors offer SOAP operations for {action}")
                self._by_action[action] = service

    @property
    def paths(self) -> frozenset[str]:
        """The paths at which calls may arrive besides ``/soap``."""
        return frozenset(self._by_action)

    def render_document(self, request: Request, root: etree._Element) -> int:
        """Answer a document that has been parsed."""
        return answer(request, self._answer_document(request, root))

    async def _answer_document(self, request: Request, root: etree._Element) -> bytes:
        try:
            call = soap.call_from(root)
            operation = self._operation(request, call)
            result = await operation.answer(call.parameters, caller(request))
        except soap.SoapFault as fault:
            return fault_document(request, fault.code, fault.string)
        except (MalformedXML, Refused) as error:
            return fault_document(request, "Client", str(error))
        except Unavailable:
            raise
        except Exception:  # a bug is logged; the caller learns that it is ours
            self.log.failure("A SOAP call failed.")
            return fault_document(
                request, "Server", "The broker made a mistake. It has been logged."
            )
        return respond(request, 200, CONTENT_TYPE, soap.encode_response(call, result))

    def _operation(self, request: Request, call: soap.SoapCall) -> SoapOperation:
        action = soap.action_of(header(request, "soapaction"))
        for named in (action, request.path.decode("latin-1")):
            service = self._by_action.get(named)
            if service and call.operation in service.operations:
                return service.operations[call.operation]
        candidates = [
            service.operations[call.operation]
            for service in self._services
            if call.operation in service.operations
        ]
        if not candidates:
            raise soap.SoapFault(
                "Client", f'Can\'t make the call because "{call.operation}" is not defined.'
            )
        return max(candidates, key=lambda found: len(found.parameters & call.parameters.keys()))
