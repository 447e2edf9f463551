"""Blocks are found by hosts, topics and sources in any spelling, and stop requests and fetches."""

from __future__ import annotations

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Forbidden, TopicUnreadable, Unadministrable
from rsscloud_broker.events import PingRefused
from rsscloud_broker.model import Content, Intent, Ping
from rsscloud_broker.model.administration import Block
from rsscloud_broker.policy.blocks import Blocks, block_name
from tests.core.house import CALLBACK, DAY, FEED, NOW, BrokerTestCase

INTENT = Intent(FEED, CALLBACK, DAY, source="192.0.2.7")


def a_block(kind: str, what: str) -> Block:
    """A block because of spam."""
    return Block(kind, block_name(kind, what), "it sends spam", "alice", 1000.0)


class BlocksTests(SynchronousTestCase):
    def blocks(self, *of: tuple[str, str]) -> Blocks:
        blocks = Blocks()
        blocks.change(a_block(kind, what) for kind, what in of)
        return blocks

    def test_whether_anything_is_blocked(self) -> None:
        """Who asks for it alone lets nothing through that is blocked."""
        for kind, what in (("host", "a.example"), ("host", "*.a.example"), ("topic", "http://a/")):
            blocks = self.blocks((kind, what))
            self.assertTrue(blocks.in_force)
            blocks.change([])
            self.assertFalse(blocks.in_force)

    def test_hosts(self) -> None:
        blocks = self.blocks(("host", "spam.example"), ("host", "*.below.example"))
        for host, blocked in (
            ("spam.example", True),
            ("a.spam.example", False),
            ("notspam.example", False),
            ("below.example", False),
            ("a.below.example", True),
            ("a.b.below.example", True),
            ("notbelow.example", False),
            ("example", False),
            ("", False),
        ):
            self.assertEqual(blocks.of_host(host) is not None, blocked, host)

    def test_hosts_in_any_spelling(self) -> None:
        blocks = Blocks()
        for blocked, spelled in (
            ("xn--bcher-kva.example", "b\u00fccher.example"),
            ("evil.example", "\uff45\uff56\uff49\uff4c.example."),
            ("203.0.113.7", "0xcb007107"),
            ("3405803783", "203.0.113.7"),
            ("2001:db8:0::1", "2001:db8::1"),
            ("*.evil.example.", "a.evil\u3002example"),
        ):
            blocks.change([Block("host", blocked, "it sends spam", "alice", 1000.0)])
            self.assertIsNotNone(blocks.of_host(spelled), spelled)
            self.assertIsNone(blocks.of_host("other.example"))

    def test_topics_in_any_spelling_of_the_host(self) -> None:
        for what in ("http://a.example/x", "http://a.example./x", "http://a.example/*"):
            blocks = self.blocks(("topic", what))
            for url in ("http://a.example./x", "http://a.example/x"):
                self.assertIsNotNone(blocks.of_topic(url), (what, url))
            self.assertIsNone(blocks.of_topic("http://a.example.b/x"))

    def test_topics(self) -> None:
        blocks = self.blocks(
            ("topic", "http://a.example/feed"),
            ("topic", "http://b.example/spam/*"),
            ("topic", "http://b.example/*"[:-1] + "x*"),
            ("host", "c.example"),
        )
        for url, blocked in (
            ("http://a.example/feed", True),
            ("http://a.example/feed2", False),
            ("https://a.example/feed", False),
            ("http://b.example/spam/", True),
            ("http://b.example/spam/1", True),
            ("http://b.example/spam", False),
            ("http://b.example/xyz", True),
            ("http://b.example/", False),
            ("https://c.example:8443/any", True),
        ):
            self.assertEqual(blocks.of_topic(url) is not None, blocked, url)

    def test_sources(self) -> None:
        blocks = self.blocks(
            ("source", "192.0.2.7"), ("source", "198.51.100.0/24"), ("source", "2001:db8::/32")
        )
        for source, blocked in (
            ("192.0.2.7", True),
            ("::ffff:192.0.2.7", True),
            ("192.0.2.8", False),
            ("198.51.100.200", True),
            ("2001:db8:1::1", True),
            ("2001:db9::1", False),
            ("", False),
            ("unix", False),
        ):
            self.assertEqual(blocks.of_source(source) is not None, blocked, source)

    def test_a_change_replaces_all(self) -> None:
        blocks = self.blocks(("source", "192.0.2.7"), ("host", "spam.example"))
        self.assertIsNotNone(blocks.of_source("192.0.2.7"))
        blocks.change([a_block("topic", FEED)])
        self.assertIsNone(blocks.of_source("192.0.2.7"))
        self.assertIsNone(blocks.of_host("spam.example"))
        self.assertIsNotNone(blocks.of_topic(FEED))


