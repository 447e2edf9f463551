"""rssCloud by REST: the exact answers that clients compare, and the quirks of clients."""

from __future__ import annotations

import json
from urllib.parse import quote_plus, urlencode

from attrs import evolve
from twisted.internet.defer import fail

from rsscloud_broker.errors import Forbidden, StoreUnavailable, TooMany
from rsscloud_broker.front_doors import rsscloud as rsscloud_door
from rsscloud_broker.front_doors.rsscloud import RssCloudOptions
from rsscloud_broker.interfaces import OutboundReply, OutboundRequest
from rsscloud_broker.model import Callback
from rsscloud_broker.testing.clock import About
from rsscloud_broker.wire.rsscloud import MAX_OF_HOST, MAX_TOPICS
from tests.front_doors.exchange import FORM, Answer
from tests.front_doors.fixture import (
    FEED,
    NOON,
    OTHER_FEED,
    PUBLIC_URL,
    House,
    HouseTestCase,
    Subscribers,
)

REGISTERED = (
    "Thanks for the registration. It worked. When the resource updates we'll notify you. "
    "Don't forget to re-register after 24 hours, your subscription will expire in 25. "
    "Keep on truckin!"
)
CALLBACK_FAILED = (
    "The subscription was cancelled because the call failed when we tested the handler."
)
MISSING = "http://feeds.example/missing.xml"

FIELDS = {
    "notifyProcedure": "",
    "port": "5337",
    "path": "/notify",
    "protocol": "http-post",
    "url1": FEED,
}


class _RestTests(HouseTestCase):
    def assert_answer(self, answer: Answer, root: str, success: str, msg: str) -> None:
        """The answer has this sentence, and the status 200 even if it is a refusal."""
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers.get_content_type(), "text/xml")
        self.assertEqual(answer.xml.tag, root)
        self.assertEqual(answer.xml.items(), [("success", success), ("msg", msg)])

    def assert_refused(self, msg: str, **fields: str) -> None:
        """A registration is refused with this sentence, and nothing is stored."""
        before = self.house.stored()
        answer = self.house.form("/rsscloud/pleaseNotify", {**FIELDS, **fields})
        self.assert_answer(answer, "notifyResult", "false", msg)
        self.assertEqual(self.house.stored(), before)

    def callback_of(self, peer: str = "192.0.2.7", **fields: str) -> Callback:
        """Register, and return the callback that was stored."""
        self.house.clock.advance(1)
        answer = self.house.form("/rsscloud/pleaseNotify", {**FIELDS, **fields}, peer=peer)
        self.assert_answer(answer, "notifyResult", "true", REGISTERED)
        newest = max(self.house.subscriptions(), key=lambda each: each.lease.granted_at)
        return newest.callback


