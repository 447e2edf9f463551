"""Signing in and out with a browser, and what attackers try."""

from __future__ import annotations

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import NoOptions
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IFrontDoor
from rsscloud_broker.testing import front_door_parts, make_front_door_tests
from rsscloud_broker.web.callers import local_path
from rsscloud_broker.web.sign_in import AccountsDoor
from tests.accounts.fixture import PASSWORD, PATIENT, QUICK
from tests.web.accounts_site import AccountSite, Browser

SESSION, FORM, KNOWN = (f"__Host-rsscloud-{name}" for name in ("session", "form", "known"))


def make_door(case: SynchronousTestCase) -> IFrontDoor:
    """The front door with accounts in memory."""
    return AccountsDoor(NoOptions(), AccountSite(case).parts)


class ContractTests(make_front_door_tests(make_door)):  # type: ignore[misc] # made at run time
    """The front door of accounts is one as all others."""


class SiteTestCase(SynchronousTestCase):
    options = PATIENT

    def setUp(self) -> None:
        self.site = AccountSite(self, self.options)
        self.browser = Browser(self.site)


class SignInTests(SiteTestCase):
    def test_needs_accounts(self) -> None:
        error = self.assertRaises(ValueError, AccountsDoor, NoOptions(), front_door_parts())
        self.assertIn("needs accounts", str(error))

    def test_form(self) -> None:
        answer = self.browser.get("/signin")
        self.assertEqual(answer.status, 200)
        fields = self.browser.page.xpath("//form//input/@name")
        self.assertEqual(fields, ["csrf", "next", "name", "password"])
        (password,) = self.browser.page.xpath("//input[@name='password']")
        self.assertEqual(password.get("type"), "password")
        self.assertEqual(self.browser.viewer(), "")

    def test_what_an_account_is_for(self) -> None:
        """The form offers only what runs."""
        table = {
            frozenset({"writing", "river", "hosting"}): (
                "With an account you write here, read the feeds that you follow and keep files."
            ),
            frozenset({"river"}): "With an account you read the feeds that you follow.",
            frozenset(): (
                "With an account you look after this broker, if you are one of its administrators."
            ),
        }
        for running, sentence in table.items():
            browser = Browser(AccountSite(self, self.options, running=running))
            browser.get("/signin")
            self.assertIn(sentence, browser.said("//main"))

    def test_signing_in_and_out(self) -> None:
        answer = self.browser.sign_in()
        self.assertEqual((answer.status, answer.headers["location"]), (303, "/account"))
        self.assertEqual(self.browser.get("/account").status, 200)
        self.assertEqual(self.browser.viewer(), "dave")
        secret = self.browser.cookies[SESSION]
        answer = self.browser.post("/signout", {"csrf": self.browser.csrf})
        self.assertEqual((answer.status, answer.headers["location"]), (303, "/"))
        self.assertNotIn(SESSION, self.browser.cookies)
        self.browser.cookies[SESSION] = secret
        self.assertEqual(self.browser.get("/account").status, 303)

    def test_who_has_signed_in_is_led_on(self) -> None:
        self.browser.sign_in()
        answer = self.browser.get("/signin?next=/log?kind=ping")
        self.assertEqual((answer.status, answer.headers["location"]), (303, "/log?kind=ping"))

    def test_wrong_password(self) -> None:
        self.browser.sign_in()
        for name, password in (("dave", "mistaken"), ("nobody", PASSWORD)):
            browser = Browser(self.site)
            answer = browser.sign_in(name, password)
            self.assertEqual(answer.status, 403)
            self.assertEqual(browser.said(), "The name or the password is wrong.")
            self.assertNotIn(SESSION, browser.cookies)
            (typed,) = browser.page.xpath("//input[@name='name']/@value")
            self.assertEqual(typed, name)
            self.assertNotIn(password, answer.text)
            self.assertEqual(browser.send("Sign in", name="dave", password=PASSWORD).status, 303)

    def test_names_are_escaped(self) -> None:
        bad = '"><script>alert(1)</script>'
        answer = self.browser.sign_in(bad, "wrong", "/signin?next=/%22%3E%3Cscript%3E")
        self.assertEqual(self.browser.page.xpath("//main//script"), [])
        self.assertNotIn(b"<script>", answer.body)

    def test_no_cache_keeps_the_pages_and_no_other_page_frames_them(self) -> None:
        """Else a site could have people click on buttons that they do not see."""
        answers = [self.browser.get("/signin"), self.browser.sign_in("dave", "wrong")]
        answers += [self.browser.sign_in(), self.browser.get("/account")]
        for answer in answers:
            self.assertEqual(answer.headers["cache-control"], "no-store")
            policy = answer.headers["content-security-policy"]
            self.assertIn("frame-ancestors 'none'", policy)
            self.assertIn("form-action 'self'", policy)
            self.assertNotIn("unsafe", policy)

    def test_store_cannot_be_read(self) -> None:
        self.browser.sign_in()

        async def unavailable(digest: bytes) -> None:
            raise Unavailable("the disk is full")

        self.patch(self.site.store, "session", unavailable)
        self.assertEqual(self.browser.get("/account").status, 503)
        self.assertEqual(self.browser.get("/").status, 200)


