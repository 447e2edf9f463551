"""The river of a running broker, read in a real browser, and by many at the same time."""

from __future__ import annotations

import json
import re
from html import escape
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from playwright.sync_api import ConsoleMessage, Page, Request, Route, expect

from tests.e2e.browser import BrowserTestCase, Watch
from tests.e2e.fixture import Broker, until
from tests.e2e.hostile import together, xml_text
from tests.e2e.servers import FEED
from tests.e2e.test_every_page import AXE, SERIOUS
from tests.e2e.test_xss import CHANGED, XSSTestCase

PASSWORD = "correct horse"


def shown(key: int, text: str = "", more: str = "") -> str:
    """An item of a feed."""
    return (
        f"<item><title>Item {key}</title><link>http://nighttrain.example.org/{key}</link>"
        f"<guid isPermaLink='false'>guid-{key}</guid>"
        f"<description>{escape(text or f'<p>Text {key}</p>')}</description>{more}</item>"
    )


class RiverTestCase(BrowserTestCase):
    """A running broker with an account, and an origin of feeds."""

    def setUp(self) -> None:
        super().setUp()
        self.broker = self.running_broker(account=("dave", PASSWORD))
        self.site = self.origin()

    def publish(self, url: str, items: list[str]) -> None:
        """Put items into a feed, and ping it."""
        self.site.pages[urlsplit(url).path] = FEED % "".join(items).encode()
        self.broker.ping(url)

    def signed_in(self, path: str, tab: Page | None = None) -> Page:
        """A page of the broker in a browser in which Dave has signed in."""
        tab = tab or self.page()
        self.sign_in(tab, f"{self.broker.url}{path}", "dave", PASSWORD)
        return tab

    def reader(self, *urls: str) -> Page:
        """The browser of Dave, who follows some feeds by their addresses or by those of pages."""
        tab = self.signed_in("/river/feeds")
        for url in urls:
            self.submit(tab, "form[aria-labelledby=follow]", {"url": url})
            expect(tab.get_by_role("status")).to_contain_text("You follow")
        return tab

    def open_river(self, tab: Page) -> None:
        """Open the river, and wait until it gets new items."""
        tab.goto(f"{self.broker.url}/river")
        expect(tab.locator("#river-state")).to_have_text("New items appear as they arrive")


