"""What the notifiers of rssCloud have in common: one call to a callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rsscloud_broker.interfaces import IOutbound, OutboundReply
from rsscloud_broker.model import OutboundError, Outcome
from rsscloud_broker.wire.text import clean

#: How many redirects of a notification are followed, as POST.
REDIRECTS = 5

#: Characters of a reason that are kept: parts of it are a stranger's words.
MAX_REASON = 300


async def call(
    outbound: IOutbound,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    accept: Callable[[OutboundReply], str] = lambda reply: "",
) -> Outcome:
    """Call a callback and say what came of it.

    :param accept: looks at a 2xx answer; returns why it is a failure all the
        same, or an empty string.
    """
    try:
        reply = await outbound.request(method, url, headers, body, REDIRECTS)
    except OutboundError as error:
        return failed(str(error))
    if not reply.success:
        return failed(f"the callback answered with status {reply.status}")
    reason = accept(reply)
    return failed(reason) if reason else Outcome(True)


def failed(reason: str) -> Outcome:
    """A failure, and why: one line of bounded length, fit to be stored and logged."""
    return Outcome(False, clean(reason)[:MAX_REASON])
