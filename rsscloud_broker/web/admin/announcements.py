"""The page ``/admin/announcements``: texts that all pages show."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from twisted.web.server import Request
from twisted.web.template import Flattenable

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import Caller
from rsscloud_broker.model.administration import Announcement
from rsscloud_broker.web.admin.elements import ON_PAGE, button, further, path, table
from rsscloud_broker.web.admin.operations import seconds_of
from rsscloud_broker.web.admin.page import Action, AdminPage, PageContent, number
from rsscloud_broker.web.words import moment, strangers


class AnnouncementsPage(AdminPage):
    """The page ``/admin/announcements``."""

    path = place = "/admin/announcements"
    template = "admin/announcements.html"
    done: Mapping[str, str] = {
        "announce": "The announcement is stored.",
        "withdraw": "The announcement is withdrawn.",
    }

    def actions(self) -> Mapping[str, Action]:
        return {"announce": Action(self._announce), "withdraw": Action(self._withdraw)}

    async def _announce(self, account: str, request: Request) -> str:
        times = (_time(request, "since"), _time(request, "until"))
        await self.verbs.announce(account, parameter(request, "text"), *times)
        return path(self.path, done="announce")

    async def _withdraw(self, account: str, request: Request) -> str:
        await self.verbs.withdraw(account, number(request, "id"))
        return path(self.path, done="withdraw")

    async def content(self, request: Request, caller: Caller) -> PageContent:
        now = self.now()
        found = await self.verbs.announcements(number(request, "after"), ON_PAGE)
        slots: dict[str, Flattenable] = {
            "announced": table(
                "Announcements",
                ("Text", "From", "Until", "By", "Withdraw"),
                (_row(one, caller.csrf, now) for one in found),
                "There is none.",
            ),
            "further": further(self.path, after=found[-1].id if len(found) == ON_PAGE else None),
            **{name: parameter(request, name) for name in ("text", "since", "until")},
        }
        return PageContent("Announcements", slots)


def _row(one: Announcement, csrf: str, now: float) -> tuple[Flattenable, ...]:
    return (
        # No more characters of it are shown.
        strangers(one.text, 1000),
        moment(one.since, now),
        "it is withdrawn" if one.until is None else moment(one.until, now),
        one.account,
        button("Withdraw", "/admin/announcements", csrf, do="withdraw", id=str(one.id)),
    )


def _time(request: Request, name: str) -> float | None:
    """A time in UTC, as a field of the form has it; None if it is empty."""
    text = parameter(request, name).strip()
    if not text:
        return None
    try:
        return seconds_of(datetime.fromisoformat(text))
    except ValueError:
        raise Unadministrable(
            f"{text[:40]!r} is no time: write one in UTC, such as 2026-11-22T10:30"
        ) from None
