"""The HTTP client that notifiers use to call callbacks: guarded, and as fast as possible.

A broker makes one small request to each of very many hosts.  For each request the client looks the
host name up, has the guard check every address, connects to one of them, sends the request, and
reads the status and a body of limited size, all under one deadline.

Unlike with treq, a request here needs no Deferred, unless a name is looked up, and no timer of its
own.
"""

from __future__ import annotations

from collections.abc import Mapping

from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.outbound.bodies import TruncatingBody
from rsscloud_broker.outbound.client import Client
from rsscloud_broker.outbound.http1 import HTTPAnswer, message
from rsscloud_broker.outbound.urls import target_of
from rsscloud_broker.util.deferreds import BreakOff, Done


class CallbackClient(Client):
    """Makes guarded requests to callbacks; a body longer than ``body_limit`` is truncated."""

    body = TruncatingBody

    def exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        done: Done[OutboundReply],
    ) -> BreakOff:
        """Begin one request, without redirects; ``done`` gets the reply, or the error."""

        def answered(answer: HTTPAnswer | Exception) -> None:
            if isinstance(answer, HTTPAnswer):
                done(OutboundReply(answer.status, answer.headers(), answer.body, url))
            else:
                done(answer)

        target = target_of(url)
        return self._exchanger.begin(target, message(method, target, headers, body), answered)