class RegistrationTests(_RestTests):
    def test_is_stored_for_25_hours(self) -> None:
        for path in ("/rsscloud/pleaseNotify", "/pleaseNotify"):
            answer = self.house.form(path, FIELDS)
            self.assert_answer(answer, "notifyResult", "true", REGISTERED)
        (subscription,) = self.house.subscriptions()
        self.assertEqual(subscription.lease.granted_at, NOON)
        self.assertEqual(subscription.lease.seconds, 25 * 3600)
        self.house.clock.advance(1000)
        self.callback_of()
        (subscription,) = self.house.subscriptions()
        self.assertEqual(subscription.lease.granted_at, About(self.house.clock.wall_seconds()))

    def test_callback_is_the_callers_address(self) -> None:
        spaced = {name: f" {value}\r\n" for name, value in FIELDS.items()}
        for fields in (FIELDS, spaced):
            self.house.subscribers.calls.clear()
            callback = Callback("http://192.0.2.7:5337/notify", "http-post")
            self.assertEqual(self.callback_of(**fields), callback)
            (call,) = self.house.subscribers.calls
            self.assertEqual((call.method, call.form), ("POST", {"url": FEED}))

    def test_parameters_in_the_query(self) -> None:
        path = "/rsscloud/pleaseNotify?port=80&path=/n&protocol=http-post"
        answer = self.house.form(path, {"url1": FEED})
        self.assert_answer(answer, "notifyResult", "true", REGISTERED)

    def test_every_key_that_begins_with_url_is_a_topic(self) -> None:
        """Keys may be in any case, and one may come several times."""
        names = ["url10", "url2", "url", "URL3", "urlOther", "url2"]
        urls = [(name, f"http://feeds.example/{n}") for n, name in enumerate(names)]
        self.house.topics.pages = {url: b"<rss/>" for _, url in urls}
        others = [(name.upper(), value) for name, value in FIELDS.items() if name != "url1"]
        answer = self.house.form("/rsscloud/pleaseNotify", [*others, *urls])
        self.assert_answer(answer, "notifyResult", "true", REGISTERED)
        for name, url in urls:
            self.assertEqual(len(self.house.subscriptions(url)), 1, name)

    def test_one_of_several_topics_suffices(self) -> None:
        self.callback_of(url1=MISSING, url2=FEED)
        self.assertEqual(self.house.subscriptions(MISSING), [])

    def test_callback_that_rejects_one_of_several_topics(self) -> None:
        topics = {f"url{number}": f"http://feeds.example/{number}" for number in range(20)}
        self.house.topics.pages = dict.fromkeys(topics.values(), b"<rss/>")
        repeat, unwanted = Subscribers.request, quote_plus(topics["url1"])

        async def answer(callback: Subscribers, request: OutboundRequest) -> OutboundReply:
            status = 404 if f"url={unwanted}&" in request.url else 200
            return evolve(await repeat(callback, request), status=status)

        self.patch(Subscribers, "request", answer)
        fields = {**FIELDS, **topics, "domain": "r.example"}
        answer_to_all = self.house.form("/rsscloud/pleaseNotify", fields)
        self.assert_answer(answer_to_all, "notifyResult", "true", REGISTERED)
        stored = {url for url in topics.values() if self.house.subscriptions(url)}
        self.assertEqual(set(topics.values()) - stored, {topics["url1"]})


class VerificationTests(_RestTests):
    def test_the_topic_is_read_first(self) -> None:
        sentence = "The subscription was cancelled because there was an error reading the resource "
        self.assert_refused(f"{sentence}at URL {MISSING}.", url1=MISSING)
        self.assertEqual(self.house.subscribers.calls, [])

    def test_a_callback_that_fails(self) -> None:
        self.house.subscribers.deaf = {"http://192.0.2.7:5337/notify"}
        self.assert_refused(CALLBACK_FAILED)
        self.house.clock.advance(60)
        answer = self.house.form("/rsscloud/pleaseNotify", FIELDS)
        self.assertEqual(answer.headers["Rsscloud-Reason"], "nobody answers there")


class RefusalTests(_RestTests):
    """What is wrong with the fields themselves is in the tests of the codec."""

    def test_missing_parameters(self) -> None:
        sentence = "The following parameters were missing from the request body: {}."
        self.assert_refused(sentence.format("path, protocol"), path=" ", protocol="")
        nothing = self.house.form("/rsscloud/pleaseNotify", {"x": "y"})
        missing = sentence.format("port, path, protocol")
        self.assert_answer(nothing, "notifyResult", "false", missing)
        self.assert_refused("No resources specified.", url1="  ")

    def test_too_many_topics(self) -> None:
        many = {f"url{n}": f"http://feeds{n}.example/" for n in range(MAX_TOPICS + 1)}
        sentence = "One request may name at most {} resources{}; send several."
        self.assert_refused(sentence.format(MAX_TOPICS, ""), **many)
        of_a_host = {f"url{n}": f"http://feeds.example/{n}" for n in range(MAX_OF_HOST + 1)}
        self.assert_refused(sentence.format(MAX_OF_HOST, " of one host"), **of_a_host)
        self.assertEqual(self.house.topics.fetched, [])

    def test_as_many_topics_as_may_be(self) -> None:
        fields = {f"url{n}": f"http://feeds{n % 4}.example/{n}" for n in range(MAX_TOPICS)}
        self.house.topics.pages = dict.fromkeys(fields.values(), b"<rss/>")
        answer = self.house.form("/pleaseNotify", {**FIELDS, **fields})
        self.assert_answer(answer, "notifyResult", "true", REGISTERED)
        self.assertEqual(len(self.house.stored()["subscription"]), MAX_TOPICS)

    def test_callback_that_fails_is_called_once(self) -> None:
        """And only the first topic is fetched for it."""
        fields = {f"url{n}": f"http://feeds.example/{n}" for n in range(MAX_OF_HOST)}
        self.house.topics.pages = dict.fromkeys(fields.values(), b"<rss/>")
        self.house.subscribers.deaf = {"http://192.0.2.7:5337/notify"}
        self.assert_refused(CALLBACK_FAILED, **fields)
        self.assertEqual(self.house.topics.fetched, ["http://feeds.example/0"])


