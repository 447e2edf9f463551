"""``saveRss`` by XML-RPC, SOAP and REST: what is stored, and what is refused."""

from __future__ import annotations

import json
import xmlrpc.client
from typing import Any
from xml.sax.saxutils import escape

from rsscloud_broker.apps.hosting.options import HostingOptions
from rsscloud_broker.events import PingAccepted, PingReceived, TopicChanged
from rsscloud_broker.model.administration import Block
from rsscloud_broker.wire.soap import SoapFault
from tests.accounts.fixture import PASSWORD
from tests.apps.hosting.fixture import HTTPS, PATH, URL, HostingHouse, HostingTestCase, a_feed
from tests.front_doors.exchange import Answer, form

STRANGER = "198.51.100.9"
SAVE, FEED = "rssCloud.saveRss", a_feed().decode()
FIELDS = {"username": "dave", "password": PASSWORD, "rsstext": FEED}

#: What is refused in each way, and what is said.
REFUSED = (
    ({"password": "wrong"}, "the name or the password is wrong"),
    ({"rsstext": "<html/>"}, "neither RSS nor Atom"),
)


class SaveRssTests(HostingTestCase):
    def save(self, feed: Any = FEED, name: str = "dave") -> Any:
        return self.house.xmlrpc(SAVE, name, PASSWORD, feed)

    def test_returns_the_public_url(self) -> None:
        self.assertEqual(self.save(), URL)
        self.assertEqual(self.save(name=" Dave "), URL)  # as people type it
        self.assertEqual(self.save(a_feed("2").decode(), "anna"), URL.replace("dave", "anna"))
        answer = self.house.get()
        self.assertEqual((answer.status, answer.body), (200, a_feed()))

    def test_counts_as_a_ping_and_begins_a_fan_out(self) -> None:
        self.house.subscribe(wants_content=True)
        self.save()
        (ping,) = self.house.pings()
        self.assertEqual((ping.name, ping.url, ping.rss_url), (URL, URL, URL))
        (walk,) = self.house.walks()
        self.assertEqual(walk.topic, URL)
        content = self.successResultOf(self.house.broker_store.newest_content(URL))
        assert content is not None
        self.assertEqual(content.body, a_feed())
        self.assertEqual(content.content_type, "application/rss+xml; charset=utf-8")
        kinds = [type(event) for event in self.house.bus.events]
        self.assertEqual(kinds, [PingReceived, TopicChanged])
        (accepted,) = (each for each in self.house.bus.logged if isinstance(each, PingAccepted))
        self.assertEqual((accepted.url, accepted.source), (URL, "192.0.2.7"))
        self.assertEqual(self.house.fetcher.fetched, [])

    def test_same_feed_again_notifies_nobody(self) -> None:
        self.save()
        self.house.subscribe()
        self.assertEqual(self.save(), URL)
        self.assertEqual((len(self.house.pings()), self.house.walks()), (1, []))

    def test_base64_stays_byte_for_byte(self) -> None:
        latin = "<?xml version='1.0' encoding='iso-8859-1'?><rss><channel>é</channel></rss>"
        body = latin.encode("latin-1") + b"\r\n"
        self.save(xmlrpc.client.Binary(body))
        answer = self.house.get()
        self.assertEqual(answer.body, body)
        self.assertEqual(answer.headers["content-type"], "application/rss+xml; charset=iso-8859-1")

    def test_refusals_store_nothing(self) -> None:
        self.house.subscribe()
        for parameters, said in (
            (("dave", "wrong", FEED), "the name or the password is wrong"),
            (("nobody", PASSWORD, FEED), "the name or the password is wrong"),
            (("dave", PASSWORD, "<html/>"), "neither RSS nor Atom"),
            (("dave", PASSWORD, 7), "must be strings"),
            (("dave", PASSWORD, ["x"]), "must be strings"),
            (({}, PASSWORD, FEED), "must be strings"),
            (("dave", PASSWORD), "there aren't enough parameters"),
            (("dave", PASSWORD, FEED, "x"), "there are too many parameters"),
        ):
            self.assertIn(said, self.house.fault(SAVE, *parameters))
        self.assert_nothing_stored()

    def test_blocked_topics_and_sources(self) -> None:
        for kind, blocked in (("topic", URL), ("source", "192.0.2.7")):
            self.house.blocks.change([Block(kind, blocked, "spam", "alice", 1.0)])
            said = self.house.fault(SAVE, "dave", PASSWORD, FEED)
            self.assertIn("blocked here: spam", said)
        self.house.blocks.change([])
        self.assert_nothing_stored()

    def test_full_disk(self) -> None:
        """By REST it has a status of its own, and the form of the other answers."""
        self.house.space.full = True
        document = xmlrpc.client.dumps(("dave", PASSWORD, FEED), SAVE).encode()
        answer = self.house.ask("POST", "/RPC2", document, {"Content-Type": "text/xml"})
        self.assertEqual(answer.status, 503)
        in_xml, in_json = self.rest(), self.rest("application/json")
        for answer in (in_xml, in_json):
            self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "30"))
        self.assertEqual(in_xml.xml.get("success"), "false")
        self.assertIs(json.loads(in_json.body)["success"], False)
        self.house.space.full = False
        self.assert_nothing_stored()

    def test_help_and_the_other_procedures(self) -> None:
        self.assertIn(SAVE, self.house.xmlrpc("system.listMethods"))
        self.assertIs(self.house.xmlrpc("rssCloud.hello"), True)
        self.assertEqual(self.house.xmlrpc("system.methodSignature", SAVE), [["string"] * 4])
        self.assertIn("notifies", self.house.xmlrpc("system.methodHelp", SAVE))

    def test_by_soap(self) -> None:
        self.assertEqual(self.house.soap("saveRss", FIELDS), URL)
        self.assertEqual(self.house.get().body, a_feed())
        for wrong, said in REFUSED:
            error = self.assertRaises(SoapFault, self.house.soap, "saveRss", FIELDS | wrong)
            self.assertEqual(error.code, "Client")
            self.assertIn(said, error.string)
        incomplete = {name: FIELDS[name] for name in ("username", "password")}
        error = self.assertRaises(SoapFault, self.house.soap, "saveRss", incomplete)
        self.assertIn("were missing from the request body: rsstext.", error.string)

    # by REST

    def rest(self, accept: str = "", **fields: Any) -> Answer:
        headers = {"Accept": accept} if accept else {}
        return self.house.form("/rsscloud/saveRss", FIELDS | fields, **headers)

    def test_by_rest(self) -> None:
        answer = self.rest()
        self.assertEqual((answer.status, answer.headers.get_content_type()), (200, "text/xml"))
        said = {"msg": "Thanks for the feed.", "url": URL}
        found = (answer.xml.tag, dict(answer.xml.items()))
        self.assertEqual(found, ("result", {"success": "true", **said}))
        self.assertEqual(self.house.get().body, a_feed())
        answer = self.rest("application/json", rsstext=a_feed("2"))
        self.assertEqual(json.loads(answer.body), {"success": True, **said})
        self.assertEqual(self.rest("image/png").status, 406)
        in_any_case = {"Username": "dave", "PASSWORD": PASSWORD, "rssText": FEED}
        answer = self.house.form("/rsscloud/saveRss", in_any_case)
        self.assertIn('success="true"', answer.text)

    def test_refused_by_rest(self) -> None:
        for fields, said in REFUSED:
            answer = self.rest(**fields)
            self.assertEqual((answer.status, answer.xml.get("success")), (200, "false"))
            self.assertIn(said, answer.xml.get("msg"))
            self.assertIsNone(answer.xml.get("url"))
            answer = self.rest("application/json", **fields)
            self.assertEqual(json.loads(answer.body)["success"], False)
        answer = self.house.form("/rsscloud/saveRss", {"username": "dave"})
        self.assertIn("were missing from the request body: password, rsstext.", answer.text)
        self.assert_nothing_stored()


