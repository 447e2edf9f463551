"""The pages ``/admin/hosts`` with open circuit breakers, and ``/admin/blocks``."""

from __future__ import annotations

from collections.abc import Mapping

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
    path,
    table,
)
from rsscloud_broker.web.admin.page import Action, AdminPage, PageContent
from rsscloud_broker.web.words import moment, strangers
from rsscloud_broker.wire.text import clean


class HostsPage(AdminPage):
    """The page ``/admin/hosts``."""

    path = place = "/admin/hosts"
    template = "admin/hosts.html"
    done: Mapping[str, str] = {
        "close": "The breakers of the host are closed: what waits for it is due now."
    }

    def actions(self) -> Mapping[str, Action]:
        return {"close": Action(self._close)}

    async def _close(self, account: str, request: Request) -> str:
        host, reason = parameter(request, "host"), parameter(request, "reason")
        await self.verbs.close_breaker(account, host, reason)
        return path(self.path, done="close")

    async def content(self, request: Request, caller: Caller) -> PageContent:
        now = self.now()
        found = await self.verbs.hosts(clean(parameter(request, "after")), ON_PAGE)
        slots: dict[str, Flattenable] = {
            "hosts": table(
                "Open circuit breakers",
                BREAKER_COLUMNS,
                (breaker_row(one, caller.csrf, now) for one in found),
                "Every host is called.",
            ),
            "further": further(self.path, after=found[-1].host if len(found) == ON_PAGE else None),
            "host": parameter(request, "host"),
            "reason": parameter(request, "reason"),
        }
        return PageContent("Hosts", slots)


class BlocksPage(AdminPage):
    """The page ``/admin/blocks``."""

    path = place = "/admin/blocks"
    template = "admin/blocks.html"
    done: Mapping[str, str] = {"block": "The block works.", "unblock": "The block is lifted."}

    def actions(self) -> Mapping[str, Action]:
        return {"block": Action(self._block), "unblock": Action(self._unblock)}

    async def _block(self, account: str, request: Request) -> str:
        kind, what, reason = (parameter(request, name) for name in ("kind", "what", "reason"))
        await self.verbs.block(account, kind, what, reason)
        return path(self.path, done="block")

    async def _unblock(self, account: str, request: Request) -> str:
        kind, what = parameter(request, "kind"), parameter(request, "what")
        await self.verbs.unblock(account, kind, what)
        return path(self.path, done="unblock")

    async def content(self, request: Request, caller: Caller) -> PageContent:
        now = self.now()
        after, _, name = clean(parameter(request, "after")).partition(" ")
        kind = parameter(request, "kind")
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
            "kinds": " ".join(BLOCK_KINDS),
            "kind": kind,
            "what": parameter(request, "what"),
            "reason": parameter(request, "reason"),
        }
        return PageContent("Blocks", slots)


def _row(one: Block, csrf: str, now: float) -> tuple[Flattenable, ...]:
    return (
        one.kind,
        strangers(one.object, MAX_URL),
        strangers(one.reason, MAX_REASON),
        one.account,
        moment(one.at, now),
        button("Lift", "/admin/blocks", csrf, do="unblock", kind=one.kind, what=one.object),
    )
