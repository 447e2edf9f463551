"""Runs a courier in its process: see ``composition.courier``.

A courier has one end of a pair of connected sockets.  It ends when the broker closes the other end,
or dies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_network
from socket import AF_UNIX
from typing import Any

from twisted.internet.protocol import Factory
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogBeginner
from zope.interface import implementer

from rsscloud_broker.interfaces import IDirectNotifier, IOutbound
from rsscloud_broker.model.administration import Block
from rsscloud_broker.outbound import (
    AddressGuard,
    AnswerBudget,
    CallbackClient,
    Resolver,
    TLSContext,
    TopicClient,
    TopicFetcher,
)
from rsscloud_broker.outbound.couriers.carrying import Carrier
from rsscloud_broker.outbound.couriers.confinement import Confinement
from rsscloud_broker.outbound.couriers.link import Link
from rsscloud_broker.outbound.couriers.messages import (
    FromBroker,
    FromCourier,
    Said,
    Setup,
    TopicRules,
)
from rsscloud_broker.outbound.couriers.reading import Reader
from rsscloud_broker.outbound.decoding import AT_A_TIME
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.util.clock import SystemClock, use_monotonic_timers
from rsscloud_broker.util.threads import Workers


def run(
    descriptor: int,
    reactor: Any,
    tls: TLSContext,
    confinement: Confinement,
    notifiers: Callable[[IOutbound], Mapping[str, IDirectNotifier]],
) -> None:
    """Carry requests out until the broker closes the connection.

    :param notifiers: makes the notifiers, by protocol, which call by a client.
    """
    use_monotonic_timers(reactor)
    clients = _Clients(reactor, tls)
    reader = Reader(clients.make_topic_client)
    carrier = Carrier(
        clients.make_callback_client, clients.block, reader, notifiers, confinement.outdated
    )
    link: Link[FromCourier, FromBroker] = Link(
        reactor, FromBroker, carrier.take, lambda why: reactor.stop(), carrier.refuse
    )
    carrier.link = link
    for problem in confinement.problems:
        link.send(Said(problem))
    globalLogBeginner.beginLoggingTo([_LogSender(link)], redirectStandardIO=False)
    reactor.adoptStreamConnection(descriptor, AF_UNIX, Factory.forProtocol(lambda: link))
    os.close(descriptor)
    reactor.run(installSignalHandlers=False)


class _Clients:
    """Makes the clients of a courier, as the broker says."""

    def __init__(self, reactor: Any, tls: TLSContext) -> None:
        self._reactor = reactor
        self._blocks = Blocks()
        self._tls = tls
        self._setup: Setup
        self._resolver: Resolver

    def make_callback_client(self, setup: Setup) -> CallbackClient:
        """Make and start the client of callbacks, with a resolver that topics use too."""
        self._setup = setup
        self._resolver = Resolver(self._reactor, setup.name_servers)
        client = CallbackClient(
            self._reactor,
            self._resolver,
            AddressGuard((), setup.own, self._blocks),
            self._tls,
            user_agent=setup.user_agent,
            deadline=setup.deadline,
            body_limit=setup.body_limit,
            budget=AnswerBudget.of_callbacks(),
            blocks=self._blocks,
        )
        self._resolver.startService()
        client.startService()
        return client

    def make_topic_client(self, rules: TopicRules) -> tuple[TopicClient, TopicFetcher]:
        """Make and start the client of topics; it shares names and TLS sessions with the other."""
        reactor, setup = self._reactor, self._setup
        decoding = Workers(reactor, "decoding", AT_A_TIME)
        decoding.startService()
        budget = AnswerBudget.of_topics(rules.body_limit, reactor.callFromThread)
        client = TopicClient(
            reactor,
            self._resolver,
            AddressGuard(map(ip_network, rules.allowed), setup.own, self._blocks),
            self._tls,
            user_agent=setup.user_agent,
            deadline=rules.deadline,
            body_limit=rules.body_limit,
            budget=budget,
            in_thread=decoding,
            blocks=self._blocks,
        )
        client.startService()
        clock = SystemClock(reactor)
        fetcher = TopicFetcher(
            client, clock, rules.product, rules.page, budget, deadline=rules.deadline
        )
        return client, fetcher

    def block(self, blocks: Sequence[tuple[str, str, str]]) -> None:
        """Block these kinds and names, with these reasons, and no others."""
        self._blocks.change(Block(kind, name, reason, "", 0.0) for kind, name, reason in blocks)


@implementer(ILogObserver)
class _LogSender:
    """Sends what goes wrong to the broker, whose log has it."""

    def __init__(self, link: Link[FromCourier, FromBroker]) -> None:
        self._link = link

    def __call__(self, event: LogEvent) -> None:
        if event["log_level"] >= LogLevel.warn:
            self._link.send(Said(formatEvent(event)[:1000]))  # longer lines are cut
