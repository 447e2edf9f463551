"""The entries of the event log for what administrators do."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.events import (
    Administered,
    PingAccepted,
    PingRelayed,
    RelayFailed,
    RelaySkipped,
)
from rsscloud_broker.model import Callback
from rsscloud_broker.model.administration import VERBS
from rsscloud_broker.model.log_entry import LogEntry
from rsscloud_broker.sinks.log_of_events import LOGGED, entries_of

FEED = "http://feeds.example/rss.xml"
NEW = "http://new.example/rss.xml"


class AdministeredTests(SynchronousTestCase):
    def entry(self, verb: str, what: str, reason: str = "") -> LogEntry:
        (entry,) = entries_of(Administered("alice", verb, what, reason, 7.0), 9.0)
        found = (entry.kind, entry.outcome, entry.at, entry.account)
        self.assertEqual(found, ("administration", "done", 7.0, "alice"))
        return entry

    def test_the_sink_takes_the_event(self) -> None:
        self.assertIn(Administered, LOGGED)

    def test_each_verb_has_words(self) -> None:
        for verb in VERBS:
            self.assertFalse(self.entry(verb, "x").reason.startswith("did "), verb)

    def test_topics(self) -> None:
        entry = self.entry("end", FEED, "gone for good")
        self.assertEqual((entry.topic, entry.host), (FEED, "feeds.example"))
        self.assertEqual(entry.reason, f"ended {FEED}: gone for good")
        entry = self.entry("move", f"{FEED} {NEW}")
        self.assertEqual((entry.topic, entry.reason), (FEED, f"moved {FEED} to {NEW}"))

    def test_hosts_and_blocks(self) -> None:
        self.assertEqual(self.entry("close breaker", "a.example").host, "a.example")
        entry = self.entry("block", "host spam.example", "spam")
        self.assertEqual((entry.topic, entry.host), ("", "spam.example"))
        self.assertEqual(entry.reason, "blocked the host spam.example: spam")
        entry = self.entry("unblock", "source 192.0.2.0/24")
        self.assertEqual((entry.host, entry.topic, entry.source), ("", "", ""))

    def test_braces_in_objects_are_text(self) -> None:
        self.assertEqual(self.entry("announce", "{x} {}").reason, "announced: {x} {}")


class RelayTests(SynchronousTestCase):
    """What a relay did has entries with the target as their host."""

    TARGET = Callback("http://sink.example/RPC2", "xml-rpc")

    def test_entries(self) -> None:
        for event, outcome, topic, numbers in (
            (PingRelayed(FEED, self.TARGET, "Thanks.", 0.25, 7.0), "delivered", FEED, 250),
            (RelayFailed(FEED, self.TARGET, "No.", 7.0), "failed", FEED, None),
            (RelayFailed(FEED, self.TARGET, "No.", 7.0, 9.5), "failed", FEED, 9.5),
            (RelaySkipped(self.TARGET, "too old", 3, 7.0), "skipped", "", 3),
        ):
            self.assertIn(type(event), LOGGED)
            (entry,) = entries_of(event, 8.0)
            found = (entry.kind, entry.outcome, entry.topic, entry.host, entry.at)
            self.assertEqual(found, ("relay", outcome, topic, "sink.example", 7.0))
            self.assertEqual((*entry.numbers.values(), None)[0], numbers)
            self.assertTrue(entry.reason)

    def test_ping_from_elsewhere(self) -> None:
        origin = "http://a.example http://b.example"
        (entry,) = entries_of(PingAccepted(FEED, 7.0, origin=origin, way="rssCloud"), 8.0)
        self.assertEqual(entry.protocol, "rssCloud")
        self.assertEqual(entry.reason, "it came from http://a.example, then http://b.example")
