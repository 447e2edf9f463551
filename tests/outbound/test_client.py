"""Tests both outbound clients over real sockets: requests, answers and idle connections."""

from __future__ import annotations

import gzip
import zlib

from twisted.internet.defer import Deferred
from twisted.web.server import Request
from zope.interface.verify import verifyObject

from rsscloud_broker.interfaces import IOutbound
from tests.outbound.scripted import ClientTestCase
from tests.outbound.servers import make_callback_client, page, serve


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

    async def test_requests_and_idle_connections_are_counted(self) -> None:
        client = self.make_client()
        outbound = client.outbound
        asking = self.begin(client, f"{self.base}/a")
        self.assertEqual((outbound.under_way, outbound.idle), (1, 0))
        await asking
        self.assertEqual((outbound.under_way, outbound.idle), (0, 1))
        outbound.stopService()
        self.assertEqual(outbound.idle, 0)

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

    async def test_url_that_is_completed(self) -> None:
        for path, uri in (("", "/"), ("?x=1", "/?x=1"), ("/é?ü=ß", "/%C3%A9?%C3%BC=%C3%9F")):
            await self.ask(path)
            self.assertEqual(self.pages.seen[-1].uri, uri)

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
        """The connection stays open, and no body follows."""
        for method, status in (("GET", b"204 A"), ("GET", b"304 B"), ("HEAD", b"200 C")):
            head = b"HTTP/1.1 " + status + b"\r\nContent-Length: 99\r\n\r\n"
            answer = await self.begin_raw(head, closes=False, method=method)
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
        """Also one that says that nothing was done to it, as RFC 2616 allowed: the body lasts until
        the connection ends (RFC 9112, 6.3).
        """
        for head in (b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n"):
            answer = await self.begin_raw(head + b"X-A: 1\r\nX-A: 2\r\n\r\nto the end")
            self.assertEqual((answer.body, answer.headers["x-a"]), (b"to the end", "2"))

    async def test_ipv6(self) -> None:
        port = serve(self, self.pages, interface="::1")
        answer = await self.begin(self.make_client(), f"http://[::1]:{port}/")
        self.assertEqual(answer.body, b"hello")
        self.assertEqual(self.pages.seen[0].headers.getRawHeaders("host"), [f"[::1]:{port}"])


class BodyTests(ClientTestCase):
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
        """The framing of the chunks is larger than the limit of everything besides the body."""

        def chunks(request: Request) -> bytes:
            for _ in range(20_000):
                request.write(b"x")
            return b""

        self.pages.answers["/"] = chunks
        answer = await self.ask("/", self.make_client(body_limit=20_000))
        self.assertEqual(answer.body, b"x" * 20_000)

    async def test_compressed(self) -> None:
        for coding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
            self.pages.answers["/"] = page(200, pack(b"hello"), content_encoding=coding)
            answer = await self.ask()
            self.assertEqual((answer.body, answer.compressed), (b"hello", True))
            asked = self.pages.seen[-1].headers.getRawHeaders("accept-encoding")
            self.assertEqual(asked, ["gzip, deflate"])
        self.assertFalse((await self.ask("/plain")).compressed)

    async def test_not_compressed_as_it_says(self) -> None:
        self.pages.answers["/"] = page(200, b"hello", content_encoding="gzip")
        self.assertIn("the answer cannot be decompressed", await self.refused())

    async def test_breaks_off(self) -> None:
        for head in (b"Content-Length: 1000\r\n", b"Transfer-Encoding: chunked\r\n"):
            asking = self.begin_raw(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n5\r\nhello")
            self.assertTrue(await self.refusal(asking))


class LeanRequestTests(RequestTests):
    make_client = staticmethod(make_callback_client)
