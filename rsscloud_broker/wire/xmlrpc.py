"""Reads and writes XML-RPC documents: calls, responses and faults.

A call and its response look like this::

    <methodCall>
      <methodName>rssCloud.ping</methodName>
      <params><param><value>https://example.com/feed.xml</value></param></params>
    </methodCall>

    <methodResponse>
      <params><param><value><boolean>1</boolean></value></param></params>
    </methodResponse>

The reader accepts what clients commonly leave out (``<params>``, the type of a string, ``<data>``
of an empty array) and refuses all else that breaks the specification.
Source: the XML-RPC specification; ``i8``, ``nil`` and the ``ex:`` types as in
its common extensions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from xmlrpc.client import Fault, dumps, escape

from lxml import etree

from rsscloud_broker.wire import xml
from rsscloud_broker.wire.text import legal, to_boolean, to_bytes, to_double, to_integer

# Fault codes as in "Specification for Fault Code Interoperability".
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
#: The fault code with which rssCloud servers have always refused requests.
RSSCLOUD_FAULT = 4

#: The paths for calls, to which blog engines and aggregators send XML-RPC and SOAP.
CALL_PATHS = frozenset(
    {
        "/",
        "/RPC",
        "/RPC2",
        "/ping",
        "/ping/",
        "/ping/RPC2",
        "/rpc",
        "/rpc/ping",
        "/rpc2",
        "/soap",
        "/xmlrpc",
        "/xmlrpc.php",
    }
)

#: Strangers send calls; procedures have a handful of parameters and short names.
MAX_PARAMETERS = 100
MAX_METHOD_NAME = 255


# A call as most clients write it, with strings of plain ASCII only.  As all quantifiers are
# possessive, matching takes linear time.
_S = r"[ \t\r\n]*+"
_PLAIN = r"[ -%'-;=?-~]*+"
_PARAM = rf"<param>{_S}<value>(?:<string>{_PLAIN}</string>|{_PLAIN})</value>{_S}</param>{_S}"
_PLAIN_CALL = re.compile(
    (
        rf"""(?:<\?xml version=(?:"1\.0"|'1\.0')(?: encoding=(?:"utf-8"|"UTF-8"))?\?>{_S})?"""
        rf"<methodCall>{_S}<methodName>([a-zA-Z0-9_.]{{1,255}}+)</methodName>{_S}"
        rf"<params>{_S}((?:{_PARAM}){{1,9}}+)</params>{_S}</methodCall>{_S}"
    ).encode()
)
_PLAIN_VALUE = re.compile(rf"<value>(?:<string>)?({_PLAIN})".encode())
#: Longer calls are left to the parser, which releases the interpreter's lock.
_MAX_PLAIN = 64 * 1024


class MalformedXMLRPC(xml.MalformedXML):
    """A well-formed document is not a valid XML-RPC call or response."""


class XMLRPCFault(Exception):
    """A response says that the call failed.

    :ivar code: the faultCode; 0 if it is not a number.
    :ivar string: the faultString.
    """

    def __init__(self, code: int, string: str) -> None:
        super().__init__(f"fault {code}: {string}")
        self.code = code
        self.string = string


def is_call(root: etree._Element) -> bool:
    """Whether the root of a document is that of an XML-RPC call."""
    return xml.local_name(root) == "methodCall"


def decode_call(document: bytes, charset: str | None = None) -> tuple[str, list[Any]]:
    """Read a call: the name of the method and its parameters.

    Integers become ``int``, ``dateTime.iso8601`` becomes ``datetime`` (with a zone only if one was
    sent), base64 ``bytes``, nil None, and a struct ``dict``.  Of members with the same name the
    last counts.

    :param charset: the charset parameter of the HTTP Content-Type.
    :raises MalformedXMLRPC: the document is XML, but not a call.
    :raises MalformedXML: ``xml.parse`` does not accept the document.
    """
    return call_from(xml.parse(document, charset))


def call_from(root: etree._Element) -> tuple[str, list[Any]]:
    """Read a call as :func:`decode_call` does, from the root that ``xml.parse`` has returned.

    :raises MalformedXMLRPC: the document is not a call.
    """
    if not is_call(root):
        raise MalformedXMLRPC(f"{xml.describe(root)} is not a methodCall")
    parts = _parts_by_name(root, "methodName", "params")
    name = _text(parts["methodName"]).strip() if "methodName" in parts else ""
    if not name:
        raise MalformedXMLRPC("the call names no method: a methodName is required")
    if len(name) > MAX_METHOD_NAME:
        raise MalformedXMLRPC(f"a methodName has at most {MAX_METHOD_NAME} characters")
    return name, _parameters(parts.get("params"))


def plain_call(document: bytes, charset: str | None = None) -> tuple[str, list[str]] | None:
    """Read a call in the form that most clients use: strings of ASCII without entities.

    This takes a tenth of the time of a parser, which also releases the interpreter's lock and then
    has to wait for it.

    :param charset: the charset parameter of the HTTP Content-Type.
    :returns: the result of :func:`decode_call`; None if the document has any other form.
    """
    if len(document) > _MAX_PLAIN or not (charset is None or charset in xml.ASCII_AND_MORE):
        return None
    found = _PLAIN_CALL.fullmatch(document)
    if found is None:
        return None
    values = [value.decode("ascii") for value in _PLAIN_VALUE.findall(found[2])]
    return found[1].decode("ascii"), values


def decode_response(document: bytes, charset: str | None = None) -> Any:
    """Read the value of a response; None if it has no value.

    :raises XMLRPCFault: the response is a fault.
    :raises MalformedXMLRPC: the document is XML, but not a response.
    :raises MalformedXML: ``xml.parse`` does not accept the document.
    """
    root = xml.parse(document, charset)
    if xml.local_name(root) != "methodResponse":
        raise MalformedXMLRPC(f"{xml.describe(root)} is not a methodResponse")
    parts = _parts_by_name(root, "params", "fault")
    if "fault" in parts:
        raise _fault_from(_only_value(parts["fault"]))
    values = _parameters(parts.get("params"))
    if len(values) > 1:
        raise MalformedXMLRPC("a response has one value")
    return values[0] if values else None


def encode_call(method: str, params: Sequence[Any]) -> bytes:
    """Write a methodCall, in UTF-8.

    Characters that XML cannot carry are left out of strings.

    :raises OverflowError: an integer does not fit into 32 bits.
    :raises TypeError: a value is of a class that has no form in XML-RPC.
    """
    return _encode(dumps(tuple(params), escape(method), allow_none=True))


def encode_response(value: Any) -> bytes:
    """Write a methodResponse, in UTF-8; it raises the same as :func:`encode_call`."""
    return _encode(dumps((value,), methodresponse=True, allow_none=True))


def encode_fault(code: int, string: str) -> bytes:
    """Write a methodResponse with a fault, in UTF-8."""
    return _encode(dumps(Fault(code, string)))


def _encode(document: str) -> bytes:
    """A document as bytes, without what XML cannot carry."""
    # An XML parser reads a bare carriage return as a line feed.
    return legal(document).replace("\r", "&#13;").encode("utf-8")


def _fault_from(value: Any) -> XMLRPCFault:
    """The fault in a response, even if its members are invalid."""
    members = value if isinstance(value, dict) else {}
    code = members.get("faultCode")
    return XMLRPCFault(code if isinstance(code, int) else 0, str(members.get("faultString", "")))


def _parameters(params: etree._Element | None) -> list[Any]:
    """The values in ``params``; none if the element is absent."""
    if params is None:
        return []
    items = _items_named(params, "param")
    if len(items) > MAX_PARAMETERS:
        raise MalformedXMLRPC(f"a call has at most {MAX_PARAMETERS} parameters")
    return [_only_value(item) for item in items]


def _only_value(element: etree._Element) -> Any:
    """The value in an element that holds exactly one."""
    if len(element) == 1 and element[0].tag == "value" and not xml.has_text(element):
        return _value(element[0])  # the usual case; the rest finds out what is wrong
    parts = _parts_by_name(element, "value")
    if "value" not in parts:
        raise MalformedXMLRPC(f"{xml.describe(element)} lacks its value")
    return _value(parts["value"])


def _value(element: etree._Element) -> Any:
    """The value in a ``value`` element, by its type; MalformedXMLRPC if that is not one."""
    if len(element) == 0:
        return _text(element)  # a value without a type is a string
    if len(element) > 1 or xml.has_text(element):
        raise MalformedXMLRPC(f"{xml.describe(element)} holds one type and nothing else")
    typed = element[0]
    read = _TYPES.get(xml.local_name(typed))
    if read is None:
        raise MalformedXMLRPC(f"{xml.describe(typed)} is not a type of XML-RPC")
    try:
        return read(typed)
    except ValueError as error:
        raise MalformedXMLRPC(f"{xml.describe(typed)}: {error}") from None


def _array(element: etree._Element) -> list[Any]:
    """The values in an ``array``, which may lack its ``data``."""
    parts = _parts_by_name(element, "data")
    return [_value(item) for item in _items_named(parts["data"], "value")] if parts else []


def _struct(element: etree._Element) -> dict[str, Any]:
    """The values of the members, by their names."""
    members: dict[str, Any] = {}
    for member in _items_named(element, "member"):
        parts = _parts_by_name(member, "name", "value")
        if len(parts) != 2:
            raise MalformedXMLRPC(f"{xml.describe(member)} needs a name and a value")
        members[_text(parts["name"])] = _value(parts["value"])
    return members


def _text(element: etree._Element) -> str:
    """The text of an element; MalformedXMLRPC if it has elements in it."""
    if len(element):
        raise MalformedXMLRPC(f"{xml.describe(element)} holds text, not other elements")
    return element.text or ""


def _datetime(element: etree._Element) -> datetime:
    """The time in an element, with a zone if one was sent."""
    try:
        return datetime.fromisoformat(_text(element).strip())
    except ValueError:
        raise ValueError("a dateTime must look like 20260131T14:08:55") from None


def _nil(element: etree._Element) -> None:
    """None; ValueError if the element has text."""
    if _text(element).strip():
        raise ValueError("nil is empty")


def _items_named(element: etree._Element, name: str) -> list[etree._Element]:
    """The children of an element, all of which must have one name."""
    items = list(element)
    for item in items:
        if item.tag != name and xml.local_name(item) != name:  # the first is fast, and common
            break
    else:
        if not xml.has_text(element):
            return items
    raise MalformedXMLRPC(f"{xml.describe(element)} holds {name} elements and nothing else")


def _parts_by_name(element: etree._Element, *names: str) -> dict[str, etree._Element]:
    """The children of an element by name; each name may occur at most once."""
    parts = {xml.local_name(child): child for child in element}
    if xml.has_text(element) or len(parts) != len(element) or not parts.keys() <= set(names):
        raise MalformedXMLRPC(
            f"{xml.describe(element)} holds {' and '.join(names)}, each once, and nothing else"
        )
    return parts


_TYPES = {
    "string": _text,
    "array": _array,
    "struct": _struct,
    "dateTime.iso8601": _datetime,
    "nil": _nil,
    "boolean": lambda element: to_boolean(_text(element)),
    "double": lambda element: to_double(_text(element)),
    "base64": lambda element: to_bytes(_text(element)),
    **dict.fromkeys(("int", "i1", "i2", "i4", "i8"), lambda element: to_integer(_text(element))),
}
