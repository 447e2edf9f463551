"""The console of a running broker: pages in a real browser, API, commands, and the event log."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from playwright.sync_api import expect

from rsscloud_broker.delivery.breakers import THRESHOLD
from tests.e2e.browser import DESK, PHONE, BrowserTestCase
from tests.e2e.fixture import Broker, EndToEndTestCase, request, run, until
from tests.e2e.servers import HttpPostReceiver
from tests.postgresql import borrowed_database

PASSWORD = "correct horse"

#: Those pages that show something out of the ordinary in these tests.
PAGES = (
    "/admin",
    "/admin/subscriptions",
    "/admin/subscription?id=1",
    "/admin/topic",
    "/admin/hosts",
    "/admin/blocks",
    "/admin/accounts",
    "/admin/account?name=dave",
    "/admin/announcements",
    "/admin/changes",
    "/admin/log",
)


#: The colours that people prefer.
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


class ConsoleTestCase(EndToEndTestCase):
    def started(self, configuration: str = "") -> Broker:
        """A running broker with an administrator, a feed and a subscription with the id 1."""
        broker = self.own_broker(configuration)
        where = ("--config", broker.configuration, "--data", broker.data)
        added = ("account", "add", "dave", "--admin", "--password-stdin", *where)
        self.assertEqual(run("rsscloud-broker", *added, stdin=PASSWORD).returncode, 0)
        made = run("rsscloud-broker", "account", "token", "add", "dave", "--scope", "admin", *where)
        self.token = self.directory() / "token"
        self.token.write_text(made.stdout)
        broker.start()
        self.publisher = self.origin()
        self.feed = self.publisher.feed()
        self.reader = self.served(HttpPostReceiver())
        self.subscribed(broker, self.reader, self.feed)
        return broker

    def admin(self, broker: Broker, *arguments: str, status: int = 0) -> str:
        """What a command prints; its errors if it is to fail."""
        where = ("--broker", broker.url, "--token-file", self.token)
        done = run("rsscloud-broker", "admin", *arguments, *where)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr if status else done.stdout

    def change(self, broker: Broker) -> None:
        """Publish a change of the feed."""
        self.publisher.change(self.feed)
        self.assertIn('success="true"', broker.ping(self.feed).text)

    def api(self, broker: Broker, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token.read_text().strip()}"}
        answer = request(f"{broker.url}/api/v1{path}", headers=headers)
        self.assertEqual(answer.status, 200, answer.text)
        return json.loads(answer.body)


class ConsoleTests(ConsoleTestCase):
    """The API and the commands, and what the event log says of them."""

    def test_every_command(self) -> None:
        url = self.enterContext(borrowed_database())
        broker = self.started(f'database = "{url}"\n')
        found = json.loads(self.admin(broker, "subscriptions", "--json"))
        self.assertEqual([one["id"] for one in found["items"]], [1])
        self.assertIn("http-post", self.admin(broker, "subscriptions", "--host", "127.0.0.1"))

        self.reader.status = 500
        self.change(broker)
        failures = until(lambda: self.api(broker, "/subscriptions/1")["failures"], "a failure")
        exchange = failures[0]["exchange"]
        self.assertEqual((exchange["status"], exchange["answer_body"]), (500, "thanks"))
        self.assertIn("url=http", exchange["request_body"])
        self.reader.status = 200
        self.reader.heard.clear()
        self.admin(broker, "redeliver", "1", "--reason", "asked by mail")
        until(lambda: self.reader.heard, "a notification")
        self.assertIn("dropping", self.admin(broker, "mark", "1"))
        self.assertIn("active", self.admin(broker, "unmark", "1"))
        self.assertIn(self.feed, self.admin(broker, "topic", self.feed))
        self.assertIn("changed: ", self.admin(broker, "read", self.feed))
        self.admin(broker, "block", "host", "spam.example", "--reason", "it sends spam")
        self.assertIn("spam.example", self.admin(broker, "blocks"))
        self.assertEqual(self.admin(broker, "unblock", "host", "spam.example"), "done\n")
        self.assertEqual(self.admin(broker, "close-breaker", "127.0.0.1"), "done\n")
        self.admin(broker, "announce", "Down on Sunday")
        until(lambda: "Down on Sunday" in request(f"{broker.url}/").text, "the announcement")
        (shown,) = self.api(broker, "/announcements")["items"]
        self.admin(broker, "withdraw", str(shown["id"]))
        self.assertIn("distribution", self.admin(broker, "state"))
        self.admin(broker, "end", self.feed, "--reason", "it is gone", "--yes")
        self.admin(broker, "revive", self.feed)
        self.admin(broker, "move", self.feed, f"{self.feed}?2", "--yes")
        self.assertEqual(self.admin(broker, "remove", "999", "--yes", status=3)[:6], "Error:")
        self.assertIn("http://", self.admin(broker, "read", "feeds.example", status=1))
        self.assert_logged(broker)

    def assert_logged(self, broker: Broker) -> None:
        """Check that the event log has each change, once, and that strangers see only topics."""
        changes = self.api(broker, "/changes?limit=100")["items"]
        self.assertEqual({one["account"] for one in changes}, {"dave"})
        self.assertEqual(len(changes), 12)

        def logged() -> str:
            text = request(f"{broker.url}/log?kind=administration").text
            return text if text.count('<li class="outcome-done">') == len(changes) else ""

        shown = until(logged, "an entry for each change")
        self.assertIn("An administrator did something", shown)
        for secret in ("dave", "spam.example", "asked by mail"):
            self.assertNotIn(secret, re.sub(r"<header.*</header>", "", shown, flags=re.DOTALL))

    def test_a_host_that_is_back(self) -> None:
        """An administrator closes its breaker, and it is notified at once."""
        broker = self.started("[sinks.distribution]\nbreaker_pause = 600\n")
        for number in range(1, THRESHOLD):
            broker.subscribe(self.reader, self.feed, path=f"/notify{number}")
        self.reader.stop()
        self.change(broker)
        (state,) = until(lambda: self.api(broker, "/hosts")["items"], "the breaker to open")
        self.assertEqual(state["host"], f"127.0.0.1:{self.reader.port}")
        back = self.served(HttpPostReceiver(self.reader.port))
        self.admin(broker, "close-breaker", "127.0.0.1")
        until(lambda: len(back.heard) == THRESHOLD, "all to be notified")
        self.assertEqual(self.api(broker, "/hosts")["items"], [])


class BrowserTests(ConsoleTestCase, BrowserTestCase):
    """The pages in a real browser."""

    def test_an_administrator_at_work(self) -> None:
        broker = self.started()
        tab = self.page()
        tab.goto(f"{broker.url}/admin/blocks")
        self.submit(tab, "main form", {"name": "dave", "password": PASSWORD})
        expect(tab).to_have_url(f"{broker.url}/admin/blocks")
        bad = "<script>document.title='bad'</script>"
        tab.select_option("form[aria-labelledby=block] [name=kind]", "topic")
        fields = {"object": "http://spam.example/" + "a" * 200, "reason": bad}
        self.submit(tab, "form[aria-labelledby=block]", fields)
        expect(tab.get_by_role("status")).to_have_text("The block works.")
        self.assertNotEqual(tab.title(), "bad")
        tab.goto(f"{broker.url}/admin/announcements")
        self.submit(tab, "form[aria-labelledby=announce]", {"text": "b" * 300})
        expect(tab.get_by_role("status")).to_contain_text("stored")
        cookies = tab.context.storage_state()
        others = [(width, self.page(width, storage_state=cookies)) for width in (PHONE, DESK)]
        for page in PAGES:
            for width, other in others:
                other.goto(f"{broker.url}{page}")
                self.assertTrue(other.text_content("h1"), page)
                for scheme in SCHEMES:
                    other.emulate_media(color_scheme=scheme)
                    self.assert_fits(other, f"{page} at {width}, {scheme}")

        tab.goto(f"{broker.url}/admin/subscription?id=1")
        self.press(tab, "button[value=redeliver]")
        expect(tab.get_by_role("status")).to_contain_text("is due")
        until(lambda: self.reader.heard, "a notification")
        self.press(tab, "button[value=remove]")
        expect(tab.locator(".lead")).to_contain_text("Nobody can undo this")
        self.press(tab, "main form button")
        expect(tab.get_by_role("status")).to_have_text("The subscription has been removed.")

        # A page of another site sends a form: SameSite keeps the cookie back.
        action = f"{broker.url}/admin/announcements"
        form = f"<form method=post action={action}><input name=do value=withdraw>"
        tab.goto(f"data:text/html,{form}<input name=id value=1><button></button></form>")
        with tab.expect_navigation():
            tab.click("button", force=True)
        self.assertEqual(len(self.api(broker, "/announcements")["items"]), 1)
