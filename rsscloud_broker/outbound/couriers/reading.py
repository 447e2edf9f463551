"""The courier's side of readings: reads topics, and says of them what the broker wants to know.

The courier decompresses a content and computes its digest.  The content itself goes to the broker
only if it has changed, or if somebody there needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_network

from rsscloud_broker.errors import EndedTopic, TopicUnreadable
from rsscloud_broker.interfaces import ITopicFetcher
from rsscloud_broker.model.fetching import Fetched, as_wanted
from rsscloud_broker.outbound.couriers.link import Link
from rsscloud_broker.outbound.couriers.messages import (
    MAX_TEXT,
    FromBroker,
    FromCourier,
    Read,
    ReadDone,
    TopicRules,
    Unread,
)
from rsscloud_broker.outbound.topic_client import TopicClient


class Reader:
    """Reads topics for one broker.

    :param make: makes the client of topics, and what fetches by it, by the first rules.
    """

    def __init__(self, make: Callable[[TopicRules], tuple[TopicClient, ITopicFetcher]]) -> None:
        self._make = make
        self._client: TopicClient | None = None  # until the first rules come
        self._fetcher: ITopicFetcher

    @property
    def idle_connections(self) -> int:
        """How many connections are kept open for further readings."""
        return self._client.idle if self._client else 0

    def obey(self, rules: TopicRules) -> None:
        """Read topics by these rules from now on."""
        if self._client is None:
            self._client, self._fetcher = self._make(rules)
        else:
            self._client.allow(map(ip_network, rules.allowed))
            self._client.change_body_limit(rules.body_limit)

    async def read(self, asked: Read, link: Link[FromCourier, FromBroker]) -> None:
        """Read a topic, and send the broker what was found, or why it could not be read."""
        try:
            # The broker sends ``TopicRules`` first, so there is a fetcher.
            fetched = await self._fetcher.fetch(
                asked.url, asked.known, asked.subscribers, asked.wanted
            )
        except TopicUnreadable as error:
            ended = isinstance(error, EndedTopic)
            link.send(
                Unread(
                    asked.number,
                    error.reason,
                    ended,
                    error.refused,
                    error.lasting,
                    error.retry_after,
                )
            )
            return
        brought = as_wanted(fetched, asked.wanted)
        if brought.content is not None:
            await link.until_there_is_room()
        size = len(brought.content.body) if brought.content else 0
        link.send(_read_done(asked.number, brought), size)


def _read_done(number: int, brought: Fetched) -> ReadDone:
    """The message to the broker that says what was fetched."""
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
    )
