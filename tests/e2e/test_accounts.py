"""Accounts of a running broker: the command beside it, and signing in with curl."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from playwright.sync_api import expect

from tests.e2e.browser import PHONE, BrowserTestCase
from tests.e2e.fixture import TIMEOUT, Broker, EndToEndTestCase, run
from tests.e2e.programs import program
from tests.postgresql import borrowed_database

PASSWORD = "correct horse"


class Curl:
    """curl with a jar of cookies, as somebody has it who writes a script."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._broker = broker
        self._program = program("curl")
        self._jar = directory / "jar"
        self._jar.touch()

    def __call__(self, path: str, *options: str) -> str:
        """The answer with its headers."""
        jar = str(self._jar)
        command = [self._program, "-s", "-i", "--noproxy", "*", "-b", jar, "-c", jar]
        done = subprocess.run(
            [*command, *options, f"{self._broker.url}{path}"],
            check=True,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        answer: str = done.stdout
        return answer.replace("\r\n", "\n")

    def csrf(self, path: str) -> str:
        """The token in the first form of a page."""
        found = re.search(r'name="csrf" value="([^"]+)"', self(path))
        assert found is not None
        return found[1]

    def sign_in(self, name: str = "dave", password: str = PASSWORD) -> str:
        fields = {"csrf": self.csrf("/signin"), "name": name, "password": password}
        options = [("--data-urlencode", f"{name}={value}") for name, value in fields.items()]
        return self("/signin", *(part for option in options for part in option))


class AccountsTests(EndToEndTestCase):
    def account(self, broker: Broker, *arguments: str, stdin: str = "") -> str:
        """What a command prints beside the broker."""
        where = ("--config", str(broker.configuration), "--data", str(broker.data))
        done = run("rsscloud-broker", "account", *arguments, *where, stdin=stdin)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def try_out(self, broker: Broker) -> None:
        self.account(broker, "add", "dave", "--admin", "--password-stdin", stdin=PASSWORD)
        broker.start()
        curl, other = Curl(broker, self.directory()), Curl(broker, self.directory())

        self.assertIn("The name or the password is wrong.", curl.sign_in(password="wrong"))
        answer = curl.sign_in()
        self.assertRegex(answer, r"^HTTP/1.1 303 ")
        self.assertIn("\nLocation: /account\n", answer)
        self.assertRegex(answer, r"\nSet-Cookie: rsscloud-session=\S+; Path=/; .*HttpOnly")
        self.assertIn("is an administrator's account", curl("/account"))
        self.assertIn(">dave</summary>", curl("/"))
        self.assertNotIn(">dave</summary>", other("/"))

        # The command works while the broker runs, and the broker sees the result at once.
        self.account(broker, "add", "anna", "--password-stdin", stdin="another horse")
        self.assertIn("\nLocation: /account\n", other.sign_in("anna", "another horse"))
        self.account(broker, "passwd", "anna", "--password-stdin", stdin="a third horse")
        self.assertRegex(other("/account"), r"^HTTP/1.1 303 ")
        self.account(broker, "remove", "anna")
        self.assertRegex(other.sign_in("anna", "a third horse"), r"^HTTP/1.1 403 ")

        # Sessions outlive a restart.
        broker.restart()
        self.assertIn("is an administrator's account", curl("/account"))
        self.assertRegex(self.account(broker, "list"), r"(?m)^dave +yes .* 1 +0$")
        token = curl.csrf("/account")
        self.assertRegex(curl("/signout", "-d", f"csrf={token}"), r"^HTTP/1.1 303 ")
        self.assertRegex(curl("/account"), r"^HTTP/1.1 303 ")
        for secret in (PASSWORD, "another horse", "a third horse"):
            self.assertNotIn(secret, broker.log)

    def test_on_postgresql(self) -> None:
        url = self.enterContext(borrowed_database())
        self.try_out(self.own_broker(f'database = "{url}"\n'))


class SigningInTests(BrowserTestCase):
    """A real browser, with its own idea of cookies and of who sends a form."""

    def test_an_evening_of_an_administrator(self) -> None:
        broker = self.own_broker()
        done = run(
            *("rsscloud-broker", "account", "add", "dave", "--admin", "--password-stdin"),
            *("--data", broker.data),
            stdin=PASSWORD,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        broker.start()
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
