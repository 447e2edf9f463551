"""Makes one call to a callback and judges the answer; every notifier uses it.

The base classes of the notifiers are here, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping
from functools import partial
from secrets import token_urlsafe
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from attrs import evolve, frozen

from rsscloud_broker.delivery.notifiers.recording import cleaned, exchange_of
from rsscloud_broker.errors import AddressRefused, Interrupted, OutboundError
from rsscloud_broker.interfaces import (
    IDirectOutbound,
    INotifyingOutbound,
    IOutbound,
    OutboundReply,
    OutboundRequest,
)
from rsscloud_broker.model import Denial, Intent, Notification, Outcome
from rsscloud_broker.util.deferreds import (
    BreakOff,
    Done,
    from_callback,
    nothing_to_break_off,
    run_with_callback,
)
from rsscloud_broker.wire.http_dates import retry_after
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.web_address import REDIRECTS

#: The statuses of permanent redirects (RFC 9110, section 15.4).
PERMANENT = frozenset({301, 308})

#: How many characters a reason has: strangers write parts of it.
MAX_REASON: Final = 300

#: Judges an answer with a 2xx status: returns why it is a failure all the same, or an empty string.
Accept: TypeAlias = Callable[[OutboundReply], str]


class CallingNotifier(ABC):
    """A notifier each of whose notifications is one call.

    If the broker has couriers, the same notifier in one of them makes the call.

    :param outbound: makes the requests; it connects only to addresses that are allowed.
    :ivar accept: judges answers; None if every answer with a 2xx status is a success.
    :ivar defaults: options for subscriptions that have none of these names.
    """

    accept: Accept | None = None
    defaults: Mapping[str, str] = MappingProxyType({})

    def __init__(self, outbound: IOutbound) -> None:
        self._outbound = outbound
        self._is_direct = IDirectOutbound.providedBy(outbound)
        self._has_couriers = INotifyingOutbound.providedBy(outbound)

    @abstractmethod
    def request_of(self, notification: Notification) -> OutboundRequest:
        """The request that notifies a subscriber.

        :raises ValueError: there is none; the text says why, for people.
        """

    def begin(self, notification: Notification, done: Done[Outcome]) -> BreakOff:
        """Begin to notify a subscriber, here or by a courier; ``done`` gets the outcome or an
        error.
        """
        if not self._has_couriers:
            return self._begin_here(notification, done)
        if self.defaults:
            options = {**self.defaults, **notification.options}
            notification = evolve(notification, options=options)
        couriers: Any = self._outbound
        finished = partial(self._notified_by_courier, notification, done)
        break_off: BreakOff = couriers.notify(notification, finished)
        return break_off

    async def notify(self, notification: Notification) -> Outcome:
        """Notify a subscriber, and return the outcome."""
        return await from_callback(partial(self.begin, notification))

    def _begin_here(self, notification: Notification, done: Done[Outcome]) -> BreakOff:
        """Begin to notify a subscriber by a call of this process, and not of a courier."""
        try:
            request = self.request_of(notification)
        except ValueError as error:
            done(failed(str(error)))
            return nothing_to_break_off
        if not self._is_direct:
            return run_with_callback(call(self._outbound, request, self.accept), done)

        def replied(reply: OutboundReply | Exception) -> None:
            result: Outcome | Exception
            if isinstance(reply, Exception) and not isinstance(reply, OutboundError):
                result = reply
            else:
                try:
                    result = _judged(reply, request, self.accept)
                except Exception as error:  # a bug in ``accept``
                    result = error
            done(result)

        client: Any = self._outbound
        break_off: BreakOff = client.begin(replied, request)
        return break_off

    def _notified_by_courier(
        self, notification: Notification, done: Done[Outcome], result: Outcome | Exception
    ) -> None:
        """Check the result that a courier reports, as somebody may have broken into the courier."""
        if isinstance(result, Outcome):
            if not result.success:
                reason, exchange = clean(result.reason)[:MAX_REASON], result.exchange
                result = evolve(result, reason=reason, exchange=exchange and cleaned(exchange))
        elif isinstance(result, OutboundError):  # the courier has not answered
            try:
                result = _judged(result, self.request_of(notification), self.accept)
            except ValueError as error:
                result = failed(str(error))
        done(result)


#: Seconds to wait before each further attempt of a notification that failed: a subscriber that
#: restarts or is busy for half an hour misses nothing.
RETRIES: Final = (5.0, 30.0, 120.0, 600.0, 1800.0)


@frozen
class RssCloudNotifierOptions:
    """The rssCloud notifiers have no options."""


class RssCloudNotifier(CallingNotifier):
    """A notifier of rssCloud.

    It verifies an intent with an ordinary notification if the callback is at the subscriber's own
    address, and otherwise with a challenge, which the answer must contain::

        GET /notify?url=http%3A%2F%2Fexample.org%2Frss.xml&challenge=TOKEN HTTP/1.1

    Many servers answer any POST with 200, and none repeats a token unless it is made for it.  So
    nobody can subscribe a server of somebody else.  Source: the implementor's guide to rssCloud.

    rssCloud has no message for a denial, so `deny` sends nothing.
    """

    carries_content = False
    # As the implementor's guide to rssCloud says.
    drop_after_failures = 3
    retries = RETRIES

    async def verify(self, intent: Intent) -> Outcome:
        if not intent.challenge:
            return await self.notify(Notification(intent.topic, intent.callback))
        token = token_urlsafe(15)  # 20 characters, as the guide says

        def accept(reply: OutboundReply) -> str:
            # The guide says "contains"; later servers expect the challenge alone.  Both pass.
            found = token.encode("ascii") in reply.body
            return "" if found else "the answer to the challenge does not contain it"

        url = intent.callback.url
        query = urlencode({"url": intent.topic, "challenge": token})
        joint = "&" if "?" in url else "?"
        request = OutboundRequest("GET", f"{url}{joint}{query}", redirects=REDIRECTS)
        return await call(self._outbound, request, accept)

    async def deny(self, denial: Denial) -> Outcome:
        return Outcome(True, answered=False)  # no request was made


async def call(
    outbound: IOutbound,
    request: OutboundRequest,
    accept: Accept | None = None,
    passing: Container[int] = (),
) -> Outcome:
    """Call a callback and judge the answer.

    A redirect that is not followed is a failure.  A 410 says that the callback is gone, unless a
    temporary redirect led to it, since that is another server's answer.

    :param passing: the statuses of failures that pass: the broker tries again even if the answer
        has no Retry-After.
    :returns: the outcome of the call; it raises nothing for a failure.
    """
    reply: OutboundReply | OutboundError
    try:
        reply = await outbound.request(request)
    except OutboundError as error:
        reply = error
    return _judged(reply, request, accept, passing)


def _judged(
    reply: OutboundReply | OutboundError,
    request: OutboundRequest,
    accept: Accept | None,
    passing: Container[int] = (),
) -> Outcome:
    """The outcome of a call that has this answer, or none."""
    if isinstance(reply, OutboundError):
        return failed(
            str(reply),
            answered=False,
            refused=isinstance(reply, AddressRefused),
            port_only=reply.port_only,
            interrupted=isinstance(reply, Interrupted),
            exchange=exchange_of(request),
        )
    if not reply.success:
        pause = retry_after(reply.headers)
        return failed(
            f"the callback answered with status {reply.status}",
            retry_after=0.0 if pause is None and reply.status in passing else pause,
            gone=reply.status == 410 and all(status in PERMANENT for status, _ in reply.hops),
            exchange=exchange_of(request, reply),
        )
    if accept is not None and (reason := accept(reply)):
        return failed(reason, exchange=exchange_of(request, reply))
    return DELIVERED


#: The outcome of a successful call.
DELIVERED = Outcome(True)


def failed(reason: str, **facts: Any) -> Outcome:
    """The outcome of a call that failed.

    :param reason: why; it is cleaned and cut to one line that can be stored and logged.
    :param facts: further fields of the outcome.
    """
    return Outcome(False, clean(reason)[:MAX_REASON], **facts)
