"""The pages that look up topics and hosts, and what strangers do not find by them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.http.site import Root
from rsscloud_broker.model import Topic, TopicOverview, TopicStatus
from rsscloud_broker.model.disclosure import Disclosure
from rsscloud_broker.model.log_entry import LogEntry
from rsscloud_broker.testing import Clock, FakeTopicView, front_door_parts
from rsscloud_broker.web.look_up import FOUND, beginning_of
from rsscloud_broker.web.pages import PageRenderer
from rsscloud_broker.web.public_lists import PublicListsDoor, PublicListsOptions
from tests.front_doors.exchange import Answer
from tests.front_doors.fixture import FEED, NOON, PUBLIC_URL, House
from tests.web.test_topic_page import BAD, FakeLog, entry


def known(*topics: tuple[str, str], changes: int = 0) -> dict[str, TopicOverview]:
    """The overviews of topics with these URLs and titles, which changed so often today."""
    days = {int(NOON // 86_400): changes}
    return {
        url: TopicOverview(TopicStatus(Topic(url), feed={"title": title}, change_days=days))
        for url, title in topics
    }


class LookUpTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.view = FakeTopicView()
        self.view.overviews = known(
            (FEED, "A weblog"),
            ("https://feeds.example/b", ""),
            ("http://me:secret@feeds.example/c", "Hidden"),
        )
        self.log = FakeLog([])
        self.disclosure = Disclosure()
        self.running = frozenset({"topic_page", "public_lists", "event_log"})

    def get(self, path: str, options: PublicListsOptions | None = None, **query: str) -> Answer:
        parts = front_door_parts(
            topics=self.view,
            pages=PageRenderer(lambda: {"/search"}),
            public_url=PUBLIC_URL,
            running=self.running,
            event_log=self.log,
            disclosure=self.disclosure,
            clock=Clock(NOON),
        )
        door = PublicListsDoor(options or PublicListsOptions(), parts)
        return House(self, root=Root([door], PUBLIC_URL)).get(path, **query)

    def page(self, path: str, **query: Any) -> Any:
        return self.get(path, **query).html

    def links(self, path: str, **query: Any) -> list[str]:
        """The links in the main part of a page."""
        return [str(link) for link in self.page(path, **query).xpath("//main//a/@href")]

    def test_the_box_of_every_page(self) -> None:
        page = self.page("/search")
        (box,) = page.xpath("//header//form[@role='search']")
        self.assertEqual((box.get("action"), box.xpath("input/@name")), ("/search", ["q"]))
        self.assertIn("three characters", page.xpath("string(//main)"))

    def test_topics_and_their_hosts(self) -> None:
        topics = [
            "/topic?url=http%3A%2F%2Ffeeds.example%2Frss.xml",
            "/topic?url=https%3A%2F%2Ffeeds.example%2Fb",
        ]
        self.assertEqual(self.links("/search", q="FEEDS.ex"), [*topics, "/host?name=feeds.example"])
        self.assertNotIn("secret", self.get("/search", q="feeds.ex").text)
        self.assertEqual(self.links("/host", name="feeds.example"), topics)

    def test_a_whole_address(self) -> None:
        """Of a topic that strangers may know of it leads to its page, else to what there is."""
        answer = self.get("/search", q=FEED)
        place = "/topic?url=http%3A%2F%2Ffeeds.example%2Frss.xml"
        self.assertEqual((answer.status, answer.headers["location"]), (303, place))
        other = "/topic?url=http%3A%2F%2Fother.example%2F"
        self.assertEqual(self.links("/search", q="http://other.example/"), [other])

    def test_changes_of_a_host(self) -> None:
        """Those of all topics that it publishes."""
        self.view.overviews = known((FEED, ""), ("http://feeds.example/b", ""), changes=2)
        figure = self.page("/host", name="feeds.example").xpath("string(//figure)")
        self.assertIn("4 changes in the last 30 days", figure)

    def test_a_host_of_a_subscriber(self) -> None:
        """It is found by its whole name, as far as strangers see hosts of subscribers."""
        secret = {"callback": "http://reader.example/secret-path", "source": "192.0.2.99"}
        self.log.kept = [entry("notification", "failed", 60, host="reader.example", **secret)]
        self.assertEqual(self.links("/search", q="reader.ex"), [])
        self.assertEqual(self.links("/search", q="reader.example"), ["/host?name=reader.example"])
        page = self.get("/host", name="READER.example").text
        self.assertIn("was not notified of", page)
        for hidden in ("secret-path", "192.0.2.99"):
            self.assertNotIn(hidden, page)
        self.disclosure = Disclosure("none")
        self.assertEqual(self.links("/search", q="reader.example"), [])
        self.assertIn("knows nothing", self.get("/host", name="reader.example").text)

    def test_a_host_as_people_write_it(self) -> None:
        self.view.overviews = known(
            ("http://xn--bcher-kva.example/rss.xml", "Books"),
            ("http://[2001:db8::1]/rss.xml", "Books"),
        )
        for name in ("Bücher.example", "xn--bcher-kva.example.", "2001:db8::1", "[2001:DB8::0:1]"):
            self.assertIn("Books", self.page("/host", name=name).xpath("string(//main)"))

    def test_a_search_for_a_host_as_people_write_it(self) -> None:
        reader = ("reader.example:8080", "Reader.example.", "http://reader.example:1/n")
        for host, *queries in (
            ("reader.example", *reader),
            ("2001:db8::1", "2001:DB8::0:1", "[2001:db8::1]", "http://[2001:db8::1]:81/n"),
        ):
            self.log.kept = [entry("notification", "failed", 60, host=host)]
            for query in queries:
                link = f"/host?name={quote(host, safe='')}"
                self.assertIn(link, self.links("/search", q=query), query)
        self.assertEqual(self.links("/search", q="[]"), [])

    def test_a_host_that_is_not_called(self) -> None:
        """That stands first, as long as it is so."""

        def host(outcome: str, ago: float, **numbers: float) -> LogEntry:
            return LogEntry("host", outcome, NOON - ago, host="r.example", numbers=numbers)

        silent = host("unreachable", 60, port=81, retry_at=NOON + 60)
        heard = entry("notification", "delivered", 30, host="r.example")
        for entries, shown in (
            ([silent], 1),
            ([host("reachable", 30, port=80), silent], 1),
            ([host("unreachable", 90, port=80, retry_at=NOON + 30), silent], 2),
            ([host("reachable", 30, port=81), silent], 0),
            ([heard, silent], 0),
            ([host("unreachable", 60, retry_at=NOON - 1)], 0),
        ):
            self.log.kept = entries
            found = self.page("/host", name="r.example").xpath("//p[@class='notice']")
            self.assertEqual(len(found), shown, entries)
            for each in found:
                self.assertIn("does not answer: it is not called until", each.text_content())

    def test_lists_of_topics_are_off(self) -> None:
        off = PublicListsOptions(topics=False)
        self.assertEqual(self.links("/search", q="feeds.ex", options=off), [])
        self.assertEqual(self.links("/host", name="feeds.example", options=off), [])
        self.log.kept = [entry("ping", "accepted", 60, host="feeds.example")]
        self.assertIn(FEED, self.get("/host", name="feeds.example", options=off).text)
        self.running -= {"event_log"}
        self.assertNotIn(FEED, self.get("/host", name="feeds.example", options=off).text)
        self.assertEqual(self.links("/search", q="feeds.example", options=off), [])

    def test_hosts_whose_names_begin_alike(self) -> None:
        begin_alike = [f"http://feeds.example.evil.example/{key}" for key in range(FOUND)]
        self.view.overviews = known(*((url, "") for url in (*begin_alike, FEED)), changes=1)
        page = self.page("/host", name="feeds.example")
        self.assertEqual(
            page.xpath("//main//li/a/@href"), ["/topic?url=http%3A%2F%2Ffeeds.example%2Frss.xml"]
        )

    def test_a_host_of_many_topics(self) -> None:
        """Nobody counts the changes of the first ones alone."""
        urls = [f"http://feeds.example/{key}" for key in range(FOUND)]
        self.view.overviews = known(*((url, "ü" * 2000) for url in urls), changes=1)
        self.assertEqual(self.page("/host", name="feeds.example").xpath("//figure"), [])
        answer = self.get("/search", q="feeds")
        self.assertIn(f"the first {FOUND}", answer.text)
        self.assertLess(len(answer.body), 60_000)

    def test_texts_of_strangers_are_texts(self) -> None:
        self.view.overviews = known(("http://feeds.example/", BAD))
        for path, query in (
            ("/search", {"q": "feeds"}),
            ("/search", {"q": BAD}),
            ("/host", {"name": BAD}),
        ):
            page = self.page(path, **query)
            self.assertEqual(page.xpath("//main//script | //img | //@style"), [])
            self.assertIn(BAD.lower(), page.text_content().lower())

    def test_beginnings(self) -> None:
        for wanted, begins in (
            ("Site.Example", "site.example"),
            ("Site.Example/A b", "site.example/A b"),
            ("Site.Example/\N{LATIN SMALL LETTER A WITH DIAERESIS}", "site.example/%C3%A4"),
            ("m\N{LATIN SMALL LETTER U WITH DIAERESIS}.example", "xn--m-eha.example"),
            ("127.0", "127.0"),
            ("\U0010ffff", ""),
            ("HTTPS://Site.exa", "https://site.exa"),
            ("HTTP://Site.example:80/%7Ea", "http://site.example/~a"),
            ("javascript://site.example/", ""),
        ):
            self.assertEqual(beginning_of(wanted), begins)
