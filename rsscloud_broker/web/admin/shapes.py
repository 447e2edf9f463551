"""The values that the administration API answers, as JSON.

Each class is one JSON object; ``openapi`` describes it to clients.  Times are in UTC, such as
``2026-11-22T10:30:00Z``.  Bodies of requests and answers are texts: bytes that are not UTF-8 are
replaced.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from rsscloud_broker import model
from rsscloud_broker.model import administration as records
from rsscloud_broker.wire import node_states, topic_status


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object.  Its times are whole seconds."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if isinstance(value := getattr(self, name), datetime):
                structs.force_setattr(self, name, value.replace(microsecond=0))


_Kind = TypeVar("_Kind", bound=Shape)


class Block(Shape, frozen=True):
    """Something that an administrator has shut out."""

    kind: str
    object: str
    reason: str
    account: str
    at: datetime


class Breaker(Shape, frozen=True):
    """The open circuit breaker of a host, or of one of its ports."""

    host: str
    failures: int
    retry_at: datetime


class Subscription(Shape, frozen=True):
    """A subscription.  It may be in several states at once."""

    id: int
    topic: str
    moved_to: str | None
    callback: str
    host: str
    protocol: str
    procedure: str
    states: list[str]
    granted_at: datetime
    expires_at: datetime
    consecutive_errors: int
    last_error: str
    last_error_at: datetime | None
    wants_content: bool
    ended: str | None
    options: dict[str, str]


class Pending(Shape, frozen=True):
    """The notification that waits for a subscription."""

    attempts: int
    due_at: datetime
    under_way: bool
    failing_since: datetime | None
    not_before: datetime | None
    queued: int


class Exchange(Shape, frozen=True):
    """A request to a callback, and its answer: at most the first 4096 bytes of each body."""

    method: str
    url: str
    request_headers: dict[str, str]
    request_body: str
    status: int | None
    answer_headers: dict[str, str]
    answer_body: str


class Failure(Shape, frozen=True):
    """An attempt to notify a subscriber that failed."""

    at: datetime
    attempt: int
    reason: str
    exchange: Exchange


class SubscriptionDetails(Shape, frozen=True):
    """A subscription with its pending notification, its last failures and what holds it back."""

    subscription: Subscription
    pending: Pending | None
    failures: list[Failure]
    breakers: list[Breaker]
    block: Block | None


class Subscriptions(Shape, frozen=True):
    """A page of subscriptions.  There may be few on it, or none, though further pages follow."""

    items: list[Subscription]
    next: int | None


class TopicStatus(Shape, frozen=True):
    """A topic, with the history of its fetches and the plan of its polls."""

    url: str
    moved_from: list[str]
    ended: str | None
    subscribers: int
    asked_at: datetime | None
    result: str
    failures: int
    read_at: datetime | None
    changed_at: datetime | None
    pinged_at: datetime | None
    size: int | None
    sha256: str | None
    etag: str | None
    last_modified: str | None
    fresh_seconds: float | None
    next_poll_at: datetime | None
    poll_reason: str
    feed: dict[str, Any]


class Topic(Shape, frozen=True):
    """A topic, and the block that applies to it."""

    status: TopicStatus
    block: Block | None


class Reading(Shape, frozen=True):
    """What came of a fetch."""

    changed: bool
    problem: str
    status: TopicStatus | None


class Breakers(Shape, frozen=True):
    """A page of open circuit breakers."""

    items: list[Breaker]
    next: str | None


class Blocks(Shape, frozen=True):
    """A page of blocks."""

    items: list[Block]
    next: str | None


class Announcement(Shape, frozen=True):
    """A text that the pages show to everybody."""

    id: int
    text: str
    since: datetime
    until: datetime | None
    account: str


class Announcements(Shape, frozen=True):
    """A page of announcements."""

    items: list[Announcement]
    next: int | None


class Change(Shape, frozen=True):
    """Something that an administrator did."""

    id: int
    account: str
    verb: str
    object: str
    reason: str
    at: datetime


class Changes(Shape, frozen=True):
    """A page of changes, the newest first."""

    items: list[Change]
    next: int | None


class Workers(Shape, frozen=True):
    """A pool of threads: how many calls wait for a thread, and how many run."""

    waiting: int
    running: int


class Node(Shape, frozen=True):
    """A process of the broker that works on the database.

    ``here`` is true for the process that answers.  ``notifications`` and ``slices`` count the
    pending notifications and the parts of fan-outs that it works on; ``claims`` counts all work of
    each kind that it has claimed; ``jobs`` names what it does for all nodes now.  ``silent_for`` is
    the seconds since its last heartbeat.  ``pings`` and ``notified`` count the pings that it
    recorded, and its attempts to notify, since its start; rates are those of the last seconds, and
    null on SQLite.  ``clock_ahead`` says by how many seconds the clock of its computer is ahead of
    the database's, by which the broker goes.
    """

    name: str
    here: bool
    notifications: int
    slices: int
    version: str
    started_at: datetime
    silent_for: float | None
    claims: dict[str, int]
    jobs: list[str]
    pings: int
    notified: int
    ping_rate: float | None
    notification_rate: float | None
    clock_ahead: float


class State(Shape, frozen=True):
    """How busy the broker is; ``late_jobs`` says since when jobs are due that nobody does."""

    numbers: dict[str, int]
    queues: dict[str, int]
    workers: dict[str, Workers]
    nodes: list[Node]
    late_jobs: dict[str, datetime]


class Account(Shape, frozen=True):
    """An account.  ``disabled`` says why it is disabled, and is empty if it is not; ``max_bytes``
    is null for what the configuration says.
    """

    name: str
    is_admin: bool
    disabled: str
    created_at: datetime
    signed_in_at: datetime | None
    invited_until: datetime | None
    has_password: bool
    sessions: int
    tokens: int
    max_bytes: int | None


class Accounts(Shape, frozen=True):
    """A page of accounts."""

    items: list[Account]
    next: str | None


class Invitation(Shape, frozen=True):
    """A link by which the owner of an account signs in, once.  Nobody can find it out later."""

    name: str
    link: str
    expires_at: datetime


class Work(Shape, frozen=True):
    """Something that an account publishes: a ``feed``, a ``file`` or a ``message``."""

    url: str
    kind: str
    title: str
    at: datetime


class Works(Shape, frozen=True):
    """The newest that an account publishes, and what was taken down of it."""

    items: list[Work]
    taken_down: list[Change]


class Done(Shape, frozen=True):
    """The change is stored and works."""

    done: bool = True


class Problem(Shape, frozen=True, omit_defaults=True):
    """What was wrong, by RFC 9457: ``detail`` says it in a sentence, with the rule."""

    title: str
    status: int
    detail: str


# --- making them


def shape_of(kind: type[_Kind], record: object, **given: object) -> _Kind:
    """An object of a kind, from the attributes of a record that have the same names.

    Seconds since the epoch become times where the kind has a time.

    :param given: what the record does not have, or not in this form.
    """
    same = {n: getattr(record, n) for n in kind.__struct_fields__ if n not in given}
    return msgspec.convert(same | given, kind, strict=False, from_attributes=True)


def states_of(one: model.Subscription, now: float) -> list[str]:
    """The states that a subscription is in, of ``model.administration.STATES``."""
    expired = one.lease.expires_at <= now
    present = {
        "active": not expired and not one.dropping,
        "failing": one.consecutive_errors > 0,
        "dropping": one.dropping,
        "waiting": one.attempts is not None,
        "expired": expired,
    }
    return [state for state in records.STATES if present[state]]


def subscription(one: model.Subscription, now: float) -> Subscription:
    """The shape of a subscription."""
    return shape_of(
        Subscription,
        one,
        moved_to=one.moved_to or None,
        callback=one.callback.url,
        host=one.callback.host,
        protocol=one.callback.protocol,
        procedure=one.callback.procedure,
        states=states_of(one, now),
        granted_at=one.lease.granted_at,
        expires_at=one.lease.expires_at,
        ended=one.ended or None,
        options={name: str(value) for name, value in one.options.items()},
    )


def details(found: records.SubscriptionDetails, now: float) -> SubscriptionDetails:
    """The shape of the details of a subscription."""
    return shape_of(
        SubscriptionDetails,
        found,
        subscription=subscription(found.subscription, now),
        failures=[
            shape_of(Failure, one, exchange=_exchange(one.exchange)) for one in found.failures
        ],
    )


def _exchange(found: model.Exchange) -> Exchange:
    """The shape of an exchange, with its bodies as text."""
    return shape_of(
        Exchange,
        found,
        request_body=found.request_body.decode("utf-8", "replace"),
        answer_body=found.answer_body.decode("utf-8", "replace"),
    )


def status(one: model.TopicStatus) -> TopicStatus:
    """The shape of the status of a topic."""
    return msgspec.convert(topic_status.to_json(one), TopicStatus)


def topic(found: records.TopicDetails) -> Topic:
    """The shape of the details of a topic."""
    return shape_of(Topic, found, status=status(found.status))


def state(found: records.BrokerState) -> State:
    """The shape of the state of the broker."""
    nodes = [shape_of(Node, one, claims=node_states.claims_of(one)) for one in found.nodes]
    return shape_of(State, found, nodes=nodes)
