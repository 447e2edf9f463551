"""What a courier runs: ``python -m rsscloud_broker.courier_process DESCRIPTOR``.

The broker starts it, and hands it one end of a pair of connected sockets as a descriptor.  It ends
when the broker closes the other end, or dies: signals to the broker's group of processes do not
end it earlier, since the broker may still wait for outcomes.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Sequence
from socket import AF_UNIX
from typing import Any, Final

from twisted.internet.protocol import Factory
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogBeginner
from zope.interface import implementer

from rsscloud_broker.admin_records import Block
from rsscloud_broker.core.blocks import Blocks
from rsscloud_broker.couriers.carrying import Carrier
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

#: Options of ``prctl`` on Linux: a signal at the death of the parent; no more privileges.
_PDEATHSIG: Final = 1
_NO_NEW_PRIVS: Final = 38

#: The longest line that a courier logs, in characters.
_MAX_LINE: Final = 1000


def run(descriptor: int, reactor: Any) -> None:
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

    carrier = Carrier(make, block)
    link: Link[FromCourier, FromBroker] = Link(
        reactor, FromBroker, carrier.take, lambda why: reactor.stop(), carrier.refuse
    )
    carrier.link = link
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


def _confine() -> None:
    """Give up what a courier does not need; end with the broker, whatever it does meanwhile."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)


def main() -> None:
    """Run a courier on the descriptor that is named on the command line."""
    from twisted.internet import reactor  # noqa: PLC0415 # the process is made for it

    _confine()
    run(int(sys.argv[1]), reactor)


if __name__ == "__main__":
    main()
