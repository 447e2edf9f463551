"""The interfaces for outbound HTTP: requests, fetches of topics, and the policy which says what
URLs the broker refuses to call.

The core fetches topics through ``ITopicFetcher``; notifiers call subscribers through
``IOutbound``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from attrs import field
from zope.interface import Attribute, Interface

from rsscloud_broker.model import Notification, Outcome, Validators
from rsscloud_broker.model.fetching import Fetched, Wanted
from rsscloud_broker.model.frozen import frozen


@frozen
class OutboundReply:
    """The response of another server.

    :ivar headers: names in lower case; of several values the last.  A client of topics joins the
        values of headers that are lists, such as Link, with commas (RFC 9110, section 5.3).
    :ivar body: at most as many bytes as were allowed.
    :ivar url: the URL that gave this response, after redirects.
    :ivar hops: the redirects that were followed: the status and the target of each.
    :ivar compressed: whether the body was compressed on its way, and is decompressed here.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    url: str
    hops: tuple[tuple[int, str], ...] = ()
    compressed: bool = False

    @property
    def success(self) -> bool:
        """Whether the status is in 200-299."""
        return 200 <= self.status <= 299


@frozen
class Signing:
    """How the client signs a request: by an HMAC of its body in ``X-Hub-Signature``.

    Source: WebSub, section 7.1.

    :ivar secret: the key of the HMAC.
    :ivar method: ``sha1``, ``sha256``, ``sha384`` or ``sha512``.
    """

    secret: str = field(repr=False)
    method: str


@frozen
class OutboundRequest:
    """A request to another server.

    :ivar headers: by names in lower case.
    :ivar redirects: how many redirects to follow, with the same method and body.  After these a
        redirect is itself the response.
    :ivar signing: how the request is signed; None if it is not.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(factory=dict)
    body: bytes = field(default=b"", repr=False)
    redirects: int = 0
    signing: Signing | None = None


class IOutbound(Interface):
    """Makes guarded HTTP requests, each under one deadline."""

    def request(request: OutboundRequest) -> Awaitable[OutboundReply]:
        """Make one request and read its response.

        :raises OutboundError: there was no response: the address is refused, the name does not
            resolve, no connection was made, the deadline passed, the body is larger than
            allowed, or the response is not HTTP.
        :raises Unavailable: the broker lacks the resources for a connection, such as file
            descriptors.
        """


class IDirectOutbound(IOutbound):
    """An outbound client that can also tell a function of the end of a request.

    For a client whose own work for a request is small, a Deferred for each request costs more than
    the request.
    """

    def begin(
        done: Callable[[OutboundReply | Exception], object], request: OutboundRequest
    ) -> Callable[[], object]:
        """Begin a request; see ``IOutbound.request``.

        :param done: is called once when the request is over, with the response or with the
            exception that ``request`` would raise; perhaps before this returns.
        :returns: a function that breaks the request off, if it is under way.  Then ``done`` is
            called with a ``CancelledError``.
        """


class INotifyingOutbound(IOutbound):
    """An outbound client that makes whole notifications where the bundled notifiers run: couriers.

    What crosses is what a subscriber is notified, and not a request and an answer.
    """

    lateness = Attribute("A float: by how many seconds those who make the calls are late.")

    def notify(
        notification: Notification, done: Callable[[Outcome | Exception], object]
    ) -> Callable[[], object]:
        """Have the notifier of a protocol begin to notify a subscriber.

        :param done: is called once when the notification is over: with its outcome, or with the
            exception that ``IOutbound.request`` would raise.
        :returns: a function that breaks the notification off, if it is under way.  Then ``done`` is
            called with a ``CancelledError``.
        """


class IURLPolicy(Interface):
    """Says which URLs the broker calls, without calling them."""

    def check(url: str) -> Awaitable[None]:
        """Return, unless the broker refuses to call a URL.

        A URL whose host name does not resolve now is not refused.

        :raises AddressRefused: because of the form of the URL, or the address of its host.
        """


class ITopicFetcher(Interface):
    """Fetches topics."""

    def fetch(
        url: str, known: Validators = ..., subscribers: int = ..., wanted: Wanted = ...
    ) -> Awaitable[Fetched]:
        """Fetch the content at a URL, unless it has not changed.

        :param known: the validators of the content fetched before.
        :param subscribers: the number of subscriptions, which the request tells the publisher.
        :param wanted: how much of the content is wanted; the fetcher may bring more.
        :raises TopicUnreadable: there was no 2xx response with a body of an allowed size.
        :raises EndedTopic: the server says that the topic is gone for good.
        :raises Unavailable: the broker lacks what it needs for a fetch just now.
        """
