"""A courier that dies of some documents and answers, as a fault in a C library would make it."""

from __future__ import annotations

import os
from unittest import mock

from rsscloud_broker.composition import courier
from rsscloud_broker.interfaces import OutboundReply, OutboundRequest
from rsscloud_broker.outbound import CallbackClient, topic_fetcher
from rsscloud_broker.outbound.couriers import process
from rsscloud_broker.wire.feed import xml_redirect

#: What is in a document that the courier dies of as it reads it.
READING = b"deadly to read"

#: What is in the answer of a callback that the courier dies of.
ANSWER = b"deadly to call"


def _redirect(body: bytes) -> str | None:
    if READING in body:
        os.abort()
    return xml_redirect(body)


class _Client(CallbackClient):
    async def request(self, request: OutboundRequest) -> OutboundReply:
        reply = await super().request(request)
        if ANSWER in reply.body:
            os.abort()
        return reply


if __name__ == "__main__":
    with (
        mock.patch.object(topic_fetcher, "xml_redirect", _redirect),
        mock.patch.object(process, "CallbackClient", _Client),
    ):
        courier.main()
