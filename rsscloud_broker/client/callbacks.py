"""The pages that a hub calls, and where they are for it.

GET  /TOKEN?hub.mode=subscribe&hub.topic=...&hub.challenge=x91&hub.lease_seconds=600
                                                       200, x91
POST /TOKEN   the content of the topic                 202
"""

from __future__ import annotations

import socket
from typing import Final
from urllib.parse import urlsplit

from twisted.web.resource import Resource
from twisted.web.server import Request

from rsscloud_broker.client.web import ClientError
from rsscloud_broker.client.websub import HubSubscriber
from rsscloud_broker.wire.text import decode
from rsscloud_broker.wire.websub import BadRequest, parse_call

#: Bytes of a topic that are taken.
MAX_CONTENT_BYTES: Final = 10 * 1024 * 1024

_PLAIN = "text/plain; charset=utf-8"


class HubCallbacks(Resource):
    """Answers hubs, each at a path that only it knows."""

    isLeaf = True

    def __init__(self, subscriber: HubSubscriber) -> None:
        super().__init__()
        self._subscriber = subscriber

    def render_GET(self, request: Request) -> bytes:
        """Say whether we mean it: repeat the challenge."""
        request.setHeader("Content-Type", _PLAIN)
        request.setHeader("X-Content-Type-Options", "nosniff")
        fields = [
            (decode(name), decode(each)) for name in request.args for each in request.args[name]
        ]
        try:
            call = parse_call(fields)
        except BadRequest as error:
            return _refuse(request, 400, str(error))
        if not self._subscriber.asked(_token(request), call):
            return _refuse(request, 404, "This was not asked for here.")
        return call.challenge.encode()

    def render_POST(self, request: Request) -> bytes:
        """Take a content.  Whether its signature is right is none of the hub's business."""
        assert request.content is not None  # Twisted renders what has arrived in whole
        body: bytes = request.content.read()
        kind = request.getHeader("Content-Type") or ""
        signature = request.getHeader("X-Hub-Signature") or ""
        if not self._subscriber.deliver(_token(request), kind, signature, body):
            return _refuse(request, 410, "This was not asked for here.")
        request.setResponseCode(202)
        return b""


def _token(request: Request) -> str:
    return request.path.decode("latin-1").rpartition("/")[2]


def _refuse(request: Request, status: int, reason: str) -> bytes:
    request.setResponseCode(status)
    request.setHeader("Content-Type", _PLAIN)
    return f"{reason}\n".encode()


def own_address(hub: str) -> str:
    """Our address as a hub is likely to see it, to be put into a URL.

    Nothing is sent; but a name is looked up, and that is waited for: it is for
    commands, which have nothing else to do meanwhile.

    :raises ClientError: the hub's host cannot be found.
    """
    try:
        parts = urlsplit(hub)
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM)
        family, kind, _, _, address = found[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            host = str(probe.getsockname()[0]).partition("%")[0]
    except (OSError, ValueError) as error:
        raise ClientError(f"{hub}: {error}") from error
    return f"[{host}]" if ":" in host else host
