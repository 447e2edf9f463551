"""The page of the event log."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import NoOptions
from rsscloud_broker.model.disclosure import Disclosure, Mode
from rsscloud_broker.model.log_entry import KINDS, LogEntry
from rsscloud_broker.testing import front_door_parts
from rsscloud_broker.web.event_log import ON_PAGE, EventLogDoor
from tests.front_doors.fixture import NOON, House

FEED = "http://feeds.example/rss.xml"
CALLBACK = "http://reader.example/notify?token=s3cret"


def about_reader(kind: str, outcome: str, **more: str) -> LogEntry:
    """An entry about a subscriber."""
    about = {"topic": FEED, "host": "reader.example", "callback": CALLBACK, **more}
    return LogEntry(kind, outcome, NOON, **about)  # type: ignore[arg-type] # these are texts


class LogCase(SynchronousTestCase):
    """A site with an event log in memory."""

    mode: Mode = "host"

    def setUp(self) -> None:
        self.house = House(self, doors=frozenset({"event_log"}), disclosure=Disclosure(self.mode))

    def add(self, *entries: LogEntry) -> None:
        self.successResultOf(self.house.store.add_log_entries(entries))

    def ping(self, number: int = 1) -> LogEntry:
        topic = f"http://site{number}.example/"
        return LogEntry("ping", "accepted", NOON, topic=topic, host="site.example")


class PageTests(LogCase):
    def page(self, path: str = "/log", **query: str) -> Any:
        return self.house.get(path, **query).page()

    def lines(self, page: Any) -> list[str]:
        return [item.text_content() for item in page.xpath("//ol[@id='entries']/li/span")]

    def test_words_of_the_filter(self) -> None:
        """People choose among words that they know; programs send the names."""
        page = self.page()
        for name, word in (("fan-out", "subscribers"), ("dropped", "removed")):
            self.assertEqual(page.xpath("//option[@value=$name]/text()", name=name), [word])

    def test_nothing_yet(self) -> None:
        page = self.page()
        self.assertEqual(page.xpath("string(//p[@id='nothing'])"), "There is nothing here yet.")
        self.assertEqual(page.xpath("//ol/@data-stream"), ["/log/events"])

    def test_newest_first_with_links(self) -> None:
        self.add(self.ping(1), self.ping(2))
        page = self.page()
        lines = [f"A ping for http://site{n}.example/ was accepted." for n in (2, 1)]
        self.assertEqual(self.lines(page), lines)
        links = [f"/topic?url=http%3A%2F%2Fsite{n}.example%2F" for n in (2, 1)]
        self.assertEqual(page.xpath("//ol//a/@href"), links)
        self.assertEqual(page.xpath("//ol/li[1]/time/@datetime"), ["2026-09-29T12:00:00Z"])
        self.assertEqual(page.xpath("//ol/@data-stream"), ["/log/events?after=2"])
        self.assertEqual(page.xpath("//main//script/@src"), ["/log.js"])

    def test_older_entries(self) -> None:
        self.add(*(self.ping(number) for number in range(1, 2 * ON_PAGE + 2)))
        page, seen = self.page(kind="ping"), 0
        for count in (ON_PAGE, ON_PAGE, 1):
            self.assertEqual(len(self.lines(page)), count)
            seen += count
            older = page.xpath("//a[@rel='next']/@href")
            if older:
                page = self.page(older[0])
                self.assertEqual(page.xpath("//ol/@data-stream | //main//script"), [])
                newest = page.xpath("//a[text()='Newest entries']/@href")
                self.assertEqual(newest, ["/log?kind=ping"])
        self.assertEqual((seen, older), (2 * ON_PAGE + 1, []))

    def test_filters_are_in_the_url_and_the_form(self) -> None:
        self.add(self.ping(), LogEntry("notification", "given up", NOON, topic=FEED, host="b"))
        typed = "HTTP://Feeds.example:80/rss.xml"
        page = self.page(topic=typed, kind="notification", outcome="given up")
        self.assertEqual(len(self.lines(page)), 1)
        self.assertEqual(page.xpath("//input[@name='topic']/@value"), [FEED])
        self.assertEqual(page.xpath("//option[@selected]/@value"), ["notification", "given up"])
        query = parse_qs(urlsplit(page.xpath("string(//ol/@data-stream)")).query)
        wanted = {"topic": FEED, "kind": "notification", "outcome": "given up", "after": "2"}
        self.assertEqual(query, {name: [value] for name, value in wanted.items()})
        # The stream goes on after the newest entry, also if that does not pass the filter.
        for kind in ("ping", "host"):
            stream = self.page(kind=kind).xpath("string(//ol/@data-stream)")
            self.assertEqual(parse_qs(urlsplit(stream).query)["after"], ["2"])
        self.assertEqual(len(self.lines(self.page(host="Site.Example"))), 1)
        self.assertEqual(page.xpath("//select[@name='kind']/option/@value"), ["", *KINDS])

    def test_hosts_as_people_write_them(self) -> None:
        for typed, host in (
            ("bücher.example", "xn--bcher-kva.example"),
            ("reader.example.", "reader.example"),
            ("[2001:DB8::0:1]", "2001:db8::1"),
        ):
            self.add(LogEntry("host", "unreachable", NOON, host=host))
            page = self.page(host=typed)
            self.assertEqual(len(self.lines(page)), 1, typed)
            self.assertEqual(page.xpath("//input[@name='host']/@value"), [host])

    def test_parameters_that_cannot_be_used_are_named(self) -> None:
        self.add(self.ping())
        numbers = ("x", "9" * 30, "0" * 20 + "9" * 9, "9" * 5000, "٣", "-1")
        pairs = [("kind", "x"), ("outcome", "x"), *(("before", each) for each in numbers)]
        for name, value in pairs:
            page = self.page(**{name: value})
            self.assertIn(f" {name} is ", page.xpath("string(//p[@role='alert'])"))
            self.assertEqual(len(self.lines(page)), 1)

    def test_strangers_write_nothing_but_text(self) -> None:
        bad = '"><script>alert(1)</script>'
        self.add(LogEntry("ping", "refused", NOON, topic=bad, host=bad, reason=bad))
        for page in (self.page(), self.page(topic=bad), self.page(host=bad, kind=bad)):
            self.assertEqual(page.xpath("//main//script/@src"), ["/log.js"])
            self.assertEqual(page.xpath("//main//script[not(@src)]"), [])
        self.assertIn(bad, self.lines(self.page())[0])

    def test_callbacks_are_shown_in_part(self) -> None:
        self.add(about_reader("subscription", "verified", source="192.0.2.7"))
        text = self.house.get("/log").text
        self.assertIn("reader.example", text)
        for secret in ("notify", "s3cret", "192.0.2.7"):
            self.assertNotIn(secret, text)

    def test_other_answers(self) -> None:
        """For HEAD, at the path of rssCloud Server, and without a store."""
        answer = self.house.ask("HEAD", "/log")
        self.assertEqual((answer.status, answer.body), (200, b""))
        answer = self.house.get("/viewLog")
        self.assertEqual((answer.status, answer.headers["location"]), (302, "/log"))
        self.house.break_store()
        answer = self.house.get("/log")
        self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "30"))

    def test_no_event_log_no_page(self) -> None:
        door = EventLogDoor(NoOptions(), front_door_parts())
        self.assertEqual(door.routes(), [])


class HiddenTests(LogCase):
    mode: Mode = "none"

    def test_nothing_of_callbacks_is_shown_or_found(self) -> None:
        self.add(about_reader("notification", "delivered", reason="reader.example"))
        self.assertNotIn("reader.example", self.house.get("/log", topic=FEED).text.split("<ol")[1])
        text = self.house.get("/log", host="reader.example").text
        self.assertIn("There is nothing here yet.", text)

    def test_the_number_of_entries_does_not_say_what_is_hidden(self) -> None:
        """The page for a host with hidden entries is the page for any other host."""
        self.add(*[about_reader("notification", "delivered")] * (ON_PAGE + 1))
        self.add(LogEntry("host", "unreachable", NOON, host="reader.example"))
        texts = [
            self.house.get("/log", host=host).text.replace(host, "HOST")
            for host in ("reader.example", "nobody.example")
        ]
        pages = [
            text.replace('placeholder="HOST"', 'placeholder="reader.example"') for text in texts
        ]
        self.assertEqual(*pages)
        self.add(self.ping())
        self.assertIn("site1.example", self.house.get("/log", host="site.example").text)
