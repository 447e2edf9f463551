"""The first page of the console: what needs attention, then what the broker does; and the page of
changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twisted.web.server import Request
from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.http.requests import number_parameter
from rsscloud_broker.interfaces import Caller
from rsscloud_broker.model.administration import BrokerState, Change, NodeState, SubscriptionFilter
from rsscloud_broker.web.admin.attention import BrokerFindings, attention
from rsscloud_broker.web.admin.elements import (
    MAX_REASON,
    MAX_URL,
    ON_PAGE,
    further,
    path,
    subscription_link,
    topic_link,
)
from rsscloud_broker.web.admin.page import AdminPage, PageContent
from rsscloud_broker.web.statistics import PERIODS, Statistics, read
from rsscloud_broker.web.words import counted, facts, moment, strangers_text, table
from rsscloud_broker.wire.node_states import claims_of, clock_of

#: How many breakers, announcements and changes the overview shows.
_SHOWN = 5

_FAILING: Final = SubscriptionFilter(state="failing")

#: The verbs whose object is an account, a subscription or a topic.
_OF_ACCOUNTS = frozenset({"invite", "reset", "disable", "enable", "promote", "demote", "set limit"})
_OF_SUBSCRIPTIONS = frozenset({"redeliver", "mark", "unmark"})
_OF_TOPICS = frozenset({"read", "revive", "end", "take down"})


#: The numbers that are plotted, by the heading.
_PLOTTED: Final = {
    "Pings": "pings",
    "Changes found": "fetches.changed",
    "Failed fetches": "fetches.failed",
}

#: Which entries of the event log say more about what failed.
_ENTRIES: Final = {
    "Failed fetches": "kind=fetch&outcome=failed",
    "Failed attempts to notify": "kind=notification&outcome=failed",
}


class OverviewPage(AdminPage):
    """The page ``/admin``."""

    path = place = "/admin"
    template = "admin/overview.html"

    async def content(self, request: Request, caller: Caller) -> PageContent:
        """What needs attention, and what the broker does; see ``attention``."""
        now, console = self.now(), self.console
        state = await self.verbs.state()
        hosts = await self.verbs.hosts("", _SHOWN)
        announcements = await self.verbs.announcements(0, _SHOWN)
        changes = await self.verbs.changes(None, _SHOWN)
        hour = await read(console.statistics, PERIODS["hour"], now)
        found = BrokerFindings(
            state,
            await console.health.ready() if console.health else (),
            hosts,
            console.accounts.refused_sign_ins(),
            sum(hour.totals("given_up").values()),
            await self.verbs.find_subscriptions(_FAILING, 0, ON_PAGE),
        )
        needs = attention(found, caller.csrf, now)
        return PageContent(
            "Overview",
            {
                "attention": needs,
                "nothing": "" if needs else "yes",
                "rates": rates(hour),
                "stats": "runs" if "stats" in console.running else "",
                "busy": _busy_facts(state),
                "nodes": _nodes_table(state, now),
                "announcements": [
                    tags.p(strangers_text(one.text, MAX_REASON), f" ({one.account})")
                    for one in announcements
                ],
                "changes": changes_table(changes, now),
            },
        )


class ChangesPage(AdminPage):
    """The page ``/admin/changes``: what administrators did."""

    path = place = "/admin/changes"
    template = "admin/changes.html"

    async def content(self, request: Request, caller: Caller) -> PageContent:
        """The changes of administrators, a page at a time."""
        found = await self.verbs.changes(number_parameter(request, "after") or None, ON_PAGE)
        after = found[-1].id if len(found) == ON_PAGE else None
        slots = {
            "changes": changes_table(found, self.now()),
            "further": further(self.path, after=after),
        }
        return PageContent("What administrators did", slots)


def rates(found: Statistics) -> Tag:
    """The plots, for the statistics of the last hour."""
    outcomes = found.by_outcome()
    nothing: Sequence[int] = [0] * len(found.begins)
    series = {heading: found.numbers.get(name, nothing) for heading, name in _PLOTTED.items()}
    delivered = outcomes.pop("delivered", nothing)
    failed = [sum(step) for step in zip(nothing, *outcomes.values(), strict=True)]
    series |= {"Notifications": delivered, "Failed attempts to notify": failed}
    return tags.div(*(_rate(heading, values) for heading, values in series.items()), class_="rates")


def _rate(heading: str, values: Sequence[int]) -> Tag:
    """A plot of a bar for each minute, with its numbers in words."""
    most = max(values, default=0)  # its bar is 20 high; each minute is 1 wide
    bars = [
        Tag("rect")(
            x=str(step),
            y=f"{20 - 20 * value / most:.2f}",
            width="0.8",
            height=f"{20 * value / most:.2f}",
        )
        for step, value in enumerate(values)
        if value
    ]
    view = {"viewBox": f"0 0 {len(values)} 20", "preserveAspectRatio": "none"}
    said = f"{sum(values):,} in {len(values)} minutes, at most {most:,} in one"
    entries = _ENTRIES.get(heading)
    shown = tags.a(heading, href=f"/admin/log?{entries}") if entries and most else heading
    return tags.figure(
        tags.figcaption(tags.strong(shown), tags.br(), said if most else "none"),
        Tag("svg")(*bars, **view, **{"aria-hidden": "true"}),
    )


def _busy_facts(state: BrokerState) -> Tag:
    """What is under way and what waits; what does not is left out."""
    numbers = [(name.capitalize(), n) for name, n in state.numbers.items()]
    numbers += [(f"Events for {name.replace('_', ' ')}", n) for name, n in state.queues.items()]
    numbers += [
        (f"Calls for the threads of {name}", n.waiting) for name, n in state.workers.items()
    ]
    shown = [(name, f"{number:,}") for name, number in numbers if number]
    nothing = tags.p("Nothing is under way, and nothing waits.", class_="quiet")
    return facts(shown) if shown else nothing


#: What people call the work of a process, where that is not the name of its kind.
_WORKS: Final = {
    "intents": "unconfirmed subscription",
    "fan-outs": "change",
    "checks": "fetch request",
}


def work_of(one: NodeState) -> str:
    """What a process works on, in words."""
    claims = {kind: count for kind, count in claims_of(one).items() if count}
    nouns = {kind: _WORKS.get(kind, kind.removesuffix("s")) for kind in claims}
    return ", ".join(counted(count, nouns[kind]) for kind, count in claims.items())


def _nodes_table(state: BrokerState, now: float) -> Tag:
    """The table of nodes, which pages call processes."""
    rows = (
        (
            [strangers_text(one.name), " (this one)" if one.here else ""],
            moment(one.started_at, now),
            one.version,
            _per_second(one.ping_rate),
            _per_second(one.notification_rate),
            clock_of(one),
            work_of(one),
            ", ".join(one.jobs),
        )
        for one in state.nodes
    )
    columns = (
        "Process",
        "Since",
        "Version",
        "Pings a second",
        "Notifications a second",
        "Clock",
        "Works on",
        "Does for all",
    )
    return table("Processes", columns, rows, "None has begun to work.")


def _per_second(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}"


def changes_table(changes: Sequence[Change], now: float) -> Tag:
    """A table of changes, the newest first."""
    return table(
        "Changes, the newest first",
        ("When", "Who", "What", "Object", "Why"),
        (
            (
                moment(one.at, now),
                one.account,
                one.verb,
                _object_link(one),
                strangers_text(one.reason, MAX_REASON) if one.reason else "",
            )
            for one in changes
        ),
        "Nobody has changed anything yet.",
    )


def _object_link(one: Change) -> Flattenable:
    """What a change concerned, with a link to it if it has a page."""
    if one.verb in _OF_SUBSCRIPTIONS and one.object.isdigit():
        return subscription_link(int(one.object), f"subscription {one.object}")
    if one.verb in _OF_TOPICS:
        return topic_link(one.object)
    if one.verb in _OF_ACCOUNTS:
        return tags.a(strangers_text(one.object), href=path("/admin/account", name=one.object))
    if one.verb == "move":
        old, _, new = one.object.partition(" ")
        return [strangers_text(old, MAX_URL), " to ", topic_link(new)]
    if one.verb in {"block", "unblock"}:
        kind, _, name = one.object.partition(" ")
        place = path("/admin/blocks", kind=kind)
        return tags.a(kind, " ", strangers_text(name, MAX_URL), href=place)
    return strangers_text(one.object, MAX_REASON)
