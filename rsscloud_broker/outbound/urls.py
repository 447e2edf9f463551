"""Parses the URLs that the broker calls, and refuses those that it does not call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import printable
from typing import NamedTuple
from urllib.parse import quote, urldefrag, urljoin, urlsplit

from hyperlink import EncodedURL

from rsscloud_broker.errors import AddressRefused, OutboundError
from rsscloud_broker.wire.web_address import fault_of_form

#: Ports of services that are not HTTP.  Some of these services act on any line of text, and a
#: stranger chooses some lines of the broker's requests.  Browsers have a similar list ("bad
#: ports" in the Fetch standard).  This one adds databases, queues and desktops, which often
#: listen inside a network without a password.  Every other port is called, since feed readers
#: listen on any port.
REFUSED_PORTS = {
    port: service
    for service, ports in (
        ("echo, discard, chargen and the like", (1, 7, 9, 11, 13, 15, 17, 19)),
        ("FTP", (20, 21, 69, 115, 989, 990)),
        ("SSH", (22,)),
        ("Telnet", (23, 107, 992)),
        ("mail", (24, 25, 109, 110, 143, 220, 465, 587, 993, 995, 2525, 4190)),
        ("time", (37, 123)),
        ("names", (42, 43, 53, 137, 853)),
        ("finger", (79,)),
        ("logins", (49, 87, 88, 113, 464, 512, 513, 749)),
        ("remote procedures", (111, 135, 530)),
        ("news", (119, 433, 532, 563)),
        ("files", (139, 427, 445, 548, 873, 2049, 3260, 4045)),
        ("management", (161, 162, 179, 199, 514, 623, 10050, 10051)),
        ("chat", (194, 531, 5222, 5269, 6665, 6666, 6667, 6668, 6669, 6679, 6697)),
        ("directories", (389, 636, 3268, 3269)),
        ("printing", (515, 631, 9100)),
        ("telephony", (1719, 1720, 1723, 5060, 5061)),
        ("desktops", (3389, 5900, 5901, 6000, 6001)),
        ("databases", (1433, 1521, 3306, 5432, 6379, 6380, 9042, 11211, 27017, 27018)),
        ("queues", (1883, 4222, 5671, 5672, 9092)),
    )
    for port in ports
}

#: URLs that every parser reads alike.  All others go through ``check_url``.  It names letters of
#: both cases, since to ignore the case takes twice as long.
_PLAIN = re.compile(
    r"[Hh][Tt][Tt][Pp]([Ss]?)://"
    r"((?:([A-Za-z0-9_.-]+)|\[([0-9A-Fa-f:.]+)\])(?::([0-9]{0,5}))?)"
    r"((?:[/?][A-Za-z0-9_.~!$&'()*+,;=:@/?%\[\]-]*)?)"
)


class Target(NamedTuple):
    """The parts of a URL that a request needs.

    :ivar secure: whether the scheme is ``https``.
    :ivar host: a name in its ASCII form or an address, in lower case, without brackets.
    :ivar authority: host and port as written in the URL, for the Host header.
    :ivar path: path and query as written in the URL.
    """

    secure: bool
    host: str
    port: int
    authority: str
    path: str

    @property
    def url(self) -> str:
        """The URL as it is requested, encoded where necessary."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.path}"


def target_of(url: str) -> Target:
    """Parse a URL.

    :raises AddressRefused: the broker does not call this URL; the error says which rule it
        breaks.
    """
    match = _PLAIN.fullmatch(url)
    if match is None or match[4]:  # an IPv6 address, which may be malformed
        check_url(url)
        match = match or _PLAIN.fullmatch(_encoded(url))
        if match is None:
            raise AddressRefused("the URL cannot be put into a request")
    s, authority, name, address, digits, path = match.groups()
    secure = s != ""
    port = int(digits) if digits else 443 if secure else 80
    if digits:
        check_port(port)
    if path[:1] != "/":
        path = f"/{path}"
    return Target(secure, (name or address).lower(), port, authority, path)


def check_url(url: str) -> None:
    """Raise if the broker does not call a URL because of its form.

    :raises AddressRefused: the error says which rule the URL breaks.
    """
    if fault := fault_of_form(url):
        raise AddressRefused(fault)
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("the URL must not carry a user name or password")
    if "#" in url:
        raise AddressRefused("the URL must not have a fragment")
    if parts.port is not None:
        check_port(parts.port)


def check_port(port: int) -> None:
    """Raise if the broker does not call a port.

    :raises AddressRefused: the number is no port, or is one of ``REFUSED_PORTS``.
    """
    if not 0 < port < 65536:
        raise AddressRefused("the URL's port must be from 1 to 65535")
    if port in REFUSED_PORTS:
        raise AddressRefused(
            f"port {port} is for other services ({REFUSED_PORTS[port]}), so it is not called"
        )


def redirected(url: str, location: str) -> str:
    """The URL that a Location header redirects to, without a fragment.

    :param url: the URL that answered.
    :param location: the header's bytes, decoded as Latin-1.
    :raises OutboundError: the header holds no URL.
    """
    try:
        # Some servers send UTF-8, or blanks, that are not percent-encoded.
        location = quote(location.encode("latin-1"), safe=printable.replace(" ", ""))
        return urldefrag(urljoin(url, location)).url
    except ValueError as error:
        raise OutboundError(f"it redirects to what is not a URL: {error}") from error


def check_circle(first: str, hops: Sequence[tuple[int, str]]) -> None:
    """Raise if redirects lead in a circle.

    :param first: the URL of the first request.
    :param hops: the status and the URL of each redirect.
    :raises OutboundError: the last redirect leads to an earlier URL.
    """
    urls = [first, *(url for _, url in hops)]
    begins = urls.index(urls[-1])
    if begins < len(hops):
        # Of each URL 200 characters are shown, as there may be several.
        circle = " to ".join(url[:200] for url in urls[begins:])
        raise OutboundError(f"its redirects lead in circles: {circle}")


class LiteralURL(EncodedURL):
    """A URL whose host may be an IPv6 address, which hyperlink would encode like a name."""

    def to_uri(self) -> EncodedURL:
        if ":" in self.host:
            return self.replace(host="h").to_uri().replace(host=self.host)
        return super().to_uri()


class WrittenURL(EncodedURL):
    """A URL that is already encoded for a request, given to treq as it is.

    To parse and encode the URL again would be half of treq's work.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def to_uri(self) -> EncodedURL:
        return self

    def to_text(self, with_password: bool = False) -> str:
        return self._text


def _encoded(url: str) -> str:
    """A URL with all characters encoded that a request must not contain."""
    try:
        uri = LiteralURL.from_text(url).to_uri().to_text()
    except ValueError as error:
        raise AddressRefused(f"it is not a URL: {error}") from error
    # hyperlink leaves these characters as they are.
    return quote(uri, safe=printable.translate(dict.fromkeys(map(ord, '"<>\\^`{|} '))))
