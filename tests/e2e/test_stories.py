"""Stories of people in a real browser: what administrators, guests and readers do."""

from __future__ import annotations

import re
import zipfile
from xml.etree import ElementTree

from playwright.sync_api import Page, expect

from tests.e2e.browser import DESK, PHONE, BrowserTestCase
from tests.e2e.fixture import Broker, request, run, until
from tests.e2e.servers import HttpPostReceiver
from tests.e2e.writing import Writer

PASSWORD, OTHER = "correct horse", "another horse"
PICTURE = ("a picture.gif", b"GIF89a\x01\x00\x01\x00")


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
        fields = {"old": PASSWORD, "new": OTHER, "again": OTHER}
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
        self.submit(tab, "main form", {"name": "dave", "password": OTHER})
        expect(tab.get_by_role("alert")).to_have_text("The name or the password is wrong.")
        self.submit(tab, "main form", {"name": "dave", "password": "a third horse"})
        expect(tab).to_have_url(f"{broker.url}/account")
        for secret in (PASSWORD, OTHER, "a third horse"):
            self.assertNotIn(secret, broker.log)


class ConsoleTests(BrowserTestCase):
    def test_an_administrator_at_work(self) -> None:
        broker = self.running_broker(account=("dave", PASSWORD, "--admin"))
        reader = self.served(HttpPostReceiver())
        self.subscribed(broker, reader, self.origin().feed())  # with the id 1
        tab = self.page()
        self.sign_in(tab, f"{broker.url}/admin/blocks", "dave", PASSWORD)
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


class PeopleTests(BrowserTestCase):
    """Somebody is invited, writes, is moderated, takes all away, and leaves."""

    def started(self) -> tuple[Broker, Page]:
        """A broker with an administrator, who has signed in and looks at the accounts."""
        broker = self.running_broker(
            "[apps.writing]\nenabled = true\n", account=("dave", PASSWORD, "--admin")
        )
        tab = self.page(DESK)
        self.sign_in(tab, f"{broker.url}/admin/accounts", "dave", PASSWORD)
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


def guids(broker: Broker) -> list[str]:
    """The guids in the feed, the newest first."""
    feed = ElementTree.fromstring(request(f"{broker.url}/test/rss.xml").body)
    return [str(guid.text) for guid in feed.iter("guid")]


class TestFeedTests(BrowserTestCase):
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
