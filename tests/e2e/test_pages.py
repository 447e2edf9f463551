"""The pages in a real browser: their layout on a phone, their forms, and what it loads of them."""

from __future__ import annotations

import shutil
import subprocess
from unittest import skipIf
from urllib.parse import quote

from playwright.sync_api import expect

from tests.e2e.browser import PHONE, BrowserTestCase
from tests.e2e.fixture import TIMEOUT, request, until
from tests.processes import free_port, no_proxies

LONG = "http://site.example/" + "a" * 220

#: What a page has loaded, and with which status.
_LOADED = "performance.getEntriesByType('resource').map(each => [each.name, each.responseStatus])"

#: Whether an icon can be shown.
_ICON = """
path => new Promise(done => {
    const image = new Image();
    image.onload = () => done('there');
    image.onerror = () => done('missing');
    image.src = path;
})
"""

#: Gives the style of the first element that a selector finds.
_STYLE = "(what => getComputedStyle(document.querySelector(what)))"


class PagesTests(BrowserTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.broker = self.shared_broker()

    def ping(self, name: str, url: str) -> None:
        answer = request(f"{self.broker.url}/ping?name={name.replace(' ', '+')}&url={url}")
        self.assertEqual(answer.status, 200)

    def test_change_lists(self) -> None:
        """They are shown by their style sheet, in a small window and on a phone."""
        broker = self.broker = self.running_broker()
        self.ping("A site", LONG)
        self.ping("W" * 1000, "http://other.example/")
        broker.restart()  # makes the lists
        self.assert_listed(broker, {"name": "A site"}, {"name": "W" * 1000})
        until(lambda: broker.change_list("/shortChanges.xml"), "pings in the other list")
        viewport = {"width": PHONE, "height": PHONE}
        page = self.context(viewport=viewport).new_page()
        for path in ("/changes.xml", "/shortChanges.xml"):
            page.goto(f"{broker.url}{path}")
            scrolls = page.evaluate("document.documentElement.scrollWidth")
            self.assertLessEqual(scrolls, PHONE, path)
            shown = "getComputedStyle(document.querySelector('weblog'), '::before').display"
            self.assertEqual(page.evaluate(shown), "block", path)
        page = self.page(PHONE)
        page.goto(f"{broker.url}/changes.xml")
        size = "getComputedStyle(document.documentElement).fontSize"
        pixels = float(page.evaluate(size).removesuffix("px"))
        width = page.evaluate("document.documentElement.clientWidth")
        # What is seen is as large as 14 px, though a phone makes a wide page of it at first.
        self.assertGreater(pixels / width * PHONE, 14)

    def test_feeds(self) -> None:
        """Their style sheet shows names first; nothing by a stranger is loaded or run."""
        self.broker = self.running_broker("[apps.test_feed]\n")
        self.ping("A site", "http://site.example/")
        pings = f"{self.broker.url}/events/pings/recent"
        until(lambda: b"A site" in request(pings).body, "the ping in the feed")
        page = self.page()
        for path, first in (("/events/pings/recent", "Pings at"), ("/test/rss.xml", "Test feed")):
            page.goto(f"{self.broker.url}{path}")
            named = ":is(feed, channel) > title"
            self.assertIn(first, page.locator(named).text_content() or "")
            self.assertEqual(page.evaluate(f"{_STYLE}('{named}').fontSize"), "24px")
            self.assertEqual(page.evaluate(f"{_STYLE}('generator').display"), "none")
            self.assertEqual(page.evaluate(f"{_STYLE}('entry, item').display"), "block")
            scrolls = page.evaluate("document.documentElement.scrollWidth")
            self.assertEqual(scrolls, page.evaluate("document.documentElement.clientWidth"))

    def test_feed_with_contents_of_strangers(self) -> None:
        """The broker's style sheet is loaded, and nothing of the contents is run or shown."""
        html = 'xmlns:h="http://www.w3.org/1999/xhtml"'
        script = f"<h:script {html}>document.documentElement.id = 'run'</h:script>"
        origin = self.origin()
        style = f'<h:link {html} rel="stylesheet" href="{origin.url("/x.css")}"/>'
        feed = origin.feed(elements=f"<item>{script}{style}</item>")
        keep = f'[front_doors.events]\nkeep = [{{ topic = "{origin.url("/")}" }}]\n'
        broker = self.broker = self.running_broker(keep)
        broker.ping(feed)
        kept = f"{broker.url}/events/topic?url={quote(feed, safe='')}"
        until(lambda: request(kept).status == 200, "the contents")
        self.assertIn(b"script", request(kept).body)
        page = self.page()
        page.goto(kept)
        self.assertEqual(page.evaluate(f"{_STYLE}('feed > title').fontSize"), "24px")
        self.assertEqual(page.evaluate(f"{_STYLE}('content').display"), "none")
        self.assertEqual(page.evaluate("document.documentElement.id"), "")
        self.assertEqual(origin.requests["/x.css"], 0)

    def test_dark_and_light(self) -> None:
        page = self.page(PHONE)
        page.goto(self.broker.url)
        colour = "getComputedStyle(document.body).backgroundColor"
        self.assertEqual(page.evaluate(colour), "rgb(253, 253, 252)")
        page.emulate_media(color_scheme="dark")
        self.assertEqual(page.evaluate(colour), "rgb(21, 25, 29)")

    def test_live_log(self) -> None:
        """A page of the log that is open gets the lines of what happens now."""
        page = self.page()
        page.goto(f"{self.broker.url}/log?host=live.example")
        self.assertNotIn("live.example/now", page.inner_text("main"))
        self.ping("A site", "http://live.example/now")
        expect(page.locator("main")).to_contain_text("live.example/now")

    def test_what_a_page_loads(self) -> None:
        """The policy lets its style sheet in, and the browser knows the icon."""
        page = self.page()
        page.goto(self.broker.url)
        loaded = dict(page.evaluate(_LOADED))
        self.assertIn(f"{self.broker.url}/style.css", loaded)
        self.assertEqual(set(loaded.values()), {200})
        for path in ("/favicon.svg", "/favicon.ico"):
            self.assertEqual(page.evaluate(_ICON, path), "there")


class FormsTests(BrowserTestCase):
    """The forms, in a browser that runs no scripts: they need none."""

    def setUp(self) -> None:
        super().setUp()
        self.broker = self.shared_broker()
        self.tab = self.page(java_script_enabled=False)
        self.tab.goto(self.broker.url)

    def test_a_ping(self) -> None:
        """From the front page through the form and back."""
        self.follow(self.tab, "/pingSiteForm")
        fields = {"name": "<b>By hand</b>", "url": "http://hand.example/"}
        self.submit(self.tab, "form", fields)
        expect(self.tab.locator("h1")).to_have_text("Thanks for the ping.")
        self.follow(self.tab, "/")

        def listed() -> bool:
            self.tab.goto(self.broker.url)
            texts = self.tab.locator(".pings").all_inner_texts()  # none before the first ping
            return any("<b>By hand</b>" in text for text in texts)

        until(listed, "the ping to be on the front page")

    def test_rsscloud(self) -> None:
        feed = self.origin().feed()
        self.follow(self.tab, "/rssCloud")
        self.submit(self.tab, "form[action='/rsscloud/ping']", {"url": feed})
        expect(self.tab.locator("h1")).to_have_text("Thanks for the ping.")
        self.follow(self.tab, "/rssCloud")
        fields = {"url1": feed, "port": "1", "path": "/nobody"}
        self.submit(self.tab, "form[action='/rsscloud/pleaseNotify']", fields)
        failed = "the call failed when we tested the handler"
        expect(self.tab.get_by_role("alert")).to_contain_text(failed)
        expect(self.tab.locator("[name=path]")).to_have_value("/nobody")

    @skipIf(shutil.which("curl") is None, "there is no curl on this machine")
    def test_subscribing(self) -> None:
        """The form gives the answer that a program gets; the broker calls the callback at once."""
        callback = f"http://127.0.0.1:{free_port()}/nobody"
        fields = {"hub.topic": self.origin().feed(), "hub.callback": callback}
        self.tab.goto(f"{self.broker.url}/websub")
        form = "form[aria-labelledby=subscribe]"
        self.submit(self.tab, form, {**fields, "hub.secret": "sesame"})
        confirms = "asks the callback to confirm"
        expect(self.tab.get_by_role("status")).to_contain_text(confirms)
        expect(self.tab.locator("pre").nth(1)).to_contain_text("HTTP/1.1 202 Accepted")
        self.assertNotIn("sesame", self.tab.content())
        command = self.tab.locator("pre").nth(2).inner_text().replace("NOT-SHOWN", "sesame")
        # The shell reads the command as it is shown.
        asked = subprocess.run(
            ["sh", "-c", f"{command} -i"],
            capture_output=True,
            check=True,
            encoding="utf-8",
            env=no_proxies(),
            timeout=TIMEOUT,
        )
        self.assertIn("202 Accepted", asked.stdout)
        self.assertIn(confirms, asked.stdout)

    def test_a_form_that_is_not_filled_in(self) -> None:
        """The browser itself says so, and sends nothing."""
        self.tab.goto(f"{self.broker.url}/rssCloud")
        self.tab.click("form[action='/rsscloud/ping'] button")
        expect(self.tab.locator("[name=url]")).to_be_focused()
        self.assertEqual(self.tab.locator("main form:invalid").count(), 2)
        self.assertEqual(self.tab.url, f"{self.broker.url}/rssCloud")
