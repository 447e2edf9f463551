"""What strangers see of callbacks' URLs and of clients' addresses."""

from __future__ import annotations

from urllib.parse import quote

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model.disclosure import HIDDEN, Disclosure, Mode
from rsscloud_broker.model.log_entry import KINDS, LogEntry
from tests.front_doors.fixture import ALL_DOORS, House

CALLBACK = "https://joe:pw@reader.example:8443/hook/7?token=s3cret#x"
#: A callback at a host that no page names as an example.
INBOX = CALLBACK.replace("reader.example", "inbox.example")
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
        """Strangers learn only that something was done."""
        entry = LogEntry("administration", "done", 1.0, account="ada", reason="blocked 192.0.2.7")
        host = evolve(entry, host="192.0.2.7")
        topic = evolve(entry, topic=FEED, host="feeds.example")
        for mode in ("url", "host", "none"):
            bare = evolve(entry, account="", reason="")
            self.assertEqual(Disclosure(mode).entry(entry), bare)
            self.assertEqual(Disclosure(mode).entry(host), bare)
            self.assertEqual(Disclosure(mode).entry(topic), bare)

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

    def test_a_topic_at_the_host_of_a_callback_reveals_nothing(self) -> None:
        topic, callback = "http://blog.example/", "http://blog.example/wp?secret=X"
        for mode in ("url", "host", "none"):
            for reason in (callback, f"it said: {callback}, twice", f"({callback}?secret=X)"):
                entry = LogEntry(
                    "notification", "failed", 1.0, topic=topic, callback=callback, reason=reason
                )
                self.assertNotIn("secret=X", Disclosure(mode).entry(entry).reason)
        entry = evolve(entry, reason=f"{topic} has moved (see {topic}): {topic}")
        self.assertEqual(Disclosure().entry(entry).reason, entry.reason)

    def test_a_callback_that_a_pattern_would_not_find_whole(self) -> None:
        for callback in (
            "http://a.example/cb?x='secret",
            'http://a.example/cb?x="secret"',
            "http://a.example/cb?x=<secret>",
            "http://a.example/cb?x=a secret",
            "HTTP://a.example/cb?x=(secret)",
        ):
            for known in (callback, "http://b.example/"):
                if " " in callback and known != callback:
                    continue  # nobody can say where an unknown URL with a space ends
                entry = LogEntry(
                    "notification", "failed", 1.0, callback=known, reason=f"{callback}: no"
                )
                for mode in ("url", "host", "none"):
                    self.assertNotIn("secret", Disclosure(mode).entry(entry).reason)
                self.assertRegex(Disclosure().entry(entry).reason, "^a.example.*: no$")

    def test_reasons_about_hosts_are_cleaned(self) -> None:
        entry = LogEntry("host", "unreachable", 1.0, host="a.example", reason=f"{CALLBACK}: no")
        table: dict[Mode, str] = {"url": "?…: no", "host": "reader.example: no", "none": HIDDEN}
        for mode, said in table.items():
            reason = Disclosure(mode).entry(entry).reason
            self.assertNotIn("s3cret", reason)
            self.assertIn(said, reason)

    def test_entries_without_a_callback_keep_their_host(self) -> None:
        fetch = LogEntry("fetch", "failed", 1.0, topic=FEED, host="feeds.example", reason=FEED)
        for mode in ("url", "host", "none"):
            self.assertEqual(Disclosure(mode).entry(fetch), fetch)
        host = LogEntry("host", "unreachable", 1.0, host="reader.example")
        self.assertEqual(Disclosure("host").entry(host), host)
        self.assertEqual(Disclosure("none").entry(host).host, "")


class EveryPageTests(SynchronousTestCase):
    """What strangers see of a callback on the pages of a whole broker."""

    def pages(self, mode: Mode) -> dict[str, str]:
        """All pages that anybody may open, by path, of a broker whose log names a callback."""
        house = House(
            self, doors=ALL_DOORS | {"public_lists", "stats"}, disclosure=Disclosure(mode)
        )
        entries = [
            LogEntry(
                kind,
                outcome,
                1.0,
                topic=FEED,
                host="inbox.example",
                callback=INBOX,
                source="192.0.2.7",
                account="ada",
                reason=f"its redirects lead in circles: {INBOX}",
                numbers={"retry_at": 1000.5},
            )
            for kind, outcomes in KINDS.items()
            for outcome in outcomes
        ]
        self.successResultOf(house.store.add_log_entries(entries))
        paths = [
            route.path
            for door in house.doors
            for route in door.routes()
            if route.method == "GET" and not route.path.endswith(("/events", "*"))
        ]
        queries = [
            f"{path}?{name}={quote(value, safe='')}"
            for path in ("/topic", "/log")
            for name, value in (("url", FEED), ("topic", FEED), ("host", "inbox.example"))
        ]
        return {
            path: house.ask("GET", path).body.decode("utf-8", "replace")
            for path in (*paths, *queries)
        }

    def test_no_page_shows_more_than_the_mode_allows(self) -> None:
        hidden = {
            "url": ("s3cret", "joe:pw"),
            "host": ("s3cret", "joe:pw", "/hook/7", "192.0.2.7"),
            "none": ("s3cret", "joe:pw", "/hook/7", "192.0.2."),
        }
        for mode in ("url", "host", "none"):
            pages = self.pages(mode)
            self.assertLess({"/", "/log", "/topic", "/changes", "/stats"}, set(pages))
            for path, text in pages.items():
                for secret in hidden[mode]:
                    self.assertNotIn(secret, text, f"{path} in mode {mode}")
                if mode == "none" and "host=" not in path:
                    self.assertNotIn("inbox.example", text, path)
            shown = pages[f"/topic?url={quote(FEED, safe='')}"]
            self.assertIn("its redirects lead in circles", shown)
            self.assertIn("the next attempt is at 00:16:40 UTC", shown)
