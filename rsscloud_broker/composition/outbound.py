"""Makes the clients with which the broker calls other servers; ``tap`` calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen
from msgspec.structs import replace
from twisted.python.filepath import FilePath

from rsscloud_broker import __version__
from rsscloud_broker.config import Config, Network
from rsscloud_broker.interfaces import IClock, ITopicFetcher
from rsscloud_broker.outbound import (
    AddressGuard,
    AnswerBudget,
    CallbackClient,
    Resolver,
    TLSContext,
    TopicClient,
    TopicFetcher,
    URLPolicy,
)
from rsscloud_broker.outbound.couriers.crew import Crew
from rsscloud_broker.outbound.couriers.fetching import CourierFetcher
from rsscloud_broker.outbound.couriers.messages import Setup, TopicRules
from rsscloud_broker.outbound.guard import own_listeners
from rsscloud_broker.outbound.own_topics import OwnTopics
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.util.threads import Workers

#: The deadline in seconds of a call to a callback, and how many bytes of its answer are read.
CALLBACK_DEADLINE, CALLBACK_BODY = 15.0, 64 * 1024
#: The deadline in seconds of a fetch.
TOPIC_DEADLINE = 30.0


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
            self.crew.read_by(replace(self.crew.rules, allowed=[*map(str, networks)]))

    def change_body_limit(self, limit: int) -> None:
        """Read contents of up to so many bytes."""
        self.client.change_body_limit(limit)
        if self.crew is not None:
            self.crew.read_by(replace(self.crew.rules, body_limit=limit))


@frozen
class OutboundParts:
    """The parts that call other servers, or say whether they may be called.

    :ivar callbacks: calls callbacks.
    :ivar topics: calls the servers of topics for all but readings.
    :ivar topic_clients: that client, and what couriers read topics with.
    :ivar callback_policy: says which URLs of callbacks the broker refuses.
    :ivar fetcher: fetches topics, also the broker's own ones.
    """

    resolver: Resolver
    callbacks: CallbackClient | Crew
    topics: TopicClient
    topic_clients: TopicClients
    callback_policy: URLPolicy
    fetcher: OwnTopics


def make_outbound(
    config: Config,
    reactor: Any,
    clock: IClock,
    public_directory: FilePath[str],
    filing: Workers,
    decoding: Workers,
    blocks: Blocks,
) -> OutboundParts:
    """Make the clients.

    :param public_directory: the files of the broker's own topics.
    :param filing: reads those files.
    :param decoding: decodes compressed answers.
    :param blocks: says which hosts an administrator has blocked.
    """
    product = f"rsscloud-broker/{__version__}"
    user_agent = f"{product} (+{config.address})"
    resolver = Resolver(reactor, config.egress.name_servers)
    tls = TLSContext()
    own = tuple(own_listeners(config.all_listen))
    callback_guard = AddressGuard(config.egress.callback_networks, own, blocks)
    topic_guard = AddressGuard(config.egress.topic_networks, own, blocks)
    budget = AnswerBudget.of_topics(config.topics.body_limit, reactor.callFromThread)
    topics = TopicClient(
        reactor,
        resolver,
        topic_guard,
        tls,
        user_agent=user_agent,
        deadline=TOPIC_DEADLINE,
        body_limit=config.topics.body_limit,
        budget=budget,
        in_thread=decoding,
        blocks=blocks,
    )
    callbacks: CallbackClient | Crew
    fetcher: ITopicFetcher
    crew: Crew | None = None
    if processes := config.delivery.couriers:
        setup = Setup(
            user_agent=user_agent,
            name_servers=[*config.egress.name_servers],
            own=[*own],
            deadline=CALLBACK_DEADLINE,
            body_limit=CALLBACK_BODY,
        )
        rules = TopicRules(
            product=product,
            page=config.address,
            deadline=TOPIC_DEADLINE,
            body_limit=config.topics.body_limit,
            allowed=[*map(str, config.egress.topic_networks)],
        )
        crew = Crew(reactor, clock, processes, setup, config.egress.allow_callbacks, rules)
        callbacks = crew
        fetcher = CourierFetcher(crew, budget)
        blocks.follow(crew.block)
    else:
        callbacks = CallbackClient(
            reactor,
            resolver,
            callback_guard,
            tls,
            user_agent=user_agent,
            deadline=CALLBACK_DEADLINE,
            body_limit=CALLBACK_BODY,
            budget=AnswerBudget.of_callbacks(),
            blocks=blocks,
        )
        fetcher = TopicFetcher(topics, clock, product, config.address, budget)
    return OutboundParts(
        resolver=resolver,
        callbacks=callbacks,
        topics=topics,
        topic_clients=TopicClients(topics, crew),
        callback_policy=URLPolicy(resolver, callback_guard, reactor),
        fetcher=OwnTopics(
            fetcher,
            URLPolicy(resolver, topic_guard, reactor),
            config.address,
            public_directory,
            filing,
        ),
    )