class PasswordsInPlainTextTests(HostingTestCase):
    def said(self, peer: str, headers: dict[str, str]) -> str:
        sent = {"Content-Type": "application/x-www-form-urlencoded", "Host": "localhost"}
        body = form(**FIELDS)
        answer = self.house.ask("POST", "/rsscloud/saveRss", body, sent | headers, peer)
        return str(answer.xml.get("msg"))

    def test_who_may_send_them(self) -> None:
        """Programs on this machine, and those whose proxy says that they use HTTPS."""
        by_proxy = {"X-Forwarded-For": STRANGER}
        for peer, headers, may in (
            (STRANGER, {}, False),
            (STRANGER, {"X_Forwarded_Proto": "https", **HTTPS}, False),  # which nobody trusts
            ("10.0.0.1", {**by_proxy, "X-Forwarded-Proto": "http"}, False),
            ("10.0.0.1", {**by_proxy, "X-Forwarded-Proto": ""}, True),  # the broker's URL says it
            ("127.0.0.1", {}, True),
            ("127.0.0.1", by_proxy, False),
        ):
            self.house = HostingHouse(self)
            said = self.said(peer, headers)
            self.assertIn("Thanks" if may else "over HTTPS only", said, (peer, headers))
            if not may:
                self.assert_nothing_stored()

    def test_the_operator_may_allow_them(self) -> None:
        self.house = HostingHouse(self, HostingOptions(allow_plain_passwords=True))
        self.assertIn("Thanks", self.said(STRANGER, {}))


