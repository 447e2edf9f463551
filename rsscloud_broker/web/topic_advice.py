"""Says what the publisher of a topic can do about each fault that the broker sees."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.model import TopicOverview
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.web.topic_overview import ThisBroker
from rsscloud_broker.web.words import clipped
from rsscloud_broker.wire import cloud
from rsscloud_broker.wire.links import HUB_PATHS
from rsscloud_broker.wire.rsscloud import REST_PATHS

_ATOM = "http://www.w3.org/2005/Atom"


def advice(overview: TopicOverview, this_broker: ThisBroker, *, has_doctor: bool) -> Flattenable:
    """A section with what to do next; nothing if the broker sees no fault.

    :param has_doctor: whether the broker examines feeds at ``/doctor``.
    """
    faults = list(_faults(overview, this_broker))
    if not faults:
        return ""
    items = [tags.li(*fault) for fault in faults]
    doctor: Flattenable = ""
    if has_doctor:
        address = f"/doctor?url={quote(overview.status.topic.url, safe='')}"
        link = tags.a("Check the feed", href=address)
        doctor = tags.p(link, " to see all that a careful reader finds in it.")
    return tags.section(tags.h2("What you can do"), tags.ul(*items, class_="todo"), doctor)


def _faults(overview: TopicOverview, this_broker: ThisBroker) -> Iterator[list[Flattenable]]:
    """What is wrong with a topic and what to do, each as the content of an item."""
    status, feed = overview.status, overview.status.feed
    if status.topic.ended:
        yield ["The broker does not fetch it any more. If it is there again, fetch it now, below."]
        return
    if status.failures:
        yield [
            f"The last fetch failed: {clipped(status.result, 300)}. Open the address in a browser, "
            "correct what is wrong there, and fetch it now, below."
        ]
    if "unreadable" in feed:
        why = clipped(str(feed["unreadable"]), 300)
        yield [
            f"The broker cannot read its content as a feed: {why}. If it is meant to be one, "
            "correct it."
        ]
        return
    if not feed:
        return
    kind = str(feed.get("format", "")).lower()
    if this_broker.has_hub and not feed.get("hubs"):
        yield [
            "Your feed names no hub, so WebSub subscribers may not find this broker. Add this line "
            f"{_place_in_feed(kind)}:",
            _code_line(_hub_line(kind, this_broker.public_url + HUB_PATHS[0])),
        ]
    if this_broker.has_cloud and kind.startswith("rss") and not feed.get("clouds"):
        yield [
            "Your feed names no cloud, so rssCloud readers do not find this broker. Add this line "
            f"{_place_in_feed(kind)}:",
            _code_line(_cloud_line(this_broker.public_url)),
        ]
    own = str(feed.get("self_link", ""))
    known = {status.topic.url, *status.moved_from}
    if own and normal_form(own) not in known and overview.subscriptions:
        yield [
            "Your feed gives another address as its own. Ping with that address, or correct this "
            "line of the feed:",
            _code_line(_self_line(kind, status.topic.url)),
        ]


def _code_line(text: str) -> Tag:
    return tags.pre(text, class_="copy")


def _place_in_feed(kind: str) -> str:
    """Where in a feed of a format a line belongs."""
    if kind.startswith("json"):
        return "to its object"
    return "within its feed element" if kind.startswith("atom") else "within its channel"


def _hub_line(kind: str, url: str) -> str:
    """The line by which a feed of a format names a hub."""
    if kind.startswith("json"):
        return f'"hubs": [{{"type": "WebSub", "url": "{url}"}}],'
    return f'<link xmlns="{_ATOM}" rel="hub" href={quoteattr(url)}/>'


def _self_line(kind: str, url: str) -> str:
    """The line by which a feed of a format gives its own address."""
    if kind.startswith("json"):
        return f'"feed_url": "{url}",'
    return f'<link xmlns="{_ATOM}" rel="self" href={quoteattr(url)}/>'


def _cloud_line(public_url: str) -> str:
    """The line by which an RSS feed names this broker as its cloud."""
    return cloud.encode(cloud.from_url(public_url + REST_PATHS[0]))
