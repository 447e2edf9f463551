"""Reads and writes SOAP 1.1 messages in rpc style: calls, responses and faults.

A call as UserLand's products send it, and its response::

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

Clients that were made from a WSDL put the operation into a namespace, and the response is in
the same one.  The type of a value is its ``xsi:type``, of any year's XML Schema, or the name of
its element if that is in the encoding's namespace (``<SOAP-ENC:int>``).  A value without a type is
a list if all its children have one name, a dict if they have several, and a string if it has no
children.  So a dict with one member is read as a list with one item.

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


class SoapFault(Exception):
    """A SOAP fault: a call cannot be answered, or a response says that it was not.

    :ivar code: ``Client``, ``Server``, ``VersionMismatch`` or ``MustUnderstand``; from a
        response, its faultcode without the prefix.
    :ivar string: why, for people.
    """

    def __init__(self, code: str, string: str) -> None:
        super().__init__(f"{code}: {string}")
        self.code = code
        self.string = string


@frozen
class SoapCall:
    """One call of an operation.

    :ivar operation: the local name of the operation.
    :ivar namespace: the namespace of the operation; empty if it has none.
    :ivar parameters: the parameters by local name; one that was sent several times is a list.
    """

    operation: str
    namespace: str = ""
    parameters: dict[str, Any] = field(factory=dict)


def action_of(header: str | None) -> str:
    """The value of a SOAPAction header, without quotes; empty if there is none."""
    return (header or "").strip().strip("\"'").strip()


def is_envelope(root: etree._Element) -> bool:
    """Whether the root of a document is that of a SOAP message, of any version."""
    return xml.local_name(root) == "Envelope"


def decode_call(document: bytes, charset: str | None = None) -> SoapCall:
    """Read a call.

    Values become ``str``, ``int``, ``bool``, ``float``, ``bytes`` (base64), ``list``, ``dict`` or
    None (``xsi:nil``).  References within the message (``href="#id"``) are followed.

    :param charset: the charset parameter of the HTTP Content-Type.
    :raises SoapFault: the document is XML, but not a SOAP 1.1 call that can be read.
    :raises MalformedXML: ``xml.parse`` does not accept the document.
    """
    return call_from(xml.parse(document, charset))


def call_from(root: etree._Element) -> SoapCall:
    """Read a call as :func:`decode_call` does, from the root that ``xml.parse`` has returned.

    :raises SoapFault: the document is not a SOAP 1.1 call that can be read.
    """
    body = _find_body(root)
    operation = _root_element(body)
    return SoapCall(
        operation=xml.local_name(operation),
        namespace=xml.namespace(operation),
        parameters=_Values(body).members(operation),
    )


def decode_response(document: bytes, charset: str | None = None) -> Any:
    """Read the result of a response; None if it has no result.

    :raises SoapFault: the response is a fault, or not a SOAP 1.1 message.
    :raises MalformedXML: ``xml.parse`` does not accept the document.
    """
    body = _find_body(xml.parse(document, charset))
    response = _root_element(body)
    if xml.local_name(response) == "Fault":
        texts = {xml.local_name(child): child.text or "" for child in response}
        code = texts.get("faultcode", "").strip().rpartition(":")[2]
        raise SoapFault(code or "Server", texts.get("faultstring", "").strip())
    return _Values(body).value(response[0]) if len(response) else None


def encode_call(operation: str, parameters: Mapping[str, Any], namespace: str = "") -> bytes:
    """Write a call, in UTF-8.

    Characters that XML cannot carry are left out of strings.

    :raises ValueError: a name or the namespace is not possible in XML.
    :raises TypeError: a value is of a class that has no form in SOAP.
    """
    return _serialize(_message(operation, namespace, parameters))


def encode_response(call: SoapCall, result: Any, *, literal: bool = False) -> bytes:
    """Write the response to a call, in UTF-8, with the result in an element ``Result``.

    :param literal: whether to leave out the types, since the client knows them from a WSDL.
    :raises ValueError: the name of a member is not possible in XML.
    :raises TypeError: a value is of a class that has no form in SOAP.
    """
    message = _message(call.operation + "Response", call.namespace, {"Result": result})
    return _serialize(_without_types(message) if literal else message)


def encode_fault(code: str, string: str) -> bytes:
    """Write a fault, in UTF-8; it belongs to an answer with HTTP status 500.

    :param code: ``Client``, ``Server``, ``VersionMismatch`` or ``MustUnderstand``.
    :param string: why the call failed, for people.
    """
    envelope, body = _envelope()
    fault = etree.SubElement(body, f"{{{ENVELOPE}}}Fault")
    etree.SubElement(fault, "faultcode").text = f"SOAP-ENV:{code}"
    etree.SubElement(fault, "faultstring").text = legal(string)
    return _serialize(envelope)


# --- reading ----------------------------------------------------------------


def _find_body(envelope: etree._Element) -> etree._Element:
    """The body of an envelope.

    :raises SoapFault: the envelope is of another version, has not one body, or has a header that
        must be understood.
    """
    if not is_envelope(envelope):
        raise SoapFault("Client", f"{xml.describe(envelope)} is not a SOAP Envelope")
    if xml.namespace(envelope) != ENVELOPE:
        raise SoapFault("VersionMismatch", f"SOAP 1.1 is spoken here, in the namespace {ENVELOPE}")
    for header in envelope.findall(f"{{{ENVELOPE}}}Header"):
        for entry in header:
            _check_header(entry)
    bodies = envelope.findall(f"{{{ENVELOPE}}}Body")
    if len(bodies) != 1:
        raise SoapFault("Client", "an Envelope holds one Body")
    return bodies[0]


def _check_header(entry: etree._Element) -> None:
    """Check that SOAP 1.1 lets the broker ignore a header; it understands none (section 4.2.3).

    :raises SoapFault: the header is for the broker, which must understand it.
    """
    ours = entry.get(f"{{{ENVELOPE}}}actor", "") in {"", _NEXT_ACTOR}
    required = entry.get(f"{{{ENVELOPE}}}mustUnderstand", "0").strip() in {"1", "true"}
    if ours and required:
        raise SoapFault("MustUnderstand", f"{xml.describe(entry)} is a header not understood here")


def _root_element(body: etree._Element) -> etree._Element:
    """The element of the operation or response in a body.

    Elements beside it are the targets of references.
    """
    roots = [child for child in body if child.get(f"{{{ENCODING}}}root") != "0"]
    if not roots:
        raise SoapFault("Client", "the Body is empty: it must hold one operation")
    if any(child.get("id") is None for child in roots[1:]):
        raise SoapFault("Client", "the Body holds several operations: send one at a time")
    return roots[0]


class _Values:
    """Decodes the values in one body.

    It counts the characters that it reaches through references, since otherwise a short message
    could stand for an endless one.
    """

    def __init__(self, body: etree._Element) -> None:
        self._by_id = {element.get("id"): element for element in body.iter()}
        # Characters of XML that further references in this message may stand for.
        self._allowance = 1_000_000

    def members(
        self, element: etree._Element, nesting: int = 0, referred: bool = False
    ) -> dict[str, Any]:
        """The values of an element's children by name; several of one name are a list."""
        gathered: dict[str, list[Any]] = {}
        for child in _only_children(element):
            value = self.value(child, nesting, referred)
            gathered.setdefault(xml.local_name(child), []).append(value)
        return {
            name: values[0] if len(values) == 1 else values for name, values in gathered.items()
        }

    def value(self, element: etree._Element, nesting: int = 0, referred: bool = False) -> Any:
        """The value of an element.

        :param nesting: how deep the element is nested, references included.
        :param referred: whether the element was reached through a reference.
        """
        attributes = {str(name): str(value) for name, value in element.items()}
        if nesting > 60:  # a circle of references nests without end
            raise SoapFault("Client", "values refer to each other in a circle, or nest too deeply")
        if referred:
            self._count_reference(element, attributes)
        if "href" in attributes:
            return self.value(self._target(attributes["href"]), nesting + 1, referred=True)
        if _first_present(attributes, _NIL) in {"1", "true"}:
            return None
        kind = _type_of(element, attributes)
        if kind == "Array" or len({child.tag for child in element}) == 1:
            return [self.value(child, nesting + 1, referred) for child in _only_children(element)]
        if len(element):
            return self.members(element, nesting + 1, referred)
        return _read_scalar(element, kind)

    def _target(self, href: str) -> etree._Element:
        """The element with the id that a reference names; SoapFault if there is none."""
        target = self._by_id.get(href[1:]) if href.startswith("#") else None
        if target is None:
            raise SoapFault("Client", f"the reference {href[:60]!r} leads nowhere in this message")
        return target

    def _count_reference(self, element: etree._Element, attributes: Mapping[str, str]) -> None:
        """Count what a reference stands for; SoapFault if all references stand for too much."""
        texts = [str(element.tag), *attributes, *attributes.values(), *xml.texts(element)]
        self._allowance -= len(texts) + sum(map(len, texts))
        if self._allowance < 0:
            raise SoapFault("Client", "the references in this message stand for too much")


