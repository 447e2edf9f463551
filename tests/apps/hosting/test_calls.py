"""``saveRss`` by XML-RPC, SOAP and REST: what is stored, and what is refused."""

from __future__ import annotations

import json
import xmlrpc.client
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

from lxml import etree

from rsscloud_broker.apps.hosting.options import HostingOptions
from rsscloud_broker.events import PingAccepted, PingReceived, TopicChanged
from rsscloud_broker.model.administration import Block
from rsscloud_broker.wire.soap import SoapFault
from tests.accounts.fixture import PASSWORD
from tests.apps.hosting.fixture import (
    HTTPS,
    PATH,
    URL,
    HostingHouse,
    HostingTestCase,
    a_feed,
    basic,
)
from tests.front_doors.exchange import FORM, Answer

STRANGER = "198.51.100.9"


class SaveRssTests(HostingTestCase):
    def save(self, feed: Any = None, password: str = PASSWORD, name: str = "dave") -> Any:
        feed = a_feed().decode() if feed is None else feed
        return self.house.xmlrpc("rssCloud.saveRss", name, password, feed)

    def test_returns_the_public_url(self) -> None:
        self.assertEqual(self.save(), URL)
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

    def test_names_as_people_type_them(self) -> None:
        self.assertEqual(self.save(name=" Dave "), URL)

    def test_refusals_store_nothing(self) -> None:
        self.house.subscribe()
        feed = a_feed().decode()
        for parameters, said in (
            (("dave", "wrong", feed), "the name or the password is wrong"),
            (("nobody", PASSWORD, feed), "the name or the password is wrong"),
            (("anna", "wrong", feed), "the name or the password is wrong"),
            (("dave", PASSWORD, "<html/>"), "neither RSS nor Atom"),
            (("dave", PASSWORD, feed[:-3]), "not well-formed XML"),
            (("dave", PASSWORD, "<!DOCTYPE rss [<!ENTITY x 'y'>]><rss/>"), "DOCTYPE"),
            (("dave", PASSWORD, ""), "it is empty"),
            (("dave", PASSWORD, 7), "must be strings"),
            (("dave", PASSWORD, ["x"]), "must be strings"),
            (({}, PASSWORD, feed), "must be strings"),
            (("dave", PASSWORD), "there aren't enough parameters"),
            (("dave", PASSWORD, feed, "x"), "there are too many parameters"),
        ):
            self.assertIn(said, self.house.fault("rssCloud.saveRss", *parameters))
        self.assert_nothing_stored()

    def test_blocked_topics_and_sources(self) -> None:
        for kind, blocked in (("topic", URL), ("source", "192.0.2.7")):
            block = Block(kind, blocked, "spam", "alice", 1.0)
            self.house.blocks.change([block])
            said = self.house.fault("rssCloud.saveRss", "dave", PASSWORD, a_feed().decode())
            self.assertIn("blocked here: spam", said)
        self.house.blocks.change([])
        self.assert_nothing_stored()

    def test_full_disk(self) -> None:
        self.house.space.full = True
        document = xmlrpc.client.dumps(("dave", PASSWORD, a_feed().decode()), "rssCloud.saveRss")
        answer = self.house.ask("POST", "/RPC2", document.encode(), {"Content-Type": "text/xml"})
        self.assertEqual(answer.status, 503)
        self.house.space.full = False
        self.assert_nothing_stored()

    def test_each_account_has_its_own(self) -> None:
        self.save()
        self.assertEqual(self.save(a_feed("2").decode(), name="anna"), URL.replace("dave", "anna"))
        self.assertEqual(self.house.get().body, a_feed())

    def test_help_and_the_other_procedures(self) -> None:
        self.assertIn("rssCloud.saveRss", self.house.xmlrpc("system.listMethods"))
        self.assertIs(self.house.xmlrpc("rssCloud.hello"), True)
        signature = self.house.xmlrpc("system.methodSignature", "rssCloud.saveRss")
        self.assertEqual(signature, [["string"] * 4])
        self.assertIn("notifies", self.house.xmlrpc("system.methodHelp", "rssCloud.saveRss"))

    # by SOAP

    def test_by_soap(self) -> None:
        fields = {"username": "dave", "password": PASSWORD, "rsstext": a_feed().decode()}
        self.assertEqual(self.house.soap("saveRss", fields), URL)
        self.assertEqual(self.house.get().body, a_feed())
        for wrong, said in (
            ({"password": "wrong"}, "the password is wrong"),
            ({"rsstext": "<html/>"}, "neither RSS nor Atom"),
        ):
            error = self.assertRaises(SoapFault, self.house.soap, "saveRss", fields | wrong)
            self.assertEqual(error.code, "Client")
            self.assertIn(said, error.string)
        del fields["rsstext"]
        error = self.assertRaises(SoapFault, self.house.soap, "saveRss", fields)
        self.assertIn("were missing from the request body: rsstext.", error.string)

    # by REST

    def rest(self, accept: str = "", **fields: Any) -> Answer:
        given = {"username": "dave", "password": PASSWORD, "rsstext": a_feed()} | fields
        headers = {"Accept": accept} if accept else {}
        return self.house.form("/rsscloud/saveRss", given, **headers)

    def test_by_rest(self) -> None:
        answer = self.rest()
        self.assertEqual((answer.status, answer.headers.get_content_type()), (200, "text/xml"))
        root = etree.fromstring(answer.body)
        expected = {"success": "true", "msg": "Thanks for the feed.", "url": URL}
        self.assertEqual((root.tag, dict(root.items())), ("result", expected))
        self.assertEqual(self.house.get().body, a_feed())
        answer = self.rest("application/json", rsstext=a_feed("2"))
        expected_in_json = {"success": True, "msg": "Thanks for the feed.", "url": URL}
        self.assertEqual(json.loads(answer.body), expected_in_json)
        self.assertEqual(self.rest("image/png").status, 406)

    def test_refused_by_rest(self) -> None:
        for fields, said in (
            ({"password": "wrong"}, "the name or the password is wrong"),
            ({"rsstext": "<html/>"}, "neither RSS nor Atom"),
        ):
            answer = self.rest(**fields)
            root = etree.fromstring(answer.body)
            self.assertEqual((answer.status, root.get("success")), (200, "false"))
            self.assertIn(said, root.get("msg"))
            self.assertIsNone(root.get("url"))
            answer = self.rest("application/json", **fields)
            self.assertEqual(json.loads(answer.body)["success"], False)
        answer = self.house.form("/rsscloud/saveRss", {"username": "dave"})
        self.assertIn("were missing from the request body: password, rsstext.", answer.text)
        self.assert_nothing_stored()

    def test_what_the_broker_lacks_by_rest(self) -> None:
        """It has a status of its own, and the form of the other answers."""
        self.house.space.full = True
        in_xml, in_json = self.rest(), self.rest("application/json")
        for answer in (in_xml, in_json):
            self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "30"))
        self.assertEqual(etree.fromstring(in_xml.body).get("success"), "false")
        self.assertIs(json.loads(in_json.body)["success"], False)

    def test_names_of_fields_in_any_case(self) -> None:
        fields = {"Username": "dave", "PASSWORD": PASSWORD, "rssText": a_feed()}
        self.assertIn('success="true"', self.house.form("/rsscloud/saveRss", fields).text)

    # passwords in plain text

    def asked_plainly(self, peer: str, **headers: str) -> str:
        body = f"username=dave&password={quote(PASSWORD)}&rsstext={quote(a_feed())}".encode()
        sent = {"Content-Type": FORM, "Host": "localhost", **headers}
        answer = self.house.ask("POST", "/rsscloud/saveRss", body, sent, peer)
        return str(etree.fromstring(answer.body).get("msg"))

    def test_passwords_are_not_accepted_over_plain_http(self) -> None:
        self.assertIn("over HTTPS only", self.asked_plainly(STRANGER))
        self.assert_nothing_stored()

    def test_who_says_https_must_be_trusted(self) -> None:
        said = self.asked_plainly(STRANGER, X_Forwarded_Proto="https", **HTTPS)
        self.assertIn("over HTTPS only", said)

    def test_a_trusted_proxy_that_was_called_over_plain_http(self) -> None:
        headers = {"X-Forwarded-For": STRANGER, "X-Forwarded-Proto": "http"}
        self.assertIn("over HTTPS only", self.asked_plainly("10.0.0.1", **headers))

    def test_a_trusted_proxy_that_does_not_say(self) -> None:
        """The URL of the broker does."""
        headers = {"X-Forwarded-For": STRANGER, "X-Forwarded-Proto": ""}
        self.assertIn("Thanks", self.asked_plainly("10.0.0.1", **headers))

    def test_programs_on_this_machine(self) -> None:
        self.assertIn("Thanks", self.asked_plainly("127.0.0.1"))

    def test_a_proxy_on_this_machine_is_no_program_on_it(self) -> None:
        said = self.asked_plainly("127.0.0.1", **{"X-Forwarded-For": STRANGER})
        self.assertIn("over HTTPS only", said)


