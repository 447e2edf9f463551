"""PUT and DELETE of files."""

from __future__ import annotations

from rsscloud_broker.apps.hosting.options import HostingOptions
from rsscloud_broker.interfaces import SignIn
from rsscloud_broker.model.administration import Block
from tests.accounts.fixture import PASSWORD
from tests.apps.hosting.fixture import BASE, PATH, URL, HostingTestCase, a_feed, basic
from tests.front_doors.exchange import Answer


class PutTests(HostingTestCase):
    options = HostingOptions(max_feed_bytes=1100 * 1024, max_account_bytes=3000 * 1024)

    def test_first_and_second(self) -> None:
        answer = self.house.put(a_feed())
        self.assertEqual((answer.status, answer.headers["location"]), (201, URL))
        answer = self.house.put(a_feed("2"))
        self.assertEqual((answer.status, answer.headers["location"], answer.body), (204, URL, b""))
        self.assertNotIn("content-length", answer.headers)
        self.assertEqual(self.house.get().body, a_feed("2"))
        self.assertEqual(len(self.house.pings()), 2)

    def test_by_token(self) -> None:
        """It may come over plain HTTP: it is random and can be removed."""
        bearer = {"Authorization": f"Bearer {self.house.token('publish')}"}
        self.assertEqual(self.house.put(a_feed(), headers=bearer).status, 201)
        self.assertEqual(self.house.delete(headers=bearer), 204)
        answer = self.house.ask("PUT", PATH, b"x", bearer, "198.51.100.9")
        self.assertEqual(answer.status, 422)

    def test_who_does_not_say_who_it_is(self) -> None:
        said = ("", "Basic", "Basic =====", "Basic /w==", "Bearer rsb_unknown", "Digest x")
        wrong = ({"Authorization": each} for each in said)
        for headers in (*wrong, basic(password="wrong"), basic("nobody")):
            for method in ("PUT", "DELETE"):
                answer = self.house.ask(method, PATH, a_feed(), headers)
                self.assertEqual(answer.status, 401, headers)
                self.assertIn("Basic realm=", answer.headers["www-authenticate"])
                self.assertIn("Bearer realm=", answer.headers["www-authenticate"])
        self.assert_nothing_stored()

    def test_a_cookie_is_not_enough(self) -> None:
        """A browser adds it to requests that other sites make it send."""
        signing_in = self.house.accounts.sign_in(SignIn("dave", PASSWORD, "192.0.2.7"))
        signed_in = self.house.result(signing_in)
        cookie = {"Cookie": f"__Host-rsscloud-session={signed_in.secret}", "Authorization": "x"}
        self.assertEqual(self.house.put(a_feed(), headers=cookie).status, 401)
        self.assert_nothing_stored()

    def test_who_may_not(self) -> None:
        metrics = {"Authorization": f"Bearer {self.house.token('metrics')}"}
        for answer, said in (
            (self.house.put(a_feed(), headers=metrics), "needs the scope publish"),
            (self.house.put(a_feed(), "/feeds/anna/rss.xml"), "You are dave"),
            (self.house.put(a_feed(), "/feeds/Dave/rss.xml"), "You are dave"),
            (self.house.ask("DELETE", "/feeds/anna/rss.xml", headers=basic()), "You are dave"),
        ):
            self.assertEqual(answer.status, 403)
            self.assertIn(said, answer.text)
        self.assert_nothing_stored()

    def assert_refused(self, answer: Answer, status: int, said: str) -> None:
        self.assertEqual((answer.status, said in answer.text), (status, True), answer.text)
        self.assertEqual(answer.headers.get_content_type(), "text/plain")

    def test_a_part_is_not_stored_as_the_whole(self) -> None:
        size = len(a_feed())
        part = {"Content-Range": f"bytes 0-{size - 1}/{2 * size}"}
        self.assert_refused(self.house.put(a_feed(), headers=part), 400, "Content-Range")
        self.assert_nothing_stored()

    def test_what_another_program_has_changed_stays(self) -> None:
        """RFC 9110, section 13.1: a request whose condition does not hold changes nothing."""
        for path, first, second in (
            (PATH, a_feed(size=3000), a_feed("2")),
            ("/feeds/dave/notes.txt", b"one", b"two"),
        ):
            anything, nothing = {"If-Match": "*"}, {"If-None-Match": "*"}
            self.assertEqual(self.house.put(first, path, anything).status, 412)
            self.assertEqual(self.house.put(first, path, nothing).status, 201)
            answer = self.house.get(path, Accept_Encoding="gzip")
            etag, date = answer.headers["etag"], answer.headers["last-modified"]
            self.assertEqual(self.house.put(first, path, {"If-Match": f'"x", {etag}'}).status, 204)
            self.house.clock.advance(5)
            self.assertEqual(self.house.put(second, path).status, 204)
            for known in (nothing, {"If-Match": etag}, {"If-Unmodified-Since": date}):
                self.assert_refused(self.house.put(first, path, known), 412, "Read it again")
                self.assertEqual(self.house.delete(path, known), 412)
            answer = self.house.get(path)
            self.assertEqual(answer.body, second)
            self.assertEqual(self.house.delete(path, {"If-Match": answer.headers["etag"]}), 204)

    def test_what_is_not_stored(self) -> None:
        self.assert_refused(self.house.put(b"<html/>"), 422, "neither RSS nor Atom")
        html = {"Content-Type": "text/html"}
        self.assert_refused(self.house.put(a_feed(), headers=html), 415, "text/html")
        self.assert_refused(self.house.put(b"<svg/>", "/feeds/dave/x.svg"), 415, ".rss")
        for path in ("../x.xml", "%2e%2e/x.xml"):
            answer = self.house.put(a_feed(), f"/feeds/dave/{path}")
            self.assertIn(answer.status, (400, 403), path)
        self.assert_nothing_stored()

    def test_full_account(self) -> None:
        for path in ("a.xml", "b.xml"):
            answer = self.house.put(a_feed(size=1_090_000), f"/feeds/dave/{path}")
            self.assertEqual(answer.status, 201)
        answer = self.house.put(a_feed(size=1_090_000))
        self.assert_refused(answer, 507, "Delete some first")

    def test_files_in_directories(self) -> None:
        path = "/feeds/dave/2026/11/log.txt"
        self.assertEqual(self.house.put(b"hello", path).status, 201)
        answer = self.house.get(path)
        self.assertEqual(answer.body, b"hello")
        self.assertEqual(answer.headers["content-type"], "text/plain; charset=utf-8")
        self.assertEqual(self.house.pings(), [])

    def test_files_that_are_no_topics_when_nothing_is_published(self) -> None:
        """A full disk and what administrators have blocked keep them out as well."""
        path, body = "/feeds/dave/notes.txt", b"spam"
        self.house.space.full = True
        self.assertEqual(self.house.put(body, path).status, 503)
        self.house.space.full = False
        for kind, blocked in (("topic", f"{BASE}/dave/*"), ("source", "192.0.2.7")):
            self.house.blocks.change([Block(kind, blocked, "spam", "alice", 1.0)])
            self.assertEqual(self.house.put(body, path).status, 403)
        self.house.blocks.change([])
        self.assertEqual(self.house.get(path).status, 404)
        self.assertEqual(self.house.put(body, path).status, 201)

    def test_delete(self) -> None:
        self.house.put(a_feed())
        self.house.subscribe()
        self.assertEqual(self.house.delete(), 204)
        self.assertEqual(self.house.delete(), 404)
        self.assertEqual(self.ended(), "its author has deleted it")
        self.assertEqual([walk.topic for walk in self.house.walks()], [URL])
        self.house.put(a_feed())
        self.assertEqual(self.ended(), "")

    def ended(self) -> str:
        topic = self.successResultOf(self.house.broker_store.topic(URL))
        assert topic is not None
        return topic.ended
