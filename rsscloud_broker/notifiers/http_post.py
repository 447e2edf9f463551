"""rssCloud notifications by HTTP POST.

The callback gets a form with one field, the topic that changed::

    POST /notify HTTP/1.1
    Content-Type: application/x-www-form-urlencoded

    url=http%3A%2F%2Fexample.org%2Frss.xml

Any 2xx answer accepts.  Before a subscription is stored its callback is tried:
by such a call if it is at the caller's own address, and otherwise by a
challenge, whose answer must contain the token::

    GET /notify?url=http%3A%2F%2Fexample.org%2Frss.xml&challenge=TOKEN HTTP/1.1

Source: the implementor's guide to rssCloud.
"""

from __future__ import annotations

from functools import lru_cache
from secrets import token_urlsafe
from urllib.parse import urlencode

from zope.interface import implementer

from rsscloud_broker.interfaces import INotifier, IOutbound, OutboundReply
from rsscloud_broker.model import Intent, Notification, Outcome
from rsscloud_broker.notifiers.calling import RssCloudNotifier, call
from rsscloud_broker.notifiers.options import RssCloudOptions

_FORM = {"content-type": "application/x-www-form-urlencoded"}


@implementer(INotifier)
class HttpPostNotifier(RssCloudNotifier):
    """Notifies by ``http-post``, or by ``https-post``, which differs in the URL only."""

    def __init__(self, protocol: str, outbound: IOutbound, options: RssCloudOptions) -> None:
        super().__init__(outbound, options)
        self.protocol = protocol

    async def verify(self, intent: Intent) -> Outcome:
        if not intent.challenge:
            return await super().verify(intent)
        token = token_urlsafe(15)  # 20 characters, as many as the guide speaks of

        def accept(reply: OutboundReply) -> str:
            # The guide says "contains"; later servers want nothing else: both will do.
            found = token.encode("ascii") in reply.body
            return "" if found else "the answer to the challenge does not contain it"

        url = intent.callback.url
        query = urlencode({"url": intent.topic, "challenge": token})
        joint = "&" if "?" in url else "?"
        return await call(self._outbound, "GET", f"{url}{joint}{query}", {}, accept=accept)

    async def notify(self, notification: Notification) -> Outcome:
        url, body = notification.callback.url, _body(notification.topic)
        return await call(self._outbound, "POST", url, _FORM, body)


@lru_cache(maxsize=100)  # a topic has many subscribers, who all get the same
def _body(topic: str) -> bytes:
    return urlencode({"url": topic}).encode("ascii")
