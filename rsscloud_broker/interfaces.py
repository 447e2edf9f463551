"""Every interface of the broker.  Read this first.

Argument lists are permissions: a front door is given the broker and nothing
below it, a sink the store and the bus, a notifier only the outbound client.
Every method that returns an ``Awaitable`` may be an ``async def`` or return a
``Deferred``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from attrs import field, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.plugin import IPlugin
from twisted.python.filepath import FilePath
from twisted.web.resource import IResource
from twisted.web.xmlrpc import XMLRPC
from zope.interface import Attribute, Interface

from rsscloud_broker.counters import Counters
from rsscloud_broker.events import Event
from rsscloud_broker.model import (
    Callback,
    Check,
    Content,
    Delivery,
    Denial,
    Fanout,
    Fetched,
    FetchRecord,
    FetchResult,
    HostState,
    Intent,
    Notification,
    Outcome,
    Ping,
    PingRecord,
    PollPlan,
    Recorded,
    Subscription,
    Swept,
    Topic,
    TopicStatus,
    Validators,
    WaitingIntent,
)

# --- time -------------------------------------------------------------------


class IClock(IReactorTime):
    """The time, by two clocks.

    ``seconds`` and ``callLater`` go by a monotonic clock.  Nobody sets it, and its
    readings mean nothing outside this process: it is for timers and durations.

    ``wall_seconds`` reads the wall clock.  Somebody may set it at any moment, back too: it
    is for what is stored, shown, or compared with what is stored.
    """

    def wall_seconds() -> float:
        """Seconds since the epoch (UTC), by the computer's wall clock."""


# --- the middle -------------------------------------------------------------


class IBroker(Interface):
    """The verbs.  When one of them returns, what it did is on disk.

    Every URL must be a web address: http or https, with a host, without white space, of at
    most 2048 characters.  The broker checks that, whatever a front door has checked.
    """

    protocols = Attribute("A frozenset of the protocols that subscribers may ask for.")
    content_protocols = Attribute("Those of them whose notifications carry the content of topics.")

    def ping(ping: Ping, repeat_window: float, source: str) -> Awaitable[None]:
        """Take in that a site changed.  Nothing is fetched before this returns.

        Subscribers of any topic that the ping names are told once the topic
        has been read and found changed.

        :param repeat_window: seconds within which the same ping again makes no
            second record.
        :param source: the address of the caller, which may ping only so often;
            empty if nobody called.
        :raises TooMany: it did so more often.
        :raises InvalidPing: one of its URLs is no web address.
        """

    def recent_pings() -> Awaitable[Sequence[Ping]]:
        """The newest pings, newest first and ten at most, as they were a second ago or later.

        However often this is called, the store is read once a second at most.

        :raises Unavailable: the store cannot be read.
        """

    def ping_topic(url: str, source: str, again: bool = ...) -> Awaitable[bool]:
        """Read a topic because somebody says that it changed.

        :param source: as for ``ping``.
        :param again: if it cannot be read, and somebody subscribed to it, it is
            read again later.
        :returns: whether it had; if so, its subscribers are being told.
        :raises TooMany: the caller pinged too often; or nobody has subscribed to the topic,
            and too many such topics of its host are read.
        :raises TopicUnreadable: it could not be read; nothing was stored.
        """

    def publish(urls: Collection[str], source: str) -> Awaitable[Mapping[str, str]]:
        """Take in that topics changed, to be read afterwards.

        Each counts as a ping of that topic.  Nothing is fetched before this returns.

        :param urls: at least one.
        :param source: as for ``ping``.
        :returns: sentences for people, by URL in normal form: why some of them were not
            taken in, as below, or could not be read the last time.
        :raises TooMany: the caller pinged too often; none of them was taken in.
        :raises Forbidden: nobody may publish the first of them, and none was taken in.
        :raises TopicUnreadable: likewise, as the broker would not call a URL like that,
            the topic has ended, or its content is handed in.
        :raises TooMany: likewise, as nobody has subscribed to it, and too many such topics
            of its host are read, or wait to be read.
        """

    def distribute(topic: str, content: Content) -> Awaitable[bool]:
        """Carry a content to the subscribers of a topic, as it is and without a fetch.

        Whoever calls this has made sure of the publisher.

        :returns: whether there is anybody to carry it to.
        :raises TopicUnreadable: the URL of the topic is no web address.
        """

    def subscribe(intent: Intent) -> Awaitable[Subscription]:
        """Verify an intent, then store the subscription or renew it.

        :raises UnsupportedProtocol: no notifier carries its protocol.
        :raises Forbidden: nobody may subscribe to the topic.
        :raises TopicUnreadable: the topic could not be read, or has ended.
        :raises CallbackFailed: the callback did not confirm, now or a moment ago.
        :raises TooMany: the caller asks too often, or too much is asked of the
            hosts of the topic or the callback; neither was called.
        """

    def unsubscribe(intent: Intent) -> Awaitable[bool]:
        """Verify an intent to end a subscription, then remove it.

        :returns: whether there was one.
        :raises UnsupportedProtocol, CallbackFailed, TooMany: as for ``subscribe``.
        """

    def accept(intent: Intent) -> Awaitable[None]:
        """Take in an intent to subscribe or to unsubscribe, to be verified afterwards.

        It outlives a restart.  A later one of the same topic and callback replaces
        it.  What comes of it the subscriber learns at its callback.

        :raises UnsupportedProtocol, Forbidden, TooMany: as for ``subscribe``; too many
            too if more intents wait than the broker keeps.
        :raises TopicUnreadable: the broker would not call a URL like that, or the
            topic has ended.
        :raises CallbackFailed: the broker would not call a URL like that.
        """


