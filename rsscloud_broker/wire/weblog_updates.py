"""Reads pings in the style of weblogs.com, and writes the sentences with which they are answered.

Sources: the weblogs.com interface as "RSS Feed State" describes it, and the pings of today's blog
engines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rsscloud_broker.model import Ping
from rsscloud_broker.wire.text import clean, text_of
from rsscloud_broker.wire.web_address import fault_of_form

#: The largest number of characters in the name of a weblog.
MAX_NAME = 1024
#: The largest number of characters in each URL, as weblogs.com has it; other protocols allow more.
MAX_PING_URL = 255
#: The largest number of characters in all tags together.
MAX_TAGS = 1024

_ESCAPES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&amp;": "&", "&#39;": "'", "&#039;": "'"}
_ESCAPE = re.compile(r"&(?:lt|gt|quot|amp|#0?39);")

#: Clients look for "Thanks for the ping".
THANKS = "Thanks for the ping."


class BadPing(Exception):
    """A ping is refused.  The text is the sentence for the client."""


class BadCall(Exception):
    """The number or the types of a call's parameters are wrong.  The text says how."""


def site_ping(
    name: str, url: str, at: float, *, changes_url: str = "", rss_url: str = "", tags: str = ""
) -> Ping:
    """Make a ping from the texts that a client has sent.

    :param name: the name of the site, perhaps escaped for HTML.
    :param url: the URL of the site.
    :param at: when the ping arrived, in seconds since the epoch.
    :param changes_url: the URL of the changed page, or empty.
    :param rss_url: the URL of the feed, or empty.
    :param tags: categories, separated by ``|``.
    :raises BadPing: a text is missing, too long or not a URL; the text is for the client.
    """
    name, url, changes_url, rss_url = map(clean, (unescaped(name), url, changes_url, rss_url))
    _check_url("weblogUrl", url)
    if not name:
        raise _refusal("the weblog name must not be empty")
    if len(name) > MAX_NAME:
        raise _refusal("the weblogName was too long", MAX_NAME)
    if changes_url:
        _check_url("changesUrl", changes_url)
    if rss_url:
        _check_url("rssUrl", rss_url)
    if len(tags) > MAX_TAGS:
        raise _refusal("the tags were too long", MAX_TAGS)
    categories = tuple(filter(None, map(clean, tags.split("|"))))
    return Ping(name, url, at, changes_url, rss_url, categories)


def unescaped(name: str) -> str:
    """A name without the five HTML entities with which WordPress escapes names.

    It unescapes only once: a name that people see as ``&amp;`` is sent as ``&amp;amp;``.
    """
    if "&" not in name:
        return name
    return _ESCAPE.sub(lambda found: _ESCAPES[found[0]], name)


def ping_of_parameters(method: str, parameters: Sequence[Any], at: float) -> Ping:
    """Make a ping from the parameters of an XML-RPC call.

    - ``ping(name, url[, changesurl[, category]])``
    - ``extendedPing(name, url, check, rss[, tags])``; with three parameters, as
      WordPress sends them, the third is the feed
    - ``rssUpdate(name, url)``, whose URL is a feed

    :param method: one of the three names, without the prefix.
    :param at: when the call arrived, in seconds since the epoch.
    :raises BadCall: the number or the types of the parameters are wrong.
    :raises BadPing: as for :func:`site_ping`.
    """
    least, most = {"ping": (2, 4), "extendedPing": (3, 5), "rssUpdate": (2, 2)}[method]
    if not least <= len(parameters) <= most:
        counts = str(least) if least == most else f"{least} to {most}"
        raise BadCall(
            f"weblogUpdates.{method} takes {counts} parameters, but {len(parameters)} came"
        )
    # What may be left out may also be nil, as by SOAP.
    given = [*parameters[:2], *("" if each is None else each for each in parameters[2:])]
    texts = [text for text in map(text_of, given) if text is not None]
    if len(texts) < len(given):
        raise BadCall(f"every parameter of weblogUpdates.{method} must be a string")
    name, url, *rest = texts
    if method == "rssUpdate":
        return site_ping(name, url, at, rss_url=url)
    if method == "extendedPing":
        check, feed, tags = ("", rest[0], "") if len(rest) == 1 else [*rest, ""][:3]
        return site_ping(name, url, at, changes_url=check, rss_url=feed, tags=tags)
    changes_url, category = [*rest, "", ""][:2]
    return site_ping(name, url, at, changes_url=changes_url, tags=category)


def says_error(answer: Mapping[str, Any]) -> bool:
    """Whether the answer of a ping server says by ``flerror`` that the ping was refused.

    Some servers write this boolean as a number, or by SOAP as a text without a type.
    """
    return str(answer.get("flerror") or False).strip().lower() not in {"false", "0"}


def limited(reason: str, seconds: int) -> str:
    """The sentence for a ping that a limit refused.

    :param reason: which limit was reached, as a clause.
    :param seconds: after how many seconds the client may try again.
    """
    return f"{_refusal(reason)} Try again in {seconds} seconds."


def _check_url(parameter: str, url: str) -> None:
    """Raise BadPing if the text of a parameter is too long or no URL."""
    if len(url) > MAX_PING_URL:
        raise _refusal(f"the {parameter} was too long", MAX_PING_URL)
    if fault_of_form(url):
        if not url.lower().startswith(("http:", "https:")):
            raise _refusal("the URL must begin with http:// or https://")
        raise _refusal(f"the {parameter} is not a URL")


def _refusal(reason: str, limit: int | None = None) -> BadPing:
    """The error for a refused ping, as the sentence for the client."""
    rule = "" if limit is None else f" At most {limit} characters are taken."
    return BadPing(f"Can't accept the ping because {reason}.{rule}")
