"""What a plugin implements, and what the broker gives it.

A plugin is a maker: it has a name, a class for its options, and a method ``make`` that makes one
part of the broker.  There are five kinds of parts: a front door takes requests in, a notifier
calls subscribers, a sink handles events, a checker checks the passwords of those who sign in, and
an application (``apps``) consists of several of these.

A maker names the things that its part needs (``needs``), and ``make`` is given these and nothing
else.  ``FrontDoorParts``, ``NotifierParts``, ``SinkParts``, ``CheckerParts`` and ``AppParts`` say
what there is for each kind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen
from twisted.cred.checkers import ICredentialsChecker
from twisted.plugin import IPlugin
from twisted.python.filepath import FilePath
from twisted.web.resource import IResource
from twisted.web.template import Flattenable
from twisted.web.xmlrpc import XMLRPC
from zope.interface import Attribute, Interface

from rsscloud_broker.counters import Counters
from rsscloud_broker.interfaces.accounts import (
    AccountFiles,
    Caller,
    CheckerParts,
    IAccounts,
    ICallers,
)
from rsscloud_broker.interfaces.administration import IAdministration
from rsscloud_broker.interfaces.broker import IBroker, IClock, IEventBus, IEventSink
from rsscloud_broker.interfaces.database import (
    IChangeStore,
    IDatabase,
    IFollowStore,
    IJobs,
    IPingIntake,
)
from rsscloud_broker.interfaces.outbound import IOutbound
from rsscloud_broker.interfaces.parsing import Parsing, not_parsed
from rsscloud_broker.interfaces.views import (
    IEventLog,
    IFeedDoctor,
    IHealth,
    ISelfTest,
    IStatistics,
    ITopicView,
)
from rsscloud_broker.model import Denial, Intent, Notification, Outcome
from rsscloud_broker.model.disclosure import Disclosure
from rsscloud_broker.model.work import History


@frozen
class Route:
    """A resource at one path, for one HTTP method.

    Several routes may share a path and a method if they require different parameters.  Of the
    routes whose parameters are all in the request, the site takes the one that requires most.

    :ivar path: such as ``/ping``.  A path that ends in ``/*`` matches everything below it too,
        unless a longer path matches.
    :ivar method: ``GET`` (HEAD included), ``POST``, ``PUT`` or another method.
    :ivar requires: names of query or form parameters, in lower case.
    :ivar content_types: media types, in lower case, of the request bodies that the route takes;
        empty for all that no other route at that path takes.
    :ivar for_everybody: whether scripts of other sites may read the response (CORS).  Such requests
        never carry credentials.
    :ivar body_limit: how many bytes the body of a request may have, if that is more than the
        operator allows for all others; 0 for no more.
    """

    path: str
    method: str
    resource: IResource
    requires: frozenset[str] = frozenset()
    content_types: frozenset[str] = frozenset()
    for_everybody: bool = False
    body_limit: int = 0


@frozen
class SoapOperation:
    """One SOAP operation.

    :ivar answer: takes the parameters by name and the address of the caller, and returns the
        result; a ``Refused`` or a ``SoapFault`` becomes a fault.
    :ivar parameters: the names of its parameters.  If a client uses other names, they are taken in
        this order.  If neither SOAPAction nor the path says which service is meant, these names do.
    :ivar takes_request: whether ``answer`` takes the request in place of the address.
    """

    answer: Callable[[Mapping[str, Any], Any], Awaitable[Any]]
    parameters: tuple[str, ...]
    takes_request: bool = False


@frozen
class SoapDescription:
    """The WSDL of a SOAP service.

    :ivar namespace: the namespace of the operations.  Calls in this namespace, and the answers
        to them, are in document/literal style.
    :ivar paths: where the operations answer, and the WSDL with ``?wsdl``.
    :ivar document: makes the WSDL, given the URL at which the operations answer, and the operations
        that front doors add to the service (``wire.wsdl.DescribedOperation``).
    """

    namespace: str
    paths: tuple[str, ...]
    document: Callable[[str, Sequence[Any]], bytes]


@frozen
class SoapService:
    """SOAP operations that share a SOAPAction.

    :ivar action: such as ``/rssCloud``; also a path at which the operations answer.
    :ivar operations: the operations by name.
    :ivar aliases: other SOAPActions, which old clients send.
    :ivar description: the WSDL of the service, or None.
    :ivar described: operations (``wire.wsdl.DescribedOperation``) that the WSDL shows beside its
        own, if the service has one, perhaps by another front door.
    :ivar body_limit: how many bytes a call may have, if that is more than the operator allows for
        all requests; 0 for no more.  Calls by XML-RPC arrive at the same paths, so it is their
        limit too.
    """

    action: str
    operations: Mapping[str, SoapOperation]
    aliases: tuple[str, ...] = ()
    description: SoapDescription | None = None
    described: tuple[Any, ...] = ()
    body_limit: int = 0


class IFrontDoor(Interface):
    """Takes requests in by one protocol.

    A front door that is also an ``IService`` is started and stopped with the broker.

    XML-RPC and SOAP calls arrive at paths that all front doors share (``/RPC2`` and many
    others); a front door contributes its procedures and operations.
    """

    name = Attribute("A unique str.")

    def routes() -> Sequence[Route]:
        """The routes that this front door adds."""

    def xmlrpc_handlers() -> Mapping[str, XMLRPC]:
        """The handlers of XML-RPC procedures by prefix: ``rssCloud`` for ``rssCloud.ping``.

        Several front doors may have procedures with the same prefix.  A handler may have an
        attribute ``body_limit`` as a ``Route`` has it; the largest one holds for all calls.
        """

    def soap_services() -> Sequence[SoapService]:
        """The SOAP services that this front door adds.

        Several front doors may add operations to the service with the same ``action``.  Then only
        one of them gives each alias, and one gives the description.
        """


class RoutesOnly:
    """A base for front doors that add routes, and neither procedures nor SOAP services."""

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {}

    def soap_services(self) -> Sequence[SoapService]:
        return []


class IPages(Interface):
    """Renders HTML pages for people, all in the same frame and style."""

    def render(
        title: str, template: str, viewer: Caller | None = ..., /, **slots: Flattenable
    ) -> Awaitable[bytes]:
        """Render a whole HTML document.

        :param template: the name of a template in ``rsscloud_broker/web``; or, for one of another
            package, the name of that package, ``:``, and the path of the template in it.
        :param viewer: who has signed in and looks at the page; the frame shows the name and a form
            to sign out.  Caches must not keep such a page.
        :param slots: contents for the slots of the template: texts, which are escaped, or elements
            made with ``twisted.web.template.tags``.  The slot ``here`` is the path of the page,
            which the navigation marks as the current one; the slot ``alternates`` has ``link``
            elements for the head, such as those of feeds.  An element with ``t:render="show"`` is
            shown if the slot named by its attribute ``when`` is not empty.  An element with
            ``t:render="link"`` links to the URL in the slot named by its attribute ``to``, if that
            is http or https.  A ``select`` with ``t:render="options"`` offers the words in the slot
            named by its attribute ``of``, and selects the word in the slot named by ``chosen``.  An
            element with ``t:render="include"`` is replaced by the template named by its attribute
            ``template``, which has the same slots.
        """


class INotifier(Interface):
    """Calls subscribers, by one protocol.

    No answer of a callback makes a method raise: the outcome says what happened.
    """

    protocol = Attribute("The name of the protocol, a str, which subscriptions refer to.")
    drop_after_failures = Attribute(
        "The number of consecutive failed notifications after which the broker drops a "
        "subscription; None to keep it until its lease ends."
    )
    retries = Attribute(
        "A tuple of seconds: the pause before each further attempt of a notification that "
        "failed.  After the last of these attempts the broker gives the notification up."
    )

    carries_content = Attribute(
        "Whether its notifications carry the content of the topic, which the store then keeps."
    )

    def verify(intent: Intent) -> Awaitable[Outcome]:
        """Ask a callback to confirm an intent."""

    def notify(notification: Notification) -> Awaitable[Outcome]:
        """Notify a subscriber that a topic changed."""

    def deny(denial: Denial) -> Awaitable[Outcome]:
        """Tell a subscriber that it has no subscription, or has it no longer.

        The outcome is a success if the protocol has no message for this.
        """


class IDirectNotifier(INotifier):
    """A notifier that can also tell a function the outcome of a notification.

    It is optional: the broker can make more such notifications in the same time.
    """

    def begin(
        notification: Notification, done: Callable[[Outcome | Exception], object]
    ) -> Callable[[], object]:
        """Begin to notify a subscriber; see ``INotifier.notify``.

        :param done: is called once when the notification is over, perhaps before this returns:
            with its outcome, or with the exception that ``notify`` would raise.
        :returns: a function that breaks the notification off, if it is under way.  Then ``done`` is
            called with a ``CancelledError``.
        """


async def nothing_to_copy(path: str) -> bool:
    """Copy no file, as no other node has made any."""
    return False


@frozen
class FrontDoorParts:
    """What a front door may need.  Its maker is given those of these that it names in ``needs``.

    :ivar broker: the verbs of the broker.
    :ivar clock: the time.
    :ivar pages: renders pages for people.
    :ivar counters: where the front door counts its work.
    :ivar public_directory: the files for crawlers; a front door only reads them.
    :ivar public_url: the broker's own URL, without a slash at the end.
    :ivar running: the names of the front doors and of the applications that run.
    :ivar in_thread: calls a function in a thread, for work that takes longer than a few
        milliseconds.
    :ivar statistics: the statistics, for reading.
    :ivar topics: topics and pings, for reading.
    :ivar has_hub: whether the broker is a WebSub hub, so that its own files can be subscribed to.
    :ivar feed_doctor: examines feeds for their publishers; None if the broker examines none.
    :ivar self_test: answers the operator who tests how requests arrive; None without such tests.
    :ivar event_log: the event log, for reading; None if the broker keeps none.
    :ivar disclosure: how much strangers see of callbacks' URLs and of clients' addresses.
    :ivar max_connections: returns how many connections of clients may be open at the same time.
    :ivar max_connections_per_address: returns how many of them may come from one address.
    :ivar callers: finds out who makes a request; None if the broker has no accounts.
    :ivar accounts: what accounts can do; None if the broker has no accounts.
    :ivar account_files: all that applications keep for the account of a caller.
    :ivar intake: takes in pings that were made elsewhere; None if nobody reads such.
    :ivar follows: stores how far followed lists were read; None like ``intake``.
    :ivar web: a client that calls no addresses forbidden for topics; None like ``intake``.
    :ivar administration: the verbs of administrators, who check nothing themselves.
    :ivar health: says whether the parts of the broker work.
    :ivar database, changes: the database, and what feeds are made of: see ``IKeepsFeeds``.
    :ivar directory: the directory for the files of such front doors, which need not exist yet.
    :ivar published: tells the broker that what is served at a path has changed.  If it is a topic
        (``IServesTopics``), its subscribers are notified.
    :ivar copy_file: copies the present version of a file for crawlers, which another node may have
        made, to the public directory.  It takes the path at which the file is served, and returns
        whether there is such a file in the database.
    :ivar jobs: has one node at a time do a job for all; None if the broker is given no jobs.
    :ivar parse: has documents of strangers parsed elsewhere.
    """

    broker: IBroker
    clock: IClock
    pages: IPages
    counters: Counters
    public_directory: FilePath[str]
    public_url: str
    running: frozenset[str]
    in_thread: Callable[..., Awaitable[Any]]
    statistics: IStatistics
    topics: ITopicView
    has_hub: bool = False
    feed_doctor: IFeedDoctor | None = None
    self_test: ISelfTest | None = None
    event_log: IEventLog | None = None
    disclosure: Disclosure = field(factory=Disclosure)
    max_connections: Callable[[], int] = lambda: 2000
    max_connections_per_address: Callable[[], int] = lambda: 200
    callers: ICallers | None = None
    accounts: IAccounts | None = None
    account_files: AccountFiles | None = None
    intake: IPingIntake | None = None
    follows: IFollowStore | None = None
    web: IOutbound | None = None
    administration: IAdministration | None = None
    health: IHealth | None = None
    database: IDatabase | None = None
    changes: IChangeStore | None = None
    directory: FilePath[str] | None = None
    published: Callable[[str], None] = lambda path: None
    copy_file: Callable[[str], Awaitable[bool]] = nothing_to_copy
    jobs: IJobs | None = None
    parse: Parsing = not_parsed


@frozen
class SinkParts:
    """What a sink may need; see ``FrontDoorParts``.

    :ivar store: the store, a ``storage.Store``.
    :ivar bus: the event bus.
    :ivar notifiers: the notifiers that run, by protocol.
    :ivar clock: the time.
    :ivar public_directory: where the sink writes files for crawlers.
    :ivar in_thread: calls a function in a thread for the work of sinks, for work that takes
        longer than a few milliseconds.
    :ivar counters: where the sink counts its work.
    :ivar public_url: the broker's own URL, without a slash at the end.
    :ivar has_hub: whether the broker is a WebSub hub, so that its own files can be subscribed to.
    :ivar blocks: what administrators have blocked, a ``policy.blocks.Blocks``; None if nothing ever
        is.
    :ivar outbound: a client for servers that the operator names, which calls no addresses that the
        operator forbids for callbacks; None if the sink calls nobody.
    :ivar history: which changes are kept for the feeds; None if there are no feeds.
    :ivar copy_file: as for front doors.
    """

    store: Any
    bus: IEventBus
    notifiers: Mapping[str, INotifier]
    clock: IClock
    public_directory: FilePath[str]
    in_thread: Callable[..., Awaitable[Any]]
    counters: Counters
    public_url: str
    has_hub: bool = False
    blocks: Any = None
    outbound: IOutbound | None = None
    history: History | None = None
    copy_file: Callable[[str], Awaitable[bool]] = nothing_to_copy


@frozen
class NotifierParts:
    """What a notifier may need.

    :ivar outbound: the client that calls callbacks.
    """

    outbound: IOutbound


class IPluginMaker(IPlugin):
    """Makes one part of the broker from its configuration."""

    name = Attribute(
        "A str, unique among the makers of its kind; it names the table in the configuration."
    )
    help = Attribute("One line that says to people what the plugin does.")
    options = Attribute(
        "An attrs class for the keys of its table; the broker checks its validators and types "
        "at start-up."
    )
    needs = Attribute(
        "A tuple of str: the names of the things that ``make`` is given, such as ``('broker', "
        "'clock')``.  They must be attributes of the class of the second argument of ``make``."
    )


class IFrontDoorMaker(IPluginMaker):
    """Makes a front door: ``[front_doors.NAME]``."""

    def make(options: Any, parts: FrontDoorParts) -> IFrontDoor:
        """Make a front door with these options."""


class INotifierMaker(IPluginMaker):
    """Makes a notifier: ``[notifiers.NAME]``."""

    def make(options: Any, parts: NotifierParts) -> INotifier:
        """Make a notifier with these options."""


class ISinkMaker(IPluginMaker):
    """Makes a sink: ``[sinks.NAME]``."""

    def make(options: Any, parts: SinkParts) -> IEventSink:
        """Make a sink with these options."""


class ICheckerMaker(IPluginMaker):
    """Makes a checker of credentials: ``[checkers.NAME]``.

    When somebody signs in, the broker asks the checkers in the order of their names.  The first
    that accepts the name and the password decides.
    """

    def make(options: Any, parts: CheckerParts) -> ICredentialsChecker:
        """Make a credentials checker of ``twisted.cred`` with these options.

        Its ``credentialInterfaces`` must contain ``IUsernamePassword``.  The avatar id that it
        returns is the name of an account, in ASCII.
        """


class IPushesContent(Interface):
    """What the maker of a front door or a sink also implements if its part pushes content.

    The broker distributes pushed content unchanged, and never fetches those topics.
    """

    def pushed_prefixes(options: Any, public_url: str, has_hub: bool) -> Sequence[str]:
        """The URL prefixes of the topics whose content the part will push.

        The broker calls this before it makes any part.

        :param options: those that the part will be made with.
        :param public_url, has_hub: the broker's own URL, and whether the broker is a WebSub hub.
        """