class KindOfAnswerTests(_RestTests):
    def test_json(self) -> None:
        accept = {"Accept": "application/json"}
        answer = self.house.form("/rsscloud/pleaseNotify", FIELDS, accept)
        self.assertEqual(answer.headers.get_content_type(), "application/json")
        self.assertEqual(json.loads(answer.body), {"success": True, "msg": REGISTERED})
        answer = self.house.form("/ping", {"x": ""}, accept)
        msg = "The following parameters were missing from the request body: url."
        refusal = {"success": False, "msg": msg}
        self.assertEqual((answer.status, json.loads(answer.body)), (200, refusal))

    def test_what_the_broker_lacks(self) -> None:
        """Its own want has a status of its own, and the form of the other answers."""
        self.house.break_store()
        why = f"{StoreUnavailable.public_text} Please try again later."
        for path, root in (("/rsscloud/pleaseNotify", "notifyResult"), ("/ping", "result")):
            fields = {**FIELDS, "url": FEED}
            by_xml = self.house.form(path, fields)
            by_json = self.house.form(path, fields, {"Accept": "application/json"})
            for answer in (by_xml, by_json):
                self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "30"))
            self.assertIn(f'<{root} success="false" msg="{why}"/>', by_xml.text)
            self.assertEqual(json.loads(by_json.body), {"success": False, "msg": why})

    def test_an_accept_that_allows_neither_does_nothing(self) -> None:
        for path, root in (("/rsscloud/pleaseNotify", FIELDS), ("/rsscloud/ping", {"url": FEED})):
            before = self.house.stored()
            answer = self.house.form(path, root, {"Accept": "image/png"})
            self.assertEqual((answer.status, answer.text.strip()), (406, "Not Acceptable"))
            self.assertEqual(self.house.stored(), before)


