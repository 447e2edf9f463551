"""The broker's side: a crew of couriers that looks like one client of callbacks, and fetches topics
by the couriers of their hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from zlib import crc32

from attrs import frozen
from msgspec.structs import replace
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.config import Network
from rsscloud_broker.errors import EndedTopic, MemoryUnavailable, TopicUnreadable
from rsscloud_broker.interfaces import (
    IClock,
    INotifyingOutbound,
    ITopicFetcher,
    OutboundReply,
    OutboundRequest,
)
from rsscloud_broker.model import (
    NO_VALIDATORS,
    Content,
    Notification,
    Outcome,
    Validators,
    host_of,
)
from rsscloud_broker.model.administration import Block
from rsscloud_broker.model.fetching import EVERYTHING, Fetched, Wanted
from rsscloud_broker.outbound.budget import NO_MEMORY, AnswerBudget
from rsscloud_broker.outbound.couriers import confinement, system_calls
from rsscloud_broker.outbound.couriers.courier import Courier
from rsscloud_broker.outbound.couriers.fork_server import ForkServer
from rsscloud_broker.outbound.couriers.link import BESIDES_LAST_BODY
from rsscloud_broker.outbound.couriers.messages import (
    Blocked,
    FromBroker,
    Networks,
    Read,
    ReadDone,
    Setup,
    TopicRules,
    Unread,
)
from rsscloud_broker.outbound.couriers.spawning import Limits
from rsscloud_broker.outbound.topic_client import TopicClient
from rsscloud_broker.util.deferreds import BreakOff, Done

#: How topics are read if nobody says so.
DEFAULT_RULES: Final = TopicRules()

#: For each megabyte of ``[topics] body_limit`` beyond the usual ones, a courier may use this many
#: megabytes more: bodies that arrive, wait and are kept, twice each; and what crosses.
USUAL: Final = 16
FOR_LARGE: Final = 16

#: So for each thousand notifications that may be under way beyond the usual ones: each takes 70 KB
#: if the host is silent in the TLS handshake.
USUAL_CALLS: Final = 6_200
FOR_CALLS: Final = 70


@implementer(INotifyingOutbound)
class Crew(Service):
    """Hands each request to the courier of its host.

    One host belongs to one courier, where its kept connections and TLS sessions are.

    :param forks: starts them.
    :param processes: how many couriers there are.
    :param setup: what couriers are sent first.
    :param networks: the networks (CIDRs) that may be called beside public addresses.
    :param rules: how topics are read.
    :param calls: how many notifications may be under way.
    """

    name = "couriers"
    log = Logger()

    def __init__(
        self,
        reactor: Any,
        clock: IClock,
        forks: ForkServer,
        processes: int,
        setup: Setup,
        networks: Iterable[str],
        rules: TopicRules = DEFAULT_RULES,
        calls: int = 0,
    ) -> None:
        self._reactor = reactor
        self._clock = clock
        self._for_calls = FOR_CALLS * max(0, calls - USUAL_CALLS) // 1000
        self._forks = forks
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
            megabytes=Limits().megabytes + more + self._for_calls,
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
        return DeferredList([Deferred.fromCoroutine(each.stop()) for each in self.couriers])

    @property
    def under_way(self) -> int:
        """How many requests are under way."""
        return sum(each.under_way for each in self.couriers)

    @property
    def lateness(self) -> float:
        """The seconds that the busiest courier takes to answer."""
        return max(each.lateness for each in self.couriers)

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


@implementer(ITopicFetcher)
class CourierFetcher:
    """Has couriers fetch topics, and gets from them what is wanted and no more.

    :param memory: counts the contents that couriers send.
    """

    def __init__(self, crew: Crew, memory: AnswerBudget) -> None:
        self._crew = crew
        self._memory = memory

    async def fetch(
        self,
        url: str,
        known: Validators = NO_VALIDATORS,
        subscribers: int = 0,
        wanted: Wanted = EVERYTHING,
    ) -> Fetched:
        """Have the courier of the topic's host fetch it: see ``ITopicFetcher``."""
        reading = self._crew.courier_of(url).read(
            lambda number: Read(number, url, known, subscribers, wanted)
        )
        done = _done_or_raise(url, await reading)
        if done.body is not None and not self._memory.has_capacity(len(done.body)):
            del done  # else the error's traceback would keep the body in memory
            raise MemoryUnavailable(f"{url}: {NO_MEMORY}")
        content = None if done.body is None else Content(done.body, done.content_type)
        if content is not None:
            self._memory.keep(content)
        return Fetched(
            content,
            Validators(done.etag, done.last_modified),
            done.moved_to,
            done.fresh_seconds,
            done.result,
            done.digest,
            done.size,
        )


def _done_or_raise(url: str, done: ReadDone | Unread) -> ReadDone:
    """The answer of a courier, if it could read the topic.

    :raises TopicUnreadable: the topic could not be read.
    """
    if isinstance(done, ReadDone):
        return done
    if done.ended:
        raise EndedTopic(url, done.reason)
    raise TopicUnreadable(
        url,
        done.reason,
        refused=done.refused,
        lasting=done.lasting,
        retry_after=done.retry_after,
    )


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
