"""Crawlers read the change lists over HTTP, and no other file."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from typing import Any

from twisted.internet import reactor
from twisted.python.filepath import FilePath
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, readBody
from twisted.web.http_headers import Headers

from rsscloud_broker.config import NoOptions
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.front_doors.change_lists import ChangeListsDoor
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.testing import Clock, front_door_parts
from tests.outbound.servers import serve

CONTENT = b"<weblogUpdates>\n" + b"<weblog/>\n" * 100 + b"</weblogUpdates>\n"
GZIPPED = gzip.compress(CONTENT)

#: 2026-09-29 12:00:00 UTC
NOON = 1_790_683_200
NOON_DATE = "Tue, 29 Sep 2026 12:00:00 GMT"

LIST, ARCHIVE = "/changes.xml", "/2026/09/29/12.xml"
#: The three kinds of lists, with the seconds that they may be cached.
KINDS = {LIST: 60, "/shortChanges.xml": 30, ARCHIVE: 60}


class ChangeListsTestCase(TestCase):
    has_hub = False

    def setUp(self) -> None:
        self.directory = FilePath(self.mktemp())
        self.directory.makedirs()
        self.clock = Clock(NOON + 60)
        parts = front_door_parts(
            clock=self.clock,
            public_directory=self.directory,
            running=frozenset({"change_lists", "websub"}),
            has_hub=self.has_hub,
            copy_file=self.copy,
        )
        self.copied: list[str] = []
        self.stored: dict[str, Exception | None] = {}
        door = ChangeListsDoor(NoOptions(), parts)
        # Not treq, which would accept gzip and decompress it.  Over real sockets, which tell
        # Twisted's file producer when the connection is lost.
        self.agent: Any = Agent(reactor)
        self.url = f"http://127.0.0.1:{serve(self, Root([door], 'http://broker.example'))}"

    async def copy(self, path: str) -> bool:
        """Copy a file that another node has made."""
        self.copied.append(path)
        if path not in self.stored:
            return False
        failure = self.stored[path]
        if failure is not None:
            raise failure
        self.put(path)
        return True

    def put(self, url_path: str, twin: bool = True) -> FilePath[str]:
        path = self.directory.descendant(url_path[1:].split("/"))
        path.parent().makedirs(ignoreExistingDirectory=True)
        path.setContent(CONTENT)
        os.utime(path.path, (NOON, NOON))
        if twin:
            path.siblingExtension(".gz").setContent(GZIPPED)
            os.utime(path.path + ".gz", (NOON, NOON))
        return path

    async def ask(
        self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> OutboundReply:
        sent = Headers({name: [value] for name, value in (headers or {}).items()})
        url = f"{self.url}{path}".encode("ascii")
        response = await self.agent.request(method.encode("ascii"), url, sent)
        body = await readBody(response)
        names = {
            name.decode().lower(): values[-1].decode()
            for name, values in response.headers.getAllRawHeaders()
        }
        return OutboundReply(response.code, names, body, url.decode())


class ChangeListsDoorTests(ChangeListsTestCase):
    async def test_the_three_kinds(self) -> None:
        for path, max_age in KINDS.items():
            self.put(path)
            answer = await self.ask(path)
            self.assertEqual((answer.status, answer.body), (200, CONTENT))
            self.assertEqual(answer.headers["cache-control"], f"public, max-age={max_age}")
            self.assertEqual(answer.headers["content-type"], "text/xml; charset=utf-8")
            self.assertEqual(answer.headers["vary"], "Accept-Encoding")
            self.assertEqual(answer.headers["last-modified"], NOON_DATE)
            self.assertNotIn("content-encoding", answer.headers)
            self.assertNotIn("link", answer.headers, "there is no hub")

    async def test_archive_that_has_not_changed_for_a_day(self) -> None:
        self.put(ARCHIVE)
        self.clock.advance(86_400)
        answer = await self.ask(ARCHIVE)
        self.assertEqual(answer.headers["cache-control"], "public, max-age=86400")

    # gzip

    async def test_gzip_where_it_is_allowed(self) -> None:
        self.put(LIST)
        answer = await self.ask(LIST, {"Accept-Encoding": "gzip, deflate"})
        self.assertEqual((answer.status, answer.body), (200, GZIPPED))
        self.assertEqual(answer.headers["content-encoding"], "gzip")
        self.assertEqual(answer.headers["content-type"], "text/xml; charset=utf-8")
        self.assertEqual(answer.headers["vary"], "Accept-Encoding")

    async def test_a_twin_of_the_same_size_has_another_etag(self) -> None:
        path = self.put(LIST)
        twin = path.siblingExtension(".gz")
        twin.setContent(GZIPPED[: len(CONTENT)].ljust(len(CONTENT), b" "))
        os.utime(twin.path, (NOON, NOON))
        plain = await self.ask(LIST)
        compressed = await self.ask(LIST, {"Accept-Encoding": "gzip"})
        self.assertEqual(compressed.headers["content-encoding"], "gzip")
        self.assertEqual(len(compressed.body), len(plain.body))
        self.assertNotEqual(compressed.headers["etag"], plain.headers["etag"])

    async def test_without_a_twin_the_plain_file_serves(self) -> None:
        self.put(LIST, twin=False)
        answer = await self.ask(LIST, {"Accept-Encoding": "gzip"})
        self.assertEqual((answer.status, answer.body), (200, CONTENT))
        self.assertNotIn("content-encoding", answer.headers)

    # conditions

    async def test_an_etag_that_still_holds(self) -> None:
        self.put(LIST)
        for coding in ("identity", "gzip"):
            etag = (await self.ask(LIST, {"Accept-Encoding": coding})).headers["etag"]
            sent = {"If-None-Match": f'"other", {etag}', "Accept-Encoding": coding}
            answer = await self.ask(LIST, sent)
            self.assertEqual((answer.status, answer.body), (304, b""), coding)
            self.assertEqual(answer.headers["etag"], etag)
            self.assertEqual(answer.headers["cache-control"], "public, max-age=60")
            self.assertEqual(answer.headers["vary"], "Accept-Encoding")
            # In a 304 it would be the length of the list (RFC 9110, section 8.6).
            self.assertNotIn("content-length", answer.headers)

    async def test_a_replaced_file_is_seen_at_once(self) -> None:
        for number in range(3):
            self.put(LIST)
            for coding in ("identity", "gzip"):
                sent = {"Accept-Encoding": coding}
                etag = (await self.ask(LIST, sent)).headers["etag"]
                sent["If-None-Match"] = etag
                self.assertEqual((await self.ask(LIST, sent)).status, 304)
                new = self.put(f"/new{number}.xml")
                for ending in ("", ".gz"):
                    os.utime(new.path + ending, ns=(0, NOON * 10**9 + number + 1))
                    os.replace(new.path + ending, f"{self.directory.path}/changes.xml{ending}")
                self.assertEqual((await self.ask(LIST, sent)).status, 200)
                self.put(LIST)

    async def test_if_modified_since(self) -> None:
        self.put(LIST)
        answer = await self.ask(LIST, {"If-Modified-Since": NOON_DATE})
        self.assertEqual((answer.status, answer.body), (304, b""))

    async def test_a_change_in_the_second_that_is_asked_for_is_one(self) -> None:
        """Times of HTTP have whole seconds: what is newer by less must not go unseen."""
        path = self.put(LIST)
        os.utime(path.path, ns=(0, NOON * 10**9 + 1))
        answer = await self.ask(LIST, {"If-Modified-Since": NOON_DATE})
        self.assertEqual((answer.status, answer.body), (200, CONTENT))
        sent = {"If-Modified-Since": answer.headers["last-modified"]}
        self.assertEqual((await self.ask(LIST, sent)).status, 304)

    async def test_a_list_that_changed_after_the_clock_was_set_back_is_sent(self) -> None:
        """Crawlers that send no ETag still have a date that is in the future now."""
        self.put(LIST)
        self.clock.set_wall(-3600)
        path = self.put(LIST)
        os.utime(path.path, (NOON - 3550, NOON - 3550))
        answer = await self.ask(LIST, {"If-Modified-Since": NOON_DATE})
        self.assertEqual((answer.status, answer.body), (200, CONTENT))
        sent = {"If-Modified-Since": answer.headers["last-modified"]}
        self.assertEqual((await self.ask(LIST, sent)).status, 304)

    # HEAD and ranges

    async def test_head(self) -> None:
        self.put(LIST)
        got = await self.ask(LIST)
        answer = await self.ask(LIST, {"Range": "bytes=0-9"}, method="HEAD")
        self.assertEqual((answer.status, answer.body), (200, b""))
        self.assertEqual(answer.headers["content-length"], str(len(CONTENT)))
        for name in ("content-type", "etag", "last-modified", "cache-control"):
            self.assertEqual(answer.headers[name], got.headers[name])

    async def test_a_range(self) -> None:
        self.put(LIST)
        etag = (await self.ask(LIST)).headers["etag"]
        for more in ({}, {"If-Range": etag}):
            answer = await self.ask(LIST, {"Range": "bytes=10-19", **more})
            self.assertEqual((answer.status, answer.body), (206, CONTENT[10:20]))
            self.assertEqual(answer.headers["content-range"], f"bytes 10-19/{len(CONTENT)}")
        beyond = await self.ask(LIST, {"Range": f"bytes={len(CONTENT)}-"})
        self.assertEqual(beyond.status, 416)
        self.assertEqual(beyond.headers["content-range"], f"bytes */{len(CONTENT)}")

    # what is not there

    async def test_nothing_else_is_served(self) -> None:
        self.put(ARCHIVE)
        self.put(LIST).siblingExtension(".part").setContent(b"half")
        self.put(f"/x{ARCHIVE}")
        outside = self.directory.sibling("outside.xml")
        outside.setContent(b"secret")
        for path in (
            *("/", "/other.xml", "/changes.xml.gz", "/changes.xml.part"),
            *("/2026", "/2026/", "/2026/09/29/", f"/x{ARCHIVE}", f"/{ARCHIVE}", f"{ARCHIVE}/"),
            *(f"{ARCHIVE}.gz", f"{ARCHIVE}.part", f"{ARCHIVE}%0a", "/2026/09/29/12%2exml"),
            *("/2026%2f09%2f29%2f12.xml", "/..%2foutside.xml", "/%2e%2e/outside.xml"),
            *("/2026/%2e%2e/%2e%2e/x", "/2026/../../outside.xml", "/2026/..%2f..%2f/outside.xml"),
            *("/2026/09/29/..%2f12.xml", "/%d9%a2%d9%a0%d9%a2%d9%a6/09/29/12.xml"),
        ):
            answer = await self.ask(path)
            self.assertEqual(answer.status, 404, path)
            self.assertEqual(answer.headers["content-type"], "text/plain; charset=utf-8")
            self.assertNotIn(b"weblog", answer.body)
            self.assertNotIn(b"secret", answer.body)


class TopicTests(ChangeListsTestCase):
    """The Link header of change lists, if the broker is a hub."""

    has_hub = True

    async def test_hub_and_self(self) -> None:
        for path in KINDS:
            self.put(path)
            for method in ("GET", "HEAD"):
                answer = await self.ask(f"{path}?x", method=method)
                self.assertEqual(
                    answer.headers["link"],
                    '<http://broker.example/websub>; rel="hub", '
                    f'<http://broker.example{path}>; rel="self"',
                )


class CopiedFileTests(ChangeListsTestCase):
    """Files that another node has made, and that this one lacks."""

    has_hub = True

    async def test_copied_when_it_is_asked_for(self) -> None:
        self.stored = {"/changes.xml": None, ARCHIVE: None}
        for path in self.stored:
            answer = await self.ask(path)
            self.assertEqual((answer.status, answer.body), (200, CONTENT))
            self.assertIn(f"<http://broker.example{path}>", answer.headers["link"])
            again = await self.ask(path, {"if-none-match": answer.headers["etag"]})
            self.assertEqual(again.status, 304)
        self.assertEqual(self.copied, [*self.stored])

    async def test_nobody_has_it(self) -> None:
        """What does not exist cannot be subscribed to, and what is not made yet can be."""
        for path, status, text in (
            ("/changes.xml", 503, b"not been made yet"),
            ("/shortChanges.xml", 503, b"not been made yet"),
            (ARCHIVE, 404, b"no archive of that hour"),
        ):
            answer = await self.ask(path)
            self.assertEqual(answer.status, status)
            self.assertEqual(answer.headers["content-type"], "text/plain; charset=utf-8")
            self.assertEqual(answer.headers.get("retry-after"), "60" if status == 503 else None)
            self.assertEqual("link" in answer.headers, status == 503)
            self.assertIn(text, answer.body)
            head = await self.ask(path, method="HEAD")
            self.assertEqual((head.status, head.body), (status, b""))

    async def test_head_of_a_file_that_is_copied(self) -> None:
        self.stored = {ARCHIVE: None}
        head = await self.ask(ARCHIVE, method="HEAD")
        length = head.headers["content-length"]
        self.assertEqual((head.status, head.body, length), (200, b"", str(len(CONTENT))))

    async def test_other_paths_are_not_looked_up(self) -> None:
        await self.ask("/2026/09/29/../12.xml")
        await self.ask("/broker.sqlite")
        self.assertEqual(self.copied, [])

    async def test_it_cannot_be_copied(self) -> None:
        for failure in (Unavailable("the server is down"), OSError(28, "No space left on device")):
            self.stored = {ARCHIVE: failure}
            answer = await self.ask(ARCHIVE)
            self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "30"))
            self.assertIn(b"try again", answer.body)
