"""Sends rssCloud notifications by HTTP POST.

The callback gets a form with one field, the URL of the topic that has changed::

    POST /notify HTTP/1.1
    Content-Type: application/x-www-form-urlencoded

    url=http%3A%2F%2Fexample.org%2Frss.xml

Any 2xx answer is a success.  Before the broker stores a subscription, it verifies the callback:
with such a call if the callback is at the subscriber's own address, and otherwise with a challenge,
which the answer must contain::

    GET /notify?url=http%3A%2F%2Fexample.org%2Frss.xml&challenge=TOKEN HTTP/1.1

Source: the implementor's guide to rssCloud.
"""

from __future__ import annotations

from functools import lru_cache
from secrets import token_urlsafe
from urllib.parse import urlencode

from zope.interface import implementer

from rsscloud_broker.direct import BreakOff, Done
from rsscloud_broker.interfaces import IDirectNotifier, IOutbound, OutboundReply
from rsscloud_broker.model import Intent, Notification, Outcome
from rsscloud_broker.notifiers.calling import RssCloudNotifier, call
from rsscloud_broker.notifiers.options import RssCloudOptions

_FORM = {"content-type": "application/x-www-form-urlencoded"}


@implementer(IDirectNotifier)
class HttpPostNotifier(RssCloudNotifier):
    """The notifier for ``http-post``, and for ``https-post``, which differs only in the URL."""

    def __init__(self, protocol: str, outbound: IOutbound, options: RssCloudOptions) -> None:
        super().__init__(outbound, options)
        self.protocol = protocol

    async def verify(self, intent: Intent) -> Outcome:
        if not intent.challenge:
            return await super().verify(intent)
        token = token_urlsafe(15)  # 20 characters, as the guide says

        def accept(reply: OutboundReply) -> str:
            # The guide says "contains"; later servers expect the challenge alone.  Both pass.
            found = token.encode("ascii") in reply.body
            return "" if found else "the answer to the challenge does not contain it"

        url = intent.callback.url
        query = urlencode({"url": intent.topic, "challenge": token})
        joint = "&" if "?" in url else "?"
        return await call(self._outbound, "GET", f"{url}{joint}{query}", {}, accept=accept)

    def begin(self, notification: Notification, done: Done[Outcome]) -> BreakOff:
        url, body = notification.callback.url, _body(notification.topic)
        return self._begin_call(done, "POST", url, _FORM, body)


@lru_cache(maxsize=100)  # all subscribers of a topic get the same body
def _body(topic: str) -> bytes:
    return urlencode({"url": topic}).encode("ascii")
