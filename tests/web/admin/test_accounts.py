"""The pages of accounts: administrators invite, disable, limit and remove, and take down."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from rsscloud_broker.interfaces import ServedTopics
from rsscloud_broker.model.administration import PublishedWork
from tests.accounts.fixture import PASSWORD
from tests.core.house import NOW
from tests.web.admin.console import BAD, PUBLIC_URL
from tests.web.admin.test_pages import PagesCase

SPAM = f"{PUBLIC_URL}/people/anna/1"


async def _nothing(url: str) -> None:
    """No topic."""


class AccountPagesTests(PagesCase):
    def link(self) -> str:
        """The path of the invitation that the page shows."""
        parts = urlsplit(self.dave_browser.said("//*[@role='status']/code"))
        self.assertEqual(f"{parts.scheme}://{parts.netloc}", PUBLIC_URL)
        return f"{parts.path}?{parts.query}"

    def test_who_is_invited_signs_in_once_and_chooses_a_password(self) -> None:
        self.get("/admin/accounts")
        (role,) = self.dave_browser.page.xpath("//select[@name='role']")
        self.assertEqual(role.value, "member")  # nobody makes an administrator by mistake
        answer = self.dave_browser.send("Invite", name="Berta ")
        self.assertEqual((answer.status, answer.headers["cache-control"]), (200, "no-store"))
        self.assertIn("Send this link to berta", self.text())
        self.assertEqual(self.last_change(), ("dave", "invite", "berta", ""))
        link, berta = self.link(), self.browser()
        for _ in range(2):  # to look at it does not use it up
            self.assertEqual(berta.get(link).status, 200)
        self.assertEqual(berta.page.xpath("//main//script"), [])
        self.assertIn("You are invited", berta.said("//main"))
        answer = berta.send("Sign in")
        self.assertEqual(answer.headers["location"], "/account?done=invited#password")
        berta.get("/account?done=invited")
        self.assertIn("Choose a password", berta.said())
        berta.send("Set the password", new="another horse", again="another horse")
        self.assertEqual(self.browser().sign_in("berta", "another horse").status, 303)

        other = self.browser()
        self.assertEqual(other.get(link).status, 410)
        self.assertIn("Ask an administrator", other.said("//main"))
        self.assertEqual(other.post("/signin/invited", {"key": link[-43:]}).status, 403)
        self.assertNotIn("key=", self.get("/admin/account?name=berta"))

    def test_an_invitation_is_no_link_of_the_terminal(self) -> None:
        self.press("/admin/accounts", "Invite", name="berta")
        once = self.link().replace("/signin/invited", "/signin/once")
        self.assertEqual(self.browser().get(once).status, 403)

    def test_names_that_nobody_can_have(self) -> None:
        for name, words in (("anna", "already"), ("admin", "reserved"), ("x", "letters a to z")):
            answer = self.press("/admin/accounts", "Invite", name=name)
            self.assertGreaterEqual(answer.status, 400)
            self.assertIn(words, self.alert())
        self.assertEqual(self.result(self.verbs.changes()), [])

    def test_a_disabled_account(self) -> None:
        anna, token = self.browser("anna"), self.people.token("publish", name="anna")
        self.done(self.press("/admin/account?name=anna", "Disable it", reason="it sends spam"))
        self.assertIn("It sends spam.", self.text())
        self.assertEqual(anna.get("/account").status, 303)
        self.assertIsNone(self.result(self.people.accounts.caller_of_token(token)))
        refused = self.browser()
        self.assertEqual(refused.sign_in("anna").status, 403)
        self.assertIn("disabled this account: It sends spam.", refused.said())
        self.assertEqual(refused.sign_in("anna", "wrong").status, 403)
        self.assertNotIn("disabled", refused.said())  # only its owner learns of it
        self.done(self.dave_browser.send("Enable it"))
        self.assertEqual(self.browser().sign_in("anna").status, 303)
        self.assertIsNotNone(self.result(self.people.accounts.caller_of_token(token)))

    def test_a_disabled_account_sends_no_password_with_requests(self) -> None:
        accounts = self.people.accounts
        self.result(accounts.caller_of_password("anna", PASSWORD, "192.0.2.7"))  # remembered
        self.done(self.press("/admin/account?name=anna", "Disable it", reason="spam"))
        asked = accounts.caller_of_password("anna", PASSWORD, "192.0.2.7")
        error = self.people.error(asked, Exception)
        self.assertIn("disabled this account: Spam.", str(error))

    def test_reset(self) -> None:
        anna, token = self.browser("anna"), self.people.token("publish", name="anna")
        self.press("/admin/account?name=anna", "Make a new link", reason="lost")
        self.assertIn("The password is forgotten", self.text())
        self.dave_browser.send("Yes, do it")
        self.assertEqual(self.last_change(), ("dave", "reset", "anna", "lost"))
        self.assertEqual(anna.get("/account").status, 303)
        self.assertIsNone(self.result(self.people.accounts.caller_of_token(token)))
        self.assertEqual(self.browser().sign_in("anna").status, 403)
        anna.get(self.link())
        self.assertEqual(anna.send("Sign in").status, 303)

    def test_roles_and_the_last_administrator(self) -> None:
        self.done(self.press("/admin/account?name=anna", "Make it an administrator"))
        self.assertEqual(self.browser("anna").get("/admin").status, 200)
        self.done(self.press("/admin/account?name=anna", "Make it an ordinary account"))
        self.assertEqual(self.browser("anna").get("/admin").status, 403)
        for button in ("Make it an ordinary account", "Disable it", "Remove it"):
            answer = self.press("/admin/account?name=dave", button, reason="x")
            if button == "Remove it":
                answer = self.dave_browser.send("Yes, do it")
            self.assertEqual(answer.status, 400)
            own = "This is your own account" if button == "Remove it" else ""
            self.assertIn(own or "only administrator is dave", self.alert())

    def test_ones_own_account(self) -> None:
        """Its page asks for the present password, which a thief of a session lacks."""
        self.press("/admin/account?name=dave", "Make a new link", reason="x")
        self.assertEqual(self.dave_browser.send("Yes, do it").status, 400)
        self.assertIn("This is your own account: change its password", self.alert())
        self.assertEqual(self.dave_browser.get("/account").status, 200)

    def test_an_administrator_who_was_invited_and_has_never_come(self) -> None:
        self.press("/admin/accounts", "Invite", name="eve", role="administrator")
        self.press("/admin/account?name=dave", "Make it an ordinary account", reason="x")
        self.assertIn("only administrator is dave", self.alert())

    def test_limit(self) -> None:
        self.done(self.press("/admin/account?name=anna", "Set the limit", megabytes="5"))
        self.assertIn("5 megabytes", self.text())
        self.assertEqual(self.people.caller("anna").account.max_bytes, 5_000_000)
        self.done(self.dave_browser.send("Set the limit", megabytes="0"))
        self.assertIn("as configured", self.text())
        self.assertEqual(self.dave_browser.send("Set the limit", megabytes="-1").status, 400)
        # What is wrong stands at its field, in the form that was sent, which is open.
        (label,) = self.dave_browser.page.xpath("//label[.//*[@aria-invalid='true']]")
        fault = label.xpath("string(.//*[@class='fault'])")
        self.assertEqual(fault.strip(), "Write a whole number from 0 to 1,000,000.")
        self.assertEqual(label.xpath(".//input/@value"), ["-1"])
        opened = self.dave_browser.page.xpath("//main//details[@open]//h2")
        self.assertEqual([each.text for each in opened], ["Set the limit"])

    def test_remove_is_asked_once_more(self) -> None:
        self.press("/admin/account?name=anna", "Remove it", reason="asked for")
        self.assertIn("with all that it has published", self.text())
        self.assertIn("is removed", self.done(self.dave_browser.send("Yes, do it")))
        self.assertEqual(self.last_change(), ("dave", "remove account", "anna", "asked for"))
        self.assertEqual(self.dave_browser.get("/admin/account?name=anna").status, 404)

    def test_what_it_publishes_is_taken_down_and_its_author_reads_why(self) -> None:
        works = [PublishedWork(SPAM, "message", f"Spam {BAD}", NOW)]

        async def published(name: str, limit: int) -> list[PublishedWork]:
            return works if name == "anna" else []

        async def take_down(url: str, reason: str, record: object) -> bool:
            works.clear()
            await self.store._database.write(record)
            return True

        prefix = f"{PUBLIC_URL}/people/"
        self.served.append(ServedTopics(prefix, _nothing, take_down, published))
        self.assertIn(f"Spam {BAD}", self.get("/admin/account?name=anna"))
        (path,) = self.dave_browser.page.xpath("//td/a[text()='Take down']/@href")
        self.assertEqual(path, f"/admin/topic?url={quote(SPAM, safe='')}#take-down")
        self.get(path.partition("#")[0])
        self.assertEqual(self.dave_browser.said("//main//dd"), SPAM)
        self.dave_browser.send("Take it down", reason="it is spam")
        self.done(self.dave_browser.send("Yes, do it"))
        self.assertNotIn("Take it down", self.text())
        text = self.get("/admin/account?name=anna")
        for said in ("it is spam", SPAM, "Spam "):
            self.assertIn(said, text)
        anna = self.browser("anna")
        anna.get("/account")
        self.assertIn("Spam ", anna.said("//main"))
        self.assertIn("It is spam.", anna.said("//main"))
        dave = self.get("/account")
        self.assertNotIn("spam", dave)

    def test_by_the_api(self) -> None:
        names = [each["name"] for each in self.asked("GET", "/accounts")["items"]]
        self.assertEqual(names, ["anna", "dave"])
        self.assertEqual(self.asked("GET", "/accounts", {"limit": 1})["next"], "anna")
        following = self.asked("GET", "/accounts", {"after": "anna"})["items"]
        self.assertEqual(following[0]["name"], "dave")
        found = self.asked("POST", "/accounts", {"name": "berta", "role": "administrator"})
        self.assertIn("/signin/invited?key=", found["link"])
        self.assertTrue(self.asked("GET", "/account", {"name": "berta"})["is_admin"])
        self.assertEqual(self.problem(self.call("GET", "/account", {"name": "nobody"}))[0], 404)
