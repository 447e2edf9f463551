"""Sends rssCloud notifications by XML-RPC.

The notifier calls the procedure that the subscriber has registered, with one string, the URL of
the topic that has changed::

    <methodCall><methodName>river.notify</methodName><params>
      <param><value><string>http://example.org/rss.xml</string></value></param>
    </params></methodCall>

An HTTP failure or a fault is a failure; any other answer is a success, even if it is not XML-RPC.
Before the broker stores a subscription, it verifies the callback with one such call, or with a
challenge: see ``RssCloudNotifier``.
Sources: "SOAP meets RSS", the implementor's guide to rssCloud.
"""

from __future__ import annotations

from zope.interface import implementer

from rsscloud_broker.delivery.notifiers.calling import RssCloudNotifier
from rsscloud_broker.interfaces import IDirectNotifier, OutboundReply, OutboundRequest
from rsscloud_broker.model import Notification
from rsscloud_broker.wire import xmlrpc
from rsscloud_broker.wire.text import charset_of
from rsscloud_broker.wire.web_address import REDIRECTS
from rsscloud_broker.wire.xml import MalformedXML


def _fault(reply: OutboundReply) -> str:
    """Why a 2xx answer is a failure, if it holds a fault; empty for any other answer."""
    try:
        xmlrpc.decode_response(reply.body, charset_of(reply.headers.get("content-type", "")))
    except xmlrpc.XMLRPCFault as fault:
        return f"the callback answered with a fault: {fault}"
    except MalformedXML:
        pass  # some receivers answer with nothing, or with "OK"
    return ""


@implementer(IDirectNotifier)
class XMLRPCNotifier(RssCloudNotifier):
    """The notifier for ``xml-rpc``."""

    protocol = "xml-rpc"
    accept = staticmethod(_fault)

    def request_of(self, notification: Notification) -> OutboundRequest:
        """The request that notifies a subscriber.

        :raises ValueError: there is none; the text says why, for people.
        """
        body = xmlrpc.encode_call(notification.callback.procedure, [notification.topic])
        headers = {"content-type": "text/xml; charset=utf-8"}
        return OutboundRequest("POST", notification.callback.url, headers, body, REDIRECTS)
