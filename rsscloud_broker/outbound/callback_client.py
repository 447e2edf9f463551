"""The HTTP client that notifiers use to call callbacks: guarded, and as fast as possible.

A broker makes one small request to each of very many hosts.  For each request the client looks the
host name up, has the guard check every address, connects to one of them, sends the request, and
reads the status and a body of limited size, all under one deadline.

Unlike treq, a request here needs only one Deferred, which covers both connection and answer, and
no timer of its own.
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
    """Makes guarded requests to callbacks; the body of a longer answer is truncated."""

    body = TruncatingBody

    async def _exchange(
        self,
        pending: PendingRequest,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> OutboundReply:
        target = target_of(url)
        answer = await self._exchanger.request(
            pending, target, message(method, target, headers, body)
        )
        return OutboundReply(answer.status, answer.headers(), answer.body, url)
