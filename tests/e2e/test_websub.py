"""WebSub from end to end: a running broker as the hub, and subscribers that are not its own."""

from __future__ import annotations

import hmac
import json
from typing import Any
from urllib.parse import quote, urlencode

from rsscloud_broker.storage import export_text, open_database
from tests.e2e.fixture import (
    WITH_COURIERS,
    Answer,
    Broker,
    EndToEndTestCase,
    post_form,
    request,
    run,
    until,
)
from tests.e2e.websub_servers import APART, FlaskSubscriber, HubReceiver
from tests.processes import free_port

#: Bytes that no codec leaves as they are.
STRANGE = b"\xef\xbb\xbf<rss>\r\n\xff\xfe\x00</rss>\n\n"

HOUR = 3600

#: Bytes of a topic that are taken in, by default.
LIMIT = 5 * 1024 * 1024


class HubTestCase(EndToEndTestCase):
    def receiver(self) -> HubReceiver:
        return self.served(HubReceiver())

    def ask(
        self,
        broker: Broker,
        receiver: HubReceiver,
        topic: str,
        mode: str = "subscribe",
        path: str = "/websub",
        **more: object,
    ) -> Answer:
        """Ask the hub for something, as a subscriber does."""
        fields = {"hub.mode": mode, "hub.topic": topic, "hub.callback": receiver.callback}
        fields |= {f"hub.{name}": str(value) for name, value in more.items()}
        return post_form(f"{broker.url}{path}", fields)

    def stored(self, broker: Broker, receiver: HubReceiver, topic: str) -> dict[str, Any] | None:
        """The subscription of a receiver."""
        with open_database(broker.database, writes=False) as connection:
            document = json.loads("".join(export_text(connection, 0.0)))
        for entry in document["topics"]:
            for subscription in entry["subscriptions"]:
                if (entry["url"], subscription["callback"]) == (topic, receiver.callback):
                    found: dict[str, Any] = subscription
                    return found
        return None

    def subscribe(self, broker: Broker, receiver: HubReceiver, topic: str, **more: object) -> None:
        """Subscribe a receiver, and wait until that is stored."""
        asked = self.ask(broker, receiver, topic, "subscribe", "/websub", **more)
        self.assertEqual(asked.status, 202)
        until(lambda: self.stored(broker, receiver, topic), "the subscription to be stored")

    def publish(self, broker: Broker, *topics: str) -> None:
        """Say that topics changed, as a publisher does."""
        fields = [("hub.mode", "publish"), *(("hub.url", topic) for topic in topics)]
        form = {"content-type": "application/x-www-form-urlencoded"}
        answer = request(f"{broker.url}/websub", "POST", urlencode(fields).encode(), form)
        self.assertEqual(answer.status, 202, answer.text)

    def assert_delivered(self, receiver: HubReceiver, body: bytes) -> None:
        """Wait until a content has come, and forget what came."""
        until(lambda: body in receiver.bodies, f"{body!r} to be delivered")
        receiver.delivered.clear()


