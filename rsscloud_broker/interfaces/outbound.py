"""Calls to the servers of other people: requests, topics, and which URLs are refused."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from attrs import field, frozen
from zope.interface import Interface

from rsscloud_broker.model import Fetched, Validators


@frozen
class OutboundReply:
    """What somebody else's server answered.

    :ivar headers: names in lower case; the last of several values.
    :ivar body: at most as many bytes as were allowed.
    :ivar url: where the answer came from, after redirects.
    :ivar hops: the redirects that were followed: the status of each, and where it led.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    url: str
    hops: tuple[tuple[int, str], ...] = ()

    @property
    def success(self) -> bool:
        """Whether the status is in 200-299."""
        return 200 <= self.status <= 299


class IOutbound(Interface):
    """Makes guarded HTTP requests, each under one deadline."""

    def request(
        method: str,
        url: str,
        headers: Mapping[str, str] = ...,
        body: bytes = ...,
        redirects: int = ...,
    ) -> Awaitable[OutboundReply]:
        """Make one request and read its answer.

        :param redirects: how many redirects are followed, with the same method
            and body.  Beyond that the redirect itself is the answer.
        :raises OutboundError: no answer: the address is refused, the name does
            not resolve, nothing connects, the deadline passed, the body is
            larger than allowed, or the answer is not HTTP.
        :raises Unavailable: no connection can be made, for want of our own means.
        """


class IURLPolicy(Interface):
    """Says which URLs the broker calls, without calling them."""

    def check(url: str) -> Awaitable[None]:
        """Return, unless the broker would never call a URL.

        A name that does not resolve now says nothing of that.

        :raises AddressRefused: for its form, or where it leads.
        """


class ITopicFetcher(Interface):
    """Reads topics."""

    def fetch(url: str, known: Validators = ..., subscribers: int = ...) -> Awaitable[Fetched]:
        """Read the bytes at a URL, unless they are those that are known.

        :param known: the validators of what was read before.
        :param subscribers: how many want to be told of changes, for its publisher to know.
        :raises TopicUnreadable: there is no 2xx answer with a body in bounds.
        :raises errors.TopicEnded: its server says that it is gone for good.
        """
