"""Brings URLs into a normal form, so that equivalent URLs are found as one topic.

Publishers and subscribers spell the URL of a topic differently::

    HTTP://Example.org:80/%7ejoe/./feed     http://example.org/~joe/feed

Both name the same resource (RFC 3986, sections 6.2.2 and 6.2.3), so the broker looks
topics up by the second form.  WebSub demands a part of this: hubs must decode unreserved
characters that are percent-encoded (section 5.1.1).
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from socket import AF_INET, inet_pton
from string import ascii_letters, digits, printable
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

from hyperlink import EncodedURL

_UNRESERVED: Final = frozenset(f"{ascii_letters}{digits}-._~")

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

#: Nearly all URLs match this.  They are in normal form unless a segment begins with a dot.
_PLAIN: Final = re.compile(r"https?://[a-z0-9.-]+/[!-$&-~]*")

_URL: Final = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>\[[0-9a-f:.]+\]|[^\s/?#@:\[\]\\]+)"
    r"(?::(?P<port>[0-9]{0,5}))?"
    r"(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?(?P<fragment>\#.*)?",
    re.IGNORECASE | re.DOTALL,
)

_PERCENT_ENCODED: Final = re.compile(r"%([0-9a-f]{2})", re.IGNORECASE)
_DOTS: Final = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)
_STRAY_PERCENT: Final = re.compile(r"%(?![0-9a-f]{2})", re.IGNORECASE)


def normal_form(url: str) -> str:
    """The form of a URL that it shares with all URLs that name the same resource.

    Scheme and host are in lower case, the scheme's default port is left out, an empty path is
    ``/``, and dot segments are resolved.  Unreserved characters are not percent-encoded.
    Percent-encodings use capital digits.  Characters beyond ASCII are percent-encoded, as in a
    request (RFC 3987, section 3.1).

    :returns: the unchanged text if it is no http or https URL; other functions refuse those,
        with a reason.
    """
    if _PLAIN.fullmatch(url) and "/." not in url:
        return url
    match = _URL.fullmatch(url)
    if match is None:
        return url
    scheme = match["scheme"].lower()
    try:
        host = _normal_host(match["host"])
        path = _resolve_dots(encoded(match["path"] or "/"))
        query = encoded(match["query"] or "")
    except ValueError:  # a host name or a character that no URL can have
        return url
    return f"{scheme}://{host}{_port(scheme, match['port'])}{path}{query}{match['fragment'] or ''}"


def joined(base: str, reference: str) -> str:
    """The URL that a stranger's reference means (RFC 3986, section 5); empty if it is none.

    :param base: the URL of the document that has the reference.
    """
    try:
        return urljoin(base, reference)
    except ValueError:  # an invalid host in brackets
        return ""


def is_localhost(host: str) -> bool:
    """Whether a host name means this machine (RFC 6761, section 6.3); a dot may be at its end."""
    return f".{host.removesuffix('.')}".lower().endswith(".localhost")


def identity(public_url: str) -> str:
    """The URL by which other brokers can know a broker, its public URL; empty if that is only
    known on its own machine, where other brokers would have the same.
    """
    return "" if is_localhost(urlsplit(public_url).hostname or "localhost") else public_url


def is_address(host: str) -> bool:
    """Whether a host is an IPv4 or IPv6 address, in its usual form and without brackets.

    Other forms of IPv4 addresses, such as ``127.1`` or ``0177.0.0.1``, are names: they are
    looked up, and the answer is judged.
    """
    if ":" not in host and not host[-1:].isdigit():
        return False  # nearly all are names
    try:
        # ``ip_address`` takes ten times as long, and each call of an address asks.
        ip_address(host) if ":" in host else inet_pton(AF_INET, host)
    except (OSError, ValueError):
        return False
    return True


def _normal_host(host: str) -> str:
    host = _decode_unreserved(host)
    if not host.isascii():
        host = EncodedURL(scheme="http", host=host).to_uri().host
    return host.lower()


def _port(scheme: str, port: str | None) -> str:
    """The end of the authority: nothing for the default port."""
    number = int(port) if port else _DEFAULT_PORTS[scheme]
    return "" if number == _DEFAULT_PORTS[scheme] else f":{number}"


def encoded(text: str) -> str:
    """A path or query in normal form: only characters that must be are percent-encoded."""
    if not text.isascii():
        text = quote(text, safe=printable)
    return _decode_unreserved(text)


def _decode_unreserved(text: str) -> str:
    """The text with its unreserved characters decoded.

    A text with a percent sign that encodes nothing is returned unchanged: a character decoded
    beside such a sign could become part of a percent-encoding.
    """
    if "%" not in text or _STRAY_PERCENT.search(text):
        return text
    return _PERCENT_ENCODED.sub(_if_unreserved, text)


def _if_unreserved(match: re.Match[str]) -> str:
    """The character that is encoded if it is unreserved; else the encoding in capitals."""
    character = chr(int(match[1], 16))
    return character if character in _UNRESERVED else match[0].upper()


def _decode_dots(segment: str) -> str:
    """A segment of a path, with its dots decoded if it consists of dots alone.

    They are decoded already, unless the path has a stray percent sign; servers decode the dots
    even then.
    """
    return re.sub("%2e", ".", segment, flags=re.IGNORECASE) if _DOTS.fullmatch(segment) else segment


def _resolve_dots(path: str) -> str:
    """An absolute path with its dot segments resolved (RFC 3986, section 5.2.4)."""
    if "/." not in path and "%2" not in path:
        return path
    kept: list[str] = []
    segments = [_decode_dots(segment) for segment in path.split("/")[1:]]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."}:
        kept.append("")
    return f"/{'/'.join(kept)}"
