"""What feeds and servers say of their state, from end to end: a running broker, and a real nginx
with feeds.

What else they can say is tested in ``tests.outbound.test_topic_fetcher``,
``tests.outbound.test_fetching`` and ``tests.core.test_topic_reader``.
"""

from __future__ import annotations

from functools import partial
from json import loads
from typing import Any

from tests.e2e.fixture import run_here, until
from tests.e2e.nginx import Logged, Nginx
from tests.e2e.servers import FEED, HttpPostReceiver
from tests.e2e.test_websub import HubTestCase

#: So that nothing is asked for but what a test pings.
NO_POLLS = "[polling]\nenabled = false\n"


class NginxTestCase(HubTestCase):
    def setUp(self) -> None:
        self.nginx = Nginx(self.directory())  # skips where there is none
        super().setUp()
        self.broker = self.own_broker(NO_POLLS)
        self.broker.start()
        self.cloud = self.served(HttpPostReceiver())
        self.nginx.start()
        self.addCleanup(self.nginx.stop)
        self.topic = self.write(1)

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


class MoveTests(NginxTestCase):
    def test_301(self) -> None:
        self.subscribed(self.broker, self.cloud, self.topic)
        to = self.nginx.answer("/rss.xml", 301)
        self.write(1, "/new/rss.xml")
        self.assert_pinged(self.topic)
        # Changes at the new URL reach the subscriber of the old one, by either name.
        for number, pinged in enumerate((self.topic, to), 2):
            self.cloud.heard.clear()
            self.write(number, "/new/rss.xml")
            self.assert_pinged(pinged)
            self.assert_told(self.cloud, self.topic)
        account = self.account(self.topic)
        self.assertEqual((account["url"], account["moved_from"]), (to, [self.topic]))
        self.assertEqual(account, self.account(to))
        # The old place is not asked any more.
        self.assertEqual(len(self.nginx.logged("/rss.xml", 301)), 1)


class EndTests(NginxTestCase):
    def test_410(self) -> None:
        """The subscriber is notified, and nobody can subscribe any more."""
        hub, late = self.receiver(), self.receiver()
        self.subscribe(self.broker, hub, self.topic)
        hub.asked.clear()
        self.nginx.answer("/rss.xml", 410)
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
        self.assert_ping_fails(self.topic)
        self.assertEqual(len(self.nginx.logged("/rss.xml", 410)), 1, "it is asked no more")
