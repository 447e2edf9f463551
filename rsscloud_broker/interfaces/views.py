"""What pages may read: views of the broker's data, and examinations, that change nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Literal, TypeAlias

from zope.interface import Interface

from rsscloud_broker.model import Ping, TopicOverview, TopicStatus, TopicSummary
from rsscloud_broker.model.frozen import frozen
from rsscloud_broker.model.log_entry import LogEntry, LogFilter
from rsscloud_broker.model.work import PingedTopic

#: What a finding about a feed means for its publisher.
Kind: TypeAlias = Literal["good", "missing", "wrong"]


@frozen
class Finding:
    """One fact about a feed that its publisher may want to know.

    :ivar subject: the subject, in a word or two.
    :ivar text: the fact and what to do about it, in whole sentences.
    """

    kind: Kind
    subject: str
    text: str


@frozen
class FeedReport:
    """The findings about a feed.

    :ivar url: the URL that was asked for.
    """

    url: str
    findings: tuple[Finding, ...]

    def of(self, kind: Kind) -> tuple[Finding, ...]:
        """The findings of one kind."""
        return tuple(finding for finding in self.findings if finding.kind == kind)


class IFeedDoctor(Interface):
    """Examines feeds for their publishers."""

    def examine(url: str, source: str) -> Awaitable[FeedReport]:
        """Fetch a feed as a reader does, and the cloud and the hub that it names, and judge the
        answers.  Nothing is stored, and nobody is notified.

        A server that does not answer is a finding.  The result comes within half a minute.

        :param source: the address of the caller, whose examinations are limited like pings.
        :raises TooMany: the caller examines or pings too often, or too many feeds of that host are
            fetched, or too many feeds are being examined at the same time.
        :raises Forbidden: the operator allows no pings of this URL.
        :raises TopicUnreadable: the URL is no web address.
        """


class ISelfTest(Interface):
    """Answers the broker's own operator, who tests how requests arrive at the broker."""

    def answer(question: Mapping[str, str], arrived: Mapping[str, str]) -> bytes | None:
        """The answer to a question that ``rsscloud-broker doctor`` sent.

        :param question: the parameters of the request, by name.
        :param arrived: how the request arrived; see ``wire.self_test``.
        :returns: None if the question does not prove that the caller may read the broker's data
            directory.
        """


class IEventLog(Interface):
    """The event log, for reading.

    If a filter names a topic or a host and anything else, only the next 10,000 entries of that
    topic or host are searched.
    """

    def entries(wanted: LogFilter, before: int | None, limit: int) -> Awaitable[Sequence[LogEntry]]:
        """The newest entries that pass a filter, newest first.

        :param before: only entries with a smaller id, to go on after the last one of the previous
            call; None at first.
        :raises Unavailable: the store cannot be read.
        """

    def entries_after(wanted: LogFilter, after: int, limit: int) -> Awaitable[Sequence[LogEntry]]:
        """The oldest entries with a greater id that pass a filter, oldest first.

        Who goes on after the greatest id of one call misses no entry: an entry is returned
        only when no entry with a smaller id can appear any more.

        :raises Unavailable: the store cannot be read.
        """


class IStatistics(Interface):
    """The statistics, for reading.  Each method raises ``Unavailable`` if the store cannot be read.

    What is counted has the names of ``counted`` in ``sinks.statistics``.  What is measured has
    names that begin with ``number_of_``.
    """

    def statistics(
        since: float, until: float, step: int
    ) -> Awaitable[Mapping[str, Mapping[int, int]]]:
        """The stored numbers of a time, by name and by the time at which a step begins.

        The numbers of a step are added up; of what is measured it is the greatest.  A step
        without any number is missing.

        :param step: seconds: whole minutes, or whole hours for times that are long past.
        """

    def pinged_topics(since: float, until: float, limit: int) -> Awaitable[Sequence[PingedTopic]]:
        """The topics that were pinged most often, most often first, counted from the pings: the
        last 500,000 at most.

        This takes as long as there are pings: ask for an hour, and ``busy_topics`` for more.
        """

    def busy_topics(since: float, until: float, limit: int) -> Awaitable[Sequence[PingedTopic]]:
        """The topics that were pinged most often, by the hundred most pinged of each past hour."""


class ITopicView(Interface):
    """Topics, the numbers of their subscriptions, and pings, for reading.

    Nothing in it names a subscriber.  However often a method is called with the same arguments,
    the broker reads the store at most once a second, and for ``watched`` once a minute.
    """

    def overview(url: str, newest: bool = ...) -> Awaitable[TopicOverview | None]:
        """The topic at a URL, in any spelling, or at a URL that it has moved from; None if
        strangers may not know that the broker knows it.

        If the topic has no subscriptions and strangers may know of it, the overview has only what
        the feed says, and how often it changed.

        :param newest: whether to read the store in any case, since something has just changed.
        :raises Unavailable: the store cannot be read.
        """

    def status(url: str) -> Awaitable[TopicStatus | None]:
        """All that the broker knows now of the topic at a URL, for its private followers; None if
        it does not know it.

        :raises Unavailable: the store cannot be read.
        """

    def watched(after: int, limit: int) -> Awaitable[Sequence[TopicSummary]]:
        """The topics that have subscriptions and have not ended, in the order of their ids.

        :param after: only topics with a greater id, to go on after the last one of the previous
            call; 0 at first.
        :raises Unavailable: the store cannot be read.
        """

    def beginning(begins: str, limit: int) -> Awaitable[Sequence[TopicOverview]]:
        """The topics with subscriptions whose addresses begin so, in the order of their URLs,
        with what their feeds say and how often they changed alone; read once a minute.

        :param begins: with or without ``http://``, ``https://`` and ``www.``.
        :raises Unavailable: the store cannot be read.
        """

    def pings(before: tuple[float, int] | None, limit: int) -> Awaitable[Sequence[Ping]]:
        """Pings, newest first; those without a name have the title of their topic, if it is public.

        :param before: ``received_at`` and ``id`` of the last ping of the previous call, to go on
            after it; None at first.
        :raises Unavailable: the store cannot be read.
        """


@frozen
class PartState:
    """The state of one part of the broker.

    :ivar part: the name of the part, such as ``database``.
    :ivar works: whether the part does its work.
    :ivar text: a sentence for the operator: what was found, and if the part does not work, what
        to do.
    """

    part: str
    works: bool
    text: str


class IHealth(Interface):
    """Examines the parts of the broker.  No method raises."""

    def alive() -> Sequence[PartState]:
        """The states of the parts without which the process cannot recover.

        It needs neither the store nor a thread.
        """

    def ready() -> Awaitable[Sequence[PartState]]:
        """The states of all parts that the broker needs to accept requests.

        It returns within a few seconds, even if a part hangs.
        """
