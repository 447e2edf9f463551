"""All that call the servers of topics, as one: in this process, and in couriers."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen
from msgspec.structs import replace

from rsscloud_broker.config import Network
from rsscloud_broker.outbound.client import TopicClient
from rsscloud_broker.outbound.couriers.crew import Crew


@frozen
class TopicClients:
    """All that call the servers of topics: in this process, and in the couriers if there are any.

    :ivar client: the client of this process.
    :ivar crew: the couriers; None if there are none.
    """

    client: TopicClient
    crew: Crew | None

    @property
    def under_way(self) -> int:
        """How many requests and readings are under way."""
        return self.client.under_way + (self.crew.readings if self.crew else 0)

    @property
    def idle(self) -> int:
        """How many connections are kept open for further ones."""
        return self.client.idle + (self.crew.idle_topics if self.crew else 0)

    def allow(self, networks: Sequence[Network]) -> None:
        """Call these networks from now on, beside public addresses, and no others."""
        self.client.allow(networks)
        if self.crew is not None:
            self.crew.change_rules(replace(self.crew.rules, allowed=[*map(str, networks)]))

    def change_body_limit(self, limit: int) -> None:
        """Read contents of up to this many bytes."""
        self.client.change_body_limit(limit)
        if self.crew is not None:
            self.crew.change_rules(replace(self.crew.rules, body_limit=limit))
