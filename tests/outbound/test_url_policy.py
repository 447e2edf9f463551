"""Tests the check of URLs before the broker accepts them."""

from __future__ import annotations

from ipaddress import ip_network

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.errors import AddressRefused
from rsscloud_broker.interfaces import IURLPolicy
from rsscloud_broker.outbound import AddressGuard, URLPolicy
from rsscloud_broker.testing.clock import Clock

NAMES = {
    "public.example": ["192.0.2.1", "93.184.216.34"],
    "open.example": ["93.184.216.34", "2606:2800:220:1::1"],
    "inside.example": ["93.184.216.34", "10.0.0.1"],
    "allowed.example": ["10.1.0.1"],
    "ours.example": ["93.184.216.99"],
    "127.1": ["127.0.0.1"],  # in the form that the resolver gives it
}


def resolve(host: str) -> Deferred[list[str]]:
    if host not in NAMES:
        return fail(OSError("no such name"))
    return succeed(NAMES[host])


class URLPolicyTests(TestCase):
    def setUp(self) -> None:
        guard = AddressGuard((ip_network("10.1.0.0/16"),), (("93.184.216.99", 80),))
        self.clock = Clock()
        self.judge = URLPolicy(resolve, guard, self.clock)

    def test_interface(self) -> None:
        self.assertTrue(verifyObject(IURLPolicy, self.judge))

    async def test_let_through(self) -> None:
        for url in (
            "http://open.example/rss.xml",
            "https://93.184.216.34:8443/",
            "http://allowed.example/",
            "http://10.1.2.3/",
            "http://ours.example:8080/",
            "http://does-not-resolve-yet.example/",
        ):
            await self.judge.check(url)

    def test_name_server_that_hangs(self) -> None:
        judge = URLPolicy(lambda host: Deferred(), AddressGuard((), ()), self.clock)
        judged = Deferred.fromCoroutine(judge.check("http://slow.example/"))
        self.assertNoResult(judged)
        self.clock.advance(3.0)
        self.successResultOf(judged)

    async def test_refused(self) -> None:
        for url, because in (
            ("gopher://open.example/", "http://"),
            ("http://open.example:22/", "SSH"),
            ("http://inside.example/", "10.0.0.1"),
            ("http://[::1]/", "::1"),
            ("http://127.1/", "127.0.0.1"),
            ("http://ours.example/", ""),
            ("http://user@open.example/", "user"),
        ):
            with self.assertRaises(AddressRefused, msg=url) as caught:
                await self.judge.check(url)
            self.assertIn(because, str(caught.exception))
