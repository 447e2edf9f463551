"""The makers of the front doors, notifiers, sinks and checkers that come with the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from attrs import field, frozen
from twisted.plugin import IPlugin
from zope.interface import implementer

from rsscloud_broker import interfaces
from rsscloud_broker.accounts.portal import PasswordChecker
from rsscloud_broker.apps.events.options import EventsOptions
from rsscloud_broker.apps.events.options import history as history_of_events
from rsscloud_broker.apps.follows.options import FollowsOptions
from rsscloud_broker.apps.hosting.options import HostingOptions
from rsscloud_broker.apps.hosting.schema import TABLES as HOSTING_TABLES
from rsscloud_broker.apps.river.options import RiverOptions
from rsscloud_broker.apps.river.schema import TABLES as RIVER_TABLES
from rsscloud_broker.apps.test_feed.items import TABLES as TEST_FEED_TABLES
from rsscloud_broker.apps.test_feed.options import TestFeedOptions
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.apps.writing.schema import TABLES as TABLES_OF_WRITING
from rsscloud_broker.config import NoOptions
from rsscloud_broker.delivery.distribution import Distribution
from rsscloud_broker.delivery.notifiers import (
    HttpPostNotifier,
    RssCloudNotifierOptions,
    SoapNotifier,
    WebSubNotifier,
    WebSubNotifierOptions,
    XMLRPCNotifier,
)
from rsscloud_broker.delivery.options import DistributionOptions
from rsscloud_broker.front_doors.change_lists import ChangeListsDoor
from rsscloud_broker.front_doors.ping_sink import PingSinkDoor, PingSinkOptions
from rsscloud_broker.front_doors.resourcesync import ResourceSyncDoor, ResourceSyncOptions
from rsscloud_broker.front_doors.resourcesync import pushed_prefixes as pushed_by_publishers
from rsscloud_broker.front_doors.rsscloud import RssCloudDoor, RssCloudOptions
from rsscloud_broker.front_doors.websub import WebSubDoor
from rsscloud_broker.model.work import History
from rsscloud_broker.simplefeed.schema import TABLES as SIMPLEFEED_TABLES
from rsscloud_broker.sinks.archive import ArchiveOptions, ArchiveSink
from rsscloud_broker.sinks.change_list import ChangeListOptions, ChangeListSink
from rsscloud_broker.sinks.event_log import EventLogOptions, EventLogSink
from rsscloud_broker.sinks.relay import RelayOptions, RelaySink
from rsscloud_broker.sinks.resourcesync import ResourceSyncSink
from rsscloud_broker.sinks.resourcesync import pushed_prefixes as pushed_by_the_source
from rsscloud_broker.sinks.statistics import StatisticsOptions, StatisticsSink
from rsscloud_broker.web.admin.door import AdministrationDoor
from rsscloud_broker.web.doctor import DoctorDoor, DoctorOptions
from rsscloud_broker.web.event_log import EventLogDoor
from rsscloud_broker.web.front_page import FrontPageDoor, FrontPageOptions
from rsscloud_broker.web.public_lists import PublicListsDoor, PublicListsOptions
from rsscloud_broker.web.sign_in import AccountsDoor
from rsscloud_broker.web.stats_page import StatsDoor, StatsOptions
from rsscloud_broker.web.topic_page import TopicPageDoor


@frozen
class _Maker:
    """A maker whose ``make`` is a given function or class."""

    name: str
    help: str
    options: type
    make: Callable[[Any, Any], Any]
    needs: tuple[str, ...] = field(default=(), kw_only=True)


@implementer(IPlugin, interfaces.IFrontDoorMaker)
class FrontDoorMaker(_Maker):
    """Makes a front door from its options and parts."""


@implementer(IPlugin, interfaces.INotifierMaker)
@frozen
class NotifierMaker(_Maker):
    """Makes a notifier from its options and the outbound client."""

    needs: tuple[str, ...] = field(default=("outbound",), kw_only=True)


@implementer(IPlugin, interfaces.ISinkMaker)
class SinkMaker(_Maker):
    """Makes a sink from its options and parts."""


@implementer(IPlugin, interfaces.ICheckerMaker)
class CheckerMaker(_Maker):
    """Makes a credentials checker from its options and parts."""


@implementer(interfaces.IKeepsFeeds)
@frozen
class FeedsFrontDoorMaker(FrontDoorMaker):
    """Makes a front door that makes feeds of what the store keeps; see ``IKeepsFeeds``."""

    tables: Mapping[str, interfaces.AppTables]
    history: Callable[[Any, str, Sequence[str]], History]


@implementer(interfaces.IPushesContent)
@frozen
class PushingFrontDoorMaker(FrontDoorMaker):
    """Makes a front door that pushes the content of topics; see ``IPushesContent``."""

    pushed_prefixes: Callable[[Any, str, bool], Sequence[str]]


@implementer(interfaces.IPushesContent)
@frozen
class PushingSinkMaker(SinkMaker):
    """Makes a sink that pushes the content of topics; see ``IPushesContent``."""

    pushed_prefixes: Callable[[Any, str, bool], Sequence[str]]


@implementer(IPlugin, interfaces.IAppMaker)
@frozen
class AppMaker(_Maker):
    """Makes an application from its options and parts; ``tables`` is None if it has none."""

    tables: interfaces.AppTables | None = None


def _import_when_called(module: str, name: str) -> Callable[[Any, Any], Any]:
    """A function of a module that is imported when the function is called for the first time.

    Applications take long to import, and most brokers do not run them.
    """

    def make(options: Any, parts: Any) -> Any:
        return getattr(import_module(module), name)(options, parts)

    return make


def _simple(
    make: Callable[[interfaces.IOutbound], interfaces.INotifier],
) -> Callable[[Any, interfaces.NotifierParts], interfaces.INotifier]:
    """The ``make`` of a maker whose notifier has no options."""
    return lambda options, parts: make(parts.outbound)


rsscloud = FrontDoorMaker(
    "rsscloud",
    "rssCloud by REST, XML-RPC and SOAP: registrations and pings",
    RssCloudOptions,
    RssCloudDoor,
    needs=("broker", "callers", "clock", "pages", "public_url", "running"),
)
ping_sink = FrontDoorMaker(
    "ping_sink",
    "weblogUpdates pings by XML-RPC, SOAP, GET and POST",
    PingSinkOptions,
    PingSinkDoor,
    needs=("broker", "callers", "clock", "pages", "public_url", "running"),
)
change_lists = FrontDoorMaker(
    "change_lists",
    "changes.xml, shortChanges.xml and hourly archives for crawlers",
    NoOptions,
    ChangeListsDoor,
    needs=("clock", "copy_file", "has_hub", "public_directory", "public_url"),
)
websub = FrontDoorMaker(
    "websub",
    "the hub of WebSub and PubSubHubbub: subscribe, unsubscribe and publish",
    NoOptions,
    WebSubDoor,
    needs=("broker", "callers", "pages", "public_url", "running"),
)
resourcesync = PushingFrontDoorMaker(
    "resourcesync",
    "ResourceSync: notifications of other sources, and the documents of our own",
    ResourceSyncOptions,
    ResourceSyncDoor,
    pushed_by_publishers,
    needs=("broker", "clock", "copy_file", "has_hub", "public_directory", "public_url"),
)
follows = FrontDoorMaker(
    "follows",
    "takes in the pings of other brokers, whose change lists and feeds it reads",
    FollowsOptions,
    _import_when_called("rsscloud_broker.apps.follows.door", "FollowsDoor"),
    needs=("clock", "counters", "follows", "intake", "jobs", "parse", "public_url", "web"),
)
events = FeedsFrontDoorMaker(
    "events",
    "feeds of everything that changed, complete and in order, and a stream of them",
    EventsOptions,
    _import_when_called("rsscloud_broker.apps.events.door", "EventsDoor"),
    {"simplefeed": SIMPLEFEED_TABLES},
    history_of_events,
    needs=(
        *("callers", "changes", "clock", "database", "directory"),
        *("has_hub", "in_thread", "max_connections", "max_connections_per_address"),
        *("pages", "parse", "public_url", "published"),
    ),
)
event_log = FrontDoorMaker(
    "event_log",
    "the event log for people, at /log",
    NoOptions,
    EventLogDoor,
    needs=(
        *("callers", "clock", "disclosure", "event_log", "max_connections"),
        *("max_connections_per_address", "pages"),
    ),
)
doctor = FrontDoorMaker(
    "doctor",
    "the page that examines a feed for its publisher, and the self-test of the broker",
    DoctorOptions,
    DoctorDoor,
    needs=("callers", "feed_doctor", "pages", "self_test"),
)
front_page = FrontDoorMaker(
    "front_page",
    "the front page and the page on how to use it",
    FrontPageOptions,
    FrontPageDoor,
    needs=(
        *("broker", "callers", "clock", "has_hub"),
        *("pages", "public_url", "running", "statistics"),
    ),
)
topic_page = FrontDoorMaker(
    "topic_page",
    "the page about one topic: what the broker knows of it, and a button to fetch it",
    NoOptions,
    TopicPageDoor,
    needs=(
        *("broker", "callers", "clock", "disclosure", "event_log"),
        *("has_hub", "pages", "public_url", "running", "topics"),
    ),
)
public_lists = FrontDoorMaker(
    "public_lists",
    "recent changes as a page, and the watched topics as OPML and JSON",
    PublicListsOptions,
    PublicListsDoor,
    needs=(
        *("callers", "clock", "disclosure", "event_log"),
        *("pages", "public_url", "running", "topics"),
    ),
)

administration = FrontDoorMaker(
    "administration",
    "the pages and the API for administrators, at /admin and /api",
    NoOptions,
    AdministrationDoor,
    needs=(
        *("accounts", "administration", "callers", "clock", "event_log"),
        *("health", "pages", "public_url", "running", "statistics"),
    ),
)
stats = FrontDoorMaker(
    "stats",
    "the statistics page, and the same numbers as JSON",
    StatsOptions,
    StatsDoor,
    needs=("callers", "clock", "in_thread", "pages", "statistics"),
)
accounts = FrontDoorMaker(
    "accounts",
    "the pages to sign in and out, and to manage one's own account",
    NoOptions,
    AccountsDoor,
    needs=(
        *("account_files", "accounts", "administration", "callers"),
        *("clock", "pages", "public_url", "running"),
    ),
)

http_post = NotifierMaker(
    "http_post",
    "rssCloud notifications by HTTP POST",
    RssCloudNotifierOptions,
    _simple(partial(HttpPostNotifier, "http-post")),
)
https_post = NotifierMaker(
    "https_post",
    "rssCloud notifications by HTTP POST over TLS",
    RssCloudNotifierOptions,
    _simple(partial(HttpPostNotifier, "https-post")),
)
xml_rpc = NotifierMaker(
    "xml_rpc", "rssCloud notifications by XML-RPC", RssCloudNotifierOptions, _simple(XMLRPCNotifier)
)
soap = NotifierMaker(
    "soap", "rssCloud notifications by SOAP 1.1", RssCloudNotifierOptions, _simple(SoapNotifier)
)
websub_delivery = NotifierMaker(
    "websub",
    "WebSub deliveries: the content of topics by HTTP POST, signed",
    WebSubNotifierOptions,
    lambda options, parts: WebSubNotifier(parts.outbound, options),
)

distribution = SinkMaker(
    "distribution",
    "notifies the subscribers of topics that have changed; without it nobody is",
    DistributionOptions,
    Distribution,
    needs=("blocks", "bus", "clock", "counters", "history", "notifiers", "outbound", "store"),
)
change_list = SinkMaker(
    "change_list",
    "makes changes.xml and shortChanges.xml",
    ChangeListOptions,
    ChangeListSink,
    needs=("bus", "clock", "in_thread", "public_directory", "store"),
)
event_log_sink = SinkMaker(
    "event_log",
    "writes what the broker does into the event log",
    EventLogOptions,
    EventLogSink,
    needs=("clock", "store"),
)
archive = SinkMaker(
    "archive",
    "makes the hourly archives and deletes old pings, which otherwise stay forever",
    ArchiveOptions,
    ArchiveSink,
    needs=("bus", "clock", "in_thread", "public_directory", "store"),
)
relay = SinkMaker(
    "relay",
    "passes pings on to other ping servers, hubs and clouds",
    RelayOptions,
    RelaySink,
    needs=("bus", "clock", "counters", "outbound", "public_url", "store"),
)
statistics = SinkMaker(
    "statistics",
    "stores each minute how much the broker did; without it the statistics stay empty",
    StatisticsOptions,
    StatisticsSink,
    needs=("clock", "counters", "store"),
)
resourcesync_source = PushingSinkMaker(
    "resourcesync",
    "makes the ResourceSync documents of the hourly archives",
    NoOptions,
    ResourceSyncSink,
    pushed_by_the_source,
    needs=(
        *("bus", "clock", "copy_file", "has_hub", "in_thread"),
        *("public_directory", "public_url", "store"),
    ),
)

writing = AppMaker(
    "writing",
    "people write short messages at /write, which are published as feeds",
    WritingOptions,
    _import_when_called("rsscloud_broker.apps.writing.app", "make"),
    TABLES_OF_WRITING,
    needs=(
        *("accounts", "callers", "clock", "database", "has_cloud"),
        *("has_hub", "in_thread", "jobs", "pages", "parse"),
        *("public_url", "publisher", "taken_down", "web"),
    ),
)

password = CheckerMaker(
    "password",
    "accepts the passwords that the broker stores",
    NoOptions,
    PasswordChecker,
    needs=("passwords",),
)

test_feed = AppMaker(
    "test_feed",
    "a feed that gets a new item every 15 minutes, to test subscribers with",
    TestFeedOptions,
    _import_when_called("rsscloud_broker.apps.test_feed.app", "make_test_feed"),
    TEST_FEED_TABLES,
    needs=(
        *("callers", "clock", "database", "has_cloud", "has_hub"),
        *("jobs", "pages", "public_url", "publisher", "running"),
    ),
)

hosting = AppMaker(
    "hosting",
    "stores feeds for their authors, serves them and notifies their subscribers",
    HostingOptions,
    _import_when_called("rsscloud_broker.apps.hosting.app", "make_hosting"),
    HOSTING_TABLES,
    needs=(
        *("accounts", "callers", "clock", "database", "has_hub", "jobs"),
        *("pages", "parse", "public_url", "publisher", "rate_limit"),
    ),
)

river = AppMaker(
    "river",
    "a reading list for each account, and the items of its feeds as they arrive",
    RiverOptions,
    _import_when_called("rsscloud_broker.apps.river.app", "make_river"),
    RIVER_TABLES,
    needs=(
        *("broker", "callers", "clock", "database", "in_thread"),
        *("jobs", "max_connections", "max_connections_per_address", "outbound"),
        *("pages", "parse", "public_url", "topics", "web"),
    ),
)
