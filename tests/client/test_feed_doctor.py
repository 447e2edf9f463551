"""The doctor for feeds: clouds, hubs, subscribers, deadlines and limits."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from rsscloud_broker.client import feed_doctor
from rsscloud_broker.client.feed_doctor import AT_A_TIME, FeedDoctor, examine
from rsscloud_broker.client.feed_push import OwnBroker
from rsscloud_broker.client.feed_requests import make_ask
from rsscloud_broker.errors import AddressRefused, OutboundError, OwnAddress, TooMany, Unavailable
from rsscloud_broker.interfaces import FeedReport, OutboundReply
from rsscloud_broker.interfaces.views import Kind
from rsscloud_broker.testing import Clock, reply
from rsscloud_broker.testing.parsing import parse_here
from tests.client.test_feed_state import FindingsCase
from tests.e2e.servers import FEED

HERE = "https://site.example/feed.xml"
URL = "https://broker.example"
BROKER = OwnBroker(URL, frozenset({"http-post", "xml-rpc"}), True)
OWN_CLOUD = '<cloud domain="{}" port="{}" path="{}" registerProcedure="{}" protocol="{}"/>'
HUB = '<link xmlns="http://www.w3.org/2005/Atom" rel="hub" href="{}"/>'
SELF = f'<link xmlns="http://www.w3.org/2005/Atom" rel="self" href="{HERE}"/>'


class FeedDoctorTestCase(FindingsCase):
    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        self.refused: dict[str, Exception] = {}
        self.admitted: list[tuple[str, str]] = []
        ask = make_ask(self.outbound, self.clock)
        self.doctor = FeedDoctor(ask, self.clock, BROKER, self.admit, parse_here)

    def admit(self, url: str, source: str) -> str:
        self.admitted.append((url, source))
        if url in self.refused:
            raise self.refused[url]
        return url

    def publish(self, *elements: str, **headers: str) -> None:
        headers = {"content_type": "application/rss+xml", "etag": '"1"', **headers}
        body = FEED % "".join(elements).encode()
        self.outbound.answers[HERE] = lambda request: reply(
            304 if request.headers.get("if-none-match") else 200, body, **headers
        )

    def begin(self, url: str = HERE, source: str = "192.0.2.1") -> Deferred[FeedReport]:
        return Deferred.fromCoroutine(self.doctor.examine(url, source))

    def report(self) -> FeedReport:
        return self.successResultOf(self.begin())

    def refused_report(self, source: str) -> str:
        return str(self.failureResultOf(self.begin(source=source), TooMany).value)


class OwnTests(FeedDoctorTestCase):
    """Feeds that name the broker which examines them."""

    def test_named_rightly(self) -> None:
        self.publish(
            OWN_CLOUD.format("broker.example", 443, "/rsscloud/pleaseNotify", "", "https-post"),
            OWN_CLOUD.format("broker.example", 443, "/RPC2", "x", "xml-rpc"),
            OWN_CLOUD.format("broker.example", 443, "/XMLRPC.php", "x", "xml-rpc"),
            OWN_CLOUD.format("broker.example", 443, "/soap", "x", "soap"),
            HUB.format("https://BROKER.example:443/websub"),
        )
        report = self.report()
        own = [finding.text for finding in report.of("good") if "is this broker" in finding.text]
        self.assertEqual(len(own), 5, report)
        self.assert_silent("this broker", "missing")
        # The broker does not call itself.
        self.assertEqual({request.url for request in self.outbound.requests}, {HERE})

    def test_another_port_or_scheme(self) -> None:
        """That may be another program on the same machine, so it is asked."""
        for port, given in ((80, reply(301, location="https://broker.example/")), (81, reply())):
            url = f"http://broker.example{'' if port == 80 else f':{port}'}/RPC2"
            self.outbound.answers[url] = given
            self.publish(OWN_CLOUD.format("broker.example", port, "/RPC2", "x", "xml-rpc"))
            kind: Kind = "good" if port == 81 else "wrong"
            self.assert_finding(kind, "cloud", url, f"status {given.status}")
            self.assert_finding("missing", "this broker", "https://broker.example/rsscloud/")

    def test_another_address(self) -> None:
        """The guard knows the broker's own addresses, by whatever name they are called."""
        self.outbound.answers["http://192.0.2.9/hub"] = OwnAddress("this broker itself")
        self.publish(HUB.format("http://192.0.2.9/hub"))
        self.assert_finding("missing", "hub", "leads to this broker", "https://broker.example")

    def test_named_wrongly(self) -> None:
        """At another path, at a broker below a path, or at one without hub and rssCloud."""
        below = OwnBroker("https://broker.example/b", frozenset({"soap"}), True)
        off = OwnBroker("https://broker.example", frozenset(), False)
        hub = HUB.format("https://broker.example/websub")
        cloud = OWN_CLOUD.format("broker.example", 443, "/{}", "x", "xml-rpc")
        rows: tuple[tuple[OwnBroker, str, Kind, str, list[str]], ...] = (
            (BROKER, hub.replace("websub", "hubs"), "wrong", "hub", [f"write {URL}/websub"]),
            (BROKER, cloud.format("RPC3"), "wrong", "cloud", ["by xml-rpc", "/RPC2"]),
            (off, hub, "wrong", "hub", ["turned the hub off"]),
            (off, cloud.format("RPC2"), "wrong", "cloud", ["turned rssCloud off"]),
            (below, hub.replace("websub", "b/websub"), "good", "hub", ["is this broker"]),
        )
        for self.doctor.broker, element, kind, subject, parts in rows:
            self.publish(element)
            self.assert_finding(kind, subject, *parts)


