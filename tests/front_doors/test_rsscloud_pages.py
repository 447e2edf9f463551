"""The forms of rssCloud, and the pages that a browser gets as answers."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, quote

from twisted.internet.defer import fail

from rsscloud_broker.config import RateLimitOptions
from rsscloud_broker.errors import Forbidden
from rsscloud_broker.wire.rsscloud import PINGED, REGISTERED
from tests.front_doors.exchange import shown_exchange
from tests.front_doors.fixture import FEED, PUBLIC_URL, House, HouseTestCase
from tests.http.test_error_pages import FIREFOX

MISSING = "http://feeds.example/missing.xml"
BAD = "<script>alert(1)</script>\"'"
REGISTRATION = {"notifyProcedure": "", "port": "8080", "path": "/notify", "protocol": "http-post"}
REGISTRATION |= {"domain": "", "url1": FEED}


class FormsTests(HouseTestCase):
    def filled(self, page: Any, action: str) -> dict[str, str]:
        """The values of the fields in the form with this action."""
        (form,) = [each for each in page.forms if each.action == action]
        return {name: value or "" for name, value in form.fields.items()}

    def test_the_forms(self) -> None:
        for path in ("/rssCloud", "/rsscloud", "/rsscloud/", "/pingForm", "/pleaseNotifyForm"):
            page = self.house.get(path).page()
            self.assertEqual(self.filled(page, "/rsscloud/ping"), {"url": ""})
            fields = self.filled(page, "/rsscloud/pleaseNotify")
            self.assertEqual(
                fields, dict.fromkeys(REGISTRATION, "") | {"protocol": "http-post"}, path
            )
        offered = ["http-post", "https-post", "soap", "xml-rpc"]
        self.assertEqual(page.xpath("//option/@value"), offered)
        self.assertEqual(page.xpath("//*[@role='alert']"), [])
        self.assertIn("<definitions", self.house.get("/rssCloud?wsdl").text)  # the WSDL

    def test_each_field_has_a_label(self) -> None:
        page = self.house.get("/rsscloud").page()
        for field in page.xpath("//input | //select"):
            label = field.getparent()
            self.assertEqual(label.tag, "label")
            self.assertTrue((label.text or "").strip())

    def test_a_ping(self) -> None:
        self.house.subscribe()
        for path in ("/rsscloud/ping", "/ping", "/ping/"):
            self.house.topics.pages[FEED] = path.encode()
            page = self.house.form(path, {"url": FEED}, FIREFOX).page()
            self.assertEqual(page.xpath("string(//h1)"), PINGED)
            links = page.xpath("//main//a/@href")
            for link in (FEED, "/changes.xml", "/rssCloud", "/docs", "/"):
                self.assertIn(link, links)
        self.assertEqual(len(self.house.subscribers.calls), 3)

    def test_a_registration(self) -> None:
        page = self.house.form("/rsscloud/pleaseNotify", REGISTRATION, FIREFOX).page()
        self.assertEqual(page.xpath("string(//p[@class='lead'])"), REGISTERED)
        self.assertIn(FEED, page.xpath("//main//a/@href"))
        (subscription,) = self.house.subscriptions()
        self.assertEqual(subscription.callback.url, "http://192.0.2.7:8080/notify")

    def alert(self, path: str, fields: dict[str, str], status: int = 400) -> tuple[Any, str]:
        """The page that refuses a form, and its reason."""
        page = self.house.form(path, fields, FIREFOX).page(status)
        return page, page.xpath("string(//*[@role='alert'])")

    def test_refusals(self) -> None:
        """They say why, and keep what was filled in."""
        page, said = self.alert("/rsscloud/ping", {"url": MISSING})
        self.assertIn("there was an error reading", said)
        self.assertTrue(said.endswith(". Its server answered with status 404."), said)
        self.assertEqual(self.filled(page, "/rsscloud/ping"), {"url": MISSING})
        fields = {**REGISTRATION, "protocol": "soap", "domain": "reader.example"}
        page, said = self.alert("/pleaseNotify", fields)
        missing = "The following parameters were missing from the request body: notifyProcedure."
        self.assertEqual(said, missing)
        self.assertEqual(self.filled(page, "/rsscloud/pleaseNotify"), fields)
        self.assertEqual(self.house.stored()["subscription"], [])
        _, said = self.alert("/pleaseNotify", {**REGISTRATION, "protocol": "gopher"})
        self.assertIn("protocol, gopher, is", said)

    def test_a_reason_is_said_once(self) -> None:
        self.house.topics.private.add(FEED)
        _, said = self.alert("/rsscloud/ping", {"url": FEED})
        self.assertEqual(said.count("is not public"), 1, said)

    def test_several_topics(self) -> None:
        """As some may have been refused, the page names no topic."""
        fields = {**REGISTRATION, "url2": MISSING}
        page = self.house.form("/rsscloud/pleaseNotify", fields, FIREFOX).page()
        self.assertEqual(page.xpath("//main//a[not(starts-with(@href, '/'))]"), [])
        said = "".join(page.xpath("//main/*[not(self::section)]//text()"))
        self.assertNotIn(MISSING, said)

    def test_too_many(self) -> None:
        self.house = House(self, limits=RateLimitOptions(pings_per_source=0.1, pings_burst=1))
        self.house.form("/rsscloud/ping", {"url": FEED}, FIREFOX).page()
        answer = self.house.form("/rsscloud/ping", {"url": FEED}, FIREFOX)
        page = answer.page(429)
        self.assertGreater(int(answer.headers["Retry-After"]), 0)
        self.assertIn("Try again in", page.xpath("string(//*[@role='alert'])"))

    def test_who_may_not(self) -> None:
        """Whom an administrator has blocked; the page for pings of sites says it too."""
        for verb, path, fields in (
            ("ping_topic", "/rsscloud/ping", {"url": FEED}),
            ("subscribe", "/pleaseNotify", REGISTRATION),
            ("ping", "/pingSiteForm", {"name": "A", "url": FEED}),
        ):
            self.patch(self.house.broker, verb, lambda *_, **__: fail(Forbidden("it is spam")))
            _, said = self.alert(path, fields, 403)
            self.assertEqual(said, "it is spam", path)

    def test_everything_is_escaped(self) -> None:
        fields = dict.fromkeys([*REGISTRATION, "url"], BAD)
        for path in ("/rsscloud/pleaseNotify", "/rsscloud/ping"):
            answer = self.house.form(path, fields, FIREFOX)
            page = answer.page(400)
            self.assertNotIn("<script>", answer.text)
            self.assertEqual(self.filled(page, "/rsscloud/ping"), {"url": BAD})
            self.assertEqual(
                page.xpath("//main//a[not(starts-with(@href, '/'))]/@href"), ["#exchange"]
            )

    def test_an_unavailable_store(self) -> None:
        self.house.break_store()
        answer = self.house.form("/rsscloud/ping", {"url": FEED}, FIREFOX)
        self.assertIn("/", answer.page(503).xpath("//main//a/@href"))

    def test_without_change_lists(self) -> None:
        self.house = House(self, doors=frozenset({"rsscloud", "front_page"}))
        page = self.house.form("/rsscloud/ping", {"url": FEED}, FIREFOX).page()
        self.assertNotIn("/changes.xml", page.xpath("//@href"))


class ShownExchangeTests(HouseTestCase):
    """The page that answers a form shows the request and the answer as programs exchange them."""

    def assert_shown(self, path: str, fields: dict[str, str], status: int) -> str:
        """A program that sends the request that is shown gets the answer that is shown."""
        answer = self.house.form(path, fields, FIREFOX)
        page = answer.page(status)
        request, shown, words = shown_exchange(page)
        head, _, body = request.partition("\n\n")
        first, *headers = head.split("\n")
        self.assertEqual(first, f"POST {path} HTTP/1.1")
        named = dict(line.split(": ", 1) for line in headers)
        self.house.clock.advance(100)
        got = self.house.ask("POST", path, body.encode(), named)
        lines = [f"HTTP/1.1 {got.status} OK", f"Content-Type: {got.headers['content-type']}"]
        if "rsscloud-reason" in got.headers:
            lines.append(f"Rsscloud-Reason: {got.headers['rsscloud-reason']}")
        self.assertEqual(shown, "\n".join([*lines, "", got.text]))
        self.assertEqual(words[:2], ["curl", f"{PUBLIC_URL}{path}"])
        self.assertEqual([tuple(part.split("=", 1)) for part in words[3::2]], parse_qsl(body))
        return shown

    def test_pings(self) -> None:
        self.assert_shown("/rsscloud/ping", {"url": FEED}, 200)
        shown = self.assert_shown("/ping", {"url": MISSING}, 400)
        self.assertIn("Rsscloud-Reason: its server answered with status 404", shown)

    def test_registrations(self) -> None:
        self.assert_shown("/rsscloud/pleaseNotify", REGISTRATION, 200)
        fields = {**REGISTRATION, "path": '/it\'s "here" $(x)', "port": "0"}
        self.assert_shown("/pleaseNotify", fields, 400)

    def test_what_a_terminal_would_take_for_a_command_is_encoded(self) -> None:
        answer = self.house.form("/rsscloud/ping", {"url": "http://a.example/\x1b[31m\n"}, FIREFOX)
        page = answer.html
        (command,) = page.xpath("//pre[contains(@class, 'raw')][3]/text()")
        self.assertIn("--data url=http%3A%2F%2Fa.example%2F%1B%5B31m%0A", command)

    def test_long_values_are_cut(self) -> None:
        fields = {f"url{number}": "x" * 20_000 for number in range(50)}
        answer = self.house.form("/rsscloud/pleaseNotify", REGISTRATION | fields, FIREFOX)
        self.assertLess(len(answer.body), 150_000)

    def test_a_link_to_the_page_of_the_topic(self) -> None:
        for path, fields in (("/rsscloud/ping", {"url": FEED}), ("/pleaseNotify", REGISTRATION)):
            page = self.house.form(path, fields, FIREFOX).html
            self.assertIn(f"/topic?url={quote(FEED, safe='')}", page.xpath("//main//a/@href"))
