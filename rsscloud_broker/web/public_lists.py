"""The front door for lists that anybody may read: recent changes, and the topics that are watched.

=========================  ===============================================================
``/changes``               the pings, newest first: changes.xml for people
``/feeds.opml``            the topics that have subscriptions, as OPML 2.0
``/subscriptions.json``    how many subscriptions each topic has, by protocol
``/search``, ``/host``     look up topics and hosts: see ``look_up``
=========================  ===============================================================

Each answer has a part of its list and the address of the next part.  The lists of topics go on
after ``PART`` topics; in JSON::

    {"topics": [{"url": "http://example.org/rss.xml", "title": "A weblog",
                 "subscriptions": {"http-post": 3, "websub": 1}}],
     "next": "http://broker.example/subscriptions.json?after=512"}

They name no subscriber.  A topic whose URL has a user name or a password is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final
from urllib.parse import quote, urlsplit

from attrs import frozen
from twisted.web.server import Request
from twisted.web.template import Flattenable, Tag, tags
from zope.interface import implementer

from rsscloud_broker.http.answering import Answer, Answers, private, viewer_of
from rsscloud_broker.http.requests import RequestError, parameter
from rsscloud_broker.interfaces import Caller, FrontDoorParts, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.model import Ping, TopicSummary
from rsscloud_broker.util.caches import TimedCache
from rsscloud_broker.web.look_up import LookUp
from rsscloud_broker.web.pages import linked
from rsscloud_broker.web.words import clipped, dated, strangers_text, table
from rsscloud_broker.wire import opml
from rsscloud_broker.wire.text import parse_number

#: How many pings a page of ``/changes`` shows at most.
SHOWN: Final = 50

#: How many topics a part of a list has at most.
PART: Final = 500

#: Seconds for which a page of ``/changes`` is remembered, and how many pages are.
_FRESH, _PAGES = 1.0, 50

#: In a second: positions in the list are whole numbers.
_MICROSECONDS: Final = 1_000_000
_POSITION: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")

_CACHED: Final = {"cache-control": "public, max-age=60"}


@frozen
class PublicListsOptions:
    """Options of the public lists.

    :ivar topics: whether ``/feeds.opml``, ``/subscriptions.json`` and ``/search`` list the topics
        that have subscriptions.
    """

    topics: bool = True


@implementer(IFrontDoor)
class PublicListsDoor(RoutesOnly):
    """The front door for ``/changes``, ``/feeds.opml`` and ``/subscriptions.json``."""

    name = "public_lists"

    def __init__(self, options: PublicListsOptions, parts: FrontDoorParts) -> None:
        self._parts = parts
        self._lists_topics = options.topics
        self._look_up = LookUp(parts, lists_topics=options.topics)
        self._changes = TimedCache(self._changes_page, parts.clock, _FRESH, _PAGES)

    def routes(self) -> Sequence[Route]:
        routes = [Route("/changes", "GET", Answers(self._show_changes)), *self._look_up.routes()]
        if self._lists_topics:
            for path, respond in (
                ("/feeds.opml", self._show_feeds),
                ("/subscriptions.json", self._show_subscriptions),
            ):
                routes.append(Route(path, "GET", Answers(respond), for_everybody=True))
        return routes

    # pings

    async def _show_changes(self, request: Request) -> Answer:
        """Answer ``/changes``; a page for strangers is remembered."""
        wanted = parameter(request, "before")
        found = _POSITION.fullmatch(wanted)
        if wanted and found is None:
            raise _bad_position("before", "take it from the link to older changes")
        before = (int(found[1]) / _MICROSECONDS, int(found[2])) if found else None
        viewer = await viewer_of(self._parts.callers, request)
        if viewer is None:
            return Answer(await self._changes.get(before))
        return Answer(await self._changes_page(before, viewer), headers=private(viewer))

    async def _changes_page(
        self, before: tuple[float, int] | None, viewer: Caller | None = None
    ) -> bytes:
        """A page of pings: those before a time and an id, or the newest."""
        pings = await self._parts.topics.pings(before, SHOWN + 1)
        shown = list(_first_fitting(pings[:SHOWN]))
        links: list[Flattenable] = []
        if before is not None:
            links.append(tags.a("The newest changes", href="/changes"))
        if len(pings) > len(shown):
            last = shown[-1]
            position = f"{round(last.received_at * _MICROSECONDS)}-{last.id}"
            links.append(tags.a("Older changes", href=f"/changes?before={position}", rel="next"))
        return await self._parts.pages.render(
            "Changes",
            "changes.html",
            viewer,
            here="/changes",
            changes=self._pings_table(shown) if shown else tags.p("There are no pings here."),
            paging=links,
            lists="shown" if self._lists_topics or "change_lists" in self._parts.running else "",
            topics="shown" if self._lists_topics else "",
            change_lists="shown" if "change_lists" in self._parts.running else "",
        )

    def _pings_table(self, pings: Sequence[Ping]) -> Tag:
        rows = (
            (dated(one.received_at), _site_cell(one), self._further_links(one)) for one in pings
        )
        return table("The newest first.", ("When", "What changed", "More"), rows, "", kind="cards")

    def _further_links(self, ping: Ping) -> list[Flattenable]:
        """Links to the feed of a site, and to what the broker knows of it."""
        links: list[Flattenable] = []
        name = clipped(ping.name)
        if ping.rss_url and ping.rss_url != ping.url:
            feed = linked(ping.rss_url, "feed")
            links += [feed(**{"aria-label": f"feed of {name}"}), " "]
        if "topic_page" in self._parts.running:
            topic = quote(ping.rss_url or ping.url, safe="")
            label = {"aria-label": f"details of {name}"}
            links.append(tags.a("details", href=f"/topic?url={topic}", **label))
        return links

    # topics

    async def _show_feeds(self, request: Request) -> Answer:
        topics, more = await self._read_part("/feeds.opml", request)
        title = f"Feeds that {urlsplit(self._parts.public_url).netloc} watches"
        document = opml.encode(title, ((topic.url, topic.title) for topic in topics), more)
        return Answer(document, "text/x-opml; charset=utf-8", headers=_headers(more))

    async def _show_subscriptions(self, request: Request) -> Answer:
        topics, more = await self._read_part("/subscriptions.json", request)
        listed = [
            {"url": topic.url, "title": topic.title, "subscriptions": dict(topic.subscriptions)}
            for topic in topics
        ]
        document = json.dumps({"topics": listed, "next": more or None}, ensure_ascii=False)
        body = f"{document}\n".encode("utf-8", "replace")
        return Answer(body, "application/json", headers=_headers(more))

    async def _read_part(self, path: str, request: Request) -> tuple[list[TopicSummary], str]:
        """A part of the list of topics, and the URL of the next part; empty if there is none."""
        after = parse_number(parameter(request, "after") or "0")
        if after is None:
            raise _bad_position("after", "take it from the part of the list before")
        topics = await self._parts.topics.watched(after, PART)
        more = ""
        if len(topics) == PART:
            more = f"{self._parts.public_url}{path}?after={topics[-1].id}"
        return [topic for topic in topics if "@" not in urlsplit(topic.url).netloc], more


def _bad_position(name: str, rule: str) -> RequestError:
    text = f"The parameter {name} is not a position in this list: {rule}, or leave it out."
    return RequestError(400, text)


def _headers(more: str) -> dict[str, str]:
    """The headers of a part of a list; Link names the next part, if there is one."""
    return {**_CACHED, "link": f'<{more}>; rel="next"'} if more else dict(_CACHED)


def _site_cell(ping: Ping) -> list[Flattenable]:
    """The site of a ping, linked; with its address if it has another name."""
    parts: list[Flattenable] = [linked(ping.url, strangers_text(ping.name))]
    if ping.name != ping.url:
        parts += [tags.br(), tags.span(strangers_text(ping.url), class_="quiet")]
    return parts


def _first_fitting(pings: Sequence[Ping]) -> Iterator[Ping]:
    """The first pings whose rows fit on a page; at least one, if there is one."""
    size = 0
    for ping in pings:
        size += (
            500
            + _size_on_page(clipped(ping.name)) * 2
            + _size_on_page(ping.url)
            + _size_on_page(ping.rss_url)
        )
        # The rows have about this many bytes at most, so that of long URLs fewer are shown.
        if size > 85_000 and ping is not pings[0]:
            return
        yield ping


def _size_on_page(text: str) -> int:
    """How many bytes a text takes in an element together with its link to a topic."""
    in_link = quote(text, safe="", errors="replace")
    return len(escape(text).encode("utf-8", "replace")) + len(in_link)