class PingTests(_RestTests):
    def assert_thanked(self, answer: Answer) -> None:
        self.assert_answer(answer, "result", "true", "Thanks for the ping.")

    def pausing(self) -> House:
        """A house whose door asks for a pause of a minute between pings."""
        self.house = House(self, options={"rsscloud": RssCloudOptions(ping_pause=60)})
        return self.house

    def test_notifies_of_a_change_only(self) -> None:
        self.house.subscribe()
        self.assert_thanked(self.house.form("/ping", {"url": FEED}))
        self.assertEqual(self.house.subscribers.calls, [])
        self.house.topics.pages[FEED] = b"<rss version='2.0'/>"
        self.assert_thanked(self.house.form("/rsscloud/ping", {"URL": f" {FEED} "}))
        (call,) = self.house.subscribers.calls
        self.assertEqual((call.url, call.form), ("http://192.0.2.7:8080/n", {"url": FEED}))

    def test_refusals(self) -> None:
        before = self.house.stored()
        missing = "The following parameters were missing from the request body: url."
        unreadable = (
            "The ping was cancelled because there was an error reading the resource "
            f"at URL {MISSING}."
        )
        for url, sentence in (("", missing), (" ", missing), (MISSING, unreadable)):
            answer = self.house.form("/rsscloud/ping", {"url": url})
            self.assert_answer(answer, "result", "false", sentence)
        self.assertEqual(self.house.stored(), before)

    def test_why_it_is_unreadable(self) -> None:
        """The reason is beside the sentence, which clients compare letter by letter."""
        why = "its server answered with status 404"
        for path, url in (("/rsscloud/ping", "url"), ("/rsscloud/pleaseNotify", "url1")):
            answer = self.house.form(path, {**FIELDS, "url1": "", url: MISSING})
            self.assertIn(f"<!-- {why} -->".encode(), answer.body)
            self.assertEqual(answer.headers["Rsscloud-Reason"], why)
            self.assertEqual(answer.xml.get("success"), "false")

    def test_several_topics(self) -> None:
        fields = {"url1": MISSING, "url2": FEED, "url3": OTHER_FEED}
        self.assert_thanked(self.house.form("/rsscloud/ping", fields))
        self.assertEqual(set(self.house.topics.fetched), set(fields.values()))

    def test_pause(self) -> None:
        house = self.pausing()
        self.assert_thanked(house.form("/rsscloud/ping", {"url": FEED}))
        house.clock.advance(59)
        answer = house.form("/rsscloud/ping", {"url": FEED})
        sentence = "A ping for this resource was received less than 60 seconds ago."
        self.assert_answer(answer, "result", "false", sentence)
        self.assert_thanked(house.form("/rsscloud/ping", {"url": OTHER_FEED}))
        house.clock.advance(1)
        self.assert_thanked(house.form("/rsscloud/ping", {"url": FEED}))

    def test_pings_that_are_refused_begin_no_pause(self) -> None:
        """Else a stranger whom an administrator has blocked keeps the publisher's pings out."""
        for error in (
            Forbidden("you are blocked"),
            TooMany("more than 0.1 pings a second came from your address", 10),
            StoreUnavailable("the disk is full"),
        ):
            house = self.pausing()
            patched = self.patch(house.broker, "ping_topic", lambda *_, e=error, **__: fail(e))
            self.assertNotIn(b'"true"', house.form("/rsscloud/ping", {"url": FEED}).body)
            patched.restore()
            self.assert_thanked(house.form("/rsscloud/ping", {"url": FEED}))

    def test_a_bug_begins_one(self) -> None:
        house = self.pausing()
        patched = self.patch(house.broker, "ping_topic", lambda *_, **__: fail(ZeroDivisionError()))
        house.form("/rsscloud/ping", {"url": FEED})
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        patched.restore()
        answer = house.form("/rsscloud/ping", {"url": FEED})
        self.assertIn(b"less than 60 seconds ago", answer.body)

    def test_pings_that_are_ignored_begin_no_pause(self) -> None:
        """Anybody can send one that says that it has passed this broker before."""
        house = self.pausing()
        body = urlencode({"url": FEED}).encode()
        house.ask("POST", "/rsscloud/ping", body, {"Content-Type": FORM, "Ping-Via": PUBLIC_URL})
        self.assertEqual(house.topics.fetched, [])
        self.assert_thanked(house.form("/rsscloud/ping", {"url": FEED}))
        self.assertEqual(house.topics.fetched, [FEED])

    def test_old_pauses_are_forgotten(self) -> None:
        """Many URLs must not fill the memory, and the pause is only a courtesy."""
        self.patch(rsscloud_door, "REMEMBERED_PINGS", 1)
        self.pausing()
        for url in (FEED, OTHER_FEED, FEED):
            self.assert_thanked(self.house.form("/rsscloud/ping", {"url": url}))

    def test_pause_is_silent_by_xml_rpc_and_soap(self) -> None:
        house = self.pausing()
        for _ in range(2):
            self.assertIs(house.xmlrpc("rssCloud.ping", FEED), True)
            self.assertIs(house.result(house.soap("ping", {"url": FEED})), True)
        self.assertEqual(house.topics.fetched, [FEED])
