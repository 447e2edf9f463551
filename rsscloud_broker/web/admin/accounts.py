"""The pages ``/admin/accounts`` with all accounts, and ``/admin/account`` with one of them."""

from __future__ import annotations

from typing import Any

from twisted.web.server import Request
from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import Caller
from rsscloud_broker.model.administration import AccountSummary, PublishedWork
from rsscloud_broker.web.admin import account_operations
from rsscloud_broker.web.admin.api_operation import Operation
from rsscloud_broker.web.admin.elements import MAX_REASON, MAX_URL, ON_PAGE, further, path
from rsscloud_broker.web.admin.page import AdminPage, PageContent
from rsscloud_broker.web.admin.shapes import Invitation, Shape
from rsscloud_broker.web.words import counted, dated, facts, moment, strangers_text, table
from rsscloud_broker.wire.text import clean, sentence


class AccountsPage(AdminPage):
    """The page ``/admin/accounts``."""

    path = place = "/admin/accounts"
    template = "admin/accounts.html"
    back = "/admin/account"

    async def content(self, request: Request, caller: Caller) -> PageContent:
        """The accounts, a page at a time, and the form to invite somebody."""
        found = await self.verbs.accounts.accounts(clean(parameter(request, "after")), ON_PAGE)
        now = self.now()
        slots: dict[str, Flattenable] = {
            "accounts": table(
                "Accounts",
                ("Name", "Role", "Signed in", "Made"),
                (_row(one, now) for one in found),
                "There is none.",
            ),
            "further": further(self.path, after=found[-1].name if len(found) == ON_PAGE else None),
            "form": self.form(request, caller, "Invite somebody", account_operations.invite),
        }
        return PageContent("Accounts", slots)


class OneAccountPage(AdminPage):
    """The page ``/admin/account``."""

    path, place = "/admin/account", "/admin/accounts"
    template = "admin/account.html"

    def path_after(self, operation: Operation, asked: Any, answer: Shape) -> str:
        """Lead to the page of the account that the operation was about."""
        return path(self.path, name=asked.name, done=operation.name)

    def notice_after(self, answer: Shape) -> Flattenable:
        """The link of an invitation; empty for all other answers."""
        if not isinstance(answer, Invitation):
            return ""
        return [
            f"Send this link to {answer.name}. It works once, until ",
            dated(answer.expires_at.timestamp()),
            ", and nobody can show it to you again: ",
            tags.code(answer.link),
        ]

    async def content(self, request: Request, caller: Caller) -> PageContent:
        """An account, with its works and forms; the form to invite somebody if there is none."""
        name = parameter(request, "name").strip()
        slots: dict[str, Flattenable] = dict.fromkeys(("facts", "published", "taken_down"), "")
        try:
            found = await self.verbs.accounts.account(name)
        except Unadministrable as problem:
            form = self.form(request, caller, "Invite somebody", account_operations.invite)
            slots["forms"] = form
            return PageContent("Accounts", slots, sentence(str(problem)) if name else "", 404)
        removed = await self.verbs.taken_down(found.name, found.created_at)
        works = await self.verbs.published(found.name, ON_PAGE)
        offered = [
            account_operations.enable if found.disabled else account_operations.disable,
            account_operations.demote if found.is_admin else account_operations.promote,
            account_operations.set_limit,
            account_operations.reset,
            account_operations.remove_account,
        ]
        now = self.now()
        slots |= {
            "facts": facts(_facts(found, now)),
            "published": table(
                "What it publishes",
                ("What", "Title", "When", "Take down"),
                (_work(one, now) for one in works),
                "Nothing.",
            ),
            "taken_down": table(
                "What was taken down",
                ("Title", "Address", "When", "By", "Why"),
                (
                    (
                        strangers_text(one.title),
                        strangers_text(one.object, MAX_URL),
                        moment(one.at, now),
                        one.account,
                        strangers_text(one.reason, MAX_REASON),
                    )
                    for one in removed
                ),
                "",
            )
            if removed
            else "",
            "forms": [
                self.form(request, caller, each.form.button, each, folded=True, name=found.name)
                for each in offered
                if each.form
            ],
        }
        return PageContent(f"Account {found.name}", slots)


def _row(one: AccountSummary, now: float) -> tuple[Flattenable, ...]:
    return (
        tags.a(one.name, href=path("/admin/account", name=one.name)),
        [_role(one), *([" ", tags.span("disabled", class_="badge bad")] if one.disabled else [])],
        _signed_in(one, now),
        moment(one.created_at, now),
    )


def _role(one: AccountSummary) -> str:
    return "Administrator" if one.is_admin else "Member"


def _signed_in(one: AccountSummary, now: float) -> Flattenable:
    """When the owner signed in last, or until when the invitation is valid."""
    if one.signed_in_at is not None:
        return moment(one.signed_in_at, now)
    if one.invited_until is not None and one.invited_until > now:
        return ["invited, until ", dated(one.invited_until)]
    return "never"


def _facts(one: AccountSummary, now: float) -> list[tuple[str, Flattenable]]:
    """What is known of an account: names, and contents, of which empty ones are not shown."""
    return [
        ("Disabled", strangers_text(one.disabled, MAX_REASON) if one.disabled else ""),
        ("Role", _role(one)),
        ("Made", moment(one.created_at, now)),
        ("Signed in", _signed_in(one, now)),
        ("Password", "" if one.has_password else "none is kept here"),
        ("Sessions", f"{one.sessions:,}"),
        ("API tokens", f"{one.tokens:,}"),
        (
            "May store",
            counted(one.max_bytes / 1e6, "megabyte") if one.max_bytes else "as configured",
        ),
    ]


def _work(one: PublishedWork, now: float) -> tuple[Flattenable, ...]:
    """A row of the table of what an account publishes."""
    take_down: Tag = tags.a("Take down", href=f"{path('/admin/topic', url=one.url)}#take-down")
    title = strangers_text(one.title or one.url, MAX_URL)
    return one.kind, tags.a(title, href=one.url), moment(one.at, now), take_down
