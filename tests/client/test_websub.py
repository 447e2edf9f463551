"""The client side of WebSub: finding hubs, publishing, and subscribing."""

from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlencode

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.client.web import ClientError
from rsscloud_broker.client.websub import (
    RETRY_AFTER,
    HubSubscriber,
    ReceivedContent,
    find_hub,
    hub_of,
    publish,
)
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.web.hub_calls import HubCallbacks
from rsscloud_broker.wire.websub import sign
from tests.client.recording import Answer, Server, web_to

TOPIC = "http://feeds.example/blog/rss.xml"
HUB = "http://broker.example/websub"
ME = "http://reader.example:8080/"
ACCEPTED = Answer(b"Thanks.\n", 202)
HTML = {"Content-Type": "text/html"}
ATOM = b"<feed xmlns='http://www.w3.org/2005/Atom'>%b</feed>"
RSS = b"<rss xmlns:atom='http://www.w3.org/2005/Atom'><channel>%b</channel></rss>"
LINKS = b"<%blink rel='hub' href='%b'/><%blink rel='self' href='/feed'/>"


class WebSubTestCase(SynchronousTestCase):
    def result(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.successResultOf(work)

    def complaint(self, work: Coroutine[Any, Any, Any]) -> str:
        return str(self.failureResultOf(work, ClientError).value)


class FindHubTests(WebSubTestCase):
    """WebSub, section 4: discovery."""

    def find(self, answer: Answer) -> Any:
        return self.result(find_hub(web_to(Server(answer)), TOPIC))

    def assert_none(self, answer: Answer, reason: str = "names no hub") -> None:
        self.assertIn(reason, self.complaint(find_hub(web_to(Server(answer)), TOPIC)))

    def test_in_headers(self) -> None:
        """4: Link headers take precedence over the document; URLs may be relative.

        A topic need not name itself, and some links are no URLs.
        """
        inside = ATOM % (LINKS % (b"", b"http://inside.example/", b""))
        other = "<http://other.example/>; rel=hub"
        for link, own in (
            (f'</a>; rel="next self", <{HUB}>; rel=hub, {other}', "http://feeds.example/a"),
            (f"<http://[>; rel=hub, <//[>; rel=self, <{HUB}>; rel=hub", TOPIC),
            (f"<{HUB}>;rel=hub", TOPIC),
        ):
            self.assertEqual(self.find(Answer(inside, headers={"Link": link})), (HUB, own))

    def test_in_a_feed_in_the_encoding_of_the_header(self) -> None:
        feed = ATOM % (b"<title>\xe9t\xe9</title>" + LINKS % (b"", HUB.encode(), b""))
        kind = {"Content-Type": "application/atom+xml; charset=iso-8859-1"}
        found = self.find(Answer(feed, headers=kind))
        self.assertEqual(found, (HUB, "http://feeds.example/feed"))

    def test_in_feeds(self) -> None:
        for feed in (
            ATOM % (LINKS % (b"", HUB.encode(), b"")),
            RSS % (LINKS % (b"atom:", HUB.encode(), b"atom:")),
        ):
            for headers in ({}, {"Link": "nonsense"}, {"Link": "</x>; rel=alternate"}):
                found = self.find(Answer(feed, headers=headers))
                self.assertEqual(found, (HUB, "http://feeds.example/feed"))

    def test_within_a_base(self) -> None:
        """RFC 4287, section 2, has ``xml:base``; HTML has the element ``base``."""
        links = LINKS % (b"", b"hub", b"")
        for base in (b"http://site.example/a/", b"//site.example/a/"):
            feed = ATOM.replace(b"<feed", b"<feed xml:base='%b'" % base) % links
            page = b"<head><base href='%b'>%b</head><body>" % (base, links)
            for answer in (Answer(feed), Answer(page, headers=HTML)):
                expected = ("http://site.example/a/hub", "http://site.example/feed")
                self.assertEqual(self.find(answer), expected)

    def test_in_json_feeds(self) -> None:
        feed = (
            b'{"version": "https://jsonfeed.org/version/1.1", "items": [], "hubs": ['
            b'{"type": "rssCloud", "url": "http://cloud.example/"},'
            b'{"type": "WebSub", "url": "%b"}]%b}'
        )
        answer = Answer(feed % (HUB.encode(), b', "feed_url": "http://feeds.example/feed"'))
        self.assertEqual(self.find(answer), (HUB, "http://feeds.example/feed"))
        self.assertEqual(self.find(Answer(feed % (HUB.encode(), b""))), (HUB, TOPIC))
        for body in (feed % (b"", b""), b"{}", b"{"):
            self.assert_none(Answer(body))

    def test_in_pages(self) -> None:
        head = b"<head>%b</head>" % (LINKS % (b"", b"/hub", b""))
        for page in (
            head + b"<body><p>",
            b"<!doctype html>" + head,
            b"<html xmlns='http://www.w3.org/1999/xhtml'>%b<body/></html>" % head,
        ):
            found = self.find(Answer(page, headers={"Content-Type": "text/html; charset=utf-8"}))
            self.assertEqual(found, ("http://feeds.example/hub", "http://feeds.example/feed"))

    def test_what_does_not_count(self) -> None:
        """Links in entries, in the body of a page, or in another namespace do not count."""
        link = f"<link rel='hub' href='{HUB}'/>".encode()
        for answer in (
            Answer(ATOM % (b"<entry>%b</entry>" % link)),
            Answer(RSS % link),
            Answer(b"<body>%b<p>" % link, headers=HTML),
            Answer(b"", headers=HTML),
            Answer(b'<head><base href="http://["><link rel="hub" href="http://[">', headers=HTML),
            Answer(b"<head>%b" % link, headers={"Content-Type": "text/plain"}),
        ):
            self.assert_none(answer)
        self.assert_none(Answer(b"", 404), "HTTP status 404")


class PublishTests(WebSubTestCase):
    def test_accepted(self) -> None:
        server = Server(ACCEPTED)
        said = self.result(publish(web_to(server), hub_of("http://b.example/"), [TOPIC, "x:é"]))
        self.assertEqual((said, server.asked[0].uri), ("Thanks.", "/websub"))
        self.assertEqual(
            server.asked[0].args,
            {b"hub.mode": [b"publish"], b"hub.url": [TOPIC.encode(), "x:é".encode()]},
        )
        said = self.result(publish(web_to(Server(Answer(b"", 204))), HUB, [TOPIC]))
        self.assertEqual(said, "The answer was HTTP status 204.")

    def test_refused(self) -> None:
        """5.1.2: a hub answers 202, or 204 if it is a PubSubHubbub hub; a page answers 200."""
        for answer, said in (
            (Answer(b"Not\x1b today.\n", 403), "403: Not today."),
            (Answer(b"Welcome!\n", 200), "200: Welcome!"),
        ):
            complaint = self.complaint(publish(web_to(Server(answer)), HUB, [TOPIC]))
            self.assertEqual(complaint, f"{HUB}: answered with HTTP status {said}")


class SubscriberTests(WebSubTestCase):
    """WebSub, sections 5 and 7, on the subscriber's side."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.hub = Server(ACCEPTED)
        self.told: list[str] = []
        self.received: list[ReceivedContent] = []
        self.be_subscriber()

    def be_subscriber(self, secret: str = "") -> None:
        web = web_to(self.hub, self.clock)
        told, received = self.told.append, self.received.append
        self.subscriber = HubSubscriber(web, self.clock, received, told, secret)
        self.callbacks = web_to(HubCallbacks(self.subscriber))

    def subscribed(self, lease: int) -> str:
        """Subscribe for some seconds, and return the callback."""
        callback = self.subscribe()
        self.verify(callback, lease_seconds=str(lease))
        return callback

    def subscribe(self) -> str:
        """Subscribe, and return the callback that the hub has got."""
        self.assertEqual(self.result(self.subscriber.subscribe(HUB, TOPIC, ME)), "Thanks.")
        callback = self.asked["hub.callback"]
        self.assertTrue(callback.startswith(ME) and len(callback) > len(ME) + 15, callback)
        return callback

    @property
    def asked(self) -> dict[str, str]:
        """The last request to the hub."""
        args = self.hub.asked[-1].args
        return {name.decode(): values[0].decode() for name, values in args.items()}

    def verify(self, callback: str, mode: str = "subscribe", **fields: str) -> OutboundReply:
        query = {"hub.mode": mode, "hub.topic": TOPIC, "hub.challenge": "<x91>é"}
        query |= {f"hub.{name}": value for name, value in fields.items()}
        reply: OutboundReply = self.result(self.callbacks.get(f"{callback}?{urlencode(query)}"))
        return reply

    def deliver(self, callback: str, body: bytes, **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        reply: OutboundReply = self.result(self.callbacks.post(callback, named, body))
        return reply.status

    def test_subscription_is_confirmed(self) -> None:
        callback = self.subscribe()
        self.assertEqual(
            self.asked, {"hub.mode": "subscribe", "hub.topic": TOPIC, "hub.callback": callback}
        )
        reply = self.verify(callback, lease_seconds="600")
        self.assertEqual((reply.status, reply.body), (200, "<x91>é".encode()))
        self.assertEqual(self.told, [f"{TOPIC}: subscribed for 600 seconds"])

    def test_what_was_not_asked_for_is_not_confirmed(self) -> None:
        callback = self.subscribe()
        for url, mode, topic in (
            (f"{ME}other", "subscribe", TOPIC),
            (callback, "unsubscribe", TOPIC),
            (callback, "subscribe", "http://other.example/"),
        ):
            reply = self.verify(url, mode, topic=topic)
            self.assertEqual(reply.status, 404)
            self.assertNotIn(b"x91", reply.body)
        self.assertEqual(self.verify(callback, "nonsense").status, 400)
        self.assertEqual(self.deliver(f"{ME}other", b"content"), 410)
        self.assertEqual((self.told, self.received), ([], []))

    def test_deliveries(self) -> None:
        callback = self.subscribe()
        self.assertEqual(self.deliver(callback, b"\xff\0", Content_Type="text/xml"), 202)
        self.assertEqual(self.received, [ReceivedContent(TOPIC, b"\xff\0", "text/xml", None)])

    def test_signatures(self) -> None:
        """7.1: a content with a wrong signature gets the same answer."""
        self.be_subscriber("sesame")
        callback = self.subscribe()
        self.assertEqual(self.asked["hub.secret"], "sesame")
        for signature in (sign(b"new", "sesame", "sha512"), sign(b"new", "other"), ""):
            self.assertEqual(self.deliver(callback, b"new", X_Hub_Signature=signature), 202)
        self.assertEqual([each.signed for each in self.received], [True, False, False])

    def test_denial(self) -> None:
        """5.2: the hub denies the subscription with a reason; or it does not take the request."""
        callback = self.subscribe()
        self.assertEqual(self.verify(callback, "denied", reason="gone\r\n").status, 200)
        self.assertEqual(self.told, [f"{TOPIC}: the hub refused or ended the subscription: gone"])
        self.result(self.subscriber.unsubscribe())
        self.assertEqual(len(self.hub.asked), 1)
        self.hub.answers = [Answer(b"No.", 400)]
        self.assertIn("400: No.", self.complaint(self.subscriber.subscribe(HUB, TOPIC, ME)))
        self.assertEqual(self.verify(self.asked["hub.callback"]).status, 404)

    def test_renewal(self) -> None:
        """5.1: the subscriber renews, with the same callback, before the lease ends."""
        callback = self.subscribed(1000)
        self.hub.answers = [Answer(b"Later.", 503), ACCEPTED]
        self.clock.advance(750)
        self.assertEqual(len(self.hub.asked), 2)
        self.assertIn("the hub did not take the subscription", self.told[-1])
        for asked in (3, 4):  # as long as the hub does not verify it
            self.clock.advance(RETRY_AFTER)
            self.assertEqual(len(self.hub.asked), asked)
        mode, again = self.asked["hub.mode"], self.asked["hub.callback"]
        self.assertEqual((mode, again), ("subscribe", callback))
        self.verify(callback, lease_seconds="1000")
        self.clock.advance(749)
        self.assertEqual(len(self.hub.asked), 4)
        self.clock.advance(1)
        self.assertEqual(len(self.hub.asked), 5)

    def test_leaving(self) -> None:
        """5.1: the subscriber unsubscribes, and confirms that, too."""
        callback = self.subscribed(600)
        leaving = Deferred.fromCoroutine(self.subscriber.unsubscribe())
        self.assertNoResult(leaving)
        self.assertEqual(self.asked["hub.mode"], "unsubscribe")
        self.assertEqual(self.verify(callback, "unsubscribe").body, "<x91>é".encode())
        self.clock.advance(0.1)
        self.successResultOf(leaving)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_leaving_a_hub_that_does_not_ask(self) -> None:
        self.subscribed(600)
        leaving = Deferred.fromCoroutine(self.subscriber.unsubscribe())
        self.clock.advance(5.0)
        self.successResultOf(leaving)
        self.assertIn("did not verify the intent within 5 seconds", self.told[-1])
