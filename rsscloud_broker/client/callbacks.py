"""Answers the calls of WebSub hubs to the callbacks of a `HubSubscriber`.

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

#: The largest content that is accepted, in bytes.
MAX_CONTENT_BYTES: Final = 10 * 1024 * 1024

_PLAIN = "text/plain; charset=utf-8"


class HubCallbacks(Resource):
    """The resource of all callbacks; each has a path that only its hub knows."""

    isLeaf = True

    def __init__(self, subscriber: HubSubscriber) -> None:
        super().__init__()
        self._subscriber = subscriber

    def render_GET(self, request: Request) -> bytes:
        """Answer a verification of intent with its challenge, if the subscriber wants this."""
        request.setHeader("Content-Type", _PLAIN)
        request.setHeader("X-Content-Type-Options", "nosniff")
        fields = [
            (decode(name), decode(each)) for name in request.args for each in request.args[name]
        ]
        try:
            call = parse_call(fields)
        except BadRequest as error:
            return _refuse(request, 400, str(error))
        if not self._subscriber.verify(_token(request), call):
            return _refuse(request, 404, "Nobody here has asked for this.")
        return call.challenge.encode()

    def render_POST(self, request: Request) -> bytes:
        """Accept a content; the answer does not say whether its signature is right."""
        assert request.content is not None  # Twisted renders a request once its body is there
        body: bytes = request.content.read()
        kind = request.getHeader("Content-Type") or ""
        signature = request.getHeader("X-Hub-Signature") or ""
        if not self._subscriber.receive(_token(request), kind, signature, body):
            return _refuse(request, 410, "Nobody here has asked for this.")
        request.setResponseCode(202)
        return b""


def _token(request: Request) -> str:
    return request.path.decode("latin-1").rpartition("/")[2]


def _refuse(request: Request, status: int, reason: str) -> bytes:
    request.setResponseCode(status)
    request.setHeader("Content-Type", _PLAIN)
    return f"{reason}\n".encode()


def own_address(hub: str) -> str:
    """The address of this machine as a hub probably sees it, in the form for a URL.

    It sends nothing to the hub, but looks up the hub's name and blocks meanwhile, so it is only
    for commands.

    :param hub: the URL of the hub.
    :raises ClientError: the name of the hub's host cannot be resolved.
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
