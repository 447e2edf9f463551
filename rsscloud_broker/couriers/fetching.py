"""The broker's side of readings: fetches topics by the couriers of their hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure
from zope.interface import implementer

from rsscloud_broker.couriers.courier import Courier, CourierEnded
from rsscloud_broker.couriers.crew import Crew
from rsscloud_broker.couriers.messages import Read, ReadDone, Unread
from rsscloud_broker.couriers.reading import Facts
from rsscloud_broker.couriers.suspects import Suspects
from rsscloud_broker.errors import TopicEnded, TopicUnreadable, Unavailable
from rsscloud_broker.interfaces import IClock, ITopicFetcher
from rsscloud_broker.model import NO_VALIDATORS, Content, Validators
from rsscloud_broker.readings import EVERYTHING, Fetched, Wanted
from rsscloud_broker.wire.feed_summary import summary


class Memory(Protocol):
    """Counts the contents that are in memory: ``AnswerBudget``."""

    def admit(self, url: str, content: Content) -> None: ...


@implementer(ITopicFetcher)
class CourierFetcher:
    """Has couriers fetch topics, and gets from them what is wanted and no more.

    :param memory: counts the contents that couriers send.
    """

    def __init__(self, crew: Crew, clock: IClock, memory: Memory) -> None:
        self._crew = crew
        self._memory = memory
        self._suspects = Suspects(crew, clock)

    async def fetch(
        self,
        url: str,
        known: Validators = NO_VALIDATORS,
        subscribers: int = 0,
        wanted: Wanted = EVERYTHING,
    ) -> Fetched:
        self._suspects.check(url)
        if url in self._suspects:
            make = _question(url, NO_VALIDATORS, subscribers, Wanted(wanted.need))
            done, facts = await self._suspects.alone(
                url, lambda courier: self._whole(url, courier, make)
            )
        else:
            done, facts = await self._read(url, _question(url, known, subscribers, wanted))
        content = None if done.body is None else Content(done.body, done.content_type)
        if content is not None:
            self._memory.admit(url, content)
        return Fetched(
            content,
            Validators(done.etag, done.last_modified),
            done.moved_to,
            done.fresh_seconds,
            done.result,
            done.digest,
            done.size,
            None if facts is None else facts.addCallback(_summary),
        )

    async def _read(
        self, url: str, make: Callable[[int], Read]
    ) -> tuple[ReadDone, Deferred[Facts] | None]:
        """Read a topic by the courier of its host."""

        def lost(failure: Failure) -> None:
            failure.trap(Unavailable)
            if failure.check(CourierEnded):
                self._suspects.add(url)

        try:
            done, facts = await self._crew.courier_of(url).read(make)
        except CourierEnded:
            self._suspects.add(url)
            raise
        return _found(url, done), facts and facts.addErrback(lost)

    async def _whole(
        self, url: str, courier: Courier, make: Callable[[int], Read]
    ) -> tuple[ReadDone, Deferred[Facts] | None]:
        """Read a topic, and wait until it has been parsed too: only then is it innocent.

        :param make: asks for the topic as if nothing were known of it.  Otherwise a content that
            is deadly to parse would not be parsed again, for its digest has been recorded.
        """
        done, facts = await courier.read(make)
        found = _found(url, done)
        if facts is None:
            return found, None
        said = await facts
        self._suspects.clear(url)
        return found, succeed(said)


def _question(
    url: str, known: Validators, subscribers: int, wanted: Wanted
) -> Callable[[int], Read]:
    """What makes the message that asks for a topic."""

    def make(number: int) -> Read:
        return Read(
            number,
            url,
            known.etag,
            known.last_modified,
            subscribers,
            wanted.need,
            wanted.digest,
            wanted.size,
        )

    return make


def _found(url: str, done: ReadDone | Unread) -> ReadDone:
    """What was found.

    :raises TopicUnreadable: the topic could not be read.
    """
    if isinstance(done, ReadDone):
        return done
    if done.ended:
        raise TopicEnded(url, done.reason)
    raise TopicUnreadable(url, done.reason, refused=done.refused, lasting=done.lasting)


def _summary(facts: Facts) -> Mapping[str, Any] | None:
    return None if facts is None else summary(facts)
