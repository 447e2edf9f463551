"""Composes the broker out of its parts, for ``twistd rsscloud-broker``.

This is the only file that knows all the parts.  ``makeService`` reads the
configuration and builds; nothing is opened, started or connected before the
service starts, so that twistd may change its user and go into the background
in between.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar

from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError
from twisted.application.service import IService, MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python import usage
from twisted.python.filepath import FilePath

from rsscloud_broker import __version__, allocation, descriptors
from rsscloud_broker import config as configuration
from rsscloud_broker.bus import EventBus
from rsscloud_broker.config import Config, ConfigError
from rsscloud_broker.core import (
    Access,
    Admission,
    Broker,
    ChangeDetector,
    FairLimiter,
    FeedReading,
    HandedIn,
    IntentQueue,
    MissedContentsSink,
    OwnTopicsSink,
    Poller,
    Sweeper,
    TopicReader,
    Verifier,
)
from rsscloud_broker.counters import Counters
from rsscloud_broker.discovery import KINDS, Makers, PluginError, discover, faults, select
from rsscloud_broker.front_doors.limits import Limits, bounded_site
from rsscloud_broker.front_doors.listening import listener
from rsscloud_broker.front_doors.site import FrontDoorsError, Root
from rsscloud_broker.interfaces import FrontDoorParts, IHandsIn, INotifier, SinkParts
from rsscloud_broker.model import Unavailable
from rsscloud_broker.outbound import (
    AddressGuard,
    AnswerBudget,
    Judge,
    LeanClient,
    OwnTopics,
    Resolver,
    TLSContext,
    TopicFetcher,
    TreqClient,
)
from rsscloud_broker.outbound.guard import own_listeners
from rsscloud_broker.outbound.unpacking import AT_A_TIME
from rsscloud_broker.signals import stop_once
from rsscloud_broker.sinks.distribution import DistributionOptions
from rsscloud_broker.storage import Store, UnfitDatabase, migrate
from rsscloud_broker.storage.disk_space import MEGABYTE, DiskSpace
from rsscloud_broker.timing import SystemClock, WallClockWatch, use_monotonic_timers
from rsscloud_broker.web.pages import Pages, error_page
from rsscloud_broker.workers import Workers

#: Seconds for a whole notification, and bytes of its answer that are read.
CALLBACK_DEADLINE, CALLBACK_BODY = 15.0, 64 * 1024
#: Seconds for reading a topic.
TOPIC_DEADLINE = 30.0

#: Seconds that all parts together have to stop, and those that each has when they are over.
STOP_WITHIN, MOMENT = 8.5, 0.1

#: File descriptors that the broker makes use of, if it may; and those for what is limited
#: by itself: topics that are read, callbacks that are verified, connections that are kept,
#: the database and files.
DESCRIPTORS, OTHER_DESCRIPTORS = 16_384, 500

LOOPBACK = ("127.0.0.0/8", "::1/128")
LOCAL_LISTEN = "tcp:5337:interface=127.0.0.1"


class Options(usage.Options):
    """The command line; what stands here goes before the configuration file."""

    synopsis = "[options]"
    longdesc = "Runs a notification broker. Without options it listens on port 5337."
    optParameters: ClassVar[list[list[str | None]]] = [
        ["config", "c", None, "A configuration file (TOML)."],
        ["data", "d", None, "The directory of everything the broker keeps."],
        ["public-url", "u", None, "Where others reach the broker: http(s)://HOST[:PORT]."],
    ]
    optFlags: ClassVar[list[list[str | None]]] = [
        ["local", None, "For a laptop: allow feeds and callbacks on loopback, listen only there."]
    ]

    def __init__(self) -> None:
        super().__init__()
        self["listen"] = []

    def opt_listen(self, endpoint: str) -> None:
        """Where to listen: a Twisted endpoint such as tcp:5337; may be repeated."""
        self["listen"].append(endpoint)

    opt_l = opt_listen

    def configuration(self, makers: Makers | None = None) -> Config:
        """The configuration file, with what the command line says instead.

        :param makers: the plugins that its tables are checked against.
        :raises ConfigError: one of them cannot be used.
        """
        check = partial(faults, makers) if makers else None
        config = configuration.load(self["config"], check)
        values: dict[str, Any] = {
            "data": self["data"],
            "public_url": self["public-url"],
            "listen": tuple(self["listen"]) or None,
        }
        override = partial(configuration.override, where="the command line")
        config = override(config, **{k: v for k, v in values.items() if v is not None})
        return _local(config) if self["local"] else config


def _local(config: Config) -> Config:
    """Allow loopback, without limits; and listen only there, unless it was said where."""
    egress = configuration.override(
        config.egress,
        "--local",
        allow_topics=(*config.egress.allow_topics, *LOOPBACK),
        allow_callbacks=(*config.egress.allow_callbacks, *LOOPBACK),
    )
    limits = configuration.override(
        config.limits, "--local", exempt=(*config.limits.exempt, *LOOPBACK)
    )
    listen = (LOCAL_LISTEN,) if config.listen == Config().listen else config.listen
    return configuration.override(config, "--local", egress=egress, limits=limits, listen=listen)


class CannotStart(SystemExit, Exception):
    """The broker that was built does not start.  Its text says why, to people.

    As a ``SystemExit`` it is shown without a traceback.  It is an ``Exception``
    too because only such a one makes twistd tidy up: remove the file with its
    process id, and tell the process that waits for the daemon, which would
    otherwise wait for ever.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"rsscloud-broker: {reason}")


