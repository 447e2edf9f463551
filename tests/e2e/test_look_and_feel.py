"""What every page has, in a real browser: the box that looks things up, times of the reader's zone,
and buttons that copy; and the page of a topic, which has all three.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from playwright.sync_api import Page, expect

from tests.e2e.browser import DESK, PHONE, BrowserTestCase
from tests.e2e.every_page import ACCOUNT, PASSWORD, BusyTestCase
from tests.e2e.fixture import until
from tests.e2e.servers import HttpPostReceiver

#: The tops and bottoms of what is seen in the header, each once.
_ROWS = """
[...document.querySelectorAll('header > *')].map(each => {
    const {top, bottom} = each.getBoundingClientRect();
    return [top, bottom];
})
"""


def rows(page: Page) -> int:
    """In how many rows the header of a page stands."""
    count, end = 0, 0.0
    for top, bottom in sorted(page.evaluate(_ROWS)):
        if top >= end:
            count += 1
        end = max(end, bottom)
    return count


class LookUpTests(BusyTestCase):
    def test_the_header_fits(self) -> None:
        """One row on a desk; on a phone another one for the navigation; also with a name in it."""
        for width, number in ((DESK, 1), (PHONE, 2)):
            page = self.page(width)
            page.goto(self.busy.broker.url)
            self.assertEqual(rows(page), number, width)
            page.goto(f"{self.busy.broker.url}/signin")
            self.submit(page, "main form", {"name": ACCOUNT, "password": PASSWORD})
            page.goto(self.busy.broker.url)
            expect(page.locator(".viewer")).to_be_visible()
            self.assertEqual(rows(page), number, width)
            self.assert_fits(page, f"{width} px")


class FormTests(BusyTestCase):
    def test_fields_and_buttons_in_a_row(self) -> None:
        """Those of one row have one height, whether one types or chooses, and whatever border."""
        page = self.page()
        page.goto(f"{self.busy.broker.url}/log")
        self.assert_of_one_height(page, "main form :is(input, select, button)", 5)
        page.goto(f"{self.busy.broker.url}/signin")
        self.submit(page, "main form", {"name": ACCOUNT, "password": PASSWORD})
        page.goto(f"{self.busy.broker.url}/write")
        self.assert_of_one_height(page, "main form .actions button:visible", 3)

    def assert_of_one_height(self, page: Page, selector: str, least: int) -> None:
        heights = page.locator(selector).evaluate_all("all => all.map(each => each.offsetHeight)")
        self.assertGreaterEqual(len(heights), least)
        self.assertEqual(len(set(heights)), 1, heights)


class TopicPageTests(BrowserTestCase):
    def test_what_happened_and_what_to_do(self) -> None:
        broker, receiver = self.shared_broker(), self.served(HttpPostReceiver())
        origin = self.origin()
        feed = origin.feed()
        broker.subscribe(receiver, feed)
        origin.change(feed)
        broker.ping(feed)
        until(lambda: len(receiver.heard) > 1, "the subscriber to be notified")
        page = self.page(permissions=["clipboard-read", "clipboard-write"])
        page.goto(f"{broker.url}/topic?url={quote(feed)}")

        def told() -> bool:
            page.reload()
            said = page.inner_text("main")
            awaited = ("ping accepted by rssCloud", "subscribers notified", "names no hub")
            return all(each in said for each in awaited)

        until(told, "the broker to have read the feed, and the event log to have it")
        self.assertNotIn(feed, page.inner_text(".timeline"))
        expect(page.locator("figure")).to_contain_text("1 change in the last 30 days")
        fault = page.locator(".todo li", has_text="names no hub")
        fault.get_by_role("button", name="Copy").click()
        expect(fault.get_by_role("button")).to_have_text("Copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        self.assertRegex(copied, r'^<link xmlns="[^"]+" rel="hub" href="[^"]+/websub"/>$')


class TimesTests(BusyTestCase):
    def test_in_the_zone_of_the_reader(self) -> None:
        """A time that is written out, and how long ago one was; either says the time in UTC."""
        page = self.page(timezone_id="Asia/Tokyo")
        page.goto(f"{self.busy.broker.url}/changes")
        time = page.locator("main time").first
        at = datetime.fromisoformat(time.get_attribute("datetime") or "")
        here = f"{at + timedelta(hours=9):%Y-%m-%d %H:%M:%S}"
        expect(time).to_have_text(here)
        utc = f"{at:%Y-%m-%d %H:%M:%S} UTC"
        self.assertIn(f"{here} ({utc})", time.get_attribute("title") or "")
        expect(page.locator("footer")).to_contain_text("Times are in Asia/Tokyo.")
        page.goto(f"{self.busy.broker.url}/topic?url={quote(self.busy.feed)}")
        time = page.locator(".timeline time").first
        self.assertRegex(time.inner_text(), "ago|just now|in |any moment")
        self.assertIn(" UTC), ", time.get_attribute("title") or "")

    def test_a_clock_that_is_behind(self) -> None:
        """What happened does not lie ahead of a reader whose clock is ten minutes behind."""
        page = self.page()
        page.clock.set_fixed_time(datetime.now(UTC) - timedelta(minutes=10))
        page.goto(f"{self.busy.broker.url}/topic?url={quote(self.busy.feed)}")
        time = page.locator(".timeline time", has_text="just now").first
        self.assertRegex(time.get_attribute("title") or "", r" UTC\), just now$")

    def test_without_a_script(self) -> None:
        """Times are in UTC, and there are no buttons that would do nothing."""
        page = self.page(timezone_id="Asia/Tokyo", java_script_enabled=False)
        page.goto(f"{self.busy.broker.url}/changes")
        time = page.locator("main time").first
        at = datetime.fromisoformat(time.get_attribute("datetime") or "")
        expect(time).to_have_text(f"{at:%Y-%m-%d %H:%M:%S}")
        expect(page.locator("footer")).to_contain_text("Times are in UTC.")
        page.goto(f"{self.busy.broker.url}/websub")
        expect(page.locator("pre.copy").first).to_be_visible()
        self.assertEqual(page.locator(".copier").count(), 0)

    def test_lines_that_come_later(self) -> None:
        """A time that is written out may also be the end of something, which lies ahead."""
        page = self.page(timezone_id="Asia/Tokyo")
        page.goto(f"{self.busy.broker.url}/log")
        expect(page.locator("#live")).to_be_visible()
        for year, ago in (("2026", r".* ago"), ("2999", r"in [\d,]+ days")):
            line = (
                "document.getElementById('entries').prepend(Object.assign("
                f"document.createElement('time'), {{dateTime: '{year}-11-21T02:30:00Z', "
                f"textContent: '{year}-11-21 02:30:00'}}))"
            )
            page.evaluate(line)
            time = page.locator("#entries > time").first
            expect(time).to_have_text(f"{year}-11-21 11:30:00")
            self.assertRegex(time.get_attribute("title") or "", rf" UTC\), {ago}$")
