"""The page of the doctor for feeds, and the self-test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import Http, RateLimitOptions
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.runtime.self_test import SelfTest, read_key
from rsscloud_broker.web.doctor import DoctorOptions
from rsscloud_broker.wire import self_test
from tests.e2e.servers import FEED as DOCUMENT
from tests.front_doors.exchange import Answer
from tests.front_doors.fixture import CALLER, FEED, PUBLIC_URL, House, HouseTestCase

BAD = '"><script>alert(1)</script>'


class FeedPageTests(HouseTestCase):
    def publish(self, elements: str = "", status: int = 200, /, **headers: str) -> None:
        body = DOCUMENT % elements.encode()
        self.house.subscribers.feeds[FEED] = OutboundReply(status, headers, body, FEED)

    def parsed(self, answer: Answer, status: int = 200) -> Any:
        self.assertEqual(answer.headers["cache-control"], "no-store")
        page = answer.page(status)
        self.assertEqual(page.xpath("//main//script"), [])
        return page

    def examined(self, url: str = FEED, status: int = 200) -> Any:
        return self.parsed(self.house.get("/doctor", url=url), status)

    def test_form(self) -> None:
        page = self.parsed(self.house.get("/doctor"))
        self.assertEqual(page.xpath("//form/@method"), ["get"])
        self.assertEqual(page.xpath("//form//input/@name"), ["url"])
        self.assertEqual(page.xpath("//h2 | //h3"), [])
        self.assertEqual(self.house.subscribers.calls, [])

    def test_findings(self) -> None:
        self.publish(
            f'<link xmlns="http://www.w3.org/2005/Atom" rel="hub" href="{PUBLIC_URL}/websub"/>'
        )
        page = self.examined()
        self.assertEqual(page.xpath("//form//input/@value"), [FEED])
        self.assertEqual(page.xpath("//h3/text()"), ["To correct", "To consider", "In order"])
        subjects = page.xpath("//dt/text()")
        for subject in ("hub", "cloud", "ETag", "self link", "WebSub subscribers"):
            self.assertIn(subject, subjects)
        self.assertIn("is this broker", page.text_content())
        self.assertEqual(page.xpath("//h2/following-sibling::p//a/@href"), [FEED])
        self.assertEqual(self.house.stored()["topic"], [], "an examination stores nothing")

    def test_what_strangers_write_is_escaped(self) -> None:
        headers = {
            "content-type": BAD,
            "etag": BAD,
            "link": f"<{BAD}>; rel=hub",
            "location": f"http://x.example/{BAD}",
        }
        escaped = BAD.replace("<", "&lt;").replace(">", "&gt;")
        for status in (200, 301):
            self.publish(f"<title>{escaped}</title><ttl>{escaped}</ttl>", status, **headers)
            self.assertIn(BAD, self.examined().text_content())
        page = self.examined(f"http://x.example/{BAD}")
        self.assertEqual(page.xpath("//form//input/@value"), [f"http://x.example/{BAD}"])

    def test_no_web_address(self) -> None:
        for url in ("javascript:alert(1)", "ftp://x.example/", BAD, "x" * 5000):
            page = self.examined(url, 400)
            self.assertIn("Not examined", page.xpath("string(//p[@role='alert'])"))
            self.assertEqual(page.xpath("//main//a/@href"), [])
        self.assertEqual(self.house.subscribers.calls, [])

    def test_head(self) -> None:
        answer = self.house.ask("HEAD", f"/doctor?url={FEED}")
        self.assertEqual((answer.status, answer.body), (200, b""))
        self.assertEqual(self.house.subscribers.calls, [])

    def test_another_site_causes_no_examination(self) -> None:
        self.publish()
        headers = {"Sec-Fetch-Site": "cross-site"}
        answer = self.house.ask("GET", f"/doctor?url={FEED}", headers=headers)
        page = self.parsed(answer, 403)
        self.assertIn("another site", page.xpath("string(//p[@role='alert'])"))
        self.assertEqual(page.xpath("//form//input/@value"), [FEED])
        self.assertEqual(self.house.subscribers.calls, [])
        for site in ("same-origin", "same-site", "none"):
            self.house.subscribers.calls.clear()
            headers = {"Sec-Fetch-Site": site}
            self.parsed(self.house.ask("GET", f"/doctor?url={FEED}", headers=headers))
            self.assertNotEqual(self.house.subscribers.calls, [])

    def test_limits(self) -> None:
        """An examination counts like a ping of a topic without subscribers, even with some."""
        limits = RateLimitOptions(fetches_per_host=0.01, fetches_host_burst=2)
        self.house = House(self, limits=limits)
        self.house.subscribe()
        self.publish()
        for _ in range(2):
            self.examined()
        self.house.subscribers.calls.clear()
        answer = self.house.get("/doctor", url=FEED)
        page = self.parsed(answer, 429)
        self.assertIn("the host feeds.example", page.xpath("string(//p[@role='alert'])"))
        self.assertGreater(int(answer.headers["retry-after"]), 0)
        self.assertEqual(self.house.subscribers.calls, [])

    def test_pings_per_source(self) -> None:
        self.house = House(self, limits=RateLimitOptions(pings_per_source=0.01, pings_burst=1))
        self.examined()
        self.examined(status=429)

    def test_turned_off(self) -> None:
        self.house = House(self, options={"doctor": DoctorOptions(examine_feeds=False)})
        self.assertEqual(self.house.get("/doctor").status, 404)


class SelfTestTests(SynchronousTestCase):
    def setUp(self) -> None:
        data = Path(self.mktemp())
        data.mkdir()
        proxies = Http(trusted_proxies=(CALLER,))
        self.house = House(self, http=proxies)
        service = SelfTest(str(data), self.house.clock)
        self.house = House(self, http=proxies, self_test=service)
        service.startService()
        self.key = read_key(str(data))

    def ask(self, key: bytes, **headers: str) -> Answer:
        query = self_test.question(key, "n", self.house.clock.wall_seconds())
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.house.ask("GET", f"{self_test.PATH}?{query}", headers=named)

    def test_the_operator_learns_how_the_request_arrived(self) -> None:
        answer = self.ask(self.key, X_Forwarded_For="203.0.113.9", X_Forwarded_Proto="https")
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["cache-control"], "no-store")
        arrived = self_test.read_answer(self.key, "n", answer.body)
        expected = {
            "scheme": "http",
            "path": self_test.PATH,
            "peer": CALLER,
            "client": "203.0.113.9",
            "forwarded_for": "203.0.113.9",
            "forwarded_proto": "https",
            "forwarded_host": "",
        }
        self.assertEqual({name: arrived[name] for name in expected}, expected)
        self.assertTrue(arrived["host"])

    def test_strangers_find_nothing(self) -> None:
        for answer in (self.ask(b"x" * 32), self.house.get(self_test.PATH)):
            self.assertEqual(answer.status, 404)
            self.assertRaises(ValueError, json.loads, answer.body)
