"""WebSub from end to end: a running broker as the hub, and programs that are not its own."""

from __future__ import annotations

import hmac
import re
from json import loads
from pathlib import Path
from urllib.parse import quote, urlencode

from tests.e2e.fixture import Broker, EndToEndTestCase, post_form, request, run, run_here, until
from tests.e2e.nginx import Logged, Nginx
from tests.e2e.servers import FEED
from tests.e2e.websub_servers import APART, Delivery, FlaskSubscriber, HubReceiver
from tests.processes import free_port

#: Bytes that no codec leaves as they are.
STRANGE = b"\xef\xbb\xbf<rss>\r\n\xff\xfe\x00</rss>\n\n"


TOKEN = "correct-horse-battery"
SECRET = "sesame"
PAYLOAD = Path(__file__).parents[1] / "wire" / "fixtures" / "resourcesync" / "new_resource_list.xml"
CONFIGURATION = """
[[front_doors.resourcesync.publishers]]
topic = "{topic}"
token = "{token}"
"""


class HubTestCase(EndToEndTestCase):
    def publish(self, broker: Broker, topic: str) -> None:
        """Say that a topic changed, as a publisher does."""
        answer = post_form(f"{broker.url}/websub", {"hub.mode": "publish", "hub.url": topic})
        self.assertEqual(answer.status, 202, answer.text)


class OtherPeoplesSubscriberTests(HubTestCase):
    """With Flask-WebSub, which knows nothing of this broker."""

    def subscriber(self) -> FlaskSubscriber:
        self.assertTrue(
            (APART / "flask_websub").exists(),
            f"Flask-WebSub is missing: pip install --target {APART} 'Flask-WebSub>=0.4.1'",
        )
        subscriber = FlaskSubscriber(self.directory(), free_port())
        self.addCleanup(subscriber.end)
        until(lambda: "Running on" in subscriber.log, "the subscriber to run")
        return subscriber

    def test_from_subscription_to_its_end(self) -> None:
        broker, origin, subscriber = self.shared_broker(), self.origin(), self.subscriber()
        topic = origin.feed("/flask.xml")
        query = {"topic": topic, "hub": f"{broker.url}/hub", "secret": "sesame"}
        answer = request(f"{subscriber.url}/subscribe?{urlencode(query)}", "POST")
        self.assertEqual(answer.status, 200, subscriber.log)
        self.heard(subscriber, ["succeeded", topic, "subscribe"])

        origin.pages["/flask.xml"] = STRANGE
        self.publish(broker, topic)
        self.heard(subscriber, ["delivered", topic, STRANGE.decode("latin-1")])

        ended = request(f"{subscriber.url}/unsubscribe?id={quote(answer.text)}", "POST")
        self.assertEqual(ended.status, 200, subscriber.log)
        self.heard(subscriber, ["succeeded", topic, "unsubscribe"])
        self.assertEqual(len(subscriber.events), 3)

    def heard(self, subscriber: FlaskSubscriber, event: list[str]) -> None:
        until(lambda: event in subscriber.events, f"{event} in {subscriber.log}")


class RealServerTests(HubTestCase):
    """A feed that a real nginx serves, with the validators that it makes."""

    def test_an_unchanged_feed_costs_a_small_request(self) -> None:
        nginx = self.served(Nginx(self.directory()))  # skips where there is none
        broker = self.running_broker("[polling]\nenabled = false\n")
        topic = nginx.write("/rss.xml", FEED % (b"<item><title>1</title></item>" * 40))
        receivers = [self.served(HubReceiver()) for _ in range(2)]
        for receiver in receivers:
            self.subscribed_to_hub(broker, receiver, topic)
        broker.restart()  # or the number of subscribers may be a minute old
        self.publish(broker, topic)
        agent = rf"^rsscloud-broker/\S+ \(\+http://\S+:{broker.port}; 2 subscribers\)$"

        def asked() -> list[Logged]:
            return [one for one in nginx.logged("/rss.xml", 304) if re.match(agent, one.agent)]

        (logged,) = until(asked, "the feed to be asked for")
        self.assertRegex(logged.etag, r'^(W/)?"[0-9a-f-]+"$')
        self.assertTrue(logged.since.endswith(" GMT"))
        self.assertLess(logged.sent, 300)

        def known() -> bool:
            told = run_here("topic", "--data", broker.data, "--json", topic)
            return bool(loads(told.stdout)["result"] == "304, not modified")

        until(known, "the result to be stored")
        changed = FEED % b"<item><title>2</title></item>"
        nginx.write("/rss.xml", changed)
        self.publish(broker, topic)
        for receiver in receivers:
            until(lambda one=receiver: one.bodies == [changed], "the content")  # type: ignore[misc]


