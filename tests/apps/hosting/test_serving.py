"""GET and HEAD of stored files, and that none is ever older than the last save."""

from __future__ import annotations

import gzip
from functools import partial
from typing import Any, cast

from twisted.internet.defer import Deferred

from rsscloud_broker.apps.hosting.app import make_hosting
from rsscloud_broker.apps.hosting.hosting import HostingStore
from rsscloud_broker.apps.hosting.options import HostingOptions
from rsscloud_broker.apps.hosting.rows import StoredFile, remove
from rsscloud_broker.apps.hosting.saving import Save
from rsscloud_broker.testing import FakeJobs
from rsscloud_broker.util.caches import ByteLimitedCache
from tests.apps.hosting.fixture import (
    BASE,
    PATH,
    URL,
    HostingHouse,
    HostingTestCase,
    a_feed,
    make_document,
)

LARGE = a_feed(size=5000)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
LINK = f'<https://broker.example/websub>; rel="hub", <{URL}>; rel="self"'


class ServingTests(HostingTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.assertEqual(self.house.put(LARGE).status, 201)

    def test_headers(self) -> None:
        answer = self.house.get()
        self.assertEqual((answer.status, answer.body), (200, LARGE))
        for name, value in (
            ("content-type", "application/rss+xml; charset=utf-8"),
            ("content-length", str(len(LARGE))),
            ("link", LINK),
            ("x-content-type-options", "nosniff"),
            ("vary", "Accept, Accept-Encoding"),
            ("cache-control", "public, max-age=0, must-revalidate"),
            ("last-modified", "Sun, 09 Sep 2001 01:46:40 GMT"),
            ("access-control-allow-origin", "*"),
        ):
            self.assertEqual(answer.headers[name], value)
        self.assertIn("sandbox", answer.headers["content-security-policy"])
        head = self.house.ask("HEAD", PATH)
        self.assertEqual((head.status, head.body), (200, b""))
        for name in ("content-length", "etag"):
            self.assertEqual(head.headers[name], answer.headers[name])

    def test_browsers_show_a_feed_by_the_style_sheet(self) -> None:
        plain = self.house.get().headers
        answer = self.house.get(Accept=BROWSER, Accept_Encoding="gzip")
        declaration, _, rest = LARGE.partition(b"?>")
        instruction = b'<?xml-stylesheet type="text/css" href="/changes.css"?>'
        self.assertEqual(answer.body, declaration + b"?>" + instruction + rest)
        headers = answer.headers
        self.assertEqual(headers["content-type"], "application/xml; charset=utf-8")
        for name in ("vary", "last-modified"):
            self.assertEqual(headers[name], plain[name])
        self.assertNotEqual(headers["etag"], plain["etag"])
        policy = "style-src 'self'; default-src 'none'; sandbox; frame-ancestors 'none'"
        self.assertEqual(headers["content-security-policy"], policy)
        for tag, status in ((headers["etag"], 304), (plain["etag"], 200)):
            self.assertEqual(self.house.get(Accept=BROWSER, If_None_Match=tag).status, status)
            self.assertEqual(self.house.get(If_None_Match=tag).status, 504 - status)
        head = self.house.ask("HEAD", PATH, headers={"Accept": BROWSER})
        self.assertEqual(head.headers["content-length"], str(len(answer.body)))

    def test_where_the_style_sheet_is_named(self) -> None:
        rss = b"<rss><channel/></rss>"
        declared = b"<?xml version='1.0'?>"
        for head, rest in (
            (declared, rss),
            (b"\xef\xbb\xbf" + declared, b"<!-- one --><!DOCTYPE rss>" + rss),
            (b"\xef\xbb\xbf", rss),
            (b"", b"<?a b?>" + rss),
            (b"", b"\n" + rss),
            (b"<?xml version='1.0' encoding='iso-8859-1'?>", b"<rss><channel>\xfc</channel></rss>"),
        ):
            self.assertIn(self.house.put(head + rest).status, (201, 204))
            shown = self.house.get(Accept=BROWSER).body
            added = shown.removeprefix(head).removesuffix(rest)
            self.assertEqual(shown, head + added + rest)
            self.assertTrue(added.startswith(b"<?xml-stylesheet "), shown)

    def test_what_browsers_get_as_it_is(self) -> None:
        """What names a style sheet, in UTF-16, or no feed."""
        own = b'<?xml-stylesheet href="/mine.xsl"?>' + a_feed().partition(b"?>")[2]
        utf16 = "<?xml version='1.0' encoding='utf-16'?><rss><channel/></rss>".encode("utf-16")
        others = {"a.xml": own, "b.xml": utf16, "c.opml": b"<opml/>", "d.txt": b"<a"}
        for name, body in others.items():
            path = f"/feeds/dave/{name}"
            self.assertEqual(self.house.put(body, path).status, 201)
            answer = self.house.get(path, Accept=BROWSER)
            self.assertEqual((answer.body, answer.headers["vary"]), (body, "Accept-Encoding"))
            tag = self.house.get(path).headers["etag"]
            self.assertEqual(answer.headers["etag"], tag)

    def test_gzip(self) -> None:
        answer = self.house.get(Accept_Encoding="br, gzip")
        self.assertEqual(answer.headers["content-encoding"], "gzip")
        self.assertEqual(gzip.decompress(answer.body), LARGE)
        self.assertEqual(self.house.get(Accept_Encoding="gzip;q=0").body, LARGE)

    def test_conditional_requests(self) -> None:
        plain = self.house.get().headers
        packed = self.house.get(Accept_Encoding="gzip").headers
        since = {"If_Modified_Since": plain["last-modified"]}
        for headers, status in (
            ({"If_None_Match": plain["etag"]}, 304),
            ({"If_None_Match": packed["etag"]}, 200),
            ({"If_None_Match": packed["etag"], "Accept_Encoding": "gzip"}, 304),
            ({"If_None_Match": '"x"', **since}, 200),
            (since, 304),
            ({"If_Modified_Since": "Sun, 09 Sep 2001 01:46:39 GMT"}, 200),
        ):
            answer = self.house.get(**headers)
            self.assertEqual(answer.status, status, headers)
            self.assertEqual(answer.body, LARGE if status == 200 else b"", headers)
            if status == 304:
                for name in ("etag", "vary", "cache-control"):
                    self.assertIn(name, answer.headers)
        self.house.put(a_feed("2"))
        self.assertEqual(self.house.get(If_None_Match=plain["etag"]).status, 200)
        self.assertEqual(self.house.get(**since).status, 200)
        self.assertNotIn("last-modified", self.house.get().headers)  # it is in the future
        self.assertEqual(self.house.delete(), 204)
        answer = self.house.get()
        self.assertEqual(answer.status, 410)
        self.assertIn("its author has deleted it", answer.text)
        self.house.put(a_feed("3"))
        self.assertEqual(self.house.get(**since).body, a_feed("3"))

    def test_what_is_not_there(self) -> None:
        for path in ("nobody/rss.xml", "dave/x.xml", "dave", "dave/", "dave/../dave/rss.xml",
                     "dave/rss.xml/", "dave/rss.xml%00"):  # fmt: skip
            self.assertEqual(self.house.get(f"/feeds/{path}").status, 404, path)
        allowed = self.house.ask("OPTIONS", PATH).headers["allow"]
        self.assertEqual(allowed, "DELETE, GET, HEAD, OPTIONS, PUT")

    # topics

    def read(self, url: str) -> Any:
        (topics,) = self.house.app.topics
        self.assertTrue(url.startswith(topics.prefix))
        return self.house.result(topics.read(url))

    def test_topics_are_read_from_the_store(self) -> None:
        content = self.read(URL)
        self.assertEqual(content.body, LARGE)
        self.assertEqual(content.content_type, "application/rss+xml; charset=utf-8")
        self.house.put(b"hello", "/feeds/dave/hello.txt")
        for url in (f"{BASE}/dave/hello.txt", f"{BASE}/dave/none.xml", f"{BASE}/x", f"{BASE}/"):
            self.assertIsNone(self.read(url))
        self.house.delete()
        self.assertIsNone(self.read(URL))

    def test_link_only_if_there_is_a_hub(self) -> None:
        house = HostingHouse(self, has_hub=False)
        house.put(LARGE)
        self.assertNotIn("link", house.get().headers)
        self.house.put(b"hello", "/feeds/dave/hello.txt")
        self.assertNotIn("link", self.house.get("/feeds/dave/hello.txt").headers)


class CacheTests(HostingTestCase):
    """What is in memory."""

    def setUp(self) -> None:
        super().setUp()
        self.reads: list[tuple[Any, ...]] = []
        self.held: list[Deferred[None]] | None = None
        files: Any = next(iter(self.house.app.front_doors))
        self.cache = files.routes()[0].resource._cache
        present = self.cache._present

        def read(*arguments: Any) -> Deferred[StoredFile | None]:
            self.reads.append(arguments)
            result: Deferred[StoredFile | None] = present(*arguments)
            if self.held is None:
                return result
            gate: Deferred[None] = Deferred()
            self.held.append(gate)
            return gate.addCallback(lambda _: result)

        self.cache._present = read

    def test_compared_with_the_store_after_a_second(self) -> None:
        self.house.put(LARGE)
        for _ in range(3):
            self.assertEqual(self.house.get().body, LARGE)
        self.assertEqual(len(self.reads), 1)
        self.house.clock.advance(1)
        self.assertEqual(self.house.get().body, LARGE)
        self.assertEqual([known > 0 for _, _, known in self.reads], [False, True])
        self.house.get()
        self.assertEqual(len(self.reads), 2)

    def save_elsewhere(self) -> None:
        """Have another process save a feed in place of the one that was read here."""
        self.house.put(LARGE)
        self.house.get()
        account, document = self.house.caller().account, make_document("rss.xml", a_feed("2"))
        wanted = Save(account, "rss.xml", document, 2000.0, 9999)
        self.successResultOf(HostingStore(self.house.app_parts.database).save(wanted))

    def test_save_of_another_process_is_seen_after_a_second(self) -> None:
        self.save_elsewhere()
        self.assertEqual(self.house.get().body, LARGE)
        self.house.clock.advance(1)
        self.assertEqual(self.house.get().body, a_feed("2"))
        removing = partial(remove, account="dave", path="rss.xml")
        removed = cast("Deferred[bool]", self.house.app_parts.database.write(removing))
        self.assertTrue(self.successResultOf(removed))
        self.house.clock.advance(1)
        self.assertEqual(self.house.get().status, 410)

    def test_save_of_another_node_is_seen_at_once(self) -> None:
        """Whom that node notifies reads the feed at this moment."""
        jobs = self.house.app_parts.jobs
        assert isinstance(jobs, FakeJobs)
        jobs.shares = True
        self.save_elsewhere()
        self.assertEqual(self.house.get().body, a_feed("2"))

    def test_what_was_read_before_a_save_is_not_kept(self) -> None:
        self.house.put(a_feed("old"))
        self.held = []
        early = Deferred.fromCoroutine(self.cache.read(("dave", "rss.xml")))
        self.house.put(a_feed("new"))
        self.held[0].callback(None)
        self.assertEqual(self.successResultOf(early).content.body, a_feed("old"))
        self.held = None
        self.assertEqual(self.house.get().body, a_feed("new"))

    def test_nothing_is_kept_during_a_save(self) -> None:
        self.house.put(a_feed("old"))
        key = ("dave", "rss.xml")
        with self.cache.changing(key), self.cache.changing(key):
            self.assertEqual(self.house.get().body, a_feed("old"))
            self.assertIsNone(self.cache.fresh(key))
        self.assertIsNone(self.cache.fresh(key))
        self.house.get()
        self.assertIsNotNone(self.cache.fresh(key))
        self.assertEqual((dict(self.cache._changing), self.cache._reads), ({}, {}))

    def test_failed_save_changes_nothing(self) -> None:
        self.house.put(a_feed("old"))
        self.house.space.full = True
        self.assertEqual(self.house.put(a_feed("new")).status, 503)
        self.assertEqual(self.house.get().body, a_feed("old"))

    def test_memory_is_limited(self) -> None:
        self.cache._entries = ByteLimitedCache(20_000, 9_000, lambda file: file.answers.size)
        for number in range(9):
            path = f"/feeds/dave/{number}.txt"
            self.house.put(bytes(range(256)) * 20, path)
            self.house.get(path)
        self.assertEqual(len(self.cache._entries), 2)
        self.house.put(bytes(range(256)) * 40, "/feeds/dave/large.txt")
        self.house.get("/feeds/dave/large.txt")
        self.assertIsNone(self.cache.fresh(("dave", "large.txt")))


class BaseTests(HostingTestCase):
    """Feeds at a host of their own, behind a proxy."""

    options = HostingOptions(base_url="https://Static.example/people/")

    def test_urls(self) -> None:
        url = "https://static.example/people/dave/rss.xml"
        self.assertEqual(self.house.put(LARGE).headers["location"], url)
        for path in (PATH, "/people/dave/rss.xml"):
            answer = self.house.get(path)
            self.assertEqual(answer.body, LARGE)
            self.assertIn(f'<{url}>; rel="self"', answer.headers["link"])
        (topics,) = self.house.app.topics
        self.assertEqual(topics.prefix, "https://static.example/people/")
        self.assertEqual(self.house.result(topics.read(url)).body, LARGE)
        answer = self.house.get(Accept=BROWSER)  # the style sheet is at the broker
        sheet = "https://broker.example/changes.css"
        self.assertIn(f'href="{sheet}"'.encode(), answer.body)
        self.assertIn(f"style-src {sheet};", answer.headers["content-security-policy"])

    def test_saving_and_deleting_below_its_path(self) -> None:
        path = "/people/dave/rss.xml"
        self.assertEqual(self.house.put(LARGE, path).status, 201)
        self.assertEqual(self.house.put(a_feed("2"), path).status, 204)
        self.assertEqual(self.house.get(PATH).body, a_feed("2"))
        answer = self.house.put(a_feed(), "/people/anna/rss.xml")
        self.assertEqual(answer.status, 403)
        self.assertIn("save below /people/dave/", answer.text)
        self.assertEqual(self.house.delete(path), 204)
        self.assertEqual(self.house.get(path).status, 410)

    def test_bases_that_cannot_be_used(self) -> None:
        for url in ("static.example", "ftp://x/", "https://", "https://x/?y", "https://x/#y",
                    "https://a@x/", "https://x:0/"):  # fmt: skip
            error = self.assertRaises(ValueError, HostingOptions, base_url=url)
            self.assertIn("'base_url'", str(error))
        own = HostingOptions(base_url="https://broker.example/")
        error = self.assertRaises(ValueError, make_hosting, own, self.house.app_parts)
        self.assertIn("'base_url'", str(error))
