"""The front door for ``/topic``: what the broker knows of one topic, and what it did with it.

::

    GET /topic?url=http://example.org/rss.xml    the overview of the topic, a page
    POST /topic with url=...                     fetch the topic now, as for a ping

The page answers the question of publishers and readers why nothing happened: whether the broker
watches the topic, when it fetched it, what came of that, and which notifications failed.  It
names no subscriber but the hosts whose notifications failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from twisted.web.server import Request
from twisted.web.template import Flattenable, tags
from zope.interface import implementer

from rsscloud_broker.config import NoOptions
from rsscloud_broker.errors import ForgedForm, Refused, TopicUnreadable
from rsscloud_broker.http.answering import Answer, Answers, Failure, private, viewer_of
from rsscloud_broker.http.requests import client_address, parameter
from rsscloud_broker.interfaces import Caller, FrontDoorParts, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.model.log_entry import LogEntry
from rsscloud_broker.model.ways import Way
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.web.callers import check_sender, origin_of
from rsscloud_broker.web.timeline import entries_of_topic, known_entries, timeline, verdict
from rsscloud_broker.web.topic_advice import advice
from rsscloud_broker.web.topic_overview import ThisBroker, changes_plot, facts, lead, title_of
from rsscloud_broker.web.words import clipped
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.web_address import fault_of

_EXPLAINED: Final = (
    "A topic is a feed or a page that this broker watches for its subscribers. Look one up to see "
    "what the broker knows of it: when it was fetched, what it says of itself, how many "
    "subscribers it has, and why they were or were not notified."
)


_CHANGED: Final = (
    "It has changed since the last fetch, or this was the first one: its subscribers are being "
    "notified."
)
_UNCHANGED: Final = "It has not changed since the last fetch, so nobody is notified."


@implementer(IFrontDoor)
class TopicPageDoor(RoutesOnly):
    """The front door for ``/topic``."""

    name = "topic_page"

    def __init__(self, options: NoOptions, parts: FrontDoorParts) -> None:
        self._parts = parts
        self._origin = origin_of(parts.public_url)
        self._entries = known_entries(parts, entries_of_topic)
        self._this_broker = ThisBroker(parts.public_url, "rsscloud" in parts.running, parts.has_hub)
        self._has_log_page = "event_log" in parts.running

    def routes(self) -> Sequence[Route]:
        return [
            Route("/topic", "GET", Answers(self._show)),
            Route("/topic", "POST", Answers(self._fetch)),
        ]

    async def _show(self, request: Request) -> Answer:
        """The overview of a topic; without ``url``, only the form to look one up."""
        url = parameter(request, "url").strip()
        viewer = await viewer_of(self._parts.callers, request)
        if not url:
            return await self._page(viewer, "Topics", lead=tags.p(_EXPLAINED))
        if fault := fault_of(url):
            return await self._refusal(viewer, 400, f"The address cannot be a topic: {fault}.")
        return await self._overview(viewer, url, newest=False)

    async def _fetch(self, request: Request) -> Answer:
        """Fetch a topic, as for a ping, and say what happened."""
        url = parameter(request, "url").strip()
        viewer = await viewer_of(self._parts.callers, request)
        try:
            # Else another site could use up the pings of its visitors.
            check_sender(request, self._origin)
        except ForgedForm as problem:
            return await self._refusal(viewer, 403, f"The broker has not fetched it: {problem}.")
        if fault := fault_of(url):
            return await self._refusal(viewer, 400, f"The address cannot be a topic: {fault}.")
        status, headers, said = 200, dict[str, str](), {"error": "", "success": ""}
        try:
            source = client_address(request)
            changed = await self._parts.broker.ping_topic(url, source, way=Way.PAGE)
        except TopicUnreadable as problem:
            said["error"] = f"The broker tried to fetch it, and could not: {problem.reason}."
        except Refused as problem:
            failure = Failure.of(problem)
            status, headers = failure.status, failure.headers
            said["error"] = f"The broker has not fetched it: {problem}."
        else:
            said["success"] = f"The broker has fetched it. {_CHANGED if changed else _UNCHANGED}"
        return await self._overview(viewer, url, status, headers, newest=True, **said)

    async def _overview(
        self,
        viewer: Caller | None,
        url: str,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        *,
        newest: bool,
        **said: Flattenable,
    ) -> Answer:
        """The page about a topic, known or not, with what a fetch brought just now."""
        overview = await self._parts.topics.overview(url, newest)
        entries = await self._entries.get(normal_form(url), newest)
        now = self._parts.clock.wall_seconds()
        first: Flattenable
        shown: list[Flattenable] = [self._timeline_section(url, entries, now)]
        heading = url
        if overview is None:
            first = tags.p(
                "The broker does not know this feed or page (a topic): nobody has subscribed to it "
                "here, and nobody has said lately that it has changed. If you publish it, ping "
                "when it changes; if you read it, subscribe to it."
            )
        else:
            first = [lead(overview, url), verdict(entries, now)]
            heading = title_of(overview) or url
            known = facts(overview, self._this_broker, now)
            shown += [
                changes_plot(overview.status.change_days, now),
                advice(overview, self._this_broker, has_doctor="doctor" in self._parts.running),
                tags.section(tags.h2("What the broker knows"), *known),
            ]
        slots = {"url": url, "lead": first, "overview": shown, **said}
        return await self._page(viewer, clipped(heading), status, headers, **slots)

    async def _refusal(self, viewer: Caller | None, status: int, message: str) -> Answer:
        """The page with the form, and with why the request was refused."""
        explained = tags.p(_EXPLAINED)
        return await self._page(viewer, "Topics", status, error=clean(message), lead=explained)

    async def _page(
        self,
        viewer: Caller | None,
        heading: str,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **slots: Flattenable,
    ) -> Answer:
        """The page about a topic; without the slot ``url``, with the form to look one up.

        :param slots: ``lead`` comes first below the heading, ``overview`` is what the broker knows
            of the topic, ``error`` and ``success`` say what came of a fetch just now.
        """
        shown = dict[str, Flattenable].fromkeys(("url", "overview", "error", "success"), "") | slots
        body = await self._parts.pages.render(
            clean(heading),
            "topic.html",
            viewer,
            here="/topic",
            start="" if shown["url"] else "shown",
            heading=clean(heading),
            **shown,
        )
        return Answer(body, status=status, headers={**private(viewer), **(headers or {})})

    # the event log

    def _timeline_section(self, url: str, found: Sequence[LogEntry], now: float) -> Flattenable:
        """The section with what happened; empty if there are no entries."""
        if not found:
            return ""
        address = f"/log?topic={quote(normal_form(url), safe='')}"
        more: Flattenable = ""
        if self._has_log_page:
            more = tags.p(tags.a("All entries of the event log about it", href=address))
        heading = tags.h2("What happened")
        return tags.section(heading, timeline(found, now, "this topic"), more)
