"""Reads calls that are too large to be parsed while everybody waits.

``wire.xmlrpc`` and ``wire.soap`` read a call of 64 kB within some milliseconds, whatever is in it.
Larger ones, which save a feed or upload a file, are read by another process: see
``interfaces.Parsing``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from attrs import evolve, frozen
from lxml import etree

from rsscloud_broker.errors import DocumentFault
from rsscloud_broker.wire import soap, xml, xmlrpc

#: Larger calls are read elsewhere, in bytes.
LARGE: Final = 64 * 1024

#: Stands for a date: no element of XML has such a name.
_DATE: Final = "\0"


class UnreadableCall(DocumentFault):
    """A document is no call that can be read."""


@frozen
class LargeCall:
    """A call by XML-RPC or SOAP.

    :ivar namespace: that of the operation (SOAP).
    :ivar parameters: a list (XML-RPC), or a dict (SOAP).
    """

    is_soap: bool
    name: str
    namespace: str
    parameters: Any


def is_soap(root: etree._Element, means_soap: bool) -> bool:
    """Whether a document is a SOAP call.

    :param means_soap: whether the request is one for SOAP, unless the document says something else.
    """
    return soap.is_envelope(root) or (means_soap and not xmlrpc.is_call(root))


def read_call(document: bytes, charset: str | None, means_soap: bool) -> LargeCall:
    """Read a call; to be called by ``interfaces.Parsing``.

    :param means_soap: whether the request is one for SOAP, unless the document says something else.
    :returns: the call, for ``unpack_call``.
    :raises UnreadableCall: there is none.
    """
    try:
        root = xml.parse(document, charset)
        if is_soap(root, means_soap=means_soap):
            call = soap.call_from(root)
            return LargeCall(
                is_soap=True,
                name=call.operation,
                namespace=call.namespace,
                parameters=_packed(call.parameters),
            )
        name, parameters = xmlrpc.call_from(root)
        return LargeCall(is_soap=False, name=name, namespace="", parameters=_packed(parameters))
    except xml.MalformedXML as error:
        raise UnreadableCall(error.reason) from error
    except soap.SoapFault as error:
        raise UnreadableCall(error.string) from error


def unpack_call(call: LargeCall) -> LargeCall:
    """The call that ``read_call`` has read in another process, with its dates as such again."""
    return evolve(call, parameters=_unpacked(call.parameters))


def _packed(value: Any) -> Any:
    """A value with nothing in it that MessagePack does not keep as it is."""
    match value:
        case datetime():
            return {_DATE: value.isoformat()}
        case dict():
            return {name: _packed(each) for name, each in value.items()}
        case list():
            return [_packed(each) for each in value]
    return value


def _unpacked(value: Any) -> Any:
    """The value that ``_packed`` was given."""
    match value:
        case {"\0": str(text)}:
            return datetime.fromisoformat(text)
        case dict():
            return {name: _unpacked(each) for name, each in value.items()}
        case list():
            return [_unpacked(each) for each in value]
    return value