class LimitsTests(HostingTestCase):
    options = HostingOptions(saves_per_account=0.03)

    def test_saves_of_an_account_are_limited(self) -> None:
        feeds = [a_feed(str(number)) for number in range(4)]
        for feed in feeds[:3]:
            self.house.xmlrpc(SAVE, "dave", PASSWORD, feed)
        said = self.house.fault(SAVE, "dave", PASSWORD, feeds[3])
        self.assertIn("your account saves too often; try again in", said)
        self.house.xmlrpc(SAVE, "anna", PASSWORD, feeds[0])
        self.house.clock.advance(34)
        self.house.xmlrpc(SAVE, "dave", PASSWORD, feeds[3])
        self.assertEqual(self.house.get(PATH).body, feeds[3])


class LargestFeedTests(HostingTestCase):
    """A feed of exactly the configured size can be saved in each way, and no larger one."""

    def feed(self, size: int) -> bytes:
        """A feed full of a character of which calls and forms make several bytes."""
        empty = a_feed()
        before, after = empty.split(b"<description>")
        return before + b"<description>" + b">" * (size - len(empty)) + after

    # Each way returns what the broker says.

    def xmlrpc(self, feed: bytes) -> str:
        return self.base64(feed.decode())

    def base64(self, feed: str | bytes) -> str:
        try:
            return str(self.house.xmlrpc(SAVE, "dave", PASSWORD, feed))
        except xmlrpc.client.Fault as fault:
            return fault.faultString

    def soap(self, feed: bytes) -> str:
        try:
            return str(self.house.soap("saveRss", FIELDS | {"rsstext": feed.decode()}))
        except SoapFault as fault:
            return fault.string

    def form(self, feed: bytes) -> str:
        return self.house.form("/rsscloud/saveRss", FIELDS | {"rsstext": feed}).text

    def put(self, feed: bytes) -> str:
        answer = self.house.put(feed)
        return answer.headers.get("location", answer.text)

    def test_each_way(self) -> None:
        size = HostingOptions().max_feed_bytes
        for way in (self.put, self.xmlrpc, self.base64, self.soap, self.form):
            said = "larger than 1048576" if way == self.put else "may have 1,048,576"
            self.assertIn(said, way(self.feed(size + 1)))
            self.assertEqual(self.house.get().status, 410 if way != self.put else 404, way)
            self.assertIn(URL, way(self.feed(size)), way)
            self.assertEqual(self.house.get().body, self.feed(size), way)
            self.house.delete()

    def test_the_largest_that_can_be_configured(self) -> None:
        options = HostingOptions(max_feed_bytes=7 * 1024 * 1024)
        self.house = HostingHouse(self, options)
        feed = self.feed(options.max_feed_bytes)
        for way in (self.put, self.xmlrpc, self.base64):
            self.assertEqual(way(feed), URL, way)
            self.house.delete()

    def test_other_calls_and_forms_stay_small(self) -> None:
        answer = self.house.form("/rsscloud/ping", {"url": "x" * 1_100_000})
        self.assertEqual(answer.status, 413)


class DescriptionTests(HostingTestCase):
    def test_the_wsdl_has_save_rss(self) -> None:
        answer = self.house.get("/soap?wsdl")
        self.assertEqual(answer.status, 200)
        self.assertIn('<operation name="saveRss">', answer.text)
        self.assertIn('<operation name="pleaseNotify">', answer.text)

    def test_a_call_as_the_wsdl_says(self) -> None:
        body = (
            '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>'
            '<saveRss xmlns="urn:rsscloud-broker:rssCloud"><username>dave</username>'
            f"<password>{PASSWORD}</password><rsstext>{escape(a_feed().decode())}</rsstext>"
            "</saveRss></s:Body></s:Envelope>"
        )
        headers = {"Content-Type": "text/xml", "SOAPAction": '"/rssCloud"'}
        answer = self.house.ask("POST", "/soap", body.encode(), headers)
        self.assertIn(f"<Result>{URL}</Result>", answer.text.replace(' xmlns=""', ""))
