"""The ResourceSync front door: a hub for other sources, and the broker's own documents.

A source pushes a framework notification or a change notification to its hub, and the hub
sends the same bytes, Content-Type and links to the subscribers of the topic::

    POST /websub
    Content-Type: application/xml
    Authorization: Bearer TOKEN
    Link: <http://source.example/framework/>; rel="self",
          <http://broker.example/websub>; rel="hub",
          <http://source.example/capabilitylist.xml>; rel="resourcesync"

    <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" ...

A source may use any path of the hub, or ``/resourcesync``.  The broker cannot check a
notification by fetching the topic.  So only publishers that the operator has named may push,
each for the topics whose URLs begin with a given prefix, and the broker never fetches those
topics.

====  =============================================================================
202   accepted; the text has warnings about the notification
400   the notification breaks a rule, which the text names
401   the publisher's token is missing or wrong
403   nobody may publish that topic, or not from that address; or either is blocked
415   the body is not XML
====  =============================================================================

The broker's own documents are files that the ``resourcesync`` sink writes.  They begin at
``/.well-known/resourcesync``.

Source: ResourceSync Framework Notification, sections 4.1 and 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hmac import compare_digest
from ipaddress import ip_network
from typing import Final

from attrs import evolve, field, frozen
from attrs.validators import deep_iterable
from twisted.logger import Logger
from twisted.web.server import Request
from zope.interface import implementer

from rsscloud_broker.config.validators import is_network, is_token
from rsscloud_broker.front_doors.change_lists import PublishedFile
from rsscloud_broker.http import requests
from rsscloud_broker.http.answering import Answers
from rsscloud_broker.interfaces import FrontDoorParts, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.model import Content
from rsscloud_broker.outbound.own_topics import RESOURCESYNC_DOCUMENTS
from rsscloud_broker.policy.addresses import within
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire import links
from rsscloud_broker.wire import resourcesync as codec
from rsscloud_broker.wire.web_address import MAX_URL

log = Logger()

_XML: Final = frozenset({"application/xml", "text/xml"})
_MINUTE: Final = b"public, max-age=60"

_CONTENT_TYPE: Final = re.compile(r"[\t\x20-\x7e]{1,255}")

#: Section 4.1 of the specification requires this link.  Published sources omit it, and the broker
#: does not need it, so its absence is only a warning.
_NO_CAPABILITY_LIST: Final = (
    "the Link header has no link with rel=resourcesync, so subscribers do not learn where the "
    "capability list is"
)

#: Characters of the Link header.  The broker sends it on to subscribers, and some servers refuse
#: requests with a line of more than 8 KiB.
MAX_LINK: Final = 8000


def _check_topic(_: object, __: object, text: str) -> None:
    """Check the option ``topic``; ValueError unless it is a web address with a whole host."""
    if not links.is_absolute(text) or text.count("/") < 3:
        raise ValueError(
            f"'topic' is {text!r}; it must be the beginning of URLs with a whole host, "
            'such as "https://source.example/"'
        )


@frozen
class AllowedPublisher:
    """A publisher that may push notifications: it must send its token, from its networks.

    :ivar topic: the prefix of the URLs of its topics, which the broker never fetches.
    :ivar token: the token that it sends as ``Authorization: Bearer TOKEN``; empty for none.
    :ivar networks: the networks (CIDRs) that it sends from; empty for any.
    """

    topic: str = field(validator=_check_topic)
    token: str = field(default="", repr=False, validator=is_token)
    networks: tuple[str, ...] = field(default=(), validator=deep_iterable(is_network))

    def __attrs_post_init__(self) -> None:
        if not self.token and not self.networks:
            raise ValueError("a publisher needs a token or networks, or both")

    def sends_from(self, address: str) -> bool:
        """Whether the publisher may send from an address."""
        return not self.networks or within(address, [ip_network(net) for net in self.networks])

    def knows(self, token: str) -> bool:
        """Whether a token is the right one, compared in constant time."""
        return not self.token or compare_digest(self.token.encode(), token.encode())


@frozen
class ResourceSyncOptions:
    """Options of the ResourceSync front door.

    :ivar publishers: the publishers that may push notifications; without any, nobody may.
    """

    publishers: tuple[AllowedPublisher, ...] = ()


def pushed_prefixes(
    options: ResourceSyncOptions, public_url: str, has_hub: bool
) -> tuple[str, ...]:
    """The URL prefixes of the topics whose content publishers push; see ``IPushesContent``."""
    return tuple(each.topic for each in options.publishers)


@implementer(IFrontDoor)
class ResourceSyncDoor(RoutesOnly):
    """Takes notifications of ResourceSync sources, and serves the broker's own documents."""

    name = "resourcesync"

    def __init__(self, options: ResourceSyncOptions, parts: FrontDoorParts) -> None:
        self._broker = parts.broker
        self._publishers = tuple(
            evolve(each, topic=normal_form(each.topic)) for each in options.publishers
        )
        self._hubs = [parts.public_url + path for path in links.HUB_PATHS]
        self._documents = [
            Route(path, "GET", PublishedFile(parts, path, _MINUTE))
            for path in RESOURCESYNC_DOCUMENTS
        ]

    def routes(self) -> Sequence[Route]:
        intake = Answers(self._take_notification)
        shared = [Route(path, "POST", intake, content_types=_XML) for path in links.HUB_PATHS]
        return [*shared, Route("/resourcesync", "POST", intake), *self._documents]

    async def _take_notification(self, request: Request) -> bytes:
        """Check a notification and distribute it; the answer lists warnings about it."""
        link, topic, warnings = self._read_links(request)
        self._authorize(request, topic)
        notification = _read_notification(request)
        content = Content(requests.body_of(request), requests.header(request, "content-type"), link)
        wanted = await self._broker.push_content(topic, content, requests.client_address(request))
        lines = ["The notification was accepted."]
        if not wanted:
            lines.append(f"Nobody has subscribed to {topic} now.")
        for warning in (*warnings, *codec.warnings(notification)):
            log.warn("A notification of {topic} is odd: {why}", topic=topic, why=warning)
            lines.append(f"Warning: {warning}")
        return requests.plain(request, 202, "\n".join(lines))

    def _read_links(self, request: Request) -> tuple[str, str, tuple[str, ...]]:
        """Check the Content-Type and the Link header of a notification.

        :returns: the value of the Link header, the topic that it names, and warnings about it.
        :raises RequestError: the Content-Type or a link breaks a rule.
        """
        content_type = requests.header(request, "content-type")
        if requests.media_type(request) not in _XML or not _CONTENT_TYPE.fullmatch(content_type):
            raise requests.RequestError(415, "Send the notification as application/xml.")
        value = requests.header(request, "link")
        if not request.requestHeaders.hasHeader("link"):
            raise requests.RequestError(
                400,
                "There is no Link header; it must hold rel=self and rel=hub, and should hold "
                "rel=resourcesync.",
            )
        if len(value) > MAX_LINK:
            raise requests.RequestError(
                400,
                f"The Link header has {len(value)} characters; {MAX_LINK} at most can be sent on.",
            )
        try:
            found = links.parse(value)
        except links.MalformedLink as error:
            raise requests.RequestError(400, f"The request cannot be used: {error}.") from error
        topic = _only_url(found, "self", "the topic")
        has_list = bool(links.targets(found, "resourcesync"))
        if has_list:
            _only_url(found, "resourcesync", "the capability list")
        hubs = links.targets(found, "hub")
        if not set(self._hubs).intersection(map(normal_form, hubs)):
            raise requests.RequestError(
                400,
                f"The Link header must have a link with rel=hub to this hub, "
                f"{self._hubs[0]} for instance; it has {', '.join(hubs) or 'none'}.",
            )
        return value, topic, () if has_list else (_NO_CAPABILITY_LIST,)

    def _authorize(self, request: Request, topic: str) -> None:
        """Check that the caller is a publisher of a topic.

        :raises RequestError: the topic has no publisher, or the caller's address or token is wrong.
        """
        url = normal_form(topic)
        of_topic = [each for each in self._publishers if url.startswith(each.topic)]
        if not of_topic:
            raise requests.RequestError(
                403, f"Nobody may publish {topic} here: ask the operator of the hub."
            )
        address = requests.client_address(request)
        of_address = [each for each in of_topic if each.sends_from(address)]
        if not of_address:
            raise requests.RequestError(
                403, f"{topic} may not be published from the address {address}."
            )
        token = requests.bearer_token(request)
        if not any(each.knows(token) for each in of_address):
            raise requests.RequestError(
                401,
                f"To publish {topic}, send its publisher's token: Authorization: Bearer TOKEN",
                www_authenticate='Bearer realm="resourcesync"',
            )


def _read_notification(request: Request) -> codec.ResourceDocument:
    """The notification in the body; a refusal if it breaks a rule."""
    try:
        return codec.decode_notification(requests.body_of(request), requests.charset(request))
    except codec.InvalidDocument as error:
        raise requests.RequestError(400, f"The notification cannot be used: {error}.") from error


def _only_url(found: Sequence[links.WebLink], relation: str, meaning: str) -> str:
    """The one URL to which the links of a relation lead.

    :param meaning: what the link leads to, for the message.
    :raises RequestError: there is no such link, there are several, or the URL is not absolute.
    """
    urls = links.targets(found, relation)
    if len(urls) != 1:
        raise requests.RequestError(
            400,
            f"The Link header must have exactly one link with rel={relation}, {meaning}; "
            f"it has {len(urls)}.",
        )
    if not links.is_absolute(urls[0]) or len(urls[0]) > MAX_URL:
        raise requests.RequestError(
            400,
            f"The link with rel={relation} leads to {urls[0][:100]}; it must be an absolute "
            f"http or https URL of {MAX_URL} characters at most.",
        )
    return urls[0]
