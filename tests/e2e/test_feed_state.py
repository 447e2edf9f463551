"""What feeds and servers say of their state, from end to end: a running broker, a real
nginx with feeds, and an origin that misbehaves on purpose.
"""

from __future__ import annotations

import gzip
from functools import partial
from json import loads
from typing import Any

from tests.e2e.fixture import run_here, until
from tests.e2e.nginx import Logged, Nginx
from tests.e2e.rude import Page, RudeOrigin
from tests.e2e.servers import FEED, HttpPostReceiver
from tests.e2e.test_websub import HubTestCase

#: So that nothing is asked for but what a test pings.
NO_POLLS = "[polling]\nenabled = false\n"

DOCUMENT = "<redirect><newLocation>{}</newLocation></redirect>"


class FeedStateTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.broker = self.own_broker(NO_POLLS)
        self.broker.start()
        self.cloud = self.served(HttpPostReceiver())

    def account(self, url: str) -> dict[str, Any]:
        """What ``rsscloud-broker topic`` tells of a topic."""
        told = run_here("topic", "--data", self.broker.data, "--json", url)
        self.assertEqual(told.returncode, 0, told.stderr)
        account: dict[str, Any] = loads(told.stdout)
        return account

    def assert_pinged(self, url: str) -> None:
        self.assertIn("Thanks for the ping.", self.broker.ping(url).text)

    def assert_ping_fails(self, url: str) -> None:
        self.assertIn("there was an error reading the resource", self.broker.ping(url).text)


class NginxTestCase(FeedStateTestCase):
    def setUp(self) -> None:
        self.nginx = Nginx(self.directory())  # skips where there is none
        super().setUp()
        self.nginx.start()
        self.addCleanup(self.nginx.stop)
        self.topic = self.write(1)

    def write(self, number: int, path: str = "/rss.xml") -> str:
        """Another version of the feed."""
        body = FEED % (b"<item><title>%d</title></item>" % number * 40)
        return self.nginx.write(path, body)

    def logged(self, status: int, path: str = "/rss.xml") -> Logged:
        """Wait until a request was answered with a status."""
        until(partial(self.nginx.logged, path, status), f"{path} to be answered with {status}")
        return self.nginx.logged(path, status)[-1]


class ConditionalTests(NginxTestCase):
    def test_an_unchanged_feed_costs_a_small_request(self) -> None:
        hub = self.receiver()
        self.subscribed(self.broker, self.cloud, self.topic)
        self.subscribe(self.broker, hub, self.topic)
        self.broker.restart()  # or the number of subscribers may be a minute old
        self.assert_pinged(self.topic)
        logged = self.logged(304)
        self.assertRegex(logged.etag, r'^(W/)?"[0-9a-f-]+"$')
        self.assertTrue(logged.since.endswith(" GMT"))
        self.assertRegex(
            logged.agent,
            rf"^rsscloud-broker/\S+ \(\+http://\S+:{self.broker.port}; 2 subscribers\)$",
        )
        self.assertLess(logged.sent, 300)
        self.assertEqual(self.account(self.topic)["result"], "304, not modified")

        self.write(2)
        self.assert_pinged(self.topic)
        self.assert_told(self.cloud, self.topic)
        until(lambda: hub.delivered, "the content to be delivered")

    def test_content_is_compressed_on_its_way(self) -> None:
        hub = self.receiver()
        self.subscribe(self.broker, hub, self.topic)
        self.write(2)
        self.assert_pinged(self.topic)
        until(lambda: hub.delivered, "the content to be delivered")
        (body,) = hub.bodies
        self.assertEqual(body, FEED % (b"<item><title>2</title></item>" * 40))
        logged = self.logged(200)
        self.assertEqual(logged.coding, "gzip")
        self.assertLess(logged.sent, len(body))

    def test_other_validators_of_the_same_bytes_are_no_change(self) -> None:
        self.subscribed(self.broker, self.cloud, self.topic)
        before = self.account(self.topic)
        self.nginx.touch("/rss.xml")
        self.assert_pinged(self.topic)
        after = self.account(self.topic)
        self.assertNotEqual(before["etag"], after["etag"])
        self.assertNotEqual(before["last_modified"], after["last_modified"])
        for name in ("sha256", "changed_at"):
            self.assertEqual(before[name], after[name])
        self.assert_pinged(self.topic)
        self.assertEqual(self.logged(304).etag, after["etag"])
        self.assertEqual(self.cloud.heard, [])


