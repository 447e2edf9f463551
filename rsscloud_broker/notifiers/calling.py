"""Makes one call to a callback and judges the answer; every notifier uses it.

The base class of the rssCloud notifiers is here, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping
from typing import Any

from rsscloud_broker.errors import AddressRefused, OutboundError
from rsscloud_broker.interfaces import IOutbound, OutboundReply, Signing
from rsscloud_broker.model import Denial, Intent, Notification, Outcome
from rsscloud_broker.notifiers.options import RssCloudOptions
from rsscloud_broker.notifiers.recording import exchange_of
from rsscloud_broker.wire.http_dates import retry_after
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.websub import SIGNATURE

#: The number of redirects of an rssCloud notification that are followed, as POST.
REDIRECTS = 5

#: The statuses of permanent redirects (RFC 9110, section 15.4).
PERMANENT = frozenset({301, 308})

#: A reason is cut to this many characters, since strangers write parts of it.
MAX_REASON = 300


class RssCloudNotifier(ABC):
    """A notifier of rssCloud, which verifies an intent with an ordinary notification.

    rssCloud has no message for a denial, so `deny` sends nothing.

    :param outbound: makes the requests; it connects only to addresses that are allowed.
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
        return Outcome(True, answered=False)  # no request was made


async def call(
    outbound: IOutbound,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    accept: Callable[[OutboundReply], str] = lambda reply: "",
    redirects: int = REDIRECTS,
    passing: Container[int] = (),
    signing: Signing | None = None,
) -> Outcome:
    """Call a callback and judge the answer.

    A redirect that is not followed is a failure.  A 410 says that the callback is gone, unless a
    temporary redirect led to it, since that is another server's answer.

    :param accept: judges an answer with a 2xx status: returns why it is a failure all the same,
        or an empty string.
    :param redirects: the number of redirects to follow.
    :param passing: the statuses of failures that pass: the broker tries again even if the answer
        has no Retry-After.
    :param signing: how the call is signed; None if it is not.
    :returns: the outcome of the call; it raises nothing for a failure.
    """
    sent = headers if signing is None else {**headers, SIGNATURE: ""}  # whoever sends it signs it
    try:
        reply = await outbound.request(method, url, headers, body, redirects, signing)
    except OutboundError as error:
        refused = isinstance(error, AddressRefused)
        return failed(
            str(error),
            answered=False,
            refused=refused,
            port_only=error.port_only,
            exchange=exchange_of(method, url, sent, body),
        )
    if not reply.success:
        pause = retry_after(reply.headers)
        return failed(
            f"the callback answered with status {reply.status}",
            retry_after=0.0 if pause is None and reply.status in passing else pause,
            gone=reply.status == 410 and all(status in PERMANENT for status, _ in reply.hops),
            exchange=exchange_of(method, url, sent, body, reply),
        )
    reason = accept(reply)
    if not reason:
        return DELIVERED
    return failed(reason, exchange=exchange_of(method, url, sent, body, reply))


#: The outcome of a successful call.
DELIVERED = Outcome(True)


def failed(reason: str, **facts: Any) -> Outcome:
    """The outcome of a call that failed.

    :param reason: why; it is cleaned and cut to one line that can be stored and logged.
    :param facts: further fields of the outcome.
    """
    return Outcome(False, clean(reason)[:MAX_REASON], **facts)
