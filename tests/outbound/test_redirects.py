"""Tests how both outbound clients follow redirects, over real sockets."""

from __future__ import annotations

from functools import partial

from twisted.web.server import Request

from rsscloud_broker.core import Blocks
from rsscloud_broker.errors import AddressRefused
from rsscloud_broker.model.administration import Block
from tests.outbound.scripted import ClientTestCase
from tests.outbound.servers import Names, make_callback_client, page


class RedirectTests(ClientTestCase):
    def redirect(self, path: str, location: str, status: int = 302) -> None:
        self.pages.answers[path] = page(status, b"moved", location=location)

    async def test_followed_as_often_as_allowed(self) -> None:
        """Beyond that the redirect is the answer."""
        for number in range(6):
            self.redirect(f"/{number}", f"/{number + 1}")
        for redirects, status, body in ((6, 200, b"hello"), (5, 302, b"moved"), (0, 302, b"moved")):
            self.pages.seen.clear()
            answer = await self.ask("/0", redirects=redirects)
            self.assertEqual((answer.status, answer.body), (status, body))
            self.assertEqual(answer.url, f"{self.base}/{redirects}")
            called = [f"/{number}" for number in range(redirects + 1)]
            self.assertEqual([seen.uri for seen in self.pages.seen], called)

    async def test_a_blocked_host_is_not_called(self) -> None:
        """Neither at first nor where a redirect leads to it."""
        blocks = Blocks()
        client = self.make_client(Names({"spam.example": ["127.0.0.1"]}), blocks=blocks)
        spam = f"http://spam.example:{self.port}/spam"
        self.redirect("/a", spam)
        self.assertEqual((await self.ask("/a", client, redirects=1)).url, spam)
        self.pages.seen.clear()
        blocks.change([Block("host", "spam.example", "it sends spam", "alice", 1.0)])
        followed = self.begin(client, f"{self.base}/a", redirects=1)
        for asking in (followed, self.begin(client, spam)):
            error = await self.assertFailure(asking, AddressRefused)
            self.assertEqual(str(error), "the host is blocked here: it sends spam")
        self.assertEqual([seen.uri for seen in self.pages.seen], ["/a"])

    async def test_a_blocked_topic_is_not_fetched(self) -> None:
        """A redirect must not lead to it either; callbacks are not topics."""
        blocks = Blocks()
        client = self.make_client(blocks=blocks)
        self.redirect("/a", "/spam/x")
        what = f"http://127.0.0.1.:{self.port}/spam/*"
        blocks.change([Block("topic", what, "it is spam", "alice", 1.0)])
        for path, redirects in (("/spam/x", 0), ("/a", 1)):
            asking = self.begin(client, self.base + path, redirects=redirects)
            if self.make_client is make_callback_client:
                await asking
            else:
                error = await self.assertFailure(asking, AddressRefused)
                self.assertEqual(str(error), "the topic is blocked here: it is spam")

    async def test_hops_are_told(self) -> None:
        for number, status in enumerate((301, 302, 303, 307, 308)):
            self.redirect(f"/{number}", f"/{number + 1}", status)
        answer = await self.ask("/0", redirects=5)
        expected = [(301, "/1"), (302, "/2"), (303, "/3"), (307, "/4"), (308, "/5")]
        self.assertEqual(answer.hops, tuple((status, self.base + to) for status, to in expected))
        self.assertEqual((await self.ask("/0", redirects=1)).hops, ((301, f"{self.base}/1"),))
        self.assertEqual((await self.ask("/0")).hops, ())

    async def test_in_a_circle(self) -> None:
        """The client stops at the first repeated URL, and not at the limit."""
        self.redirect("/itself", "/itself")
        self.assertIn("lead in circles", await self.refused("/itself", redirects=1))
        self.assertEqual(len(self.pages.seen), 1)
        self.pages.seen.clear()
        self.redirect("/", "/a")
        self.redirect("/a", "/b")
        self.redirect("/b", "/a#again")
        reason = await self.refused("/", redirects=9)
        circle = f"{self.base}/a to {self.base}/b to {self.base}/a"
        self.assertEqual(reason, f"its redirects lead in circles: {circle}")
        self.assertEqual([seen.uri for seen in self.pages.seen], ["/", "/a", "/b"])

    async def test_circle_of_long_urls(self) -> None:
        self.redirect("/", "/?" + "x" * 20_000)
        self.assertLess(len(await self.refused("/", redirects=5)), 1000)

    async def test_post_stays_a_post(self) -> None:
        headers = {"content-type": "text/xml"}
        for status in (301, 302, 307, 308):
            self.redirect("/", "/next", status)
            del self.pages.seen[:]
            await self.ask("/", method="POST", headers=headers, body=b"<a/>", redirects=1)
            last = self.pages.seen[-1]
            self.assertEqual((last.uri, last.method, last.body), ("/next", "POST", b"<a/>"))
            self.assertEqual(last.headers.getRawHeaders("content-type"), ["text/xml"])

    async def test_see_other(self) -> None:
        self.redirect("/", "/next", 303)
        self.assertEqual((await self.ask("/", redirects=1)).status, 200)
        answer = await self.ask("/", method="POST", body=b"<a/>", redirects=1)
        self.assertEqual(answer.status, 303)

    async def test_without_a_location(self) -> None:
        self.pages.answers["/"] = page(301)
        self.assertEqual((await self.ask("/", redirects=5)).status, 301)

    async def test_locations(self) -> None:
        def moved(location: bytes, request: Request) -> bytes:
            request.setResponseCode(302)
            request.responseHeaders.addRawHeader(b"location", location)
            return b""

        for location, uri in (
            ("next", "/a/next"),
            ("../next?x=1", "/next?x=1"),
            ("b/?x=%2F", "/a/b/?x=%2F"),
            (f"{self.base}/whole#top", "/whole"),
            ("/é".encode().decode("latin-1"), "/%C3%A9"),
        ):
            self.pages.answers["/a/b"] = partial(moved, location.encode("latin-1"))
            await self.ask("/a/b", redirects=1)
            self.assertEqual(self.pages.seen[-1].uri, uri)

    async def test_each_hop_is_judged(self) -> None:
        for location, reason in (
            ("http://169.254.169.254/latest/", "is not public (link-local)"),
            ("http://10.0.0.1/", "is not public (private)"),
            ("http://inner.example/", "is not public (private)"),
            ("file:///etc/passwd", "must begin with http:// or https://"),
            ("http://user@127.0.0.1/", "must not carry a user name"),
        ):
            client = self.make_client(Names({"inner.example": ["127.0.0.1", "192.168.0.1"]}))
            self.redirect("/", location)
            self.assertIn(reason, await self.refused("/", client, redirects=1))

    async def test_each_hop_is_looked_up(self) -> None:
        names = Names({"one.example": ["127.0.0.1"], "two.example": ["127.0.0.1"]})
        self.redirect("/", f"http://two.example:{self.port}/next")
        url = f"http://one.example:{self.port}/"
        answer = await self.begin(self.make_client(names), url, redirects=1)
        self.assertEqual(answer.status, 200)
        self.assertEqual(names.asked, ["one.example", "two.example"])
        hosts = [seen.headers.getRawHeaders("host") for seen in self.pages.seen]
        self.assertEqual(hosts, [[f"one.example:{self.port}"], [f"two.example:{self.port}"]])


class LeanRedirectTests(RedirectTests):
    make_client = staticmethod(make_callback_client)