def _only_children(element: etree._Element) -> list[etree._Element]:
    """The children of an element; SoapFault if it has text beside them."""
    if xml.has_text(element):
        raise SoapFault("Client", f"{xml.describe(element)} holds text beside elements")
    return list(element)


def _type_of(element: etree._Element, attributes: Mapping[str, str]) -> str:
    """The local name of an element's type; empty if it has none.

    The namespace of the type does not matter: Array and int mean the same in every year's schema,
    and values of unknown types are read by their children.
    """
    if _ARRAY_TYPE in attributes:
        return "Array"
    if declared := _first_present(attributes, _TYPE):
        return declared.rpartition(":")[2]
    return xml.local_name(element) if xml.namespace(element) == ENCODING else ""


def _first_present(attributes: Mapping[str, str], names: Sequence[str]) -> str:
    """The value of the first of these attributes that is there; empty if none is."""
    return next((attributes[name].strip() for name in names if name in attributes), "")


def _read_scalar(element: etree._Element, kind: str) -> Any:
    """The text of an element as its type says; a string if the type is unknown."""
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
    """An envelope with one element in its body, which holds the members."""
    envelope, body = _envelope()
    if namespace:
        wrapper = etree.SubElement(body, f"{{{namespace}}}{name}", nsmap={"m": namespace})
    else:
        wrapper = etree.SubElement(body, name)
    _append_members(wrapper, members)
    return envelope


