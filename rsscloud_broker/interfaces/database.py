"""What parts and plugins use of the database and of the store, beside the views of pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from zope.interface import Attribute, Interface

from rsscloud_broker.interfaces.simplefeed import Position
from rsscloud_broker.model import Ping
from rsscloud_broker.model.frozen import frozen
from rsscloud_broker.model.shared import FollowedList, JobTurn
from rsscloud_broker.model.work import History, KeptChange


class IDatabase(Interface):
    """Runs operations on the database, outside the reactor's thread.

    An operation is a function that takes an SQLAlchemy ``Connection``.  It runs in a transaction,
    and runs again if the database lost its work, so it must do nothing else than read and write
    there.  ``rsscloud_broker.database.methods`` turns such functions into methods.

    Both methods raise what the operation raises, and then nothing of it is stored; and
    ``Unavailable`` if the database cannot be used now.
    """

    def read(operation: Callable[[Any], Any]) -> Awaitable[Any]:
        """Run an operation that only reads, and return its result."""

    def write(operation: Callable[[Any], Any]) -> Awaitable[Any]:
        """Run an operation that writes.  When this returns its result, the changes are on disk."""


class IJobs(Interface):
    """Has one node at a time do a job for all nodes that work on a database.

    ``util.cluster_jobs`` uses it.  Every method raises ``Unavailable``
    if the database cannot be used now.
    """

    def shares_work() -> bool:
        """Whether other nodes may work on the database.  On SQLite none can."""

    def claim_job(name: str, now: float, period: float) -> Awaitable[JobTurn]:
        """Claim a job, if it is due and no other node has claimed it.

        A node that has claimed the job, and has not lost the claim, claims it again.  A job whose
        name is new is due.

        :param now: the time, in seconds since the epoch.
        :param period: the most seconds until the job is due again.  If the database has a later
            time, a clock was wrong that set it, and the job is due.
        :returns: whether this node has claimed the job, and since when that is due.
        """

    def finish_job(name: str, due_at: float) -> Awaitable[bool]:
        """Note that a job is done, and end the claim of this process.

        :param due_at: when it is due next.
        :returns: True; or False if this process has lost the claim, and then nothing was stored.
        """

    def release_job(name: str) -> Awaitable[None]:
        """End the claim of this process.  The job is as due as before."""

    def request_job(name: str, since: float) -> Awaitable[None]:
        """Make a job due that has work from an earlier time to do.

        A node that does it now loses its claim, so that the job is done once more after that.

        :param since: the earlier time.
        """

    def hint_at_job(name: str) -> Awaitable[None]:
        """Tell all nodes that the one that does a job has something to do now.

        Each publishes ``WorkHinted("job.NAME")`` on its bus, this one too.  The hint may be lost,
        so the node that does the job also looks by itself.  Nothing happens where no other node can
        work on the database.

        :param name: the name of the job: letters, digits and underscores.
        """


class IFollowStore(Interface):
    """Stores how far followed lists and feeds were read."""

    def followed_lists(
        urls: Collection[str], forget_before: float
    ) -> Awaitable[list[FollowedList]]:
        """How far each list was read, in this order.

        :param forget_before: lists that are not named are forgotten if they were last read before
            this time.
        """

    def record_followed(followed: FollowedList, now: float) -> Awaitable[None]:
        """Record how far a list was read."""

    def followed_feed_position(url: str) -> Awaitable[Position | None]:
        """How far a feed was read; None if it was never read."""

    def record_followed_feed(url: str, position: Position, now: float) -> Awaitable[None]:
        """Record how far a feed was read."""

    def forget_followed_feeds(urls: Collection[str], forget_before: float) -> Awaitable[None]:
        """Forget feeds that are not named, if they were last read before a time."""


@frozen
class Intake:
    """What became of pings that came from elsewhere.

    :ivar taken: how many were recorded.
    :ivar known: how many were here already.
    :ivar refused: how many the operator or an administrator does not allow here.
    """

    taken: int = 0
    known: int = 0
    refused: int = 0


class IPingIntake(Interface):
    """Takes in pings that were made elsewhere, as if they had been made here."""

    def take_in(pings: Sequence[Ping], precision: float) -> Awaitable[Intake]:
        """Record those pings that are not here yet, and fetch the topics that they name and that
        have subscriptions.

        A ping is here already if the same one (name, URL and feed) was recorded for a time that
        differs by less than ``precision`` seconds; or if it has passed this broker.

        :param pings: each with the time at which it was made, and with its origin.
        :raises Unavailable: the disk is nearly full, or the database cannot be used.  The pings
            may then be recorded in part.
        """


class IChangeStore(Interface):
    """The part of the store that feeds are made of; each method as in ``storage.Store``.

    Who goes on after the last ping or change of one call misses none: one is returned only
    when none with a smaller id can appear any more.
    """

    def pings_after(after: int, limit: int) -> Awaitable[list[Ping]]:
        """The pings with a greater id, in the order of their ids."""

    def kept_changes(after: int, limit: int) -> Awaitable[list[KeptChange]]:
        """The kept changes of topics with a greater id, in the order of their ids.

        :param limit: how many at most; there may be fewer if their contents are large, but only
            none if there are none.
        """

    def remove_kept_changes(through: int) -> Awaitable[int]:
        """Remove the kept changes up to an id, since they are in the feeds by now."""


class IKeepsFeeds(Interface):
    """What the maker of a front door also implements if its front door makes feeds of what the
    store keeps.
    """

    tables = Attribute("The ``AppTables`` of its feeds, by the names with which they begin.")

    def history(options: Any, public_url: str, pushed: Sequence[str]) -> History:
        """Which changes of topics the store is to keep.

        :param options: those that the front door will be made with.
        :param public_url: the broker's own URL, without a slash at the end.
        :param pushed: how the URLs of topics begin whose content is pushed to the broker.
        """


class IServesTopics(Interface):
    """What a front door also implements if subscribers may subscribe to what it serves."""

    topics = Attribute("A sequence of ``ServedTopics``.")
