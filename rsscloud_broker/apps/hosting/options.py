"""``[apps.hosting]`` of the configuration."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import attrs
from attrs import field, frozen
from attrs.validators import and_, ge, le

from rsscloud_broker.util.urls import normal_form

#: The path below which the broker serves the files, whatever their public URLs are.
PREFIX = "/feeds"

#: In bytes.
_MB = 1024 * 1024

#: A call may have the feed as one text of base64, and the XML parser takes texts of up to ten
#: million bytes.
_LARGEST_FEED = 7 * _MB


def _require_base(_: object, key: attrs.Attribute[Any], url: str) -> None:
    """Require the beginning of http or https URLs, or no text."""
    if not url:
        return
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "?" in url or "#" in url or "@" in url or len(url) > 500:
        raise ValueError(
            f"'{key.name}' is {url!r}; it must be the http or https URL below which your reverse "
            'proxy serves the feeds, such as "https://static.example.org"'
        )


def prefixes_of(base: str) -> list[str]:
    """The paths below which the broker serves the files, and takes them in.

    A reverse proxy may pass the path of the public URL on.

    :param base: the URL below which the files are public.
    """
    return sorted({PREFIX, urlsplit(base).path} - {""})


def _normalize_base(url: str) -> str:
    """A URL in normal form, without a slash at the end."""
    return normal_form(url).rstrip("/")


@frozen
class HostingOptions:
    """``[apps.hosting]``: the store for feeds.

    :ivar base_url: the URL below which the feeds are public; empty for ``/feeds`` of the broker.
    :ivar max_feed_bytes: the largest feed or other file, in bytes.
    :ivar max_account_bytes: how many bytes the files of an account may have together.
    :ivar saves_per_account: saves per second that are accepted from one account; at once those of
        a hundred seconds.
    :ivar allow_plain_passwords: whether passwords are accepted over plain HTTP from other machines.
    """

    base_url: str = field(default="", converter=_normalize_base, validator=_require_base)
    max_feed_bytes: int = field(default=_MB, validator=and_(ge(1024), le(_LARGEST_FEED)))
    # XML-RPC has no larger integers.
    max_account_bytes: int = field(default=20 * _MB, validator=and_(ge(1024), le(2**31 - 1)))
    saves_per_account: float = field(default=1.0, validator=and_(ge(0.001), le(1000.0)))
    allow_plain_passwords: bool = False
