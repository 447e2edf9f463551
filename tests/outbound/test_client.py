"""Both outbound clients over real sockets: what goes over the wire, and what comes of it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import TestCase
from twisted.web.server import Request
from zope.interface.verify import verifyObject

from rsscloud_broker.interfaces import IOutbound, OutboundReply
from rsscloud_broker.model import OutboundError
from tests.outbound.servers import (
    Client,
    Names,
    Pages,
    RawFactory,
    black_hole,
    half,
    listen,
    make_client,
    make_lean_client,
    page,
    serve,
    silence,
)


class ClientTestCase(TestCase):
    """For the client for topics; a subclass may have another one."""

    make_client: Callable[..., Client] = staticmethod(make_client)

    def setUp(self) -> None:
        self.pages = Pages({})
        self.port = serve(self, self.pages)
        self.base = f"http://127.0.0.1:{self.port}"

    def begin(self, client: Client, url: str, **request: Any) -> Deferred[OutboundReply]:
        """Make a request that may take a while."""
        method = request.pop("method", "GET")
        call: Any = client.outbound.request(method, url, **request)
        return Deferred.fromCoroutine(call)

    async def ask(self, path: str = "/", client: Client | None = None, **request: Any) -> Any:
        return await self.begin(client or self.make_client(), self.base + path, **request)

    async def refusal(self, asking: Deferred[OutboundReply]) -> str:
        error = await self.assertFailure(asking, OutboundError)
        return str(error)

    async def refused(self, path: str = "/", client: Client | None = None, **request: Any) -> str:
        return await self.refusal(
            self.begin(client or self.make_client(), self.base + path, **request)
        )


class RequestTests(ClientTestCase):
    def test_interface(self) -> None:
        self.assertTrue(verifyObject(IOutbound, self.make_client().outbound))

    async def test_get(self) -> None:
        self.pages.answers["/a"] = page(203, b"body", x_one="1", content_type="text/x")
        answer = await self.ask("/a")
        self.assertEqual((answer.status, answer.body, answer.success), (203, b"body", True))
        self.assertEqual(answer.url, f"{self.base}/a")
        self.assertEqual(answer.headers["x-one"], "1")
        self.assertEqual(answer.headers["content-type"], "text/x")
        (seen,) = self.pages.seen
        self.assertEqual((seen.method, seen.body), ("GET", b""))
        self.assertEqual(seen.headers.getRawHeaders("user-agent"), ["tests/1.0"])
        self.assertEqual(seen.headers.getRawHeaders("host"), [f"127.0.0.1:{self.port}"])
        self.assertFalse(seen.headers.hasHeader("content-type"))

    async def test_post(self) -> None:
        headers = {"content-type": "text/xml", "soapaction": '"/a"'}
        await self.ask("/a", method="POST", headers=headers, body=b"\x00\xff<a/>")
        (seen,) = self.pages.seen
        self.assertEqual((seen.method, seen.body), ("POST", b"\x00\xff<a/>"))
        self.assertEqual(seen.headers.getRawHeaders("content-type"), ["text/xml"])
        self.assertEqual(seen.headers.getRawHeaders("soapaction"), ['"/a"'])
        self.assertEqual(seen.headers.getRawHeaders("content-length"), ["6"])

    async def test_url_is_kept_as_it_is(self) -> None:
        for path in (
            "/a%2Fb?x=%7E+1&y=%C3%A9", "/%7euser/%e9", "/a/../b/./c//d/", "/?", "/a?b&c=&=d",
            "/a;p=1?x;y", "/?x=a=b==", "/@:!$&'()*+,;=~-._", "/%", "/?a%3Db=c%26d&%2B",
            "/?u=http://x.example/?y=1",
        ):  # fmt: skip
            await self.ask(path)
            self.assertIn(self.pages.seen[-1].uri, {path, path.removesuffix("/?") or "/"})

    async def test_no_path(self) -> None:
        for path in ("", "?x=1"):
            await self.ask(path)
            self.assertEqual(self.pages.seen[-1].uri, "/" + path)

    async def test_text_beyond_ascii_is_encoded(self) -> None:
        await self.ask("/é?ü=ß")
        self.assertEqual(self.pages.seen[-1].uri, "/%C3%A9?%C3%BC=%C3%9F")

    async def test_every_status_is_an_answer(self) -> None:
        for status in (204, 304, 400, 404, 410, 500, 503):
            self.pages.answers["/"] = page(status)
            answer = await self.ask()
            self.assertEqual((answer.status, answer.success), (status, status == 204))

    async def test_cookies_are_not_kept(self) -> None:
        client = self.make_client()
        self.pages.answers["/"] = page(200, set_cookie="a=b; path=/")
        for _ in range(2):
            await self.ask("/", client)
        self.assertFalse(self.pages.seen[1].headers.hasHeader("cookie"))

    async def test_answers_without_a_body_are_not_waited_for(self) -> None:
        """The connection stays open, and nothing follows."""
        for method, status in (("GET", b"204 A"), ("GET", b"304 B"), ("HEAD", b"200 C")):
            raw = RawFactory(
                b"HTTP/1.1 " + status + b"\r\nContent-Length: 99\r\n\r\n", closes=False
            )
            url = f"http://127.0.0.1:{listen(self, raw)}/"
            answer = await self.begin(self.make_client(), url, method=method)
            self.assertEqual((answer.status, answer.body), (int(status[:3]), b""))

    async def test_conditional_requests_share_a_connection(self) -> None:
        client = self.make_client()
        peers = set()

        def same(request: Request) -> bytes:
            peers.add(request.getClientAddress().port)
            request.setETag(b'"a"')
            return b""

        self.pages.answers["/"] = same
        for _ in range(2):
            answer = await self.ask("/", client, headers={"if-none-match": '"a"'})
            self.assertEqual((answer.status, answer.body), (304, b""))
        self.assertEqual(len(peers), 1)

    async def test_answer_without_a_length(self) -> None:
        raw = RawFactory(b"HTTP/1.0 200 OK\r\nX-A: 1\r\nX-A: 2\r\n\r\nto the end")
        answer = await self.begin(self.make_client(), f"http://127.0.0.1:{listen(self, raw)}/")
        self.assertEqual((answer.body, answer.headers["x-a"]), (b"to the end", "2"))

    async def test_ipv6(self) -> None:
        port = serve(self, self.pages, interface="::1")
        answer = await self.begin(self.make_client(), f"http://[::1]:{port}/")
        self.assertEqual(answer.body, b"hello")
        self.assertEqual(self.pages.seen[0].headers.getRawHeaders("host"), [f"[::1]:{port}"])


class BodyTests(ClientTestCase):
    async def test_as_large_as_allowed(self) -> None:
        self.pages.answers["/"] = page(200, b"x" * 1000)
        self.assertEqual((await self.ask()).body, b"x" * 1000)

    async def test_larger(self) -> None:
        self.pages.answers["/"] = page(200, b"x" * 1001)
        self.assertEqual(await self.refused(), "the answer is larger than 1000 bytes")

    async def test_without_end(self) -> None:
        def flood(request: Request) -> int:
            request.write(b"x" * 5000)
            gone.append(request.notifyFinish())
            return 1  # NOT_DONE_YET

        gone: list[Deferred[None]] = []
        self.pages.answers["/"] = flood
        self.assertEqual(await self.refused(), "the answer is larger than 1000 bytes")
        with self.assertRaises(Exception):  # noqa: B017 # whatever Twisted calls it
            await gone[0]

    async def test_in_small_chunks(self) -> None:
        """What is around them is larger than what is allowed besides a body."""

        def chunks(request: Request) -> bytes:
            for _ in range(20_000):
                request.write(b"x")
            return b""

        self.pages.answers["/"] = chunks
        answer = await self.ask("/", self.make_client(body_limit=20_000))
        self.assertEqual(answer.body, b"x" * 20_000)

    async def test_compressed(self) -> None:
        for coding, packed in (
            ("gzip", gzip.compress(b"hello")),
            ("deflate", zlib.compress(b"hello")),
        ):
            self.pages.answers["/"] = page(200, packed, content_encoding=coding)
            self.assertEqual((await self.ask()).body, b"hello")
            asked = self.pages.seen[-1].headers.getRawHeaders("accept-encoding")
            self.assertEqual(asked, ["gzip, deflate"])

    async def test_compressed_and_larger(self) -> None:
        bomb = gzip.compress(b"0" * 50_000_000)
        self.pages.answers["/"] = page(200, bomb, content_encoding="gzip")
        self.assertEqual(await self.refused(), "the answer is larger than 1000 bytes")

    async def test_compressed_twice(self) -> None:
        bomb = gzip.compress(gzip.compress(b"hello"))
        self.pages.answers["/"] = page(200, bomb, content_encoding="gzip, gzip")
        self.assertEqual(await self.refused(), "the answer is compressed more than once")

        def two_headers(request: Request) -> bytes:
            request.responseHeaders.setRawHeaders("content-encoding", ["gzip", "gzip"])
            return bomb

        self.pages.answers["/"] = two_headers
        self.assertEqual(await self.refused(), "the answer is compressed more than once")

    async def test_not_compressed_as_it_says(self) -> None:
        for body in (b"hello", gzip.compress(b"hello" * 100)[:-9] + b"\xff" * 9):
            self.pages.answers["/"] = page(200, body, content_encoding="gzip")
            self.assertIn("the answer cannot be decompressed", await self.refused())
        self.pages.answers["/"] = page(200, gzip.compress(b"hello")[:-3], content_encoding="gzip")
        self.assertEqual(await self.refused(), "the answer breaks off")

    async def test_compressed_otherwise_or_nothing_at_all(self) -> None:
        self.pages.answers["/"] = page(200, b"hello", content_encoding="br")
        self.assertEqual((await self.ask()).body, b"hello")
        self.pages.answers["/"] = page(204, b"", content_encoding="gzip")
        self.assertEqual((await self.ask()).body, b"")

    async def test_breaks_off(self) -> None:
        for head in (b"Content-Length: 1000\r\n", b"Transfer-Encoding: chunked\r\n"):
            raw = RawFactory(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n5\r\nhello")
            url = f"http://127.0.0.1:{listen(self, raw)}/"
            self.assertTrue(await self.refusal(self.begin(self.make_client(), url)))


class FailureTests(ClientTestCase):
    async def test_url_that_is_not_called(self) -> None:
        client = self.make_client()
        for url in ("javascript:alert(1)", "http://a:b@127.0.0.1/", "http://127.0.0.1:99999/"):
            self.assertTrue(await self.refusal(self.begin(client, url)))
        self.assertEqual(client.names.asked, [])

    async def test_url_with_control_characters(self) -> None:
        for path in ("/\r\nX-Evil: 1", "/a\nb", "/\x00", "/\t", "/a b"):
            self.assertTrue(await self.refused(path))
        self.assertEqual(self.pages.seen, [])

    async def test_connection_refused(self) -> None:
        port = listen(self, RawFactory())
        await self.doCleanups_of_servers()
        reason = await self.refusal(self.begin(self.make_client(), f"http://127.0.0.1:{port}/"))
        self.assertIn(f"no connection to 127.0.0.1 port {port}", reason)
        self.assertIn("refused", reason)

    async def doCleanups_of_servers(self) -> None:
        """Close the servers of this test now."""
        while self._cleanups:
            function, args, kwargs = self._cleanups.pop()
            await function(*args, **kwargs)

    async def test_garbage(self) -> None:
        for says in (
            b"220 mail.example ESMTP\r\n",
            b"\x00\xff" * 50,
            b"HTTP/1.1 what\r\n\r\n",
            b"",
        ):
            url = f"http://127.0.0.1:{listen(self, RawFactory(says or b' '))}/"
            reason = await self.refusal(self.begin(self.make_client(), url))
            self.assertTrue(reason)
            self.assertNotIn("\n", reason)

    async def test_closed_without_an_answer(self) -> None:
        raw = RawFactory()
        port = listen(self, raw)
        asking = self.begin(self.make_client(), f"http://127.0.0.1:{port}/")
        await raw.spoken_to
        raw.connections[0].transport.loseConnection()  # type: ignore[union-attr] # it has one
        self.assertTrue(await self.refusal(asking))

    async def test_headers_without_end(self) -> None:
        flood = b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: x\r\n" % n for n in range(20_000))
        raw = RawFactory(flood, closes=False)
        url = f"http://127.0.0.1:{listen(self, raw)}/"
        self.assertTrue(await self.refusal(self.begin(self.make_client(), url)))
        await raw.connections[0].lost


class DeadlineTests(ClientTestCase):
    async def assert_too_late(self, asking: Deferred[OutboundReply], client: Client) -> None:
        client.clock.advance(14.9)
        self.assertNoResult(asking)
        client.clock.advance(0.1)
        reason = str(self.failureResultOf(asking, OutboundError).value)
        self.assertEqual(reason, "no whole answer within 15 seconds")

    async def test_of_the_name(self) -> None:
        hangs: Deferred[list[str]] = Deferred()
        client = self.make_client(lambda host: hangs)
        await self.assert_too_late(self.begin(client, "http://slow.example/"), client)

    async def test_of_connecting(self) -> None:
        black_hole(self, "127.0.0.2", self.port)
        for scheme in ("http", "https"):
            client = self.make_client(Names({"slow.example": ["127.0.0.2"]}))
            asking = self.begin(client, f"{scheme}://slow.example:{self.port}/")
            await self.assert_too_late(asking, client)

    async def test_of_tls(self) -> None:
        raw = RawFactory()
        client = self.make_client()
        asking = self.begin(client, f"https://127.0.0.1:{listen(self, raw)}/")
        await raw.spoken_to
        await self.assert_too_late(asking, client)
        await raw.connections[0].lost

    async def test_of_headers(self) -> None:
        self.pages.answers["/"] = silence
        client = self.make_client()
        asking = self.begin(client, self.base)
        await self.pages.asked
        await self.assert_too_late(asking, client)

    async def test_of_the_body(self) -> None:
        self.pages.answers["/"] = half
        client = self.make_client()
        asking = self.begin(client, self.base)
        await self.pages.asked
        await self.assert_too_late(asking, client)

    async def test_of_all_redirects_together(self) -> None:
        client = self.make_client()

        def slow(request: Request) -> bytes:
            client.clock.advance(10)
            request.redirect(b"/last")
            return b""

        self.pages.answers |= {"/": slow, "/last": silence}
        asking = self.begin(client, self.base, redirects=5)
        while len(self.pages.seen) < 2:
            self.pages.asked = Deferred()
            await self.pages.asked
        client.clock.advance(4.9)
        self.assertNoResult(asking)
        client.clock.advance(0.1)
        self.failureResultOf(asking, OutboundError)

    async def test_answer_in_time_leaves_nothing_behind(self) -> None:
        client = self.make_client()
        await self.ask("/", client)
        client.clock.advance(15)
        self.assertEqual(client.clock.getDelayedCalls(), [])

    async def test_cancelling_is_no_failure_of_the_other_side(self) -> None:
        for answer in (silence, half):
            self.pages.answers["/"] = answer
            self.pages.asked = Deferred()
            asking = self.begin(self.make_client(), self.base)
            await self.pages.asked
            asking.cancel()
            self.failureResultOf(asking, CancelledError)


class RedirectTests(ClientTestCase):
    def redirect(self, path: str, location: str, status: int = 302) -> None:
        self.pages.answers[path] = page(status, b"moved", location=location)

    async def test_followed_as_often_as_allowed(self) -> None:
        for number in range(3):
            self.redirect(f"/{number}", f"/{number + 1}")
        answer = await self.ask("/0", redirects=3)
        self.assertEqual((answer.status, answer.body), (200, b"hello"))
        self.assertEqual(answer.url, f"{self.base}/3")
        self.assertEqual([seen.uri for seen in self.pages.seen], ["/0", "/1", "/2", "/3"])

    async def test_beyond_that_the_redirect_is_the_answer(self) -> None:
        for number in range(3):
            self.redirect(f"/{number}", f"/{number + 1}")
        for redirects in (0, 2):
            answer = await self.ask("/0", redirects=redirects)
            self.assertEqual((answer.status, answer.body), (302, b"moved"))
            self.assertEqual(answer.url, f"{self.base}/{redirects}")

    async def test_in_a_circle(self) -> None:
        self.redirect("/", "/")
        self.assertEqual((await self.ask("/", redirects=5)).status, 302)
        self.assertEqual(len(self.pages.seen), 6)

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


class LeanRequestTests(RequestTests):
    make_client = staticmethod(make_lean_client)


class LeanFailureTests(FailureTests):
    make_client = staticmethod(make_lean_client)


class LeanDeadlineTests(DeadlineTests):
    make_client = staticmethod(make_lean_client)


class LeanRedirectTests(RedirectTests):
    make_client = staticmethod(make_lean_client)
