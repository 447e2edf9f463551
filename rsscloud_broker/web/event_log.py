"""The front door for the event log: ``/log``, and its event stream ``/log/events``.

::

    GET /log?topic=URL&host=NAME&kind=KIND&outcome=OUTCOME&before=ID
    GET /log/events?topic=URL&host=NAME&kind=KIND&outcome=OUTCOME&after=ID

All parameters are optional.  The page shows the newest entries, and links to older ones.  Without
a script it is a plain page; with one, new lines appear as they come.  ``event_stream`` describes
the stream.  ``/viewLog`` is the path of the same page in rsscloud-server.

Anybody may read both, so they show no more than ``disclosure`` allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from attrs import frozen
from twisted.web.resource import IResource
from twisted.web.server import Request
from twisted.web.template import Flattenable, Tag, tags
from twisted.web.util import Redirect
from zope.interface import implementer

from rsscloud_broker.config import NoOptions
from rsscloud_broker.http.answering import Answer, Answers, plain, viewer_of
from rsscloud_broker.interfaces import (
    Caller,
    FrontDoorParts,
    IFrontDoor,
    Route,
    RoutesOnly,
)
from rsscloud_broker.model.hosts import canonical_host
from rsscloud_broker.model.log_entry import KINDS, LogEntry, LogFilter
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.web.broadcast import ADDRESS_SHARE, Broadcast, address_of, last_event_id
from rsscloud_broker.web.event_stream import LogSource
from rsscloud_broker.web.log_lines import line_of, options
from rsscloud_broker.web.streams import Places
from rsscloud_broker.wire.text import clean, decode, parse_number

#: How many entries are on a page.
ON_PAGE: Final = 100

#: The parameters of a filter.
_FILTER: Final = ("topic", "host", "kind", "outcome")

#: The outcomes of all kinds of entries.
OUTCOMES: Final = tuple(dict.fromkeys(word for words in KINDS.values() for word in words))


@implementer(IFrontDoor)
class EventLogDoor(RoutesOnly):
    """The front door for ``/log``.  It has no routes if the broker keeps no event log."""

    name = "event_log"

    def __init__(self, options: NoOptions, parts: FrontDoorParts) -> None:
        self._resources: dict[str, IResource] = {}
        event_log = parts.event_log
        if event_log is None:
            return
        source = LogSource(
            event_log, parts.disclosure.entry, lambda entry: line_of(entry).as_json()
        )
        broadcast = Broadcast(
            source,
            parts.clock,
            Places(parts.max_connections, parts.max_connections_per_address),
            "the event log",
            "As many people watch the log as may. Please reload it later.",
        )
        self._event_log, self._broadcast, self._parts = event_log, broadcast, parts
        self._resources = {
            "/log": Answers(self._show),
            "/log/events": Answers(self._follow),
            "/viewLog": Redirect(b"/log"),
        }

    def routes(self) -> Sequence[Route]:
        return [Route(path, "GET", resource) for path, resource in self._resources.items()]

    async def _show(self, request: Request) -> Answer:
        viewer = await viewer_of(self._parts.callers, request)
        page = await self._page(LogQuery.of(request, "before"), viewer)
        return Answer(page, headers={"cache-control": "no-store"})

    async def _follow(self, request: Request) -> Answer | None:
        asked = LogQuery.of(request, "after")
        if asked.fault:
            return plain(400, asked.fault)
        after = last_event_id(request)
        return self._broadcast.answer(
            request,
            asked.wanted,
            asked.number if after is None else after,
            {address_of(request): ADDRESS_SHARE},
        )

    async def _page(self, asked: LogQuery, viewer: Caller | None) -> bytes:
        """The page with the entries that a query asks for, as far as strangers may see them."""
        wanted, before = asked.wanted, asked.number
        newest = await self._newest_id() if before is None else 0
        # The stream goes on after the newest entry, so the page has no entry after that.
        bound = newest + 1 if newest else before
        permitted = self._parts.disclosure.permitted(wanted)
        found = await self._event_log.entries(permitted, bound, ON_PAGE + 1)
        shown = found[:ON_PAGE]
        # A filter must not find what is not shown.
        public = [one for one in map(self._parts.disclosure.entry, shown) if wanted.passes(one)]
        older = query_of(wanted, before=shown[-1].id) if len(found) > ON_PAGE else ""
        return await self._parts.pages.render(
            "Event log",
            "log.html",
            viewer,
            here="/log",
            message=asked.fault,
            topic=wanted.topic,
            host=wanted.host,
            kinds=select("kind", tuple(KINDS), wanted.kind, "all"),
            outcomes=select("outcome", OUTCOMES, wanted.outcome, "any"),
            entries=self._entries(wanted, public, before, newest),
            live="live" if before is None else "",
            older=tags.p(tags.a("Older entries", href=f"/log{older}", rel="next")) if older else "",
            newer=tags.p(tags.a("Newest entries", href=f"/log{query_of(wanted)}"))
            if before is not None
            else "",
        )

    async def _newest_id(self) -> int:
        """The id of the newest entry of the whole log; 0 if there is none.

        A filter may not have let an entry pass for days, and those after it are then too many for
        the stream to keep.
        """
        entries = await self._event_log.entries(LogFilter(), None, 1)
        return entries[0].id if entries else 0

    def _entries(
        self, wanted: LogFilter, entries: Sequence[LogEntry], before: int | None, newest: int
    ) -> Flattenable:
        """The list of entries.  On the first page the script adds new ones to it."""
        more = {}
        if before is None:
            # If the log is empty, the stream begins with the next entry.
            after = {"after": newest} if newest else {}
            more["data-stream"] = f"/log/events{query_of(wanted, **after)}"
        items = [line_of(entry).as_item() for entry in entries]
        nothing = "" if items else tags.p("There is nothing here yet.", id="nothing")
        return [nothing, tags.ol(items, id="entries", class_="log", **more)]


@frozen
class LogQuery:
    """What a request for the log asks for.

    :ivar number: the parameter ``before`` or ``after``; None if there is none.
    :ivar fault: what is wrong with the parameters, in sentences; empty if nothing is.
    """

    wanted: LogFilter
    number: int | None
    fault: str

    @classmethod
    def of(cls, request: Request, number: str) -> LogQuery:
        """Read the parameters of a request.  What cannot be used is left out.

        :param number: the name of the parameter with an id.
        """
        values = {
            name: clean(decode(found[0]))
            for name in (*_FILTER, number)
            if (found := (request.args or {}).get(name.encode("ascii")))
        }
        faults = []
        key = values.pop(number, "")
        if key and parse_number(key) is None:
            rule = "is the number of an entry, of 18 digits at most"
            faults.append(f"The parameter {number} {rule}.")
        for name, words in (("kind", tuple(KINDS)), ("outcome", OUTCOMES)):
            if values.get(name, "") not in ("", *words):
                faults.append(f"The {name} is one of {', '.join(words)}.")
                del values[name]
        wanted = LogFilter(
            topic=normal_form(values.get("topic", "")),
            # An IPv6 address may be in brackets, as in a URL.
            host=canonical_host(values.get("host", "").strip("[]")[:255]),
            kind=values.get("kind", ""),
            outcome=values.get("outcome", ""),
        )
        return cls(wanted, parse_number(key), " ".join(faults))


def query_of(wanted: LogFilter, **more: object) -> str:
    """The query of a URL with this filter; empty or with ``?`` before it."""
    fields: dict[str, object] = {name: getattr(wanted, name) for name in _FILTER} | more
    fields = {name: value for name, value in fields.items() if value != ""}
    return f"?{urlencode(fields)}" if fields else ""


def select(name: str, words: Sequence[str], chosen: str, everything: str) -> Tag:
    """A ``select`` field: one of some words, or all of them, which ``everything`` names."""
    return tags.select(tags.option(everything, value=""), *options(words, chosen), name=name)
