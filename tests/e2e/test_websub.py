"""WebSub from end to end: a running broker as the hub, and programs that are not its own."""

from __future__ import annotations

import re
from json import loads
from urllib.parse import quote, urlencode

from tests.e2e.fixture import Broker, EndToEndTestCase, post_form, request, run_here, until
from tests.e2e.nginx import Logged, Nginx
from tests.e2e.servers import FEED
from tests.e2e.websub_servers import APART, FlaskSubscriber, HubReceiver
from tests.processes import free_port

#: Bytes that no codec leaves as they are.
STRANGE = b"\xef\xbb\xbf<rss>\r\n\xff\xfe\x00</rss>\n\n"


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
