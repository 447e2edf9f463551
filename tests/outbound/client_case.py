"""Test cases for both outbound clients, over real sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import OutboundReply, OutboundRequest
from tests.outbound.servers import Client, Pages, make_client, serve


class OutboundTestCase(TestCase):
    def begin(self, client: Client, url: str, **request: Any) -> Deferred[OutboundReply]:
        """Begin a request, without waiting for the answer."""
        method = request.pop("method", "GET")
        call: Any = client.outbound.request(OutboundRequest(method, url, **request))
        return Deferred.fromCoroutine(call)

    async def refusal(self, asking: Deferred[OutboundReply]) -> str:
        error = await self.assertFailure(asking, OutboundError)
        return str(error)


class ClientTestCase(OutboundTestCase):
    """Tests the client for topics; a subclass may use the other client."""

    make_client: Callable[..., Client] = staticmethod(make_client)

    def setUp(self) -> None:
        self.pages = Pages({})
        self.port = serve(self, self.pages)
        self.base = f"http://127.0.0.1:{self.port}"

    async def ask(self, path: str = "/", client: Client | None = None, **request: Any) -> Any:
        return await self.begin(client or self.make_client(), self.base + path, **request)

    async def refused(self, path: str = "/", client: Client | None = None, **request: Any) -> str:
        return await self.refusal(
            self.begin(client or self.make_client(), self.base + path, **request)
        )
