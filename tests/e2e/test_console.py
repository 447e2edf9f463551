"""The console of a running broker, in a real browser."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from tests.e2e.browser import BrowserTestCase
from tests.e2e.fixture import request, until
from tests.e2e.servers import HttpPostReceiver

PASSWORD = "correct horse"


class BrowserTests(BrowserTestCase):
    """The pages in a real browser."""

    def test_an_administrator_at_work(self) -> None:
        broker, reader = self.own_broker(), self.served(HttpPostReceiver())
        broker.add_account("dave", PASSWORD, "--admin")
        token = {"Authorization": f"Bearer {broker.add_token('dave', 'admin')}"}
        broker.start()
        self.subscribed(broker, reader, self.origin().feed())  # with the id 1
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

        tab.goto(f"{broker.url}/admin/subscription?id=1")
        self.press(tab, "button[value=redeliver]")
        expect(tab.get_by_role("status")).to_contain_text("is due")
        until(lambda: reader.heard, "a notification")
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
        answer = request(f"{broker.url}/api/v1/announcements", headers=token)
        self.assertEqual(len(json.loads(answer.body)["items"]), 1)