class CookieTests(SiteTestCase):
    def test_over_https(self) -> None:
        self.browser.sign_in()
        self.assertEqual(set(self.browser.cookies), {SESSION, FORM, KNOWN})
        for name in self.browser.cookies:
            cookie = self.browser.attributes[name]
            self.assertTrue(cookie["secure"] and cookie["httponly"], name)
            self.assertEqual((cookie["path"], cookie["domain"]), ("/", ""))
            self.assertEqual(cookie["samesite"].lower(), "lax")

    def test_on_this_machine(self) -> None:
        site = AccountSite(self, public_url="http://localhost:5337")
        browser = Browser(site)
        browser.sign_in()
        self.assertEqual(
            set(browser.cookies), {"rsscloud-session", "rsscloud-form", "rsscloud-known"}
        )
        for name in browser.cookies:
            cookie = browser.attributes[name]
            self.assertEqual((bool(cookie["secure"]), cookie["httponly"]), (False, True))

    def test_people_are_warned_of_connections_that_others_can_read(self) -> None:
        for url, warned in (
            ("http://broker.example", True),
            ("http://192.0.2.1:5337", True),
            ("http://localhost:5337", False),
            ("http://127.0.0.1", False),
            ("http://[::1]:5337", False),
            ("https://broker.example", False),
        ):
            browser = Browser(AccountSite(self, public_url=url))
            self.assertEqual(b"is not encrypted" in browser.get("/signin").body, warned, url)

    def test_session_that_somebody_else_chose(self) -> None:
        """Session fixation: the secret after the sign-in is another one."""
        attacker = Browser(self.site)
        attacker.sign_in("anna")
        for chosen in ("x" * 43, attacker.cookies[SESSION]):
            self.browser.cookies = {SESSION: chosen}
            self.browser.ask("POST", "/signout")
            self.browser.cookies = {}
            self.browser.get("/signin")
            self.browser.cookies[SESSION] = chosen
            self.browser.send("Sign in", name="dave", password=PASSWORD)
            self.assertNotEqual(self.browser.cookies[SESSION], chosen)
            attacker.cookies = {SESSION: chosen}
            attacker.get("/")
            self.assertEqual(attacker.viewer(), "")

    def test_malformed_cookies(self) -> None:
        for value in ("", "x", "\xff\xfe", "a=b", "x" * 4000, '"', "%00"):
            self.browser.cookies = {SESSION: value, FORM: value, KNOWN: value}
            self.assertEqual(self.browser.get("/account").status, 303, value)
            self.assertEqual(self.browser.sign_in().status, 303, value)


class ForgeryTests(SiteTestCase):
    """Other sites cannot sign people in or out (CSRF)."""

    def post(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> int:
        return self.browser.post(path, fields, headers).status

    def sign_in(self, csrf: str, headers: dict[str, str] | None = None) -> int:
        return self.post("/signin", headers, csrf=csrf, name="dave", password=PASSWORD)

    def test_sign_in_without_the_token(self) -> None:
        self.assertEqual(self.sign_in(""), 403)
        self.assertIn("allow cookies", self.browser.said())
        right = self.browser.cookies[FORM]
        for wrong in ("x" * 32, "", "\xe4" * 16):
            self.assertEqual(self.sign_in(wrong), 403)
        del self.browser.cookies[FORM]
        self.assertEqual(self.sign_in(right), 403)
        self.browser.cookies[FORM] = ""
        self.assertEqual(self.sign_in(""), 403)
        self.assertNotIn(SESSION, self.browser.cookies)
        self.browser.cookies[FORM] = right
        self.assertEqual(self.sign_in(right), 303)

    def test_what_browsers_say_about_the_sender(self) -> None:
        self.browser.get("/signin")
        right = self.browser.cookies[FORM]
        for headers, status in (
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "https://broker.example.evil.example"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Sec-Fetch-Site": "cross-site", "Origin": "null"}, 403),
            ({"Origin": "https://broker.example"}, 303),
            ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 303),
            ({"Origin": "http://[::1]:5337", "Host": "[::1]:5337"}, 303),
            ({}, 303),
        ):
            self.browser.cookies = {FORM: right}
            self.assertEqual(self.sign_in(right, headers), status, headers)

    def test_signing_out(self) -> None:
        self.browser.sign_in()
        other = Browser(self.site)
        other.sign_in()
        other.get("/")
        self.browser.get("/")
        token = self.browser.csrf
        cross = {"Sec-Fetch-Site": "cross-site"}
        for wrong in ("", other.csrf, token[:-1]):
            self.assertEqual(self.post("/signout", csrf=wrong), 403)
        self.assertEqual(self.post("/signout", cross, csrf=token), 403)
        self.assertEqual(self.browser.get("/signout").status, 405)
        self.browser.get("/")
        self.assertEqual(self.browser.viewer(), "dave")
        self.assertEqual(self.post("/signout", csrf=token), 303)
        self.browser.get("/")
        self.assertEqual(self.browser.viewer(), "")

    def test_signing_out_without_a_session(self) -> None:
        """A form of another site comes without the cookie, which must stay in the browser."""
        self.browser.sign_in()
        without_cookies = Browser(self.site)
        answer = without_cookies.post("/signout", {"csrf": "x"})
        self.assertEqual(answer.status, 303)
        self.assertIsNone(answer.headers["set-cookie"])