class PlainPasswordsTests(HostingTestCase):
    options = HostingOptions(allow_plain_passwords=True)

    def test_the_operator_may_allow_them(self) -> None:
        body = f"username=dave&password={quote(PASSWORD)}&rsstext={quote(a_feed())}".encode()
        answer = self.house.ask("POST", "/rsscloud/saveRss", body, {"Content-Type": FORM}, STRANGER)
        self.assertIn('success="true"', answer.text)


class LimitsTests(HostingTestCase):
    options = HostingOptions(max_feed_bytes=2000, max_account_bytes=3000, saves_per_account=0.03)

    def save(self, feed: bytes, name: str = "dave") -> Any:
        return self.house.xmlrpc("rssCloud.saveRss", name, PASSWORD, feed.decode())

    def test_saves_of_an_account_are_limited(self) -> None:
        for number in range(3):
            self.save(a_feed(str(number)))
        said = self.house.fault("rssCloud.saveRss", "dave", PASSWORD, a_feed("3").decode())
        self.assertIn("your account saves too often; try again in", said)
        self.save(a_feed(), "anna")
        self.house.clock.advance(34)
        self.save(a_feed("3"))
        self.assertEqual(self.house.get(PATH).body, a_feed("3"))


class LargestFeedTests(HostingTestCase):
    """A feed of exactly the configured size can be saved in each way, and no larger one."""

    def feed(self, size: int) -> bytes:
        """A feed full of a character of which calls and forms make several bytes."""
        empty = a_feed()
        before, after = empty.split(b"<description>")
        return before + b"<description>" + b">" * (size - len(empty)) + after

    def xmlrpc(self, feed: bytes) -> bool:
        return self.call(feed.decode())

    def base64(self, feed: bytes) -> bool:
        return self.call(feed)

    def call(self, feed: str | bytes) -> bool:
        try:
            self.house.xmlrpc("rssCloud.saveRss", "dave", PASSWORD, feed)
        except xmlrpc.client.Fault as fault:
            self.assertIn("may have 1,048,576", fault.faultString)
            return False
        return True

    def soap(self, feed: bytes) -> bool:
        values = {"username": "dave", "password": PASSWORD, "rsstext": feed.decode()}
        try:
            self.house.soap("saveRss", values)
        except SoapFault as fault:
            self.assertIn("may have 1,048,576", fault.string)
            return False
        return True

    def form(self, feed: bytes) -> bool:
        values = {"username": "dave", "password": PASSWORD, "rsstext": feed}
        answer = self.house.form("/rsscloud/saveRss", values, Accept="application/json")
        said = json.loads(answer.body)
        self.assertIn("Thanks" if said["success"] else "may have 1,048,576", said["msg"])
        return bool(said["success"])

    def put(self, feed: bytes) -> bool:
        status = self.house.put(feed).status
        self.assertIn(status, (201, 413))
        return status == 201

    def test_each_way(self) -> None:
        size = HostingOptions().max_feed_bytes
        for way in (self.put, self.xmlrpc, self.base64, self.soap, self.form):
            self.assertFalse(way(self.feed(size + 1)), way)
            self.assertEqual(self.house.get().status, 410 if way != self.put else 404, way)
            self.assertTrue(way(self.feed(size)), way)
            self.assertEqual(self.house.get().body, self.feed(size), way)
            self.assertEqual(self.house.ask("DELETE", PATH, headers=basic()).status, 204)

    def test_the_largest_that_can_be_configured(self) -> None:
        options = HostingOptions(max_feed_bytes=7 * 1024 * 1024)
        self.house = HostingHouse(self, options)
        feed = self.feed(options.max_feed_bytes)
        for way in (self.put, self.xmlrpc, self.base64):
            self.assertTrue(way(feed), way)
            self.house.ask("DELETE", PATH, headers=basic())

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
