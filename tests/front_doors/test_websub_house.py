"""The hub with a whole broker behind it: what a request leads to, without sockets."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

from lxml import html

from rsscloud_broker.config import RateLimitOptions, Topics
from rsscloud_broker.core import Access, Sweeper
from rsscloud_broker.policy.blocks import Blocks
from tests.front_doors.exchange import FORM, shown_exchange
from tests.front_doors.fixture import FEED, PUBLIC_URL, Call, House, HouseTestCase
from tests.http.test_error_pages import BROWSERS, headers_of

CALLBACK = "http://reader.example/websub?mine=1"
HOUR = 3600
PUBLISH = {"hub.mode": "publish", "hub.url": FEED}
ASKED = {"hub.topic": FEED, "hub.callback": CALLBACK}


class HubHouseTestCase(HouseTestCase):
    def hub(self, mode: str, **more: str) -> int:
        """Send the hub a request and return the status of its answer."""
        named = {f"hub.{name}": value for name, value in more.items()}
        return self.house.form("/websub", {"hub.mode": mode, **ASKED, **named}).status

    def calls(self, method: str) -> list[Call]:
        return [call for call in self.house.subscribers.calls if call.method == method]

    def questions(self) -> list[dict[str, str]]:
        """The queries with which the callback was verified."""
        queries = [parse_qs(urlsplit(call.url).query) for call in self.calls("GET")]
        return [{name: values[0] for name, values in query.items()} for query in queries]


class LaterDenialTests(HubHouseTestCase):
    """WebSub, 5.2: the hub may send a denial at any time after the verification."""

    def setUp(self) -> None:
        super().setUp()
        self.hub("subscribe")
        self.house.subscribers.calls.clear()

    def assert_denied(self, reason: str) -> None:
        """The callback has got one denial, and gets no more notifications."""
        (denial,) = self.questions()
        self.assertIn(reason, denial.pop("hub.reason"))
        self.assertEqual(denial, {"mine": "1", "hub.mode": "denied", "hub.topic": FEED})
        self.assertEqual(self.house.subscriptions(), [])
        self.house.topics.pages[FEED] = b"<rss>new</rss>"
        self.house.form("/websub", PUBLISH)
        self.assertEqual(self.calls("POST"), [])

    def test_forbidden(self) -> None:
        """The operator's patterns, which are read at the start, no longer allow the topic."""
        house, topics = self.house, Topics(subscribe=("http://other.example/*",))
        access = Access(topics, Blocks())
        sweeper = Sweeper(house.store, house.bus, house.clock, access, house.detector.reader.forget)
        sweeper.startService()
        self.addCleanup(sweeper.stopService)
        house.clock.advance(HOUR)
        self.assert_denied("no subscriptions to it any more")

    def test_gone(self) -> None:
        """The topic's server answers that it is gone."""
        self.house.topics.gone.add(FEED)
        self.house.form("/websub", PUBLISH)
        self.house.topics.gone.clear()
        self.assert_denied("it is gone for good")


