"""Turns events into entries of the event log, for ``event_log``.

What private followers cause gets no entry, since everybody may read the log, now or later.

Nothing here waits or stores anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from attrs import evolve

from rsscloud_broker.events import (
    Administered,
    Event,
    FanOutBegun,
    FanOutEnded,
    HostReachable,
    HostUnreachable,
    NotificationDelivered,
    NotificationFailed,
    PingAccepted,
    PingRefused,
    PingRelayed,
    RelayFailed,
    RelaySkipped,
    SubscriptionDenied,
    SubscriptionRemoved,
    SubscriptionRequested,
    SubscriptionsSwept,
    SubscriptionStored,
    TopicEnded,
    TopicFetched,
    TopicFetchFailed,
    TopicMoved,
    TopicRevived,
)
from rsscloud_broker.model import Callback, Subscription, host_of
from rsscloud_broker.model.administration import VERBS
from rsscloud_broker.model.log_entry import LogEntry
from rsscloud_broker.model.work import MARKED
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire.text import clean

#: The most characters of a text; longer ones are cut, as strangers write parts of them.
MAX_URL, MAX_REASON = 2048, 500

#: The reason of a subscription's entry if an administrator removed it.  It names nobody, since the
#: entry of what the administrator did has the account.
REMOVED: Final = "an administrator removed it"

#: The reason of a notification's entry if the subscriber wants no more of them.
WANTS_NO_MORE: Final = "the subscriber wants no more notifications"


def entries_of(event: Event, now: float) -> list[LogEntry]:
    """The entries for an event; none if the event log does not handle its class.

    :param now: the time, for events that say none.
    """
    if type(event) is PingAccepted:  # most events are such
        return [_clipped(_ping_accepted(event))]
    make = _MAKERS.get(type(event))
    if make is None or _is_private(event):
        return []
    return [_clipped(entry) for entry in make(event, now)]


def _is_private(event: Event) -> bool:
    """Whether only private followers may know of an event."""
    match event:
        case NotificationDelivered() | NotificationFailed() | SubscriptionStored():
            return event.subscription.callback.is_private
        case SubscriptionRequested() | SubscriptionDenied() | SubscriptionRemoved():
            return event.callback.is_private
    return bool(getattr(event, "private", False))


def _clipped(entry: LogEntry) -> LogEntry:
    """An entry whose texts fit to be stored; nearly all do."""
    if len(entry.topic) > MAX_URL:
        entry = evolve(entry, topic=entry.topic[:MAX_URL], host=entry.host[:255])
    if entry.reason:  # the reasons of some errors begin with the topic
        reason = clean(entry.reason).removeprefix(f"{entry.topic}: ")
        entry = evolve(entry, reason=reason[:MAX_REASON])
    return entry


def _ping_accepted(event: PingAccepted) -> LogEntry:
    """The origin of the event names brokers with spaces between them."""
    outcome = "repeated" if event.repeated else "accepted"
    reason = f"it came from {event.origin.replace(' ', ', then ')}" if event.origin else ""
    topic = normal_form(event.url)
    return evolve(
        _of_topic("ping", outcome, topic, event.at, reason, event.source), protocol=event.way
    )


def _relayed(event: PingRelayed, now: float) -> Iterator[LogEntry]:
    numbers = _milliseconds(event.seconds)
    yield _of_relay("delivered", event.url, event, event.answer, numbers)


def _relay_failed(event: RelayFailed, now: float) -> Iterator[LogEntry]:
    yield _of_relay("failed", event.url, event, event.reason, _retry_at(event.retry_at))


def _relay_skipped(event: RelaySkipped, now: float) -> Iterator[LogEntry]:
    yield _of_relay("skipped", "", event, event.reason, {"pings": event.pings})


def _of_relay(
    outcome: str,
    url: str,
    event: PingRelayed | RelayFailed | RelaySkipped,
    reason: str,
    numbers: Mapping[str, float],
) -> LogEntry:
    """An entry about a ping that was passed on to a target of the relay."""
    return _of_callback("relay", outcome, url, event.target, event.at, "", reason, numbers)


def _retry_at(at: float | None) -> dict[str, float]:
    """The number of an entry that says when the next attempt is; none if there is none."""
    return {} if at is None else {"retry_at": round(at, 3)}


def _ping_refused(event: PingRefused, now: float) -> Iterator[LogEntry]:
    topic = normal_form(clean(event.url))
    yield _of_topic("ping", "refused", topic, event.at, event.reason, event.source)


def _fetched(event: TopicFetched, now: float) -> Iterator[LogEntry]:
    outcome, numbers = "changed" if event.changed else "unchanged", _milliseconds(event.seconds)
    yield _of_topic("fetch", outcome, event.topic, event.at, event.result, numbers=numbers)


def _fetch_failed(event: TopicFetchFailed, now: float) -> Iterator[LogEntry]:
    numbers = _milliseconds(event.seconds)
    yield _of_topic("fetch", "failed", event.topic, event.at, event.reason, numbers=numbers)


def _milliseconds(seconds: float) -> dict[str, float]:
    return {"milliseconds": round(seconds * 1000)}


def _topic_ended(event: TopicEnded, now: float) -> Iterator[LogEntry]:
    yield _of_topic("topic", "ended", event.topic, event.at, event.reason)


def _topic_revived(event: TopicRevived, now: float) -> Iterator[LogEntry]:
    yield _of_topic("topic", "revived", event.topic, event.at)


def _topic_moved(event: TopicMoved, now: float) -> Iterator[LogEntry]:
    yield _of_topic("topic", "moved", event.topic, event.at, event.to)


def _of_topic(
    kind: str,
    outcome: str,
    topic: str,
    at: float,
    reason: str = "",
    source: str = "",
    numbers: Mapping[str, float] | None = None,
) -> LogEntry:
    """An entry about a topic, with the host of its URL."""
    return LogEntry(
        kind,
        outcome,
        at,
        topic=topic,
        host=host_of(topic),
        source=source,
        reason=reason,
        numbers=numbers or {},
    )


def _requested(event: SubscriptionRequested, now: float) -> Iterator[LogEntry]:
    reason = "to end it" if event.unsubscribe else ""
    yield _of_callback(
        "subscription", "requested", event.topic, event.callback, event.at, event.source, reason
    )


def _denied(event: SubscriptionDenied, now: float) -> Iterator[LogEntry]:
    yield _of_callback(
        "subscription", "denied", event.topic, event.callback, event.at, event.source, event.reason
    )


def _stored(event: SubscriptionStored, now: float) -> Iterator[LogEntry]:
    """An entry for a subscription that is new or renewed, as its callback has confirmed."""
    subscription = event.subscription
    yield _of_callback(
        "subscription",
        "renewed" if subscription.renewed else "verified",
        subscription.topic,
        subscription.callback,
        subscription.lease.granted_at,
        event.source,
        numbers={"lease_seconds": subscription.lease.seconds},
    )


def _removed(event: SubscriptionRemoved, now: float) -> Iterator[LogEntry]:
    """An entry for a subscription that its subscriber has ended, or an administrator."""
    outcome, reason = ("dropped", REMOVED) if event.account else ("unsubscribed", "")
    entry = _of_callback(
        "subscription", outcome, event.topic, event.callback, now, event.source, reason
    )
    yield evolve(entry, account=event.account)


def _swept(event: SubscriptionsSwept, now: float) -> Iterator[LogEntry]:
    """An entry for each subscription that the event names, and one for the rest of either kind."""
    left = {"expired": event.swept.expired, "dropped": event.swept.failing}
    for one in event.swept.named:
        outcome = "dropped" if one.error else "expired"
        left[outcome] -= 1
        if one.callback.is_private:
            continue
        reason = one.error
        if reason not in ("", MARKED):
            reason = f"too many notifications failed in a row: {reason}"
        yield _of_callback(
            "subscription", outcome, one.topic, one.callback, event.at, reason=reason
        )
    for outcome, count in left.items():
        if count > 0:
            yield LogEntry("subscription", outcome, event.at, numbers={"subscriptions": count})


def _of_callback(
    kind: str,
    outcome: str,
    topic: str,
    callback: Callback,
    at: float,
    source: str = "",
    reason: str = "",
    numbers: Mapping[str, float] | None = None,
) -> LogEntry:
    """An entry about a subscriber or a target, with the host of its callback."""
    return LogEntry(
        kind,
        outcome,
        at,
        topic=clean(topic),
        host=callback.host[:255],
        protocol=callback.protocol,
        callback=clean(callback.url)[:MAX_URL],
        source=source,
        reason=reason,
        numbers=numbers or {},
    )


def _begun(event: FanOutBegun, now: float) -> Iterator[LogEntry]:
    yield _of_topic("fan-out", "begun", event.topic, event.at)


def _ended(event: FanOutEnded, now: float) -> Iterator[LogEntry]:
    """An entry for the end of a fan-out: how many subscribers were notified, and how soon."""
    numbers = {
        "delivered": event.delivered,
        "failed": event.failed,
        "waiting": event.waiting,
        "last_seconds": round(event.last, 3),
    }
    if event.first is not None:
        numbers["first_seconds"] = round(event.first, 3)
    yield _of_topic("fan-out", "ended", event.topic, event.at, numbers=numbers)


def _delivered(event: NotificationDelivered, now: float) -> Iterator[LogEntry]:
    yield _of_notification("delivered", event.subscription, event.at)


def _failed(event: NotificationFailed, now: float) -> Iterator[LogEntry]:
    """An entry for the failure, and one for the end of the subscription if it ends."""
    subscription = event.subscription
    if not subscription.ended:
        retried = event.retry_at is not None
        yield _of_notification(
            "failed" if retried else "given up",
            subscription,
            event.at,
            event.reason,
            _retry_at(event.retry_at),
        )
    if event.ends:
        why = f"the topic ended: {subscription.ended}" if subscription.ended else WANTS_NO_MORE
        yield _of_callback(
            "subscription",
            "dropped",
            subscription.topic,
            subscription.callback,
            event.at,
            reason=why,
        )


def _of_notification(
    outcome: str,
    subscription: Subscription,
    at: float,
    reason: str = "",
    numbers: Mapping[str, float] | None = None,
) -> LogEntry:
    """An entry about a notification, with the number of its attempts."""
    return _of_callback(
        "notification",
        outcome,
        subscription.topic,
        subscription.callback,
        at,
        reason=reason,
        numbers={"attempts": (subscription.attempts or 0) + 1, **(numbers or {})},
    )


def _unreachable(event: HostUnreachable, now: float) -> Iterator[LogEntry]:
    numbers = {"failures": event.failures, **_retry_at(event.retry_at)}
    yield LogEntry(
        "host",
        "unreachable",
        event.at,
        host=event.host[:255],
        reason=event.reason,
        numbers=numbers | _port(event.port),
    )


def _reachable(event: HostReachable, now: float) -> Iterator[LogEntry]:
    yield LogEntry("host", "reachable", event.at, host=event.host[:255], numbers=_port(event.port))


def _port(port: int | None) -> dict[str, float]:
    """The number of an entry about one port of a host; none if it is about the whole host."""
    return {} if port is None else {"port": port}


def _administered(event: Administered, now: float) -> Iterator[LogEntry]:
    """The reason of the entry is what the administrator did, and why."""
    what = event.object.replace(" ", " to ", 1) if event.verb == "move" else event.object
    words = VERBS.get(event.verb, f"did {event.verb} {{}}")
    is_of_topic = "{topic}" in words
    did = words.replace("{topic}" if is_of_topic else "{}", what)
    topic = event.object.partition(" ")[0] if is_of_topic else ""
    yield LogEntry(
        "administration",
        "done",
        event.at,
        topic=topic,
        host=(host_of(topic) if topic else _host_in(event))[:255],
        account=event.account,
        reason=f"{did}: {event.reason}" if event.reason else did,
    )


def _host_in(event: Administered) -> str:
    """The host that a change concerns; empty if it concerns none."""
    if event.verb == "close breaker":
        return event.object
    kind, _, name = event.object.partition(" ")
    return name if event.verb in {"block", "unblock"} and kind == "host" else ""


_MAKERS: Final[Mapping[type[Event], Callable[[Any, float], Iterator[LogEntry]]]] = {
    PingRefused: _ping_refused,
    PingRelayed: _relayed,
    RelayFailed: _relay_failed,
    RelaySkipped: _relay_skipped,
    TopicFetched: _fetched,
    TopicFetchFailed: _fetch_failed,
    TopicEnded: _topic_ended,
    TopicRevived: _topic_revived,
    TopicMoved: _topic_moved,
    SubscriptionRequested: _requested,
    SubscriptionDenied: _denied,
    SubscriptionStored: _stored,
    SubscriptionRemoved: _removed,
    SubscriptionsSwept: _swept,
    FanOutBegun: _begun,
    FanOutEnded: _ended,
    NotificationDelivered: _delivered,
    NotificationFailed: _failed,
    HostUnreachable: _unreachable,
    HostReachable: _reachable,
    Administered: _administered,
}

#: The classes of events that become entries.
LOGGED: Final = (PingAccepted, *_MAKERS)
