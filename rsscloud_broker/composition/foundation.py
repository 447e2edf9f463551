"""What a broker stands on: its configuration and database, accounts and limits, and what calls
other servers.  ``Server`` has the parts that stand on these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import evolve
from sqlalchemy import make_url
from twisted.cred.credentials import IUsernamePassword
from twisted.cred.portal import Portal
from twisted.logger import ILogObserver
from twisted.python.filepath import FilePath

from rsscloud_broker import __version__
from rsscloud_broker.accounts import (
    AccountRealm,
    Accounts,
    AnyOf,
    Hasher,
    PasswordChecker,
    Passwords,
)
from rsscloud_broker.composition.apps import tables_of, tables_of_feeds
from rsscloud_broker.composition.part import part
from rsscloud_broker.config import Config, Network
from rsscloud_broker.core import Access, Admission, Blocks, EventLog, FairLimiter, TopicView
from rsscloud_broker.core.bus import EventBus
from rsscloud_broker.counters import Counters
from rsscloud_broker.database.disk_space import MEGABYTE, DiskSpace
from rsscloud_broker.database.threads import StoreThreads
from rsscloud_broker.delivery.options import notifications_of
from rsscloud_broker.events import FilePublished
from rsscloud_broker.http.access_log import AccessLog
from rsscloud_broker.http.limits import HTTPLimits
from rsscloud_broker.interfaces import AppTables, CheckerParts, INotifier, ITopicFetcher
from rsscloud_broker.model.disclosure import Disclosure
from rsscloud_broker.model.work import History
from rsscloud_broker.outbound import (
    AddressGuard,
    AnswerBudget,
    CallbackClient,
    Resolver,
    TLSContext,
    TopicClient,
    TopicFetcher,
    URLPolicy,
)
from rsscloud_broker.outbound.couriers.crew import CourierFetcher, Crew, TopicClients
from rsscloud_broker.outbound.couriers.fork_server import ForkServer
from rsscloud_broker.outbound.couriers.messages import Setup, TopicRules
from rsscloud_broker.outbound.decoding import AT_A_TIME
from rsscloud_broker.outbound.guard import own_listeners
from rsscloud_broker.policy.rate_limits import RateLimit
from rsscloud_broker.runtime.logs import Logs
from rsscloud_broker.runtime.measuring import LoopDelay, add_process_metrics
from rsscloud_broker.runtime.plugin_building import (
    described,
    kept_history,
    make_all,
    make_notifiers,
    pushed_prefixes,
)
from rsscloud_broker.runtime.plugin_discovery import KINDS, Makers, PluginError, discover, select
from rsscloud_broker.runtime.self_test import SelfTest
from rsscloud_broker.runtime.signals import rotate_at_request
from rsscloud_broker.storage import AccountStore, Store
from rsscloud_broker.util.clock import SystemClock
from rsscloud_broker.util.threads import Workers
from rsscloud_broker.util.urls import identity
from rsscloud_broker.web.callers import Callers

#: The deadline in seconds of a call to a callback, and how many bytes of its answer are read.
CALLBACK_DEADLINE, CALLBACK_BODY = 15.0, 64 * 1024
#: The deadline in seconds of a fetch.
TOPIC_DEADLINE = 30.0

_PRODUCT = f"rsscloud-broker/{__version__}"


class Foundation:
    """The parts that know nothing of what the broker does.

    :param makers: the plugins to select from; by default those that are installed.
    :param is_local: whether the person who starts it gets a link to sign in, on the terminal.
    :param twistd: twistd's options; None if another program runs the broker.
    """

    def __init__(
        self,
        config: Config,
        reactor: Any,
        makers: Makers | None = None,
        *,
        is_local: bool = False,
        twistd: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = config
        self.reactor = reactor
        self.makers = makers or discover()
        self.is_local = is_local
        self.twistd = twistd
        self.public_url = config.address
        self.public_directory = FilePath(config.data).child("public")
        self.directory = FilePath(config.data).child("feeds")  # of front doors; apps have others
        self.user_agent = f"{_PRODUCT} (+{self.public_url})"
        self.own_endpoints = tuple(own_listeners(config.all_listen))

    # --- what everything stands on

    @part
    def clock(self) -> SystemClock:
        return SystemClock(self.reactor)

    @part
    def counters(self) -> Counters:
        counters = Counters()
        backend = make_url(self.config.database_url).get_backend_name()
        add_process_metrics(counters, __version__, backend)
        return counters

    @part
    def in_thread(self) -> Workers:
        """The threads that read and write files."""
        return Workers(self.reactor, "files", 2, self.counters)

    @part
    def decoding(self) -> Workers:
        return Workers(self.reactor, "decoding", AT_A_TIME, self.counters)

    @part
    def forks(self) -> ForkServer:
        return ForkServer(self.reactor)

    @part
    def space(self) -> DiskSpace:
        free = self.config.storage.min_free_mb * MEGABYTE
        return DiskSpace(self.config.data, free, self.reactor, self.in_thread, self.counters)

    @part
    def database(self) -> StoreThreads:
        return StoreThreads(self.reactor, self.counters)

    @part
    def account_store(self) -> AccountStore:
        return AccountStore(self.database)

    @part
    def store(self) -> Store:
        bounds = evolve(self.config.storage.bounds, history=self.history)
        return Store(self.reactor, self.config.database_url, self.database, bounds, self.counters)

    @property
    def changes(self) -> Store:
        return self.store

    follows = jobs = statistics = changes  # by these names plugins need the store

    @part
    def topics(self) -> TopicView:
        return TopicView(self.store, self.clock)

    @part
    def event_log(self) -> EventLog | None:
        return EventLog(self.store) if "event_log" in self.names("sinks") else None

    @part
    def bus(self) -> EventBus:
        return EventBus(clock=self.clock, counters=self.counters)

    def published(self, path: str) -> None:
        """Publish that a file below the public directory was written."""
        self.bus.publish(FilePublished(path, self.clock.wall_seconds()))

    # --- which plugins run, and what their makers declare

    @part
    def chosen(self) -> Mapping[str, Sequence[tuple[Any, Any]]]:
        """The makers that the configuration enables with their options, by kind."""
        return {
            kind: select(self.makers.of_kind(kind), getattr(self.config, kind), kind)
            for kind in KINDS
        }

    def names(self, kind: str) -> frozenset[str]:
        """The names of the plugins of a kind that run."""
        return frozenset(maker.name for maker, _ in self.chosen[kind])

    @part
    def running(self) -> frozenset[str]:
        """The names of the front doors and applications that run."""
        return self.names("front_doors") | self.names("apps")

    @part
    def has_hub(self) -> bool:
        """Whether others can subscribe here by WebSub, which needs a front door and a notifier."""
        return "websub" in self.names("front_doors") and "websub" in self.own_notifiers

    @part
    def has_cloud(self) -> bool:
        return "rsscloud" in self.names("front_doors")

    @part
    def prefixes(self) -> tuple[str, ...]:
        """How the URLs of the topics begin whose content is pushed."""
        return pushed_prefixes(self.makers, self.chosen, self.public_url, self.has_hub)

    @part
    def history(self) -> History | None:
        """Which changes of topics are kept for the feeds; None if no front door makes feeds."""
        return kept_history(self.chosen["front_doors"], self.public_url, self.prefixes)

    @part
    def app_tables(self) -> Mapping[str, AppTables]:
        """The tables of the applications and of the feeds, by the names with which they begin."""
        return tables_of(self.chosen["apps"]) | tables_of_feeds(self.chosen["front_doors"])

    # --- what is logged and measured

    @part
    def logs(self) -> Logs:
        return Logs(self.config.log)

    @part
    def observer(self) -> ILogObserver | None:
        """What writes the log; None if twistd or another program does."""
        opened = partial(rotate_at_request, self.reactor)
        return self.logs.observer(self.twistd or {}, opened)

    @part
    def log_writing(self) -> Workers:
        return Workers(self.reactor, "log files", 1, self.counters)

    @part
    def access_log(self) -> AccessLog:
        return AccessLog(self.config.log.access, self.clock, self.log_writing, self.counters)

    @part
    def loop_delay(self) -> LoopDelay:
        return LoopDelay(self.clock, self.counters)

    @part
    def self_test(self) -> SelfTest:
        return SelfTest(self.config.data, self.clock)

    # --- who may do what

    @part
    def blocks(self) -> Blocks:
        return Blocks()

    @part
    def access(self) -> Access:
        return Access(self.config.topics, self.blocks, identity(self.public_url))

    @part
    def admission(self) -> Admission:
        return Admission(
            self.config.limits,
            self.store.has_subscription,
            self.store.count_of_host,
            self.clock,
            self.counters,
        )

    @part
    def limiter(self) -> FairLimiter:
        return FairLimiter(self.clock)

    @part
    def limits(self) -> HTTPLimits:
        return HTTPLimits(self.config.http, self.reactor, self.public_url)

    def max_connections(self) -> int:
        return self.limits.http.max_connections

    def max_connections_per_address(self) -> int:
        return self.limits.http.max_connections_per_address

    def rate_limit(self, rate: float, burst: int) -> Callable[[str], int]:
        """A function that takes a token for a key: see ``RateLimit.take``."""
        return RateLimit(rate, burst, self.clock).take

    @part
    def disclosure(self) -> Disclosure:
        return Disclosure(self.config.pages.callbacks)

    @part
    def hashing(self) -> Workers:
        # More would take memory and processor time from everything else.
        return Workers(self.reactor, "passwords", 2)

    @part
    def passwords(self) -> Passwords:
        return Passwords(self.account_store, Hasher(self.config.accounts), self.hashing)

    @part
    def checkers(self) -> Sequence[Any]:
        chosen = self.chosen["checkers"]
        parts = CheckerParts(self.passwords, self.clock, self.hashing)
        made = make_all(self.makers, "checkers", chosen, parts)
        for (maker, _), checker in zip(chosen, made, strict=True):
            if IUsernamePassword not in checker.credentialInterfaces:
                raise PluginError(
                    f"{described(self.makers, 'checkers', maker)} checks no passwords: its "
                    "credentialInterfaces lack IUsernamePassword; fix or uninstall it, or set "
                    f"enabled = false in [checkers.{maker.name}]"
                )
        return made

    @part
    def accounts(self) -> Accounts:
        options = self.config.accounts
        return Accounts(
            self.account_store,
            Portal(AccountRealm(self.account_store), [AnyOf(self.checkers)]),
            self.passwords,
            self.clock,
            options,
            self.rate_limit(options.attempts_per_source, options.attempts_burst),
            self.rate_limit(options.attempts_per_name, options.attempts_burst),
            other_checkers=not all(isinstance(each, PasswordChecker) for each in self.checkers),
        )

    @part
    def callers(self) -> Callers:
        return Callers(self.accounts, self.public_url)

    # --- calls to others

    @part
    def resolver(self) -> Resolver:
        resolver = Resolver(self.reactor, self.config.egress.name_servers)
        self.counters.lookups.set_function(lambda: resolver.lookups)
        return resolver

    @part
    def tls(self) -> TLSContext:
        return TLSContext()

    @part
    def callback_guard(self) -> AddressGuard:
        return AddressGuard(self.config.egress.callback_networks, self.own_endpoints, self.blocks)

    @part
    def topic_guard(self) -> AddressGuard:
        return AddressGuard(self.config.egress.topic_networks, self.own_endpoints, self.blocks)

    @part
    def callback_policy(self) -> URLPolicy:
        return URLPolicy(self.resolver, self.callback_guard, self.reactor)

    @part
    def topic_policy(self) -> URLPolicy:
        return URLPolicy(self.resolver, self.topic_guard, self.reactor)

    @part
    def crew(self) -> Crew | None:
        """The couriers; None if this process calls others itself."""
        config = self.config
        if not (processes := config.delivery.couriers):
            return None
        setup = Setup(
            user_agent=self.user_agent,
            name_servers=[*config.egress.name_servers],
            own=[*self.own_endpoints],
            deadline=CALLBACK_DEADLINE,
            body_limit=CALLBACK_BODY,
        )
        rules = TopicRules(
            product=_PRODUCT,
            page=self.public_url,
            deadline=TOPIC_DEADLINE,
            body_limit=config.topics.body_limit,
            allowed=[*map(str, config.egress.topic_networks)],
        )
        allowed = config.egress.allow_callbacks
        calls = notifications_of(self.chosen["sinks"])
        crew = Crew(self.reactor, self.clock, self.forks, processes, setup, allowed, rules, calls)
        self.blocks.follow(crew.block)
        return crew

    @part
    def outbound(self) -> CallbackClient | Crew:
        """Calls callbacks."""
        client = self.crew or CallbackClient(
            self.reactor,
            self.resolver,
            self.callback_guard,
            self.tls,
            user_agent=self.user_agent,
            deadline=CALLBACK_DEADLINE,
            body_limit=CALLBACK_BODY,
            budget=AnswerBudget.of_callbacks(),
            blocks=self.blocks,
        )
        self.counters.outgoing.labels("callbacks").set_function(lambda: client.under_way)
        self.counters.idle.labels("callbacks").set_function(lambda: client.idle)
        return client

    def allow_callbacks(self, networks: Sequence[Network]) -> None:
        """Allow callbacks in these networks.  Couriers have guards beside that of this process."""
        self.callback_guard.allow(networks)
        self.outbound.allow(networks)

    @part
    def fetch_budget(self) -> AnswerBudget:
        """The memory that all answers to fetches may take together."""
        return AnswerBudget.of_topics(self.config.topics.body_limit, self.reactor.callFromThread)

    @part
    def web(self) -> TopicClient:
        """Calls the servers of topics for all but fetches by couriers."""
        return TopicClient(
            self.reactor,
            self.resolver,
            self.topic_guard,
            self.tls,
            user_agent=self.user_agent,
            deadline=TOPIC_DEADLINE,
            body_limit=self.config.topics.body_limit,
            budget=self.fetch_budget,
            in_thread=self.decoding,
            blocks=self.blocks,
        )

    @part
    def topic_clients(self) -> TopicClients:
        clients = TopicClients(self.web, self.crew)
        self.counters.outgoing.labels("topics").set_function(lambda: clients.under_way)
        self.counters.idle.labels("topics").set_function(lambda: clients.idle)
        return clients

    @part
    def remote_fetcher(self) -> ITopicFetcher:
        """Fetches the topics of others."""
        if self.crew is not None:
            return CourierFetcher(self.crew, self.fetch_budget)
        memory = self.fetch_budget
        return TopicFetcher(
            self.web, self.clock, _PRODUCT, self.public_url, memory, deadline=TOPIC_DEADLINE
        )

    @part
    def own_notifiers(self) -> Mapping[str, INotifier]:
        """The notifiers that are plugins, not parts of applications, by protocol."""
        return make_notifiers(self.makers, self.chosen["notifiers"], self)
