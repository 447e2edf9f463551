"""How long an answer stays fresh, by its HTTP headers (RFC 9111, section 4.2).

The broker asks on behalf of all who subscribed, so it counts as a shared cache:
``s-maxage`` goes before ``max-age``, and both before ``Expires``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import Final

#: What stands for any larger number of seconds (RFC 9111, section 1.2.2).
MAX_SECONDS: Final = 2**31

# The argument of a directive may be quoted, though it ought not to be.
_DIRECTIVE = re.compile(r"""([\w!#$%&'*+.^`|~-]+)\s*(?:=\s*(?:"([^"]*)"|([^\s,"]*)))?""")
_SECONDS = re.compile(r"[0-9]{1,50}")


def http_date(text: str) -> float | None:
    """Seconds since the epoch, of a date in one of the three forms of HTTP.

    :returns: None for what is no date.
    """
    try:
        parts = parsedate_tz(text[:100])
        return float(mktime_tz(parts)) if parts else None
    except (ValueError, OverflowError, IndexError, TypeError):  # a month of 13 and the like
        return None


def freshness(headers: Mapping[str, str], now: float) -> float | None:
    """For how many seconds from now an answer need not be asked for again.

    - ``no-store`` and ``no-cache`` without field names: 0
    - a number of seconds that is none is ignored, as is a ``Date`` that is none;
      an ``Expires`` that is none is in the past (section 5.3)
    - what the answer's age is, by ``Age`` and ``Date``, is taken off

    :param headers: of the answer, by names in lower case; several lines of one
        name are joined with commas.
    :param now: when it came, in seconds since the epoch.
    :returns: None if the headers do not say; never less than 0.
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
    """The first of each directive, by its name in lower case; empty without argument."""
    found: dict[str, str] = {}
    for name, quoted, plain in _DIRECTIVE.findall(cache_control[:4000]):
        found.setdefault(name.lower(), quoted or plain)
    return found


def _seconds(text: str | None) -> float | None:
    if text is None or not _SECONDS.fullmatch(text):
        return None
    return float(min(int(text), MAX_SECONDS))
