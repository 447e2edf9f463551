"""A caller that exceeds a limit is refused in the words of each protocol, and nothing happens."""

from __future__ import annotations

import json
from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import RateLimitOptions
from rsscloud_broker.policy import rate_limits
from rsscloud_broker.wire.xmlrpc import RSSCLOUD_FAULT
from tests.front_doors.fixture import FEED, HOME, OTHER_FEED, PRIVATE, House

#: One ping and one verification at once, and one more every ten seconds.
STRICT = RateLimitOptions(
    pings_per_source=0.1,
    pings_burst=1,
    verifications_per_source=0.1,
    verifications_burst=1,
)

TOO_MANY_PINGS = "more than 0.1 pings a second came from your address. Try again in 10 seconds."
TOO_MANY = (
    "The subscription was not accepted because more than 0.1 registrations a second came from "
    "your address. Try again in 10 seconds."
)
CALLBACK_FAILED = (
    "The subscription was cancelled because the call failed when we tested the handler."
)
UNREADABLE = "The {} was cancelled because there was an error reading the resource at URL {}."

FIELDS = {"notifyProcedure": "", "port": "80", "path": "/n", "protocol": "http-post", "url1": FEED}
CALL = ["", 80, "/n", "http-post", [FEED]]
SOAP_CALL = {**{k: v for k, v in FIELDS.items() if k != "url1"}, "urlList": [FEED]}


class LimitsTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = House(self, limits=STRICT)

    def ping(self) -> None:
        """Send as many pings as the caller may."""
        self.house.xmlrpc("rssCloud.ping", FEED)

    def assert_nothing_done(self, ask: Callable[[], object]) -> None:
        """The broker fetches, calls and stores nothing during a request."""
        self.house.topics.fetched.clear()
        self.house.subscribers.calls.clear()
        before = self.house.stored()
        ask()
        self.assertEqual(self.house.topics.fetched, [])
        self.assertEqual(self.house.subscribers.calls, [])
        self.assertEqual(self.house.stored(), before)


class PingTests(LimitsTestCase):
    def test_calls_and_rest(self) -> None:
        """Each in the words of its protocol."""
        refusal = {"flerror": True, "message": f"Can't accept the ping because {TOO_MANY_PINGS}"}
        sentence = f"The ping was not accepted because {TOO_MANY_PINGS}"
        self.ping()

        def ask() -> None:
            for method in ("ping", "rssUpdate"):
                answer = self.house.xmlrpc(f"weblogUpdates.{method}", "A", HOME)
                self.assertEqual(answer, refusal)
            answer = self.house.soap("ping", {"weblogname": "A", "weblogurl": HOME})
            self.assertEqual(self.house.result(answer), refusal)
            self.assertEqual(self.house.fault("rssCloud.ping", FEED), (RSSCLOUD_FAULT, sentence))
            answer = self.house.soap("ping", {"url": FEED}, action='"/rssCloud"')
            self.assertEqual(self.house.soap_fault(answer), ("Client", sentence))
            answer = self.house.form("/ping", {"url": FEED})
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.xml.items(), [("success", "false"), ("msg", sentence)])
            accept = {"Accept": "application/json"}
            answer = self.house.form("/rsscloud/ping", {"url": FEED}, accept)
            self.assertEqual(json.loads(answer.body), {"success": False, "msg": sentence})

        self.assert_nothing_done(ask)

    def test_pages(self) -> None:
        pages = [
            f"/pingSiteForm?name=A&url={HOME}",
            f"/ping?url={HOME}",
            f"/rss/ping?u={FEED}",
            f"/c?p=ping&url={HOME}",
            f"/fb/a/pingSubmit?bloglink={HOME}",
            f"/?name=A&url={HOME}",
        ]
        self.ping()

        def ask() -> None:
            for page in pages:
                answer = self.house.get(page)
                self.assertEqual((answer.status, answer.headers["retry-after"]), (429, "10"))
                self.assertEqual(answer.headers["ratelimit"], '"default";r=0;t=10')
                self.assertEqual(answer.headers.get_content_type(), "text/html")
                self.assertIn(TOO_MANY_PINGS, answer.text)

        self.assert_nothing_done(ask)

    def test_each_call_of_many_counts(self) -> None:
        call = {"methodName": "weblogUpdates.ping", "params": ["A", HOME]}
        first, second = self.house.xmlrpc("system.multicall", [call, call])
        self.assertEqual((first[0]["flerror"], second[0]["flerror"]), (False, True))

    def test_every_topic_of_a_ping_counts(self) -> None:
        """A ping that succeeds does not hide one that the limit refused."""
        answer = self.house.form("/ping", {"url1": FEED, "url2": OTHER_FEED})
        self.assertEqual(answer.xml.get("success"), "false")
        self.assertIn("Try again in 10 seconds.", str(answer.xml.get("msg")))
        self.assertEqual(self.house.topics.fetched, [FEED])


