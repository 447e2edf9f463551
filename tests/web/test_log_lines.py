"""The sentences for the entries of the event log."""

from __future__ import annotations

import json
from typing import Any

from lxml import html
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.template import flattenString

from rsscloud_broker.model.log_entry import KINDS, LogEntry
from rsscloud_broker.web.log_lines import Line, line_of

#: 2026-09-29 12:00:00 UTC
NOON = 1_790_683_200.0
FEED = "http://feeds.example/rss.xml?a=1&b=2"


def said(kind: str, outcome: str, **fields: Any) -> str:
    """The sentence for an entry, with T for its topic."""
    subscriber = kind in {"subscription", "notification"}
    about = {"callback": "reader.example", "host": "reader.example"} if subscriber else {}
    entry = LogEntry(kind, outcome, NOON, 7, **({"topic": FEED} | about | fields))
    line = line_of(entry)
    assert line.topic in {"", entry.topic}
    assert (line.id, line.at) == (7, "2026-09-29T12:00:00Z")
    return f"{line.before}{'T' if line.topic else ''}{line.after}"


class SentenceTests(SynchronousTestCase):
    maxDiff = None

    def test_every_kind_has_a_sentence(self) -> None:
        for kind, outcomes in KINDS.items():
            for outcome in outcomes:
                for fields in ({}, {"topic": ""}, {"host": "", "callback": ""}, {"reason": "why."}):
                    text = said(kind, outcome, **fields)
                    self.assertTrue(text.endswith("."), text)
                    self.assertFalse(text.endswith(".."), text)
                    self.assertNotIn("  ", text)

    def test_administration(self) -> None:
        ended, blocked = f"ended {FEED}: it is gone.", "blocked the host a.example"
        table = {
            "alice ended T: it is gone.": {"account": "alice", "reason": ended},
            "alice ended T.": {"account": "alice", "reason": f"ended {FEED}"},
            "alice blocked the host a.example.": {
                "account": "alice",
                "topic": "",
                "reason": blocked,
            },
            "An administrator did something about T.": {},
            "An administrator did something.": {"topic": ""},
        }
        for sentence, fields in table.items():
            self.assertEqual(said("administration", "done", **fields), sentence)

    def test_sentences(self) -> None:
        source = {"source": "192.0.2.0/24"}
        later, tomorrow = {"retry_at": NOON + 30}, {"retry_at": NOON + 86_400}
        host, at_port = {"topic": "", "host": "reader.example"}, later | {"port": 8000}
        counts = {"delivered": 1000, "failed": 2, "waiting": 1, "first_seconds": 0.12}
        counts["last_seconds"] = 2.5
        table = {
            "A ping for T was accepted. It came from 192.0.2.0/24.": said(
                "ping", "accepted", **source
            ),
            "This broker itself published a change of T.": said(
                "ping", "accepted", protocol="published"
            ),
            "A ping for T was refused: too many came. It came from 192.0.2.0/24.": said(
                "ping", "refused", reason="too many came.", **source
            ),
            "1,234 more requests were refused within a minute.": said(
                "ping", "refused", topic="", numbers={"requests": 1234}
            ),
            "The broker fetched T: it has changed (200, 6 bytes, after 1,234 ms).": said(
                "fetch", "changed", reason="200, 6 bytes", numbers={"milliseconds": 1234}
            ),
            "The broker fetched T: it has changed (published at this broker).": said(
                "fetch", "changed", reason="published at this broker", numbers={"milliseconds": 0}
            ),
            "The broker could not fetch T: nobody is there (after 5 ms).": said(
                "fetch", "failed", reason="nobody is there", numbers={"milliseconds": 5}
            ),
            "T has moved to http://b/, with its subscribers.": said(
                "topic", "moved", reason="http://b/"
            ),
            "reader.example asked to be notified of T (http-post).": said(
                "subscription", "requested", protocol="http-post"
            ),
            "reader.example confirmed: it is subscribed to T for 1 day.": said(
                "subscription", "verified", numbers={"lease_seconds": 86_400}
            ),
            "reader.example renewed its subscription to T for 25 hours.": said(
                "subscription", "renewed", numbers={"lease_seconds": 90_000}
            ),
            "reader.example renewed its subscription to T for 90 minutes.": said(
                "subscription", "renewed", numbers={"lease_seconds": 5400}
            ),
            "reader.example renewed its subscription to T for 2.5 days.": said(
                "subscription", "renewed", numbers={"lease_seconds": 216_000}
            ),
            "The subscription of a subscriber to T was removed: it failed.": said(
                "subscription", "dropped", reason="it failed", callback="", host=""
            ),
            "2 more subscriptions have expired.": said(
                "subscription", "expired", topic="", numbers={"subscriptions": 2}
            ),
            "1 more subscription was removed.": said(
                "subscription", "dropped", topic="", numbers={"subscriptions": 1}
            ),
            "The subscribers of T were notified: 1,000 accepted, 2 failed, 1 waits; the first "
            "after 0.12 s, the last after 2.5 s.": said("fan-out", "ended", numbers=counts),
            "Nobody had to be notified of T.": said("fan-out", "ended"),
            "reader.example was not notified of T: status 500; the next attempt is at 12:00:30 "
            "UTC.": said("notification", "failed", reason="status 500", numbers=later),
            "reader.example was not notified of T: status 500; the next attempt is at 2026-09-30 "
            "12:00:00 UTC.": said("notification", "failed", reason="status 500", numbers=tomorrow),
            "reader.example was not notified of T: status 500; the broker makes no further "
            "attempt.": said("notification", "given up", reason="status 500"),
            "reader.example, port 8000, does not answer (refused): it is not called until 12:00:30 "
            "UTC.": said("host", "unreachable", reason="refused", numbers=at_port, **host),
            "reader.example answers again.": said("host", "reachable", **host),
        }
        for expected, text in table.items():
            self.assertEqual(text, expected)

    def test_unknown_kind(self) -> None:
        self.assertEqual(said("weather", "fine", reason="why"), "weather fine T: why.")

    def test_reasons_turn_nothing(self) -> None:
        """A subscriber cannot reverse what the broker says after its words."""
        reason = "fault 4: \u202egpj.exe\u2066"
        self.assertEqual(
            said("notification", "given up", reason=reason),
            "reader.example was not notified of T: fault 4: \ufffdgpj.exe\ufffd; "
            "the broker makes no further attempt.",
        )


