"""Composes the broker from its parts, for ``twistd rsscloud-broker``.

This is the only file that knows all the parts.  Nothing is opened or connected before the service
starts, so that twistd can change its user and go into the background in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any

from attrs import evolve
from twisted.application.service import IService
from twisted.python.filepath import FilePath

from rsscloud_broker.accounts import AccountSweeper, RemovedAccounts
from rsscloud_broker.client.feed_doctor import FeedDoctor
from rsscloud_broker.client.feed_push import OwnBroker
from rsscloud_broker.client.feed_requests import asking_guarded
from rsscloud_broker.composition.accounts import make_accounts
from rsscloud_broker.composition.apps import make_apps, tables_of, tables_of_feeds
from rsscloud_broker.composition.monitoring import make_monitoring
from rsscloud_broker.composition.outbound import make_outbound
from rsscloud_broker.config import Config, ConfigError, Log
from rsscloud_broker.core import (
    Access,
    Administration,
    Admission,
    Blocks,
    Broker,
    ChangeDetector,
    EventLog,
    FairLimiter,
    FeedInspector,
    IntentQueue,
    PingIntake,
    Poller,
    Publisher,
    PushedTopics,
    RequestedContentsSink,
    Sweeper,
    TakingOverSink,
    TopicReader,
    TopicView,
    Verifier,
)
from rsscloud_broker.core.bus import EventBus
from rsscloud_broker.counters import Counters
from rsscloud_broker.database.disk_space import MEGABYTE, DiskSpace
from rsscloud_broker.database.threads import StoreThreads, Threads
from rsscloud_broker.delivery.options import STOP_TIMEOUT, notifications_of
from rsscloud_broker.events import FilePublished
from rsscloud_broker.http.certificates import Certificate
from rsscloud_broker.http.closing import Answering
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.offers import FrontDoorsError
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import (
    AppParts,
    FrontDoorParts,
    IClock,
    IEventSink,
    IServesTopics,
    IStore,
    SinkParts,
)
from rsscloud_broker.model.disclosure import Disclosure
from rsscloud_broker.outbound.couriers.parsers import Parsers
from rsscloud_broker.outbound.decoding import AT_A_TIME
from rsscloud_broker.outbound.own_topics import OwnTopics, OwnTopicsSink
from rsscloud_broker.policy.rate_limits import RateLimit
from rsscloud_broker.runtime.command_line import Options
from rsscloud_broker.runtime.local_sign_in import LocalSignIn, write_to_terminal
from rsscloud_broker.runtime.logs import Logs, UnusableLog
from rsscloud_broker.runtime.plugin_building import (
    kept_history,
    make_all,
    make_notifiers,
    pushed_prefixes,
)
from rsscloud_broker.runtime.plugin_discovery import KINDS, Makers, PluginError, discover, select
from rsscloud_broker.runtime.reloading import Parts, Reloading
from rsscloud_broker.runtime.self_test import SelfTest
from rsscloud_broker.runtime.service import BrokerService, CannotStart
from rsscloud_broker.runtime.signals import (
    reload_at_hangup,
    reopen_at_request,
    rotate_at_request,
    stop_once,
)
from rsscloud_broker.sinks.mirror import Mirror
from rsscloud_broker.storage import AccountStore, Pulse, Store
from rsscloud_broker.util.clock import SystemClock, WallClockWatch, use_monotonic_timers
from rsscloud_broker.util.threads import Workers
from rsscloud_broker.util.urls import identity
from rsscloud_broker.web.assets import AssetsDoor
from rsscloud_broker.web.pages import Pages

__all__ = ["BrokerService", "CannotStart", "Options", "makeService", "make_broker"]


def makeService(options: Options) -> IService:
    """Build the broker's service from the command line; twistd calls this.

    :raises SystemExit: the configuration or the plugins cannot be used; the text says why, for
        people.
    """
    from twisted.internet import reactor  # noqa: PLC0415 # twistd may install another one first

    try:
        makers = discover()
        use_monotonic_timers(reactor)  # twistd has not scheduled anything yet
        stop_once(reactor)
        config = options.configuration(makers)
        logs = Logs(config.log)
        service = make_broker(config, reactor, makers, is_local=bool(options["local"]))
        service.observer = logs.observer(options.parent or {}, partial(rotate_at_request, reactor))
        if options.parent is not None:
            service.changes_user = bool(options.parent.get("uid"))
        if service.observer is not None:
            service.reloading.take_too("[log]", lambda config: logs.change(config.log))
        elif evolve(config.log, access="") != Log():
            service.log.warn(
                "[log] of the configuration is ignored, but for the access log: this broker "
                "leaves its log to twistd (--logger, or twistd -y)."
            )
        read = partial(options.configuration, makers)
        reload_at_hangup(reactor, partial(service.reloading.reload, read))
        reopen_at_request(reactor, service.access_log.reopen)
        return service
    except (ConfigError, PluginError, FrontDoorsError, UnusableLog) as error:
        # Not a UsageError: twistd shows that without a traceback only while it parses the
        # command line.
        raise SystemExit(f"rsscloud-broker: {error}") from error


async def set_back(store: IStore, clock: IClock, seconds: float) -> None:
    """Move stored times along with the wall clock, unless they are those of other nodes too."""
    if not store.shares_work():
        await store.set_back(seconds, clock.wall_seconds())


def make_broker(
    config: Config, reactor: Any, makers: Makers | None = None, *, is_local: bool = False
) -> BrokerService:
    """Build the service of a broker.

    :param makers: the plugins to select from; by default those that are installed.
    :param is_local: whether whoever starts it gets a link to sign in, on the terminal.
    :raises ConfigError: the configuration of a plugin or an endpoint cannot be used.
    :raises PluginError, FrontDoorsError: a plugin cannot be used, or front doors conflict.
    """
    makers = makers or discover()
    chosen = {kind: select(makers.of_kind(kind), getattr(config, kind), kind) for kind in KINDS}
    public_directory = FilePath(config.data).child("public")
    public_url = config.address
    # How many file descriptors fetches, verifications, idle connections, the database and files
    # need.
    outgoing = 500 + notifications_of(chosen["sinks"])
    service = BrokerService(config, public_url, reactor, outgoing + config.http.max_connections)

    clock, counters, blocks = SystemClock(reactor), Counters(), Blocks()
    threads = StoreThreads(reactor, counters)
    accounts = make_accounts(AccountStore(threads), config, reactor, clock, makers, chosen)
    bus = EventBus(clock=clock, counters=counters)
    filing = Workers(reactor, "files", 2, counters)
    decoding = Workers(reactor, "decoding", AT_A_TIME, counters)
    space = DiskSpace(config.data, config.storage.min_free_mb * MEGABYTE, reactor, filing, counters)
    parse = Parsers(reactor, clock)
    outbound = make_outbound(config, reactor, clock, public_directory, filing, decoding, blocks)
    notifiers = make_notifiers(makers, chosen["notifiers"], outbound.callbacks)
    running = frozenset(maker.name for maker, options in chosen["front_doors"])
    has_hub = "websub" in running and "websub" in notifiers
    prefixes = pushed_prefixes(makers, chosen, public_url, has_hub)
    history = kept_history(chosen["front_doors"], public_url, prefixes)
    store = Store(
        reactor,
        config.database_url,
        threads,
        evolve(config.storage.bounds, history=history),
        counters,
    )
    limiter = FairLimiter(clock)
    detector = ChangeDetector(
        store,
        TopicReader(
            store,
            outbound.fetcher,
            bus,
            clock,
            counters,
            limiter,
            PushedTopics(prefixes),
            blocks=blocks,
        ),
        FeedInspector(store, parse),
        bus,
        clock,
        counters,
    )
    verifier = Verifier(store, bus, detector, notifiers, clock, limiter)
    intents = IntentQueue(store, verifier, clock)
    pollers = [Poller(store, detector, clock, each) for each in (config.polling,) if each.enabled]
    access, admission = (
        Access(config.topics, blocks, identity(public_url)),
        Admission(config.limits, store, clock, counters),
    )
    broker = Broker(
        store,
        bus,
        detector,
        verifier,
        intents,
        clock,
        admission,
        access,
        outbound.fetcher,
        outbound.callback_policy,
        counters,
        space,
    )
    administration = Administration(
        store, store, bus, detector, clock, blocks, counters, bus.waiting, (filing, decoding)
    )
    sink_parts = SinkParts(
        store=store,
        bus=bus,
        notifiers=notifiers,
        clock=clock,
        public_directory=public_directory,
        in_thread=filing,
        counters=counters,
        public_url=public_url,
        has_hub=has_hub,
        blocks=blocks,
        outbound=outbound.callbacks,
        history=history,
    )
    mirror, sink_parts = _mirrored(sink_parts, outbound.fetcher)
    pages, limits = (
        Pages(announcements=administration.following),
        HTTPLimits(config.http, reactor, public_url),
    )
    service.app_tables = tables_of(chosen["apps"]) | tables_of_feeds(chosen["front_doors"])
    apps = make_apps(
        makers,
        chosen["apps"],
        AppParts(
            broker=broker,
            publisher=Publisher(store, detector, bus, clock, access, space),
            database=threads,
            jobs=store,
            accounts=accounts.accounts,
            callers=accounts.callers,
            pages=pages,
            topics=TopicView(store, clock),
            web=outbound.topics,
            outbound=outbound.callbacks,
            clock=clock,
            counters=counters,
            directory=FilePath(config.data),
            public_url=public_url,
            has_hub=has_hub,
            has_cloud="rsscloud" in running,
            in_thread=filing,
            parse=parse,
            rate_limit=lambda rate, burst: RateLimit(rate, burst, clock).take,
            running=running | {maker.name for maker, _ in chosen["apps"]},
            max_connections=lambda: limits.http.max_connections,
            max_connections_per_address=lambda: limits.http.max_connections_per_address,
        ),
    )
    notifiers.update(apps.notifiers)
    administration.serve(apps.topics)
    sinks = _attached(
        bus,
        [
            *make_all(makers, "sinks", chosen["sinks"], sink_parts),
            mirror,
            OwnTopicsSink(store, detector.schedule, clock, public_url),
            RequestedContentsSink(detector),
            detector.others,
            TakingOverSink(
                detector,
                intents,
                [limiter.share, detector.share, *(one.share for one in pollers)],
                [one.lose_claims for one in pollers],
            ),
            *apps.sinks,
        ],
    )
    self_test = SelfTest(config.data, clock)
    doors = make_all(
        makers,
        "front_doors",
        chosen["front_doors"],
        FrontDoorParts(
            broker=broker,
            clock=clock,
            pages=pages,
            counters=counters,
            public_directory=public_directory,
            public_url=public_url,
            running=running,
            in_thread=filing,
            statistics=store,
            has_hub=has_hub,
            topics=TopicView(store, clock),
            event_log=EventLog(store) if _runs(chosen["sinks"], "event_log") else None,
            disclosure=Disclosure(config.pages.callbacks),
            max_connections=lambda: limits.http.max_connections,
            max_connections_per_address=lambda: limits.http.max_connections_per_address,
            callers=accounts.callers,
            accounts=accounts.accounts,
            intake=PingIntake(store, detector, bus, clock, access, counters, space),
            follows=store,
            web=outbound.topics,
            administration=administration,
            feed_doctor=FeedDoctor(
                asking_guarded(outbound.topics, clock),
                clock,
                OwnBroker(public_url, broker.protocols - broker.content_protocols, has_hub),
                broker.admit_examination,
                parse,
            ),
            self_test=self_test,
            database=threads,
            changes=store,
            directory=FilePath(config.data).child("feeds"),
            published=lambda path: bus.publish(FilePublished(path, clock.wall_seconds())),
            copy_file=mirror.copy,
            jobs=store,
            parse=parse,
        ),
    )
    outbound.fetcher.serve(
        chain(apps.topics, *(door.topics for door in doors if IServesTopics.providedBy(door)))
    )
    monitoring = make_monitoring(
        config,
        reactor,
        clock,
        counters,
        limits,
        store=store,
        accounts=accounts.accounts,
        bus=bus,
        space=space,
        resolver=outbound.resolver,
        callbacks=outbound.callbacks,
        topics=outbound.topic_clients,
    )
    root = Root(
        [*monitoring.doors, AssetsDoor(), *doors, *apps.front_doors], public_url, parse=parse
    )
    pages.link_to(root.pages if has_hub else root.pages - {"/websub"})
    site = bounded_site(
        root,
        limits,
        counters,
        pages.error if "front_page" in running else None,  # error pages link to its pages
        monitoring.access_log,
    )
    certificates: list[Certificate] = []
    service.reloading = Reloading(
        config,
        Parts(
            topics=outbound.topic_clients,
            callbacks=outbound.callbacks,
            http=limits,
            admission=admission,
            access=access,
            allow_connections=lambda number: service.allow_descriptors(outgoing + number),
        ).takers()
        | monitoring.takers(),
        certificates,
        reactor,
    )
    service.access_log = monitoring.access_log

    service.take(
        (
            store,
            Pulse(
                reactor,
                config.database_url,
                store,
                bus.publish,
                counters,
                config.public_url,
                clock.follow,
            ),
            filing,
            decoding,
            parse,
            *accounts.services,
            space,
            outbound.resolver,
            outbound.callbacks,
            outbound.topics,
            bus,
            self_test,
        ),
        (
            Answering(site, STOP_TIMEOUT),
            detector,
            intents,
            *filter(IService.providedBy, [*sinks, *doors]),
            *apps.services,
            administration.following,
            Sweeper(store, bus, clock, access),
            AccountSweeper(AccountStore(threads), store, clock, config.accounts),
            RemovedAccounts(AccountStore(threads), clock, apps.account_data),
            WallClockWatch(clock, partial(set_back, store, clock)),
            *pollers,
            *([_local_sign_in(threads, clock, config, chosen["apps"])] if is_local else []),
        ),
        (*monitoring.services, *monitoring.listen(config, site, reactor, certificates)),
    )
    return service


def _mirrored(parts: SinkParts, fetcher: OwnTopics) -> tuple[Mirror, SinkParts]:
    """What copies the files that other nodes have made; and the parts of sinks that may use it."""
    mirror = Mirror(parts)
    fetcher.copy_by(mirror.copy)
    return mirror, evolve(parts, copy_file=mirror.copy)


def _attached(bus: EventBus, sinks: list[IEventSink]) -> list[IEventSink]:
    """Have the bus hand events to some sinks, and return them."""
    for sink in sinks:
        bus.attach(sink)
    return sinks


def _local_sign_in(
    threads: Threads, clock: IClock, config: Config, apps: Iterable[tuple[Any, object]]
) -> LocalSignIn:
    """What prints the link to sign in: it leads to the authoring tool, if that runs."""
    here = evolve(config, public_url=None).address  # others may reach it at another one
    next_path = "/write" if _runs(apps, "writing") else "/"
    return LocalSignIn(AccountStore(threads), clock, here, next_path, write_to_terminal)


def _runs(chosen: Iterable[tuple[Any, object]], name: str) -> bool:
    """Whether a plugin is among those that run."""
    return any(maker.name == name for maker, _ in chosen)