class RegistrationTests(LimitsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.house.subscribe()

    def test_every_interface(self) -> None:
        def ask() -> None:
            answer = self.house.form("/rsscloud/pleaseNotify", FIELDS)
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.xml.items(), [("success", "false"), ("msg", TOO_MANY)])
            fault = self.house.fault("rssCloud.pleaseNotify", *CALL)
            self.assertEqual(fault, (RSSCLOUD_FAULT, TOO_MANY))
            answer = self.house.soap("pleaseNotify", SOAP_CALL)
            self.assertEqual(self.house.soap_fault(answer), ("Client", TOO_MANY))
            self.assertIs(self.house.xmlrpc("xmlStorageSystem.rssPleaseNotify", *CALL), False)

        self.assert_nothing_done(ask)

    def test_every_topic_counts(self) -> None:
        """A subscription that succeeds does not hide one that the limit refused."""
        self.house.clock.advance(10)
        answer = self.house.form("/pleaseNotify", {**FIELDS, "url2": OTHER_FEED})
        self.assertEqual(answer.xml.items(), [("success", "false"), ("msg", TOO_MANY)])
        self.assertEqual(self.house.topics.fetched, [FEED])


class RefusedAddressTests(SynchronousTestCase):
    """If the guard refuses an address, the reason follows the usual sentence."""

    def setUp(self) -> None:
        self.patch(rate_limits, "FAILED_PAUSE", 0)
        self.house = House(self)
        self.topic = "http://intranet.example/rss.xml"
        self.house.topics.private.add(self.topic)
        self.house.subscribers.private |= {"http://192.0.2.7:80/n", "http://r.example:80/n"}

    def refused(self, topic: str, sentence: str, domain: str = "") -> None:
        """Register by every interface, which all refuse it with a sentence."""
        before = self.house.stored()
        answer = self.house.form("/pleaseNotify", {**FIELDS, "url1": topic, "domain": domain})
        self.assertEqual(answer.xml.items(), [("success", "false"), ("msg", sentence)])
        call = [*CALL[:4], [topic], domain]
        self.assertEqual(self.house.fault("rssCloud.pleaseNotify", *call)[1], sentence)
        values = {**SOAP_CALL, "urlList": [topic], "domain": domain}
        answer = self.house.soap("pleaseNotify", values)
        self.assertEqual(self.house.soap_fault(answer)[1], sentence)
        self.assertEqual(self.house.stored(), before)

    def test_topic_and_callback(self) -> None:
        self.refused(self.topic, f"{UNREADABLE.format('subscription', self.topic)} ({PRIVATE})")
        for domain in ("", "r.example"):
            self.refused(FEED, f"{CALLBACK_FAILED} ({PRIVATE})", domain)

    def test_ping(self) -> None:
        answer = self.house.form("/ping", {"url": self.topic})
        sentence = f"{UNREADABLE.format('ping', self.topic)} ({PRIVATE})"
        self.assertEqual(answer.xml.items(), [("success", "false"), ("msg", sentence)])

    def test_remembered_failures_are_told_alike(self) -> None:
        self.patch(rate_limits, "FAILED_PAUSE", 10.0)
        house = House(self)
        house.subscribers.private.add("http://192.0.2.7:80/n")
        house.subscribers.deaf.add("http://192.0.2.7:80/deaf")
        for path, sentence in (
            ("/n", f"{CALLBACK_FAILED} ({PRIVATE})"),
            ("/deaf", CALLBACK_FAILED),
        ):
            for _ in range(2):
                answer = house.form("/pleaseNotify", {**FIELDS, "path": path})
                self.assertEqual(answer.xml.get("msg"), sentence)
        self.assertEqual(len(house.subscribers.calls), 2)
