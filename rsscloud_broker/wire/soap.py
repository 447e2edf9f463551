"""SOAP 1.1 messages in rpc style: calls, responses and faults, both ways.

A call of the kind that UserLand's products send, and its response::

    <SOAP-ENV:Envelope xmlns:SOAP-ENV="http://schemas.xmlsoap.org/soap/envelope/" ...>
      <SOAP-ENV:Body>
        <ping>
          <weblogname xsi:type="xsd:string">Scripting News</weblogname>
          <weblogurl xsi:type="xsd:string">http://scripting.com/</weblogurl>
        </ping>
      </SOAP-ENV:Body>
    </SOAP-ENV:Envelope>

    ... <SOAP-ENV:Body>
        <pingResponse>
          <Result>
            <flerror xsi:type="xsd:boolean">false</flerror>
            <message xsi:type="xsd:string">Thanks for the ping.</message>
          </Result>
        </pingResponse>
      </SOAP-ENV:Body> ...

Clients made from a WSDL put the operation into a namespace; it is answered in
the same.  A value is typed by ``xsi:type``, of any year's XML Schema, or by
being an element of the encoding's namespace (``<SOAP-ENC:int>``).  Untyped, it
is a list if its children share one name, a dict if they do not, and a string
if it has none: so a dict with one member reads as a list of one.

Source: SOAP 1.1 (W3C Note of 8 May 2000), sections 4, 5 and 7.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen
from lxml import etree

from rsscloud_broker.wire import xml
from rsscloud_broker.wire.text import legal, to_boolean, to_bytes, to_double, to_integer

ENVELOPE = "http://schemas.xmlsoap.org/soap/envelope/"
ENCODING = "http://schemas.xmlsoap.org/soap/encoding/"
XSD = "http://www.w3.org/2001/XMLSchema"
XSI = "http://www.w3.org/2001/XMLSchema-instance"

# The namespaces of xsi:type and xsi:nil while XML Schema was being written.
_SCHEMA_INSTANCES = (
    XSI,
    "http://www.w3.org/2000/10/XMLSchema-instance",
    "http://www.w3.org/1999/XMLSchema-instance",
)
_TYPE = tuple(f"{{{namespace}}}type" for namespace in _SCHEMA_INSTANCES)
_NIL = tuple(
    f"{{{namespace}}}{name}" for namespace in _SCHEMA_INSTANCES for name in ("nil", "null")
)
_ARRAY_TYPE = f"{{{ENCODING}}}arrayType"
_NEXT_ACTOR = "http://schemas.xmlsoap.org/soap/actor/next"

#: How deep values may nest through references.
MAX_NESTING = 60
#: How many characters of XML one message may stand for through references.
MAX_REFERENCED = 1_000_000


class SoapFault(Exception):
    """A call cannot be served, or a response says so.

    :ivar code: ``Client``, ``Server``, ``VersionMismatch`` or ``MustUnderstand``;
        in a response whatever it says, without the prefix.
    :ivar string: why, for people.
    """

    def __init__(self, code: str, string: str) -> None:
        super().__init__(f"{code}: {string}")
        self.code = code
        self.string = string


@frozen
class SoapCall:
    """One call of an operation.

    :ivar operation: its local name.
    :ivar namespace: of the operation; empty if it has none.
    :ivar parameters: by local name; one that is sent several times is a list.
    """

    operation: str
    namespace: str = ""
    parameters: dict[str, Any] = field(factory=dict)


def action_of(header: str | None) -> str:
    """The value of a SOAPAction header, without quotes; empty if there is none."""
    return (header or "").strip().strip("\"'").strip()


def is_envelope(root: etree._Element) -> bool:
    """Whether a document means to be a SOAP message, of whatever version."""
    return xml.local_name(root) == "Envelope"


def decode_call(document: bytes, charset: str | None = None) -> SoapCall:
    """Read a call.

    Values come as ``str``, ``int``, ``bool``, ``float``, ``bytes`` (base64),
    ``list``, ``dict`` or None (``xsi:nil``).  References within the message
    (``href="#id"``) are followed.

    :param charset: the charset parameter of the HTTP Content-Type.
    :raises SoapFault: it is XML, but not a SOAP 1.1 call that makes sense here.
    :raises MalformedXML: it is not XML that is accepted here.
    """
    return call_from(xml.parse(document, charset))


def call_from(root: etree._Element) -> SoapCall:
    """Read a call as :func:`decode_call` does, from what ``xml.parse`` gave.

    :raises SoapFault: it is not a SOAP 1.1 call that makes sense here.
    """
    body = _body(root)
    operation = _root_element(body)
    return SoapCall(
        operation=xml.local_name(operation),
        namespace=xml.namespace(operation),
        parameters=_Values(body).members(operation),
    )


def decode_response(document: bytes, charset: str | None = None) -> Any:
    """Read a response: its result, None where there is none.

    :raises SoapFault: the response is a fault, or not a SOAP 1.1 message.
    :raises MalformedXML: it is not XML that is accepted here.
    """
    body = _body(xml.parse(document, charset))
    response = _root_element(body)
    if xml.local_name(response) == "Fault":
        texts = {xml.local_name(child): child.text or "" for child in response}
        code = texts.get("faultcode", "").strip().rpartition(":")[2]
        raise SoapFault(code or "Server", texts.get("faultstring", "").strip())
    return _Values(body).value(response[0]) if len(response) else None


def encode_call(operation: str, parameters: Mapping[str, Any], namespace: str = "") -> bytes:
    """A call, in UTF-8.

    Characters that XML cannot carry are left out of strings.

    :raises ValueError: a name or the namespace cannot be one in XML.
    :raises TypeError: a value is of a class that has no form here.
    """
    return _serialized(_message(operation, namespace, parameters))


def encode_response(call: SoapCall, result: Any, *, literal: bool = False) -> bytes:
    """The response to a call, in UTF-8: ``Result`` holds the result.

    :param literal: whether the types are to be known from a WSDL, and so are not written.

    :raises ValueError: the name of a member cannot be one in XML.
    :raises TypeError: a value is of a class that has no form here.
    """
    message = _message(call.operation + "Response", call.namespace, {"Result": result})
    return _serialized(_literal(message) if literal else message)


def encode_fault(code: str, string: str) -> bytes:
    """A fault, in UTF-8; it goes with HTTP status 500.

    :param code: ``Client``, ``Server``, ``VersionMismatch`` or ``MustUnderstand``.
    """
    envelope, body = _envelope()
    fault = etree.SubElement(body, f"{{{ENVELOPE}}}Fault")
    etree.SubElement(fault, "faultcode").text = f"SOAP-ENV:{code}"
    etree.SubElement(fault, "faultstring").text = legal(string)
    return _serialized(envelope)


# --- reading ----------------------------------------------------------------


def _body(envelope: etree._Element) -> etree._Element:
    """The body of an envelope whose headers can be left aside."""
    if not is_envelope(envelope):
        raise SoapFault("Client", f"{xml.describe(envelope)} is not a SOAP Envelope")
    if xml.namespace(envelope) != ENVELOPE:
        raise SoapFault("VersionMismatch", f"SOAP 1.1 is spoken here, in the namespace {ENVELOPE}")
    for header in envelope.findall(f"{{{ENVELOPE}}}Header"):
        for entry in header:
            _leave_aside(entry)
    bodies = envelope.findall(f"{{{ENVELOPE}}}Body")
    if len(bodies) != 1:
        raise SoapFault("Client", "an Envelope holds one Body")
    return bodies[0]


def _leave_aside(entry: etree._Element) -> None:
    """No header is understood here: section 4.2.3 tells which may be ignored."""
    ours = entry.get(f"{{{ENVELOPE}}}actor", "") in {"", _NEXT_ACTOR}
    required = entry.get(f"{{{ENVELOPE}}}mustUnderstand", "0").strip() in {"1", "true"}
    if ours and required:
        raise SoapFault("MustUnderstand", f"{xml.describe(entry)} is a header not understood here")


def _root_element(body: etree._Element) -> etree._Element:
    """What a body is about; elements beside it are there to be referred to."""
    roots = [child for child in body if child.get(f"{{{ENCODING}}}root") != "0"]
    if not roots:
        raise SoapFault("Client", "the Body is empty: it must hold one operation")
    if any(child.get("id") is None for child in roots[1:]):
        raise SoapFault("Client", "the Body holds several operations: send one at a time")
    return roots[0]


class _Values:
    """Decodes the values in one body.

    What is reached through references is counted, since a short message could
    otherwise stand for an endless one.
    """

    def __init__(self, body: etree._Element) -> None:
        self._by_id = {element.get("id"): element for element in body.iter()}
        self._allowance = MAX_REFERENCED

    def members(
        self, element: etree._Element, nesting: int = 0, referred: bool = False
    ) -> dict[str, Any]:
        """The children of an element by name, those of one name as a list."""
        gathered: dict[str, list[Any]] = {}
        for child in _children(element):
            value = self.value(child, nesting, referred)
            gathered.setdefault(xml.local_name(child), []).append(value)
        return {
            name: values[0] if len(values) == 1 else values for name, values in gathered.items()
        }

    def value(self, element: etree._Element, nesting: int = 0, referred: bool = False) -> Any:
        """What an element stands for; ``referred`` if a reference led there."""
        attributes = {str(name): str(value) for name, value in element.items()}
        if nesting > MAX_NESTING:
            raise SoapFault("Client", "values refer to each other in a circle, or nest too deeply")
        if referred:
            self._count(element, attributes)
        if "href" in attributes:
            return self.value(self._target(attributes["href"]), nesting + 1, referred=True)
        if _first(attributes, _NIL) in {"1", "true"}:
            return None
        kind = _kind(element, attributes)
        if kind == "Array" or len({child.tag for child in element}) == 1:
            return [self.value(child, nesting + 1, referred) for child in _children(element)]
        if len(element):
            return self.members(element, nesting + 1, referred)
        return _scalar(element, kind)

    def _target(self, href: str) -> etree._Element:
        target = self._by_id.get(href[1:]) if href.startswith("#") else None
        if target is None:
            raise SoapFault("Client", f"the reference {href[:60]!r} leads nowhere in this message")
        return target

    def _count(self, element: etree._Element, attributes: Mapping[str, str]) -> None:
        texts = [str(element.tag), *attributes, *attributes.values(), *xml.texts(element)]
        self._allowance -= len(texts) + sum(map(len, texts))
        if self._allowance < 0:
            raise SoapFault("Client", "the references in this message stand for too much")


def _children(element: etree._Element) -> list[etree._Element]:
    if xml.has_text(element):
        raise SoapFault("Client", f"{xml.describe(element)} holds text beside elements")
    return list(element)


def _kind(element: etree._Element, attributes: Mapping[str, str]) -> str:
    """The local name of an element's type; empty if it names none.

    The prefix is not looked up: what Array and int mean does not depend on the
    year of the schema, and other people's types are told by their shape.
    """
    if _ARRAY_TYPE in attributes:
        return "Array"
    if declared := _first(attributes, _TYPE):
        return declared.rpartition(":")[2]
    return xml.local_name(element) if xml.namespace(element) == ENCODING else ""


def _first(attributes: Mapping[str, str], names: Sequence[str]) -> str:
    return next((attributes[name].strip() for name in names if name in attributes), "")


def _scalar(element: etree._Element, kind: str) -> Any:
    text = element.text or ""
    read = _SCALARS.get(kind)
    if read is None:
        return text
    try:
        return read(text)
    except ValueError as error:
        raise SoapFault("Client", f"{xml.describe(element)}: {error}") from None


_SCALARS: dict[str, Callable[[str], Any]] = {
    "boolean": to_boolean,
    **dict.fromkeys(("double", "float"), to_double),
    **dict.fromkeys(("base64", "base64Binary"), to_bytes),
    **dict.fromkeys(
        (
            "integer", "int", "long", "short", "byte",
            "nonNegativeInteger", "positiveInteger",
            "unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte",
        ),
        to_integer,
    ),
}  # fmt: skip


# --- writing ----------------------------------------------------------------


def _message(name: str, namespace: str, members: Mapping[str, Any]) -> etree._Element:
    envelope, body = _envelope()
    if namespace:
        wrapper = etree.SubElement(body, f"{{{namespace}}}{name}", nsmap={"m": namespace})
    else:
        wrapper = etree.SubElement(body, name)
    _append_members(wrapper, members)
    return envelope


def _literal(message: etree._Element) -> etree._Element:
    """A message without what the encoding of SOAP 1.1 (section 5) adds to it."""
    del message.attrib[f"{{{ENVELOPE}}}encodingStyle"]
    for element in message.iter():
        for name in (f"{{{XSI}}}type", _ARRAY_TYPE):
            if name in element.attrib:
                del element.attrib[name]
    return message


def _envelope() -> tuple[etree._Element, etree._Element]:
    prefixes = {"SOAP-ENV": ENVELOPE, "SOAP-ENC": ENCODING, "xsi": XSI, "xsd": XSD}
    envelope = etree.Element(f"{{{ENVELOPE}}}Envelope", nsmap=prefixes)
    envelope.set(f"{{{ENVELOPE}}}encodingStyle", ENCODING)
    return envelope, etree.SubElement(envelope, f"{{{ENVELOPE}}}Body")


def _serialized(envelope: etree._Element) -> bytes:
    return etree.tostring(envelope, xml_declaration=True, encoding="utf-8")


def _append_members(parent: etree._Element, members: Mapping[str, Any]) -> None:
    for name, value in members.items():
        _append(parent, name, value)


def _append(parent: etree._Element, name: str, value: Any) -> None:
    element = etree.SubElement(parent, name)
    if value is None:
        element.set(f"{{{XSI}}}nil", "true")
    elif isinstance(value, Mapping):
        _append_members(element, value)
    elif isinstance(value, list | tuple):
        _append_items(element, value)
    else:
        schema_type, text = _written(value)
        element.set(f"{{{XSI}}}type", f"xsd:{schema_type}")
        element.text = text


def _append_items(element: etree._Element, items: Sequence[Any]) -> None:
    of_strings = all(isinstance(item, str) for item in items)
    item_type = "string" if of_strings else "anyType"
    element.set(f"{{{XSI}}}type", "SOAP-ENC:Array")
    element.set(_ARRAY_TYPE, f"xsd:{item_type}[{len(items)}]")
    for item in items:
        _append(element, "item", item)


def _written(value: Any) -> tuple[str, str]:
    """The schema type and the text of a scalar."""
    match value:
        case bool():
            return "boolean", "true" if value else "false"
        case int():
            return "int" if -(2**31) <= value < 2**31 else "long", str(value)
        case float():
            return "double", repr(value)
        case bytes():
            return "base64Binary", b64encode(value).decode("ascii")
        case str():
            return "string", legal(value)
    raise TypeError(f"{type(value).__name__} has no form in a SOAP message")
