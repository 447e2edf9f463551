"""Makes the headers of conditional requests, and says whether a client has the present version of
what it asks for (RFC 9110, section 13).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from math import inf
from typing import Final

from attrs import frozen

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


@frozen
class Condition:
    """What must hold of a file, or else a request does not change it (RFC 9110, section 13.1).

    :ivar match, none_match, unmodified_since: the values of ``If-Match``, ``If-None-Match`` and
        ``If-Unmodified-Since``; empty for none.
    """

    match: str = ""
    none_match: str = ""
    unmodified_since: str = ""

    def holds(self, tag: str | None, modified_at: float) -> bool:
        """Whether the condition holds for a file.

        :param tag: what all ETags of this version of the file begin with, before a hyphen; None if
            there is no file.
        :param modified_at: its Last-Modified, in seconds since the epoch.
        """
        since = http_date(self.unmodified_since)
        if self.match:
            holds = _match(self.match, tag)
        else:
            holds = tag is None or since is None or int(modified_at) <= since
        return holds and not _match(self.none_match, tag)


def _match(tags: str, tag: str | None) -> bool:
    """Whether the ETags in a header, or ``*``, match a file.

    Weak ones match too: proxies that compress make strong ETags weak, and the ETags of another
    version begin otherwise.
    """
    found = _ETAGS.findall(tags[:4000].encode("latin-1"))
    named = {each.strip(b'"').partition(b"-")[0].decode("latin-1") for each in found}
    return tag is not None and (tags.strip() == "*" or tag in named)


#: That of requests without conditions.
ALWAYS: Final = Condition()


@lru_cache(maxsize=64)
def _seconds(date: bytes) -> float | None:
    """Seconds since the epoch of an HTTP date, which may have parameters; None if it is none.

    Cached, since most clients send the same date: that of the present version.
    """
    return http_date(date.split(b";", 1)[0].decode("latin-1"))
