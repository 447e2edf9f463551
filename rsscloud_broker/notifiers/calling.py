"""What the notifiers have in common: one call to a callback.  Those of rssCloud make it
once before a subscription is stored, and have no other words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping
from typing import Any

from rsscloud_broker.errors import AddressRefused, OutboundError
from rsscloud_broker.interfaces import IOutbound, OutboundReply
from rsscloud_broker.model import Denial, Intent, Notification, Outcome
from rsscloud_broker.notifiers.options import RssCloudOptions
from rsscloud_broker.wire.http_dates import http_date
from rsscloud_broker.wire.text import clean

#: How many redirects of a notification of rssCloud are followed, as POST.
REDIRECTS = 5

#: Redirects that lead to where a callback is from now on (RFC 9110, section 15.4).
PERMANENT = frozenset({301, 308})

#: Seconds for which a callback may ask to be left alone.
MAX_RETRY_AFTER = 86_400.0

#: Characters of a reason that are kept: parts of it are a stranger's words.
MAX_REASON = 300


class RssCloudNotifier(ABC):
    """A notifier that is verified by a notification like any other.

    :param outbound: connects only where callbacks may be.
    """

    carries_content = False

    def __init__(self, outbound: IOutbound, options: RssCloudOptions) -> None:
        self.drop_after_failures = options.drop_after_failures
        self.retries = options.retries
        self._outbound = outbound

    async def verify(self, intent: Intent) -> Outcome:
        return await self.notify(Notification(intent.topic, intent.callback))

    @abstractmethod
    async def notify(self, notification: Notification) -> Outcome:
        """See ``INotifier.notify``."""

    async def deny(self, denial: Denial) -> Outcome:
        return Outcome(True, answered=False)  # the protocol has no word for it


async def call(
    outbound: IOutbound,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    accept: Callable[[OutboundReply], str] = lambda reply: "",
    redirects: int = REDIRECTS,
    passing: Container[int] = (),
) -> Outcome:
    """Call a callback and say what came of it.

    A redirect that is not followed is an answer like any other, and no success.  Behind a
    temporary one 410 does not say that the callback is gone: that is not its own server.

    :param accept: looks at a 2xx answer; returns why it is a failure all the
        same, or an empty string.
    :param passing: the statuses after which trying again makes sense, even where the
        answer does not say when.
    """
    try:
        reply = await outbound.request(method, url, headers, body, redirects)
    except OutboundError as error:
        refused = isinstance(error, AddressRefused)
        return failed(str(error), answered=False, refused=refused, port_only=error.port_only)
    if not reply.success:
        pause = retry_after(reply.headers)
        return failed(
            f"the callback answered with status {reply.status}",
            retry_after=0.0 if pause is None and reply.status in passing else pause,
            gone=reply.status == 410 and all(status in PERMANENT for status, _ in reply.hops),
        )
    reason = accept(reply)
    return failed(reason) if reason else DELIVERED


#: The one outcome that has nothing more to say.
DELIVERED = Outcome(True)


def failed(reason: str, **facts: Any) -> Outcome:
    """A failure, and why: one line of bounded length, fit to be stored and logged.

    :param facts: further fields of the outcome.
    """
    return Outcome(False, clean(reason)[:MAX_REASON], **facts)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of a Retry-After header (RFC 9110, section 10.2.3).

    Its other form, a date, counts from the answer's own Date: the two clocks need not
    agree then.

    :param headers: of the answer, by names in lower case.
    :returns: None where there is no such header, or a date without a Date.
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), MAX_RETRY_AFTER)
    until, sent = http_date(text), http_date(headers.get("date", ""))
    return None if until is None or sent is None else min(max(until - sent, 0.0), MAX_RETRY_AFTER)
