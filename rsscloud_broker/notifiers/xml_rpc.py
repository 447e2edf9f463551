"""rssCloud notifications by XML-RPC.

The procedure that was named in the registration is called at the callback, with
one string, the topic that changed::

    <methodCall><methodName>river.notify</methodName><params>
      <param><value><string>http://example.org/rss.xml</string></value></param>
    </params></methodCall>

What it returns is ignored, be it XML-RPC or not; an HTTP failure or a fault is
an error.  Before a subscription is stored this call is
made once.  Sources: "SOAP meets RSS", the implementor's guide to rssCloud.
"""

from __future__ import annotations

from zope.interface import implementer

from rsscloud_broker.interfaces import INotifier, OutboundReply
from rsscloud_broker.model import Notification, Outcome
from rsscloud_broker.notifiers.calling import RssCloudNotifier, call
from rsscloud_broker.wire import xmlrpc
from rsscloud_broker.wire.xml import MalformedXML


@implementer(INotifier)
class XMLRPCNotifier(RssCloudNotifier):
    """Notifies by ``xml-rpc``."""

    protocol = "xml-rpc"

    async def notify(self, notification: Notification) -> Outcome:
        body = xmlrpc.encode_call(notification.callback.procedure, [notification.topic])
        headers = {"content-type": "text/xml; charset=utf-8"}
        url = notification.callback.url
        return await call(self._outbound, "POST", url, headers, body, accept=_fault)


def _fault(reply: OutboundReply) -> str:
    """Why a 2xx answer is a failure: only a fault is one; what else it says is ignored."""
    try:
        xmlrpc.decode_response(reply.body)
    except xmlrpc.XMLRPCFault as fault:
        return f"the callback answered with a fault: {fault}"
    except MalformedXML:
        pass  # some receivers answer with nothing, or with "OK"
    return ""