class ResourceSyncTests(EndToEndTestCase):
    """A hub for the notifications of others, and a source of archives."""

    def subscribed_destination(self, broker: Broker, topic: str) -> HubReceiver:
        destination = self.served(HubReceiver())
        self.subscribed_to_hub(broker, destination, topic, secret=SECRET)
        return destination

    def assert_delivered(self, destination: HubReceiver, *links: str) -> Delivery:
        """Wait for a delivery with some links."""
        until(lambda: destination.delivered, "a delivery")
        delivery = destination.delivered[-1]
        for link in links:
            self.assertIn(link, delivery.headers["link"])
        return delivery

    def notify(self, broker: Broker, topic: str, token: str) -> str:
        done = run(
            *("rsscloud-broker", "resourcesync", "notify", PAYLOAD),
            *("--topic", topic, "--hub", f"http://localhost:{broker.port}/websub"),
            env={"RSSCLOUD_BROKER_TOKEN": token},
        )
        return done.stdout or done.stderr

    def test_a_notification_reaches_its_destinations(self) -> None:
        """The channel answers with 404 to everybody who asks there."""
        topic = self.origin().url("/dataset1/framework/")
        broker = self.running_broker(CONFIGURATION.format(topic=topic, token=TOKEN))
        destination = self.subscribed_destination(broker, topic)
        self.assertEqual(self.notify(broker, topic, TOKEN), "The notification was accepted.\n")
        delivery = self.assert_delivered(
            destination,
            f'<{topic}>; rel="self"',
            f'<http://localhost:{broker.port}/websub>; rel="hub"',
            '<http://example.com/dataset1/capabilitylist.xml>; rel="resourcesync"',
        )
        self.assertEqual(delivery.body, PAYLOAD.read_bytes())
        self.assertEqual(delivery.headers["content-type"], "application/xml")
        digest = hmac.new(SECRET.encode(), delivery.body, "sha256").hexdigest()
        self.assertEqual(delivery.headers["x-hub-signature"], f"sha256={digest}")

        self.assertIn("HTTP status 401", self.notify(broker, topic, TOKEN[::-1]))
        self.assertIn("HTTP status 403", self.notify(broker, "http://example.com/", TOKEN))

    def test_the_channel_can_be_subscribed_to(self) -> None:
        broker = self.running_broker()
        channel = f"http://localhost:{broker.port}/resourcesync/notification.xml"
        destination = self.subscribed_destination(broker, channel)
        broker.stop()
        archive = broker.data / "public" / "2026" / "01" / "02" / "01.xml"
        archive.parent.mkdir(parents=True)
        archive.write_text("<weblogUpdates/>")
        broker.start()
        delivery = self.assert_delivered(
            destination,
            f'<{channel}>; rel="self"',
            '/resourcesync/capabilitylist.xml>; rel="resourcesync"',
        )
        self.assertIn(b'capability="framework-notification"', delivery.body)
        published = {"hub.mode": "publish", "hub.url": channel}
        said = post_form(f"{broker.url}/websub", published).text
        self.assertIn("its publisher pushes its content", said)
