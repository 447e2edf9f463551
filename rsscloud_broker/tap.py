"""Composes the broker from its parts, for ``twistd rsscloud-broker``.

This is the only file that knows all the parts.  twistd calls ``makeService``, which reads the
configuration and builds the service.  Nothing is opened or connected before the service starts, so
that twistd can change its user and go into the background in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import IO, Any

from attrs import evolve
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError
from twisted.application.service import IService, IServiceCollection, MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import ILogObserver, Logger
from twisted.python.components import Componentized
from twisted.python.filepath import FilePath

from rsscloud_broker import __version__, allocation, data_lock, fd_limit
from rsscloud_broker.account_parts import make_accounts
from rsscloud_broker.bus import EventBus
from rsscloud_broker.client.feed_doctor import FeedDoctor
from rsscloud_broker.client.feed_push import OwnBroker
from rsscloud_broker.client.feed_requests import asking_guarded
from rsscloud_broker.command_line import Options
from rsscloud_broker.config import Config, ConfigError
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
    Poller,
    PushedTopics,
    RequestedContentsSink,
    Sweeper,
    TopicReader,
    TopicView,
    Verifier,
)
from rsscloud_broker.counters import Counters
from rsscloud_broker.disclosure import Disclosure
from rsscloud_broker.discovery import KINDS, Makers, PluginError, discover, select
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.front_doors.access_log import AccessLog
from rsscloud_broker.front_doors.certificates import Certificate
from rsscloud_broker.front_doors.limits import HTTPLimits, bounded_site
from rsscloud_broker.front_doors.listening import sentence
from rsscloud_broker.front_doors.offers import FrontDoorsError
from rsscloud_broker.front_doors.site import Root
from rsscloud_broker.interfaces import FrontDoorParts, SinkParts
from rsscloud_broker.logs import Log, Logs, UnusableLog
from rsscloud_broker.making import make_all, make_notifiers, pushed_prefixes
from rsscloud_broker.observing import make_monitoring
from rsscloud_broker.outbound.decoding import AT_A_TIME
from rsscloud_broker.outbound_parts import make_outbound
from rsscloud_broker.own_topics import OwnTopicsSink
from rsscloud_broker.reloading import Parts, Reloading
from rsscloud_broker.self_test import SelfTest
from rsscloud_broker.signals import (
    reload_at_hangup,
    reopen_at_request,
    rotate_at_request,
    stop_once,
)
from rsscloud_broker.sinks.distribution import DistributionOptions
from rsscloud_broker.start_checks import DERIVED_URL, file_faults
from rsscloud_broker.storage import AccountStore, Store, UnfitDatabase, migrate
from rsscloud_broker.storage.disk_space import MEGABYTE, DiskSpace
from rsscloud_broker.storage.threads import StoreThreads
from rsscloud_broker.timing import SystemClock, WallClockWatch, use_monotonic_timers
from rsscloud_broker.web.assets import AssetsDoor
from rsscloud_broker.web.pages import Pages
from rsscloud_broker.wire.text import clean
from rsscloud_broker.workers import Workers

__all__ = ["BrokerService", "CannotStart", "Options", "makeService", "make_broker"]

#: Seconds that all parts together have to stop; after that each remaining part has ``MOMENT``.
STOP_WITHIN, MOMENT = 8.5, 0.1

#: How many file descriptors the broker asks the system for; and how many it needs beside those of
#: incoming connections and notifications: for fetches, verifications, idle connections, the
#: database and files.
DESCRIPTORS, OTHER_DESCRIPTORS = 16_384, 500


class CannotStart(SystemExit, Exception):
    """The broker cannot start.  The text says why, for people.

    It is a ``SystemExit``, so that Python shows it without a traceback.  It is an ``Exception``
    too, since only for that does twistd clean up: it removes its pid file and informs the process
    that waits for the daemon, which would otherwise wait for ever.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"rsscloud-broker: {reason}")


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
        service = make_broker(config, reactor, makers)
        service.observer = logs.observer(options.parent or {}, partial(rotate_at_request, reactor))
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