class ReadingTests(RiverTestCase):
    def test_reading(self) -> None:
        """Somebody follows a feed by its page, and sees new items as they arrive."""
        items = [shown(1)]
        feed = self.site.feed(elements="".join(items))
        page = f'<html><link rel="alternate" type="application/rss+xml" href="{feed}"></html>'
        self.site.pages["/"] = page.encode()
        tab = self.reader(self.site.url("/"))
        expect(tab.locator(".rows li")).to_contain_text("Night Train Diary")
        expect(tab.locator(".rows li")).to_contain_text(feed)

        self.open_river(tab)
        expect(tab.locator(".river-item h3")).to_have_text(["Item 1"])
        items.insert(0, shown(2))
        self.publish(feed, items)
        expect(tab.locator(".river-item h3")).to_have_text(["New: Item 2", "Item 1"])
        expect(tab.locator(".river-feed h2")).to_have_text(["Night Train Diary"] * 2)
        items.insert(0, shown(3))
        self.publish(feed, items)
        titles = tab.locator(".river-item h3")
        expect(titles).to_have_text(["New: Item 3", "New: Item 2", "Item 1"])
        expect(tab.locator(".river-feed h2")).to_have_count(2)  # one heading for what is new

        # Without scripts there is the same to read.
        bare = self.page(java_script_enabled=False)
        self.signed_in("/river", bare)
        expect(bare.locator(".river-item")).to_have_count(3)
        self.assertFalse(bare.is_visible("#river-live"))

    def test_stopping_and_muting(self) -> None:
        """A line stays where somebody stopped, and a muted feed disappears from the river only."""
        feed = self.site.feed(elements=shown(2) + shown(1))
        tab = self.reader(feed)
        self.submit(tab, "form[aria-labelledby=follow]", {"url": feed})
        expect(tab.get_by_role("status")).to_have_text("You follow Night Train Diary already.")
        tab.goto(f"{self.broker.url}/river")
        self.press(tab, "text=I stopped here")
        self.publish(feed, [shown(3), shown(2), shown(1)])
        expect(tab.locator(".river-item h3").first).to_have_text("New: Item 3")
        tab.goto(f"{self.broker.url}/river")
        tab.click("text=go there")
        expect(tab.locator("#stopped")).to_be_in_viewport()
        above = "#stopped >> xpath=preceding::article[1]//h3"
        expect(tab.locator(above)).to_have_text("Item 1")
        self.press(tab, "text=Forget it")
        expect(tab.locator("#stopped")).to_have_count(0)
        tab.goto(f"{self.broker.url}/river/feeds")
        self.press(tab, "button:text-is('Mute')")
        expect(tab.locator(".rows .badge")).to_have_text(["polled", "muted"])
        tab.goto(f"{self.broker.url}/river")
        expect(tab.locator(".river-item")).to_have_count(0)

    def test_keys(self) -> None:
        items = [shown(key) for key in (3, 2, 1)]
        feed = self.site.feed(elements="".join(items))
        tab = self.reader(feed)
        self.open_river(tab)
        titles = tab.locator(".river-item h3")
        # Nothing moves below somebody who reads.
        tab.keyboard.press("j")
        tab.keyboard.press("j")
        expect(tab.locator(":focus h3")).to_have_text("Item 2")
        items.insert(0, shown(4))
        self.publish(feed, items)
        expect(tab.locator("#river-show")).to_have_text("1 new item")
        expect(titles).to_have_count(3)
        expect(tab).to_have_title("(1) River")
        tab.keyboard.press("n")
        expect(titles).to_have_count(4)
        expect(tab).to_have_title("River")
        expect(tab.locator(":focus h3")).to_have_text("New: Item 4")
        tab.keyboard.press("j")
        tab.keyboard.press("k")
        self.opens(tab, "http://nighttrain.example.org/4")

        # Who has switched the keys off types for other programs, such as screen readers.
        tab.goto(f"{self.broker.url}/river")
        tab.click(".keys summary")
        tab.uncheck("#river-keys")
        tab.reload()
        tab.keyboard.press("j")
        self.assertEqual(tab.locator(":focus").count(), 0)

    def test_more_items_than_fit(self) -> None:
        """The page says how many it leaves out, leads to them, and does not call them seen."""
        feeds = [self.site.feed(f"/{name}.xml", shown(1)) for name in ("a", "b")]
        tab = self.reader(*feeds)
        marked: list[str] = []
        tab.on(
            "request",
            lambda each: marked.append(each.post_data or "") if "/seen" in each.url else None,
        )
        tab.clock.install()
        self.open_river(tab)
        items = tab.locator(".river-item")
        with tab.expect_response("**/river/seen"):
            self.publish(feeds[0], [shown(0), shown(1)])
            expect(items).to_have_count(3)
            tab.clock.run_for(2000)

        tab.keyboard.press("j")  # somebody reads, so new items wait
        for number, feed in enumerate(feeds, 1):
            self.publish(feed, [shown(key) for key in range(161, 0, -1)])
            expect(tab.locator("#river-show")).to_have_text(f"{160 * number} new items")
        tab.keyboard.press("n")
        expect(items).to_have_count(300)
        left = tab.locator("#river-left")
        expect(left).to_contain_text("20 new items do not fit on this page.")
        last = int((items.last.get_attribute("id") or "").removeprefix("item-"))
        self.assertEqual(tab.locator("a[rel=next]").get_attribute("href"), f"/river?before={last}")
        tab.clock.run_for(2000)
        with tab.expect_navigation():
            left.get_by_role("link", name="Show them").click()
        ids = items.evaluate_all("all => all.map(one => Number(one.id.replace('item-', '')))")
        self.assertEqual(ids, list(range(last - 1, 0, -1)))  # 20, and those that were there
        self.assertEqual([each.partition("&id=")[2] for each in marked], [str(last - 21)])

        # The broker sends no more than some of this many to one who missed them.
        def behind(route: Route) -> None:
            """A page that was loaded before all items came."""
            answer = route.fetch()
            newest = re.sub('data-newest="[0-9]+"', 'data-newest="0"', answer.text())
            route.fulfill(response=answer, body=newest)

        tab.route("**/river", behind, times=1)
        tab.goto(f"{self.broker.url}/river")
        expect(tab.locator("#river-state")).to_have_text("There are more new items than fit here.")
        with tab.expect_navigation():
            tab.get_by_role("link", name="Load the page again").click()
        expect(tab.locator("#river-state")).to_have_text("New items appear as they arrive")

    def test_stopping_at_the_last_item_that_is_left(self) -> None:
        """New items have pushed others of its feed off the page."""
        feeds = [
            self.site.feed("/a.xml", shown(3) + shown(2) + shown(1)),
            self.site.feed("/b.xml", shown(1)),
        ]
        tab = self.reader(*feeds)
        self.open_river(tab)
        items = tab.locator(".river-item")
        tab.keyboard.press("j")
        for number, (feed, newest) in enumerate(zip(feeds, (152, 150), strict=True), 1):
            self.publish(feed, [shown(key) for key in range(newest, 0, -1)])
            expect(tab.locator("#river-show")).to_have_text(f"{149 * number} new items")
        tab.keyboard.press("n")
        expect(items).to_have_count(300)
        last = int((items.last.get_attribute("id") or "").removeprefix("item-"))
        stop = tab.locator("button.stop").last
        self.assertEqual(stop.get_attribute("value"), str(last - 1))

    def test_the_focus_stays_while_an_import_goes_on(self) -> None:
        tab = self.reader(self.site.feed(elements=shown(1)))

        def importing(route: Route) -> None:
            """The page while feeds wait to be fetched."""
            answer = route.fetch()
            script = '<p id="progress"></p><script src="/river/feeds.js" defer></script>'
            feeds = '<ul class="rows" id="feeds">'
            body = answer.text().replace(feeds, f"{script}{feeds}")
            route.fulfill(response=answer, body=body)

        tab.route("**/river/feeds", importing)
        tab.clock.install()
        tab.goto(f"{self.broker.url}/river/feeds")
        asked: list[str] = []
        tab.on("request", lambda each: asked.append(each.url))
        tab.focus("button:text-is('Mute')")
        tab.clock.run_for(10_000)
        self.assertEqual(tab.evaluate("document.activeElement.textContent"), "Mute")
        self.assertEqual(asked, [])
        with tab.expect_response("**/river/feeds"):
            tab.evaluate("document.activeElement.blur()")
            tab.clock.run_for(3000)

    def opens(self, tab: Page, url: str) -> None:
        """Enter leads to the page of the item."""
        tab.route(url, lambda route: route.fulfill(body="the page", content_type="text/plain"))
        with tab.expect_navigation():
            tab.keyboard.press("Enter")
        expect(tab).to_have_url(url)

    def test_a_broken_connection(self) -> None:
        """Nothing is lost while the broker is away."""
        items = [shown(1)]
        feed = self.site.feed(elements="".join(items))
        tab = self.reader(feed)
        self.open_river(tab)
        self.broker.kill()
        expect(tab.locator("#river-state")).to_have_text("Connecting again…")
        self.broker.start()
        items.insert(0, shown(2))
        self.publish(feed, items)
        expect(tab.locator(".river-item h3")).to_have_text(["New: Item 2", "Item 1"])


