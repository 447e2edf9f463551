"""The pages ``/admin/hosts`` with open circuit breakers, and ``/admin/blocks``."""

from __future__ import annotations

from twisted.web.server import Request
from twisted.web.template import Flattenable

from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import Caller
from rsscloud_broker.model.administration import BLOCK_KINDS, Block
from rsscloud_broker.web.admin.elements import (
    BREAKER_COLUMNS,
    MAX_REASON,
    MAX_URL,
    ON_PAGE,
    breaker_row,
    button,
    further,
    table,
)
from rsscloud_broker.web.admin.operations import block, close_breaker, unblock
from rsscloud_broker.web.admin.page import AdminPage, PageContent
from rsscloud_broker.web.words import moment, strangers
from rsscloud_broker.wire.text import clean


class HostsPage(AdminPage):
    """The page ``/admin/hosts``."""

    path = place = "/admin/hosts"
    template = "admin/hosts.html"

    async def content(self, request: Request, caller: Caller) -> PageContent:
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
                (_row(one, caller.csrf, now) for one in found),
                "Nothing is blocked.",
            ),
            "further": further(self.path, kind=only, after=last),
            "form": self.form(request, caller, "Block something", block),
        }
        return PageContent("Blocks", slots)


def _row(one: Block, csrf: str, now: float) -> tuple[Flattenable, ...]:
    return (
        one.kind,
        strangers(one.object, MAX_URL),
        strangers(one.reason, MAX_REASON),
        one.account,
        moment(one.at, now),
        button("Lift", "/admin/blocks", csrf, do=unblock.name, kind=one.kind, object=one.object),
    )
