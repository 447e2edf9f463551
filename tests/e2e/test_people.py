"""A story in a browser: an administrator invites somebody, who writes, is moderated, takes all
away, and leaves.
"""

from __future__ import annotations

import zipfile

from playwright.sync_api import Page, expect

from tests.e2e.browser import DESK, PHONE, BrowserTestCase
from tests.e2e.fixture import Broker, request
from tests.e2e.writing import Writer

PASSWORD, OTHER = "correct horse", "another horse"
PICTURE = ("a picture.gif", b"GIF89a\x01\x00\x01\x00")


class PeopleTests(BrowserTestCase):
    def started(self) -> tuple[Broker, Page]:
        """A broker with an administrator, who has signed in and looks at the accounts."""
        broker = self.running_broker(
            "[apps.writing]\nenabled = true\n", account=("dave", PASSWORD, "--admin")
        )
        tab = self.page(DESK)
        tab.goto(f"{broker.url}/admin/accounts")
        self.submit(tab, "main form", {"name": "dave", "password": PASSWORD})
        return broker, tab

    def invited(self, broker: Broker, tab: Page) -> Page:
        """The browser of somebody who was invited and has chosen a password."""
        self.submit(tab, "form[aria-labelledby=invite]", {"name": "anna"})
        link = tab.locator("[role=status] code").inner_text()
        phone = self.page(PHONE)
        phone.goto(link.replace("//localhost", "//127.0.0.1"))
        expect(phone.locator("main")).to_contain_text("You are invited")
        self.press(phone, "main form button")
        expect(phone.get_by_role("status")).to_contain_text("Choose a password")
        self.assert_fits(phone, "the page of the account")
        form = "form[aria-labelledby=password]"
        self.submit(phone, form, {"new": OTHER, "again": OTHER})
        expect(phone.get_by_role("status")).to_contain_text("password is set")
        return phone

    def test_a_person_comes_is_moderated_and_leaves(self) -> None:
        broker, tab = self.started()
        phone = self.invited(broker, tab)
        anna = Writer(broker, "anna", OTHER)
        anna.sign_in()
        self.assertEqual(anna.post("Spam, spam", PICTURE).status, 303)

        # The administrator takes the message and its picture down.
        page = f"{broker.url}/admin/account?name=anna"
        for reason in ("it is spam", "so is the picture"):
            tab.goto(page)
            tab.get_by_role("link", name="Take down").first.click()
            form = "form[aria-labelledby=take-down]"
            self.submit(tab, form, {"reason": reason})
            self.press(tab, "main form button")
            expect(tab.get_by_role("status")).to_contain_text("taken down")
        self.assertNotIn("Spam", request(f"{broker.url}/people/anna").text)
        phone.goto(f"{broker.url}/account")
        for reason in ("It is spam.", "So is the picture."):
            expect(phone.locator("main")).to_contain_text(reason)

        # The account is disabled for a while.
        tab.goto(page)
        tab.click("summary:has-text('Disable it')")
        self.submit(tab, "form[aria-labelledby=disable]", {"reason": "it sends spam"})
        phone.goto(f"{broker.url}/account")
        self.submit(phone, "main form", {"name": "anna", "password": OTHER})
        expect(phone.get_by_role("alert")).to_contain_text("disabled this account: It sends spam.")
        tab.click("summary:has-text('Enable it')")
        self.submit(tab, "form[aria-labelledby=enable]", {})
        self.submit(phone, "main form", {"name": "anna", "password": OTHER})

        # She takes everything away, and leaves.
        anna.sign_in()
        self.assertEqual(anna.post("Farewell").status, 303)
        phone.goto(f"{broker.url}/account")
        with phone.expect_download() as download:
            phone.get_by_role("link", name="Download everything").click()
        with zipfile.ZipFile(download.value.path()) as archive:
            self.assertIsNone(archive.testzip())
            self.assertIn(b"Farewell", archive.read("messages/1.xml"))
        phone.check("form[aria-labelledby=remove] [name=sure]")
        self.submit(phone, "form[aria-labelledby=remove]", {"password": OTHER})
        expect(phone).to_have_url(f"{broker.url}/signin?done=removed")
        tab.goto(f"{broker.url}/admin/accounts")
        expect(tab.locator("table")).not_to_contain_text("anna")