class BrokerService(MultiService):
    """Starts its parts in order, and stops them one after the other in reverse order.

    A part that does not stop in time is not waited for.  Nothing is lost by that: whatever the
    broker acknowledged is stored, and unfinished work resumes after the next start.

    :param public_url: the URL by which others reach the broker, for the log.
    :ivar descriptors: how many file descriptors the broker may need at the same time.
    :ivar observer: the log observer; None if the broker leaves logging to twistd.
    :ivar reloading: applies a changed configuration to the parts.
    :ivar access_log: the access log.
    """

    log = Logger()
    reloading: Reloading
    access_log: AccessLog
    observer: ILogObserver | None = None

    def __init__(
        self, config: Config, public_url: str, clock: IReactorTime, descriptors: int = 0
    ) -> None:
        super().__init__()
        self._config = config
        self._public_url = public_url
        self._clock = clock
        self.descriptors = descriptors
        self._lock: IO[bytes] | None = None

    def setServiceParent(self, parent: IServiceCollection) -> None:
        if self.observer is not None and isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self.observer)  # twistd uses this observer
        super().setServiceParent(parent)

    def privilegedStartService(self) -> None:
        try:
            super().privilegedStartService()
        except (CannotListenError, OSError) as error:
            raise CannotStart(sentence(error)) from error

    def startService(self) -> None:
        url = self._config.database_url
        if faults := file_faults(self._config):
            raise CannotStart("\n".join(faults))
        try:
            Path(self._config.data, "public").mkdir(parents=True, exist_ok=True)
            self._lock = data_lock.hold(self._config.data)
        except BlockingIOError as error:
            raise CannotStart(
                f"another broker runs with the data in {self._config.data}; --data names others"
            ) from error
        except OSError as error:
            raise CannotStart(f"the data directory cannot be used: {error}") from error
        try:
            migrate(url)
        except (SQLAlchemyError, UnfitDatabase, Unavailable) as error:
            shown = make_url(url).render_as_string(hide_password=True)
            raise CannotStart(f"{shown}: {clean(str(error))}") from error
        self.allow_descriptors(self.descriptors)
        super().startService()
        if self._config.public_url is None:
            self.log.warn(DERIVED_URL, url=self._public_url)
        allocation.freeze_existing_objects()
        allocation.return_large_blocks()
        self.log.info(
            "rsscloud-broker {version} at {url}/", version=__version__, url=self._public_url
        )

    def allow_descriptors(self, needed: int) -> None:
        """Raise the limit of file descriptors to ``needed``; log a warning if that fails."""
        allowed = fd_limit.allow(max(DESCRIPTORS, needed))
        if allowed < needed:
            self.log.warn(
                "The process may open {allowed} file descriptors (ulimit -n), but the configured "
                "number of connections needs {needed}; further connections wait or are refused.",
                allowed=allowed,
                needed=needed,
            )

    def stopService(self) -> Deferred[None]:
        self.running = 0
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        until = self._clock.seconds() + STOP_WITHIN
        hanging = []
        for part in reversed(list(self)):
            name = part.name or type(part).__name__
            ended: Deferred[object] = Deferred()
            maybeDeferred(part.stopService).addBoth(ended.callback)
            ended.addTimeout(max(MOMENT, until - self._clock.seconds()), self._clock)
            try:
                await ended
            except TimedOut:
                hanging.append(name)
            except Exception:  # log a bug, and stop the other parts
                self.log.failure("Stopping {part} failed.", part=name)
        if hanging:
            self.log.warn(
                "Not waiting any longer for: {parts}. What they were at is taken up after the "
                "next start.",
                parts=", ".join(hanging),
            )
        elif self._lock is not None:  # a hanging part may still write, so keep the lock then
            self._lock.close()


