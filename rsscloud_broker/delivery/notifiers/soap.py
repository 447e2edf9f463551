"""Sends rssCloud notifications by SOAP 1.1.

The operation is the last part of the procedure that the subscriber has registered, the
SOAPAction is the path of the callback, and the one parameter is ``url``, the URL of the topic that
has changed::

    POST /river HTTP/1.1
    SOAPAction: "/river"

    <SOAP-ENV:Envelope ...><SOAP-ENV:Body>
      <notify><url xsi:type="xsd:string">http://example.org/rss.xml</url></notify>
    </SOAP-ENV:Body></SOAP-ENV:Envelope>

An HTTP failure or a fault is a failure; any other answer is a success, even if it is not SOAP.
Before the broker stores a subscription, it verifies the callback with one such call, or with a
challenge: see ``RssCloudNotifier``.
Source: "SOAP meets RSS".
"""

from __future__ import annotations

import re
from string import punctuation
from urllib.parse import quote, urlsplit

from zope.interface import implementer

from rsscloud_broker.delivery.notifiers.calling import RssCloudNotifier
from rsscloud_broker.interfaces import IDirectNotifier, OutboundReply, OutboundRequest
from rsscloud_broker.model import Notification
from rsscloud_broker.wire import soap
from rsscloud_broker.wire.text import charset_of
from rsscloud_broker.wire.web_address import REDIRECTS
from rsscloud_broker.wire.xml import MalformedXML, parse

# The punctuation that stays as it is in the path of a request.
_IN_PATHS = punctuation.translate(dict.fromkeys(map(ord, '"<>\\^`{|}')))


def _fault(reply: OutboundReply) -> str:
    """Why a 2xx answer is a failure, if it holds a fault; empty for any other answer."""
    charset = charset_of(reply.headers.get("content-type", ""))
    try:
        if soap.is_envelope(parse(reply.body, charset)):
            soap.decode_response(reply.body, charset)
    except soap.SoapFault as fault:
        return f"the callback answered with a fault: {fault}"
    except MalformedXML:
        pass  # many one-way receivers answer with nothing, or with "OK"
    return ""


@implementer(IDirectNotifier)
class SoapNotifier(RssCloudNotifier):
    """The notifier for ``soap``."""

    protocol = "soap"
    accept = staticmethod(_fault)

    def request_of(self, notification: Notification) -> OutboundRequest:
        """The request that notifies a subscriber.

        :raises ValueError: there is none; the text says why, for people.
        """
        callback = notification.callback
        operation = re.split(r"[./:]", callback.procedure)[-1]
        try:
            body = soap.encode_call(operation, {"url": notification.topic})
        except ValueError:
            raise ValueError(
                f"the procedure {callback.procedure!r} cannot be the name of an element"
            ) from None
        headers = {
            "content-type": "text/xml; charset=utf-8",
            "soapaction": f'"{quote(urlsplit(callback.url).path, safe=_IN_PATHS)}"',
        }
        return OutboundRequest("POST", callback.url, headers, body, REDIRECTS)
