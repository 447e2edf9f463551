"""Pings a broker: the pings of rssCloud and of weblogs.com, by three protocols each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from rsscloud_broker.client.calls import call_form, call_page, call_soap, call_xmlrpc
from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.wire.weblog_updates import says_error

DEFAULT_BROKER: Final = "http://localhost:5337"

#: The protocols by which a ping can be sent.
PROTOCOLS: Final = ("rest", "xml-rpc", "soap")


async def ping_feed(web: Web, broker_url: str, feed_url: str, protocol: str = "rest") -> str:
    """Ping for a feed, by rssCloud.

    :param protocol: one of ``PROTOCOLS``.
    :returns: the broker's sentence.
    :raises ClientError: the broker did not accept the ping.
    """
    broker = broker_url.rstrip("/")
    if protocol == "rest":
        return await call_form(web, f"{broker}/rsscloud/ping", [("url", feed_url)])
    if protocol == "xml-rpc":
        accepted = await call_xmlrpc(web, f"{broker}/RPC2", "rssCloud.ping", [feed_url])
    else:
        accepted = await call_soap(web, f"{broker}/soap", "/rssCloud", "ping", {"url": feed_url})
    if accepted is not True:
        raise ClientError(f"{broker}: the ping was refused, without a reason")
    return "The ping was accepted."


async def ping_site(
    web: Web, broker_url: str, name: str, url: str, rss: str = "", protocol: str = "xml-rpc"
) -> str:
    """Ping for a site, as at weblogs.com; with a feed by ``extendedPing``.

    :param url: the URL of its home page.
    :param rss: the URL of its feed, or empty.
    :param protocol: one of ``PROTOCOLS``.
    :returns: the broker's sentence.
    :raises ClientError: the broker did not accept the ping.
    """
    broker = broker_url.rstrip("/")
    if protocol == "rest":
        query = {"name": name, "url": url} | ({"rssUrl": rss} if rss else {})
        return await call_page(web, f"{broker}/pingSiteForm?{urlencode(query)}")
    if protocol == "xml-rpc":
        procedure = "weblogUpdates.extendedPing" if rss else "weblogUpdates.ping"
        parameters = [name, url, "", rss] if rss else [name, url]
        return _message(broker, await call_xmlrpc(web, f"{broker}/RPC2", procedure, parameters))
    operation = "extendedPing" if rss else "ping"
    named = {"weblogname": name, "weblogurl": url}
    if rss:
        named |= {"changesurl": "", "rssurl": rss, "tags": ""}
    answer = await call_soap(web, f"{broker}/weblogUpdates", "/weblogUpdates", operation, named)
    return _message(broker, answer)


def _message(broker: str, answer: Any) -> str:
    """The message of a weblogUpdates answer.

    :raises ClientError: the answer has ``flerror``, or is of another kind.
    """
    if not isinstance(answer, Mapping):
        raise ClientError(f"{broker}: the answer is not that of a ping server")
    message = str(answer.get("message", ""))
    if "flerror" not in answer or says_error(answer):
        raise ClientError(message or f"{broker}: the ping was refused, without a reason")
    return message