class MediaTests(RiverTestCase):
    def test_pictures_and_sounds_of_others(self) -> None:
        """The page shows pictures of other hosts, and loads sounds only when somebody wants so.

        Its policy forbids scripts as strictly as that of all other pages.
        """
        picture = (
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\6\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDAT"
            b"x\x9cc\xf8\x0f\x04\0\t\xfb\3\xfd\xfb^k+\0\0\0\0IEND\xaeB`\x82"
        )
        self.site.pages["/i.png"] = self.site.pages["/a.mp3"] = picture
        enclosures = (
            f'<enclosure url="{self.site.url("/a.mp3")}" length="1" type="audio/mpeg"/>',
            f'<enclosure url="{self.site.url("/i.png")}" length="1" type="image/png"/>',
        )
        items = [shown(number, more=each) for number, each in enumerate(enclosures)]
        feed = self.site.feed(elements="".join(items))
        tab = self.reader(feed)
        watch = Watch(urlsplit(self.broker.url).netloc)
        watch.attach(tab.context)
        answer = tab.goto(f"{self.broker.url}/river")
        assert answer is not None
        policy = answer.headers["content-security-policy"]
        for part in ("default-src 'none';", "script-src 'self';", "connect-src 'self';"):
            self.assertIn(part, policy)
        # Not wait_for_function: the policy of the page forbids it to look more than once.
        width = "document.querySelector('.river-item img')?.naturalWidth"
        until(lambda: tab.evaluate(width) == 1, "the picture")
        expect(tab.locator("audio")).to_have_count(1)
        self.assertEqual(self.site.requests["/a.mp3"], 0)
        asked = [f"asked for {self.site.url('/i.png')}"]
        self.assertEqual([fault for fault in watch.faults if fault not in asked], [])
        self.assertEqual(json.dumps(watch.requests).count("/a.mp3"), 0)


