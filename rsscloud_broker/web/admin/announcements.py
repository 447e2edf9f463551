"""The page ``/admin/announcements``: texts that all pages show."""

from __future__ import annotations

from twisted.web.server import Request
from twisted.web.template import Flattenable

from rsscloud_broker.http.requests import number_parameter
from rsscloud_broker.interfaces import Caller
from rsscloud_broker.model.administration import Announcement
from rsscloud_broker.web.admin.elements import ON_PAGE, button, further, table
from rsscloud_broker.web.admin.operations import announce, withdraw
from rsscloud_broker.web.admin.page import AdminPage, PageContent
from rsscloud_broker.web.words import moment, strangers


class AnnouncementsPage(AdminPage):
    """The page ``/admin/announcements``."""

    path = place = "/admin/announcements"
    template = "admin/announcements.html"

    async def content(self, request: Request, caller: Caller) -> PageContent:
        now = self.now()
        found = await self.verbs.announcements(number_parameter(request, "after"), ON_PAGE)
        slots: dict[str, Flattenable] = {
            "announced": table(
                "Announcements",
                ("Text", "From", "Until", "By", "Withdraw"),
                (_row(one, caller.csrf, now) for one in found),
                "There is none.",
            ),
            "further": further(self.path, after=found[-1].id if len(found) == ON_PAGE else None),
            "form": self.form(request, caller, "Announce something", announce),
        }
        return PageContent("Announcements", slots)


def _row(one: Announcement, csrf: str, now: float) -> tuple[Flattenable, ...]:
    return (
        strangers(one.text, 1000),  # none is longer
        moment(one.since, now),
        "it is withdrawn" if one.until is None else moment(one.until, now),
        one.account,
        button("Withdraw", "/admin/announcements", csrf, do=withdraw.name, id=str(one.id)),
    )
