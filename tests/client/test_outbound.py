"""The clients through the broker's guarded client."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.client.websub import ask_hub
from rsscloud_broker.errors import AddressRefused
from rsscloud_broker.testing import FakeOutbound, reply
from rsscloud_broker.wire.web_address import REDIRECTS

URL = "http://hub.example/"


class GuardedTests(SynchronousTestCase):
    def test_requests_and_replies(self) -> None:
        outbound = FakeOutbound({URL: reply(202, b"ok", content_type="text/plain", link="<x>")})
        web = Web(outbound)
        got = self.successResultOf(web.get(URL))
        self.assertEqual(
            (got.status, got.headers, got.body, got.url),
            (202, {"content-type": "text/plain", "link": "<x>"}, b"ok", URL),
        )
        self.successResultOf(web.get(URL, redirects=False))
        said = self.successResultOf(ask_hub(web, URL, [("a", "b c")]))
        self.assertEqual(said, "ok")
        self.assertEqual([each.redirects for each in outbound.requests], [5, 0, 0])
        post = outbound.requests[-1]
        self.assertEqual((post.method, post.body), ("POST", b"a=b+c"))
        self.assertEqual(post.headers["content-type"], "application/x-www-form-urlencoded")

    def asking(self, outbound: FakeOutbound, hub: str = URL) -> Deferred[str]:
        return Deferred.fromCoroutine(ask_hub(Web(outbound), hub, [("hub.secret", "s")]))

    def complaint(self, outbound: FakeOutbound, hub: str = URL) -> str:
        return str(self.failureResultOf(self.asking(outbound, hub), ClientError).value)

    def test_redirects_to_other_hubs(self) -> None:
        """WebSub, section 5: by 307 and 308, with the same form; the guard judges each."""
        there = "https://there.example/hub"
        for status in (307, 308):
            outbound = FakeOutbound(
                {
                    URL: reply(status, location="/moved"),
                    f"{URL}moved": reply(307, location=there),
                    there: reply(202, b"Thanks."),
                }
            )
            self.assertEqual(self.successResultOf(self.asking(outbound)), "Thanks.")
            self.assertEqual(
                [(each.method, each.url, each.body) for each in outbound.requests],
                [("POST", url, b"hub.secret=s") for url in (URL, f"{URL}moved", there)],
            )
            self.assertEqual({each.redirects for each in outbound.requests}, {0})
            outbound.answers[there] = AddressRefused("it leads to a private network")
            said = self.complaint(outbound)
            self.assertEqual(said, f"{there}: it leads to a private network")

    def test_redirect_in_utf_8(self) -> None:
        """The broker's clients decode headers as Latin-1."""
        there = f"{URL}caf%C3%A9"
        moved = reply(307, location="/café#there".encode().decode("latin-1"))
        outbound = FakeOutbound({URL: moved, there: reply(202, b"Thanks.")})
        self.assertEqual(self.successResultOf(self.asking(outbound)), "Thanks.")

    def test_redirects_that_are_not_followed(self) -> None:
        secure = URL.replace("http", "https", 1)
        for url, status, location, said, count in (
            *((URL, status, "/moved", f"HTTP status {status}", 1) for status in (301, 302, 303)),
            (URL, 307, "/again", "HTTP status 307", 1 + REDIRECTS),
            (URL, 308, "http://[", f"{URL}: it redirects to what is not a URL", 1),
            (secure, 308, URL, "is not https", 1),
            (secure, 308, "http://[", "is not a URL", 1),
            (secure, 308, "", "HTTP status 308", 1),
        ):
            outbound = FakeOutbound(otherwise=reply(status, location=location))
            self.assertIn(said, self.complaint(outbound, url))
            self.assertEqual(len(outbound.requests), count)

    def test_what_the_guard_refuses(self) -> None:
        outbound = FakeOutbound({URL: AddressRefused("it leads to a private network")})
        error = self.failureResultOf(Web(outbound).get(URL), ClientError).value
        self.assertEqual(str(error), f"{URL}: it leads to a private network")
