"""Calls a server by form, by XML-RPC or by SOAP, and returns its answer.

Every failure raises a ``ClientError``, with the server's own words if there are any: a fault,
``success="false"``, an HTTP error, an answer in another format, or no answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any
from urllib.parse import urlencode

from lxml import etree, html

from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.wire import soap, xml, xmlrpc
from rsscloud_broker.wire.text import charset_of

_XML = {"Content-Type": "text/xml; charset=utf-8"}

#: Both names of XML: rsscloud-server knows only the second one here, and answers others with 406.
_ANY_XML = "text/xml, application/xml;q=0.9, */*;q=0.1"


class Declined(ClientError):
    """A server understood a call as one of its protocol, and says no."""


async def call_form(web: Web, url: str, fields: Sequence[tuple[str, str]]) -> str:
    """Send an rssCloud form: a ping or a registration.

    :returns: the ``msg`` of the answer.
    :raises ClientError: the call failed.
    """
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": _ANY_XML}
    reply = await web.post(url, headers, urlencode(fields).encode("ascii"))
    _require_success(url, reply)
    try:
        answer = xml.parse(reply.body, charset_of(reply.headers.get("content-type", "")))
    except xml.MalformedXML as error:
        raise ClientError(f"{url}: the answer is not that of an rssCloud server: {error}") from None
    message = answer.get("msg", "")
    if answer.get("success") != "true":
        raise ClientError(message or f"{url}: the answer does not say that it succeeded")
    return message


async def call_xmlrpc(web: Web, url: str, procedure: str, parameters: Sequence[Any]) -> Any:
    """Call an XML-RPC procedure.

    :returns: the value of the response.
    :raises Declined: the response is a fault.
    :raises ClientError: the call failed.
    """
    reply = await web.post(url, _XML, xmlrpc.encode_call(procedure, parameters))
    _require_success(url, reply)
    try:
        return xmlrpc.decode_response(reply.body, charset_of(reply.headers.get("content-type", "")))
    except xmlrpc.XMLRPCFault as fault:
        raise Declined(fault.string) from None
    except xml.MalformedXML as error:
        raise ClientError(f"{url}: the answer is not XML-RPC: {error}") from None


async def call_soap(
    web: Web, url: str, action: str, operation: str, parameters: Mapping[str, Any]
) -> Any:
    """Call a SOAP operation, without a namespace.

    :param action: the SOAPAction.
    :returns: the result of the response.
    :raises Declined: the response is a fault.
    :raises ClientError: the call failed.
    """
    headers = _XML | {"SOAPAction": f'"{action}"'}
    try:
        body = soap.encode_call(operation, parameters)
    except ValueError:  # a feed may name any operation
        raise ClientError(f"{url}: {operation!r} cannot be the name of an operation") from None
    reply = await web.post(url, headers, body)
    if reply.status != 500:  # a fault has this status
        _require_success(url, reply)
    try:
        return soap.decode_response(reply.body, charset_of(reply.headers.get("content-type", "")))
    except soap.SoapFault as fault:
        raise Declined(fault.string) from None
    except xml.MalformedXML as error:
        _require_success(url, reply)
        raise ClientError(f"{url}: the answer is not SOAP: {error}") from None


async def call_page(web: Web, url: str) -> str:
    """Send a GET whose answer is a page for people, such as a ping by GET.

    :returns: the text of the page without markup, cut to 200 characters.
    :raises ClientError: the call failed.
    """
    reply = await web.get(url)
    message = _visible_text(reply.body)
    if not reply.success:
        raise ClientError(message or f"{url}: answered with HTTP status {reply.status}")
    return message


def _visible_text(page: bytes) -> str:
    """The text of a page's main part, on one line.

    It ends before the first heading of a section, since only what is above that is the answer.
    """
    try:
        document = html.document_fromstring(page)
    except etree.ParserError:  # the page is empty
        return ""
    etree.strip_elements(document, "title", "script", "style", "nav", "footer", with_tail=False)
    main = document.find(".//main")
    shown = document if main is None else main
    heading = shown.find("h2")
    for below in [] if heading is None else [heading, *heading.itersiblings()]:
        shown.remove(below)
    text = etree.tostring(shown, method="text", encoding="unicode", with_tail=False)
    return shorten(text, 200, placeholder="...")


def _require_success(url: str, reply: OutboundReply) -> None:
    """Raise ``ClientError`` if the status of an answer is not from 200 to 299."""
    if not reply.success:
        raise ClientError(f"{url}: answered with HTTP status {reply.status}")
