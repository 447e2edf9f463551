"""What browsers and feed readers get from the test feed."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.test_feed.app import make_test_feed
from rsscloud_broker.apps.test_feed.items import TABLES
from rsscloud_broker.apps.test_feed.options import TestFeedOptions
from rsscloud_broker.config import Http
from rsscloud_broker.counters import Counters
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import Account
from rsscloud_broker.testing import FakeCallers, app_parts, caller_of
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.web.pages import PageRenderer
from rsscloud_broker.wire.http_dates import http_date
from tests.front_doors.exchange import Answer, ask

QUARTER = 1_000_000_800
FEED = "/test/rss.xml"


class DoorTestCase(SynchronousTestCase):
    parts: dict[str, Any] = {}  # noqa: RUF012 # no test changes it
    runs = True

    def setUp(self) -> None:
        self.clock = Clock(QUARTER + 60)
        self.callers = FakeCallers()
        given: dict[str, Any] = {
            "pages": PageRenderer(),
            "callers": self.callers,
            "clock": self.clock,
            "running": frozenset({"topic_page"}),
        }
        self.app_parts = app_parts(TABLES, **(given | self.parts))
        self.start()

    def start(self) -> None:
        """Make the application, with a site of its own, and start it if it runs in this test."""
        app = make_test_feed(TestFeedOptions(), self.app_parts)
        root = Root(app.front_doors, "http://broker.example")
        self.factory = bounded_site(root, HTTPLimits(Http(), self.clock), Counters())
        if self.runs:
            (service,) = app.services
            service.startService()
            self.addCleanup(service.stopService)

    def show(self, path: str = "/test") -> Answer:
        return ask(self.factory, "GET", path)

    def get(self, method: str = "GET", **headers: str) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return ask(self.factory, method, FEED, headers=sent)


class FeedTests(DoorTestCase):
    def test_headers(self) -> None:
        answer = self.get()
        self.assertEqual((answer.status, answer.xml.tag), (200, "rss"))
        own = '<http://broker.example/test/rss.xml>; rel="self"'
        for name, text in (
            ("content-type", "application/rss+xml; charset=utf-8"),
            ("content-length", str(len(answer.body))),
            ("last-modified", "Sun, 09 Sep 2001 02:00:00 GMT"),
            ("cache-control", "public, max-age=0, must-revalidate"),
            ("vary", "Accept, Accept-Encoding"),
            ("access-control-allow-origin", "*"),
            ("link", f'<http://broker.example/websub>; rel="hub", {own}'),
        ):
            self.assertEqual(answer.headers[name], text)
        for method in ("POST", "PUT"):
            self.assertEqual(self.get(method).status, 405)

    def test_clock_that_was_set_back(self) -> None:
        """Each version has a later date than that before it, also after a restart."""
        self.clock.pump([1.0] * 900)
        before = self.get().headers["last-modified"]
        self.clock.set_wall(-7200)
        self.clock.pump([1.0] * 960)
        self.assertEqual(self.get(if_modified_since=before).status, 200)
        self.assertIsNone(self.get().headers["last-modified"])  # it is in the future
        self.start()
        self.assertEqual(self.get(if_modified_since=before).status, 200)
        self.clock.set_wall(14_400)
        after = self.get().headers["last-modified"]
        self.assertGreater(http_date(after) or 0.0, http_date(before) or 0.0)


class BeforeTests(DoorTestCase):
    runs = False

    def test_no_item_yet(self) -> None:
        for method in ("GET", "HEAD"):
            answer = self.get(method)
            self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "5"))
        self.assertIn("There is none yet.", self.show().page().text_content())


class PageTests(DoorTestCase):
    def test_what_comes_and_when(self) -> None:
        page = self.show().page()
        (next_time,) = page.xpath("//strong/time")
        self.assertEqual(next_time.text, "02:15:00 UTC")
        self.assertEqual(next_time.get("datetime"), "2001-09-09T02:15:00Z")
        self.assertIn("“02:15:00 UTC on 9 September 2001”", page.text_content())
        (left,) = page.xpath("//*[@id='countdown']/@data-left")
        self.assertEqual(left, "840.0")
        (item,) = page.xpath("//ul[@id='items']/li")
        self.assertIn("02:00:00 UTC on 9 September 2001", item.text_content())
        self.assertIn("urn:uuid:", item.text_content())

    def test_commands(self) -> None:
        page = self.show().page()
        commands = [" ".join(each.text_content().split()) for each in page.xpath("//pre")]
        for option in ("", "--protocol websub "):
            url = "http://broker.example/test/rss.xml"
            self.assertIn(f"rsscloud-broker listen {option}{url}", commands)
        (registering,) = (each for each in commands if each.startswith("curl -d notifyProcedure"))
        self.assertIn(" http://broker.example/rsscloud/pleaseNotify", registering)
        topic = "/topic?url=http%3A%2F%2Fbroker.example%2Ftest%2Frss.xml"
        self.assertIn(topic, page.xpath("//a/@href"))

    def test_pages_for_one_person_are_kept_by_no_cache(self) -> None:
        self.assertEqual(self.show().headers["cache-control"], "no-cache")
        self.callers.signed_in = caller_of(Account(1, "dave", True, 0.0))
        answer = self.show()
        self.assertEqual(answer.headers["cache-control"], "no-store")
        self.assertIn("dave", answer.text)

    def test_script(self) -> None:
        (path,) = self.show().page().xpath("//main//script/@src")
        answer = self.show(path)
        self.assertEqual(answer.headers["content-type"], "text/javascript; charset=utf-8")
        self.assertIn("countdown", answer.text)


class BareTests(DoorTestCase):
    """A broker with neither rssCloud nor WebSub nor pages of topics."""

    parts = {"has_hub": False, "has_cloud": False, "running": frozenset()}  # noqa: RUF012 # as above

    def test_page_offers_what_there_is(self) -> None:
        headings = [each.text for each in self.show().page().xpath("//h2")]
        self.assertEqual(headings, ["What your subscriber should see"])
        link = '<http://broker.example/test/rss.xml>; rel="self"'
        self.assertEqual(self.get().headers["link"], link)
