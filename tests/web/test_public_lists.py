"""The lists that anybody may read: changes, topics and numbers of subscriptions."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.http.site import Root
from rsscloud_broker.model import Ping, TopicSummary
from rsscloud_broker.testing import Clock, FakeTopicView, front_door_parts
from rsscloud_broker.web.pages import PageRenderer
from rsscloud_broker.web.public_lists import PART, PublicListsDoor, PublicListsOptions
from tests.front_doors.exchange import Answer
from tests.front_doors.fixture import ALL_DOORS, FEED, NOON, PUBLIC_URL, House

BAD = "<script>alert(1)</script>\"'&amp;"


class ListsTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.view = FakeTopicView()
        self.open(PublicListsOptions())

    def open(self, options: PublicListsOptions) -> None:
        """Serve the lists, with other options."""
        self.clock = Clock(NOON)
        parts = front_door_parts(
            topics=self.view,
            pages=PageRenderer(lambda: {"/changes"}),
            public_url=PUBLIC_URL,
            running=ALL_DOORS,
            clock=self.clock,
        )
        door = PublicListsDoor(options, parts)
        self.house = House(self, root=Root([door], PUBLIC_URL))


class ChangesTests(ListsTestCase):
    def pings(self, number: int, url: str = "http://site.example/", **fields: Any) -> None:
        """Let the view have so many pings, of which ``Site 0`` is the newest."""
        self.view.listed = [
            Ping(f"Site {each}", url, float(NOON - each), id=number - each, **fields)
            for each in range(number)
        ]

    def page(self, path: str = "/changes") -> Any:
        answer = self.house.get(path)
        self.assertLess(len(answer.body), 100_000)
        return answer.page()

    def names(self, page: Any) -> list[str]:
        return [str(name) for name in page.xpath("//tbody/tr/td[2]/a/bdi/text()")]

    def test_none(self) -> None:
        page = self.page()
        self.assertIn("There are no pings here.", page.text_content())
        self.assertEqual(page.xpath("//table | //nav[@class='pages']"), [])

    def test_a_row(self) -> None:
        self.pings(1, "http://site.example/?a=1&b=2", rss_url=FEED)
        (row,) = self.page().xpath("//tbody/tr")
        self.assertEqual(row.xpath("string(td[1])"), "2026-09-29 12:00:00")
        self.assertEqual(row.xpath("td[1]/time/@datetime"), ["2026-09-29T12:00:00Z"])
        topic = "/topic?url=http%3A%2F%2Ffeeds.example%2Frss.xml"
        links = ["http://site.example/?a=1&b=2", FEED, topic]
        self.assertEqual(row.xpath(".//a/@href"), links)
        self.assertEqual(set(row.xpath(".//a[starts-with(@href, 'http')]/@rel")), {_REL})

    def test_paging(self) -> None:
        """Each ping is on one page."""
        self.pings(120)
        path = "/changes"
        seen: list[str] = []
        for links in (["Older changes"], _BOTH, ["The newest changes"]):
            page = self.page(path)
            seen += self.names(page)
            self.assertEqual(page.xpath("//nav[@class='pages']/a/text()"), links)
            path = str((page.xpath("//a[@rel='next']/@href") or [""])[0])
        self.assertEqual(seen, [f"Site {number}" for number in range(120)])

    def test_a_page_is_small(self) -> None:
        """With long addresses it shows fewer changes, and none is left out."""
        long = "&" * 2000
        self.pings(60, f"http://site.example/{long}", rss_url=f"http://b.example/{long}")
        path = "/changes"
        seen: list[str] = []
        while path:
            page = self.page(path)
            seen += self.names(page)
            path = str((page.xpath("//a[@rel='next']/@href") or [""])[0])
        self.assertEqual(seen, [f"Site {number}" for number in range(60)])

    def test_texts_of_strangers_are_texts(self) -> None:
        self.view.listed = [Ping(BAD, "javascript:alert(1)", NOON, rss_url=BAD)]
        page = self.page()
        self.assertEqual(page.xpath("//main//script | //@onclick"), [])
        for link in page.xpath("//main//@href"):
            self.assertTrue(link.startswith("/"), link)
        self.assertEqual(page.xpath("string(//tbody//bdi)"), BAD)

    def test_a_page_is_made_once_a_second(self) -> None:
        self.page()
        self.pings(1)
        self.assertEqual(self.names(self.page()), [])
        self.clock.advance(1.1)
        self.assertEqual(self.names(self.page()), ["Site 0"])

    def test_bad_positions(self) -> None:
        for before in ("x", "-1-1", "1", f"{'9' * 30}-1", "1-1;", "\u0661-\u0661"):
            answer = self.house.get("/changes", before=before)
            self.assertEqual(answer.status, 400, before)
            self.assertIn("leave it out", answer.text)

    def test_a_real_ping(self) -> None:
        house = House(self, doors=ALL_DOORS | {"public_lists"})
        house.form("/pingSiteForm", {"name": "A site", "url": "http://site.example/"})
        page = house.get("/changes").html
        self.assertEqual(self.names(page), ["A site"])
        self.assertEqual(page.xpath("//header//a[@aria-current]/@href"), ["/changes"])


class TopicListsTests(ListsTestCase):
    def topics(self, number: int) -> None:
        counts = {"http-post": 2, "websub": 1}
        self.view.summaries = [
            TopicSummary(each * 2, f"http://f{each}.example/rss", f"Feed {each}", counts)
            for each in range(1, number + 1)
        ]

    def json(self, answer: Answer) -> Any:
        kind = answer.headers.get_content_type()
        self.assertEqual((answer.status, kind), (200, "application/json"))
        self.assertEqual(answer.headers["access-control-allow-origin"], "*")
        self.assertEqual(answer.headers["cache-control"], "public, max-age=60")
        return json.loads(answer.body)

    def test_subscriptions(self) -> None:
        self.topics(1)
        counts = {"http-post": 2, "websub": 1}
        topic = {"url": "http://f1.example/rss", "title": "Feed 1", "subscriptions": counts}
        found = self.json(self.house.get("/subscriptions.json"))
        self.assertEqual(found, {"topics": [topic], "next": None})

    def test_feeds(self) -> None:
        self.topics(2)
        answer = self.house.get("/feeds.opml")
        self.assertEqual(answer.headers["content-type"], "text/x-opml; charset=utf-8")
        title = answer.xml.findtext("head/title")
        self.assertEqual(title, "Feeds that broker.example:5337 watches")
        outlines = [(each.get("title"), each.get("xmlUrl")) for each in answer.xml.iter("outline")]
        feeds = [(f"Feed {each}", f"http://f{each}.example/rss") for each in (1, 2)]
        self.assertEqual(outlines, feeds)

    def test_long_lists_come_in_parts(self) -> None:
        self.topics(PART + 1)
        first = self.house.get("/subscriptions.json")
        listed = self.json(first)
        self.assertEqual(len(listed["topics"]), PART)
        self.assertEqual(listed["next"], f"{PUBLIC_URL}/subscriptions.json?after={PART * 2}")
        self.assertEqual(first.headers["link"], f'<{listed["next"]}>; rel="next"')
        rest = self.json(self.house.get(listed["next"].removeprefix(PUBLIC_URL)))
        self.assertEqual([topic["title"] for topic in rest["topics"]], [f"Feed {PART + 1}"])
        self.assertIsNone(rest["next"])
        outlines = list(self.house.get("/feeds.opml").xml.iter("outline"))
        self.assertEqual((len(outlines), outlines[-1].get("type")), (PART + 1, "include"))
        more = (outlines[-1].get("url") or "").removeprefix(PUBLIC_URL)
        self.assertEqual(len(list(self.house.get(more).xml.iter("outline"))), 1)

    def test_passwords_are_left_out(self) -> None:
        self.view.summaries = [TopicSummary(1, "http://me:secret@feeds.example/", "t", {})]
        for path in ("/feeds.opml", "/subscriptions.json"):
            self.assertNotIn("secret", self.house.get(path).text)

    def test_texts_of_strangers(self) -> None:
        self.view.summaries = [TopicSummary(1, f"http://a.example/{BAD}", f"{BAD}\0\ud800", {})]
        (topic,) = self.json(self.house.get("/subscriptions.json"))["topics"]
        self.assertEqual(topic["url"], f"http://a.example/{BAD}")
        (outline,) = self.house.get("/feeds.opml").xml.iter("outline")
        self.assertEqual((outline.get("xmlUrl"), outline.get("text")), (topic["url"], BAD))

    def test_bad_positions(self) -> None:
        for path in ("/feeds.opml", "/subscriptions.json"):
            for after in ("x", "-1", "9" * 30):
                self.assertEqual(self.house.get(path, after=after).status, 400, after)

    def test_not_wanted(self) -> None:
        self.open(PublicListsOptions(topics=False))
        for path in ("/feeds.opml", "/subscriptions.json"):
            self.assertEqual(self.house.get(path).status, 404)
            self.assertNotIn(path, self.house.get("/changes").text)

    def test_real_subscriptions(self) -> None:
        house = House(self, doors=ALL_DOORS | {"public_lists"})
        house.subscribe()
        house.subscribe("soap")
        (topic,) = self.json(house.get("/subscriptions.json"))["topics"]
        self.assertEqual(topic["url"], FEED)
        self.assertEqual(topic["subscriptions"], {"http-post": 1, "soap": 1})
        self.assertEqual(house.get("/feeds.opml").xml.xpath("//@xmlUrl"), [FEED])


_REL = "nofollow ugc noopener"
_BOTH = ["The newest changes", "Older changes"]