class IEventBus(Interface):
    """Carries events from the core to the sinks."""

    def attach(sink: IEventSink) -> None:
        """Let a sink have the events it handles from now on."""

    def publish(event: Event) -> None:
        """Put an event into the queue of every sink that handles its class.

        Never blocks and never raises.  For a sink whose queue is full the
        event is dropped and counted: what it told of is in the store.
        """


class IEventSink(Interface):
    """Reacts to events, one at a time and in order.

    A sink that is also an ``IService`` is started and stopped with the broker.
    """

    name = Attribute("A unique str, for logs and counters.")
    handles = Attribute("A tuple of the event classes that the sink wants.")

    def handle(event: Event) -> Awaitable[None]:
        """React.  The next event waits until this is done.

        A failure is logged and counted; the sink gets the next event.
        """


class IPushesContent(Interface):
    """A front door or a sink, besides, that hands in the contents of topics."""

    pushes = Attribute(
        "A tuple of how the URLs of those topics begin: their contents are carried as they "
        "come, and the topics never read."
    )


class INotifier(Interface):
    """Calls subscribers back, by one protocol."""

    protocol = Attribute("The str by which subscriptions name this notifier.")
    drop_after_failures = Attribute(
        "The number of consecutive failed notifications that marks a subscription to be "
        "dropped; None to keep it until its lease ends."
    )

    retries = Attribute(
        "A tuple of seconds: how long to wait before each further attempt of a notification "
        "that failed.  When it is used up, the notification is given up."
    )

    carries_content = Attribute(
        "Whether its notifications carry the content of the topic, which is kept for them."
    )

    def verify(intent: Intent) -> Awaitable[Outcome]:
        """Ask the callback whether it wants this.  Never raises for its answers."""

    def notify(notification: Notification) -> Awaitable[Outcome]:
        """Tell a subscriber that a topic changed.  Never raises for its answers."""

    def deny(denial: Denial) -> Awaitable[Outcome]:
        """Tell a subscriber that it has no subscription, or not any more.

        Never raises for its answers; success, where the protocol has no word for it.
        """


# --- the edges --------------------------------------------------------------


