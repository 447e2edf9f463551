"""What pages may read: views of the broker's data, and examinations, that change nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Literal, TypeAlias

from attrs import frozen
from zope.interface import Interface

from rsscloud_broker.log_entries import LogEntry, LogFilter

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
            fetched or as many feeds are being examined as the broker examines at the same time.
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
    """The event log, for reading."""

    def entries(wanted: LogFilter, before: int | None, limit: int) -> Awaitable[Sequence[LogEntry]]:
        """The newest entries that pass a filter, newest first.

        :param before: only entries with a smaller id, to go on after the last one of the previous
            call; None at first.
        :raises Unavailable: the store cannot be read.
        """

    def entries_after(wanted: LogFilter, after: int, limit: int) -> Awaitable[Sequence[LogEntry]]:
        """The oldest entries with a greater id that pass a filter, oldest first.

        :raises Unavailable: the store cannot be read.
        """
