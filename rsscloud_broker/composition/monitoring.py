"""Composes what lets others watch the broker: metrics, health and the access log.

``tap`` calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from attrs import frozen
from sqlalchemy import make_url
from twisted.application.service import IService

from rsscloud_broker import __version__
from rsscloud_broker.config import Config
from rsscloud_broker.core.bus import EventBus
from rsscloud_broker.counters import Counters
from rsscloud_broker.database.disk_space import DiskSpace
from rsscloud_broker.front_doors.monitoring import ConfiguredToken, MonitoringDoor, TokenCheck
from rsscloud_broker.http.access_log import AccessLog
from rsscloud_broker.http.certificates import Certificate
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.listening import listener
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import IAccounts, IClock
from rsscloud_broker.outbound import Resolver
from rsscloud_broker.runtime import health
from rsscloud_broker.runtime.measuring import (
    LoopDelay,
    add_process_metrics,
    database_sizes,
)
from rsscloud_broker.storage import Store
from rsscloud_broker.util.threads import Workers


class Outgoing(Protocol):
    """What calls other servers, here or in couriers."""

    @property
    def under_way(self) -> int: ...

    @property
    def idle(self) -> int: ...


@frozen
class Monitoring:
    """What watches the broker.

    :ivar doors: the front doors for the endpoints of everybody; none if ``[metrics] listen`` names
        endpoints for them.
    :ivar access_log: the access log.
    :ivar services: what runs before all listeners.
    """

    doors: list[MonitoringDoor]
    access_log: AccessLog
    services: list[IService]
    _site: Any
    _token: ConfiguredToken
    _listeners: list[IService]

    def listen(
        self, config: Config, site: Any, reactor: Any, certificates: list[Certificate]
    ) -> list[IService]:
        """Make all listeners of the broker.

        :param site: the site for the endpoints of everybody.
        :param certificates: the list to which their certificates are added.
        :raises ConfigError: see ``listener``.
        """
        sites = [(each, site) for each in config.listen]
        sites += [(each, self._site) for each in config.all_listen[len(sites) :]]
        self._listeners.extend(
            listener(each, served, reactor, certificates) for each, served in sites
        )
        return self._listeners

    def takers(self) -> dict[str, Callable[[Config], object]]:
        """What takes changed keys of the configuration: see ``reloading.Parts``."""
        return {
            "[log] access": lambda new: self.access_log.change(new.log.access),
            "[metrics] token": lambda new: self._token.change(new.metrics.token),
        }


def make_monitoring(
    config: Config,
    reactor: Any,
    clock: IClock,
    counters: Counters,
    limits: HTTPLimits,
    *,
    store: Store,
    accounts: IAccounts,
    bus: EventBus,
    space: DiskSpace,
    resolver: Resolver,
    callbacks: Outgoing,
    topics: Outgoing,
) -> Monitoring:
    """Make what watches the broker.

    :param limits: the limits on requests, which apply to the endpoints of ``[metrics]`` too.
    :param accounts: knows the API tokens.
    """
    add_process_metrics(counters, __version__, make_url(config.database_url).get_backend_name())
    counters.lookups.set_function(lambda: resolver.lookups)
    _count_outgoing(counters, "callbacks", callbacks)
    _count_outgoing(counters, "topics", topics)
    loop = LoopDelay(clock, counters)
    listeners: list[IService] = []
    examined = health.Health(
        {"event_loop": health.event_loop(loop)},
        {
            "listeners": health.listeners(listeners),
            "database": health.Database(store, clock),
            "writer": health.writer(store),
            "clock": health.clock(store),
            "disk": health.disk(space),
            "bus": health.bus(bus),
            "names": health.names(resolver),
        },
    )
    token = ConfiguredToken(config.metrics.token)
    is_apart = bool(config.metrics.listen)
    door = MonitoringDoor(
        counters.registry,
        examined,
        token,
        further=[_tokens_of(accounts)],
        own_endpoint=is_apart,
    )
    writing = Workers(reactor, "log files", 1, counters)
    access_log = AccessLog(config.log.access, clock, writing, counters)
    return Monitoring(
        doors=[door] if config.metrics.enabled and not is_apart else [],
        access_log=access_log,
        services=[loop, database_sizes(store, clock, counters), writing, access_log],
        site=bounded_site(Root([door], config.address, takes_calls=False), limits),
        token=token,
        listeners=listeners,
    )


def _tokens_of(accounts: IAccounts) -> TokenCheck:
    """A check whether an API token of an account gives the right to read the metrics."""

    async def check(token: str) -> bool:
        caller = await accounts.caller_of_token(token)
        return caller is not None and (caller.is_admin or "metrics" in caller.scopes)

    return check


def _count_outgoing(counters: Counters, name: str, client: Outgoing) -> None:
    """Have counters show the requests and connections of an outbound client."""
    counters.outgoing.labels(name).set_function(lambda: client.under_way)
    counters.idle.labels(name).set_function(lambda: client.idle)