def _without_types(message: etree._Element) -> etree._Element:
    """A message without the attributes of SOAP 1.1's encoding (section 5)."""
    del message.attrib[f"{{{ENVELOPE}}}encodingStyle"]
    for element in message.iter():
        for name in (f"{{{XSI}}}type", _ARRAY_TYPE):
            if name in element.attrib:
                del element.attrib[name]
    return message


def _envelope() -> tuple[etree._Element, etree._Element]:
    """An empty envelope, and its body."""
    prefixes = {"SOAP-ENV": ENVELOPE, "SOAP-ENC": ENCODING, "xsi": XSI, "xsd": XSD}
    envelope = etree.Element(f"{{{ENVELOPE}}}Envelope", nsmap=prefixes)
    envelope.set(f"{{{ENVELOPE}}}encodingStyle", ENCODING)
    return envelope, etree.SubElement(envelope, f"{{{ENVELOPE}}}Body")


def _serialize(envelope: etree._Element) -> bytes:
    return etree.tostring(envelope, xml_declaration=True, encoding="utf-8")


def _append_members(parent: etree._Element, members: Mapping[str, Any]) -> None:
    for name, value in members.items():
        _append(parent, name, value)


def _append(parent: etree._Element, name: str, value: Any) -> None:
    """Add an element for a value, with its type."""
    element = etree.SubElement(parent, name)
    if value is None:
        element.set(f"{{{XSI}}}nil", "true")
    elif isinstance(value, Mapping):
        _append_members(element, value)
    elif isinstance(value, list | tuple):
        _append_items(element, value)
    else:
        schema_type, text = _type_and_text(value)
        element.set(f"{{{XSI}}}type", f"xsd:{schema_type}")
        element.text = text


def _append_items(element: etree._Element, items: Sequence[Any]) -> None:
    """Make an element a SOAP array of these items."""
    of_strings = all(isinstance(item, str) for item in items)
    item_type = "string" if of_strings else "anyType"
    element.set(f"{{{XSI}}}type", "SOAP-ENC:Array")
    element.set(_ARRAY_TYPE, f"xsd:{item_type}[{len(items)}]")
    for item in items:
        _append(element, "item", item)


def _type_and_text(value: Any) -> tuple[str, str]:
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