class NameTests(SynchronousTestCase):
    def test_any_spelling(self) -> None:
        for kind, what, expected in (
            ("host", " Spam.Example. ", "spam.example"),
            ("host", "spam.example:8080", "spam.example"),
            ("host", "https://spam.example/feed", "spam.example"),
            ("host", "*.Spam.Example", "*.spam.example"),
            ("host", "münchen.example", "xn--mnchen-3ya.example"),
            ("host", "192.0.2.7", "192.0.2.7"),
            ("host", "3221225991", "192.0.2.7"),
            ("host", "[::ffff:192.0.2.7]", "192.0.2.7"),
            ("host", "2001:db8:0::1", "2001:db8::1"),
            ("host", "2001:db8::1", "2001:db8::1"),
            ("host", "[2001:db8::1]", "2001:db8::1"),
            ("topic", "HTTP://A.example:80/%7ea", "http://a.example/~a"),
            ("topic", "http://A.example/*", "http://a.example/*"),
            ("topic", "http://A.example./x", "http://a.example/x"),
            ("topic", "http://A.example./*", "http://a.example/*"),
            ("source", "192.0.2.7", "192.0.2.7/32"),
            ("source", "192.0.2.7/24", "192.0.2.0/24"),
            ("source", "::ffff:192.0.2.7", "192.0.2.7/32"),
            ("source", "::ffff:192.0.2.0/120", "192.0.2.0/24"),
            ("source", "2001:db8::/32", "2001:db8::/32"),
        ):
            self.assertEqual(block_name(kind, what), expected, what)

    def test_what_makes_no_sense(self) -> None:
        for kind, what, words in (
            ("account", "x", "host, topic, source"),
            ("host", "", "names no host"),
            ("host", "*", "names no host"),
            ("host", "[]", "names no host"),
            ("host", "a b", "names no host"),
            ("host", "a/b", "'a/b' names no host"),
            ("host", "me@a", "names no host"),
            ("topic", "spam.example", "must begin with http:// or https://"),
            ("topic", "http://spam.example*", "no whole host"),
            ("topic", f"http://spam.example/{'é' * 1000}", "2048 characters"),
            ("source", "spam.example", "is no source"),
            ("source", "0.0.0.0/0", "all addresses"),
            ("source", "::/0", "all addresses"),
            ("source", "::ffff:0.0.0.0/96", "all addresses"),
        ):
            error = self.assertRaises(Unadministrable, block_name, kind, what)
            self.assertIn(words, str(error), what)


class RequestTests(BrokerTestCase):
    """Requests that concern something blocked are refused, with the reason."""

    def block(self, kind: str, what: str) -> None:
        self.blocks.change([a_block(kind, what)])

    def assert_refused(self, *calls: object) -> None:
        for call in calls:
            error = self.refusal(call, Forbidden)  # type: ignore[arg-type] # all are coroutines
            self.assertIn("is blocked here: it sends spam", str(error))
        self.assertEqual((self.pings(), self.subscriptions(), self.notifier.verified), ([], [], []))
        self.assertEqual(self.fetcher.fetched, [])

    def pinging(self, source: str = "192.0.2.7") -> tuple[object, ...]:
        ping = Ping("A site", "http://site.example/", 1000.0, rss_url=FEED)
        return (
            self.broker.ping(ping, 60, source),
            self.broker.ping_topic(FEED, source),
            self.broker.publish([FEED], source),
        )

    def assert_examination_refused(self) -> None:
        del self.bus.logged[:]
        error = self.assertRaises(Forbidden, self.broker.admit_examination, FEED, "192.0.2.7")
        self.assertIn("is blocked here: it sends spam", str(error))
        self.assertEqual(self.bus.logged, [PingRefused(FEED, str(error), NOW, "192.0.2.7")])

    def pushing(self) -> object:
        return self.broker.push_content(FEED, Content(b"<rss/>"), "192.0.2.7")

    def subscribing(self) -> tuple[object, ...]:
        return self.broker.subscribe(INTENT), self.broker.accept(INTENT)

    def test_topic(self) -> None:
        for kind, what in (("topic", FEED), ("topic", f"{FEED[:-3]}*"), ("host", FEED)):
            self.block(kind, what)
            self.assert_refused(*self.pinging(), *self.subscribing(), self.pushing())
            self.assert_examination_refused()
            self.assertIsNone(self.successResultOf(self.store.newest_content(FEED)))

    def test_source(self) -> None:
        self.block("source", "192.0.2.0/24")
        unsubscribe = evolve(INTENT, unsubscribe=True)
        self.assert_refused(
            *self.pinging(),
            *self.subscribing(),
            self.broker.unsubscribe(unsubscribe),
            self.pushing(),
        )
        self.assert_examination_refused()
        self.result(self.broker.ping_topic(FEED, "198.51.100.1"))

    def test_callback(self) -> None:
        self.block("host", CALLBACK.host)
        self.assert_refused(*self.subscribing())
        self.result(self.broker.ping_topic(FEED, "192.0.2.7"))

    def test_a_blocked_topic_is_not_fetched(self) -> None:
        self.subscribe()
        self.block("topic", FEED)
        error = self.failureResultOf(self.detector.check_now(FEED), TopicUnreadable).value
        self.assertIn("this topic is blocked here: it sends spam", str(error))
        self.assertEqual(self.fetcher.fetched, [])
        self.blocks.change([])
        self.assertTrue(self.successResultOf(self.detector.check_now(FEED)).changed)

    def test_one_may_leave_a_blocked_topic(self) -> None:
        self.result(self.broker.subscribe(INTENT))
        self.block("topic", FEED)
        self.assertTrue(self.result(self.broker.unsubscribe(INTENT)))
