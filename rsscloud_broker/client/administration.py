"""Calls the administration API of a broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.interfaces import OutboundReply


class NotThere(ClientError):
    """What a call concerns does not exist."""


async def call(
    web: Web, url: str, token: str, method: str, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Call an operation of the API.

    :param url: the URL of the operation.
    :param token: an API token with the scope ``admin``.
    :param method: ``GET`` or ``POST``.
    :param values: what the operation takes, without what is in the URL.
    :returns: the JSON object of the answer.
    :raises NotThere: what the call concerns does not exist.
    :raises ClientError: the call failed; the text is what the broker says, if it says anything.
    """
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    if method == "GET":
        query = f"?{urlencode(values)}" if values else ""
        reply = await web.get(f"{url}{query}", headers, redirects=False)
    else:
        headers["Content-Type"] = "application/json"
        reply = await web.post(url, headers, json.dumps(values).encode("ascii"))
    answer = _object(reply)
    if not reply.success:
        said = answer.get("detail") or f"{url}: answered with HTTP status {reply.status}"
        # Without a detail it is not the broker that says it, or not one with this API.
        raise (NotThere if reply.status == 404 and "detail" in answer else ClientError)(said)
    if not answer:
        raise ClientError(f"{url}: the answer is not that of an administration API")
    return answer


def _object(reply: OutboundReply) -> dict[str, Any]:
    """The JSON object that an answer is; empty if it is none."""
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