class RedirectTests(SiteTestCase):
    """A sign-in leads to pages of the broker only (open redirects)."""

    def test_local_paths(self) -> None:
        query = "/log?kind=ping&host=a.example"
        for path in ("/", "/log", query, "/topic?url=http://a.example/%C3%A4", "/a//b"):
            self.assertEqual(local_path(path, "no"), path)
        for path in (
            *("", "http://evil.example/", "//evil.example", "///evil.example", "/\\evil.example"),
            *("\\\\evil.example", "/\t/evil.example", "\t//evil.example", " //evil.example"),
            *("/\n/evil.example", "javascript:alert(1)", "evil.example", "https:evil.example"),
            *("/x\r\nSet-Cookie: a=b", "/" + "x" * 3000, "/\x00", "/ä"),
        ):
            self.assertEqual(local_path(path, "no"), "no", repr(path))

    def led_to(self, path: str) -> str:
        browser = Browser(self.site)
        browser.get("/signin")
        fields = {"csrf": browser.cookies[FORM], "name": "dave", "password": PASSWORD}
        answer = browser.post("/signin", {**fields, "next": path})
        self.assertEqual(answer.status, 303)
        return str(answer.headers["location"])

    def test_where_a_sign_in_leads(self) -> None:
        for path, place in (
            ("/topic?url=http://a.example/%C3%A4", "/topic?url=http://a.example/%C3%A4"),
            ("//evil.example", "/account"),
            ("/x\r\nSet-Cookie: a=b", "/x%0D%0ASet-Cookie:%20a=b"),
            *((path, "/account") for path in ("/signin", "/signin?next=/signin", "/signout")),
        ):
            self.assertEqual(self.led_to(path), place)

    def test_page_that_needs_an_account_leads_back(self) -> None:
        answer = self.browser.get("/account?done=token")
        self.assertEqual(answer.headers["location"], "/signin?next=/account%3Fdone%3Dtoken")
        answer = self.browser.sign_in(path=str(answer.headers["location"]))
        self.assertEqual(answer.headers["location"], "/account?done=token")


class BruteForceTests(SiteTestCase):
    options = evolve(QUICK, attempts_per_source=0.015)

    def test_too_many_attempts(self) -> None:
        for _ in range(3):
            self.assertEqual(self.browser.sign_in("dave", "wrong").status, 403)
        answer = self.browser.sign_in()
        self.assertEqual(answer.status, 429)
        pause = int(answer.headers["retry-after"])
        self.assertIn(f"try again in {pause} seconds", self.browser.said())
        self.assertNotIn(SESSION, self.browser.cookies)
        self.site.clock.advance(pause)
        again = self.browser.sign_in()  # now the attempts for this name are used up
        self.assertEqual(again.status, 429)
        self.site.clock.advance(int(again.headers["retry-after"]))
        self.assertEqual(self.browser.sign_in().status, 303)

    def test_the_cookie_of_a_known_browser_helps(self) -> None:
        self.browser.sign_in()
        for number in range(6):
            Browser(self.site, f"198.51.100.{number}").sign_in("dave", "wrong")
        self.assertEqual(Browser(self.site, "192.0.2.8").sign_in().status, 429)
        self.browser.cookies.pop(SESSION)
        self.assertEqual(self.browser.sign_in().status, 303)
