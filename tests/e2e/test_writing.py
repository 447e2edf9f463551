"""The authoring tool of a running broker, in a browser with a keyboard."""

from __future__ import annotations

from base64 import b64decode

from lxml import etree
from playwright.sync_api import FilePayload, Page, Route, expect

from tests.e2e.browser import BrowserTestCase, Watch
from tests.e2e.fixture import EndToEndTestCase, request, until
from tests.e2e.writing import Writer

PASSWORD = "correct horse"

#: A picture of one point.
PICTURE: FilePayload = {
    "name": "cat.gif",
    "mimeType": "image/gif",
    "buffer": b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"),
}


class GuardTests(EndToEndTestCase):
    def test_enclosures_on_private_addresses(self) -> None:
        """The address guard for topics also holds for the servers of enclosures."""
        broker = self.own_broker("[apps.writing]\nenabled = true\n", ())
        broker.add_account("dave", PASSWORD)
        broker.start()
        writer = Writer(broker, "dave", PASSWORD)
        writer.sign_in()
        for url in (
            self.origin().feed(),
            "http://127.0.0.1:9/x",
            "http://[::1]/",
            "http://0x7f000001/",
        ):
            answer = writer.post("look", enclosure=url)
            self.assertEqual(answer.status, 400)
            self.assertIn("cannot be used: ", answer.text)
        self.assertEqual(request(f"{broker.url}/people/dave").status, 404)


