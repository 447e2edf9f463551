"""Turns events into entries of the event log, for ``event_log``.

What private followers cause gets no entry, since everybody may read the log, now or later.

Nothing here waits or stores anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from attrs import evolve

from rsscloud_broker import events
from rsscloud_broker.model import Callback, host_of
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


def entries_of(event: events.Event, now: float) -> list[LogEntry]:
    """The entries for an event; none if the event log does not handle its class.

    :param now: the time, for events that say none.
    """
    if type(event) is events.PingAccepted:  # most events are such
        return [_clipped(_ping_accepted(event))]
    make = _MAKERS.get(type(event))
    if make is None or _is_private(event):
        return []
    return [_clipped(entry) for entry in make(event, now)]


def _is_private(event: events.Event) -> bool:
    """Whether only private followers may know of an event."""
    match event:
        case (
            events.NotificationDelivered()
            | events.NotificationFailed()
            | events.SubscriptionStored()
        ):
            return event.subscription.callback.is_private
        case (
            events.SubscriptionRequested()
            | events.SubscriptionDenied()
            | events.SubscriptionRemoved()
        ):
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


def _ping_accepted(event: events.PingAccepted) -> LogEntry:
    """The origin of the event names brokers with spaces between them."""
    outcome = "repeated" if event.repeated else "accepted"
    reason = f"it came from {event.origin.replace(' ', ', then ')}" if event.origin else ""
    topic = normal_form(event.url)
    return _of_topic(
        "ping", outcome, topic, event.at, reason, source=event.source, protocol=event.way
    )


def _relayed(event: events.PingRelayed, now: float) -> Iterator[LogEntry]:
    numbers = _milliseconds(event.seconds)
    yield _of_relay("delivered", event.url, event, event.answer, numbers)


def _relay_failed(event: events.RelayFailed, now: float) -> Iterator[LogEntry]:
    yield _of_relay("failed", event.url, event, event.reason, _retry_at(event.retry_at))


def _relay_skipped(event: events.RelaySkipped, now: float) -> Iterator[LogEntry]:
    yield _of_relay("skipped", "", event, event.reason, {"pings": event.pings})


def _of_relay(
    outcome: str,
    url: str,
    event: events.PingRelayed | events.RelayFailed | events.RelaySkipped,
    reason: str,
    numbers: Mapping[str, float],
) -> LogEntry:
    """An entry about a ping that was passed on to a target of the relay."""
    return _of_callback("relay", outcome, url, event.target, event.at, reason, numbers=numbers)


def _retry_at(at: float | None) -> dict[str, float]:
    """The number of an entry that says when the next attempt is; none if there is none."""
    return {} if at is None else {"retry_at": round(at, 3)}


def _ping_refused(event: events.PingRefused, now: float) -> Iterator[LogEntry]:
    topic = normal_form(clean(event.url))
    yield _of_topic("ping", "refused", topic, event.at, event.reason, source=event.source)


def _fetched(event: events.TopicFetched, now: float) -> Iterator[LogEntry]:
    outcome, numbers = "changed" if event.changed else "unchanged", _milliseconds(event.seconds)
    yield _of_topic("fetch", outcome, event.topic, event.at, event.result, numbers=numbers)


def _fetch_failed(event: events.TopicFetchFailed, now: float) -> Iterator[LogEntry]:
    numbers = _milliseconds(event.seconds)
    yield _of_topic("fetch", "failed", event.topic, event.at, event.reason, numbers=numbers)


def _milliseconds(seconds: float) -> dict[str, float]:
    return {"milliseconds": round(seconds * 1000)}


def _topic_ended(event: events.TopicEnded, now: float) -> Iterator[LogEntry]:
    yield _of_topic("topic", "ended", event.topic, event.at, event.reason)


def _topic_revived(event: events.TopicRevived, now: float) -> Iterator[LogEntry]:
    yield _of_topic("topic", "revived", event.topic, event.at)


def _topic_moved(event: events.TopicMoved, now: float) -> Iterator[LogEntry]:
    yield _of_topic("topic", "moved", event.topic, event.at, event.to)


def _of_topic(
    kind: str, outcome: str, topic: str, at: float, reason: str = "", **others: Any
) -> LogEntry:
    """An entry about a topic, with the host of its URL.

    :param others: further fields of the entry.
    """
    host = host_of(topic)
    return LogEntry(kind, outcome, at, topic=topic, host=host, reason=reason, **others)


def _requested(event: events.SubscriptionRequested, now: float) -> Iterator[LogEntry]:
    yield _of_request("requested", event, event.at, "to end it" if event.unsubscribe else "")


def _denied(event: events.SubscriptionDenied, now: float) -> Iterator[LogEntry]:
    yield _of_request("denied", event, event.at, event.reason)


def _stored(event: events.SubscriptionStored, now: float) -> Iterator[LogEntry]:
    """An entry for a subscription that is new or renewed, as its callback has confirmed."""
    subscription = event.subscription
    yield _of_callback(
        "subscription",
        "renewed" if subscription.renewed else "verified",
        subscription.topic,
        subscription.callback,
        subscription.lease.granted_at,
        source=event.source,
        numbers={"lease_seconds": subscription.lease.seconds},
    )


def _removed(event: events.SubscriptionRemoved, now: float) -> Iterator[LogEntry]:
    """An entry for a subscription that its subscriber has ended, or an administrator."""
    outcome, reason = ("dropped", REMOVED) if event.account else ("unsubscribed", "")
    yield _of_request(outcome, event, now, reason, account=event.account)


def _of_request(
    outcome: str,
    event: events.SubscriptionRequested | events.SubscriptionDenied | events.SubscriptionRemoved,
    at: float,
    reason: str,
    **others: Any,
) -> LogEntry:
    """An entry about a subscription that somebody has asked for, or has ended."""
    return _of_callback(
        "subscription",
        outcome,
        event.topic,
        event.callback,
        at,
        reason,
        source=event.source,
        **others,
    )


def _swept(event: events.SubscriptionsSwept, now: float) -> Iterator[LogEntry]:
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
        yield _of_callback("subscription", outcome, one.topic, one.callback, event.at, reason)
    for outcome, count in left.items():
        if count > 0:
            yield LogEntry("subscription", outcome, event.at, numbers={"subscriptions": count})


def _of_callback(
    kind: str,
    outcome: str,
    topic: str,
    callback: Callback,
    at: float,
    reason: str = "",
    **others: Any,
) -> LogEntry:
    """An entry about a subscriber or a target, with the host of its callback.

    :param others: further fields of the entry.
    """
    return LogEntry(
        kind,
        outcome,
        at,
        topic=clean(topic),
        host=callback.host[:255],
        protocol=callback.protocol,
        callback=clean(callback.url)[:MAX_URL],
        reason=reason,
        **others,
    )


def _begun(event: events.FanOutBegun, now: float) -> Iterator[LogEntry]:
    yield _of_topic("fan-out", "begun", event.topic, event.at)


def _ended(event: events.FanOutEnded, now: float) -> Iterator[LogEntry]:
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


def _delivered(event: events.NotificationDelivered, now: float) -> Iterator[LogEntry]:
    yield _of_notification("delivered", event)


def _failed(event: events.NotificationFailed, now: float) -> Iterator[LogEntry]:
    """An entry for the failure, and one for the end of the subscription if it ends."""
    subscription = event.subscription
    if not subscription.ended:
        outcome = "given up" if event.retry_at is None else "failed"
        yield _of_notification(outcome, event, event.reason, **_retry_at(event.retry_at))
    if event.ends:
        why = f"the topic ended: {subscription.ended}" if subscription.ended else WANTS_NO_MORE
        topic, callback = subscription.topic, subscription.callback
        yield _of_callback("subscription", "dropped", topic, callback, event.at, why)


def _of_notification(
    outcome: str,
    event: events.NotificationDelivered | events.NotificationFailed,
    reason: str = "",
    **more: float,
) -> LogEntry:
    """An entry about a notification, with the number of its attempts and more numbers."""
    subscription = event.subscription
    topic, callback = subscription.topic, subscription.callback
    numbers = {"attempts": (subscription.attempts or 0) + 1, **more}
    return _of_callback("notification", outcome, topic, callback, event.at, reason, numbers=numbers)


def _unreachable(event: events.HostUnreachable, now: float) -> Iterator[LogEntry]:
    numbers = {"failures": event.failures, **_retry_at(event.retry_at)}
    yield LogEntry(
        "host",
        "unreachable",
        event.at,
        host=event.host[:255],
        reason=event.reason,
        numbers=numbers | _port(event.port),
    )


def _reachable(event: events.HostReachable, now: float) -> Iterator[LogEntry]:
    yield LogEntry("host", "reachable", event.at, host=event.host[:255], numbers=_port(event.port))


def _port(port: int | None) -> dict[str, float]:
    """The number of an entry about one port of a host; none if it is about the whole host."""
    return {} if port is None else {"port": port}


def _administered(event: events.Administered, now: float) -> Iterator[LogEntry]:
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


def _host_in(event: events.Administered) -> str:
    """The host that a change concerns; empty if it concerns none."""
    if event.verb == "close breaker":
        return event.object
    kind, _, name = event.object.partition(" ")
    return name if event.verb in {"block", "unblock"} and kind == "host" else ""


_MAKERS: Final[Mapping[type[events.Event], Callable[[Any, float], Iterator[LogEntry]]]] = {
    events.PingRefused: _ping_refused,
    events.PingRelayed: _relayed,
    events.RelayFailed: _relay_failed,
    events.RelaySkipped: _relay_skipped,
    events.TopicFetched: _fetched,
    events.TopicFetchFailed: _fetch_failed,
    events.TopicEnded: _topic_ended,
    events.TopicRevived: _topic_revived,
    events.TopicMoved: _topic_moved,
    events.SubscriptionRequested: _requested,
    events.SubscriptionDenied: _denied,
    events.SubscriptionStored: _stored,
    events.SubscriptionRemoved: _removed,
    events.SubscriptionsSwept: _swept,
    events.FanOutBegun: _begun,
    events.FanOutEnded: _ended,
    events.NotificationDelivered: _delivered,
    events.NotificationFailed: _failed,
    events.HostUnreachable: _unreachable,
    events.HostReachable: _reachable,
    events.Administered: _administered,
}

#: The classes of events that become entries.
LOGGED: Final = (events.PingAccepted, *_MAKERS)
