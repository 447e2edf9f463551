"""The broker's side: a crew of couriers that looks like one client of callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final
from zlib import crc32

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.interfaces import (
    IClock,
    INotifyingOutbound,
    OutboundReply,
    OutboundRequest,
)
from rsscloud_broker.model import Notification, Outcome, host_of
from rsscloud_broker.model.administration import Block
from rsscloud_broker.outbound.couriers import confinement, system_calls
from rsscloud_broker.outbound.couriers.courier import Courier
from rsscloud_broker.outbound.couriers.fork_server import PARSER, ForkServer
from rsscloud_broker.outbound.couriers.limits import Limits
from rsscloud_broker.outbound.couriers.link import BESIDES_LAST_BODY
from rsscloud_broker.outbound.couriers.messages import (
    Blocked,
    FromBroker,
    Networks,
    Setup,
    TopicRules,
)
from rsscloud_broker.outbound.couriers.spawning import COMMAND
from rsscloud_broker.util.deferreds import BreakOff, Done

#: How topics are read if nobody says so.
DEFAULT_RULES: Final = TopicRules()

#: For each megabyte of ``[topics] body_limit`` beyond the usual ones, a courier may use this many
#: megabytes more: bodies that arrive, wait and are kept, twice each; and what crosses.
USUAL: Final = 16
FOR_LARGE: Final = 16


@implementer(INotifyingOutbound)
class Crew(Service):
    """Hands each request to the courier of its host.

    One host belongs to one courier, where its kept connections and TLS sessions are.

    :param processes: how many couriers there are.
    :param setup: what couriers are sent first.
    :param networks: the networks (CIDRs) that may be called beside public addresses.
    :param rules: how topics are read.
    :param command: see ``ForkServer``.
    """

    name = "couriers"
    log = Logger()

    def __init__(
        self,
        reactor: Any,
        clock: IClock,
        processes: int,
        setup: Setup,
        networks: Iterable[str],
        rules: TopicRules = DEFAULT_RULES,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._reactor = reactor
        self._clock = clock
        self._forks = ForkServer(reactor, command)
        self._setup = setup
        self._rules = rules
        self._largest = max(setup.body_limit, rules.body_limit)  # of all limits until now
        self._networks = Networks([*networks])
        self._blocked = Blocked([])
        self.couriers = [self._make_courier(number) for number in range(processes)]

    def _make_courier(self, number: int) -> Courier:
        return Courier(
            number,
            self._reactor,
            self._clock,
            self._greeting,
            self._forks.spawn,
            self._limits,
        )

    def _greeting(self) -> list[FromBroker]:
        """The messages that every new process of a courier gets first."""
        return [self._setup, self._networks, self._rules, self._blocked]

    def _limits(self) -> Limits:
        """When couriers are replaced: they need more memory for large contents.

        A content that is on its way when ``body_limit`` is lowered may still come.
        """
        more = FOR_LARGE * max(0, self._rules.body_limit // 2**20 - USUAL)
        longest = max(self._setup.deadline, self._rules.deadline)
        return Limits(
            megabytes=Limits().megabytes + more,
            # A courier has 30 seconds for an answer beyond the longest deadline: it may have to
            # wait for memory, and for the broker to read.
            answer=longest + 30.0,
            frame=self._largest + BESIDES_LAST_BODY,
        )

    def startService(self) -> None:
        super().startService()
        if fault := confinement.fault():
            self.log.warn("Couriers can read the files that the broker can: {fault}.", fault=fault)
        if fault := system_calls.fault():
            self.log.warn(
                "Couriers can change the modes of files and start processes: {fault}.", fault=fault
            )
        for courier in self.couriers:
            courier.start()

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await DeferredList([Deferred.fromCoroutine(each.stop()) for each in self.couriers])
        await self._forks.stop()

    def spawn_parser(self, descriptor: int, exited: Callable[[str], object]) -> tuple[Any, Any]:
        """Start the process of a parser: see ``spawning.spawn``."""
        return self._forks.spawn(descriptor, exited, PARSER)

    @property
    def under_way(self) -> int:
        """How many requests are under way."""
        return sum(each.under_way for each in self.couriers)

    @property
    def idle(self) -> int:
        """How many connections are kept open for further requests."""
        return sum(each.idle for each in self.couriers)

    def allow(self, networks: Iterable[object]) -> None:
        """Have these networks called from now on, beside public addresses, and no others."""
        self._networks = Networks([str(network) for network in networks])
        self._send_to_all(self._networks)

    def block(self, blocks: Iterable[Block]) -> None:
        """Have these hosts and topics not called from now on, and no others."""
        self._blocked = Blocked(
            [(one.kind, one.object, one.reason) for one in blocks if one.kind != "source"]
        )
        self._send_to_all(self._blocked)

    @property
    def readings(self) -> int:
        """How many topics are being read."""
        return sum(each.readings for each in self.couriers)

    @property
    def idle_topics(self) -> int:
        """How many connections are kept open for further readings."""
        return sum(each.idle_topics for each in self.couriers)

    def change_rules(self, rules: TopicRules) -> None:
        """Have topics read by these rules from now on."""
        self._rules = rules
        self._largest = max(self._largest, rules.body_limit)
        self._send_to_all(rules)

    @property
    def rules(self) -> TopicRules:
        """How topics are read now."""
        return self._rules

    def _send_to_all(self, message: FromBroker) -> None:
        """Send a message to all couriers; those without a process get it in their greeting."""
        for courier in self.couriers:
            courier.send(message)

    async def request(self, request: OutboundRequest) -> OutboundReply:
        return await self.courier_of(request.url).request(request)

    def notify(self, notification: Notification, done: Done[Outcome]) -> BreakOff:
        return self.courier_of(notification.callback.url).notify(notification, done)

    def courier_of(self, url: str) -> Courier:
        """The courier to which the host of a URL belongs."""
        return self.couriers[crc32(host_of(url).encode()) % len(self.couriers)]