class OthersTests(FeedDoctorTestCase):
    """Clouds and hubs of others are asked."""

    def named(self, given: OutboundReply | Exception) -> None:
        self.outbound.answers["https://hub.example/"] = given
        self.publish(HUB.format("https://hub.example/"))

    def test_they_answer(self) -> None:
        for status in (200, 202, 400, 405):
            self.named(reply(status))
            self.assert_finding("good", "hub", "https://hub.example/", f"status {status}")
        self.assert_finding("missing", "this broker", "https://broker.example/websub as the hub")

    def test_what_is_wrong_with_them(self) -> None:
        for given, reason in (
            (reply(404), "there is no hub at this address"),
            (reply(503), "fails at present"),
            (reply(301, location="https://new.example/"), "a redirect to https://new.example/"),
            (OutboundError("the name does not resolve"), "the name does not resolve"),
            (AddressRefused("the address 10.0.0.1 is not public"), "is not public"),
        ):
            self.named(given)
            self.assert_finding("wrong", "hub", reason)

    def test_addresses_that_are_no_urls(self) -> None:
        self.publish(
            '<cloud domain="a:b" port="80" path="/" protocol="http-post"/>',
            link="<http://[>; rel=hub",
        )
        self.assert_finding("wrong", "hub", "http://[ is no URL")
        self.assert_finding("wrong", "feed", "nobody can call the cloud 'http://[a:b]/'")

    def test_one_that_is_silent(self) -> None:
        self.named(reply())
        self.outbound.answers["https://hub.example/"] = lambda _: Deferred()
        examining = self.begin()
        self.assertNoResult(examining)
        self.clock.advance(5.0)
        texts = {each.subject: each.text for each in self.successResultOf(examining).of("wrong")}
        self.assertIn("no whole answer within 5 seconds", texts["hub"])

    def test_they_count_for_the_limits(self) -> None:
        self.named(reply(200))
        self.refused["https://hub.example/"] = TooMany("too many fetches", 5)
        self.assert_finding("missing", "hub", "was not asked", "too many fetches")
        self.assertIn(("https://hub.example/", "192.0.2.1"), self.admitted)
        self.assertNotIn("https://hub.example/", [one.url for one in self.outbound.requests])

    def test_redirects_count_for_the_limits(self) -> None:
        there, farther = "https://there.example/", "https://farther.example/"
        self.outbound.answers |= {
            HERE: reply(302, location=there),
            there: reply(301, location=farther),
        }
        for error in (TooMany("too many fetches", 5), Unavailable("the disk is full")):
            self.refused[farther] = error
            self.assert_finding("missing", "redirect", farther, "was not followed", str(error))
            self.assertIn((there, "192.0.2.1"), self.admitted)
            self.assertNotIn(farther, [one.url for one in self.outbound.requests])

    def test_a_limited_number_is_asked(self) -> None:
        self.publish(*(HUB.format(f"https://hub{n}.example/") for n in range(9)))
        self.report()
        asked = {one.url for one in self.outbound.requests} - {HERE}
        self.assertEqual(len(asked), 6)

    def test_one_in_a_link_header(self) -> None:
        """WebSub subscribers look there first."""
        self.outbound.answers["https://hub.example/"] = reply(202)
        self.publish(link='</other.xml>; rel="self", <https://hub.example/>; rel="hub"')
        self.assert_finding("good", "hub", "https://hub.example/ answers with status 202")
        self.assert_silent("hub", "missing")
        self.assert_finding("wrong", "self link", "/other.xml")
        self.publish(SELF, link='</other.xml>; rel="self"')
        self.assert_finding("wrong", "self link", "make both the same")
        self.publish(link="nonsense")
        self.assert_finding("wrong", "Link", "angle brackets")


