"""The page ``/admin/log``: the event log with all that strangers do not see."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.web.server import Request
from twisted.web.template import Flattenable, tags

from rsscloud_broker.interfaces import Caller
from rsscloud_broker.model.log_entry import KINDS, LogEntry
from rsscloud_broker.web.admin.page import AdminPage, PageContent
from rsscloud_broker.web.event_log import ON_PAGE, OUTCOMES, LogQuery, query_of, select
from rsscloud_broker.web.log_lines import line_of


class AdminLogPage(AdminPage):
    """The page ``/admin/log``."""

    path = place = "/admin/log"
    template = "admin/log.html"

    async def content(self, request: Request, caller: Caller) -> PageContent:
        found: Sequence[LogEntry]
        asked = LogQuery.of(request, "before")
        wanted = asked.wanted
        event_log = self.console.event_log
        if event_log is None:
            found, fault = [], "The broker keeps no event log: [sinks.event_log] is disabled."
        else:
            found, fault = await event_log.entries(wanted, asked.number, ON_PAGE), asked.fault
        items = [line_of(entry).as_item() for entry in found]
        older = query_of(wanted, before=found[-1].id) if len(found) == ON_PAGE else ""
        entries: Flattenable = tags.ol(*items, class_="log")
        slots: dict[str, Flattenable] = {
            "topic": wanted.topic,
            "host": wanted.host,
            "kinds": select("kind", tuple(KINDS), wanted.kind, "all"),
            "outcomes": select("outcome", OUTCOMES, wanted.outcome, "any"),
            "entries": entries if items else tags.p("There is nothing here yet."),
            "older": tags.p(tags.a("Older entries", href=f"{self.path}{older}", rel="next"))
            if older
            else "",
        }
        return PageContent("Event log", slots, fault)
