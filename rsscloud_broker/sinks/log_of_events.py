"""Turns events into entries of the event log, for ``event_log``.

What private followers cause gets no entry, since everybody may read the log, now or later.

Nothing here waits or stores anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
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


def _of_relays(event: events.Event, now: float) -> Iterator[LogEntry]:
    """About a ping that was passed on to a target of the relay, or was not."""
    match event:
        case events.PingRelayed():
            url, answer, took = event.url, event.answer, _milliseconds(event.seconds)
            yield _of_callback("relay", "delivered", url, event.target, event.at, answer, took)
        case events.RelayFailed():
            url, reason, again = event.url, event.reason, _retry_at(event.retry_at)
            yield _of_callback("relay", "failed", url, event.target, event.at, reason, again)
        case events.RelaySkipped():
            reason, count = event.reason, {"pings": event.pings}
            yield _of_callback("relay", "skipped", "", event.target, event.at, reason, count)


def _retry_at(at: float | None) -> dict[str, float]:
    """The number of an entry that says when the next attempt is; none if there is none."""
    return {} if at is None else {"retry_at": round(at, 3)}


def _milliseconds(seconds: float) -> dict[str, float]:
    return {"milliseconds": round(seconds * 1000)}


def _of_topics(event: events.Event, now: float) -> Iterator[LogEntry]:
    """About a topic: a refused ping of it, a fetch, what became of it, or a fan-out."""
    match event:
        case events.TopicFetched():
            took = _milliseconds(event.seconds)
            outcome = "changed" if event.changed else "unchanged"
            yield _of_topic("fetch", outcome, event.topic, event.at, event.result, numbers=took)
        case events.TopicFetchFailed():
            took = _milliseconds(event.seconds)
            yield _of_topic("fetch", "failed", event.topic, event.at, event.reason, numbers=took)
        case events.FanOutBegun():
            yield _of_topic("fan-out", "begun", event.topic, event.at)
        case events.FanOutEnded():
            # How many subscribers were notified, and how soon.
            numbers: dict[str, float] = {"delivered": event.delivered, "failed": event.failed}
            numbers |= {"waiting": event.waiting, "last_seconds": round(event.last, 3)}
            if event.first is not None:
                numbers["first_seconds"] = round(event.first, 3)
            yield _of_topic("fan-out", "ended", event.topic, event.at, numbers=numbers)
        case events.PingRefused():
            topic, source = normal_form(clean(event.url)), event.source
            yield _of_topic("ping", "refused", topic, event.at, event.reason, source=source)
        case events.TopicEnded():
            yield _of_topic("topic", "ended", event.topic, event.at, event.reason)
        case events.TopicRevived():
            yield _of_topic("topic", "revived", event.topic, event.at)
        case events.TopicMoved():
            yield _of_topic("topic", "moved", event.topic, event.at, event.to)


def _of_topic(
    kind: str, outcome: str, topic: str, at: float, reason: str = "", **others: Any
) -> LogEntry:
    """An entry about a topic, with the host of its URL.

    :param others: further fields of the entry.
    """
    host = host_of(topic)
    return LogEntry(kind, outcome, at, topic=topic, host=host, reason=reason, **others)


def _of_subscriptions(event: events.Event, now: float) -> Iterator[LogEntry]:
    """About a subscription that somebody has asked for or has ended, or that was stored."""
    match event:
        case events.SubscriptionRequested():
            reason = "to end it" if event.unsubscribe else ""
            yield _of_request("requested", event, event.at, reason)
        case events.SubscriptionDenied():
            yield _of_request("denied", event, event.at, event.reason)
        case events.SubscriptionRemoved():  # by its subscriber or an administrator
            outcome, reason = ("dropped", REMOVED) if event.account else ("unsubscribed", "")
            yield _of_request(outcome, event, now, reason, account=event.account)
        case events.SubscriptionStored():  # it is new or renewed, as its callback has confirmed
            stored = event.subscription
            yield _of_callback(
                "subscription",
                "renewed" if stored.renewed else "verified",
                stored.topic,
                stored.callback,
                stored.lease.granted_at,
                numbers={"lease_seconds": stored.lease.seconds},
                source=event.source,
            )


def _of_request(
    outcome: str,
    event: events.SubscriptionRequested | events.SubscriptionDenied | events.SubscriptionRemoved,
    at: float,
    reason: str,
    **others: Any,
) -> LogEntry:
    """An entry about a subscription, with the address of the client that asked."""
    others["source"] = event.source
    topic, callback = event.topic, event.callback
    return _of_callback("subscription", outcome, topic, callback, at, reason, **others)


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
    numbers: Mapping[str, float] = MappingProxyType({}),
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
        numbers=numbers,
        **others,
    )


def _of_notifications(
    event: events.NotificationDelivered | events.NotificationFailed, now: float
) -> Iterator[LogEntry]:
    """About a notification, and another entry if the subscription ends."""
    subscription, at = event.subscription, event.at
    topic, callback = subscription.topic, subscription.callback
    numbers: dict[str, float] = {"attempts": (subscription.attempts or 0) + 1}
    if isinstance(event, events.NotificationDelivered):
        yield _of_callback("notification", "delivered", topic, callback, at, "", numbers)
        return
    if not subscription.ended:
        outcome = "given up" if event.retry_at is None else "failed"
        numbers |= _retry_at(event.retry_at)
        yield _of_callback("notification", outcome, topic, callback, at, event.reason, numbers)
    if event.ends:
        why = f"the topic ended: {subscription.ended}" if subscription.ended else WANTS_NO_MORE
        yield _of_callback("subscription", "dropped", topic, callback, at, why)


def _of_hosts(
    event: events.HostUnreachable | events.HostReachable, now: float
) -> Iterator[LogEntry]:
    """About a host, or about one of its ports."""
    numbers: dict[str, float] = {} if event.port is None else {"port": event.port}
    outcome, reason = "reachable", ""
    if isinstance(event, events.HostUnreachable):
        outcome, reason = "unreachable", event.reason
        numbers = {"failures": event.failures, **_retry_at(event.retry_at), **numbers}
    host = event.host[:255]
    yield LogEntry("host", outcome, event.at, host=host, reason=reason, numbers=numbers)


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
    **dict.fromkeys((events.PingRelayed, events.RelayFailed, events.RelaySkipped), _of_relays),
    **dict.fromkeys((events.PingRefused, events.FanOutBegun, events.FanOutEnded), _of_topics),
    **dict.fromkeys((events.TopicFetched, events.TopicFetchFailed), _of_topics),
    **dict.fromkeys((events.TopicEnded, events.TopicRevived, events.TopicMoved), _of_topics),
    **dict.fromkeys((events.SubscriptionRequested, events.SubscriptionDenied), _of_subscriptions),
    **dict.fromkeys((events.SubscriptionStored, events.SubscriptionRemoved), _of_subscriptions),
    events.SubscriptionsSwept: _swept,
    **dict.fromkeys((events.NotificationDelivered, events.NotificationFailed), _of_notifications),
    **dict.fromkeys((events.HostUnreachable, events.HostReachable), _of_hosts),
    events.Administered: _administered,
}

#: The classes of events that become entries.
LOGGED: Final = (events.PingAccepted, *_MAKERS)
