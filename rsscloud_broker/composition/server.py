"""A whole broker: every part of it, and the order in which they start and stop.

This is the only place that knows all the parts.  Nothing is opened or connected before the service
starts, so that twistd can change its user and go into the background in between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.application.service import IService
from twisted.python.filepath import FilePath

from rsscloud_broker import core, interfaces
from rsscloud_broker.accounts import AccountAdministration, AccountSweeper, RemovedAccounts
from rsscloud_broker.client.feed_doctor import FeedDoctor
from rsscloud_broker.client.feed_push import OwnBroker
from rsscloud_broker.client.feed_requests import make_ask
from rsscloud_broker.composition.apps import make_apps
from rsscloud_broker.composition.foundation import Foundation
from rsscloud_broker.composition.part import part
from rsscloud_broker.config import Config
from rsscloud_broker.delivery.options import STOP_TIMEOUT, notifications_of
from rsscloud_broker.front_doors.monitoring import MonitoringDoor
from rsscloud_broker.http.certificates import Certificate
from rsscloud_broker.http.connections import Answering
from rsscloud_broker.http.limits import bounded_site
from rsscloud_broker.http.listening import listener
from rsscloud_broker.http.site import Root
from rsscloud_broker.model.administration import Change
from rsscloud_broker.outbound.couriers.parsers import Parsers
from rsscloud_broker.outbound.own_topics import LATE, OwnTopics, OwnTopicsSink
from rsscloud_broker.runtime import health
from rsscloud_broker.runtime.local_sign_in import LocalSignIn, write_to_terminal
from rsscloud_broker.runtime.measuring import database_sizes
from rsscloud_broker.runtime.plugin_building import Given, make_all
from rsscloud_broker.runtime.reloading import Reloading, Taker
from rsscloud_broker.runtime.service import BrokerService
from rsscloud_broker.sinks.mirror import Mirror
from rsscloud_broker.storage import Pulse, Store
from rsscloud_broker.util.clock import WallClockWatch
from rsscloud_broker.web.assets import AssetsDoor
from rsscloud_broker.web.pages import PageRenderer

#: What the mirror uses of a broker; see ``SinkParts``.
_NEEDS_OF_MIRROR = ("bus", "clock", "in_thread", "public_directory", "store")


class Server(Foundation):
    """A whole broker.  Each property is one part, made when another part first needs it.

    The properties whose names are in ``FrontDoorParts``, ``NotifierParts``, ``SinkParts`` and
    ``AppParts`` are what plugins may need.

    :raises ConfigError: the configuration of a plugin or an endpoint cannot be used.  This and the
        following may be raised by any part; ``service`` makes all of them.
    :raises PluginError, FrontDoorsError: a plugin cannot be used, or front doors conflict.
    :raises UnusableLog: the log file cannot be written.
    """

    # --- what the broker does

    @part
    def mirror(self) -> Mirror:
        """What copies the files that other nodes have made."""
        parts: Any = Given("the mirror", {name: getattr(self, name) for name in _NEEDS_OF_MIRROR})
        return Mirror(parts)

    def copy_file(self, path: str) -> Awaitable[bool]:
        return self.mirror.copy(path)

    @part
    def fetcher(self) -> OwnTopics:
        """Fetches topics: the broker's own without a call, and those of others by calls."""
        return OwnTopics(
            self.remote_fetcher,
            self.topic_policy,
            self.public_url,
            self.public_directory,
            self.in_thread,
            lambda: self.served_topics,
            self.copy_file,
            LATE if self.store.shares_work() else 0.0,
        )

    @part
    def parse(self) -> Parsers:
        return Parsers(self.reactor, self.clock, self.forks)

    @part
    def reader(self) -> core.TopicReader:
        return core.TopicReader(
            self.store,
            self.fetcher,
            self.bus,
            self.clock,
            self.counters,
            self.limiter,
            core.PushedTopics(self.prefixes),
            self.blocks,
        )

    @part
    def detector(self) -> core.ChangeDetector:
        inspector = core.FeedInspector(self.store, self.parse)
        return core.ChangeDetector(
            self.store, self.reader, inspector, self.bus, self.clock, self.counters
        )

    @part
    def verifier(self) -> core.Verifier:
        """Asks callbacks whether they want their subscriptions."""
        return core.Verifier(
            self.store, self.bus, self.detector, lambda: self.notifiers, self.clock, self.limiter
        )

    @part
    def intents(self) -> core.IntentQueue:
        return core.IntentQueue(self.store, self.verifier, self.clock)

    @part
    def pollers(self) -> Sequence[core.Poller]:
        """What polls topics; none if nothing is to be polled."""
        polling = self.config.polling
        poller = core.Poller(self.store, self.detector, self.clock, polling)
        return [poller] if polling.enabled else []

    @part
    def broker(self) -> core.Broker:
        return core.Broker(
            self.store,
            self.bus,
            self.detector,
            self.verifier,
            self.intents,
            self.clock,
            self.admission,
            self.access,
            self.fetcher,
            self.callback_policy,
            self.counters,
            self.space,
        )

    @part
    def administration(self) -> core.Administration:
        return core.Administration(
            self.store,
            self.bus,
            self.detector,
            self.clock,
            self.blocks,
            self.counters,
            self.bus.waiting,
            (self.in_thread, self.decoding),
            AccountAdministration(self.account_store, self.clock, self.public_url),
            lambda: self.of_apps("topics"),
        )

    @part
    def publisher(self) -> core.Publisher:
        return core.Publisher(
            self.store, self.detector, self.bus, self.clock, self.access, self.space
        )

    @part
    def intake(self) -> core.PingIntake:
        return core.PingIntake(
            self.store, self.detector, self.bus, self.clock, self.access, self.counters, self.space
        )

    @part
    def feed_doctor(self) -> FeedDoctor:
        """Examines feeds for their publishers."""
        spoken = self.broker.protocols - self.broker.content_protocols
        return FeedDoctor(
            make_ask(self.web, self.clock),
            self.clock,
            OwnBroker(self.public_url, spoken, self.has_hub),
            self.broker.admit_examination,
            self.parse,
        )

    @part
    def pages(self) -> PageRenderer:
        return PageRenderer(lambda: self.page_paths, self.administration.following)

    # --- what plugins add

    @part
    def apps(self) -> Sequence[interfaces.IApp]:
        data = FilePath(self.config.data)
        return make_apps(self.makers, self.chosen["apps"], self, data, self.own_notifiers)

    def of_apps(self, kind: str) -> list[Any]:
        """What all applications have of a kind, such as ``sinks``."""
        return [each for app in self.apps for each in getattr(app, kind)]

    async def taken_down(self, name: str, since: float) -> Sequence[Change]:
        """What was taken down of an account: see ``IAdministration.taken_down``."""
        return await self.administration.taken_down(name, since)

    async def account_files(
        self, caller: interfaces.Caller
    ) -> AsyncIterator[interfaces.AccountFile]:
        """All that applications keep for the account of a caller."""
        for files in self.of_apps("account_files"):
            async for each in files(caller):
                yield each

    @part
    def notifiers(self) -> Mapping[str, interfaces.INotifier]:
        of_apps = {each.protocol: each for each in self.of_apps("notifiers")}
        return {**self.own_notifiers, **of_apps}

    @part
    def sinks(self) -> Sequence[interfaces.IEventSink]:
        """What handles events; the bus hands them over."""
        sinks = [
            *make_all(self.makers, "sinks", self.chosen["sinks"], self),
            self.mirror,
            OwnTopicsSink(self.store, self.detector.schedule, self.clock, self.public_url),
            core.RequestedContentsSink(self.detector),
            self.detector.others,
            core.TakeoverSink(
                self.detector,
                self.intents,
                [
                    self.limiter.set_node_count,
                    self.detector.set_node_count,
                    *(one.set_node_count for one in self.pollers),
                ],
                [one.lose_claims for one in self.pollers],
            ),
            *self.of_apps("sinks"),
        ]
        for sink in sinks:
            self.bus.attach(sink)
        return sinks

    @part
    def doors(self) -> Sequence[interfaces.IFrontDoor]:
        return make_all(self.makers, "front_doors", self.chosen["front_doors"], self)

    @part
    def served_topics(self) -> Sequence[interfaces.ServedTopics]:
        """The topics that applications and front doors serve."""
        of_doors = (door.topics for door in self.doors if interfaces.IServesTopics.providedBy(door))
        return [*self.of_apps("topics"), *(each for topics in of_doors for each in topics)]

    # --- the site

    @part
    def health(self) -> health.Health:
        return health.Health(
            {"event_loop": partial(health.event_loop, self.loop_delay)},
            {
                "listeners": lambda: health.listeners(self.listeners),
                "database": health.Database(self.store, self.clock),
                "writer": partial(health.writer, self.store),
                "clock": partial(health.clock, self.store),
                "disk": partial(health.disk, self.space),
                "bus": partial(health.bus, self.bus),
                "names": partial(health.names, self.resolver),
            },
        )

    async def _may_read_metrics(self, token: str) -> bool:
        """Whether an API token of an account gives the right to read the metrics."""
        caller = await self.accounts.caller_of_token(token)
        return caller is not None and (caller.is_admin or "metrics" in caller.scopes)

    @part
    def monitoring(self) -> MonitoringDoor:
        return MonitoringDoor(
            self.counters.registry,
            self.health,
            self.config.metrics.token,
            token_checks=[self.self_test.knows, self._may_read_metrics],
            own_endpoint=bool(self.config.metrics.listen),
        )

    @part
    def root(self) -> Root:
        """All front doors on one site."""
        metrics = self.config.metrics
        # With a port of its own, monitoring is not on this site.
        monitoring = [self.monitoring] if metrics.enabled and not metrics.listen else []
        doors = [*monitoring, AssetsDoor(), *self.doors, *self.of_apps("front_doors")]
        return Root(doors, self.public_url, parse=self.parse)

    @part
    def page_paths(self) -> frozenset[str]:
        """The paths of the pages that others may link to."""
        return self.root.pages if self.has_hub else self.root.pages - {"/websub"}

    @part
    def site(self) -> Any:
        # Error pages link to the pages of the front page.
        error_page = self.pages.error if "front_page" in self.names("front_doors") else None
        return bounded_site(self.root, self.limits, self.counters, error_page, self.access_log)

    @part
    def certificates(self) -> list[Certificate]:
        """The certificates of the listeners, which add them here when they are made."""
        return []

    @part
    def listeners(self) -> Sequence[IService]:
        """A service for each endpoint: the site, and monitoring alone at endpoints of its own."""
        config = self.config
        monitoring = Root([self.monitoring], self.public_url, takes_calls=False)
        site_of_monitoring = bounded_site(monitoring, self.limits)
        sites = [(each, self.site) for each in config.listen]
        sites += [(each, site_of_monitoring) for each in config.all_listen[len(sites) :]]
        return [listener(each, site, self.reactor, self.certificates) for each, site in sites]

    # --- the process

    @part
    def takers(self) -> Mapping[str, Taker]:
        """What takes changed keys of the configuration, by the keys or their beginnings."""
        takers: dict[str, Callable[[Config], object]] = {
            "[egress] allow_topics": lambda new: self.topic_clients.allow(
                new.egress.topic_networks
            ),
            "[egress] allow_callbacks": lambda new: self.allow_callbacks(
                new.egress.callback_networks
            ),
            "[http]": lambda new: self.limits.change(new.http),
            "[http] max_connections": lambda new: self.service.allow_descriptors(
                self.outgoing + new.http.max_connections
            ),
            "[limits]": lambda new: self.admission.change(new.limits),
            "[topics]": lambda new: self.access.change(new.topics),
            "[topics] body_limit": lambda new: self.topic_clients.change_body_limit(
                new.topics.body_limit
            ),
            "[log] access": lambda new: self.access_log.change(new.log.access),
            "[metrics] token": lambda new: self.monitoring.change_token(new.metrics.token),
        }
        if self.observer is not None:
            takers["[log]"] = lambda new: self.logs.change(new.log)
        return takers

    @part
    def reloading(self) -> Reloading:
        return Reloading(self.config, self.takers, self.certificates, self.reactor)

    @part
    def outgoing(self) -> int:
        """How many file descriptors may be open beside those of clients' connections."""
        # Fetches, verifications, idle connections, the database and files need the rest.
        return 500 + notifications_of(self.chosen["sinks"])

    def _local_sign_in(self) -> LocalSignIn:
        """What prints the link to sign in: it leads to the authoring tool, if that runs."""
        next_path = "/write" if "writing" in self.names("apps") else "/"
        parts = (self.account_store, self.clock, self.config.local_address, next_path)
        return LocalSignIn(*parts, write_to_terminal, self.config.data)

    @part
    def service(self) -> BrokerService:
        """The whole broker.  Its parts start in this order, and stop in reverse order."""
        config, store, bus, clock = self.config, self.store, self.bus, self.clock
        plugins: list[Any] = [*self.sinks, *self.doors]
        service = BrokerService(
            config,
            self.reactor,
            descriptors=self.outgoing + config.http.max_connections,
            app_tables=self.app_tables,
            observer=self.observer,
            changes_user=None if self.twistd is None else bool(self.twistd.get("uid")),
        )
        service.add_parts(
            first=(
                store,
                Pulse(
                    self.reactor,
                    config.database_url,
                    store,
                    bus.publish,
                    self.counters,
                    config.public_url,
                    clock.follow,
                ),
                self.in_thread,
                self.decoding,
                self.hashing,
                self.space,
                self.resolver,
                self.forks,  # it stops after couriers and parsers, which end with it
                self.outbound,
                self.topic_clients.client,
                self.parse,
                bus,
                self.self_test,
            ),
            workers=(
                Answering(self.site, STOP_TIMEOUT),
                self.detector,
                self.intents,
                *filter(IService.providedBy, plugins),
                *self.of_apps("services"),
                self.administration.following,
                core.Sweeper(store, bus, clock, self.access, self.detector.reader.forget),
                AccountSweeper(self.account_store, store, clock, config.accounts),
                RemovedAccounts(self.account_store, clock, self.of_apps("account_data")),
                WallClockWatch(clock, partial(set_back, store, clock, self.detector)),
                *self.pollers,
                *([self._local_sign_in()] if self.is_local else []),
            ),
            last=(
                self.loop_delay,
                database_sizes(store, clock, self.counters),
                self.log_writing,
                self.access_log,
                *self.listeners,
            ),
        )
        return service


async def set_back(
    store: Store, clock: interfaces.IClock, detector: core.ChangeDetector, seconds: float
) -> None:
    """Move the times in the store along with a wall clock that was set back by ``seconds``."""
    if not store.shares_work():  # else the times of other nodes would move, too
        await store.set_back(seconds, clock.wall_seconds())
        detector.take_over()  # it looks for checks anew, whose times have moved