class SubscriptionTests(HubTestCase):
    def test_from_subscription_to_delivery(self) -> None:
        """Section 5.3 and 7: the callback is asked, and gets the content byte for byte."""
        broker, origin, receiver = self.shared_broker(), self.origin(), self.receiver()
        topic = origin.feed("/strange.xml")
        self.subscribe(broker, receiver, topic, lease_seconds=1000)
        (asked,) = receiver.asked
        self.assertTrue(asked.pop("hub.challenge"))
        self.assertEqual(
            asked,
            {
                "mine": "1",
                "hub.mode": "subscribe",
                "hub.topic": topic,
                "hub.lease_seconds": "1000",
            },
        )
        origin.pages["/strange.xml"] = STRANGE
        self.publish(broker, topic)
        until(lambda: receiver.delivered, "a delivery")
        (delivery,) = receiver.delivered
        self.assertEqual(delivery.body, STRANGE)
        self.assertEqual(delivery.headers["content-type"], "application/rss+xml")
        link = delivery.headers["link"]
        self.assertRegex(link, r'^<http://[^>]+/websub>; rel="hub", ')
        self.assertTrue(link.endswith(f', <{topic}>; rel="self"'), link)
        self.assertNotIn("x-hub-signature", delivery.headers)

    def test_a_failed_renewal_changes_nothing(self) -> None:
        """Section 5.1: the old secret holds until the new request is confirmed."""
        broker, origin, receiver = self.shared_broker(), self.origin(), self.receiver()
        topic = origin.feed("/renewed.xml")
        self.subscribe(broker, receiver, topic, secret="first")
        receiver.agrees = False
        self.assertEqual(self.ask(broker, receiver, topic, secret="second").status, 202)
        until(lambda: len(receiver.asked) > 1, "the callback to be asked again")
        for secret, agrees in ((b"first", False), (b"third", True)):
            receiver.agrees = agrees
            if agrees:
                self.ask(broker, receiver, topic, secret="third")
                until(lambda: self.secret_of(broker, receiver, topic) == "third", "the renewal")
            body = b"signed with " + secret
            origin.pages["/renewed.xml"] = body
            self.publish(broker, topic)
            until(lambda: receiver.delivered, "a delivery")
            digest = hmac.new(secret, body, "sha256").hexdigest()
            delivery = receiver.delivered.pop()
            self.assertEqual(delivery.headers["x-hub-signature"], f"sha256={digest}")

    def secret_of(self, broker: Broker, receiver: HubReceiver, topic: str) -> str:
        found = self.stored(broker, receiver, topic)
        return str(found["options"]["secret"]) if found else ""

    def test_a_subscriber_that_is_gone(self) -> None:
        """Section 7: 410 ends a subscription."""
        broker, origin, receiver = self.shared_broker(), self.origin(), self.receiver()
        topic = origin.feed("/gone.xml")
        self.subscribe(broker, receiver, topic)
        receiver.status = 410
        origin.pages["/gone.xml"] = b"new"
        self.publish(broker, topic)
        until(lambda: not self.stored(broker, receiver, topic), "the subscription to end")

    def test_content_over_the_limit(self) -> None:
        """Section 5.2: it is denied at once, and its publisher learns why."""
        broker, origin = self.shared_broker(), self.origin()
        early, late = self.receiver(), self.receiver()
        topic = origin.feed("/large.xml")
        origin.pages["/large.xml"] = b"x" * LIMIT
        self.subscribe(broker, early, topic)
        origin.pages["/large.xml"] += b"x"
        self.publish(broker, topic)
        publishing = {"hub.mode": "publish", "hub.url": topic}
        reason = f"the answer is larger than {LIMIT} bytes"
        until(
            lambda: reason in post_form(f"{broker.url}/websub", publishing).text,
            "the publisher to be notified",
        )
        self.assertEqual(early.delivered, [])
        account = run("rsscloud-broker", "topic", "--data", broker.data, topic).stdout
        self.assertIn(f"{reason}, too large to be read: its subscribers are not notified", account)
        self.assertIn("body_limit in [topics]", broker.log)
        unknown = origin.feed("/large-too.xml")
        origin.pages["/large-too.xml"] = b"x" * (LIMIT + 1)
        self.assertEqual(self.ask(broker, late, unknown).status, 202)
        until(lambda: late.asked, "a denial")
        (denial,) = late.asked
        self.assertEqual(denial["hub.mode"], "denied")
        self.assertIn(reason, denial["hub.reason"])
        self.assertEqual(origin.requests["/large-too.xml"], 1)


