"""Says whether a client has the present version of what it asks for: see ``wire.conditional``."""

from __future__ import annotations

from collections.abc import Collection

from twisted.web.server import Request

from rsscloud_broker.wire import conditional


def has_version(request: Request, etags: Collection[bytes], modified_at: int | None) -> bool:
    """Whether the client that sent a request has a version.

    :param etags, modified_at: see ``wire.conditional.has_version``.
    """
    tags = request.requestHeaders.getRawHeaders(b"if-none-match")
    since = request.getHeader(b"if-modified-since")
    return conditional.has_version(tags, since, etags, modified_at)
