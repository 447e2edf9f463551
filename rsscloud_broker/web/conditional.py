"""Says whether a client has the present version of what it asks for (RFC 9110, section 13)."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from twisted.web.server import Request

from rsscloud_broker.wire.http_dates import http_date

_ETAGS: Final = re.compile(rb'(?:W/)?("[^"]*")')

#: How many bytes of ``If-None-Match`` are looked at.
_MOST: Final = 4000


def has_version(request: Request, etags: Collection[bytes], modified_at: int | None) -> bool:
    """Whether the client has a version, so that 304 answers its request.

    If the request has ``If-None-Match``, its tags alone decide, by weak comparison.

    :param etags: those of the version, in quotes; any of them counts.
    :param modified_at: its Last-Modified, in whole seconds since the epoch; None if it has none.
    """
    known = request.requestHeaders.getRawHeaders(b"if-none-match")
    if known is not None:
        tags = b",".join(known)[:_MOST]
        return tags.strip() == b"*" or any(tag in etags for tag in _ETAGS.findall(tags))
    since = request.getHeader("if-modified-since")
    if since is None or modified_at is None:
        return False
    at = http_date(since)
    return at is not None and modified_at <= at