def make_broker(config: Config, reactor: Any, makers: Makers | None = None) -> BrokerService:
    """Build the service of a broker.

    :param makers: the plugins to select from; by default those that are installed.
    :raises ConfigError: the configuration of a plugin or an endpoint cannot be used.
    :raises PluginError: a plugin cannot be used.
    :raises FrontDoorsError: front doors conflict.
    """
    makers = makers or discover()
    chosen = {kind: select(makers.of_kind(kind), getattr(config, kind), kind) for kind in KINDS}
    public_directory = FilePath(config.data).child("public")
    public_url = config.address
    outgoing = OTHER_DESCRIPTORS + _notifications(chosen["sinks"])
    service = BrokerService(config, public_url, reactor, outgoing + config.http.max_connections)

    clock, counters = SystemClock(reactor), Counters()
    threads = StoreThreads(reactor, counters)
    store = Store(reactor, config.database_url, threads, config.storage.bounds, counters)
    accounts = make_accounts(AccountStore(threads), config, reactor, clock, makers, chosen)
    bus = EventBus(clock=clock, counters=counters)
    blocks = Blocks()
    filing = Workers(reactor, "files", 2, counters)
    decoding = Workers(reactor, "decoding", AT_A_TIME, counters)
    space = DiskSpace(config.data, config.storage.min_free_mb * MEGABYTE, reactor, filing, counters)
    outbound = make_outbound(config, reactor, clock, public_directory, filing, decoding, blocks)
    notifiers = make_notifiers(makers, chosen["notifiers"], outbound.callbacks)
    running = frozenset(maker.name for maker, options in chosen["front_doors"])
    # A hub takes subscriptions in, and calls whom it subscribed.
    has_hub = "websub" in running and "websub" in notifiers
    pushed = PushedTopics(pushed_prefixes(makers, chosen, public_url, has_hub))
    limiter = FairLimiter(clock)
    detector = ChangeDetector(
        store,
        TopicReader(store, outbound.fetcher, bus, clock, counters, limiter, pushed, blocks=blocks),
        FeedInspector(store, filing),
        bus,
        clock,
        counters,
    )
    verifier = Verifier(store, bus, detector, notifiers, clock, limiter)
    intents = IntentQueue(store, verifier, clock)
    access = Access(config.topics, blocks)
    admission = Admission(config.limits, store, clock, counters)
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
    )
    sinks = [
        *make_all(makers, "sinks", chosen["sinks"], sink_parts),
        OwnTopicsSink(store, detector.schedule, clock, public_url),
        RequestedContentsSink(detector),
    ]
    for sink in sinks:
        bus.attach(sink)
    pages = Pages(announcements=administration.following)
    limits = HTTPLimits(config.http, reactor)
    self_test = SelfTest(config.data, clock)
    door_parts = FrontDoorParts(
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
        callers=accounts.callers,
        accounts=accounts.accounts,
        administration=administration,
        feed_doctor=FeedDoctor(
            asking_guarded(outbound.topics, clock),
            clock,
            OwnBroker(public_url, broker.protocols - broker.content_protocols, has_hub),
            broker.admit_examination,
            filing,
        ),
        self_test=self_test,
    )
    doors = make_all(makers, "front_doors", chosen["front_doors"], door_parts)
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
        topics=outbound.topics,
    )
    root = Root([*monitoring.doors, AssetsDoor(), *doors], public_url)
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
            topics=outbound.topics,
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

    timed = [
        administration.following,
        Sweeper(store, bus, clock, access),
        WallClockWatch(clock, lambda seconds: store.set_back(seconds, clock.wall_seconds())),
        *([Poller(store, detector, clock, config.polling)] if config.polling.enabled else []),
    ]
    for part in (
        store,
        filing,
        decoding,
        *accounts.services,
        space,
        outbound.resolver,
        outbound.callbacks,
        outbound.topics,
        bus,
        detector,
        intents,
        self_test,
        *filter(IService.providedBy, sinks),
        *timed,
        *monitoring.services,
        *monitoring.listen(config, site, reactor, certificates),
    ):
        part.setServiceParent(service)
    return service


def _runs(chosen: Iterable[tuple[Any, object]], name: str) -> bool:
    """Whether a plugin is among those that run."""
    return any(maker.name == name for maker, _ in chosen)


def _notifications(sinks: Iterable[tuple[object, object]]) -> int:
    """How many notifications the distribution sinks may have under way at the same time."""
    return sum(
        options.in_flight + options.max_slow
        for _, options in sinks
        if isinstance(options, DistributionOptions)
    )
