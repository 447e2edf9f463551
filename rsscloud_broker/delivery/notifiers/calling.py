"""Makes one call to a callback and judges the answer; every notifier uses it.

The base classes of the notifiers are here, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from functools import partial
from secrets import token_urlsafe
from typing import Any, TypeAlias
from urllib.parse import urlencode

from rsscloud_broker.delivery.notifiers.options import RETRIES
from rsscloud_broker.delivery.notifiers.recording import exchange_of
from rsscloud_broker.errors import AddressRefused, Interrupted, OutboundError
from rsscloud_broker.interfaces import (
    IDirectOutbound,
    IOutbound,
    OutboundReply,
    OutboundRequest,
)
from rsscloud_broker.model import Denial, Intent, Notification, Outcome
from rsscloud_broker.util.deferreds import BreakOff, Done, from_callback, run_with_callback
from rsscloud_broker.wire.http_dates import retry_after
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.web_address import REDIRECTS

#: The statuses of permanent redirects (RFC 9110, section 15.4).
PERMANENT = frozenset({301, 308})

#: Begins a request, as ``IDirectOutbound.begin`` does.
_Begin: TypeAlias = Callable[..., BreakOff]

#: Judges an answer with a 2xx status: returns why it is a failure all the same, or an empty string.
Accept: TypeAlias = Callable[[OutboundReply], str]


def _accept_any(reply: OutboundReply) -> str:
    return ""


class CallingNotifier(ABC):
    """A notifier each of whose notifications is one call, which a subclass begins.

    :param outbound: makes the requests; it connects only to addresses that are allowed.
    """

    def __init__(self, outbound: IOutbound) -> None:
        self._outbound = outbound
        self._begin_request: _Begin = partial(_begin, outbound)
        if IDirectOutbound.providedBy(outbound):
            self._begin_request = outbound.begin

    @abstractmethod
    def begin(self, notification: Notification, done: Done[Outcome]) -> BreakOff:
        """See ``IDirectNotifier.begin``."""

    async def notify(self, notification: Notification) -> Outcome:
        """See ``INotifier.notify``."""
        return await from_callback(partial(self.begin, notification))

    def _begin_call(
        self,
        done: Done[Outcome],
        request: OutboundRequest,
        accept: Accept = _accept_any,
    ) -> BreakOff:
        """As ``call``, for ``begin``."""

        def replied(reply: OutboundReply | Exception) -> None:
            if isinstance(reply, Exception) and not isinstance(reply, OutboundError):
                done(reply)
                return
            result: Outcome | Exception
            try:
                result = _judged(reply, request, accept)
            except Exception as error:  # a bug in ``accept``
                result = error
            done(result)

        return self._begin_request(replied, request)


class RssCloudNotifier(CallingNotifier):
    """A notifier of rssCloud.

    It verifies an intent with an ordinary notification if the callback is at the subscriber's own
    address, and otherwise with a challenge, which the answer must contain::

        GET /notify?url=http%3A%2F%2Fexample.org%2Frss.xml&challenge=TOKEN HTTP/1.1

    Many servers answer any POST with 200, and none repeats a token unless it is made for it.  So
    nobody can subscribe a server of somebody else.  Source: the implementor's guide to rssCloud.

    rssCloud has no message for a denial, so `deny` sends nothing.

    :param outbound: makes the requests; it connects only to addresses that are allowed.
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


def _begin(outbound: IOutbound, done: Done[OutboundReply], request: OutboundRequest) -> BreakOff:
    """Begin a request by a client that tells nobody directly."""

    async def make() -> OutboundReply:
        reply: OutboundReply = await outbound.request(request)
        return reply

    return run_with_callback(make(), done)


async def call(
    outbound: IOutbound,
    request: OutboundRequest,
    accept: Accept = _accept_any,
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
    accept: Accept,
    passing: Container[int] = (),
) -> Outcome:
    """The outcome of a call that has this answer, or none."""
    if isinstance(reply, OutboundReply) and reply.success and not (reason := accept(reply)):
        return DELIVERED
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
    return failed(reason, exchange=exchange_of(request, reply))


#: The outcome of a successful call.
DELIVERED = Outcome(True)


def failed(reason: str, **facts: Any) -> Outcome:
    """The outcome of a call that failed.

    :param reason: why; it is cleaned and cut to one line that can be stored and logged.
    :param facts: further fields of the outcome.
    """
    # A reason is cut to this many characters, since strangers write parts of it.
    return Outcome(False, clean(reason)[:300], **facts)
