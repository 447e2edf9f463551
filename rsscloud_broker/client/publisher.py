"""Telling a broker that something changed: the two pings, by three protocols each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from rsscloud_broker.client.calls import call_form, call_page, call_soap, call_xmlrpc
from rsscloud_broker.client.web import ClientError, Web

DEFAULT_BROKER: Final = "http://localhost:5337"

#: How a ping may be sent.
PROTOCOLS: Final = ("rest", "xml-rpc", "soap")


async def ping_feed(web: Web, broker_url: str, feed_url: str, protocol: str = "rest") -> str:
    """Say that a feed changed: the ping of rssCloud.

    :param protocol: one of ``PROTOCOLS``.
    :returns: what the broker said.
    :raises ClientError: it did not take the ping.
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
    """Say that a site changed: the ping of weblogs.com, extended if there is a feed.

    :param name: of the site.
    :param url: of its home page.
    :param rss: the URL of its feed, or empty.
    :param protocol: one of ``PROTOCOLS``.
    :returns: what the broker said.
    :raises ClientError: it did not take the ping.
    """
    broker = broker_url.rstrip("/")
    if protocol == "rest":
        query = {"name": name, "url": url} | ({"rssUrl": rss} if rss else {})
        return await call_page(web, f"{broker}/pingSiteForm?{urlencode(query)}")
    if protocol == "xml-rpc":
        procedure = "weblogUpdates.extendedPing" if rss else "weblogUpdates.ping"
        parameters = [name, url, "", rss] if rss else [name, url]
        return _said(broker, await call_xmlrpc(web, f"{broker}/RPC2", procedure, parameters))
    operation = "extendedPing" if rss else "ping"
    named = {"weblogname": name, "weblogurl": url}
    if rss:
        named |= {"changesurl": "", "rssurl": rss, "tags": ""}
    answer = await call_soap(web, f"{broker}/weblogUpdates", "/weblogUpdates", operation, named)
    return _said(broker, answer)


def _said(broker: str, answer: Any) -> str:
    """The message of a weblogUpdates answer, if it is a good one."""
    if not isinstance(answer, Mapping):
        raise ClientError(f"{broker}: the answer is not that of a ping server")
    message = str(answer.get("message", ""))
    if answer.get("flerror") is not False:
        raise ClientError(message or f"{broker}: the ping was refused, without a reason")
    return message
