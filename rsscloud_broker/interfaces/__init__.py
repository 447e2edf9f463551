"""Every interface of the broker.  Read this first.

- ``broker``: the verbs that front doors call, the clock, and the event bus
- ``plugins``: what front doors, notifiers and sinks implement, and what they are given
- ``apps``: what applications implement, and what they are given
- ``database``: the database, for those with tables of their own; and of the store, what feeds are
  made of, pings that travel between brokers, and what one node does for all
- ``views``: what pages may read, and whether the parts of the broker work
- ``accounts``: accounts, sessions and tokens, and who makes a request
- ``administration``: what administrators see and do, and what is blocked
- ``outbound``: HTTP requests to other servers, and which URLs the broker refuses to call
- ``parsing``: documents of strangers, which are parsed elsewhere
- ``simplefeed``: what processes the entries of a feed, and what remembers how far it has come

Arguments are permissions: a front door is given the broker and nothing below it, a sink is given
the store and the bus, and a notifier is given only the outbound client.

Every method that returns an ``Awaitable`` may be an ``async def`` or return a ``Deferred``.
"""

from __future__ import annotations

from rsscloud_broker.interfaces.accounts import (
    Account,
    AccountFile,
    Caller,
    CheckerParts,
    IAccount,
    IAccounts,
    ICallers,
    IPasswords,
    RefusedSignIn,
    Session,
    SignedIn,
    SignIn,
    StoredPassword,
    Token,
)
from rsscloud_broker.interfaces.administration import IAccountAdministration, IAdministration
from rsscloud_broker.interfaces.apps import (
    AccountData,
    App,
    AppParts,
    AppTables,
    IApp,
    IAppMaker,
    IPublisher,
    ServedTopics,
)
from rsscloud_broker.interfaces.broker import IBroker, IClock, IEventBus, IEventSink
from rsscloud_broker.interfaces.database import (
    IChangeStore,
    IDatabase,
    IFollowStore,
    IJobs,
    IKeepsFeeds,
    Intake,
    IPingIntake,
    IServesTopics,
)
from rsscloud_broker.interfaces.outbound import (
    IDirectOutbound,
    INotifyingOutbound,
    IOutbound,
    ITopicFetcher,
    IURLPolicy,
    OutboundReply,
    OutboundRequest,
    Signing,
)
from rsscloud_broker.interfaces.parsing import Parsing, parse_directly
from rsscloud_broker.interfaces.plugins import (
    FrontDoorParts,
    ICheckerMaker,
    IDirectNotifier,
    IFrontDoor,
    IFrontDoorMaker,
    INotifier,
    INotifierMaker,
    IPages,
    IPluginMaker,
    IPushesContent,
    ISinkMaker,
    NotifierParts,
    Route,
    RoutesOnly,
    SinkParts,
    SoapDescription,
    SoapOperation,
    SoapService,
    nothing_to_copy,
)
from rsscloud_broker.interfaces.simplefeed import IEntryHandler, IMarker, Position
from rsscloud_broker.interfaces.views import (
    FeedReport,
    Finding,
    IEventLog,
    IFeedDoctor,
    IHealth,
    ISelfTest,
    IStatistics,
    ITopicView,
    PartState,
)
