"""Makes the clients with which the broker calls other servers; ``tap`` calls it."""

from __future__ import annotations

from typing import Any

from attrs import frozen
from twisted.python.filepath import FilePath

from rsscloud_broker import __version__
from rsscloud_broker.blocks import Blocks
from rsscloud_broker.config import Config
from rsscloud_broker.couriers.crew import Crew
from rsscloud_broker.couriers.messages import Setup
from rsscloud_broker.interfaces import IClock
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
from rsscloud_broker.outbound.guard import own_listeners
from rsscloud_broker.own_topics import OwnTopics
from rsscloud_broker.workers import Workers

#: The deadline in seconds of a call to a callback, and how many bytes of its answer are read.
CALLBACK_DEADLINE, CALLBACK_BODY = 15.0, 64 * 1024
#: The deadline in seconds of a fetch.
TOPIC_DEADLINE = 30.0


@frozen
class OutboundParts:
    """The parts that call other servers, or say whether they may be called.

    :ivar callbacks: calls callbacks.
    :ivar topics: calls the servers of topics.
    :ivar callback_policy: says which URLs of callbacks the broker refuses.
    :ivar fetcher: fetches topics, also the broker's own ones.
    """

    resolver: Resolver
    callbacks: CallbackClient | Crew
    topics: TopicClient
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
    if processes := config.delivery.couriers:
        setup = Setup(
            user_agent=user_agent,
            name_servers=[*config.egress.name_servers],
            own=[*own],
            deadline=CALLBACK_DEADLINE,
            body_limit=CALLBACK_BODY,
        )
        callbacks = Crew(reactor, clock, processes, setup, config.egress.allow_callbacks)
        blocks.follow(callbacks.block)
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
    return OutboundParts(
        resolver=resolver,
        callbacks=callbacks,
        topics=topics,
        callback_policy=URLPolicy(resolver, callback_guard, reactor),
        fetcher=OwnTopics(
            TopicFetcher(topics, clock, product, config.address, budget),
            URLPolicy(resolver, topic_guard, reactor),
            config.address,
            public_directory,
            filing,
        ),
    )
