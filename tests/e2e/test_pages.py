"""The pages in a real browser: their layout on a phone, their forms, and what it loads of them."""

from __future__ import annotations

import shutil
from subprocess import run
from typing import Any
from unittest import skipIf

from tests.e2e.chromium import Chromium
from tests.e2e.fixture import EndToEndTestCase, request, until
from tests.e2e.servers import HttpPostReceiver
from tests.processes import free_port, no_proxies

NARROW, PHONE, DESK = 360, 390, 1280
LONG = "http://site.example/" + "a" * 220

#: What reaches beyond the screen, though the page does not scroll: it would be cut off.
_CUT_OFF = """
[...document.querySelectorAll('body *')]
    .filter(each => each.getBoundingClientRect().right > innerWidth + 0.5)
    .map(each => each.tagName)
"""

#: What a page has loaded, and with which status.
_LOADED = "performance.getEntriesByType('resource').map(each => [each.name, each.responseStatus])"


#: Whether an icon can be shown.
_ICON = """
new Promise(done => {
    const image = new Image();
    image.onload = () => done('there');
    image.onerror = () => done('missing');
    image.src = '%s';
})
"""


class PagesTests(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.browser = Chromium(self.directory() / "profile")
        self.browser.start()
        self.addCleanup(self.browser.stop)
        self.broker = self.shared_broker()

    def ping(self, name: str, url: str) -> None:
        answer = request(f"{self.broker.url}/ping?name={name.replace(' ', '+')}&url={url}")
        self.assertEqual(answer.status, 200)

    def open(self, path: str) -> None:
        self.browser.open(f"{self.broker.url}{path}")

    def text(self, selector: str) -> Any:
        """The text of the first element that a CSS selector finds."""
        return self.browser.evaluate(f"document.querySelector('{selector}')?.innerText ?? ''")

    def test_nothing_is_cut_off(self) -> None:
        self.ping("A site", LONG)
        self.ping("W" * 1000, "http://other.example/")
        feed = self.origin().feed()
        self.subscribed(self.broker, self.served(HttpPostReceiver()), feed)
        pages = (
            *("/", "/docs", "/websub", "/rssCloud", "/pingSiteForm", "/nothing", "/RPC2"),
            *("/changes", "/topic", f"/topic?url={feed}", f"/topic?url={LONG}"),
        )
        taken = f"/pingSiteForm?name=B&url={LONG}"
        refused = f"/pingSiteForm?name=B&url={'z' * 250}"
        for width, dark in ((NARROW, False), (PHONE, True), (DESK, False)):
            self.browser.screen(width, dark=dark, phone=width != DESK)
            for path in (*pages, taken, refused):
                self.open(path)
                self.assertEqual(self.browser.evaluate("innerWidth"), width, path)
                scrolls = self.browser.evaluate("document.documentElement.scrollWidth")
                self.assertLessEqual(scrolls, width, path)
                self.assertEqual(self.browser.evaluate(_CUT_OFF), [], path)

    def test_change_lists(self) -> None:
        """They are shown by their style sheet, in a small window and on a phone."""
        self.broker = self.own_broker()
        self.broker.start()
        self.ping("A site", LONG)
        self.ping("W" * 1000, "http://other.example/")
        self.broker.restart()  # makes the lists
        self.assert_listed(self.broker, {"name": "A site"}, {"name": "W" * 1000})
        self.browser.screen(PHONE)
        for path in ("/changes.xml", "/shortChanges.xml"):
            self.open(path)
            scrolls = self.browser.evaluate("document.documentElement.scrollWidth")
            self.assertLessEqual(scrolls, PHONE, path)
            shown = "getComputedStyle(document.querySelector('weblog'), '::before')"
            self.assertEqual(self.browser.evaluate(f"{shown}.display"), "block", path)
        self.browser.screen(PHONE, phone=True)
        self.open("/changes.xml")
        size = "getComputedStyle(document.documentElement).fontSize"
        width = "document.documentElement.clientWidth"
        pixels = float(self.browser.evaluate(size).removesuffix("px"))
        # What is seen is as large as 14 px, though a phone makes a wide page of it at first.
        self.assertGreater(pixels / self.browser.evaluate(width) * PHONE, 14)

    def test_dark_and_light(self) -> None:
        colour = "getComputedStyle(document.body).backgroundColor"
        seen = []
        for dark in (False, True):
            self.browser.screen(PHONE, dark=dark)
            self.open("/")
            seen.append(self.browser.evaluate(colour))
        self.assertEqual(seen, ["rgb(253, 253, 252)", "rgb(21, 25, 29)"])

    def test_what_a_page_loads(self) -> None:
        """The policy lets its style sheet in, and the browser knows the icon."""
        self.open("/")
        loaded = dict(self.browser.evaluate(_LOADED))
        self.assertEqual(loaded, {f"{self.broker.url}/style.css": 200})
        for path in ("/favicon.svg", "/favicon.ico"):
            self.assertEqual(self.browser.evaluate(_ICON % path), "there")

    def test_a_ping_by_hand(self) -> None:
        """From the front page through the form and back."""
        self.open("/")
        self.follow("/pingSiteForm")
        fields = {"name": "<b>By hand</b>", "url": "http://hand.example/"}
        self.browser.submit("form", fields)
        self.assertEqual(self.text("h1"), "Thanks for the ping.")
        self.follow("/")

        def listed() -> bool:
            self.open("/")
            return "<b>By hand</b>" in self.text(".pings")

        until(listed, "the ping to be on the front page")

    def test_rsscloud_by_hand(self) -> None:
        feed = self.origin().feed()
        self.open("/")
        self.follow("/rssCloud")
        self.browser.submit("form[action='/rsscloud/ping']", {"url": feed})
        self.assertEqual(self.text("h1"), "Thanks for the ping.")
        self.follow("/rssCloud")
        fields = {"url1": feed, "port": "1", "path": "/nobody"}
        self.browser.submit("form[action='/rsscloud/pleaseNotify']", fields)
        self.assertIn("the call failed when we tested the handler", self.text("[role=alert]"))
        kept = "document.querySelector('[name=path]').value"
        self.assertEqual(self.browser.evaluate(kept), "/nobody")

    def test_publishing_by_hand(self) -> None:
        self.open("/")
        self.follow("/websub")
        self.browser.submit("form", {"hub.url": self.origin().feed()})
        self.assertIn("Thanks.", self.text("[role=status]"))
        self.follow("/")

    @skipIf(shutil.which("curl") is None, "there is no curl on this machine")
    def test_subscribing_by_hand(self) -> None:
        """The form gives the answer that a program gets; the broker calls the callback at once."""
        feed = self.origin().feed()
        self.open("/websub")
        fields = {"hub.topic": feed, "hub.callback": f"http://127.0.0.1:{free_port()}/nobody"}
        form = "form[aria-labelledby=subscribe]"
        self.browser.submit(form, {**fields, "hub.secret": "sesame"})
        self.assertIn("asks the callback to confirm", self.text("[role=status]"))
        self.assertIn("HTTP/1.1 202 Accepted", self.text("pre:nth-of-type(2)"))
        self.assertNotIn("sesame", self.browser.evaluate("document.documentElement.outerHTML"))
        command = self.text("pre:nth-of-type(3)").replace("NOT-SHOWN", "sesame")
        # The shell reads the command as it is shown.
        asked = run(
            ["sh", "-c", f"{command} -i"], capture_output=True, check=True, env=no_proxies()
        )
        self.assertIn(b"202 Accepted", asked.stdout)
        self.assertIn(b"asks the callback to confirm", asked.stdout)

    def test_a_topic_by_hand(self) -> None:
        """From the front page to the overview of a topic, and its button."""
        origin, receiver = self.origin(), self.served(HttpPostReceiver())
        feed = origin.feed()
        self.subscribed(self.broker, receiver, feed)
        self.open("/")
        self.browser.submit("form.filters", {"url": feed})
        self.assertIn("One subscriber is notified", self.text(".lead"))
        origin.change(feed)
        self.browser.click("form[method=post] button")
        self.assertIn("It has changed", self.text("[role=status]"))
        self.assert_told(receiver, feed)
        self.browser.click("form[method=post] button")
        self.assertIn("It has not changed", self.text("[role=status]"))

    def test_changes(self) -> None:
        self.ping("<i>Changed</i>", "http://changed.example/")

        def listed() -> bool:
            self.open("/changes")
            return "<i>Changed</i>" in self.text("tbody")

        until(listed, "the ping to be among the changes")
        self.browser.screen(PHONE, phone=True)
        self.open("/changes")
        shown = "getComputedStyle(document.querySelector('tbody tr')).display"
        self.assertEqual(self.browser.evaluate(shown), "block")

    def test_keyboard(self) -> None:
        """The first stop of the Tab key leads to the content, and each link shows the focus."""
        self.open("/docs")
        self.browser.press_tab()
        self.assertEqual(self.text(":focus"), "Skip to the content")
        top = "document.querySelector('.skip').getBoundingClientRect().top"
        self.assertGreaterEqual(self.browser.evaluate(top), 0)
        self.browser.press_tab()
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        self.assertEqual(self.browser.evaluate(outline), "solid")

    def test_a_form_that_is_not_filled_in(self) -> None:
        """The browser itself says so, and sends nothing."""
        self.open("/rssCloud")
        self.assertIs(self.browser.evaluate("document.forms[0].checkValidity()"), False)

    def test_ways_home(self) -> None:
        for path in ("/nothing", "/RPC2", "/2026/01/01/01.xml"):
            self.open(path)
            self.follow("/")
            self.assertIn("Tell feed readers", self.text("h1"))

    def follow(self, path: str) -> None:
        """Click on a link in the page, and wait for what is there."""
        self.browser.click(f"main a[href='{path}']")
        here = self.browser.evaluate("location.pathname")
        self.assertEqual(here, path)
