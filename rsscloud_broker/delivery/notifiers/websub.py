"""Sends WebSub notifications, which carry the content of a topic, and verifies intents.

Before a subscription begins or ends, the notifier asks the callback, which confirms by repeating
the challenge, byte for byte and with a status from 200 to 299::

    GET /websub/8f31?hub.mode=subscribe&hub.topic=http%3A%2F%2Fexample.org%2Frss.xml
        &hub.challenge=TOKEN&hub.lease_seconds=864000 HTTP/1.1

When the topic has changed, the notifier sends the content unchanged::

    POST /websub/8f31 HTTP/1.1
    Content-Type: application/rss+xml
    Link: <http://broker.example/websub>; rel="hub", <http://example.org/rss.xml>; rel="self"
    X-Hub-Signature: sha256=5f1c...

When the broker refuses or ends a subscription, the notifier tells the callback::

    GET /websub/8f31?hub.mode=denied&hub.topic=http%3A%2F%2Fexample.org%2Frss.xml
        &hub.reason=the%20topic%20is%20gone HTTP/1.1

It follows no redirects.  Source: WebSub (W3C Recommendation, 2018), sections
5.2, 5.3 and 7; for ``hub.verify_token`` PubSubHubbub 0.3.
"""

from __future__ import annotations

from secrets import token_urlsafe
from typing import Literal

from attrs import frozen
from zope.interface import implementer

from rsscloud_broker.delivery.notifiers.calling import CallingNotifier, call
from rsscloud_broker.interfaces import (
    IDirectNotifier,
    IOutbound,
    OutboundReply,
    OutboundRequest,
    Signing,
)
from rsscloud_broker.model import Denial, Intent, Notification, Outcome
from rsscloud_broker.wire import websub
from rsscloud_broker.wire.text import clean

PROTOCOL = "websub"

#: Seconds to wait before each further attempt, from five seconds to six hours: a subscriber that
#: was down for a night still gets the content.
RETRIES = (5.0, 30.0, 120.0, 600.0, 1800.0, 7200.0, 21_600.0)

#: The Content-Type of content that came without one (RFC 9110, section 8.3).
_UNLABELLED = "application/octet-stream"

#: Statuses of failures that pass (RFC 9110 and RFC 6585).
_NOT_NOW = frozenset({408, 425, 429, *range(500, 600)})


@frozen
class WebSubNotifierOptions:
    """Options of the WebSub notifier.

    :ivar signature: the method of signatures, for subscribers with a secret that are not known to
        understand sha1 only.
    """

    signature: Literal["sha1", "sha256", "sha384", "sha512"] = "sha256"


@implementer(IDirectNotifier)
class WebSubNotifier(CallingNotifier):
    """The notifier for ``websub``.

    :param outbound: makes the requests; it connects only to addresses that are allowed.
    """

    protocol = PROTOCOL
    carries_content = True
    #: A subscription ends only with its lease, however many notifications fail.
    drop_after_failures = None
    retries = RETRIES

    def __init__(self, outbound: IOutbound, options: WebSubNotifierOptions) -> None:
        super().__init__(outbound)
        self.defaults = {websub.METHOD: options.signature}

    async def verify(self, intent: Intent) -> Outcome:
        challenge = token_urlsafe(24)

        def confirms(reply: OutboundReply) -> str:
            exact = reply.body == challenge.encode("ascii")
            return "" if exact else "the answer is not the challenge, alone and exactly"

        url = websub.verification_url(
            intent.callback.url,
            "unsubscribe" if intent.unsubscribe else "subscribe",
            intent.topic,
            challenge,
            None if intent.unsubscribe else intent.lease_seconds,
            intent.options.get(websub.VERIFY_TOKEN, ""),
        )
        return await call(self._outbound, OutboundRequest("GET", url), confirms, _NOT_NOW)

    def request_of(self, notification: Notification) -> OutboundRequest:
        """The request that notifies a subscriber.

        :raises ValueError: there is none; the text says why, for people.
        """
        content, options = notification.content, notification.options
        if content is None:
            raise ValueError("there is no content to deliver: it is not kept any more")
        headers = {
            "content-type": _relayed(content.content_type) or _UNLABELLED,
            "link": websub.link_header(
                options.get(websub.HUB, ""), notification.topic, content.link
            ),
        }
        signing = None
        if secret := options.get(websub.SECRET):
            method = options.get(websub.METHOD, self.defaults[websub.METHOD])
            signing = Signing(secret, method)
        url = notification.callback.url
        return OutboundRequest("POST", url, headers, content.body, signing=signing)

    async def deny(self, denial: Denial) -> Outcome:
        url = websub.denial_url(denial.callback.url, denial.topic, denial.reason)
        return await call(self._outbound, OutboundRequest("GET", url), passing=_NOT_NOW)


def _relayed(content_type: str) -> str:
    """A Content-Type to send on with the bytes that the publisher has sent.

    The header was decoded as Latin-1 and will be encoded as UTF-8.  Bytes that are not UTF-8 are
    left out of the parameters; a media type that has them is left out whole, so that it does not
    become another one.
    """
    if content_type.isascii():
        return clean(content_type)
    try:
        relayed = clean(content_type.encode("latin-1").decode())
    except UnicodeError:
        kind, _, _ = content_type.partition(";")
        return clean(content_type).encode("ascii", "ignore").decode() if kind.isascii() else ""
    return relayed if relayed.isprintable() else ""
