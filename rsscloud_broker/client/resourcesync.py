"""Sends a ResourceSync notification to a hub, as a source does."""

from __future__ import annotations

from textwrap import shorten

from rsscloud_broker.client.web import ACCEPTED, ClientError, Web
from rsscloud_broker.wire import links, resourcesync
from rsscloud_broker.wire.text import clean


async def notify(
    web: Web, payload: bytes, topic: str, hub: str, capability_list: str = "", token: str = ""
) -> str:
    """Send a notification to a hub, unchanged.

    :param payload: a framework notification or a change notification.
    :param topic: the URL of the channel.
    :param capability_list: the URL of the capability list; if it is empty, the one that the
        payload names as ``up``.
    :param token: the token of the topic's publisher; may be empty.
    :returns: the hub's sentences.
    :raises ClientError: the payload breaks a rule, a URL is invalid, or the hub did not accept the
        notification.
    """
    try:
        notification = resourcesync.decode_notification(payload)
    except resourcesync.InvalidDocument as error:
        raise ClientError(f"nothing was sent: {error}") from None
    capability_list = capability_list or resourcesync.first_link(notification.links, "up")
    if not capability_list:
        raise ClientError(
            "nothing was sent: the file names no capability list as rs:ln rel=up; give its URL"
        )
    for url in (topic, hub, capability_list):
        if not links.is_absolute(url):
            raise ClientError(f"nothing was sent: {url!r} is not an absolute http or https URL")
    header = links.encode([(topic, "self"), (hub, "hub"), (capability_list, "resourcesync")])
    headers = {"Content-Type": "application/xml", "Link": header}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    reply = await web.post(hub, headers, payload)
    answer = clean(reply.body.decode("utf-8", "replace"))
    if reply.status not in ACCEPTED:
        reason = "a hub answers 202; give its whole URL, which often ends in /websub"
        if not reply.success:
            reason = shorten(answer, 300, placeholder="...")
        raise ClientError(f"{hub}: answered with HTTP status {reply.status}: {reason}")
    return answer or f"The answer was HTTP status {reply.status}."
