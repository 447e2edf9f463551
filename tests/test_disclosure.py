"""What strangers see of callbacks' URLs and of clients' addresses."""

from __future__ import annotations

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.disclosure import HIDDEN, Disclosure
from rsscloud_broker.log_entries import LogEntry

CALLBACK = "https://joe:pw@reader.example:8443/hook/7?token=s3cret#x"
FEED = "http://feeds.example/rss.xml?key=1"


class DisclosureTests(SynchronousTestCase):
    def test_callbacks(self) -> None:
        self.assertEqual(Disclosure().callback(CALLBACK), "reader.example")
        self.assertEqual(
            Disclosure("url").callback(CALLBACK), "https://reader.example:8443/hook/7?…"
        )
        self.assertEqual(Disclosure("url").callback("http://a.example/x"), "http://a.example/x")
        self.assertEqual(Disclosure("none").callback(CALLBACK), "")
        for mode in ("url", "host", "none"):
            self.assertNotIn("s3cret", Disclosure(mode).callback("//odd?s3cret"))
            self.assertNotIn("pw", Disclosure(mode).callback(CALLBACK))

    def test_addresses(self) -> None:
        table = {
            "192.0.2.7": "192.0.2.0/24",
            "::ffff:192.0.2.7": "192.0.2.0/24",
            "2001:db8:1:2::3": "2001:db8:1::/48",
            "fe80::1%eth0": "fe80::/48",
            "": "",
            "somebody": "",
        }
        for address, shown in table.items():
            self.assertEqual(Disclosure().address(address), shown)
            self.assertEqual(Disclosure("none").address(address), "")
            self.assertEqual(Disclosure("url").address(address), address)

    def test_administration(self) -> None:
        """Strangers learn only which topic it concerned."""
        entry = LogEntry("administration", "done", 1.0, account="ada", reason="blocked 192.0.2.7")
        host = evolve(entry, host="192.0.2.7")
        topic = evolve(entry, topic=FEED, host="feeds.example")
        for mode in ("url", "host", "none"):
            bare = evolve(entry, account="", reason="")
            self.assertEqual(Disclosure(mode).entry(entry), bare)
            self.assertEqual(Disclosure(mode).entry(host), bare)
            shown = evolve(topic, account="", reason="")
            self.assertEqual(Disclosure(mode).entry(topic), shown)

    def test_entries(self) -> None:
        entry = LogEntry(
            "notification",
            "failed",
            1.0,
            topic=FEED,
            host="reader.example",
            callback=CALLBACK,
            source="192.0.2.7",
            account="ada",
            reason=f"{CALLBACK} and {FEED}: Reader.example has no address",
        )
        self.assertEqual(
            Disclosure().entry(entry),
            evolve(
                entry,
                callback="reader.example",
                source="192.0.2.0/24",
                account="",
                reason=f"reader.example and {FEED}: Reader.example has no address",
            ),
        )
        hidden = Disclosure("none").entry(entry)
        self.assertEqual((hidden.host, hidden.callback, hidden.source), ("", "", ""))
        self.assertEqual(hidden.reason, f"{HIDDEN} and {FEED}: {HIDDEN} has no address")
        self.assertNotIn("s3cret", Disclosure("url").entry(entry).reason)

    def test_entries_without_a_callback_keep_their_host(self) -> None:
        fetch = LogEntry("fetch", "failed", 1.0, topic=FEED, host="feeds.example", reason=FEED)
        for mode in ("url", "host", "none"):
            self.assertEqual(Disclosure(mode).entry(fetch), fetch)
        host = LogEntry("host", "unreachable", 1.0, host="reader.example")
        self.assertEqual(Disclosure("host").entry(host), host)
        self.assertEqual(Disclosure("none").entry(host).host, "")
