"""What a courier runs: ``python -m rsscloud_broker.courier_process DESCRIPTOR``.

The broker starts it, and hands it one end of a pair of connected sockets as a descriptor.  It ends
when the broker closes the other end, or dies.  It does nothing for anybody before it is confined:
see ``couriers.confinement``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from socket import AF_UNIX
from typing import Any, Final

from twisted.internet.protocol import Factory
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogBeginner
from zope.interface import implementer

from rsscloud_broker.admin_records import Block
from rsscloud_broker.blocks import Blocks
from rsscloud_broker.couriers.carrying import Carrier
from rsscloud_broker.couriers.confinement import Confinement
from rsscloud_broker.couriers.link import Link
from rsscloud_broker.couriers.messages import FromBroker, FromCourier, Said, Setup
from rsscloud_broker.outbound import (
    AddressGuard,
    AnswerBudget,
    CallbackClient,
    Resolver,
    TLSContext,
)
from rsscloud_broker.timing import use_monotonic_timers

#: The longest line that a courier logs, in characters.
_MAX_LINE: Final = 1000


def run(descriptor: int, reactor: Any, confinement: Confinement) -> None:
    """Carry requests out until the broker closes the connection."""
    use_monotonic_timers(reactor)
    blocks = Blocks()

    def make(setup: Setup) -> CallbackClient:
        resolver = Resolver(reactor, setup.name_servers)
        client = CallbackClient(
            reactor,
            resolver,
            AddressGuard((), setup.own, blocks),
            TLSContext(),
            user_agent=setup.user_agent,
            deadline=setup.deadline,
            body_limit=setup.body_limit,
            budget=AnswerBudget.of_callbacks(),
            blocks=blocks,
        )
        resolver.startService()
        client.startService()
        return client

    def block(hosts: Sequence[tuple[str, str]]) -> None:
        blocks.change(Block("host", host, reason, "", 0.0) for host, reason in hosts)

    carrier = Carrier(make, block, confinement.outdated)
    link: Link[FromCourier, FromBroker] = Link(
        reactor, FromBroker, carrier.take, lambda why: reactor.stop(), carrier.refuse
    )
    carrier.link = link
    for problem in confinement.problems:
        link.send(Said(problem))
    globalLogBeginner.beginLoggingTo([_Telling(link)], redirectStandardIO=False)
    reactor.adoptStreamConnection(descriptor, AF_UNIX, Factory.forProtocol(lambda: link))
    os.close(descriptor)
    reactor.run(installSignalHandlers=False)


@implementer(ILogObserver)
class _Telling:
    """Sends what goes wrong to the broker, whose log has it."""

    def __init__(self, link: Link[FromCourier, FromBroker]) -> None:
        self._link = link

    def __call__(self, event: LogEvent) -> None:
        if event["log_level"] >= LogLevel.warn:
            self._link.send(Said(formatEvent(event)[:_MAX_LINE]))


def main() -> None:
    """Run a courier on the descriptor that is named on the command line."""
    from twisted.internet import reactor  # noqa: PLC0415 # the process is made for it

    os.chdir("/")
    run(int(sys.argv[1]), reactor, Confinement())


if __name__ == "__main__":
    main()
