"""Accounts of a running broker, in a browser, and with the command beside it."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.e2e.browser import PHONE, BrowserTestCase
from tests.e2e.fixture import run

PASSWORD = "correct horse"


class SigningInTests(BrowserTestCase):
    """A real browser, with its own idea of cookies and of who sends a form."""

    def test_an_evening_of_an_administrator(self) -> None:
        broker = self.running_broker(account=("dave", PASSWORD, "--admin"))
        tab = self.page(PHONE)
        tab.goto(f"{broker.url}/account")
        self.submit(tab, "main form", {"name": "dave", "password": "wrong"})
        expect(tab.get_by_role("alert")).to_have_text("The name or the password is wrong.")
        self.submit(tab, "main form", {"name": "dave", "password": PASSWORD})
        expect(tab).to_have_url(f"{broker.url}/account")
        expect(tab.locator(".viewer summary")).to_have_text("dave")
        self.assertEqual(tab.evaluate("document.cookie"), "")  # all are HttpOnly
        self.assert_fits(tab, "/account")

        tab.check("[value=metrics]")
        fields = {"name": "a dashboard", "days": "9", "password": PASSWORD}
        self.submit(tab, "form[aria-labelledby=tokens]", fields)
        expect(tab.locator("pre").first).to_contain_text("rsb_")
        self.assert_fits(tab, "a token")
        fields = {"old": PASSWORD, "new": "another horse", "again": "another horse"}
        self.submit(tab, "form[aria-labelledby=password]", fields)
        expect(tab.get_by_role("status")).to_contain_text("Your new password is set")

        # Sessions outlive a restart.
        broker.restart()
        tab.goto(f"{broker.url}/account")
        expect(tab.locator(".viewer summary")).to_have_text("dave")

        # A page of another site sends the form to sign out: SameSite keeps the cookie back.
        forged = f"<form method=post action={broker.url}/signout><button></button></form>"
        tab.goto(f"data:text/html,{forged}")
        with tab.expect_navigation():
            tab.click("button", force=True)
        tab.goto(broker.url)
        expect(tab.locator(".viewer summary")).to_have_text("dave")
        with tab.expect_navigation():
            tab.click(".viewer summary")
            tab.click(".viewer button")
        expect(tab.locator(".viewer summary")).to_have_count(0)
        tab.goto(f"{broker.url}/account")
        expect(tab).to_have_url(re.compile("/signin"))

        # The command works while the broker runs, which sees the result at once.
        passwd = ("account", "passwd", "dave", "--password-stdin", *broker.where)
        self.assertEqual(run("rsscloud-broker", *passwd, stdin="a third horse").returncode, 0)
        self.submit(tab, "main form", {"name": "dave", "password": "another horse"})
        expect(tab.get_by_role("alert")).to_have_text("The name or the password is wrong.")
        self.submit(tab, "main form", {"name": "dave", "password": "a third horse"})
        expect(tab).to_have_url(f"{broker.url}/account")
        for secret in (PASSWORD, "another horse", "a third horse"):
            self.assertNotIn(secret, broker.log)
