"""Signing in by a link that works once, and who cannot."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.accounts import digest_of
from rsscloud_broker.web.sign_in_link import link_to
from tests.front_doors.exchange import Answer
from tests.web.accounts_site import AccountSite, Browser

HERE = "http://localhost:5337"
SECRET = "s" * 43
LINK = link_to("", SECRET, "/write")


class LocalBrowser(Browser):
    """A browser on the machine of the broker."""

    def __init__(self, site: AccountSite) -> None:
        super().__init__(site, "127.0.0.1")

    def ask(self, method: str, path: str, body: bytes = b"", headers: object = None) -> Answer:
        given = headers if isinstance(headers, dict) else {}
        return super().ask(method, path, body, {"Host": "localhost:5337", **given})


class LinkTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.site = AccountSite(self)
        self.browser = LocalBrowser(self.site)
        dave, expires_at = self.site.stored().account.id, self.site.clock.wall_seconds() + 900
        self.successResultOf(self.site.store.add_link(dave, digest_of(SECRET), expires_at))


class SigningInTests(LinkTestCase):
    def test_link(self) -> None:
        self.assertEqual(link_to(HERE, "a_b"), f"{HERE}/signin/once?key=a_b")
        self.assertEqual(link_to(HERE, "a", "/write"), f"{HERE}/signin/once?key=a&next=/write")

    def test_signs_in_once(self) -> None:
        for method in ("HEAD", "GET", "HEAD", "GET"):  # to look at it does not use it up
            answer = self.browser.ask(method, LINK)
            self.assertEqual((answer.status, answer.headers["cache-control"]), (200, "no-store"))
        self.assertIn("as dave", self.browser.said("//main"))
        self.assertEqual(self.browser.page.xpath("//main//script/@src"), ["/sign_in_link.js"])
        answer = self.browser.send("Sign in")
        self.assertEqual((answer.status, answer.headers["location"]), (303, "/write"))
        self.browser.get("/account")
        self.assertEqual(self.browser.viewer(), "dave")

        other = LocalBrowser(self.site)
        answer = other.get(LINK)
        self.assertEqual(answer.status, 410)
        self.assertIn("This link was used", other.said())
        self.assertIn("rsscloud-broker account link NAME", answer.text)

    def test_two_browsers_at_the_same_time(self) -> None:
        other = LocalBrowser(self.site)
        self.browser.get(LINK)
        other.get(LINK)
        self.assertEqual(self.browser.send("Sign in").status, 303)
        answer = other.send("Sign in")
        self.assertEqual((answer.status, other.viewer()), (410, ""))

    def test_expires(self) -> None:
        self.browser.get(LINK)
        self.site.clock.advance(901)
        self.assertEqual(self.browser.send("Sign in").status, 410)
        self.assertEqual(LocalBrowser(self.site).get(LINK).status, 410)

    def test_garbage(self) -> None:
        for key in ("", "x", "%00", "%ff", "k" * 1000, SECRET[:-1]):
            self.assertEqual(self.browser.get(f"/signin/once?key={key}").status, 410, key)

    def test_leads_to_no_other_site(self) -> None:
        self.browser.get(LINK)
        (token,) = self.browser.page.xpath("//form[@id='link']/input[@name='csrf']/@value")
        fields = {"key": SECRET, "next": "//evil.example/", "csrf": token}
        answer = self.browser.post("/signin/once", fields)
        self.assertEqual((answer.status, answer.headers["location"]), (303, "/"))


class StrangersTests(LinkTestCase):
    def tearDown(self) -> None:
        """The link still works."""
        self.browser.get(LINK)
        self.assertEqual(self.browser.send("Sign in").status, 303)

    def test_who_is_not_here(self) -> None:
        for browser, sent in (
            (Browser(self.site), {"Host": "localhost:5337"}),
            (self.browser, {"Host": "evil.example:5337"}),  # DNS rebinding: a page of a stranger
            (self.browser, {"X-Forwarded-For": "192.0.2.7"}),  # a proxy on this machine
        ):
            for method, body in (("GET", b""), ("HEAD", b""), ("POST", f"key={SECRET}".encode())):
                headers = {"Content-Type": "application/x-www-form-urlencoded", **sent}
                answer = browser.ask(method, LINK, body, headers)
                self.assertEqual((answer.status, answer.headers["set-cookie"]), (403, None), sent)
                self.assertNotIn("dave", answer.text)

    def test_form_of_another_site(self) -> None:
        self.browser.get(LINK)
        (token,) = self.browser.page.xpath("//form[@id='link']/input[@name='csrf']/@value")
        fields = {"key": SECRET, "csrf": "wrong"}
        self.assertEqual(self.browser.post("/signin/once", fields).status, 403)
        fields["csrf"] = token
        sent = {"Sec-Fetch-Site": "cross-site"}
        self.assertEqual(self.browser.post("/signin/once", fields, sent).status, 403)