class MoveTests(NginxTestCase):
    def test_301(self) -> None:
        self.subscribed(self.broker, self.cloud, self.topic)
        to = self.nginx.answer("/rss.xml", 301)
        self.write(1, "/new/rss.xml")
        self.assert_pinged(self.topic)
        self.assert_moved_and_told(to)
        # The old place is not asked any more.
        self.assertEqual(len(self.nginx.logged("/rss.xml", 301)), 1)

    def test_308(self) -> None:
        self.subscribed(self.broker, self.cloud, self.topic)
        to = self.nginx.answer("/rss.xml", 308)
        self.write(1, "/new/rss.xml")
        self.assert_pinged(self.topic)
        self.assert_moved_and_told(to)

    def test_xml_redirect(self) -> None:
        self.subscribed(self.broker, self.cloud, self.topic)
        to = self.write(1, "/new/rss.xml")
        self.nginx.write("/rss.xml", DOCUMENT.format(to).encode())
        self.assert_pinged(self.topic)
        self.assert_moved_and_told(to)

    def assert_moved_and_told(self, to: str) -> None:
        """Changes at the new URL reach the subscriber of the old one, by either name."""
        for number, pinged in enumerate((self.topic, to), 2):
            self.cloud.heard.clear()
            self.write(number, "/new/rss.xml")
            self.assert_pinged(pinged)
            self.assert_told(self.cloud, self.topic)
        account = self.account(self.topic)
        self.assertEqual((account["url"], account["moved_from"]), (to, [self.topic]))
        self.assertEqual(account, self.account(to))

    def test_who_subscribes_later_may_use_either_url(self) -> None:
        self.subscribed(self.broker, self.cloud, self.topic)
        to = self.nginx.answer("/rss.xml", 301)
        self.write(1, "/new/rss.xml")
        self.assert_pinged(self.topic)
        old, new = self.served(HttpPostReceiver()), self.served(HttpPostReceiver())
        self.subscribed(self.broker, old, self.topic)
        self.subscribed(self.broker, new, to)
        self.write(2, "/new/rss.xml")
        self.assert_pinged(to)
        self.assert_told(old, self.topic)
        self.assert_told(new, to)

    def test_temporary_redirects_do_not(self) -> None:
        self.subscribed(self.broker, self.cloud, self.topic)
        for status in (302, 303, 307):
            path = f"/{status}.xml"
            topic = self.write(1, path)
            self.subscribed(self.broker, self.cloud, topic)
            self.nginx.answer(path, status)
            self.write(2, f"/new{path}")
            self.assert_pinged(topic)
            self.assert_told(self.cloud, topic)
            account = self.account(topic)
            self.assertEqual((account["url"], account["moved_from"]), (topic, []))


class EndTests(NginxTestCase):
    def assert_ends(self) -> None:
        """The subscriber is notified, and nobody can subscribe any more."""
        hub, late = self.receiver(), self.receiver()
        self.subscribe(self.broker, hub, self.topic)
        hub.asked.clear()
        self.end()
        self.assert_ping_fails(self.topic)
        until(lambda: hub.asked, "a denial")
        (denial,) = hub.asked
        self.assertEqual((denial["hub.mode"], denial["hub.topic"]), ("denied", self.topic))
        self.assertIn("gone for good", denial["hub.reason"])
        refused = self.ask(self.broker, late, self.topic)
        self.assertEqual(refused.status, 410)
        self.assertIn("gone for good", refused.text)
        refused = self.broker.subscribe(self.cloud, self.topic)
        self.assertIn('success="false"', refused.text)
        self.assertIn("gone for good", self.account(self.topic)["ended"])

    def end(self) -> None:
        self.nginx.answer("/rss.xml", 410)

    def test_410(self) -> None:
        self.assert_ends()
        self.assert_ping_fails(self.topic)
        self.assertEqual(len(self.nginx.logged("/rss.xml", 410)), 1, "it is asked no more")


class XMLEndTests(EndTests):
    def end(self) -> None:
        self.nginx.write("/rss.xml", DOCUMENT.format("").encode())

    def test_410(self) -> None:
        """Of a document it is as good as one."""
        self.assert_ends()


class RudeOriginTests(FeedStateTestCase):
    """The account of a topic says what its server did; no other topic suffers."""

    def setUp(self) -> None:
        super().setUp()
        self.rude = self.served(RudeOrigin())

    def change(self, path: str, page: Page) -> str:
        """Subscribe to a feed that is well, and then is not; its URL."""
        topic = self.rude.url(path)
        self.rude.pages[path] = Page(200, b"<rss/>")
        self.subscribed(self.broker, self.cloud, topic)
        self.rude.pages[path] = page
        return topic

    def test_what_cannot_be_read(self) -> None:
        bomb = gzip.compress(b"0" * 50_000_000)
        further = Page(302, headers={"location": "/hops"})
        for path, page, reason in (
            ("/loop", Page(301, headers={"location": "/loop"}), "redirects lead in circles"),
            ("/private", Page(301, headers={"location": "http://10.0.0.1/"}), "is not public"),
            ("/many", further, "redirects more than 5 times"),
            ("/bomb", Page(200, bomb, {"content-encoding": "gzip"}), "larger than 5242880 bytes"),
            ("/endless", Page(200, b"<rss>" * 1000, endless=True), "larger than 5242880 bytes"),
            ("/short", Page(200, b"<rss/>", {"content-length": "1000"}), "closed"),
            ("/length", Page(200, b"<rss/>", {"content-length": "-5"}), "not HTTP"),
            ("/broken", Page(500), "status 500"),
        ):
            with self.subTest(path):
                topic = self.change(path, page)
                self.assert_ping_fails(topic)
                account = self.account(topic)
                self.assertIn(reason, account["result"])
                self.assertEqual((account["url"], account["failures"]), (topic, 1))
                self.assertIsNone(account["ended"])
        self.assert_others_are_well()

    def test_headers_that_say_nothing(self) -> None:
        """What comes with them is content like any other."""
        headers = {
            "etag": "x" * 5000,
            "last-modified": "Funday",
            "expires": "soon",
            "cache-control": "max-age=-5, s-maxage=1000000000000000000000",
        }
        topic = self.change("/odd", Page(200, b"<rss>new</rss>", headers))
        for _ in range(2):
            self.assert_pinged(topic)
        self.assert_told(self.cloud, topic)
        account = self.account(topic)
        self.assertEqual((account["etag"], account["last_modified"]), (None, "Funday"))
        self.assertEqual(account["result"], "200, 14 bytes")
        self.assert_others_are_well()

    def assert_others_are_well(self) -> None:
        origin = self.origin()
        topic = origin.feed()
        self.subscribed(self.broker, self.cloud, topic)
        origin.change(topic)
        self.assert_pinged(topic)
        self.assert_told(self.cloud, topic)
