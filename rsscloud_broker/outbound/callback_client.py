"""The HTTP client for notifications: guarded, and as light as it can be.

A broker makes one small request to each of very many hosts.  So a request here
is: look the name up (or not at all, for an address), judge every address, connect
to a judged one, write, read status and a capped body, all under one deadline.

What is unusual here is so for speed.  ``request`` waits for a single Deferred, in
which connecting and being answered are one, and needs no timer of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.outbound.bodies import TruncatingBody
from rsscloud_broker.outbound.client import Client
from rsscloud_broker.outbound.exchanges import PendingRequest
from rsscloud_broker.outbound.http1 import message
from rsscloud_broker.outbound.urls import target_of


class CallbackClient(Client):
    """Makes guarded requests; a longer answer than allowed is cut off."""

    body = TruncatingBody

    async def _exchange(
        self,
        waiting: PendingRequest,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> OutboundReply:
        target = target_of(url)
        answer = await self._exchanger.request(
            waiting, target, message(method, target, headers, body)
        )
        return OutboundReply(answer.status, answer.headers(), answer.body, url)
