"""The pages ``/admin/subscriptions``, which finds subscriptions, and ``/admin/subscription``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twisted.web.server import Request
from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import Caller
from rsscloud_broker.model import Subscription
from rsscloud_broker.model.administration import (
    STATES,
    SubscriptionDetails,
    SubscriptionFilter,
    SubscriptionPage,
)
from rsscloud_broker.web.admin.elements import (
    BREAKER_COLUMNS,
    MAX_REASON,
    MAX_URL,
    ON_PAGE,
    badges,
    blocked,
    breaker_row,
    facts,
    further,
    path,
    raw,
    subscription_link,
    table,
    topic_link,
)
from rsscloud_broker.web.admin.page import Action, AdminPage, PageContent, number
from rsscloud_broker.web.admin.shapes import states_of
from rsscloud_broker.web.words import counted, moment, strangers
from rsscloud_broker.wire.text import clean, sentence

#: The words of the states that subscriptions are found by.
_STATES: Final = " ".join(STATES)


class SubscriptionsPage(AdminPage):
    """The page ``/admin/subscriptions``."""

    path = place = "/admin/subscriptions"
    template = "admin/subscriptions.html"
    done: Mapping[str, str] = {"remove": "The subscription has been removed."}

    async def content(self, request: Request, caller: Caller) -> PageContent:
        asked = {
            name: clean(parameter(request, name)) for name in ("topic", "host", "protocol", "state")
        }
        page, error = SubscriptionPage(()), ""
        try:
            wanted = SubscriptionFilter(**asked)
            page = await self.verbs.find_subscriptions(wanted, number(request, "after"), ON_PAGE)
        except Unadministrable as problem:
            error = sentence(str(problem))
        now = self.now()
        nothing = (
            "There is none on this page, and there may be some on the next."
            if page.after is not None
            else "There is none."
        )
        slots: dict[str, Flattenable] = {
            **asked,
            "states": _STATES,
            "chosen": asked["state"],
            "found": table(
                "Subscriptions",
                ("Id", "Topic", "Callback", "Protocol", "State", "Lease ends"),
                (_row(one, now) for one in page.subscriptions),
                "" if error else nothing,
            ),
            "further": further(self.path, **asked, after=page.after),
        }
        return PageContent("Subscriptions", slots, error)


def _row(one: Subscription, now: float) -> tuple[Flattenable, ...]:
    return (
        subscription_link(one.id, f"{one.id}"),
        topic_link(one.moved_to or one.topic),
        strangers(one.callback.url, MAX_URL),
        one.callback.protocol,
        badges(states_of(one, now)),
        moment(one.lease.expires_at, now),
    )


class OneSubscriptionPage(AdminPage):
    """The page ``/admin/subscription``."""

    path = "/admin/subscription"
    place = "/admin/subscriptions"
    template = "admin/subscription.html"
    done: Mapping[str, str] = {
        "redeliver": "The notification is due: the attempt follows within two seconds, unless "
        "something below holds it back.",
        "mark": "The subscription is marked: the next sweep, at the top of the hour, drops it.",
        "unmark": "The mark is taken away, and the failures are forgotten.",
    }

    def actions(self) -> Mapping[str, Action]:
        question = "The subscription is removed, and the subscriber is not told."
        return {
            "redeliver": Action(self._redeliver),
            "mark": Action(self._mark),
            "unmark": Action(self._unmark),
            "remove": Action(self._remove, question, ("id", "reason")),
        }

    async def _redeliver(self, account: str, request: Request) -> str:
        key, reason = _key_and_reason(request)
        await self.verbs.redeliver(account, key, reason)
        return path(self.path, id=key, done="redeliver")

    async def _mark(self, account: str, request: Request) -> str:
        key, reason = _key_and_reason(request)
        await self.verbs.mark(account, key, reason)
        return path(self.path, id=key, done="mark")

    async def _unmark(self, account: str, request: Request) -> str:
        key, reason = _key_and_reason(request)
        await self.verbs.unmark(account, key, reason)
        return path(self.path, id=key, done="unmark")

    async def _remove(self, account: str, request: Request) -> str:
        key, reason = _key_and_reason(request)
        await self.verbs.remove_subscription(account, key, reason)
        return path("/admin/subscriptions", done="remove")

    async def content(self, request: Request, caller: Caller) -> PageContent:
        now = self.now()
        found = await self.verbs.subscription(number(request, "id"))
        one = found.subscription
        slots: dict[str, Flattenable] = {
            "id": str(one.id),
            "facts": facts(_facts(found, now)),
            "reason": parameter(request, "reason"),
            "marked": "marked" if one.dropping else "",
            "unmarked": "" if one.dropping else "unmarked",
            "breakers": table(
                "Open circuit breakers",
                BREAKER_COLUMNS,
                (breaker_row(each, caller.csrf, now) for each in found.breakers),
                "Its host is called.",
            ),
            "failures": _failures(found, now),
        }
        return PageContent(f"Subscription {one.id}", slots)


def _key_and_reason(request: Request) -> tuple[int, str]:
    return number(request, "id"), parameter(request, "reason")


def _facts(found: SubscriptionDetails, now: float) -> list[tuple[str, Flattenable]]:
    one = found.subscription
    errors = counted(one.consecutive_errors, "notification")
    options = [tags.li(tags.code(f"{name}={value}")) for name, value in one.options.items()]
    return [
        ("State", badges(states_of(one, now))),
        ("Topic", topic_link(one.moved_to or one.topic)),
        ("Asked for", strangers(one.topic, MAX_URL) if one.moved_to else ""),
        ("The topic has ended", strangers(one.ended, MAX_REASON) if one.ended else ""),
        ("Callback", strangers(one.callback.url, MAX_URL)),
        ("Host", tags.a(strangers(one.callback.host), href=_of_host(one))),
        ("Protocol", one.callback.protocol),
        ("Procedure", strangers(one.callback.procedure) if one.callback.procedure else ""),
        ("Options", tags.ul(*options) if options else ""),
        ("Since", moment(one.lease.granted_at, now)),
        ("Lease ends", moment(one.lease.expires_at, now)),
        ("Failed in a row", errors if one.consecutive_errors else ""),
        ("Last failure", strangers(one.last_error, MAX_REASON) if one.last_error else ""),
        ("Waiting", _pending(found, now)),
        ("Blocked", blocked(found.block)),
    ]


def _of_host(one: Subscription) -> str:
    return path("/admin/subscriptions", host=one.callback.host)


def _pending(found: SubscriptionDetails, now: float) -> Flattenable:
    """The notification that waits, in a sentence; empty if none does."""
    one = found.pending
    if one is None:
        return ""
    attempts = f"One notification had {counted(one.attempts, 'attempt')}; "
    if one.under_way:
        return f"{attempts}a process works on it now."
    said: list[Flattenable] = [attempts, "the next is due ", moment(one.due_at, now), "."]
    if one.not_before is not None:
        said += [" The subscriber asked not to be called before ", moment(one.not_before, now), "."]
    if one.queued:
        said.append(f" {counted(one.queued, 'content')} wait behind it.")
    return said


def _failures(found: SubscriptionDetails, now: float) -> Tag | list[Tag]:
    if not found.failures:
        return tags.p("No failed notification is kept.", class_="quiet")
    return [
        tags.section(
            tags.h3("Attempt ", str(each.attempt), ", ", moment(each.at, now)),
            tags.p(strangers(each.reason, MAX_REASON)),
            *raw(each.exchange),
        )
        for each in found.failures
    ]
