"""Reads the headers of an HTTP answer that say until when something holds.

``freshness`` computes how long an answer stays fresh (RFC 9111, section 4.2).
As the broker fetches for all subscribers, it counts as a shared cache: ``s-maxage`` takes
precedence over ``max-age``, and both over ``Expires``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import Final

#: Any larger number of seconds is taken for this one (RFC 9111, section 1.2.2).
MAX_SECONDS: Final = 2**31

# The argument of a directive may be quoted, though it ought not to be.
_DIRECTIVE = re.compile(r"""([\w!#$%&'*+.^`|~-]+)\s*(?:=\s*(?:"([^"]*)"|([^\s,"]*)))?""")
_SECONDS = re.compile(r"[0-9]{1,50}")


#: The longest Retry-After, in seconds, that the broker obeys.
MAX_RETRY_AFTER: Final = 86_400.0


def http_date(text: str) -> float | None:
    """The seconds since the epoch of a date, in one of the three forms of HTTP.

    :returns: None if the text is not a date.
    """
    try:
        parts = parsedate_tz(text[:100])
        return float(mktime_tz(parts)) if parts else None
    except (ValueError, OverflowError, IndexError, TypeError):  # for instance a 13th month
        return None


def freshness(headers: Mapping[str, str], now: float) -> float | None:
    """The number of seconds from now for which an answer stays fresh.

    - It is 0 with ``no-store``, or with ``no-cache`` without field names.
    - An invalid number of seconds or an invalid ``Date`` is ignored; an invalid ``Expires`` is in
      the past (section 5.3).
    - The answer's age, by ``Age`` and ``Date``, is subtracted.

    :param headers: the headers of the answer, by names in lower case; several lines of one name
        are joined with commas.
    :param now: when the answer arrived, in seconds since the epoch.
    :returns: the seconds, at least 0; None if the headers do not say.
    """
    control = _directives(headers.get("cache-control", ""))
    if "no-store" in control or control.get("no-cache") == "":
        return 0.0
    date = http_date(headers.get("date", ""))
    lifetime = _seconds(control.get("s-maxage"))
    if lifetime is None:
        lifetime = _seconds(control.get("max-age"))
    if lifetime is None and "expires" in headers:
        expires = http_date(headers["expires"])
        lifetime = 0.0 if expires is None else expires - (now if date is None else date)
    if lifetime is None:
        return None
    age = max(_seconds(headers.get("age", "").strip()) or 0.0, now - date if date else 0.0)
    return min(max(lifetime - age, 0.0), float(MAX_SECONDS))


def _directives(cache_control: str) -> dict[str, str]:
    """The argument of each directive, by its name in lower case; empty if it has none.

    Of several directives of one name, the first counts.
    """
    found: dict[str, str] = {}
    for name, quoted, plain in _DIRECTIVE.findall(cache_control[:4000]):
        found.setdefault(name.lower(), quoted or plain)
    return found


def _seconds(text: str | None) -> float | None:
    """The number in a text, at most ``MAX_SECONDS``; None if it is none."""
    if text is None or not _SECONDS.fullmatch(text):
        return None
    return float(min(int(text), MAX_SECONDS))


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """The seconds of a Retry-After header (RFC 9110, section 10.2.3).

    If the header has a date, the seconds count from the answer's own Date, so that the clocks of
    the two servers need not agree.

    :param headers: the headers of the answer, by names in lower case.
    :param now: what the seconds count from, in seconds since the epoch, if the answer has no Date.
    :returns: the seconds, at most ``MAX_RETRY_AFTER``; None if there is no valid header, or if it
        has a date and nothing says from when on.
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), MAX_RETRY_AFTER)
    until, sent = http_date(text), http_date(headers.get("date", ""))
    sent = now if sent is None else sent
    return None if until is None or sent is None else min(max(until - sent, 0.0), MAX_RETRY_AFTER)
