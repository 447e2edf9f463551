"""What needs the attention of an administrator, each with what to do.  The overview begins so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from attrs import frozen
from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.interfaces import PartState, RefusedSignIn
from rsscloud_broker.model.administration import BrokerState, NodeState, SubscriptionPage
from rsscloud_broker.model.work import HostState
from rsscloud_broker.web.admin.elements import MAX_REASON, breaker_row, subscription_link
from rsscloud_broker.web.words import ago, counted, moment, strangers_text
from rsscloud_broker.wire.node_states import CLOCK_TOLERANCE, clock_sentence

#: How many refused attempts to sign in within an hour are no accident.
MANY_REFUSED: Final = 10

#: The fewest notifications given up in an hour that are worth a look.
MANY_GIVEN_UP: Final = 5


@frozen
class BrokerFindings:
    """What is known of the broker now.

    :ivar parts: the states of its parts.
    :ivar hosts: some of the hosts that are not called, since they did not answer.
    :ivar refused: the attempts to sign in that were refused in the last hour.
    :ivar given_up: how many notifications were given up in the last hour.
    :ivar failing: some of the subscriptions whose last notification was given up.
    """

    state: BrokerState
    parts: Sequence[PartState]
    hosts: Sequence[HostState]
    refused: Sequence[RefusedSignIn]
    given_up: int
    failing: SubscriptionPage


def attention(found: BrokerFindings, csrf: str, now: float) -> list[Tag]:
    """What needs attention, the most urgent first, as ``li`` elements."""
    return [tags.li(*each) for each in _needs(found, csrf, now)]


def _needs(found: BrokerFindings, csrf: str, now: float) -> Iterator[list[Flattenable]]:
    """The content of each item: what is wrong, and what to do."""
    for part in found.parts:
        if not part.works:
            yield [tags.strong(strangers_text(part.text, 500))]
    for host in found.hosts:
        name, failures, retry, close = breaker_row(host, csrf, now)
        yield [
            tags.strong(name, " does not answer: "),
            failures,
            " calls in a row failed. The next call follows ",
            retry,
            ". If you know that it answers again, have it called: ",
            close,
        ]
    yield from _subscription_needs(found, now)
    for name, due_at in sorted(found.state.late_jobs.items()):
        yield [
            tags.strong(f"The job \u201c{name}\u201d stands still: "),
            f"it was due {ago(now - due_at)}. The log of the process that has claimed it says why; "
            "if nothing does, restart that process.",
        ]
    yield from _node_needs(found.state.nodes)
    if len(found.refused) >= MANY_REFUSED:
        name, tries = Counter(each.name for each in found.refused).most_common(1)[0]
        source, _ = Counter(each.source for each in found.refused).most_common(1)[0]
        yield [
            tags.strong(counted(len(found.refused), "attempt"), " to sign in were refused "),
            "in the last hour, the last one ",
            moment(found.refused[-1].at, now),
            f"; {tries:,} of them for ",
            tags.strong(name) if name else "names that nobody can have",
            f", most from {source}. Attempts are limited, so nobody guesses a good password. If "
            "this goes on, keep the address out with your firewall, and look that every "
            "administrator has a long password.",
        ]


def _subscription_needs(found: BrokerFindings, now: float) -> Iterator[list[Flattenable]]:
    if found.given_up >= MANY_GIVEN_UP:
        yield [
            tags.strong(counted(found.given_up, "notification"), " were given up "),
            "in the last hour.",
        ]
    failing = found.failing.subscriptions
    if not failing:
        return
    last = max(failing, key=lambda one: one.last_error_at or 0.0)
    number = counted(len(failing), "subscription")
    more = "More than " if found.failing.after is not None else ""
    yield [
        tags.strong(more, number, " fails: " if len(failing) == 1 else " fail: "),
        "every attempt at the last notification failed. The latest is ",
        subscription_link(last.id, last.callback.host),
        ": ",
        strangers_text(last.last_error, MAX_REASON),
        ", ",
        moment(last.last_error_at or 0.0, now),
        ". See ",
        tags.a("the subscriptions that fail", href="/admin/subscriptions?state=failing"),
        "; each shows what its subscriber answered.",
    ]


def _node_needs(nodes: Sequence[NodeState]) -> Iterator[list[Flattenable]]:
    """What needs attention of the nodes: versions, silence, clocks."""
    versions = sorted({one.version for one in nodes})
    if len(versions) > 1:
        yield [
            tags.strong("The processes run different versions: "),
            f"{', '.join(versions)}. Restart those below that run an older one.",
        ]
    for one in nodes:
        if one.silent_for is not None and one.silent_for > 60:
            yield [
                tags.strong("The process ", strangers_text(one.name), " is silent: "),
                f"it wrote its last heartbeat {ago(one.silent_for)}. Look whether it hangs.",
            ]
        if abs(one.clock_ahead) > CLOCK_TOLERANCE:
            yield [
                tags.strong("The clock of ", strangers_text(one.name), " is wrong: "),
                f"it is {clock_sentence(one.clock_ahead)}. Set it by NTP.",
            ]