class TakenOverTests(HubTestCase):
    def test_subscription_of_another_hub(self) -> None:
        """What rsscloud-server granted goes on: signed, and with this broker as the hub."""
        broker = self.own_broker("public_url = 'http://hub.example'\n")
        origin, receiver = self.origin(), self.receiver()
        topic = origin.feed()
        taken = {
            "url": receiver.callback,
            "protocol": "websub",
            "whenCreated": "2998-12-29T00:00:00.000Z",
            "whenLastError": None,
            "whenExpires": "2999-01-08T00:00:00.000Z",
            "details": {"leaseSeconds": 864_000, "secret": "sesame"},
        }
        document = {"version": 2, "feeds": {topic: {"resource": None, "subscriptions": [taken]}}}
        options = ("--config", broker.configuration, "--data", broker.data)
        done = run("rsscloud-broker", "import", *options, "-", stdin=json.dumps(document))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("http://hub.example/websub", done.stdout)
        broker.start()
        origin.pages["/rss.xml"] = STRANGE
        self.publish(broker, topic)
        until(lambda: receiver.delivered, "a delivery")
        delivery = receiver.delivered[-1]
        digest = hmac.new(b"sesame", delivery.body, "sha256").hexdigest()
        self.assertEqual(delivery.headers["x-hub-signature"], f"sha256={digest}")
        link = f'<http://hub.example/websub>; rel="hub", <{topic}>; rel="self"'
        self.assertEqual(delivery.headers["link"], link)


class TimeTests(HubTestCase):
    def test_subscriptions_outlive_a_restart_but_not_their_lease(self) -> None:
        """Section 5.1: leases are enforced, and shorter or longer ones than asked for granted."""
        broker, origin = self.own_broker(), self.origin()
        broker.start()
        short, long = self.receiver(), self.receiver()
        topic = origin.feed()
        self.subscribe(broker, short, topic, lease_seconds=1)
        self.subscribe(broker, long, topic, lease_seconds=10**10)
        self.assertEqual(short.asked[0]["hub.lease_seconds"], "300")
        self.assertEqual(long.asked[0]["hub.lease_seconds"], str(30 * 24 * HOUR))
        broker.restart()
        origin.pages["/rss.xml"] = b"after a restart"
        self.publish(broker, topic)
        for receiver in (short, long):
            self.assert_delivered(receiver, b"after a restart")
        broker.stop()
        broker.start(ahead=HOUR)
        origin.pages["/rss.xml"] = b"after an hour"
        self.publish(broker, topic)
        self.assert_delivered(long, b"after an hour")
        self.assertEqual(short.delivered, [])

    def test_a_request_outlives_a_crash(self) -> None:
        """Section 5.1.2: what was answered with 202 is verified, come what may."""
        broker, origin = self.own_broker(WITH_COURIERS), self.origin()
        receiver = self.receiver()
        broker.start()
        topic = origin.feed()
        origin.open.clear()  # the topic, which is not known yet, is read first
        self.assertEqual(self.ask(broker, receiver, topic).status, 202)
        broker.kill()
        self.assertEqual(receiver.asked, [])
        origin.open.set()
        broker.start()
        until(lambda: self.stored(broker, receiver, topic), "the subscription to be stored")


class OldClientsTests(HubTestCase):
    def test_verification_before_the_answer(self) -> None:
        """PubSubHubbub 0.3, section 6.1: 204, or 409."""
        broker, origin, receiver = self.shared_broker(), self.origin(), self.receiver()
        topic = origin.feed("/sync.xml")
        answer = self.ask(broker, receiver, topic, path="/pubsubhubbub", verify="sync")
        self.assertEqual((answer.status, answer.body), (204, b""))
        self.assertIsNotNone(self.stored(broker, receiver, topic))
        self.assertEqual(len(receiver.asked), 1)
        answer = self.ask(broker, receiver, topic, "unsubscribe", verify="sync")
        self.assertEqual(answer.status, 204)
        self.assertIsNone(self.stored(broker, receiver, topic))
        refusing = self.receiver()
        refusing.agrees = False
        self.assertEqual(self.ask(broker, refusing, topic, verify="sync").status, 409)


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
