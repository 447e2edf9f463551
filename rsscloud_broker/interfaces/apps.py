"""What an application implements, and what the broker gives it.

An application is a program around the broker, such as one that stores feeds for their authors.  It
is a plugin as front doors and sinks are, made by an ``IAppMaker``, and may consist of several of
these, with tables of its own in the database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from attrs import field
from twisted.application.service import IService
from twisted.python.filepath import FilePath
from zope.interface import Attribute, Interface, implementer

from rsscloud_broker.counters import Counters
from rsscloud_broker.interfaces.accounts import AccountFiles, IAccounts, ICallers
from rsscloud_broker.interfaces.broker import IBroker, IClock, IEventSink
from rsscloud_broker.interfaces.database import IDatabase, IJobs
from rsscloud_broker.interfaces.outbound import IOutbound
from rsscloud_broker.interfaces.parsing import Parsing
from rsscloud_broker.interfaces.plugins import IFrontDoor, INotifier, IPages, IPluginMaker
from rsscloud_broker.interfaces.views import ITopicView
from rsscloud_broker.model import Content
from rsscloud_broker.model.administration import Change, PublishedWork
from rsscloud_broker.model.frozen import frozen


@frozen
class AppTables:
    """The tables of an application, and the steps that migrate them.

    A new database gets the tables at once; an older one is migrated by Alembic.

    :ivar metadata: the tables, an SQLAlchemy ``MetaData`` that ``tables.new_metadata`` has made.
        The name of each table begins with the name of the application and ``_``.
    :ivar migrations: where the steps are: ``package:directory``, as Alembic writes it.
    :ivar latest: the revision of the tables.  Revisions are numbers of four digits from ``0001``.
    """

    metadata: Any
    migrations: str
    latest: str


@frozen
class ServedTopics:
    """Topics that an application serves itself.

    The address guard never lets the broker call itself, so it reads them here.

    :ivar prefix: how their URLs begin; with a whole host.
    :ivar read: returns the present content of a topic, or None if there is no such topic.
    :ivar published: for administrators: what an account publishes at URLs with this prefix, the
        newest first.  It takes the name of the account, and how many works it may return.  None if
        accounts publish nothing.
    :ivar take_down: for administrators: deletes what everybody can read at a URL with this prefix,
        topic or not.  It takes the URL, the reason, and an operation (see ``IDatabase``) that
        records this, to be run in the same transaction if there was anything; and returns whether
        there was.  None if nothing can be taken down.
    """

    prefix: str
    read: Callable[[str], Awaitable[Content | None]]
    take_down: Callable[[str, str, Callable[[Any], None]], Awaitable[bool]] | None = None
    published: Callable[[str, int], Awaitable[Sequence[PublishedWork]]] | None = None


@frozen
class AccountData:
    """What an application keeps for accounts, and deletes after an account was removed.

    When an account was removed, the broker finds out within seconds that ``column`` has ids of
    accounts that are gone, and calls ``remove`` for each; after a restart too, and again and again
    until none is left.  Tables whose rows nobody else sees need no such thing: their column refers
    to the account by ``tables.of_account``, and the database deletes the rows.

    :ivar column: the SQLAlchemy column, of a table of the application, that has ids of accounts; 0
        or null for none.  It should have an index.
    :ivar remove: takes the id of an account that is gone.  It takes from the public what the
        account has published (``IPublisher.remove``), and leaves no row with the id in the column.
    """

    column: Any
    remove: Callable[[int], Awaitable[object]]


class IApp(Interface):
    """The parts of an application.  Those that are ``IService`` start and stop with the broker."""

    name = Attribute("A unique str.")
    front_doors = Attribute("A sequence of ``IFrontDoor``.")
    sinks = Attribute("A sequence of ``IEventSink``.")
    notifiers = Attribute(
        "A sequence of ``INotifier`` for protocols of its own, by which it can be a subscriber "
        "itself.  Anybody can ask for these protocols, so their ``verify`` must refuse others."
    )
    services = Attribute("A sequence of ``IService``: its further parts.")
    topics = Attribute("A sequence of ``ServedTopics``.")
    account_data = Attribute("A sequence of ``AccountData``.")
    account_files = Attribute(
        "A sequence of functions that take a ``Caller``, and return an asynchronous iterator of "
        "``AccountFile``: all that the application keeps for the account."
    )


@implementer(IApp)
@frozen
class App:
    """An application, as ``IApp`` describes it."""

    name: str
    front_doors: Sequence[IFrontDoor] = ()
    sinks: Sequence[IEventSink] = ()
    notifiers: Sequence[INotifier] = ()
    services: Sequence[IService] = ()
    topics: Sequence[ServedTopics] = ()
    account_data: Sequence[AccountData] = ()
    account_files: Sequence[AccountFiles] = ()


class IPublisher(Interface):
    """Publishes topics that the broker serves itself (``ServedTopics``)."""

    def publish(
        url: str, content: Content, operation: Callable[[Any], Any], source: str
    ) -> Awaitable[Any]:
        """Store the new content of a topic, as an application does it, and notify subscribers.

        The operation, the record of a ping of the topic and the beginning of the fan-out are one
        transaction.  Nothing is fetched.  If the content has not changed, nobody is notified.

        :param operation: stores the content in the tables of the application; see ``IDatabase``.
        :param source: the address of the caller; empty if there is no caller.
        :returns: what the operation returned.
        :raises Forbidden: the topic or the source is blocked.
        :raises Unavailable: the disk is nearly full, or the database cannot be used.
        :raises Exception: what the operation raised; then nothing is stored.
        """

    def publish_all(
        contents: Mapping[str, Content], operation: Callable[[Any], Any], source: str
    ) -> Awaitable[Any]:
        """Publish several topics that change together, such as a feed in two formats, as
        ``publish`` does.

        All of it is one transaction.  Only the first topic is recorded as pinged, so that lists of
        changes name the site once.

        :param contents: the new contents by URL; at least one.
        """

    def check(url: str, source: str) -> None:
        """Check that a topic may be published now, for work that comes before its publication.

        :raises Forbidden, Unavailable: as for ``publish``.
        """

    def remove(
        url: str, reason: str, operation: Callable[[Any], Any], source: str
    ) -> Awaitable[Any]:
        """Delete the content of a topic, and end the topic: its subscribers are notified, if their
        protocol can say so.  If it is published again, the topic is revived.

        A blocked topic can be removed too, and also when the disk is nearly full.

        :param reason: why it has ended, for people.
        :param operation, source: as for ``publish``.
        :returns: what the operation returned.
        :raises Forbidden: the source is blocked.
        :raises Unavailable: the database cannot be used.
        :raises Exception: what the operation raised; then nothing is stored.
        """


async def _nothing_taken_down(name: str, since: float) -> Sequence[Change]:
    """What was taken down of an account where nobody takes anything down."""
    return ()


@frozen
class AppParts:
    """What an application may need.  Its maker is given those of these that it names in ``needs``.

    :ivar broker: the verbs of the broker.
    :ivar publisher: publishes topics that the application serves.
    :ivar database: for the tables of the application.
    :ivar jobs: has one node at a time do a job for all that work on the database.
    :ivar accounts: what accounts can do.
    :ivar callers: finds out who makes a request.
    :ivar pages: renders pages for people.
    :ivar topics: topics and pings, for reading.
    :ivar web: a client for pages and feeds.  It calls no addresses that the operator forbids for
        topics.
    :ivar outbound: a client for hubs and clouds, which calls no addresses that the operator forbids
        for callbacks.
    :ivar clock: the time.
    :ivar counters: where the application counts its work.
    :ivar directory: a directory for files of the application, which need not exist yet.  Other
        brokers that use the same database do not see it, so what somebody stores belongs into the
        database.
    :ivar public_url: the broker's own URL, without a slash at the end.
    :ivar has_hub: whether the broker is a WebSub hub, so that its topics can be subscribed to.
    :ivar has_cloud: whether the broker takes rssCloud registrations.
    :ivar running: the names of the front doors and of the applications that run.
    :ivar in_thread: calls a function in a thread, for work that takes longer than a few
        milliseconds.
    :ivar parse: has documents of strangers parsed elsewhere.
    :ivar max_connections: returns how many connections of clients may be open at the same time.
    :ivar max_connections_per_address: returns how many of them may come from one address.
    :ivar rate_limit: makes a limit, given how many requests a second and how many at once.  The
        limit takes a key, such as the name of an account, and returns 0, or the seconds to wait.
    :ivar taken_down: what administrators took down of an account, with the reason: see
        ``IAdministration.taken_down``.
    """

    broker: IBroker
    publisher: IPublisher
    database: IDatabase
    jobs: IJobs
    accounts: IAccounts
    callers: ICallers
    pages: IPages
    topics: ITopicView
    web: IOutbound
    outbound: IOutbound
    clock: IClock
    counters: Counters
    directory: FilePath[str]
    public_url: str
    has_hub: bool
    has_cloud: bool
    in_thread: Callable[..., Awaitable[Any]]
    parse: Parsing
    rate_limit: Callable[[float, int], Callable[[str], int]]
    running: frozenset[str] = field(default=frozenset())
    max_connections: Callable[[], int] = lambda: 2000
    max_connections_per_address: Callable[[], int] = lambda: 200
    taken_down: Callable[[str, float], Awaitable[Sequence[Change]]] = _nothing_taken_down


class IAppMaker(IPluginMaker):
    """Makes an application: ``[apps.NAME]``.

    An application runs only if its table says ``enabled = true``, or with ``--local``.
    """

    tables = Attribute("The ``AppTables`` of the application; None if it has none.")

    def make(options: Any, parts: AppParts) -> IApp:
        """Make an application with these options."""
