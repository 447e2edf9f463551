"""Answers XML-RPC calls with the procedures of the front doors; ``site`` calls it.

The procedures are Twisted's: ``xmlrpc_`` methods of ``twisted.web.xmlrpc.XMLRPC``, with a
subhandler for each prefix and a fault for each failure.  Twisted would parse documents with the
standard library, which expands what a DOCTYPE declares; ``wire.xmlrpc`` parses them here instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar

from lxml import etree
from twisted.internet.defer import CancelledError
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.server import Request
from twisted.web.xmlrpc import XMLRPC, Fault, XMLRPCIntrospection, withRequest

from rsscloud_broker.errors import Refused, Unavailable
from rsscloud_broker.http.answering import answer
from rsscloud_broker.http.requests import respond
from rsscloud_broker.wire import xmlrpc
from rsscloud_broker.wire.xml import MalformedXML

P = ParamSpec("P")
T = TypeVar("T")

#: The largest number of calls in one ``system.multicall``.
MAX_CALLS = 100

CONTENT_TYPE = "text/xml; charset=utf-8"


def fault_document(request: Request, code: int, text: str) -> bytes:
    """Answer with a fault, with the HTTP status 200 that XML-RPC requires."""
    return respond(request, 200, CONTENT_TYPE, xmlrpc.encode_fault(code, text))


def failure(request: Request, status: int, text: str, **headers: str) -> bytes:
    """Answer with a fault that is not the caller's, with an HTTP status that says so too."""
    document = xmlrpc.encode_fault(xmlrpc.INTERNAL_ERROR, text)
    return respond(request, status, CONTENT_TYPE, document, **headers)


def procedure(
    *signatures: list[str],
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
    """Mark an ``xmlrpc_`` method that takes the request first, and then the parameters.

    :param signatures: for ``system.methodSignature``: each has the type of the result, then those
        of the parameters.
    """

    def mark(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        function.signature = list(signatures)  # type: ignore[attr-defined] # Twisted reads it there
        marked: Callable[P, Awaitable[T]] = withRequest(function)
        return marked

    return mark


@lru_cache(maxsize=1000)
def _check_arity(function: Callable[..., Any], count: int) -> None:
    """Check that a function takes this many arguments; cached, since the check is slow.

    :raises TypeError: it takes more, or fewer.
    """
    inspect.signature(function).bind(*range(count))


class XMLRPCRoot(XMLRPC):
    """Answers the calls of all XML-RPC procedures that the front doors offer.

    :param handlers: the handlers of the procedures by prefix, such as ``rssCloud``.
    """

    log = Logger()

    def __init__(self, handlers: Mapping[str, XMLRPC]) -> None:
        super().__init__(allowNone=True)
        for prefix, handler in handlers.items():
            self.putSubHandler(prefix, handler)
        self.putSubHandler("system", System(self))

    def lookupProcedure(self, procedurePath: str) -> Callable[..., Any]:
        """The procedure with a name; Fault if there is none."""
        if not isinstance(procedurePath, str):  # system.methodHelp passes its parameter unchecked
            raise Fault(xmlrpc.INVALID_PARAMS, "the name of a procedure must be a string")
        try:
            found: Callable[..., Any] = super().lookupProcedure(procedurePath)
        except Fault:
            raise Fault(
                xmlrpc.RSSCLOUD_FAULT,
                f'Can\'t make the call because "{procedurePath[:200]}" is not defined.',
            ) from None
        return found

    def render_document(self, request: Request, root: etree._Element) -> bytes | int:
        """Answer a call whose document has been parsed."""
        try:
            method, params = xmlrpc.call_from(root)
        except MalformedXML as error:
            return fault_document(request, xmlrpc.INVALID_REQUEST, str(error))
        return self.render_call(request, method, params)

    def render_call(self, request: Request, method: str, params: Sequence[Any]) -> int:
        """Answer a call when its procedure has returned; ``NOT_DONE_YET``."""
        return answer(request, self.answer_call(request, method, params), failure)

    async def answer_call(self, request: Request, method: str, params: Sequence[Any]) -> bytes:
        """The body of the answer to a call: a result, or a fault."""
        try:
            value = await self.call(request, method, params)
        except Fault as fault:
            return fault_document(request, fault.faultCode, fault.faultString)
        return respond(request, 200, CONTENT_TYPE, xmlrpc.encode_response(value))

    async def call(self, request: Request, method: str, params: Sequence[Any]) -> Any:
        """Call a procedure.

        :returns: the result of the procedure.
        :raises Fault: the call failed, for any reason but the next.
        :raises Unavailable: the broker lacks what it needs for the call.
        """
        function = self.lookupProcedure(method)
        arguments = [request, *params] if getattr(function, "withRequest", False) else params
        try:
            # One more than the arguments: the function of a method takes ``self``.
            _check_arity(getattr(function, "__func__", function), len(arguments) + 1)
        except TypeError as error:
            raise Fault(xmlrpc.INVALID_PARAMS, f"{method}: {error}") from None
        try:
            result = function(*arguments)
            return await result if isinstance(result, Awaitable) else result
        except (Fault, Unavailable, CancelledError):
            raise
        except Refused as error:
            raise Fault(xmlrpc.RSSCLOUD_FAULT, str(error)) from error
        except Exception as error:  # a bug: log it, and tell the caller that the broker failed
            self.log.failure("{method} failed.", Failure(), method=method)
            raise Fault(
                xmlrpc.INTERNAL_ERROR, "The broker made a mistake. It has been logged."
            ) from error


class System(XMLRPCIntrospection):
    """The procedures ``system.listMethods``, ``methodHelp``, ``methodSignature``, ``multicall``."""

    def __init__(self, root: XMLRPCRoot) -> None:
        super().__init__(root)
        self._root = root

    @procedure(["array", "array"])
    async def xmlrpc_multicall(self, request: Request, calls: list[Any]) -> list[Any]:
        """Make several calls: an array of structs with methodName and params.  Each result is
        an array with one value, or a fault struct.
        """
        if not isinstance(calls, list) or len(calls) > MAX_CALLS:
            raise Fault(
                xmlrpc.INVALID_PARAMS,
                f"system.multicall takes one array of at most {MAX_CALLS} calls",
            )
        return [await self._call_one(request, call) for call in calls]

    async def _call_one(self, request: Request, call: Any) -> Any:
        """Make one call of a multicall: the result as an array of one value, or a fault struct."""
        try:
            match call:
                case {"methodName": "system.multicall"}:
                    raise Fault(xmlrpc.INVALID_REQUEST, "system.multicall does not nest")
                case {"methodName": str(method), "params": list(params)}:
                    return [await self._root.call(request, method, params)]
                case _:
                    raise Fault(
                        xmlrpc.INVALID_REQUEST,
                        "each call is a struct of methodName, a string, and params, an array",
                    )
        except Fault as fault:
            return {"faultCode": fault.faultCode, "faultString": fault.faultString}
