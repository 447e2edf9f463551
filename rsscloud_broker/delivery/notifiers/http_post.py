"""Sends rssCloud notifications by HTTP POST.

The callback gets a form with one field, the URL of the topic that has changed::

    POST /notify HTTP/1.1
    Content-Type: application/x-www-form-urlencoded

    url=http%3A%2F%2Fexample.org%2Frss.xml

Any 2xx answer is a success.  Before the broker stores a subscription, it verifies the callback with
such a call, or with a challenge: see ``RssCloudNotifier``.

Source: the implementor's guide to rssCloud.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlencode

from zope.interface import implementer

from rsscloud_broker.delivery.notifiers.calling import RssCloudNotifier
from rsscloud_broker.interfaces import IDirectNotifier, IOutbound, OutboundRequest
from rsscloud_broker.model import Notification
from rsscloud_broker.wire.web_address import REDIRECTS

_FORM = {"content-type": "application/x-www-form-urlencoded"}


@implementer(IDirectNotifier)
class HttpPostNotifier(RssCloudNotifier):
    """The notifier for ``http-post``, and for ``https-post``, which differs only in the URL."""

    def __init__(self, protocol: str, outbound: IOutbound) -> None:
        super().__init__(outbound)
        self.protocol = protocol

    def request_of(self, notification: Notification) -> OutboundRequest:
        """The request that notifies a subscriber.

        :raises ValueError: there is none; the text says why, for people.
        """
        url, body = notification.callback.url, _body(notification.topic)
        return OutboundRequest("POST", url, _FORM, body, REDIRECTS)


@lru_cache(maxsize=100)  # all subscribers of a topic get the same body
def _body(topic: str) -> bytes:
    return urlencode({"url": topic}).encode("ascii")
