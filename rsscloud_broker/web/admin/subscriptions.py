"""The pages ``/admin/subscriptions``, which finds subscriptions, and ``/admin/subscription``."""

from __future__ import annotations

from typing import Any, Final

from twisted.web.server import Request
from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.http.requests import number_parameter, parameter
from rsscloud_broker.interfaces import Caller
from rsscloud_broker.model import Subscription
from rsscloud_broker.model.administration import (
    STATES,
    SubscriptionDetails,
    SubscriptionFilter,
    SubscriptionPage,
)
from rsscloud_broker.web.admin.api_operation import Operation
from rsscloud_broker.web.admin.elements import (
    BREAKER_COLUMNS,
    MAX_REASON,
    MAX_URL,
    ON_PAGE,
    badges,
    blocked,
    breaker_row,
    further,
    path,
    raw,
    subscription_link,
    topic_link,
)
from rsscloud_broker.web.admin.operations import mark, redeliver, remove, unmark
from rsscloud_broker.web.admin.page import AdminPage, PageContent
from rsscloud_broker.web.admin.shapes import Shape, states_of
from rsscloud_broker.web.words import counted, facts, moment, strangers_text, table
from rsscloud_broker.wire.text import clean, sentence

#: The words of the states that subscriptions are found by.
_STATES: Final = " ".join(STATES)


class SubscriptionsPage(AdminPage):
    """The page ``/admin/subscriptions``."""

    path = place = "/admin/subscriptions"
    template = "admin/subscriptions.html"

    async def content(self, request: Request, caller: Caller) -> PageContent:
        """The subscriptions that a filter finds, a page at a time."""
        asked = {
            name: clean(parameter(request, name)) for name in ("topic", "host", "protocol", "state")
        }
        page, error = SubscriptionPage(()), ""
        try:
            wanted = SubscriptionFilter(**asked)
            after = number_parameter(request, "after")
            page = await self.verbs.find_subscriptions(wanted, after, ON_PAGE)
        except Unadministrable as problem:
            error = sentence(str(problem))
        now = self.now()
        nothing = "There is none."
        if page.after is not None:
            nothing = "There is none on this page, and there may be some on the next."
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
        strangers_text(one.callback.url, MAX_URL),
        one.callback.protocol,
        badges(states_of(one, now)),
        moment(one.lease.expires_at, now),
    )


class OneSubscriptionPage(AdminPage):
    """The page ``/admin/subscription``."""

    path = "/admin/subscription"
    place = "/admin/subscriptions"
    template = "admin/subscription.html"

    def path_after(self, operation: Operation, asked: Any, answer: Shape) -> str:
        """Lead back to the subscription, or to the list if it was removed."""
        if operation is remove:
            return path("/admin/subscriptions", done=operation.name)
        return path(self.path, id=asked.id, done=operation.name)

    async def content(self, request: Request, caller: Caller) -> PageContent:
        """A subscription: its facts, what can be done with it, and its last failures."""
        now = self.now()
        found = await self.verbs.subscription(number_parameter(request, "id"))
        one = found.subscription
        slots: dict[str, Flattenable] = {
            "facts": facts(_facts(found, now)),
            "form": self.form(
                request,
                caller,
                "What to do",
                redeliver,
                unmark if one.dropping else mark,
                remove,
                id=str(one.id),
            ),
            "breakers": table(
                "Hosts that are not called",
                BREAKER_COLUMNS,
                (breaker_row(each, caller.csrf, now) for each in found.breakers),
                "Its host is called.",
            ),
            "failures": _failures(found, now),
        }
        return PageContent(f"Subscription {one.id}", slots)


def _facts(found: SubscriptionDetails, now: float) -> list[tuple[str, Flattenable]]:
    """What is known of a subscription: names, and contents, of which empty ones are not shown."""
    one = found.subscription
    errors = counted(one.consecutive_errors, "notification")
    at_host = path("/admin/subscriptions", host=one.callback.host)
    options = [tags.li(tags.code(f"{name}={value}")) for name, value in one.options.items()]
    return [
        ("State", badges(states_of(one, now))),
        ("Topic", topic_link(one.moved_to or one.topic)),
        ("Asked for", strangers_text(one.topic, MAX_URL) if one.moved_to else ""),
        ("The topic has ended", strangers_text(one.ended, MAX_REASON) if one.ended else ""),
        ("Callback", strangers_text(one.callback.url, MAX_URL)),
        ("Host", tags.a(strangers_text(one.callback.host), href=at_host)),
        ("Protocol", one.callback.protocol),
        ("Procedure", strangers_text(one.callback.procedure) if one.callback.procedure else ""),
        ("Options", tags.ul(*options) if options else ""),
        ("Since", moment(one.lease.granted_at, now)),
        ("Lease ends", moment(one.lease.expires_at, now)),
        ("Failed in a row", errors if one.consecutive_errors else ""),
        ("Last failure", strangers_text(one.last_error, MAX_REASON) if one.last_error else ""),
        ("Waiting", _pending_sentence(found, now)),
        ("Blocked", blocked(found.block)),
    ]


def _pending_sentence(found: SubscriptionDetails, now: float) -> Flattenable:
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
    """The last failed attempts, each with its request and the answer."""
    if not found.failures:
        return tags.p("No failed notification is kept.", class_="quiet")
    return [
        tags.section(
            tags.h3("Attempt ", str(each.attempt), ", ", moment(each.at, now)),
            tags.p(strangers_text(each.reason, MAX_REASON)),
            *raw(each.exchange, number),
        )
        for number, each in enumerate(found.failures, 1)
    ]
