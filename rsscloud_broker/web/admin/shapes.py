"""The values that the administration API answers, as JSON.

Each class is one JSON object; ``openapi`` describes it to clients.  Times are in UTC, such as
``2026-11-22T10:30:00Z``.  Bodies of requests and answers are texts: bytes that are not UTF-8 are
replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from rsscloud_broker import model
from rsscloud_broker.model import administration as records
from rsscloud_broker.model.work import HostState
from rsscloud_broker.wire import node_states, topic_status


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object."""


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

    ``claims`` counts the work of each kind that it has claimed; ``jobs`` names what it does for all
    nodes now.  ``notified`` counts attempts since its start; rates are those of the last seconds,
    and null on SQLite.  ``clock_ahead`` says by how many seconds the clock of its computer is ahead
    of the database's, by which the broker goes.
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
    """How busy the broker is."""

    numbers: dict[str, int]
    queues: dict[str, int]
    workers: dict[str, Workers]
    nodes: list[Node]


class Done(Shape, frozen=True):
    """The change is stored and works."""

    done: bool = True


class Problem(Shape, frozen=True, omit_defaults=True):
    """What was wrong, by RFC 9457: ``detail`` says it in a sentence, with the rule."""

    title: str
    status: int
    detail: str


# --- making them


def moment(at: float) -> datetime:
    """A time, from seconds since the epoch."""
    return datetime.fromtimestamp(int(at), UTC)


def moment_or_none(at: float | None) -> datetime | None:
    """A time, or None."""
    return None if at is None else moment(at)


def states_of(one: model.Subscription, now: float) -> list[str]:
    """The states that a subscription is in, of ``admin_records.STATES``."""
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
    return Subscription(
        id=one.id,
        topic=one.topic,
        moved_to=one.moved_to or None,
        callback=one.callback.url,
        host=one.callback.host,
        protocol=one.callback.protocol,
        procedure=one.callback.procedure,
        states=states_of(one, now),
        granted_at=moment(one.lease.granted_at),
        expires_at=moment(one.lease.expires_at),
        consecutive_errors=one.consecutive_errors,
        last_error=one.last_error,
        last_error_at=moment_or_none(one.last_error_at),
        wants_content=one.wants_content,
        ended=one.ended or None,
        options={name: str(value) for name, value in one.options.items()},
    )


def details(found: records.SubscriptionDetails, now: float) -> SubscriptionDetails:
    """The shape of the details of a subscription."""
    return SubscriptionDetails(
        subscription=subscription(found.subscription, now),
        pending=None if found.pending is None else _pending(found.pending),
        failures=[_failure(one) for one in found.failures],
        breakers=[breaker(one) for one in found.breakers],
        block=None if found.block is None else block(found.block),
    )


def _pending(one: records.PendingNotification) -> Pending:
    return Pending(
        attempts=one.attempts,
        due_at=moment(one.due_at),
        under_way=one.under_way,
        failing_since=moment_or_none(one.failing_since),
        not_before=moment_or_none(one.not_before),
        queued=one.queued,
    )


def _failure(one: records.FailedAttempt) -> Failure:
    found = one.exchange
    exchange = Exchange(
        method=found.method,
        url=found.url,
        request_headers=dict(found.request_headers),
        request_body=found.request_body.decode("utf-8", "replace"),
        status=found.status,
        answer_headers=dict(found.answer_headers),
        answer_body=found.answer_body.decode("utf-8", "replace"),
    )
    return Failure(at=moment(one.at), attempt=one.attempt, reason=one.reason, exchange=exchange)


def breaker(one: HostState) -> Breaker:
    """The shape of an open breaker."""
    return Breaker(host=one.host, failures=one.failures, retry_at=moment(one.retry_at))


def block(one: records.Block) -> Block:
    """The shape of a block."""
    return Block(
        kind=one.kind,
        object=one.object,
        reason=one.reason,
        account=one.account,
        at=moment(one.at),
    )


def status(one: model.TopicStatus) -> TopicStatus:
    """The shape of the status of a topic."""
    return msgspec.convert(topic_status.to_json(one), TopicStatus)


def topic(found: records.TopicDetails) -> Topic:
    """The shape of the details of a topic."""
    return Topic(
        status=status(found.status), block=None if found.block is None else block(found.block)
    )


def announcement(one: records.Announcement) -> Announcement:
    """The shape of an announcement."""
    return Announcement(
        id=one.id,
        text=one.text,
        since=moment(one.since),
        until=moment_or_none(one.until),
        account=one.account,
    )


def change(one: records.Change) -> Change:
    """The shape of a change."""
    return Change(
        id=one.id,
        account=one.account,
        verb=one.verb,
        object=one.object,
        reason=one.reason,
        at=moment(one.at),
    )


def state(found: records.BrokerState) -> State:
    """The shape of the state of the broker."""
    return State(
        numbers=dict(found.numbers),
        queues=dict(found.queues),
        workers=_workers(found.workers),
        nodes=[
            Node(
                name=one.name,
                here=one.here,
                notifications=one.notifications,
                slices=one.slices,
                version=one.version,
                started_at=moment(one.started_at),
                silent_for=one.silent_for,
                claims=node_states.claims_of(one),
                jobs=list(one.jobs),
                pings=one.pings,
                notified=one.notified,
                ping_rate=one.ping_rate,
                notification_rate=one.notification_rate,
                clock_ahead=one.clock_ahead,
            )
            for one in found.nodes
        ],
    )


def _workers(found: Mapping[str, records.WorkerState]) -> dict[str, Workers]:
    return {name: Workers(waiting=one.waiting, running=one.running) for name, one in found.items()}
