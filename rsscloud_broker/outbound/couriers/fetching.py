"""The broker's side of readings: fetches topics by the couriers of their hosts."""

from __future__ import annotations

from collections.abc import Callable

from zope.interface import implementer

from rsscloud_broker.errors import EndedTopic, MemoryUnavailable, TopicUnreadable
from rsscloud_broker.interfaces import ITopicFetcher
from rsscloud_broker.model import NO_VALIDATORS, Content, Validators
from rsscloud_broker.model.fetching import EVERYTHING, Fetched, Wanted
from rsscloud_broker.outbound.budget import NO_MEMORY, AnswerBudget
from rsscloud_broker.outbound.couriers.crew import Crew
from rsscloud_broker.outbound.couriers.messages import Read, ReadDone, Unread


@implementer(ITopicFetcher)
class CourierFetcher:
    """Has couriers fetch topics, and gets from them what is wanted and no more.

    :param memory: counts the contents that couriers send.
    """

    def __init__(self, crew: Crew, memory: AnswerBudget) -> None:
        self._crew = crew
        self._memory = memory

    async def fetch(
        self,
        url: str,
        known: Validators = NO_VALIDATORS,
        subscribers: int = 0,
        wanted: Wanted = EVERYTHING,
    ) -> Fetched:
        """Have the courier of the topic's host fetch it: see ``ITopicFetcher``."""
        question = _read_message(url, known, subscribers, wanted)
        done = _done_or_raise(url, await self._crew.courier_of(url).read(question))
        if done.body is not None and not self._memory.has_capacity(len(done.body)):
            del done  # else the error's traceback would keep the body in memory
            raise MemoryUnavailable(f"{url}: {NO_MEMORY}")
        content = None if done.body is None else Content(done.body, done.content_type)
        if content is not None:
            self._memory.keep(content)
        return Fetched(
            content,
            Validators(done.etag, done.last_modified),
            done.moved_to,
            done.fresh_seconds,
            done.result,
            done.digest,
            done.size,
        )


def _read_message(
    url: str, known: Validators, subscribers: int, wanted: Wanted
) -> Callable[[int], Read]:
    """A function that makes the message to read a topic, from the number of the request."""

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


def _done_or_raise(url: str, done: ReadDone | Unread) -> ReadDone:
    """The answer of a courier, if it could read the topic.

    :raises TopicUnreadable: the topic could not be read.
    """
    if isinstance(done, ReadDone):
        return done
    if done.ended:
        raise EndedTopic(url, done.reason)
    raise TopicUnreadable(url, done.reason, refused=done.refused, lasting=done.lasting)
