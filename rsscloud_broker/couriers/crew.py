"""The broker's side: a crew of couriers that looks like one client of callbacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.admin_records import Block
from rsscloud_broker.couriers import confinement
from rsscloud_broker.couriers.courier import Courier
from rsscloud_broker.couriers.messages import Blocked, FromBroker, Networks, Setup
from rsscloud_broker.direct import BreakOff, Done
from rsscloud_broker.interfaces import IClock, IDirectOutbound, OutboundReply, Signing
from rsscloud_broker.model import host_of


@implementer(IDirectOutbound)
class Crew(Service):
    """Hands each request to the courier of its host.

    One host belongs to one courier, where its kept connections and TLS sessions are.

    :param processes: how many couriers there are.
    :param setup: what couriers are told at first.
    :param networks: the networks (CIDRs) that may be called beside public addresses.
    """

    name = "couriers"
    log = Logger()

    def __init__(
        self, reactor: Any, clock: IClock, processes: int, setup: Setup, networks: Iterable[str]
    ) -> None:
        self._setup = setup
        self._networks = Networks([*networks])
        self._blocked = Blocked([])
        self.couriers = [
            Courier(number, reactor, clock, self._greeting) for number in range(processes)
        ]

    def _greeting(self) -> list[FromBroker]:
        return [self._setup, self._networks, self._blocked]

    def startService(self) -> None:
        super().startService()
        if fault := confinement.fault():
            self.log.warn("Couriers can read the files that the broker can: {fault}.", fault=fault)
        for courier in self.couriers:
            courier.start()

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        return DeferredList([Deferred.fromCoroutine(each.stop()) for each in self.couriers])

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
        self._tell(self._networks)

    def block(self, blocks: Iterable[Block]) -> None:
        """Have these hosts not called from now on, and no others."""
        self._blocked = Blocked([(one.object, one.reason) for one in blocks if one.kind == "host"])
        self._tell(self._blocked)

    def _tell(self, message: FromBroker) -> None:
        for courier in self.couriers:
            courier.send(message)

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        redirects: int = 0,
        signing: Signing | None = None,
    ) -> OutboundReply:
        return await self._of_host(url).request(
            method, url, headers or {}, body, redirects, signing
        )

    def begin(
        self,
        done: Done[OutboundReply],
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        redirects: int,
        signing: Signing | None = None,
    ) -> BreakOff:
        return self._of_host(url).begin(done, method, url, headers, body, redirects, signing)

    def _of_host(self, url: str) -> Courier:
        return self.couriers[crc32(host_of(url).encode()) % len(self.couriers)]