def makeService(options: Options) -> IService:
    """The broker for a command line; twistd calls this.

    :raises SystemExit: the configuration or the plugins cannot be used; the
        text says why, to people.
    """
    from twisted.internet import reactor  # noqa: PLC0415 # twistd may install another one first

    try:
        makers = discover()
        use_monotonic_timers(reactor)  # twistd has not scheduled anything yet
        stop_once(reactor)
        return make_broker(options.configuration(makers), reactor, makers)
    except (ConfigError, PluginError, FrontDoorsError) as error:
        # Not a UsageError: that is shown without a traceback only while twistd
        # parses the command line.
        raise SystemExit(f"rsscloud-broker: {error}") from error


class BrokerService(MultiService):
    """Starts its parts in order, and stops them one after the other in reverse.

    A part that does not come to its end when it should is not waited for: whatever was
    acknowledged is stored, and what is under way is taken up after the next start.

    :param descriptors: file descriptors that may be needed at a time.
    """

    log = Logger()

    def __init__(
        self, config: Config, public_url: str, clock: IReactorTime, descriptors: int = 0
    ) -> None:
        super().__init__()
        self._config = config
        self._public_url = public_url
        self._clock = clock
        self._descriptors = descriptors
        self._lock: IO[bytes] | None = None

    def privilegedStartService(self) -> None:
        try:
            super().privilegedStartService()
        except CannotListenError as error:
            raise CannotStart(
                f"{error} Is a broker running already? --listen names another address."
            ) from error
        except OSError as error:  # where a UNIX socket was to be, with a lock beside it
            place = os.fsdecode(error.filename2 or error.filename or "")
            raise CannotStart(
                f"cannot listen: {place}: {error.strerror}; --listen names another address"
            ) from error

    def startService(self) -> None:
        url = self._config.database_url
        try:
            Path(self._config.data, "public").mkdir(parents=True, exist_ok=True)
            self._lock = _locked(Path(self._config.data, "lock"))
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
            raise CannotStart(f"{shown}: {error}") from error
        allowed = descriptors.allow(max(DESCRIPTORS, self._descriptors))
        if allowed < self._descriptors:
            self.log.warn(
                "There may be {allowed} file descriptors (ulimit -n), and {needed} are needed "
                "for as many connections as are configured; what is beyond waits or is refused.",
                allowed=allowed,
                needed=self._descriptors,
            )
        super().startService()
        allocation.what_is_there_stays()
        allocation.return_large_blocks()
        self.log.info(
            "rsscloud-broker {version} at {url}/", version=__version__, url=self._public_url
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
            except Exception:  # a bug of one part must not keep the others from stopping
                self.log.failure("Stopping {part} failed.", part=name)
        if hanging:
            self.log.warn(
                "Not waiting any longer for: {parts}. What they were at is taken up after the "
                "next start.",
                parts=", ".join(hanging),
            )
        elif self._lock is not None:  # or else it is held until nothing can be written any more
            self._lock.close()


def make_broker(config: Config, reactor: Any, makers: Makers | None = None) -> BrokerService:
    """Build a broker.

    :param makers: the plugins to choose from; by default those that are installed.
    :raises ConfigError, PluginError, FrontDoorsError: the configuration asks for
        what cannot be.
    """
    makers = makers or discover()
    chosen = {kind: select(makers.of_kind(kind), getattr(config, kind), kind) for kind in KINDS}
    public_directory = FilePath(config.data).child("public")
    public_url = config.address
    needed = OTHER_DESCRIPTORS + config.http.max_connections + _notifications(chosen["sinks"])
    service = BrokerService(config, public_url, reactor, needed)
    product = f"rsscloud-broker/{__version__}"
    user_agent = f"{product} (+{public_url})"

    clock = SystemClock(reactor)
    counters = Counters()
    store = Store(reactor, config.database_url, bounds=config.storage.bounds)
    counters.writes.set_function(store.writes_waiting)
    bus = EventBus(clock=clock, counters=counters)
    filing = Workers(reactor, "files", 2)
    unpacking = Workers(reactor, "unpacking", AT_A_TIME)
    space = DiskSpace(config.data, config.storage.min_free_mb * MEGABYTE, reactor, filing)
    resolver = Resolver(reactor, config.egress.name_servers)
    tls = TLSContext()
    own = tuple(own_listeners(config.listen))
    callback_guard = AddressGuard(config.egress.callback_networks, own)
    topic_guard = AddressGuard(config.egress.topic_networks, own)
    callbacks = LeanClient(
        reactor,
        resolver,
        callback_guard,
        tls,
        user_agent=user_agent,
        deadline=CALLBACK_DEADLINE,
        body_limit=CALLBACK_BODY,
        budget=AnswerBudget.of_callbacks(),
    )
    budget = AnswerBudget.of_topics(config.topics.body_limit, reactor.callFromThread)
    topics = TreqClient(
        reactor,
        resolver,
        topic_guard,
        tls,
        user_agent=user_agent,
        deadline=TOPIC_DEADLINE,
        body_limit=config.topics.body_limit,
        budget=budget,
        in_thread=unpacking,
    )
    notifiers = _by_protocol(
        [maker.make(options, callbacks) for maker, options in chosen["notifiers"]]
    )
    fetcher = TopicFetcher(topics, clock, product, public_url, budget)
    reading = OwnTopics(
        fetcher, Judge(resolver, topic_guard, reactor), public_url, public_directory, filing
    )
    handed_in = HandedIn()
    limiter = FairLimiter(clock)
    detector = ChangeDetector(
        store,
        TopicReader(store, reading, bus, clock, counters, limiter, handed_in),
        FeedReading(store, filing),
        bus,
        clock,
        counters,
    )
    verifier = Verifier(store, bus, detector, notifiers, clock, limiter)
    intents = IntentQueue(store, verifier, clock)
    access = Access(config.topics)
    broker = Broker(
        store,
        bus,
        detector,
        verifier,
        intents,
        clock,
        Admission(config.limits, store, clock, counters),
        access,
        reading,
        Judge(resolver, callback_guard, reactor),
        counters,
        space,
    )
    running = frozenset(maker.name for maker, options in chosen["front_doors"])
    # A hub takes subscriptions in, and calls whom it subscribed.
    has_hub = "websub" in running and "websub" in notifiers
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
    )
    sinks = [maker.make(options, sink_parts) for maker, options in chosen["sinks"]]
    for sink in (
        *sinks,
        OwnTopicsSink(store, detector, clock, public_url),
        MissedContentsSink(detector),
    ):
        bus.attach(sink)
    door_parts = FrontDoorParts(
        broker=broker,
        clock=clock,
        pages=Pages(),
        public_directory=public_directory,
        public_url=public_url,
        running=running,
        has_hub=has_hub,
    )
    doors = [maker.make(options, door_parts) for maker, options in chosen["front_doors"]]
    handing_in = [IHandsIn(part, None) for part in (*sinks, *doors)]
    handed_in.prefixes = tuple(
        prefix for part in handing_in if part is not None for prefix in part.hands_in
    )
    site = bounded_site(Root(doors, public_url), Limits(config.http, reactor), counters, error_page)
    listeners = [listener(description, site, reactor) for description in config.listen]

    sink_services = [sink for sink in sinks if IService.providedBy(sink)]
    timed = [
        Sweeper(store, bus, clock, access),
        WallClockWatch(clock, lambda seconds: store.set_back(seconds, clock.wall_seconds())),
        *([Poller(store, detector, clock, config.polling)] if config.polling.enabled else []),
    ]
    outwards = (resolver, callbacks, topics)
    for part in (
        store,
        filing,
        unpacking,
        space,
        *outwards,
        bus,
        detector,
        intents,
        *sink_services,
        *timed,
        *listeners,
    ):
        part.setServiceParent(service)
    return service


def _by_protocol(notifiers: Sequence[INotifier]) -> dict[str, INotifier]:
    found: dict[str, INotifier] = {}
    for notifier in notifiers:
        if notifier.protocol in found:
            raise PluginError(f"two notifiers carry the protocol {notifier.protocol!r}")
        found[notifier.protocol] = notifier
    return found


def _notifications(sinks: Iterable[tuple[object, object]]) -> int:
    """How many may be under way at a time."""
    return sum(
        options.in_flight + options.lingering
        for _, options in sinks
        if isinstance(options, DistributionOptions)
    )


def _locked(path: Path) -> IO[bytes]:
    """Lock a file for as long as it is open: for one process, however that ends.

    :raises BlockingIOError: another process has it.
    """
    file = path.open("ab")
    flock(file, LOCK_EX | LOCK_NB)
    return file
