"""Examines feeds for their publishers: the feed itself, and the cloud and the hub that it names.

``rsscloud-broker doctor FEED-URL`` and the page ``/doctor`` use it.  The page's requests come from
strangers, so the broker gives the doctor its guarded client, its limits, and a thread for large
feeds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from zope.interface import implementer

from rsscloud_broker.client import feed_push
from rsscloud_broker.client.feed_findings import judge
from rsscloud_broker.client.feed_requests import Admit, Ask, FeedAnswer, fetch_twice
from rsscloud_broker.client.web import ClientError
from rsscloud_broker.errors import DocumentFault, OwnAddress, Refused, TooMany, Unavailable
from rsscloud_broker.interfaces import (
    FeedReport,
    Finding,
    IClock,
    IFeedDoctor,
    Parsing,
    parse_directly,
)
from rsscloud_broker.model import host_of
from rsscloud_broker.policy.addresses import bucket_of
from rsscloud_broker.util.deferreds import gather

#: How many feeds are examined at the same time.
AT_A_TIME: Final = 20

#: How many bytes of answers are in memory at the same time, for all examinations together.
MAX_BYTES: Final = 32 * 1024 * 1024

#: Seconds after which a caller may try again if too many feeds are being examined.
_PAUSE: Final = 30


@frozen
class Examination:
    """Examines one feed.

    :ivar broker: the broker that the feed should name; None if that is not known.
    :ivar admit: counts a request to the target of a redirect, to a cloud or to a hub; see
        ``Admit``.
    """

    ask: Ask
    clock: IClock
    broker: feed_push.OwnBroker | None
    parse: Parsing
    admit: Admit

    async def report(self, url: str) -> FeedReport:
        """Examine a feed.  A server that does not answer is a finding."""
        try:
            # Seconds for all requests for the feed.
            fetches = await self._wait_in_time(url, 20.0, fetch_twice(self.ask, url, self.admit))
        except ClientError as error:
            text = f"The feed cannot be fetched from here: {error}."
            return FeedReport(url, (Finding("wrong", "answer", text),))
        try:
            judgement = await self.parse(host_of(fetches.last.url), judge, fetches)
        except DocumentFault as error:
            return FeedReport(url, (Finding("wrong", "feed", f"This is not read: {error}."),))
        services = feed_push.services_of(judgement)
        # The services get findings of their own, which say more.
        named = {("good", service.kind) for service in services}
        found = [one for one in judgement.findings if (one.kind, one.subject) not in named]
        others = services
        if self.broker is not None:
            # What it finds of each service that is this broker's own; None for the others.
            own = [feed_push.own_finding(service, self.broker) for service in services]
            found += filter(None, own)
            found += feed_push.stranger_findings(services, own, self.broker)
            others = [service for service, ours in zip(services, own, strict=True) if ours is None]
        found += await gather([self._ask_service(service) for service in others])
        found += feed_push.subscriber_findings(fetches, judgement, self.broker)
        return FeedReport(url, tuple(found))

    async def _ask_service(self, service: feed_push.Service) -> Finding:
        """Ask a cloud or a hub, without subscribing to anything."""
        try:
            self.admit(service.url)
        except (Refused, Unavailable) as error:
            text = f"The {service.kind} {service.url} was not asked whether it answers: {error}."
            return Finding("missing", service.kind, text)
        try:
            asked = self.ask(service.url, {})
            # Seconds for each cloud or hub.
            return feed_push.answer_finding(
                service, await self._wait_in_time(service.url, 5.0, asked)
            )
        except ClientError as error:
            if self.broker and isinstance(error.__cause__, OwnAddress):
                return feed_push.detour_finding(service, self.broker)
            return feed_push.silence_finding(service, str(error))

    async def _wait_in_time(self, url: str, seconds: float, work: Awaitable[Any]) -> Any:
        """Wait for requests until a deadline.

        :raises ClientError: there was no answer, or the deadline has passed.
        """

        def timed_out(_: object, seconds: float) -> NoReturn:
            # Replaces whatever error the cancelled request raised.
            raise ClientError(f"{url}: no whole answer within {seconds:g} seconds")

        async def wait() -> Any:
            return await work

        return await Deferred.fromCoroutine(wait()).addTimeout(seconds, self.clock, timed_out)


@implementer(IFeedDoctor)
@define
class FeedDoctor:
    """Examines feeds for strangers; see ``IFeedDoctor``.

    :ivar ask: makes the requests; it must call only allowed addresses.
    :ivar broker: the broker that the feeds should name.
    :ivar admit: counts a fetch that a caller causes, or refuses it; it takes a URL and the
        caller's address, and returns the normal form of the URL.
    """

    ask: Ask
    clock: IClock
    broker: feed_push.OwnBroker
    admit: Callable[[str, str], str]
    parse: Parsing
    # How many feeds are being examined for each source; and how many bytes of answers all have.
    _under_way: dict[str, int] = field(factory=dict, init=False)
    _bytes: int = field(default=0, init=False)

    async def examine(self, url: str, source: str) -> FeedReport:
        """Examine a feed for a stranger, whose address is ``source``, within the limits."""
        with self._counting_examination(bucket_of(source)), self._counting_bytes() as ask:
            admitted = self.admit(url, source)

            def admit(service: str) -> None:
                self.admit(service, source)

            examination = Examination(ask, self.clock, self.broker, self.parse, admit)
            return await examination.report(admitted)

    @contextmanager
    def _counting_bytes(self) -> Iterator[Ask]:
        """Count the bytes of all answers of an examination, for as long as it is under way."""
        taken = 0

        async def ask(url: str, headers: Mapping[str, str]) -> FeedAnswer:
            """Ask, and count the bytes of the answer; refuse it if there are too many in memory."""
            nonlocal taken
            answer = await self.ask(url, headers)
            taken += len(answer.body)
            self._bytes += len(answer.body)
            if self._bytes > MAX_BYTES:
                raise ClientError(f"{url}: the broker has no memory left for feeds; try again soon")
            return answer

        try:
            yield ask
        finally:
            self._bytes -= taken

    @contextmanager
    def _counting_examination(self, source: str) -> Iterator[None]:
        """Count an examination for as long as it is under way.

        :raises TooMany: as many are under way as may be.
        """
        own = self._under_way.get(source, 0)
        # One caller has at most two feeds examined at the same time.
        if own >= 2:
            raise TooMany(f"{own} feeds are being examined for your address already", _PAUSE)
        if sum(self._under_way.values()) >= AT_A_TIME:
            raise TooMany(f"{AT_A_TIME} feeds are being examined already", _PAUSE)
        self._under_way[source] = own + 1
        try:
            yield
        finally:
            self._under_way[source] -= 1
            if not self._under_way[source]:
                del self._under_way[source]


async def examine(
    ask: Ask, clock: IClock, url: str, broker: feed_push.OwnBroker | None = None
) -> FeedReport:
    """Examine a feed for the user of this program, without limits.

    :param broker: the broker that the feed should name; None if that is not known.
    """
    return await Examination(ask, clock, broker, parse_directly, lambda _: None).report(url)