class SubscribersTests(FeedDoctorTestCase):
    def test_what_they_get(self) -> None:
        self.publish(SELF)
        size = len(FEED % SELF.encode())
        self.assert_finding("good", "rssCloud subscribers", "(http-post, xml-rpc)", HERE)
        self.assert_finding(
            "good",
            "WebSub subscribers",
            f"all {size} bytes",
            "Content-Type: application/rss+xml",
            f'Link: <https://broker.example/websub>; rel="hub", <{HERE}>; rel="self"',
        )
        self.publish(content_type="")
        self.assert_finding("good", "WebSub subscribers", "application/octet-stream")

    def test_the_topic_after_a_move(self) -> None:
        self.publish()
        old, older = "https://site.example/old", "https://site.example/older"
        self.outbound.answers[old] = reply(302, location="/feed.xml")
        self.outbound.answers[older] = reply(301, location="/old")
        report = self.successResultOf(self.begin(older))
        told = {one.subject: one.text for one in report.findings}
        self.assertIn(f"only the address {old},", told["rssCloud subscribers"])

    def test_without_a_broker(self) -> None:
        """The command need not know any broker: then those that the feed names count."""
        self.outbound.answers["https://hub.example/"] = reply(202)
        self.publish(
            HUB.format("https://hub.example/"),
            OWN_CLOUD.format("cloud.example", 80, "/RPC2", "x", "xml-rpc"),
        )
        ask = make_ask(self.outbound, self.clock)
        report = self.successResultOf(examine(ask, self.clock, HERE))
        subjects = {one.subject: one.text for one in report.findings}
        self.assertIn("by rssCloud (xml-rpc)", subjects["rssCloud subscribers"])
        self.assertIn("<https://hub.example/>", subjects["WebSub subscribers"])
        self.assertNotIn("this broker", subjects)


class AnswerTests(FeedDoctorTestCase):
    def test_no_answer(self) -> None:
        self.outbound.answers[HERE] = OutboundError("no connection")
        self.assert_finding("wrong", "answer", "cannot be fetched", "no connection")

    def test_deadline(self) -> None:
        self.outbound.answers[HERE] = lambda _: Deferred()
        examining = self.begin()
        self.clock.advance(20.0)
        (found,) = self.successResultOf(examining).findings
        self.assertIn("no whole answer within 20 seconds", found.text)

    def test_compressed(self) -> None:
        self.outbound.answers[HERE] = OutboundReply(200, {}, FEED % b"", HERE, compressed=True)
        self.assert_finding("good", "gzip", "compresses")


class LimitTests(FeedDoctorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.outbound.answers[HERE] = lambda _: Deferred()

    def test_refused(self) -> None:
        self.refused[HERE] = TooMany("too often", 7)
        self.failureResultOf(self.begin(), TooMany)
        self.assertEqual(self.outbound.requests, [])

    def test_per_source(self) -> None:
        waiting = [self.begin() for _ in range(2)]
        self.assertIn("for your address", self.refused_report("192.0.2.1"))
        self.begin(source="192.0.2.2")
        self.clock.advance(20.0)
        for each in waiting:
            self.successResultOf(each)
        self.assertNoResult(self.begin())  # there is room again

    def test_in_all(self) -> None:
        for number in range(AT_A_TIME):
            self.assertNoResult(self.begin(source=f"192.0.2.{number}"))
        self.assertIn(f"{AT_A_TIME} feeds", self.refused_report("192.0.2.99"))

    def test_memory(self) -> None:
        """The answers of all examinations under way are counted together."""
        self.publish()
        self.patch(feed_doctor, "MAX_BYTES", len(FEED) * 2)
        waiting: Deferred[OutboundReply] = Deferred()
        self.outbound.answers["https://site.example/large"] = reply(301, FEED, location="/slow")
        self.outbound.answers["https://site.example/slow"] = lambda _: waiting
        first = self.begin("https://site.example/large", "192.0.2.2")
        self.assert_finding("wrong", "answer", "no memory left for feeds")
        waiting.callback(reply(404))
        self.successResultOf(first)
        self.assert_silent("answer", "wrong")

    def test_validators_that_cannot_be_sent_back(self) -> None:
        self.publish(etag='"\xa0"')
        self.assert_finding("wrong", "ETag", "cannot be sent back")
        self.assert_silent("ETag", "missing")
        self.assertEqual({len(one.headers) for one in self.outbound.requests}, {0})
        day = "Sat, 21 Nov 2015 07:28:00 GMT"
        self.publish(etag='"\xa0"', last_modified=day)
        self.assert_finding("wrong", "ETag", "cannot be sent back")
        self.assertEqual(self.outbound.requests[-1].headers, {"if-modified-since": day})
