"""The test feed of a real broker in a browser, and the link by which its owner signs in."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from playwright.sync_api import expect

from tests.e2e.browser import BrowserTestCase
from tests.e2e.fixture import Broker, request, until


def guids(broker: Broker) -> list[str]:
    """The guids in the feed, the newest first."""
    feed = ElementTree.fromstring(request(f"{broker.url}/test/rss.xml").body)
    return [str(guid.text) for guid in feed.iter("guid")]


class InABrowserTests(BrowserTestCase):
    def test_new_items_appear(self) -> None:
        """Without a reload, and the countdown goes on."""
        broker = self.running_broker("[apps.test_feed]\nevery = 2\n")
        until(lambda: request(f"{broker.url}/test/rss.xml").status == 200, "the first item")
        page = self.page()
        page.goto(f"{broker.url}/test")
        first = guids(broker)[0]
        expect(page.locator("#items")).to_contain_text(first)
        expect(page.locator("#items li").first).not_to_contain_text(first)
        expect(page.locator("#countdown")).to_have_text(re.compile(r"\(in \d s\)"))

    def test_link_that_the_broker_prints(self) -> None:
        """One click: the script of its page presses the button."""
        broker = self.running_broker()
        printed = re.compile(r"http://localhost:\d+(/signin/once\?key=\S+)")
        until(lambda: printed.search(broker.log), "the link")
        (path,) = printed.findall(broker.log)
        self.assertEqual(request(broker.url + path).status, 200)  # a preview
        page = self.page()
        page.goto(broker.url + path, wait_until="commit")
        expect(page.locator(".viewer summary")).to_have_text("myself")
        page.goto(broker.url + path)
        expect(page.get_by_role("alert")).to_contain_text("This link was used")