class ByHandTests(HubHouseTestCase):
    """The forms on the page of the hub."""

    def asked(self, fields: dict[str, str], status: int, path: str = "/websub") -> Any:
        """The page that a browser gets."""
        return self.house.form(path, fields, headers_of(BROWSERS["Firefox"])).page(status)

    def test_subscribing(self) -> None:
        fields = {"hub.mode": "subscribe", **ASKED, "hub.lease_seconds": "1000"}
        page = self.asked({**fields, "hub.secret": ""}, 202)
        self.assertIn("asks the callback to confirm", page.xpath("string(//*[@role='status'])"))
        (subscription,) = self.house.subscriptions()
        self.assertEqual((subscription.callback.url, subscription.lease.seconds), (CALLBACK, 1000))
        self.assertEqual(subscription.options, {"hub": f"{PUBLIC_URL}/websub"})
        request, answer, arguments = shown_exchange(page)
        body = request.partition("\n\n")[2]
        self.assertEqual(dict(parse_qsl(body)), fields)
        got = self.house.ask("POST", "/websub", body.encode(), {"Content-Type": FORM})
        head = "HTTP/1.1 202 Accepted\nContent-Type: text/plain; charset=utf-8\n\n"
        self.assertEqual((got.status, answer), (202, f"{head}{got.text}"))
        self.assertEqual(arguments[:2], ["curl", f"{PUBLIC_URL}/websub"])
        self.assertEqual(dict(part.split("=", 1) for part in arguments[3::2]), fields)
        self.assertIn(f"/topic?url={quote(FEED, safe='')}", page.xpath("//main//a/@href"))
        log = f"/log?kind=subscription&topic={quote(FEED, safe='')}"  # what the callback answered
        self.assertIn(log, page.xpath("//main//a/@href"))

    def test_unsubscribing(self) -> None:
        self.hub("subscribe")
        self.asked({"hub.mode": "unsubscribe", **ASKED}, 202)
        self.assertEqual(self.house.subscriptions(), [])

    def test_secrets_are_not_shown(self) -> None:
        """Neither on success nor on failure, and in no attribute."""
        secrets = {"hub.secret": "open sesame", "hub.verify_token": "t0ken"}
        refused = {**ASKED, "hub.callback": "nowhere"}
        for fields, status in ((ASKED, 202), (refused, 400)):
            for path in ("/websub", "/hub"):
                page = self.asked({"hub.mode": "subscribe", **fields, **secrets}, status, path)
                text = html.tostring(page).decode()
                for secret in ("sesame", "t0ken"):
                    self.assertNotIn(secret, text)
                self.assertIn("hub.secret=NOT-SHOWN", text)
        (subscription,) = self.house.subscriptions()
        self.assertEqual(subscription.options["secret"], "open sesame")

    def test_refusals_keep_what_was_filled_in(self) -> None:
        fields = {"hub.mode": "unsubscribe", "hub.topic": '"><script>alert(1)</script>'}
        fields |= {"hub.callback": "javascript:alert(1)", "hub.lease_seconds": "<b>"}
        fields["hub.secret"] = "sesame"
        page = self.asked(fields, 400)
        self.assertIn("hub.callback is not", page.xpath("string(//*[@role='alert'])"))
        form = page.forms[1]
        self.assertEqual(dict(form.fields), {**fields, "hub.secret": None})
        self.assertEqual(page.xpath("//main//script | //b"), [])
        self.assertEqual(page.xpath("//main//a[not(starts-with(@href, '/'))][@rel]"), [])

    def test_too_many(self) -> None:
        self.house = House(self, limits=RateLimitOptions(pings_per_source=0.1, pings_burst=1))
        self.asked(PUBLISH, 202)
        page = self.asked(PUBLISH, 429)
        self.assertIn("This was not accepted", page.xpath("string(//*[@role='alert'])"))
        (answer,) = page.xpath("//pre[contains(@class, 'raw')][2]/text()")
        self.assertRegex(answer, r"^HTTP/1.1 429 Too Many Requests\n.*\nRetry-After: [0-9]+\n\n")


class PublishingByHandTests(HubHouseTestCase):
    """The form to publish on the page of the hub."""

    def test_the_form(self) -> None:
        page = self.house.get("/websub").html
        publishing, subscribing = page.forms
        for form in (publishing, subscribing):
            self.assertEqual((form.action, form.method), ("/websub", "POST"))
        self.assertEqual(dict(publishing.fields), {"hub.mode": "publish", "hub.url": ""})
        names = ("topic", "callback", "lease_seconds")
        fields = {"hub.mode": "subscribe", **{f"hub.{name}": "" for name in names}}
        self.assertEqual(dict(subscribing.fields), {**fields, "hub.secret": None})

    def test_a_browser_gets_a_page(self) -> None:
        for accept in BROWSERS.values():
            answer = self.house.form("/websub", PUBLISH, headers_of(accept))
            if answer.headers.get_content_type() == "text/plain":
                self.assertIn("text/plain", accept)  # it accepts plain text as well
                continue
            page = answer.page(202)
            self.assertIn("notifies its subscribers", page.xpath("string(//*[@role='status'])"))
            self.assertIn("/", page.xpath("//main//a/@href"))
