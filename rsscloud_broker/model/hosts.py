"""Brings the names and the addresses of hosts into one form, so that hosts can be compared.

A stranger can write the same host in many ways: ``bücher.example`` is
``xn--bcher-kva.example``, and ``3405803783`` is the address 203.0.113.7.  A limit or a block that
compared the written forms would be bypassed by another spelling.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import unquote

from hyperlink import EncodedURL

#: Names that are in canonical form already.  The last label of a name begins with a letter; only
#: then it is no address.
_PLAIN: Final = re.compile(r"(?:[a-z0-9_-]+\.)*[a-z][a-z0-9_-]*")

_NUMBER: Final = re.compile(r"0x[0-9a-f]+|[0-9]+")

#: A part of an IPv4 address in canonical form.
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"

#: The beginning of nearly all URLs, whose host is in its canonical form: a name or an IPv4 address.
_USUAL: Final = re.compile(
    rf"[a-z]+://((?:[a-z0-9_-]+\.)*[a-z][a-z0-9_-]*|{_BYTE}(?:\.{_BYTE}){{3}})"
    r"(?::[0-9]*)?(?:[/?#]|\Z)",
    re.ASCII,
)

#: The beginning of all others; the first group is an address in brackets.
_HOST: Final = re.compile(r"[a-z]+://(?:[^/?#@]*@)?(?:\[([^\]/?#]*)\]|([^/?#:]*))", re.IGNORECASE)


# One notification asks for the host of its callback several times.
@lru_cache(1024)
def host_of(url: str) -> str:
    """The host of a URL, in the form of ``canonical_host``; empty if there is none.

    Use it to count, to limit and to block by host, since all spellings of a host have the same
    canonical form.  Do not use it to call the host.  The broker needs it for each notification, so
    it is quicker than a parser of whole URLs.
    """
    if usual := _USUAL.match(url):
        return usual[1]
    found = _HOST.match(url)
    return canonical_host(found[1] or found[2] or "") if found else ""


def with_canonical_host(url: str) -> str:
    """A URL with its host in the form of ``host_of``; other parts stay as they are.

    Use it to compare URLs, and not to call them.
    """
    if _USUAL.match(url):
        return url
    found = _HOST.match(url)
    if found is None:
        return url
    host = canonical_host(found[1] or found[2] or "")
    shown = f"[{host}]" if ":" in host else host
    which = 2 if found[1] is None else 1
    begin, end = found.start(which), found.end(which)
    if which == 1:  # with the brackets
        begin, end = begin - 1, end + 1
    return f"{url[:begin]}{shown}{url[end:]}"


def canonical_host(host: str) -> str:
    """The one form of a host that all its spellings share.

    A name is in lower case and in the form in which the broker looks it up (IDNA, RFC 5891, after
    the mapping of UTS 46), and has no dot at its end.  An IPv4 address consists of four decimal
    numbers, even if it was written as one number, or in hexadecimal or octal digits, which the
    libraries that look names up accept.  An IPv6 address is in its short form (RFC 5952); one that
    stands for an IPv4 address (``::ffff:203.0.113.7``) becomes that address.

    :param host: a name or an address, without brackets.
    :returns: the host in lower case if it can be neither a name nor an address; nobody can call it.
    """
    return host if _PLAIN.fullmatch(host) else _canonical(host)


# How many spellings are remembered with the names that they stand for.
@lru_cache(4096)
def _canonical(written: str) -> str:
    """What ``canonical_host`` returns of a host that is not in canonical form already."""
    if ":" in written:
        return _ipv6(written.lower())
    host = unquote(written).rstrip(".")
    if not host.isascii():
        with suppress(ValueError):  # no name has such characters
            host = EncodedURL(scheme="http", host=host).to_uri().host
    host = host.lower().rstrip(".")
    if not host.isprintable():  # not a name, and a database may refuse the characters
        return written.lower()
    return _ipv4(host.split(".")) or host


def _ipv6(host: str) -> str:
    """The short form of an IPv6 address, or the IPv4 address that it stands for; the text itself if
    it is no address.
    """
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


def _ipv4(parts: list[str]) -> str:
    """The address that one to four numbers stand for, as for ``inet_aton``; empty if for none.

    The last number fills all the bytes that the others leave.
    """
    if len(parts) > 4 or not all(map(_NUMBER.fullmatch, parts)):
        return ""
    try:
        *first, last = map(_number, parts)
    except ValueError:  # an octal number with the digit 8 or 9
        return ""
    left = 4 - len(first)
    if any(number > 255 for number in first) or last >= 256**left:
        return ""
    return ".".join(map(str, (*first, *last.to_bytes(left, "big"))))


def _number(text: str) -> int:
    """The value of hexadecimal, octal (from a 0 on) or decimal digits.

    :raises ValueError: an octal number has the digit 8 or 9.
    """
    if text.startswith("0x"):
        return int(text, 16)
    return int(text, 8 if text.startswith("0") else 10)