@frozen
class OutboundReply:
    """What somebody else's server answered.

    :ivar headers: names in lower case; the last of several values.
    :ivar body: at most as many bytes as were allowed.
    :ivar url: where the answer came from, after redirects.
    :ivar hops: the redirects that were followed: the status of each, and where it led.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    url: str
    hops: tuple[tuple[int, str], ...] = ()

    @property
    def success(self) -> bool:
        """Whether the status is in 200-299."""
        return 200 <= self.status <= 299


class IOutbound(Interface):
    """Makes guarded HTTP requests, each under one deadline."""

    def request(
        method: str,
        url: str,
        headers: Mapping[str, str] = ...,
        body: bytes = ...,
        redirects: int = ...,
    ) -> Awaitable[OutboundReply]:
        """Make one request and read its answer.

        :param redirects: how many redirects are followed, with the same method
            and body.  Beyond that the redirect itself is the answer.
        :raises OutboundError: no answer: the address is refused, the name does
            not resolve, nothing connects, the deadline passed, the body is
            larger than allowed, or the answer is not HTTP.
        :raises Unavailable: no connection can be made, for want of our own means.
        """


class IDiskSpace(Interface):
    """Says whether there is room for what is new."""

    def check() -> None:
        """Return, if there is.

        :raises Unavailable: there is too little; its text says what to do.
        """


class IURLPolicy(Interface):
    """Says which URLs the broker calls, without calling them."""

    def check(url: str) -> Awaitable[None]:
        """Return, unless the broker would never call a URL.

        A name that does not resolve now says nothing of that.

        :raises AddressRefused: for its form, or where it leads.
        """


class ITopicFetcher(Interface):
    """Reads topics."""

    def fetch(url: str, known: Validators = ..., subscribers: int = ...) -> Awaitable[Fetched]:
        """Read the bytes at a URL, unless they are those that are known.

        :param known: the validators of what was read before.
        :param subscribers: how many want to be told of changes, for its publisher to know.
        :raises TopicUnreadable: there is no 2xx answer with a body in bounds.
        :raises errors.TopicEnded: its server says that it is gone for good.
        """


class IStore(Interface):
    """Everything that outlives the process.

    Each method is one transaction, on disk before it returns.  All of them
    raise ``Unavailable`` where the database cannot be used right now.
    """

    # pings

    def add_ping(ping: Ping, repeat_window: float) -> Awaitable[PingRecord]:
        """Record a ping, unless the same name, URL and feed were recorded in the
        last ``repeat_window`` seconds; either way ask for a check of each topic
        that it names and that has a subscription.
        """

    def pings(since: float, until: float, before: Ping | None, limit: int) -> Awaitable[list[Ping]]:
        """Records with ``since <= received_at < until``, newest first.

        :param before: the last record of the slice before this one.
        """

    def count_pings() -> Awaitable[int]:
        """The number of records ever made, those pruned since included."""

    def ping_hours(since: float, until: float) -> Awaitable[dict[int, int]]:
        """How many records each hour has: hours since the epoch to number."""

    def prune_pings(before: float) -> Awaitable[int]:
        """Remove the records received before a time; how many there were."""

    # topics

    def topic(url: str) -> Awaitable[Topic | None]:
        """What is known of a topic, by its URL or one that it moved from."""

    def topic_status(url: str) -> Awaitable[TopicStatus | None]:
        """All that is known of a topic, likewise."""

    def record_fetch(reading: FetchResult, ping: Ping | None) -> Awaitable[FetchRecord]:
        """Take in what a fetch found at the URL where a topic is now.

        If the content differs from the last reading (or there was none), the
        topic is changed: a fan-out begins if it has subscriptions, and ``ping``
        is recorded.  Checks asked for before the fetch began are answered.

        The content is kept, once for all, while a walk or a notification that
        waits has need of it, and if some subscription of the topic wants content.  Where
        there is no room for it, the fan-out begins all the same, and says so.

        The store forgets topics without subscriptions, longest read first, when there are
        more of them than it keeps.
        """

    def record_failure(url: str, at: float, reason: str) -> Awaitable[None]:
        """Take in that a topic could not be read, if it is known."""

    def record_feed(url: str, feed: Mapping[str, Any]) -> Awaitable[None]:
        """Keep what a feed says of itself, in place of what it said before."""

    def move_topic(url: str, to: str, at: float) -> Awaitable[bool]:
        """Move a topic with its subscriptions to another URL, by which it is known from
        now on; it is found by the old one too, and by those that it had before that.

        If nothing is known of the other URL, what was last read goes along.  True
        unless it stays: if it came from there less than a week ago, the two send each
        other back and forth.
        """

    def polls_due(now: float, limit: int) -> Awaitable[list[TopicStatus]]:
        """The topics whose polls are due, longest due first, subscribed to or not."""

    def plan_polls(plans: Sequence[PollPlan]) -> Awaitable[None]:
        """Keep when topics are polled next.  The first subscription of a topic that is
        not polled makes it due at once, to be planned.
        """

    def checks_due(limit: int) -> Awaitable[list[Check]]:
        """The topics that wait to be read, longest first."""

    def request_check(url: str, at: float, pinged: bool = ...) -> Awaitable[bool]:
        """Ask for a check of a topic, if it has a subscription.  True if it has.

        :param pinged: somebody said that it changed: then also of a topic without
            subscriptions, known or not; False if it is not known, and as many such topics
            wait to be read as the store keeps.
        """

    def request_content(url: str, at: float) -> Awaitable[bool]:
        """Ask for a check of a topic, as a notification waits for its content, which is not
        kept.  Its validators are forgotten, so that the content will come.  True unless it
        has no subscription, or has ended.
        """

    def drop_check(url: str, asked_until: float) -> Awaitable[None]:
        """Give up reading a topic that was asked for until a time."""

    def push_content(url: str, content: Content, at: float) -> Awaitable[bool]:
        """Begin a fan-out of a content that was handed in, if the topic has
        subscriptions.  True if it has.

        Such a fan-out makes no earlier one needless, and no later one makes it so.
        """

    def content(key: int) -> Awaitable[Content | None]:
        """A content by the key that a fan-out has.  None if it is needed no more."""

    def newest_content(url: str) -> Awaitable[Content | None]:
        """The last content of a topic that is kept."""

    def end_topic(url: str, reason: str, at: float) -> Awaitable[bool]:
        """End a topic, known or not: it is not to be read, checks of it are dropped,
        and a fan-out begins if it has subscriptions.  True unless it had ended.
        """

    def revive_topic(url: str) -> Awaitable[bool]:
        """Take back that a topic has ended.  True if it had.  It is read anew, in full."""

    def watched_topics(after: str, limit: int) -> Awaitable[list[str]]:
        """The URLs above one of topics that have subscriptions and have not ended, in
        their order.
        """

    # subscriptions

    def put_subscription(
        subscription: Subscription, known: bytes | None = ...
    ) -> Awaitable[Subscription]:
        """Store a subscription, replacing the one of that topic and callback;
        its errors are forgotten, and a notification that waits for it is due at once.

        :param known: the digest of the content that was there when it was asked
            for.  If the topic has changed or ended since, a notification waits for it;
            and if that is to carry a content which is not kept, a check is asked for,
            and the validators are forgotten, so that the content will come.
        """

    def remove_subscription(topic: str, callback: Callback) -> Awaitable[bool]:
        """Remove a subscription.  True if there was one."""

    def has_subscription(topic: str, callback: Callback) -> Awaitable[bool]:
        """Whether there is a subscription of that topic and callback."""

    def subscriptions(topic: str, after: int, limit: int) -> Awaitable[list[Subscription]]:
        """The subscriptions of a topic with an id above ``after``, by id."""

    def sweep(now: float, idle_topics_before: float) -> Awaitable[Swept]:
        """Drop the subscriptions that are marked or have expired, and the topics
        without a subscription that were last read before a time.
        """

    # intents

    def add_intent(intent: Intent, limit: int) -> Awaitable[WaitingIntent | None]:
        """Keep an intent until it is verified, in place of an earlier one of the same
        topic and callback.  None if as many as ``limit`` wait already.
        """

    def remove_intent(key: int) -> Awaitable[None]:
        """Forget an intent that was kept."""

    def intents() -> Awaitable[list[WaitingIntent]]:
        """The intents that are kept, oldest first."""

    # fan-out

    def fanouts(limit: int) -> Awaitable[list[Fanout]]:
        """Walks that have not ended, oldest first, one for each topic: the oldest that
        is not needless.  A newer one makes those before it needless, except where
        one of the two carries a content that was handed in.
        """

    def subscriptions_of(ids: Sequence[int]) -> Awaitable[list[Subscription]]:
        """The subscriptions with some ids, in that order; without those that are gone."""

    def record_slice(
        fanout: Fanout,
        cursor: int,
        deliveries: Sequence[Delivery],
        done: bool,
        left: Sequence[int] = ...,
    ) -> Awaitable[Recorded]:
        """Move a walk to a new cursor, together with what came of deliveries.  Once done,
        the walk and those that it made needless are removed, and contents that nothing needs
        any more.

        :param left: the ids of the subscriptions up to the cursor whose outcomes are not known
            yet.  This process works on them, until it ends.
        """

    def record_deliveries(deliveries: Sequence[Delivery]) -> Awaitable[Recorded]:
        """Take in what came of deliveries.

        For each subscription at most one notification waits.  One that was
        delivered writes nothing unless it clears earlier errors or one that
        waits; one that was given up counts as an error, and marks the
        subscription when there are as many in a row as ``marks``; after either,
        another may wait.  One that is gone removes the subscription.  Those of
        subscriptions that are not there any more are ignored.
        """

    def claim_due(now: float, limit: int, busy: Collection[str]) -> Awaitable[list[Subscription]]:
        """Subscriptions whose notification is to be tried by now, longest due first.  This
        process works on them until their outcomes are recorded, or until it ends.

        :param busy: hosts whose callbacks are left out.
        """

    def next_due() -> Awaitable[float | None]:
        """When the first of the waiting notifications is to be tried that nobody works on."""

    def hasten(host: str, origin: str, now: float) -> Awaitable[bool]:
        """Let the notifications for a host be due now, since it answers again; but not before
        the times that their subscribers asked for.  True if there are any.

        :param origin: the host and the port, as ``host:port``, if only that port is meant;
            empty for all of them.
        """

    def set_back(seconds: float, now: float) -> Awaitable[None]:
        """Move what is due at a later time along with a wall clock that was set back.

        :param seconds: by how much it was set back.
        :param now: what it shows since.
        """

    # hosts

    def hosts() -> Awaitable[list[HostState]]:
        """The hosts that do not answer."""

    def record_hosts(states: Sequence[HostState]) -> Awaitable[None]:
        """Keep the states of hosts; one without failures is forgotten."""

    def count_of_host(host: str, limit: int) -> Awaitable[int]:
        """How many subscriptions have a callback at a host, counted up to a limit."""


# --- what front doors offer -------------------------------------------------


@frozen
class Route:
    """A page at one path, for one HTTP method.

    Several routes may share a path and a method if they require different
    parameters: of those whose parameters are all in the request, the one that
    requires most is taken.

    :ivar path: such as ``/ping``; one that ends in ``/*`` takes everything
        below it too, unless a longer one fits.
    :ivar method: ``GET`` (HEAD included) or ``POST``.
    :ivar requires: names of query or form parameters, in lower case.
    :ivar content_types: media types, in lower case, of the bodies that it is for;
        empty for those that no other route at that path names.
    :ivar for_everybody: whether scripts of other sites may ask for it and read the answer, as
        CORS has it: for what needs no credentials, which are never allowed.
    """

    path: str
    method: str
    resource: IResource
    requires: frozenset[str] = frozenset()
    content_types: frozenset[str] = frozenset()
    for_everybody: bool = False


@frozen
class SoapOperation:
    """One SOAP operation.

    :ivar answer: takes the parameters by name and the address of the caller,
        gives the result; a ``Refused`` or a ``SoapFault`` becomes a fault.
    :ivar parameters: the names it reads, in the order in which clients send them that name
        them otherwise.  They tell it from an operation of the same name in another service
        when neither SOAPAction nor path does.
    """

    answer: Callable[[Mapping[str, Any], str], Awaitable[Any]]
    parameters: tuple[str, ...]


@frozen
class SoapDescription:
    """The WSDL of a SOAP service.

    :ivar namespace: that of the operations.  Calls in it are of the document/literal style, and
        so are their answers.
    :ivar paths: where the WSDL is, with ``?wsdl``, and the operations answer.
    :ivar document: makes the WSDL for the URL at which the operations answer.
    """

    namespace: str
    paths: tuple[str, ...]
    document: Callable[[str], bytes]


@frozen
class SoapService:
    """SOAP operations that share a SOAPAction.

    :ivar action: such as ``/rssCloud``; also a path at which they answer.
    :ivar aliases: other actions, of old clients.
    :ivar operations: by name.
    :ivar description: of them, if there is one.
    """

    action: str
    operations: Mapping[str, SoapOperation]
    aliases: tuple[str, ...] = ()
    description: SoapDescription | None = None


class IFrontDoor(Interface):
    """Takes requests in by one protocol.

    XML-RPC and SOAP calls arrive at shared paths (``/RPC2`` and many others);
    a front door that speaks them contributes its procedures.
    """

    name = Attribute("A unique str.")

    def routes() -> Sequence[Route]:
        """The pages this door adds."""

    def xmlrpc_handlers() -> Mapping[str, XMLRPC]:
        """Handlers of XML-RPC procedures by prefix: ``rssCloud`` for
        ``rssCloud.ping``.
        """

    def soap_services() -> Sequence[SoapService]:
        """The SOAP operations this door adds."""


class IPages(Interface):
    """Makes HTML pages for people, all in one look."""

    def render(title: str, template: str, **slots: str) -> Awaitable[bytes]:
        """A whole HTML document.

        :param template: the name of a template in ``rsscloud_broker/web``.
        :param slots: texts for its slots; they are escaped.  An element of the
            template with ``t:render="show"`` is shown if the slot that its
            attribute ``when`` names is not empty.  One with ``t:render="link"`` links to the
            URL in the slot that its attribute ``to`` names, if that is http or https.  A
            ``select`` with ``t:render="options"`` offers the words in the slot that its
            attribute ``of`` names, the one in the slot of ``chosen`` being chosen.
        """


# --- plugins ----------------------------------------------------------------


@frozen
class FrontDoorParts:
    """What a front door may use.

    :ivar broker: an ``IBroker``.
    :ivar clock: the time.
    :ivar pages: an ``IPages``.
    :ivar counters: where a front door counts what it does.
    :ivar public_directory: the files that are served to crawlers, read only.
    :ivar public_url: the broker's own address, without a slash at the end.
    :ivar running: the names of the front doors that run.
    :ivar has_hub: whether the broker is a WebSub hub: what it serves can be subscribed to.
    """

    broker: IBroker
    clock: IClock
    pages: IPages
    counters: Counters
    public_directory: FilePath[str]
    public_url: str
    running: frozenset[str]
    has_hub: bool = False


@frozen
class SinkParts:
    """What a sink may use.

    :ivar store: an ``IStore``.
    :ivar bus: an ``IEventBus``.
    :ivar notifiers: the notifiers that run, by protocol.
    :ivar clock: the time.
    :ivar counters: where a sink counts what it does.
    :ivar public_directory: where files for crawlers go.
    :ivar in_thread: calls a function in a thread kept for the work of sinks;
        what takes longer than a few milliseconds belongs there.
    :ivar public_url: the broker's own address, without a slash at the end.
    :ivar has_hub: whether the broker is a WebSub hub: what it serves can be subscribed to.
    """

    store: IStore
    bus: IEventBus
    notifiers: Mapping[str, INotifier]
    clock: IClock
    public_directory: FilePath[str]
    in_thread: Callable[..., Awaitable[Any]]
    counters: Counters
    public_url: str
    has_hub: bool = False


class IPluginMaker(IPlugin):
    """Makes one part of the broker from its configuration."""

    name = Attribute("A str, unique among the makers of its kind: the table in the configuration.")
    help = Attribute("One line for people.")
    options = Attribute(
        "An attrs class for the keys of its table; its validators and types are checked "
        "at start-up."
    )


class IFrontDoorMaker(IPluginMaker):
    """Makes a front door: ``[front_doors.NAME]``."""

    def make(options: Any, parts: FrontDoorParts) -> IFrontDoor:
        """A front door for these options."""


class INotifierMaker(IPluginMaker):
    """Makes a notifier: ``[notifiers.NAME]``."""

    def make(options: Any, outbound: IOutbound) -> INotifier:
        """A notifier for these options."""


class ISinkMaker(IPluginMaker):
    """Makes a sink: ``[sinks.NAME]``."""

    def make(options: Any, parts: SinkParts) -> IEventSink:
        """A sink for these options."""