class KeyboardTests(BrowserTestCase):
    """A person writes in Chromium, and touches nothing but the keyboard."""

    def setUp(self) -> None:
        super().setUp()
        self.broker = self.running_broker(account=("dave", PASSWORD))
        self.watch = Watch(f"127.0.0.1:{self.broker.port}")

    def signed_in(self) -> Page:
        tab = self.page()
        self.watch.attach(tab.context)
        tab.goto(f"{self.broker.url}/write")
        self.tab_to(tab, "[name=name]")
        tab.keyboard.type("dave")
        self.tab_to(tab, "[name=password]")
        tab.keyboard.type(PASSWORD)
        with tab.expect_navigation():
            tab.keyboard.press("Enter")
        return tab

    def tab_to(self, tab: Page, selector: str) -> None:
        """Press Tab until an element has the focus."""
        for _ in range(60):
            if tab.evaluate("which => document.activeElement.matches(which)", selector):
                return
            tab.keyboard.press("Tab")
        self.fail(f"Tab does not lead to {selector}")

    def send(self, tab: Page) -> None:
        with tab.expect_navigation():
            tab.keyboard.press("Control+Enter")

    def unfold(self, tab: Page, field: str) -> None:
        """Open the part of the form that has a field."""
        self.tab_to(tab, f"details:has([name={field}]) > summary")
        tab.keyboard.press("Enter")

    def test_a_double_click(self) -> None:
        """The form is sent once."""
        tab = self.signed_in()
        sent: list[str] = []
        tab.on("request", lambda each: sent.append(each.method))
        tab.fill("#text", "Once")
        tab.dblclick("[value=post]")
        expect(tab.get_by_role("status").first).to_have_text("Published: Once")
        self.assertEqual(sent.count("POST"), 1)

    def test_a_picture_with_a_preview(self) -> None:
        """The picture is kept with what it shows, and nothing is published by the preview."""
        tab = self.signed_in()
        tab.fill("#text", "Look")
        tab.click("summary:text('A picture')")
        tab.set_input_files("[name=file]", PICTURE)
        tab.fill("[name=enclosure_text]", "A cat")
        self.press(tab, "text=Preview")
        expect(tab.locator(".preview .message")).to_have_text("Look")
        expect(tab.get_by_alt_text("A cat")).to_be_visible()
        self.assertNotIn(b"<item>", self.feed())
        tab.focus("#text")
        self.send(tab)
        tab.goto(f"{self.broker.url}/people/dave")
        expect(tab.get_by_alt_text("A cat")).to_be_visible()
        self.assertEqual(self.watch.faults, [])

    def test_what_is_discarded_while_somebody_types(self) -> None:
        """What was typed a moment ago is discarded, too."""
        tab = self.signed_in()
        tab.fill("#text", "half a message")
        expect(tab.locator("#kept")).to_have_text("Kept")
        tab.reload()
        asked: list[str] = []
        tab.context.on("request", lambda each: asked.append(each.url))
        tab.fill("#text", "half a message, and")
        self.press(tab, "text=Discard it")
        expect(tab.locator("#text")).to_have_value("")
        self.assertNotIn(f"{self.broker.url}/write/unsent", asked)
        tab.reload()
        expect(tab.locator("#text")).to_have_value("")

    def test_a_second_message_that_does_not_arrive(self) -> None:
        """The address of the page does not say any more that the first one has."""
        tab = self.signed_in()
        tab.fill("#text", "One")
        self.press(tab, "button[value=post]")
        expect(tab.get_by_role("status").first).to_have_text("Published: One")
        address = tab.url

        def away(route: Route) -> None:
            if route.request.method == "POST":
                route.abort()
            else:
                route.continue_()

        tab.context.route("**/write*", away)
        tab.context.route("**/write/unsent", away)
        tab.fill("#text", "Two")
        with tab.expect_event("requestfailed", lambda each: each.url.endswith("/write")):
            tab.click("button[value=post]")
        tab.wait_for_url("chrome-error://**")
        tab.goto(address)
        expect(tab.locator("#text")).to_have_value("Two")

    def test_a_picture_in_place_of_an_address(self) -> None:
        """The tab does not put the address back that the form had when it was sent."""
        tab = self.signed_in()
        tab.context.route("**/write/unsent", lambda route: route.abort())
        tab.click("summary:text('A picture')")
        tab.fill("[name=enclosure]", "https://a.example/old.gif")
        tab.set_input_files("[name=file]", PICTURE)
        tab.fill("#text", "Look")
        self.press(tab, "text=Preview")
        self.assertIn("/people/dave/files/", tab.locator("[name=enclosure]").input_value())

    def feed(self) -> bytes:
        return request(f"{self.broker.url}/people/dave/rss.xml").body

    def test_a_message(self) -> None:
        tab = self.signed_in()
        self.tab_to(tab, "#text")
        tab.keyboard.type("Grüße 🇩🇪")
        expect(tab.locator("#left")).to_have_text("133 characters left")
        self.unfold(tab, "title")
        self.tab_to(tab, "[name=categories]")
        tab.keyboard.type("boats")
        self.unfold(tab, "outline")
        self.tab_to(tab, "#outline")
        tab.keyboard.type("one")
        tab.keyboard.press("Enter")
        tab.keyboard.press("Tab")
        tab.keyboard.type("two")
        tab.keyboard.press("Enter")
        tab.keyboard.press("Tab")
        tab.keyboard.type("three")
        tab.keyboard.press("Shift+Tab")
        expect(tab.locator("#outline")).to_have_value("one\n  two\n  three")
        tab.keyboard.press("Alt+ArrowUp")
        expect(tab.locator("#outline")).to_have_value("one\n  three\n  two")
        tab.keyboard.press("Escape")
        tab.keyboard.press("Tab")  # leaves the field now
        self.assertFalse(tab.evaluate("document.activeElement.id === 'outline'"))
        self.send(tab)
        expect(tab.get_by_role("status").first).to_have_text("Published: Grüße 🇩🇪")
        item = etree.fromstring(self.feed()).find("channel/item")
        assert item is not None
        self.assertEqual(item.findtext("description"), "Grüße 🇩🇪")
        self.assertEqual(item.findtext("category"), "boats")
        below = "{http://rsscloud.org/namespace}item"
        texts = [each.findtext("description") for each in item.findall(f"{below}/{below}")]
        self.assertEqual(texts, ["three", "two"])
        self.assertEqual(self.watch.faults, [])

    def test_too_long_a_message(self) -> None:
        tab = self.signed_in()
        self.tab_to(tab, "#text")
        tab.keyboard.type("x" * 141)
        expect(tab.locator("#left")).to_have_text("1 character too many")
        self.send(tab)
        expect(tab.get_by_role("alert")).to_contain_text("one character too many")
        expect(tab.locator("#text")).to_have_value("x" * 141)
        tab.locator("#text").press("End")
        tab.keyboard.press("Backspace")
        self.send(tab)
        self.assertIn(b"x" * 140, self.feed())

    def test_what_is_typed_outlives_the_tab(self) -> None:
        tab = self.signed_in()
        self.tab_to(tab, "#text")
        tab.keyboard.type("half a mess")
        expect(tab.locator("#kept")).to_have_text("Kept")
        other = self.page()
        other.context.add_cookies(tab.context.cookies())  # type: ignore[arg-type] # as they came
        other.goto(f"{self.broker.url}/write")
        expect(other.locator("#text")).to_have_value("half a mess")
        tab.keyboard.type("age")
        tab.goto(f"{self.broker.url}/")  # what was typed last is sent on the way out

        def kept() -> bool:
            other.goto(f"{self.broker.url}/write")
            return other.locator("#text").input_value() == "half a message"

        until(kept, "what was typed to be kept")
        expect(other.locator(".restored")).to_contain_text("This is what you were typing")
        self.assertEqual(self.watch.faults, [])

    def test_the_tab_keeps_what_the_broker_cannot(self) -> None:
        tab = self.signed_in()
        kept = "() => Object.values(sessionStorage).join()"
        away = "**/write/unsent"
        tab.context.route(away, lambda route: route.abort())
        tab.fill("#text", "half a message")
        expect(tab.locator("#kept")).to_contain_text("Kept in this tab only")
        tab.click("summary:text('Title')")
        tab.fill("[name=title]", "Boats")
        tab.reload()
        expect(tab.locator("#text")).to_have_value("half a message")
        expect(tab.locator("[name=title]")).to_have_value("Boats")
        tab.context.unroute(away)
        tab.fill("#text", "half a message, or more")
        expect(tab.locator("#kept")).to_have_text("Kept")
        self.assertEqual(tab.evaluate(kept), "")

        # What is sent, or discarded, does not come again; and what is left ends with the session.
        tab.context.route(away, lambda route: route.abort())
        tab.fill("#text", "a message")
        self.press(tab, "button[value=post]")
        expect(tab.locator("#text")).to_have_value("")
        self.assertEqual(tab.evaluate(kept), "")
        tab.fill("#text", "secret")
        self.assertIn("secret", tab.evaluate(kept))
        tab.click(".viewer summary")
        self.press(tab, "text=Your account")
        self.assertIn("secret", tab.evaluate(kept))
        self.press(tab, "button:text('Sign out everywhere')")
        self.assertEqual(tab.evaluate(kept), "")
