"""Answers the calls of WebSub hubs to the callbacks of a subscriber.

::

    GET  /.../KEY?hub.mode=subscribe&hub.topic=...&hub.challenge=x91     200, x91
    POST /.../KEY   the content of the topic                             202

Source: WebSub (W3C Recommendation, 2018), section 5.3.
"""

from __future__ import annotations

from typing import Final

from twisted.web.server import Request

from rsscloud_broker.client.websub import IsCalledByHubs, PushedContent
from rsscloud_broker.http.answering import PLAIN, Answer, Answers, plain
from rsscloud_broker.http.requests import all_parameters, body_of, client_address, header
from rsscloud_broker.interfaces import Route
from rsscloud_broker.wire.websub import BadRequest, parse_call

#: What a hub hears of a callback that nobody has subscribed with.
UNKNOWN: Final = "Nobody here has asked for this."


class HubCallbacks(Answers):
    """The resource of the callbacks of a subscriber, at any path."""

    def __init__(self, subscriber: IsCalledByHubs) -> None:
        super().__init__(self._answer)
        self._subscriber = subscriber

    async def _answer(self, request: Request) -> Answer:
        """Confirm a verification or accept a content; do not say if its signature is right."""
        key = callback_key(request)
        if request.method == b"POST":
            content = PushedContent(
                body_of(request),
                header(request, "content-type"),
                header(request, "x-hub-signature"),
                client_address(request),
            )
            is_known = await self._subscriber.receive(key, content)
            return Answer(b"", PLAIN, 202) if is_known else plain(410, UNKNOWN)
        try:
            call = parse_call(all_parameters(request))
        except BadRequest as error:
            return plain(400, str(error))
        if not await self._subscriber.verify(key, call):
            return plain(404, UNKNOWN)
        return confirmed(call.challenge)


def callback_routes(prefix: str, subscriber: IsCalledByHubs, body_limit: int) -> list[Route]:
    """The routes of the callbacks of a subscriber.

    :param prefix: their path, before the keys.
    :param body_limit: the most bytes of a content.
    """
    callbacks = HubCallbacks(subscriber)
    return [
        Route(f"{prefix}*", "GET", callbacks),
        Route(f"{prefix}*", "POST", callbacks, body_limit=body_limit),
    ]


def callback_key(request: Request) -> str:
    """The last part of the path, which tells the callbacks of an application apart."""
    return str(request.path.decode("latin-1").rpartition("/")[2])


def confirmed(challenge: str) -> Answer:
    """The answer that confirms: the challenge itself, which no browser takes for a page."""
    return Answer(challenge.encode(), PLAIN, headers={"x-content-type-options": "nosniff"})
