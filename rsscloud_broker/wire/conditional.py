"""Makes the headers of conditional requests, and says whether a client has the present version of
what it asks for (RFC 9110, section 13).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from math import inf
from typing import Final

from rsscloud_broker.wire.http_dates import http_date

_ETAGS: Final = re.compile(rb'(?:W/)?("[^"]*")')


def sendable(validator: str) -> str:
    """The validator of an answer; empty if it is not one line that can be sent back as it came.

    :param validator: the header's bytes, decoded as Latin-1.
    """
    try:
        sent = validator.encode("latin-1").decode()
    except UnicodeError:
        return ""
    # Real validators have some tens of characters.
    return validator if len(sent) <= 1000 and sent.isprintable() else ""


def conditions(etag: str, last_modified: str) -> dict[str, str]:
    """The headers that make a request conditional, without validators that cannot be sent back.

    :param etag, last_modified: the validators as they came, decoded as Latin-1; empty for none.
    """
    headers = {"if-none-match": sendable(etag), "if-modified-since": sendable(last_modified)}
    # The clients decode header values as Latin-1 and encode them as UTF-8.
    return {name: value.encode("latin-1").decode() for name, value in headers.items() if value}


def has_version(
    tags: Sequence[bytes] | None,
    since: bytes | None,
    etags: Collection[bytes],
    modified_at: int | None,
    now: float = inf,
) -> bool:
    """Whether the client has a version, so that 304 answers its request.

    If the request has ``If-None-Match``, its tags alone decide, by weak comparison.

    :param tags: the values of ``If-None-Match``; None if the request has none.
    :param since: the value of ``If-Modified-Since``; None if the request has none.
    :param etags: those of the version, in quotes; any of them counts.
    :param modified_at: its Last-Modified, in whole seconds since the epoch; None if it has none.
    :param now: the present time.  A date later than its second is ignored, as the version that had
        it was made before the clock was set back.  Needless if each version has a later date than
        that before it.
    """
    if tags is not None:
        # Further bytes of ``If-None-Match`` are ignored.
        known = b",".join(tags)[:4000]
        return known.strip() == b"*" or any(tag in etags for tag in _ETAGS.findall(known))
    if since is None or modified_at is None:
        return False
    at = _seconds(since)
    return at is not None and modified_at <= at < now + 1


@lru_cache(maxsize=64)
def _seconds(date: bytes) -> float | None:
    """Seconds since the epoch of an HTTP date, which may have parameters; None if it is none.

    Cached, since most clients send the same date: that of the present version.
    """
    return http_date(date.split(b";", 1)[0].decode("latin-1"))
