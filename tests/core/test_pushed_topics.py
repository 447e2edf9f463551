"""Topics whose contents are pushed: subscribed to and carried, but not read."""

from __future__ import annotations

from rsscloud_broker.config import Polling
from rsscloud_broker.core import Poller, PushedTopics
from rsscloud_broker.errors import TopicUnreadable
from rsscloud_broker.model import Callback, Intent, Ping
from tests.core.house import CALLBACK, FEED, NOW, BrokerTestCase

CHANNEL = "http://source.example/channel/1"
CARRIER = Callback("http://reader.example/carried", "carrier")
LEASE = 90_000
CALLER = "192.0.2.7"


class PushedTests(BrokerTestCase):
    """Anyone who would read the channel gets a page."""

    pushes = ("http://source.example/channel/",)

    def setUp(self) -> None:
        super().setUp()
        self.fetcher.contents[CHANNEL] = b"<html/>"

    def tearDown(self) -> None:
        self.assertNotIn(CHANNEL, self.fetcher.fetched)

    def subscribe_carrier(self) -> None:
        self.result(self.broker.accept(Intent(CHANNEL, CARRIER, LEASE)))
        del self.bus.events[:]

    def test_prefixes(self) -> None:
        self.assertIn(CHANNEL, self.pushed)
        self.assertNotIn("http://source.example/", self.pushed)
        self.assertNotIn(CHANNEL, PushedTopics())
        self.assertIn(CHANNEL, PushedTopics(["HTTP://Source.example:80/%63hannel/"]))

    def test_subscriptions_need_nothing_to_be_there(self) -> None:
        self.topic_policy.refused.add(CHANNEL)  # nor the broker to call such a URL
        self.result(self.broker.accept(Intent(CHANNEL, CARRIER, LEASE)))
        self.result(self.broker.subscribe(Intent(CHANNEL, CALLBACK, LEASE)))
        stored = self.result(self.store.subscriptions(CHANNEL, 0, 10))
        self.assertEqual([one.callback for one in stored], [CARRIER, CALLBACK])
        self.assertEqual(self.carrier.denied, [])

    def test_pings_of_a_stranger(self) -> None:
        self.subscribe_carrier()
        for call in (
            self.broker.ping_topic(CHANNEL, CALLER, again=True),
            self.broker.publish([CHANNEL], CALLER),
        ):
            error = self.refusal(call, TopicUnreadable)
            self.assertIn("its publisher pushes its content", str(error))
        self.result(self.broker.ping(Ping("A site", CHANNEL, NOW), 0, CALLER))
        self.assertEqual((self.walked(), self.due()), ([], []))

    def test_pings_of_what_moved_there_before(self) -> None:
        self.subscribe(FEED)
        self.result(self.store.move_topic(FEED, CHANNEL, NOW))
        self.refusal(self.broker.ping_topic(FEED, CALLER), TopicUnreadable)
        self.assertEqual(self.walked(), [])

    def test_no_other_topic_moves_there(self) -> None:
        """Or anyone who redirects to a channel could have the page there carried."""
        self.subscribe_carrier()
        self.subscribe(FEED)
        self.fetcher.moves[FEED] = CHANNEL
        self.assertTrue(self.result(self.broker.ping_topic(FEED, CALLER)))
        self.assertEqual(self.walked(), [FEED])

    def test_polling(self) -> None:
        poller = Poller(self.store, self.detector, self.clock, Polling())
        poller.startService()
        self.addCleanup(poller.stopService)
        self.subscribe_carrier()
        for _ in range(200):
            self.clock.advance(60)
        account = self.status(CHANNEL)
        self.assertIsNone(account.next_poll_at)
        self.assertIn("pushes its content", account.poll_reason)
