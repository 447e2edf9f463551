"""The clients through the broker's guarded client."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.client.outbound import GuardedWeb
from rsscloud_broker.client.web import ClientError
from rsscloud_broker.client.websub import ask_hub
from rsscloud_broker.errors import AddressRefused
from rsscloud_broker.testing import FakeOutbound, reply

URL = "http://hub.example/"


class GuardedWebTests(SynchronousTestCase):
    def test_requests_and_replies(self) -> None:
        outbound = FakeOutbound({URL: reply(202, b"ok", content_type="text/plain", link="<x>")})
        web = GuardedWeb(outbound)
        got = self.successResultOf(Deferred.fromCoroutine(web.get(URL)))
        self.assertEqual(
            (got.status, got.content_type, got.body, got.url, got.link),
            (202, "text/plain", b"ok", URL, "<x>"),
        )
        self.successResultOf(Deferred.fromCoroutine(web.get(URL, redirects=False)))
        said = self.successResultOf(Deferred.fromCoroutine(ask_hub(web, URL, [("a", "b c")])))
        self.assertEqual(said, "ok")
        self.assertEqual([each.redirects for each in outbound.requests], [5, 0, 0])
        post = outbound.requests[-1]
        self.assertEqual((post.method, post.body), ("POST", b"a=b+c"))
        self.assertEqual(post.headers["content-type"], "application/x-www-form-urlencoded")

    def test_what_the_guard_refuses(self) -> None:
        web = GuardedWeb(FakeOutbound({URL: AddressRefused("it leads to a private network")}))
        error = self.failureResultOf(Deferred.fromCoroutine(web.get(URL)), ClientError).value
        self.assertEqual(str(error), f"{URL}: it leads to a private network")
