"""Pages of the console with lists: hosts that are not called, blocks, announcements, the log."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.web.server import Request
from twisted.web.template import Flattenable, tags

from rsscloud_broker.http.requests import number_parameter, parameter
from rsscloud_broker.interfaces import Caller
from rsscloud_broker.model.administration import BLOCK_KINDS, Announcement, Block
from rsscloud_broker.model.log_entry import KINDS, LogEntry
from rsscloud_broker.web import event_log
from rsscloud_broker.web.admin.elements import (
    BREAKER_COLUMNS,
    MAX_REASON,
    MAX_URL,
    ON_PAGE,
    breaker_row,
    further,
)
from rsscloud_broker.web.admin.operations import announce, block, close_breaker, unblock, withdraw
from rsscloud_broker.web.admin.page import AdminPage, PageContent
from rsscloud_broker.web.event_log import OUTCOMES, LogQuery, query_of, select
from rsscloud_broker.web.log_lines import line_of
from rsscloud_broker.web.words import moment, one_button, strangers_text, table
from rsscloud_broker.wire.text import clean


class HostsPage(AdminPage):
    """The page ``/admin/hosts``."""

    path = place = "/admin/hosts"
    template = "admin/hosts.html"

    async def content(self, request: Request, caller: Caller) -> PageContent:
        """The open breakers, a page at a time, and the form to close one."""
        now = self.now()
        found = await self.verbs.hosts(clean(parameter(request, "after")), ON_PAGE)
        slots: dict[str, Flattenable] = {
            "hosts": table(
                "Hosts that are not called",
                BREAKER_COLUMNS,
                (breaker_row(one, caller.csrf, now) for one in found),
                "Every host is called.",
            ),
            "further": further(self.path, after=found[-1].host if len(found) == ON_PAGE else None),
            "form": self.form(request, caller, "Call a host again", close_breaker),
        }
        return PageContent("Hosts", slots)


class BlocksPage(AdminPage):
    """The page ``/admin/blocks``."""

    path = place = "/admin/blocks"
    template = "admin/blocks.html"

    async def content(self, request: Request, caller: Caller) -> PageContent:
        """The blocks, perhaps of one kind, a page at a time, and the form to make one."""
        now = self.now()
        after, _, name = clean(parameter(request, "after")).partition(" ")
        kind = parameter(request, "kind")
        # In a POST, ``kind`` is a field of the form and no filter of the list.
        only = kind if kind in BLOCK_KINDS and request.method != b"POST" else ""
        found = await self.verbs.blocks(only, (after, name), ON_PAGE)
        last = f"{found[-1].kind} {found[-1].object}" if len(found) == ON_PAGE else None
        slots: dict[str, Flattenable] = {
            "blocks": table(
                "Blocks",
                ("Kind", "What", "Why", "By", "Since", "Lift"),
                (_block_row(one, caller.csrf, now) for one in found),
                "Nothing is blocked.",
            ),
            "further": further(self.path, kind=only, after=last),
            "form": self.form(request, caller, "Block something", block),
        }
        return PageContent("Blocks", slots)


def _block_row(one: Block, csrf: str, now: float) -> tuple[Flattenable, ...]:
    return (
        one.kind,
        strangers_text(one.object, MAX_URL),
        strangers_text(one.reason, MAX_REASON),
        one.account,
        moment(one.at, now),
        one_button(
            "Lift", "/admin/blocks", csrf, do=unblock.name, kind=one.kind, object=one.object
        ),
    )


class AnnouncementsPage(AdminPage):
    """The page ``/admin/announcements``."""

    path = place = "/admin/announcements"
    template = "admin/announcements.html"

    async def content(self, request: Request, caller: Caller) -> PageContent:
        """The announcements, a page at a time, and the form to make one."""
        now = self.now()
        found = await self.verbs.announcements(number_parameter(request, "after"), ON_PAGE)
        slots: dict[str, Flattenable] = {
            "announced": table(
                "Announcements",
                ("Text", "From", "Until", "By", "Withdraw"),
                (_announcement_row(one, caller.csrf, now) for one in found),
                "There is none.",
            ),
            "further": further(self.path, after=found[-1].id if len(found) == ON_PAGE else None),
            "form": self.form(request, caller, "Announce something", announce),
        }
        return PageContent("Announcements", slots)


def _announcement_row(one: Announcement, csrf: str, now: float) -> tuple[Flattenable, ...]:
    return (
        strangers_text(one.text, 1000),  # none is longer
        moment(one.since, now),
        "it is withdrawn" if one.until is None else moment(one.until, now),
        one.account,
        one_button("Withdraw", "/admin/announcements", csrf, do=withdraw.name, id=str(one.id)),
    )


class AdminLogPage(AdminPage):
    """The page ``/admin/log``."""

    path = place = "/admin/log"
    template = "admin/log.html"

    async def content(self, request: Request, caller: Caller) -> PageContent:
        """The entries that the query asks for, the newest first, a page at a time."""
        found: Sequence[LogEntry]
        asked = LogQuery.of(request, "before")
        wanted = asked.wanted
        log = self.console.event_log
        if log is None:
            found, fault = [], "The broker keeps no event log: [sinks.event_log] is disabled."
        else:
            found, fault = await log.entries(wanted, asked.number, event_log.ON_PAGE), asked.fault
        items = [line_of(entry).as_item() for entry in found]
        older = query_of(wanted, before=found[-1].id) if len(found) == event_log.ON_PAGE else ""
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
