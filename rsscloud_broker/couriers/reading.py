"""The courier's side of readings: reads topics, and says of them what the broker wants to know.

The courier decompresses a content, computes its digest and parses it.  The content itself goes to
the broker only if somebody there needs it.  What its feed says comes after the rest, so that
subscribers are notified although a feed takes long to be parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Protocol, TypeAlias, TypeVar

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime

from rsscloud_broker.couriers.link import Link
from rsscloud_broker.couriers.messages import (
    MAX_TEXT,
    Failed,
    FeedRead,
    FromBroker,
    FromCourier,
    Read,
    ReadDone,
    Said,
    TopicRules,
    Unread,
)
from rsscloud_broker.errors import TopicEnded, TopicUnreadable, Unavailable
from rsscloud_broker.interfaces import ITopicFetcher
from rsscloud_broker.model import Content, Need, Validators
from rsscloud_broker.readings import Fetched, Wanted, as_wanted
from rsscloud_broker.wire.feed_facts import FeedFacts

T = TypeVar("T")

Facts: TypeAlias = FeedFacts | str | None


class TopicServers(Protocol):
    """What calls the servers of topics: ``TopicClient``."""

    @property
    def idle(self) -> int: ...

    def allow(self, networks: Iterable[IPv4Network | IPv6Network]) -> None: ...
    def change_body_limit(self, limit: int) -> None: ...


@frozen
class Means:
    """What a courier reads topics with.

    :ivar client: calls their servers.
    :ivar fetcher: fetches topics by the client.
    """

    client: TopicServers
    fetcher: ITopicFetcher


def watched(
    in_thread: Callable[..., Deferred[T]],
    clock: IReactorTime,
    seconds: float,
    overdue: Callable[[], object],
) -> Callable[..., Deferred[T]]:
    """Call functions in a thread, and notice when one takes too long.

    :param seconds: how long one may take.
    :param overdue: is called when one takes longer.
    :returns: what takes the place of ``in_thread``.
    """

    def call(*args: Any) -> Deferred[T]:
        watching = clock.callLater(seconds, overdue)

        def finished(result: T) -> T:
            if watching.active():
                watching.cancel()
            return result

        return in_thread(*args).addBoth(finished)

    return call


class Reader:
    """Reads topics for one broker.

    :param make: makes what it reads with, by the first rules.
    :param parse: parses a content of a topic as a feed; None if it was skipped.
    """

    def __init__(
        self,
        make: Callable[[TopicRules], Means],
        parse: Callable[[str, Content], Deferred[Facts]],
    ) -> None:
        self._make = make
        self._parse = parse
        self._means: Means | None = None

    @property
    def idle(self) -> int:
        """How many connections are kept open for further readings."""
        return self._means.client.idle if self._means else 0

    def follow(self, rules: TopicRules) -> None:
        """Read topics by these rules from now on."""
        if self._means is None:
            self._means = self._make(rules)
        else:
            self._means.client.allow(map(ip_network, rules.allowed))
            self._means.client.change_body_limit(rules.body_limit)

    async def read(self, asked: Read, link: Link[FromCourier, FromBroker]) -> None:
        """Read a topic, and say what was found."""
        try:
            await self._read(asked, link)
        except CancelledError:
            return  # nobody waits for it
        except TopicUnreadable as error:
            ended = isinstance(error, TopicEnded)
            link.send(Unread(asked.number, error.reason, ended, error.refused, error.lasting))
        except Unavailable as error:
            link.send(Failed(asked.number, type(error).__name__, str(error)))
        except Exception as error:  # a bug: this reading fails, and the others go on
            link.send(Said(f"reading {asked.url}: {error!r}"))
            link.send(Failed(asked.number, "Unavailable", f"a courier failed: {error!r}"))

    async def _read(self, asked: Read, link: Link[FromCourier, FromBroker]) -> None:
        assert self._means is not None  # the broker sends ``TopicRules`` first
        known = Validators(asked.etag, asked.last_modified)
        wanted = Wanted(Need(asked.need), asked.digest, asked.size)
        fetched = await self._means.fetcher.fetch(asked.url, known, asked.subscribers, wanted)
        brought = as_wanted(fetched, wanted)
        if brought.content is not None:
            await link.until_there_is_room()
        has_changed = (brought.digest, brought.size) != (asked.digest, asked.size)
        inspected = fetched.content if has_changed else None
        link.send(
            _done(asked.number, brought, inspected is not None),
            len(brought.content.body) if brought.content else 0,
        )
        if inspected is not None:
            await link.until_handed_over()  # the feed may be one that ends the process
            facts = self._parse(asked.url, inspected)
            facts.addCallback(lambda said: link.send(FeedRead(asked.number, said)))


def _done(number: int, brought: Fetched, inspected: bool) -> ReadDone:
    content = brought.content
    return ReadDone(
        number,
        brought.digest,
        brought.size,
        None if content is None else content.body,
        "" if content is None else content.content_type[:MAX_TEXT],
        brought.validators.etag,
        brought.validators.last_modified,
        brought.moved_to,
        brought.fresh_seconds,
        brought.result,
        inspected,
    )
