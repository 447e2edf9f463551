"""A change that is learnt of in any way reaches the subscribers of every protocol."""

from __future__ import annotations

from collections.abc import Mapping

from tests.e2e.every_protocol import HOME, NAMED, PLAIN, Ping, form, get, soap, xmlrpc
from tests.e2e.fixture import TIMEOUT, Broker, EndToEndTestCase, Told
from tests.e2e.servers import RECEIVERS
from tests.e2e.websub_servers import HubReceiver

POLLING = """
[polling]
min_interval = 1
max_interval = 1
"""

#: Each of the ways to say that a feed has changed.
WAYS: Mapping[str, Ping] = {
    **NAMED,
    **PLAIN,
    "rssCloud by SOAP, at the path of the manual": lambda feed, name: soap(
        "/rssCloud", "ping", at="/soap", url=feed
    ),
    "WebSub, by topic": lambda feed, name: form("/hub", "202", hub_mode="publish", hub_topic=feed),
    "PubSubHubbub": lambda feed, name: form(
        "/pubsubhubbub/", "204", hub_mode="publish", hub_url=feed
    ),
    "weblogUpdates.ping": lambda feed, name: xmlrpc("weblogUpdates.ping", name, HOME, feed),
    "weblogUpdates.extendedPing, as WordPress calls it": lambda feed, name: xmlrpc(
        "weblogUpdates.extendedPing", name, HOME, feed
    ),
    "weblogUpdates.rssUpdate": lambda feed, name: xmlrpc("weblogUpdates.rssUpdate", name, feed),
    "weblogUpdates.extendedPing by SOAP": lambda feed, name: soap(
        "/weblogUpdates",
        "extendedPing",
        at="/soap",
        weblogname=name,
        weblogurl=HOME,
        rssurl=feed,
    ),
    "/ping": lambda feed, name: get("/ping", url=feed),
    "/rss/ping": lambda feed, name: get("/rss/ping", u=feed),
    "/c": lambda feed, name: get("/c", p="ping", url=feed),
    "/fb/a/pingSubmit": lambda feed, name: get("/fb/a/pingSubmit", bloglink=feed),
    "/": lambda feed, name: get("/", name=name, url=HOME, rssUrl=feed),
}


class EverybodyTestCase(EndToEndTestCase):
    def everybody(self, broker: Broker, feed: str) -> list[Told]:
        """A subscriber of each protocol."""
        told: list[Told] = []
        for make in RECEIVERS:
            receiver = self.served(make())
            self.subscribed(broker, receiver, feed)
            told.append(receiver)
        hub = self.served(HubReceiver())
        answer = broker.subscribe_to_hub(hub.callback, feed, verify="sync")
        self.assertEqual(answer.status, 204, answer.text)
        return [*told, hub]

    def assert_everybody_told(self, everybody: list[Told], topic: str, body: bytes) -> None:
        """Wait until each has heard of a topic, and who wants it has its content."""
        for receiver in everybody:
            self.assert_told(receiver, topic)
            if isinstance(receiver, HubReceiver):
                self.assertEqual(receiver.bodies[-1], body)


class EveryWayTests(EverybodyTestCase):
    def test_every_way_reaches_every_subscriber(self) -> None:
        """Each pair: who says that a feed changed, and who is notified of it, with its content."""
        broker, origin = self.shared_broker(), self.origin()
        feed = origin.feed()
        everybody = self.everybody(broker, feed)
        self.assertEqual(
            {one.protocol for one in everybody}, {"http-post", "xml-rpc", "soap", "websub"}
        )
        for name, ping in WAYS.items():
            origin.change(feed)
            reply = ping(feed, "A Site").ask(broker.port, TIMEOUT)
            self.assertTrue(reply.accepted, (name, reply))
            self.assert_everybody_told(everybody, feed, origin.pages["/rss.xml"])


class NoPingTests(EverybodyTestCase):
    """A change that nobody says anything of."""

    def test_polls(self) -> None:
        broker, origin = self.running_broker(POLLING), self.origin()
        feed = origin.feed()
        everybody = self.everybody(broker, feed)
        origin.change(feed)
        self.assert_everybody_told(everybody, feed, origin.pages["/rss.xml"])
