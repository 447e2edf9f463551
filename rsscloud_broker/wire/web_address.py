"""Checks that a URL is a web address, the rule for every URL that the broker stores.

A front door checks its requests by the rules of its protocol.  The core checks this rule for all of
them, so that no front door can bring in a URL that nobody could call.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

#: The largest number of characters in the URL of a topic or a callback, by any protocol.  A
#: protocol with a lower limit has its own name for it.
MAX_URL: Final = 2048

#: How many redirects are followed: a longer way is as a rule a circle.
REDIRECTS = 5

#: The form of nearly all URLs, with ports up to 59999; only others need to be parsed.
_USUAL = re.compile(r"https?://[A-Za-z0-9.-]+(:[1-9][0-9]{0,3}|:[1-5][0-9]{4})?([/?][!-~]*)?")


def fault_of(url: str) -> str:
    """Why a URL cannot be stored, as a clause for people; empty if it can.

    A URL can be stored if it is a web address of at most ``MAX_URL`` characters.
    """
    if len(url) > MAX_URL:
        return f"the URL must have {MAX_URL} characters or fewer, and has {len(url)}"
    return fault_of_form(url)


def fault_of_form(url: str) -> str:
    """Why a text of any length is not a web address, as a clause; empty if it is one.

    A web address is an http or https URL (RFC 9110, section 4.2) with a host, and without the
    white space and control characters of ASCII.
    """
    if _USUAL.fullmatch(url):
        return ""
    if any(character <= " " or character == "\x7f" for character in url):
        return "the URL must not contain white space or control characters"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"it is not a URL: {error}"
    if parts.scheme.lower() not in {"http", "https"}:
        return "the URL must begin with http:// or https://"
    if not parts.hostname:
        return "the URL names no host"
    return "the URL's port must be from 1 to 65535" if port == 0 else ""
