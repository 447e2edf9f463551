"""A change that is learnt of in any way reaches the subscribers of every protocol."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote
from xmlrpc.client import ServerProxy

from tests.e2e.fixture import Answer, Broker, EndToEndTestCase, Told, post_form, request
from tests.e2e.servers import RECEIVERS
from tests.e2e.websub_servers import HubReceiver

# As desktop programs of 2003 sent it: no namespace around the operation.
ENVELOPE = """<?xml version="1.0"?>
<SOAP-ENV:Envelope
  SOAP-ENV:encodingStyle="http://schemas.xmlsoap.org/soap/encoding/"
  xmlns:SOAP-ENC="http://schemas.xmlsoap.org/soap/encoding/"
  xmlns:SOAP-ENV="http://schemas.xmlsoap.org/soap/envelope/"
  xmlns:xsd="http://www.w3.org/1999/XMLSchema"
  xmlns:xsi="http://www.w3.org/1999/XMLSchema-instance">
<SOAP-ENV:Body>{body}</SOAP-ENV:Body></SOAP-ENV:Envelope>
"""


def soap(broker: Broker, path: str, action: str, operation: str, **values: str) -> bool:
    """Make a SOAP call by hand; whether it succeeded."""
    members = "".join(
        f'<{name} xsi:type="xsd:string">{value}</{name}>' for name, value in values.items()
    )
    envelope = ENVELOPE.format(body=f"<{operation}>{members}</{operation}>")
    headers = {"content-type": "text/xml", "soapaction": f'"{action}"'}
    answer = request(f"{broker.url}{path}", "POST", envelope.encode(), headers)
    return answer.status == 200 and f"<{operation}Response" in answer.text


def xmlrpc(broker: Broker, procedure: str, *parameters: str) -> bool:
    """Make an XML-RPC call; whether it succeeded."""
    with ServerProxy(f"{broker.url}/RPC2") as proxy:
        answer = getattr(proxy, procedure)(*parameters)
    return answer is True or answer == {"flerror": False, "message": "Thanks for the ping."}


def publish(broker: Broker, feed: str, path: str = "/websub", name: str = "hub.url") -> bool:
    """Publish as WebSub does, or PubSubHubbub did; whether it succeeded."""
    answer = post_form(f"{broker.url}{path}", {"hub.mode": "publish", name: feed})
    return answer.status == (204 if "pubsubhubbub" in path else 202)


def thanked(answer: Answer) -> bool:
    return answer.status == 200 and "Thanks for the ping." in answer.text


HOME = "http://site.example/"

POLLING = """
[polling]
min_interval = 1
max_interval = 1
"""

#: Takes a broker and a feed, says that it changed, and whether that was accepted.
WAYS: dict[str, Callable[[Broker, str], bool]] = {
    "rssCloud by form": lambda broker, feed: thanked(broker.ping(feed)),
    "rssCloud by XML-RPC": lambda broker, feed: xmlrpc(broker, "rssCloud.ping", feed),
    "rssCloud by SOAP": lambda broker, feed: soap(broker, "/soap", "/rssCloud", "ping", url=feed),
    "WebSub": publish,
    "WebSub, by topic": lambda broker, feed: publish(broker, feed, "/hub", "hub.topic"),
    "PubSubHubbub": lambda broker, feed: publish(broker, feed, "/pubsubhubbub/"),
    "weblogUpdates.ping": lambda broker, feed: xmlrpc(
        broker, "weblogUpdates.ping", "A Site", HOME, feed
    ),
    "weblogUpdates.extendedPing": lambda broker, feed: xmlrpc(
        broker, "weblogUpdates.extendedPing", "A Site", HOME, "", feed, "news"
    ),
    "weblogUpdates.extendedPing, as WordPress calls it": lambda broker, feed: xmlrpc(
        broker, "weblogUpdates.extendedPing", "A Site", HOME, feed
    ),
    "weblogUpdates.rssUpdate": lambda broker, feed: xmlrpc(
        broker, "weblogUpdates.rssUpdate", "A Site", feed
    ),
    "weblogUpdates by SOAP": lambda broker, feed: soap(
        broker, "/weblogUpdates", "/weblogUpdates", "ping", weblogname="A Site", weblogurl=feed
    ),
    "weblogUpdates.extendedPing by SOAP": lambda broker, feed: soap(
        broker,
        "/soap",
        "/weblogUpdates",
        "extendedPing",
        weblogname="A Site",
        weblogurl=HOME,
        rssurl=feed,
    ),
    "/pingSiteForm": lambda broker, feed: thanked(
        request(f"{broker.url}/pingSiteForm?name=A+Site&url={HOME}&changesURL={quote(feed)}")
    ),
    "/ping": lambda broker, feed: thanked(request(f"{broker.url}/ping?url={quote(feed)}")),
    "/rss/ping": lambda broker, feed: thanked(request(f"{broker.url}/rss/ping?u={quote(feed)}")),
    "/c": lambda broker, feed: thanked(request(f"{broker.url}/c?p=ping&url={quote(feed)}")),
    "/fb/a/pingSubmit": lambda broker, feed: thanked(
        request(f"{broker.url}/fb/a/pingSubmit?bloglink={quote(feed)}")
    ),
    "/": lambda broker, feed: thanked(
        request(f"{broker.url}/?name=A+Site&url={HOME}&rssUrl={quote(feed)}")
    ),
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
            self.assertTrue(ping(broker, feed), name)
            self.assert_everybody_told(everybody, feed, origin.pages["/rss.xml"])


class NoPingTests(EverybodyTestCase):
    """A change that nobody says anything of."""

    def test_polls(self) -> None:
        broker, origin = self.running_broker(POLLING), self.origin()
        feed = origin.feed()
        everybody = self.everybody(broker, feed)
        origin.change(feed)
        self.assert_everybody_told(everybody, feed, origin.pages["/rss.xml"])