class LineTests(SynchronousTestCase):
    def test_links(self) -> None:
        def link(topic: str) -> str:
            return line_of(LogEntry("ping", "refused", NOON, topic=topic)).link

        self.assertEqual(
            link(FEED), "/topic?url=http%3A%2F%2Ffeeds.example%2Frss.xml%3Fa%3D1%26b%3D2"
        )
        for topic in ("javascript:alert(1)", "//a.example/", "", "ftp://a/"):
            self.assertEqual(link(topic), "", topic)

    def test_json_is_on_one_line(self) -> None:
        line = Line(7, "2026-09-29T12:00:00Z", "ping", "refused", "a\n", "b\u2028", "</script>")
        data = line.as_json()
        self.assertEqual(len(data.splitlines()), 1)
        self.assertEqual(json.loads(data)["after"], "</script>")
        self.assertEqual(json.loads(data)["link"], "")

    def test_item_escapes_everything(self) -> None:
        bad = '<img src=x onerror="alert(1)">'
        entry = LogEntry("ping", "refused", NOON, topic=bad, reason=bad)
        for line in (
            line_of(entry),
            line_of(LogEntry("ping", "refused", NOON, topic=f"http://a/{bad}")),
            Line(7, "2026-09-29T12:00:00Z", "ping", bad, bad, bad, bad),
        ):
            text = self.successResultOf(flattenString(None, line.as_item())).decode()
            tree: Any = html.fragment_fromstring(text)
            names = {one.tag for one in tree.iter()}
            self.assertEqual(names - {"a", "bdi"}, {"li", "time", "span"})
            self.assertEqual(tree.xpath("//@onerror"), [])
