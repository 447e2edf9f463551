"""Notifications of ResourceSync sources over HTTP, and the broker's own documents."""

from __future__ import annotations

from functools import partial

from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.config import Http, NoOptions
from rsscloud_broker.config.building import ConfigError, build
from rsscloud_broker.errors import Forbidden, TooMany, TopicUnreadable, Unavailable
from rsscloud_broker.front_doors.resourcesync import (
    MAX_LINK,
    AllowedPublisher,
    ResourceSyncDoor,
    ResourceSyncOptions,
)
from rsscloud_broker.front_doors.websub import WebSubDoor
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import IPushesContent
from rsscloud_broker.model import Content
from rsscloud_broker.plugins import bundled
from rsscloud_broker.testing import FakeBroker, front_door_parts
from rsscloud_broker.testing.clock import Clock
from tests.front_doors.exchange import Answer, ask, connected

BROKER = "http://broker.example"
HUB = f"{BROKER}/websub"
SOURCE = "http://source.example"
TOPIC = f"{SOURCE}/dataset1/framework/"
CAPABILITY_LIST = f"{SOURCE}/dataset1/capabilitylist.xml"

TOKEN = "correct-horse-battery"
OTHER_TOKEN = "staple-of-another-source"
INSIDE, OUTSIDE = "192.0.2.7", "198.51.100.7"

PUBLISHERS = (
    AllowedPublisher(f"{SOURCE}/", token=TOKEN),
    AllowedPublisher("http://other.example/", token=OTHER_TOKEN),
    AllowedPublisher("http://near.example/", networks=("192.0.2.0/24",)),
    AllowedPublisher("http://both.example/", token=TOKEN, networks=("192.0.2.0/24",)),
)

OPENING = (
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    ' xmlns:rs="http://www.openarchives.org/rs/terms/">'
)
MD = '<rs:md capability="framework-notification"/>'
URL = (
    f"<url><loc>{SOURCE}/dataset1/resourcelist.xml</loc>"
    '<rs:md change="created" capability="resourcelist"/></url>'
)
PAYLOAD = f"{OPENING}{MD}{URL}</urlset>".encode()


def link(topic: str = TOPIC, hub: str = HUB, capability_list: str = CAPABILITY_LIST) -> str:
    return f'<{topic}> ; rel="self", <{hub}> ; rel="hub", <{capability_list}> ; rel="resourcesync"'


class DoorTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.broker = FakeBroker()
        self.directory = FilePath(self.mktemp())
        self.directory.makedirs()
        self.build(ResourceSyncOptions(PUBLISHERS))

    def build(self, options: ResourceSyncOptions, has_hub: bool = True) -> None:
        clock = Clock()
        parts = front_door_parts(
            broker=self.broker,
            clock=clock,
            public_directory=self.directory,
            public_url=BROKER,
            has_hub=has_hub,
        )
        doors = [ResourceSyncDoor(options, parts), WebSubDoor(NoOptions(), parts)]
        self.factory = bounded_site(Root(doors, BROKER), HTTPLimits(Http(), clock))
        self.ask = partial(ask, self.factory)

    def notify(
        self,
        body: bytes = PAYLOAD,
        *,
        path: str = "/websub",
        peer: str = OUTSIDE,
        without: str = "",
        **headers: str,
    ) -> Answer:
        sent = {
            "Content-Type": "application/xml",
            "Link": link(),
            "Authorization": f"Bearer {TOKEN}",
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        sent.pop(without, None)
        return self.ask("POST", path, body, sent, source=peer)

    def assert_refused(self, answer: Answer, status: int, text: str) -> None:
        self.assertEqual(answer.status, status, answer.text)
        self.assertEqual(answer.headers.get_content_type(), "text/plain")
        self.assertIn(text, answer.text)
        self.assertEqual(self.broker.pushed, [])


class TakenInTests(DoorTestCase):
    def test_byte_for_byte(self) -> None:
        body = b'\xef\xbb\xbf\n<?xml version="1.0" encoding="UTF-8"?>\n<!-- x -->' + PAYLOAD
        content_type = 'application/xml; charset="UTF-8"'
        answer = self.notify(body, Content_Type=content_type)
        self.assertEqual((answer.status, answer.text), (202, "The notification was accepted.\n"))
        self.assertEqual(self.broker.pushed, [(TOPIC, Content(body, content_type, link()))])

    def test_at_every_path(self) -> None:
        paths = ("/websub", "/hub", "/pubsubhubbub")
        for path in (*paths, *(f"{path}/" for path in paths), "/resourcesync"):
            for kind in ("application/xml", "text/xml; charset=utf-8", "TEXT/XML"):
                self.assertEqual(self.notify(path=path, Content_Type=kind).status, 202, path)
        spelled = "HTTP://Broker.example:80/websub"
        for hub in (spelled, *(f"{BROKER}{path}{end}" for path in paths for end in ("", "/"))):
            self.assertEqual(self.notify(Link=link(hub=hub)).status, 202, hub)

    def test_several_link_headers(self) -> None:
        values = link().split(", ")
        lines = "".join(f"Link: {value}\r\n" for value in values)
        head = f"POST /websub HTTP/1.1\r\nHost: x\r\nContent-Length: {len(PAYLOAD)}\r\n{lines}"
        head += f"Content-Type: text/xml\r\nAuthorization: bearer {TOKEN}\r\n\r\n"
        exchange = connected(self.factory, OUTSIDE)
        exchange.send(head.encode() + PAYLOAD)
        self.assertEqual(exchange.answer().status, 202)
        self.assertEqual(self.broker.pushed[0][1].link, link())

    def test_change_notification(self) -> None:
        body = PAYLOAD.replace(b"framework-", b"change-").replace(b'capability="resourcelist"', b"")
        self.assertEqual(self.notify(body).status, 202)

    def test_nobody_has_subscribed(self) -> None:
        self.broker.changed = False
        answer = self.notify()
        self.assertEqual(answer.status, 202)
        self.assertIn(f"Nobody has subscribed to {TOPIC} now.", answer.text)

    def test_warnings(self) -> None:
        answer = self.notify(PAYLOAD.replace(b"created", b"deleted"))
        self.assertEqual(answer.status, 202)
        self.assertIn("Warning: http://source.example/dataset1/resourcelist.xml: ", answer.text)
        self.assertIn("a resourcelist that was deleted is unusual", answer.text)
        self.assertEqual(len(self.broker.pushed), 1)

    def test_without_a_link_to_the_capability_list(self) -> None:
        value = link().replace("resourcesync", "up")
        answer = self.notify(Link=value)
        self.assertEqual(answer.status, 202)
        self.assertIn("Warning: the Link header has no link with rel=resourcesync", answer.text)
        self.assertEqual(self.broker.pushed[0][1].link, value)

    def test_forms_go_to_websub(self) -> None:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = self.ask("POST", "/websub", b"hub.mode=dance", form)
        self.assertEqual(answer.status, 400)
        self.assertIn("hub.mode", answer.text)


class PublisherTests(DoorTestCase):
    """Only publishers that the operator has named may push."""

    def test_by_default_nobody(self) -> None:
        self.build(ResourceSyncOptions())
        self.assert_refused(self.notify(), 403, f"Nobody may publish {TOPIC} here")

    def test_topics_of_others(self) -> None:
        for topic in ("http://source.example.evil/", "https://source.example/", "http://x/"):
            self.assert_refused(self.notify(Link=link(topic)), 403, "Nobody may publish")
        topic = link("http://other.example/framework/")
        self.assert_refused(self.notify(Link=topic), 401, "send its publisher's token")

    def test_tokens(self) -> None:
        for authorization in (
            *("", "Bearer", "Bearer ", f"Bearer {OTHER_TOKEN}", f"Bearer {TOKEN}x"),
            *(f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer \xfc\xfc\xfc"),
        ):
            answer = self.notify(Authorization=authorization)
            self.assert_refused(answer, 401, "Authorization: Bearer TOKEN")
            self.assertEqual(answer.headers["WWW-Authenticate"], 'Bearer realm="resourcesync"')
            self.assertNotIn(TOKEN, answer.text)
        self.assert_refused(self.notify(without="Authorization"), 401, "token")
        for scheme in ("Bearer", "bearer", "BEARER  "):
            self.assertEqual(self.notify(Authorization=f"{scheme} {TOKEN}").status, 202)

    def test_networks(self) -> None:
        topic = link("http://near.example/x")
        refused = self.notify(Link=topic, without="Authorization")
        self.assert_refused(refused, 403, f"not be published from the address {OUTSIDE}")
        for peer in (INSIDE, f"::ffff:{INSIDE}"):
            taken = self.notify(Link=topic, peer=peer, without="Authorization")
            self.assertEqual(taken.status, 202, peer)

    def test_both(self) -> None:
        topic = link("http://both.example/x")
        self.assert_refused(self.notify(Link=topic), 403, "from the address")
        self.assert_refused(
            self.notify(Link=topic, peer=INSIDE, without="Authorization"), 401, "token"
        )
        self.assertEqual(self.notify(Link=topic, peer=INSIDE).status, 202)

    def test_two_publishers_of_one_topic(self) -> None:
        self.build(ResourceSyncOptions((*PUBLISHERS, AllowedPublisher(TOPIC, token=OTHER_TOKEN))))
        for token in (TOKEN, OTHER_TOKEN):
            self.assertEqual(self.notify(Authorization=f"Bearer {token}").status, 202)


class RefusalTests(DoorTestCase):
    """Bad input is refused with the reason, and changes nothing."""

    def test_links(self) -> None:
        for value, text in (
            ("", "exactly one link with rel=self, the topic; it has 0"),
            (link().replace("self", "me"), "exactly one link with rel=self, the topic; it has 0"),
            (f"{link()}, <http://x/>; rel=self", "with rel=self, the topic; it has 2"),
            (link("/dataset1/"), "rel=self leads to /dataset1/; it must be an absolute"),
            (link(TOPIC + "x" * 2048), "2048 characters at most"),
            (f"{link()}, <http://x/>; rel=resourcesync", "the capability list; it has 2"),
            (link(capability_list="capabilitylist.xml"), "rel=resourcesync leads to capability"),
            (link().replace('"hub"', "huub"), "rel=hub to this hub, http://broker.example/websub"),
            (link(hub="http://hub.example/websub"), "it has http://hub.example/websub"),
            (link(hub=f"{BROKER}/other"), f"it has {BROKER}/other"),
            (link().replace("<", ""), "a link begins with its URL in angle brackets"),
            (link() + "; title=\xfc", "visible ASCII"),
            (f"{link()}; title={'x' * MAX_LINK}", f"{MAX_LINK} at most can be sent on"),
        ):
            self.assert_refused(self.notify(Link=value), 400, text)
        self.assert_refused(self.notify(without="Link"), 400, "There is no Link header")

    def test_payloads(self) -> None:
        answer = self.notify(PAYLOAD.replace(MD.encode(), b""))
        self.assert_refused(answer, 400, "The notification cannot be used: ")
        self.assertIn("0 rs:md elements; it must have exactly one", answer.text)

    def test_other_types(self) -> None:
        for kind in (
            *("application/atom+xml", "application/json", ""),
            *("application/xml; x=\xfc", f"application/xml; x={'x' * 255}"),
        ):
            answer = self.notify(path="/resourcesync", Content_Type=kind)
            self.assert_refused(answer, 415, "application/xml")

    def test_what_the_broker_refuses(self) -> None:
        for error, status in (
            (Forbidden("this topic is blocked here"), 403),
            (TopicUnreadable(TOPIC, "the URL names no host"), 400),
            (TooMany("too many", 7), 429),
            (Unavailable("the disk is full"), 503),
        ):
            self.broker.failures["push_content"] = error
            self.assertEqual(self.notify().status, status)
        self.assertEqual(self.broker.pushed, [])


class DocumentTests(DoorTestCase):
    paths = (
        "/.well-known/resourcesync",
        "/resourcesync/capabilitylist.xml",
        "/resourcesync/resourcelist.xml",
        "/resourcesync/changelist.xml",
        "/resourcesync/notification.xml",
    )

    def test_they_are_served(self) -> None:
        for path in self.paths:
            early = self.ask("GET", path)
            self.assertEqual((early.status, early.headers["Retry-After"]), (503, "60"))
            file = self.directory.descendant(path[1:].split("/"))
            file.parent().makedirs(ignoreExistingDirectory=True)
            file.setContent(b"<urlset/>")
            answer = self.ask("HEAD", path)
            self.assertEqual((answer.status, answer.headers["Content-Length"]), (200, "9"))
            self.assertEqual(answer.headers.get_content_type(), "text/xml")
            links = f'<{HUB}>; rel="hub", <{BROKER}{path}>; rel="self"'
            self.assertEqual(answer.headers["Link"], links)

    def test_nothing_else_is(self) -> None:
        self.directory.descendant([".well-known"]).makedirs()
        self.directory.descendant([".well-known", "resourcesync.gz"]).setContent(b"")
        for path in ("/.well-known/resourcesync.gz", "/.well-known/", "/resourcesync/x"):
            self.assertEqual(self.ask("GET", path).status, 404)

    def test_without_a_hub_nothing_can_be_subscribed_to(self) -> None:
        self.build(ResourceSyncOptions(), has_hub=False)
        for path in self.paths:
            self.assertNotIn("Link", self.ask("GET", path).headers)


class OptionsTests(SynchronousTestCase):
    def test_a_list_of_tables(self) -> None:
        networks = ["192.0.2.7", "2001:db8::/32"]
        table = [
            {"topic": "https://a.example/", "token": TOKEN},
            {"topic": "https://b.example/x", "networks": networks},
        ]
        expected = (
            AllowedPublisher("https://a.example/", TOKEN),
            AllowedPublisher("https://b.example/x", networks=tuple(networks)),
        )
        found = build(ResourceSyncOptions, {"publishers": table}, "")
        self.assertEqual(found.publishers, expected)

    def test_topics_of_publishers_are_pushed(self) -> None:
        self.assertTrue(verifyObject(IPushesContent, bundled.resourcesync))
        self.assertEqual(
            bundled.resourcesync.pushed_prefixes(ResourceSyncOptions(PUBLISHERS), BROKER, True),
            tuple(publisher.topic for publisher in PUBLISHERS),
        )

    def test_tokens_are_not_shown(self) -> None:
        self.assertNotIn(TOKEN, repr(ResourceSyncOptions(PUBLISHERS)))

    def test_refusals(self) -> None:
        topic = "https://a.example/"
        for publisher, text in (
            ({"topic": topic}, "[0]]: a publisher needs a token or networks, or both"),
            ({"token": TOKEN}, "[0]] topic: missing"),
            ({"topic": "https://a.example", "token": TOKEN}, "[0]] topic: is 'https://a.example'"),
            ({"topic": "a.example/", "token": TOKEN}, "with a whole host"),
            ({"topic": topic, "token": "short"}, "[0]] token: must have 16 characters"),
            ({"topic": topic, "token": f"{TOKEN} x"}, "without blanks"),
            ({"topic": topic, "networks": ["10.0.0.1/8"]}, "[0]] networks: has '10.0.0.1/8'"),
            ({"topic": topic, "tokn": TOKEN}, "tokn: unknown key; the nearest known is 'token'"),
            ("x", "publishers[0]: must be a table"),
        ):
            table = {"publishers": [publisher]}
            with self.assertRaises(ConfigError) as caught:
                build(ResourceSyncOptions, table, "", path=("front_doors", "rs"))
            self.assertIn(text, str(caught.exception))
