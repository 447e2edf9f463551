"""Which entries of the event log an event becomes."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.events import (
    Administered,
    ContentRequested,
    Event,
    FanOutBegun,
    FanOutEnded,
    FilePublished,
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
from rsscloud_broker.model import Callback, Lease, Subscription
from rsscloud_broker.model.administration import VERBS
from rsscloud_broker.model.log_entry import KINDS, LogEntry
from rsscloud_broker.model.work import MARKED, Swept, SweptSubscription
from rsscloud_broker.sinks import log_of_events

FEED = "http://feeds.example/rss.xml"
NEW = "http://new.example/rss.xml"
CALLBACK = Callback("http://reader.example:8000/notify?token=1", "http-post")
TARGET = Callback("http://sink.example/RPC2", "xml-rpc")
SUBSCRIPTION = Subscription(FEED, CALLBACK, Lease(1000.0, 90_000), id=1, attempts=2)
CALLER = "192.0.2.7"


def an_entry(kind: str, outcome: str, reason: str = "", at: float = 5.0, **fields: Any) -> LogEntry:
    """An entry about the feed and its subscriber, unless the fields say otherwise."""
    about: dict[str, Any] = {"topic": FEED, "host": "feeds.example"}
    if kind in {"subscription", "notification"}:
        about["host"] = "reader.example"
        about |= {"callback": CALLBACK.url, "protocol": CALLBACK.protocol}
    if kind == "host":
        about = {"host": "reader.example"}
    return LogEntry(kind, outcome, at, reason=reason, **(about | fields))


class EntriesTests(SynchronousTestCase):
    def check(self, event: Event, *entries: LogEntry) -> None:
        self.assertEqual(log_of_events.entries_of(event, 5.0), list(entries))
        for entry in entries:
            self.assertIn(entry.outcome, KINDS[entry.kind])
            self.assertIn(type(event), log_of_events.LOGGED)

    def one(self, event: Event, kind: str, outcome: str, reason: str = "", **fields: Any) -> None:
        """An event has one entry."""
        self.check(event, an_entry(kind, outcome, reason, **fields))

    def test_topics(self) -> None:
        spelled = PingAccepted("HTTP://Feeds.example/rss.xml", 5.0, CALLER)
        self.one(spelled, "ping", "accepted", source=CALLER)
        self.one(PingAccepted(FEED, 5.0, repeated=True), "ping", "repeated")
        passed = PingAccepted(FEED, 5.0, origin="http://a http://b", way="rssCloud")
        why = "it came from http://a, then http://b"
        self.one(passed, "ping", "accepted", why, protocol="rssCloud")
        refused = PingRefused("ftp://x/\n", "no address", 5.0, CALLER)
        about = {"topic": "ftp://x/", "host": "x", "source": CALLER}
        self.one(refused, "ping", "refused", "no address", **about)
        took = {"milliseconds": 1234}
        for outcome in ("changed", "unchanged"):
            fetched = TopicFetched(FEED, outcome == "changed", "200, 6 bytes", 1.2341, 5.0)
            self.one(fetched, "fetch", outcome, "200, 6 bytes", numbers=took)
        failed = TopicFetchFailed(FEED, "nobody is there", 1.2341, 5.0)
        self.one(failed, "fetch", "failed", "nobody is there", numbers=took)
        self.one(TopicEnded(FEED, "gone", 5.0), "topic", "ended", "gone")
        self.one(TopicRevived(FEED, 5.0), "topic", "revived")
        self.one(TopicMoved(FEED, "http://b/", 5.0), "topic", "moved", "http://b/")

    def test_fan_outs(self) -> None:
        self.one(FanOutBegun(FEED, 5.0), "fan-out", "begun")
        counts: dict[str, Any] = {"delivered": 3, "failed": 2, "waiting": 1}
        numbers = counts | {"last_seconds": 2.5}
        ended = FanOutEnded(FEED, **counts, first=None, last=2.5, at=5.0)
        self.one(ended, "fan-out", "ended", numbers=numbers)
        numbers["first_seconds"] = 0.123
        self.one(evolve(ended, first=0.12345), "fan-out", "ended", numbers=numbers)

    def test_subscriptions(self) -> None:
        lease = {"lease_seconds": 90_000}

        def one(event: Event, outcome: str, reason: str = "", **fields: Any) -> None:
            self.one(event, "subscription", outcome, reason, **fields)

        one(SubscriptionRequested(FEED, CALLBACK, 5.0, CALLER), "requested", source=CALLER)
        one(SubscriptionRequested(FEED, CALLBACK, 5.0, unsubscribe=True), "requested", "to end it")
        one(SubscriptionDenied(FEED, CALLBACK, "no", 5.0, CALLER), "denied", "no", source=CALLER)
        stored = SubscriptionStored(SUBSCRIPTION, CALLER)
        one(stored, "verified", at=1000.0, source=CALLER, numbers=lease)
        renewed = SubscriptionStored(evolve(SUBSCRIPTION, renewed=True))
        one(renewed, "renewed", at=1000.0, numbers=lease)
        one(SubscriptionRemoved(FEED, CALLBACK, CALLER), "unsubscribed", source=CALLER)
        removed = SubscriptionRemoved(FEED, CALLBACK, account="alice")
        one(removed, "dropped", "an administrator removed it", account="alice")

    def test_sweeps_name_some_and_count_the_others(self) -> None:
        failing = SweptSubscription(FEED, CALLBACK, "status 500")
        named = (failing, SweptSubscription(FEED, CALLBACK))
        why = "too many notifications failed in a row: status 500"
        both = an_entry("subscription", "dropped", why), an_entry("subscription", "expired")
        others = LogEntry("subscription", "expired", 5.0, numbers={"subscriptions": 2})
        self.check(SubscriptionsSwept(Swept(1, 1, 7, named), 5.0), *both)
        self.check(SubscriptionsSwept(Swept(3, 1, 0, named), 5.0), *both, others)
        marked = Swept(failing=1, named=(SweptSubscription(FEED, CALLBACK, MARKED),))
        why = "it was marked to be removed"
        self.one(SubscriptionsSwept(marked, 5.0), "subscription", "dropped", why)
        self.check(SubscriptionsSwept(Swept(topics=7), 5.0))

    def test_notifications(self) -> None:
        tried, kind = {"attempts": 3}, "notification"
        self.one(NotificationDelivered(SUBSCRIPTION, 5.0), kind, "delivered", numbers=tried)
        failed = NotificationFailed(SUBSCRIPTION, "status 500", 5.0)
        self.one(failed, kind, "given up", "status 500", numbers=tried)
        again = tried | {"retry_at": 35}
        self.one(evolve(failed, retry_at=35.0), kind, "failed", "status 500", numbers=again)
        self.check(
            evolve(failed, ends=True),
            an_entry(kind, "given up", "status 500", numbers=tried),
            an_entry("subscription", "dropped", log_of_events.WANTS_NO_MORE),
        )
        ended = NotificationFailed(evolve(SUBSCRIPTION, ended="gone"), "gone", 5.0, ends=True)
        self.one(ended, "subscription", "dropped", "the topic ended: gone")

    def test_hosts(self) -> None:
        numbers, port = {"failures": 5, "retry_at": 65.0}, {"port": 8000}
        down = HostUnreachable("reader.example", None, "it timed out", 5, 65.0, 5.0)
        self.one(down, "host", "unreachable", "it timed out", numbers=numbers)
        on_port = evolve(down, port=8000)
        self.one(on_port, "host", "unreachable", "it timed out", numbers=numbers | port)
        self.one(HostReachable("reader.example", 8000, 5.0), "host", "reachable", numbers=port)

    def test_relays(self) -> None:
        """The host is that of the target."""
        about = {"host": "sink.example", "callback": TARGET.url, "protocol": "xml-rpc"}

        def one(event: Event, outcome: str, reason: str, **fields: Any) -> None:
            self.one(event, "relay", outcome, reason, **(about | fields))

        relayed = PingRelayed(FEED, TARGET, "Thanks.", 0.25, 5.0)
        one(relayed, "delivered", "Thanks.", numbers={"milliseconds": 250})
        one(RelayFailed(FEED, TARGET, "No.", 5.0), "failed", "No.")
        one(RelayFailed(FEED, TARGET, "No.", 5.0, 9.5), "failed", "No.", numbers={"retry_at": 9.5})
        one(RelaySkipped(TARGET, "old", 3, 5.0), "skipped", "old", topic="", numbers={"pings": 3})

    def test_administrators(self) -> None:
        """A verb has words, and braces in what it is about are text."""
        feed, host = (FEED, "feeds.example"), ("", "a.example")
        for verb, what, why, did, (topic, host_of) in (
            ("end", FEED, "gone for good", f"ended {FEED}: gone for good", feed),
            ("move", f"{FEED} {NEW}", "", f"moved {FEED} to {NEW}", feed),
            ("block", "host a.example", "spam", "blocked the host a.example: spam", host),
            ("announce", "{x} {}", "", "announced: {x} {}", ("", "")),
        ):
            fields: dict[str, Any] = {"account": "alice", "topic": topic, "host": host_of}
            event = Administered("alice", verb, what, why, 5.0)
            self.check(event, LogEntry("administration", "done", 5.0, reason=did, **fields))
        for verb, what, host_of in (
            ("close breaker", "a.example", "a.example"),
            ("unblock", "source 192.0.2.0/24", ""),
        ):
            (entry,) = log_of_events.entries_of(Administered("alice", verb, what, "", 5.0), 5.0)
            self.assertEqual((entry.host, entry.topic, entry.source), (host_of, "", ""))
        for verb in VERBS:
            (entry,) = log_of_events.entries_of(Administered("alice", verb, "x", "", 5.0), 5.0)
            self.assertFalse(entry.reason.startswith("did "), verb)

    def test_other_events_become_none(self) -> None:
        self.check(ContentRequested(FEED))
        self.check(FilePublished("/changes.xml", 5.0))

    def test_long_and_dirty_texts_are_cut_and_cleaned(self) -> None:
        url = f"http://{'x' * 300}/{'y' * 3000}"
        (entry,) = log_of_events.entries_of(PingRefused(url, "a\x00b\ud800\n" * 1000, 5.0), 5.0)
        self.assertEqual((entry.topic, len(entry.host)), (url[: log_of_events.MAX_URL], 255))
        self.assertEqual(len(entry.reason), log_of_events.MAX_REASON)
        self.assertTrue(entry.reason.startswith("ab ab"), entry.reason[:20])
        (entry,) = log_of_events.entries_of(PingRefused(FEED, f"{FEED}: it is private", 5.0), 5.0)
        self.assertEqual(entry.reason, "it is private")
