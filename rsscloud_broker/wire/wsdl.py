"""Writes the WSDL 1.1 documents of the broker's SOAP services, from which clients can be made.

Each service has a document of its own.  Both services have an operation ``ping``, and a client
made from one document with both would take the wrong one, or none.

The documents describe the messages that old clients send without a WSDL, with one difference: each
operation is in a namespace.  The style is wrapped document/literal and not rpc.  The messages are
nearly the same, but only in this style can ``domain`` be left out and ``urlList`` be a plain list.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from attrs import frozen

#: The namespaces of the operations.
RSSCLOUD: Final = "urn:rsscloud-broker:rssCloud"
WEBLOG_UPDATES: Final = "urn:rsscloud-broker:weblogUpdates"


@frozen
class DescribedOperation:
    """A SOAP operation as the WSDL of its service shows it.

    :ivar about: a sentence that says what it does.
    :ivar parameters: the names of its parameters, which are strings; ``?`` after a name marks a
        parameter that may be left out, ``+`` one that may be repeated.
    :ivar result: the type of its result, such as ``xsd:boolean``.
    """

    name: str
    about: str
    parameters: str
    result: str


def rsscloud_wsdl(url: str, more: Sequence[DescribedOperation] = ()) -> bytes:
    """The WSDL of the service ``rssCloud``, in UTF-8.

    :param url: the URL at which its operations answer.
    :param more: further operations.
    """
    operations = (
        DescribedOperation(
            "pleaseNotify",
            "Ask to be called when one of the feeds in urlList changes.",
            "notifyProcedure port path protocol urlList+ domain?",
            "xsd:boolean",
        ),
        DescribedOperation("ping", "Say that the feed at url has changed.", "url", "xsd:boolean"),
        *more,
    )
    return _wsdl_of("rssCloud", RSSCLOUD, "/rssCloud", url, operations)


def weblog_updates_wsdl(url: str, more: Sequence[DescribedOperation] = ()) -> bytes:
    """The WSDL of the service ``weblogUpdates``, in UTF-8.

    :param url: the URL at which its operations answer.
    :param more: further operations.
    """
    operations = (
        DescribedOperation(
            "ping", "Say that a site has changed.", "weblogname weblogurl", _PING_RESULT
        ),
        DescribedOperation(
            "extendedPing",
            "Say that a site has changed, and name the page, the feed and tags separated by |.",
            "weblogname weblogurl changesurl? rssurl? tags?",
            _PING_RESULT,
        ),
        *more,
    )
    return _wsdl_of("weblogUpdates", WEBLOG_UPDATES, "/weblogUpdates", url, operations)


def _wsdl_of(
    name: str, namespace: str, action: str, url: str, operations: Sequence[DescribedOperation]
) -> bytes:
    """The WSDL of a service: its namespace, its SOAPAction, its URL and its operations."""
    types = {_PING_RESULT} & {operation.result for operation in operations}
    elements = [
        _ELEMENTS.substitute(
            name=operation.name,
            result=operation.result,
            parameters="".join(map(_parameter_element, operation.parameters.split())),
        )
        for operation in operations
    ]
    of_each = {
        what: "".join(
            template.substitute(name=one.name, about=escape(one.about), action=action)
            for one in operations
        )
        for what, template in (
            ("messages", _MESSAGES),
            ("abstract", _ABSTRACT),
            ("concrete", _CONCRETE),
        )
    }
    document = _DOCUMENT.substitute(
        of_each,
        name=name,
        namespace=namespace,
        url=quoteattr(url),
        types=_TYPES if types else "",
        elements="".join(elements),
    )
    return document.encode("utf-8")


def _parameter_element(text: str) -> str:
    """The element of a parameter; ``?`` or ``+`` at its end says how often it may occur."""
    occurs = {"?": ' minOccurs="0"', "+": ' maxOccurs="unbounded"'}.get(text[-1], "")
    return f'            <xsd:element name="{text.rstrip("?+")}" type="xsd:string"{occurs}/>\n'


_PING_RESULT: Final = "tns:PingResult"

_TYPES: Final = """\
      <xsd:complexType name="PingResult">
        <xsd:all>
          <xsd:element name="flerror" type="xsd:boolean"/>
          <xsd:element name="message" type="xsd:string"/>
        </xsd:all>
      </xsd:complexType>
"""

_ELEMENTS: Final = Template("""\
      <xsd:element name="$name">
        <xsd:complexType>
          <xsd:sequence>
$parameters\
          </xsd:sequence>
        </xsd:complexType>
      </xsd:element>
      <xsd:element name="${name}Response">
        <xsd:complexType>
          <xsd:sequence>
            <xsd:element name="Result" type="$result"/>
          </xsd:sequence>
        </xsd:complexType>
      </xsd:element>
""")

_MESSAGES: Final = Template("""\
  <message name="$name">
    <part name="parameters" element="tns:$name"/>
  </message>
  <message name="${name}Response">
    <part name="parameters" element="tns:${name}Response"/>
  </message>
""")

_ABSTRACT: Final = Template("""\
    <operation name="$name">
      <documentation>$about</documentation>
      <input message="tns:$name"/>
      <output message="tns:${name}Response"/>
    </operation>
""")

_CONCRETE: Final = Template("""\
    <operation name="$name">
      <soap:operation soapAction="$action"/>
      <input><soap:body use="literal"/></input>
      <output><soap:body use="literal"/></output>
    </operation>
""")

_DOCUMENT: Final = Template("""\
<?xml version="1.0" encoding="utf-8"?>
<definitions name="$name"
    targetNamespace="$namespace"
    xmlns="http://schemas.xmlsoap.org/wsdl/"
    xmlns:soap="http://schemas.xmlsoap.org/wsdl/soap/"
    xmlns:xsd="http://www.w3.org/2001/XMLSchema"
    xmlns:tns="$namespace">

  <types>
    <xsd:schema targetNamespace="$namespace">
$types$elements\
    </xsd:schema>
  </types>

$messages
  <portType name="${name}PortType">
$abstract\
  </portType>

  <binding name="${name}Binding" type="tns:${name}PortType">
    <soap:binding style="document" transport="http://schemas.xmlsoap.org/soap/http"/>
$concrete\
  </binding>

  <service name="$name">
    <port name="$name" binding="tns:${name}Binding">
      <soap:address location=$url/>
    </port>
  </service>
</definitions>
""")
