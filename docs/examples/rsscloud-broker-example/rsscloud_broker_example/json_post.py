"""A notifier that tells subscribers of changes by a POST of JSON::

    POST /callback HTTP/1.1
    Content-Type: application/json

    {"topic": "http://example.org/rss.xml"}

Any 2xx answer accepts.  Before a subscription is stored its callback is tried
with such a request.  Where the subscriber named somebody else's address, there is
one more member, ``challenge``, whose value the answer must contain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from secrets import token_urlsafe
from typing import Literal

from attrs import field, frozen
from attrs.validators import ge
from zope.interface import implementer

from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import (
    INotifier,
    INotifierMaker,
    IOutbound,
    NotifierParts,
    OutboundRequest,
)
from rsscloud_broker.model import Denial, Intent, Notification, Outcome


@frozen
class JsonPostOptions:
    """Keys of ``[notifiers.json_post]``.

    :ivar member: what the member with the topic is called.
    :ivar drop_after_failures: consecutive failures after which a subscription is dropped.
    :ivar retries: seconds to wait before each further attempt of a notification.
    """

    member: Literal["topic", "url", "changed"] = "topic"
    drop_after_failures: int = field(default=3, validator=ge(1))
    retries: tuple[float, ...] = (5.0, 60.0, 600.0)


@implementer(INotifier)
class JsonPost:
    """Tells a callback of a changed topic by a POST of JSON."""

    protocol = "json-post"
    carries_content = False

    def __init__(self, options: JsonPostOptions, outbound: IOutbound) -> None:
        self.drop_after_failures = options.drop_after_failures
        self.retries = options.retries
        self._member: str = options.member
        self._outbound = outbound

    async def verify(self, intent: Intent) -> Outcome:
        document = {self._member: intent.topic}
        if not intent.challenge:
            return await self._post(intent.callback.url, document)
        token = token_urlsafe()
        return await self._post(intent.callback.url, {**document, "challenge": token}, token)

    async def notify(self, notification: Notification) -> Outcome:
        document = {self._member: notification.topic}
        return await self._post(notification.callback.url, document)

    async def deny(self, denial: Denial) -> Outcome:
        # Its subscribers are notified of changes and of nothing else, so nobody is called.
        return Outcome(True, answered=False)

    async def _post(self, url: str, document: Mapping[str, str], token: str = "") -> Outcome:
        headers = {"content-type": "application/json"}
        try:
            reply = await self._outbound.request(
                OutboundRequest("POST", url, headers, json.dumps(document).encode())
            )
        except OutboundError as error:
            return Outcome(False, str(error), answered=False)
        if not reply.success:
            return Outcome(False, f"the callback answered with status {reply.status}")
        if token.encode() not in reply.body:
            return Outcome(False, "the answer to the challenge does not contain it")
        return Outcome(True)


@implementer(INotifierMaker)
class JsonPostMaker:
    """Makes a `JsonPost`."""

    name = "json_post"
    help = "Calls subscribers back by a POST of JSON."
    options = JsonPostOptions
    needs = ("outbound",)

    def make(self, options: JsonPostOptions, parts: NotifierParts) -> INotifier:
        return JsonPost(options, parts.outbound)
