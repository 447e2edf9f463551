"""Reads and writes the cloud elements of a feed, which name the cloud to register with.

RSS 0.92 and 2.0 have an element with five attributes, in the channel::

    <cloud domain="rpc.example.org" port="5337" path="/rsscloud/pleaseNotify"
           registerProcedure="" protocol="http-post" />

``protocol`` is the protocol of the registration; notifications may come by another.
``source:cloud`` (http://source.scripting.com/) gives only the URL, which also says whether to
use https::

    <source:cloud>https://rpc.example.org/rsscloud/pleaseNotify</source:cloud>
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from attrs import frozen
from lxml import etree

from rsscloud_broker.wire import xml
from rsscloud_broker.wire.web_address import fault_of_form

#: The protocols by which a cloud may take registrations.
PROTOCOLS = frozenset({"http-post", "https-post", "xml-rpc", "soap"})

#: The namespace of ``source:cloud``.
SOURCE = "http://source.scripting.com/"


class InvalidCloud(ValueError):
    """A cloud element is invalid, or all of a feed's are.  The text says why."""


@frozen
class Cloud:
    """A cloud: where a subscriber registers, and by what protocol.

    :ivar domain: the host, a name or an address.
    :ivar path: the path at which the cloud answers, perhaps with a query.
    :ivar register_procedure: the procedure that registers, for ``xml-rpc`` and ``soap``; empty if
        the feed names none.
    :ivar protocol: one of ``PROTOCOLS``.
    """

    domain: str
    port: int
    path: str
    register_procedure: str
    protocol: str

    @property
    def url(self) -> str:
        """The URL to register at: https for ``https-post``, or if the port is 443."""
        scheme = "https" if self.protocol == "https-post" or self.port == 443 else "http"
        host = f"[{self.domain}]" if ":" in self.domain else self.domain
        is_default = self.port == (443 if scheme == "https" else 80)
        return f"{scheme}://{host}{'' if is_default else f':{self.port}'}{self.path}"

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of its ``cloud`` element."""
        return {
            "domain": self.domain,
            "port": str(self.port),
            "path": self.path,
            "registerProcedure": self.register_procedure,
            "protocol": self.protocol,
        }


def from_url(url: str) -> Cloud:
    """The cloud that takes registrations as a form at a URL.

    :raises InvalidCloud: the URL is not an absolute http or https URL.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidCloud(f"{url!r} is not a URL: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidCloud(f"{url!r} must begin with http:// or https:// and name a host")
    secure = parts.scheme == "https"
    return Cloud(
        parts.hostname,
        port or (443 if secure else 80),
        (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        "",
        "https-post" if secure else "http-post",
    )


def clouds_of(feed: bytes, charset: str | None = None) -> list[Cloud]:
    """The clouds that a feed (or the head of an OPML list) names.

    Clouds given as a URL come first, since a URL says whether to use https; otherwise they come in
    the order of the document.  If some are valid, the invalid ones are left out.

    :param charset: the charset parameter of the HTTP Content-Type.
    :raises MalformedXML: the feed cannot be read as XML, or has a DOCTYPE, which RSS 0.91 allowed.
    :raises InvalidCloud: the feed names clouds, but all are invalid.
    """
    clouds: list[Cloud] = []
    problems: list[str] = []
    root = xml.parse(feed, charset, max_depth=xml.FEED_DEPTH, max_elements=xml.FEED_ELEMENTS)
    elements = list(_cloud_elements(root))
    elements.sort(
        key=lambda element: not _is_source_cloud(element)
    )  # stable: equals keep their order
    for element in elements:
        try:
            cloud = _read_element(element)
        except InvalidCloud as problem:
            problems.append(str(problem))
            continue
        if cloud not in clouds:
            clouds.append(cloud)
    if problems and not clouds:
        raise InvalidCloud("; ".join(problems))
    return clouds


def encode(cloud: Cloud) -> str:
    """The ``<cloud>`` element for a cloud, to be put into the channel of a feed."""
    named = (f"{name}={quoteattr(text)}" for name, text in cloud.attributes.items())
    return f"<cloud {' '.join(named)} />"


def _cloud_elements(feed: etree._Element) -> Iterator[etree._Element]:
    """The elements called cloud that belong to the feed itself, and not to one of its items."""
    for parent in (feed, *feed):
        if parent is feed or xml.local_name(parent) in {"channel", "head"}:
            yield from (child for child in parent if xml.local_name(child) == "cloud")


def _read_element(element: etree._Element) -> Cloud:
    """The cloud that an element describes; InvalidCloud if the element has a fault."""
    if _is_source_cloud(element):
        return from_url((element.text or "").strip())
    given = {str(name): str(text).strip() for name, text in element.attrib.items()}
    missing = [name for name in ("domain", "port", "path", "protocol") if not given.get(name)]
    if missing:
        raise InvalidCloud(f"the cloud element lacks {', '.join(missing)}")
    cloud = Cloud(
        _domain(given["domain"]),
        _port(given["port"]),
        given["path"] if given["path"].startswith("/") else f"/{given['path']}",
        given.get("registerProcedure", ""),
        _protocol(given["protocol"]),
    )
    if fault := fault_of_form(cloud.url):
        raise InvalidCloud(f"nobody can call the cloud {cloud.url!r}: {fault}")
    return cloud


def _domain(text: str) -> str:
    """The host in a ``domain``, without brackets; InvalidCloud if it is none."""
    domain = text.removeprefix("[").removesuffix("]")
    if any(mark in domain for mark in "/?#@[] ") or not domain.isprintable():
        raise InvalidCloud(f"the cloud's domain {text!r} is not the name or address of a host")
    return domain


def _port(text: str) -> int:
    """The number in a ``port``; InvalidCloud if it is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65536):
        raise InvalidCloud(f"the cloud's port {text!r} is not a number from 1 to 65535")
    return int(text)


def _protocol(text: str) -> str:
    """The protocol in lower case; InvalidCloud if it is unknown."""
    # The specification says that case matters; published feeds do not keep to it.
    protocol = text.lower()
    if protocol not in PROTOCOLS:
        known = ", ".join(sorted(PROTOCOLS))
        raise InvalidCloud(f"the cloud's protocol {text!r} is unknown; there are {known}")
    return protocol


def _is_source_cloud(element: etree._Element) -> bool:
    """Whether an element is ``source:cloud``; feeds write its namespace in several ways."""
    return xml.namespace(element).partition("://")[2].strip("/") == "source.scripting.com"
