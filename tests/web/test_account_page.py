"""The page of one's own account: sessions, password and API tokens."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import TooMany
from rsscloud_broker.web.account_page import browser_name
from tests.accounts.fixture import PASSWORD, PATIENT
from tests.front_doors.exchange import Answer
from tests.web.accounts_site import AccountSite, Browser

NEW = "another horse"
SESSION = "__Host-rsscloud-session"


class AccountPageTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.site = AccountSite(self, PATIENT)
        self.browser = self.signed_in()

    def signed_in(self, name: str = "dave") -> Browser:
        """A browser that shows the page of an account."""
        browser = Browser(self.site)
        self.assertEqual(browser.sign_in(name).status, 303)
        self.assertEqual(browser.get("/account").status, 200)
        return browser

    def followed(self, answer: Answer) -> str:
        """Go where an answer leads; what the page says."""
        self.assertEqual(answer.status, 303)
        self.assertEqual(self.browser.get(str(answer.headers["location"])).status, 200)
        return self.browser.said()

    def test_whose_it_is(self) -> None:
        self.assertEqual(self.browser.said("//p[@class='lead']/strong"), "dave")
        self.assertIn("an administrator's account", self.browser.said("//p[@class='lead']"))
        self.assertNotIn("administrator", self.signed_in("anna").said("//p[@class='lead']"))

    def test_only_for_who_has_signed_in(self) -> None:
        stranger = Browser(self.site)
        self.assertEqual(stranger.get("/account").headers["location"], "/signin?next=/account")
        answer = stranger.post("/account", {"do": "end-sessions"})
        self.assertEqual(answer.headers["location"], "/signin?next=/account")

    def test_not_for_tokens(self) -> None:
        """Otherwise a token could make tokens with more scopes."""
        secret = self.make_token(scope="admin")
        program = Browser(self.site)
        headers = {"Authorization": f"Bearer {secret}"}
        self.assertEqual(program.ask("GET", "/account", headers=headers).status, 303)
        fields = {"do": "add-token", "name": "y", "scope": "admin"}
        self.assertEqual(program.post("/account", fields, headers).status, 303)
        self.browser.get("/account")
        self.assertEqual(len(self.rows("tokens")), 1)

    def test_what_is_wrong_stands_at_its_form_and_the_input_stays(self) -> None:
        answer = self.browser.send(
            "Make a token", name="a script", days="many", scope="publish", password=PASSWORD
        )
        self.assertEqual(answer.status, 400)
        page = self.browser.page
        (form,) = page.xpath("//form[@aria-labelledby='tokens']")
        self.assertEqual((form.fields["name"], form.fields["days"]), ("a script", "many"))
        self.assertEqual(form.xpath(".//input[@checked]/@value"), ["publish"])
        self.assertEqual(page.xpath("//input[@type='password'][@value]"), [])
        faults = page.xpath("//*[@class='fault']")
        self.assertEqual([each.getparent() for each in faults], [form])
        self.assertIn("no whole number", faults[0].text_content())
        self.assertEqual(page.xpath("//*[@role='alert']/a/@href"), ["#tokens"])

    def test_names_of_browsers(self) -> None:
        mozilla = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)"
        for text, name in (
            (f"{mozilla} Chrome/142.0 Safari/537.36", "Chrome on Linux"),
            (f"{mozilla} Chrome/142.0 Safari/537.36 Edg/142.0", "Edge on Linux"),
            ("Mozilla/5.0 (iPhone; CPU OS 18 like Mac OS X) Safari/604.1", "Safari on an iPhone"),
            ("Mozilla/5.0 (Android 15; Mobile) Gecko/1 Firefox/143.0", "Firefox on Android"),
            ("A Browser/1", "A Browser/1"),
            ("", "A browser without a name"),
        ):
            self.assertEqual(browser_name(text), name)

    def test_remove_the_account(self) -> None:
        anna = self.browser = self.signed_in("anna")
        for password, sure, words in (
            (PASSWORD, "", "tick that you are sure"),
            ("wrong", "yes", "the password is wrong."),
        ):
            fields = {"password": password, **({"sure": sure} if sure else {})}
            self.assertEqual(anna.ask_for("remove-account", **fields).status, 400)
            self.assertIn(words, anna.said().lower())
        answer = anna.ask_for("remove-account", password=PASSWORD, sure="yes")
        self.assertEqual(answer.status, 303)
        self.assertNotIn(SESSION, anna.cookies)
        anna.get(answer.headers["location"])
        self.assertIn("Your account is removed.", anna.page.xpath("string(//main)"))
        self.assertIsNone(self.successResultOf(self.site.store.stored_password("anna")))

    def test_the_only_administrator_stays(self) -> None:
        self.assertEqual(
            self.browser.ask_for("remove-account", password=PASSWORD, sure="yes").status, 400
        )
        self.assertIn("only administrator is dave", self.browser.said())

    def test_remove_an_account_without_a_password(self) -> None:
        anna = self.signed_in("anna")
        self.site.forget_password("anna")
        anna.get("/account")
        typed = "//form[@aria-labelledby='remove']//*[@type='password']"
        self.assertEqual(anna.page.xpath(typed), [])
        self.site.clock.advance(3700)
        anna.get("/account")
        self.assertEqual(anna.ask_for("remove-account", sure="yes").status, 400)
        self.assertIn("within an hour of signing in", anna.said())
        self.site.clock.advance(-200)
        self.assertEqual(anna.ask_for("remove-account", sure="yes").status, 303)

    def test_first_password(self) -> None:
        self.site.forget_password()
        self.browser.get("/account")
        self.assertEqual(self.browser.page.xpath("//input[@name='old' or @name='scope']"), [])
        self.assertIn("You have none yet", self.browser.said("//main"))
        answer = self.browser.send("Set the password", new=NEW, again=NEW)
        self.assertIn("new password is set", self.followed(answer))
        self.assertEqual(len(self.browser.page.xpath("//input[@name='old']")), 1)
        self.assertEqual(Browser(self.site).sign_in("dave", NEW).status, 303)

    def rows(self, heading: str) -> list[str]:
        """The items of the list after a heading."""
        items = self.browser.page.xpath(f"//h2[@id='{heading}']/following-sibling::ul[1]/li")
        return [" ".join(item.text_content().split()) for item in items]

    # sessions

    def test_sessions(self) -> None:
        other = self.signed_in()
        self.browser.get("/account")
        there, here = self.rows("sessions")
        self.assertIn("A Browser/1", there)
        self.assertIn("from 192.0.2.7", there)
        self.assertIn("This browser.", here)
        self.assertIn("ended", self.followed(self.browser.send("End this session")))
        self.assertEqual(len(self.rows("sessions")), 1)
        self.assertEqual(other.get("/account").status, 303)
        (row,) = self.browser.page.xpath("//h2[@id='sessions']/following-sibling::ul[1]/li")
        fields = {each.get("name"): each.get("value") for each in row.xpath(".//input")}
        answer = self.browser.post("/account", fields)  # "Sign out"
        self.assertEqual(answer.headers["location"], "/signin")
        self.assertNotIn(SESSION, self.browser.cookies)

    def test_names_of_browsers_are_escaped(self) -> None:
        bad = "<script>alert(1)</script><bdo dir=rtl>"
        other = Browser(self.site)
        other.get("/signin")
        fields = {"name": "dave", "password": PASSWORD, "next": "/"}
        other.send("Sign in", {"User-Agent": bad}, **fields)
        answer = self.browser.get("/account")
        self.assertNotIn(b"<script>", answer.body)
        self.assertIn(bad, self.rows("sessions")[0])

    def test_sessions_of_others(self) -> None:
        other = self.signed_in("anna")
        (number,) = other.page.xpath("//input[@name='id']/@value")
        for wrong in (number, "999", "x", "", "-1", "9" * 30, "\u0661"):
            self.assertEqual(self.browser.ask_for("end-session", id=wrong).status, 303)
        self.assertEqual(other.get("/account").status, 200)
        self.assertEqual(self.browser.get("/account").status, 200)

    def test_everywhere(self) -> None:
        other = self.signed_in()
        answer = self.browser.send("Sign out everywhere")
        self.assertEqual(answer.headers["location"], "/signin")
        self.assertNotIn(SESSION, self.browser.cookies)
        for browser in (self.browser, other):
            self.assertEqual(browser.get("/account").status, 303)

    # the password

    def change(self, old: str = PASSWORD, new: str = NEW, again: str = NEW) -> Answer:
        return self.browser.send("Change the password", old=old, new=new, again=again)

    def test_password(self) -> None:
        other = self.signed_in()
        self.assertIn("Your new password is set", self.followed(self.change()))
        self.assertEqual(other.get("/account").status, 303)
        self.assertEqual(Browser(self.site).sign_in().status, 403)
        self.assertEqual(Browser(self.site).sign_in(password=NEW).status, 303)

    def test_bad_passwords(self) -> None:
        for old, new, again, said in (
            ("wrong", NEW, NEW, "The password is wrong."),
            (PASSWORD, NEW, "else", "typed differently"),
            (PASSWORD, "short", "short", "at least 10 characters"),
        ):
            answer = self.change(old, new, again)
            self.assertEqual(answer.status, 400)
            self.assertIn(said, self.browser.said())
            self.assertNotIn(PASSWORD, answer.text)
        self.assertEqual(Browser(self.site).sign_in().status, 303)

    def test_too_many_attempts(self) -> None:
        async def refuse(*of_the_form: object) -> None:
            raise TooMany("too many wrong passwords", 30)

        self.patch(type(self.site.accounts), "change_password", refuse)
        answer = self.change(PASSWORD, NEW, NEW)
        self.assertEqual((answer.status, answer.headers["retry-after"]), (429, "30"))
        self.assertIn("too many wrong passwords", answer.text.lower())

    # tokens

    def make_token(self, **fields: Any) -> str:
        """Make a token; the secret that the page shows."""
        sent = {"name": "x", "scope": "metrics", "password": PASSWORD, **fields}
        answer = self.browser.send("Make a token", **sent)
        self.assertEqual((answer.status, answer.headers["cache-control"]), (200, "no-store"))
        return self.browser.said("//pre")

    def test_token_is_shown_once(self) -> None:
        scopes = ["admin", "metrics"]
        secret = self.make_token(name="a <b>script</b>", scope=scopes, days="30")
        self.assertTrue(secret.startswith("rsb_"))
        caller = self.site.result(self.site.accounts.caller_of_token(secret))
        self.assertEqual((caller.name, caller.scopes), ("dave", {"admin", "metrics"}))
        self.assertNotIn(secret, self.browser.get("/account").text)
        (row,) = self.rows("tokens")
        self.assertRegex(row, "^a <b>script</b> ?Allows admin, metrics. Made 2001-")
        self.assertIn("expires 2001-10-09", row)
        self.assertIn("has been removed", self.followed(self.browser.send("Remove")))
        self.assertIsNone(self.site.result(self.site.accounts.caller_of_token(secret)))

    def test_all_are_removed_with_the_sessions_or_the_password(self) -> None:
        changed = {"old": PASSWORD, "new": NEW, "again": NEW}
        for button, fields, password in (
            ("Change the password", changed, PASSWORD),
            ("Sign out everywhere", {}, NEW),
        ):
            self.browser.get("/account")
            secret = self.make_token(password=password)
            self.assertEqual(self.browser.send(button, None, tokens="remove", **fields).status, 303)
            self.assertIsNone(self.site.result(self.site.accounts.caller_of_token(secret)))

    def test_tokens_go_on_otherwise(self) -> None:
        secret = self.make_token()
        self.assertEqual(self.change().status, 303)
        self.browser.get("/account")
        self.browser.send("Sign out everywhere")
        self.assertIsNotNone(self.site.result(self.site.accounts.caller_of_token(secret)))

    def test_bad_tokens(self) -> None:
        for fields, said in (
            ({"name": "", "scope": "metrics"}, "1 to 80 characters"),
            ({"name": "x"}, "a token needs a scope".capitalize()),
            ({"name": "x", "scope": "metrics", "days": "x"}, "no whole number"),
            ({"name": "x", "scope": "metrics", "password": "wrong"}, "The password is wrong."),
        ):
            answer = self.browser.send("Make a token", None, **{"days": "", **fields})
            self.assertEqual(answer.status, 400)
            self.assertIn(said, self.browser.said())
        self.assertEqual(self.rows("tokens"), ["There is none yet."])

    def test_others_are_offered_fewer_scopes(self) -> None:
        anna, offered = self.signed_in("anna"), "//input[@name='scope']/@value"
        scopes = ["admin", "metrics", "publish", "river"]
        self.assertEqual(self.browser.page.xpath(offered), scopes)
        self.assertEqual(anna.page.xpath(offered), ["publish", "river"])
        self.assertEqual(anna.ask_for("add-token", name="x", scope="admin").status, 400)

    # forged forms

    def test_each_form_needs_the_token_of_the_session(self) -> None:
        other = self.signed_in()
        forms = self.browser.page.xpath("//form[@action='/account']")
        self.assertGreater(len(forms), 3)
        for form in forms:
            self.assertEqual(form.get("method"), "post")
            fields = {each.get("name"): each.get("value", "x") for each in form.xpath(".//input")}
            token = fields.pop("csrf")
            filled = {**fields, "old": PASSWORD, "new": NEW, "again": NEW}
            for forged in (filled, {**filled, "csrf": ""}, {**filled, "csrf": other.csrf}):
                answer = self.browser.post("/account", forged)
                self.assertEqual(answer.status, 403)
                self.assertIn("does not belong to your session", answer.text)
            headers = {"Sec-Fetch-Site": "cross-site"}
            answer = self.browser.post("/account", {**filled, "csrf": token}, headers)
            self.assertEqual(answer.status, 403)
        self.assertEqual(Browser(self.site).sign_in().status, 303)
        self.assertEqual(other.get("/account").status, 200)

    def test_form_that_asks_for_nothing(self) -> None:
        self.assertEqual(self.browser.ask_for("dance").status, 400)
