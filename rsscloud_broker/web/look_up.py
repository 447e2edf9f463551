"""The pages that look up topics and hosts: ``/search?q=`` and ``/host?name=``.

The box in the header of every page leads to ``/search``.  It finds topics by how their addresses
begin, with or without ``https://`` and ``www.``, the hosts of these topics, and any other host by
its whole name.
``/host`` tells what the event log has of one host, of a publisher or of a subscriber.

Both show what everybody may know: topics that have subscriptions, and of those no subscriber.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final
from urllib.parse import quote, urlsplit

from twisted.web.server import Request
from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.http.answering import Answer, Answers, private, viewer_of
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import Caller, FrontDoorParts, Route
from rsscloud_broker.model import TopicOverview
from rsscloud_broker.model.hosts import canonical_host, host_of
from rsscloud_broker.model.log_entry import LogEntry
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.web.callers import redirect
from rsscloud_broker.web.log_lines import line_of
from rsscloud_broker.web.timeline import entries_of_host, known_entries, timeline
from rsscloud_broker.web.topic_overview import changes_plot, title_of
from rsscloud_broker.web.words import strangers_text
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.web_address import fault_of

#: How many topics a page lists, and how many characters it must know of their addresses.
FOUND, SHORTEST = 50, 3

#: How many characters of an address are shown.
_SHOWN: Final = 200


class LookUp:
    """Answers ``/search`` and ``/host``.

    :param lists_topics: whether strangers may see lists of topics; otherwise they find only those
        whose whole addresses they know.
    """

    def __init__(self, parts: FrontDoorParts, *, lists_topics: bool) -> None:
        self._parts = parts
        self._has_topic_page = "topic_page" in parts.running
        self._lists_topics = lists_topics
        # The entries name topics.
        self._shows_entries = lists_topics or "event_log" in parts.running
        self._entries = known_entries(parts, partial(entries_of_host, disclosure=parts.disclosure))

    def routes(self) -> Sequence[Route]:
        """The routes of both pages."""
        return [
            Route("/search", "GET", Answers(self._answer_search)),
            Route("/host", "GET", Answers(self._answer_host)),
        ]

    async def _answer_search(self, request: Request) -> Answer:
        """What is found; the page of the topic itself, if the address is that of one."""
        wanted = clean(parameter(request, "q")).strip()
        viewer = await viewer_of(self._parts.callers, request)
        link: Flattenable = ""
        if self._has_topic_page and not fault_of(wanted):
            page = _topic_page(wanted)
            if await self._parts.topics.overview(wanted) is not None:
                return redirect(page)
            link = tags.p(tags.a("What the broker can say of this address", href=page))
        begins = beginning_of(wanted)
        topics = await self._find_topics(begins)
        written = begins.rpartition("://")[2].partition("/")[0]
        is_bare = written.count(":") > 1 and "[" not in written  # an IPv6 address
        name = host_of(f"http://[{written}]" if is_bare else f"http://{written}")
        hosts = dict.fromkeys(map(_host_of, topics))
        if name and self._shows_entries and await self._entries.get(name):
            hosts = {name: None} | hosts
        hint = ""
        if len(begins) < SHORTEST:
            hint = (
                "Write how the address of a topic or host begins: three characters at least, with "
                "or without https:// and www."
            )
        elif not topics and not hosts:
            hint = "The broker knows no host of that name, and no topic whose address begins so."
        host_items = [
            tags.li(tags.a(strangers_text(host, _SHOWN), href=f"/host?name={quote(host, safe='')}"))
            for host in hosts
            if host
        ]
        return await self._page(
            viewer,
            "Look up",
            hint,
            _section("Topics", [self._topic_item(each) for each in topics]),
            tags.p(f"These are the first {FOUND}.", class_="quiet") if len(topics) == FOUND else "",
            _section("Hosts", host_items),
            link,
            wanted=wanted,
        )

    async def _answer_host(self, request: Request) -> Answer:
        """What the event log has of a host, and the topics that it publishes."""
        name = canonical_host(clean(parameter(request, "name")).strip("[] ")[:255])[:255]
        viewer = await viewer_of(self._parts.callers, request)
        if not name:
            return redirect("/search")
        entries = await self._entries.get(name) if self._shows_entries else ()
        in_url = f"[{name}]" if ":" in name else name
        topics = [
            each
            for end in "/:"  # a path or a port follows the name
            for each in await self._find_topics(beginning_of(f"{in_url}{end}"))
            if _host_of(each) == name
        ]
        if entries or topics:
            lead = "What this host has published, and what the broker has sent to it."
        else:
            lead = "The broker knows nothing of this host."
        happened: Flattenable = ""
        now = self._parts.clock.wall_seconds()
        if entries:
            shown = timeline(entries, now)
            happened = [
                _not_called_notices(entries, now),
                tags.section(tags.h2("What happened"), shown),
            ]
        topics_here = _section("Topics", [self._topic_item(each) for each in topics])
        changes = sum((Counter(each.status.change_days) for each in topics), Counter[int]())
        # A sum of the first topics alone would be wrong.
        plot = changes_plot(changes, now) if len(topics) < FOUND else ""
        return await self._page(viewer, name, lead, happened, topics_here, plot)

    async def _page(
        self,
        viewer: Caller | None,
        heading: str,
        lead: Flattenable,
        *found: Flattenable,
        wanted: str = "",
    ) -> Answer:
        body = await self._parts.pages.render(
            heading, "look_up.html", viewer, heading=heading, said=lead, found=found, wanted=wanted
        )
        return Answer(body, headers=private(viewer))

    async def _find_topics(self, begins: str) -> Sequence[TopicOverview]:
        """The topics whose addresses begin so, if strangers may see lists of topics."""
        if not self._lists_topics or len(begins) < SHORTEST:
            return ()
        found = await self._parts.topics.beginning(begins, FOUND)
        return [each for each in found if "@" not in urlsplit(_url(each)).netloc]

    def _topic_item(self, topic: TopicOverview) -> Tag:
        """A topic as an item of a list: its title, linked, and its address."""
        url, title = _url(topic), title_of(topic)
        name = strangers_text(title or url, _SHOWN)
        where = tags.span(strangers_text(url, _SHOWN), class_="where") if title else ""
        return tags.li(tags.a(name, href=_topic_page(url)) if self._has_topic_page else name, where)


def _not_called_notices(entries: Sequence[LogEntry], now: float) -> list[Tag]:
    """That a host is not called now, at each port for which the newest of its entries says so."""
    ports: dict[float | None, LogEntry] = {}
    for entry in entries:
        if (entry.kind, entry.outcome) == ("notification", "delivered"):
            break  # an administrator had it called again, and strangers do not see that
        if entry.kind == "host":
            ports.setdefault(entry.numbers.get("port"), entry)
    return [
        tags.p(strangers_text(line_of(each).before, _SHOWN), class_="notice")
        for each in ports.values()
        if each.outcome == "unreachable" and each.numbers.get("retry_at", 0.0) > now
    ]


def _url(topic: TopicOverview) -> str:
    return topic.status.topic.url


def _host_of(topic: TopicOverview) -> str:
    return urlsplit(_url(topic)).hostname or ""


def beginning_of(wanted: str) -> str:
    """What somebody wrote, as the beginning of an address in normal form as far as that goes.

    :returns: an ASCII text; empty if no topic can have an address that begins so.
    """
    scheme, separator, rest = wanted.rpartition("://")
    if separator and scheme.lower() not in {"http", "https"}:
        return ""
    begins = f"{scheme}{separator}{rest}".lower()
    if "/" in rest or not rest.isascii():  # its host is whole
        begins = normal_form(wanted if separator else f"http://{wanted}")
        begins = begins if separator else begins.removeprefix("http://")
        begins = begins if "/" in rest else begins.removesuffix("/")
    return begins if begins.isascii() else ""


def _topic_page(url: str) -> str:
    return f"/topic?url={quote(url, safe='')}"


def _section(heading: str, items: Sequence[Tag]) -> Flattenable:
    return tags.section(tags.h2(heading), tags.ul(*items, class_="pings")) if items else ""
