"""What a plugin implements, and what it is given.

A plugin is a maker: it has a name, the class of its options, and a method ``make``.  There are
three kinds.  A front door takes requests in, a notifier calls subscribers, and a sink reacts to
events.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from attrs import frozen
from twisted.plugin import IPlugin
from twisted.python.filepath import FilePath
from twisted.web.resource import IResource
from twisted.web.xmlrpc import XMLRPC
from zope.interface import Attribute, Interface

from rsscloud_broker.counters import Counters
from rsscloud_broker.interfaces.broker import IBroker, IClock, IEventBus, IEventSink
from rsscloud_broker.interfaces.outbound import IOutbound
from rsscloud_broker.interfaces.store import IStore
from rsscloud_broker.model import Denial, Intent, Notification, Outcome


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


class IPushesContent(Interface):
    """A maker, besides, of a front door or a sink that pushes the content of topics.

    The broker passes such content on as it comes, and never fetches those topics.
    """

    def pushed_prefixes(options: Any, public_url: str, has_hub: bool) -> Sequence[str]:
        """How the URLs of the topics begin whose content the part will push.

        Called before any part is made.

        :param options: those that the part will be made with.
        :param public_url, has_hub: as in ``SinkParts``.
        """