class _RiverWatch(Watch):
    """Watches pages that show pictures of strangers, which the browser asks for."""

    def _requested(self, request: Request) -> None:
        if request.resource_type not in {"image", "media"}:
            super()._requested(request)

    def _said(self, message: ConsoleMessage) -> None:
        elsewhere = urlsplit(message.location["url"]).netloc != self.host
        if not (elsewhere and message.text.startswith("Failed to load resource")):
            super()._said(message)


class StrangersTests(RiverTestCase, XSSTestCase):
    """What strangers write into feeds, on the page and in the event stream.

    The browser ignores the policy of the page, so that whatever is not cleaned runs.
    """

    changed = CHANGED.replace(" img, video, audio,", "").replace(
        "const fits =", "const fits = /^(IMG|AUDIO|VIDEO)$/.test(element.tagName) ||"
    )

    def attacked(self, broker: Broker) -> None:
        super().attacked(broker)
        self.watch.faults.clear()
        self.tab.context.remove_listener("request", self.watch._requested)
        self.watch = _RiverWatch(self.watch.host)
        self.watch.attach(self.tab.context)

    def test_payloads(self) -> None:
        groups = together(8)
        feeds = [
            self.site.feed(f"/{number}.xml", "".join(map(hostile, payloads)))
            for number, payloads in enumerate(groups)
        ]
        self.attacked(self.broker)
        self.signed_in("/river/feeds", self.tab)
        outlines = "".join(f'<outline xmlUrl="{feed}"/>' for feed in feeds)
        document = f"<opml version='2.0'><body>{outlines}</body></opml>"
        self.submit(self.tab, "form[aria-labelledby=import]", {"text": document})
        number = sum(map(len, groups))

        def arrived() -> bool:
            self.tab.goto(f"{self.broker.url}/river")
            return self.tab.locator(".river-item").count() >= min(number, 50)

        until(arrived, "the items in the river")
        while True:
            self.tab.evaluate(
                "document.querySelectorAll('details').forEach(one => one.open = true)"
            )
            self.inspect(self.tab.url)
            self.tab.evaluate(AXE)
            self.faults += self.tab.evaluate(SERIOUS)
            if not self.tab.locator("a[rel=next]").count():
                break
            self.press(self.tab, "a[rel=next]")
        self.look("/river/feeds")

        self.open_river(self.tab)
        for feed, payloads in zip(feeds, groups, strict=True):
            self.publish(feed, [hostile(payload, "new") for payload in payloads])
        count = "document.querySelectorAll('.river-item.new').length"
        until(lambda: self.tab.evaluate(count) >= number, "all new items")
        self.inspect("the event stream")
        self.assertEqual(self.faults, [])
        self.assertIn("xss(", self.tab.inner_text("#river"))


def hostile(payload: bytes, version: str = "") -> str:
    """An item with a payload in each place."""
    text = xml_text(payload)
    words, value = escape(text, quote=False), quoteattr(text)
    below = f"<rssCloud:item><title>{words}</title><link>{words}</link></rssCloud:item>"
    return (
        f'<item xmlns:rssCloud="http://rsscloud.co/"><title>{words}</title><link>{words}</link>'
        f"<guid>{version}{words}</guid><description>{words}</description>"
        f'<enclosure url={value} length="1" type="image/png"/>'
        f'<enclosure url="http://files.example/" length={value} type={value}/>{below}</item>'
    )
