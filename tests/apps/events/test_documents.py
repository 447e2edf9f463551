"""The documents, how they are cached, what bad requests are answered, and the page."""

from __future__ import annotations

import os
from errno import ENOSPC
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.util.atomic_files import publish_file
from tests.apps.events.house import EventsHouse

RECENT, FIRST, SECOND = "/events/pings/recent", *(f"/events/pings/documents/{n}" for n in (1, 2))
HOST = "/events/host?name=feeds.example"


class DocumentTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = EventsHouse(self)
        self.house.ping("a", "b", "c", "d")
        self.house.start()

    def change(self, times: int) -> None:
        """Have a topic change."""
        for _ in range(times):
            self.house.change()
        self.house.wait()

    def files(self) -> list[Any]:
        """The files of the first documents."""
        return [each for each in self.house.directory.walk() if each.basename() == "1.atom"]

    def test_links(self) -> None:
        self.change(1)
        names = ("self", "via", "current", "prev-archive", "next-archive")
        for path, relations in (
            (RECENT, {"self": RECENT, "via": SECOND, "prev-archive": FIRST}),
            (FIRST, {"self": FIRST, "current": RECENT, "next-archive": SECOND}),
            (HOST, {"self": HOST, "via": f"{HOST}&document=1"}),
        ):
            found = {name: self.house.link(path, name) for name in names}
            self.assertEqual({name: found[name] for name in names if found[name]}, relations)

    def test_headers(self) -> None:
        recent, first = self.house.ask(RECENT), self.house.ask(FIRST)
        for answer in (recent, first):
            self.assertEqual(answer.headers.get_content_type(), "application/atom+xml")
            self.assertEqual(answer.headers["Vary"], "Accept, Accept-Encoding")
            self.assertEqual(answer.headers["Access-Control-Allow-Origin"], "*")
        self.assertEqual(recent.headers["Cache-Control"], "public, max-age=5")
        self.assertEqual(first.headers["Cache-Control"], "public, max-age=31536000, immutable")
        self.assertIn('rel="hub"', recent.headers["Link"])
        self.assertIn(f'<http://broker.example{RECENT}>; rel="self"', recent.headers["Link"])
        self.assertNotIn("Link", first.headers)
        self.change(4)
        may_be_made_again = self.house.ask(f"{HOST}&document=1")
        self.assertEqual(may_be_made_again.headers["Cache-Control"], "public, max-age=3600")

    def test_clients_that_have_it(self) -> None:
        self.house.wait(2)
        for path in (RECENT, FIRST):
            answer = self.house.ask(path)
            known = {"If-None-Match": answer.headers["ETag"]}
            again = self.house.ask(path, known)
            self.assertEqual((again.status, again.body), (304, b""))
            self.assertEqual(again.headers["ETag"], answer.headers["ETag"])
        date = self.house.ask(FIRST).headers["Last-Modified"]
        self.assertEqual(self.house.ask(FIRST, {"If-Modified-Since": date}).status, 304)

    def test_change_in_the_same_second_is_another_version(self) -> None:
        self.house.wait(2)
        self.house.ping("later")
        self.house.wait()
        self.assertNotIn("Last-Modified", self.house.ask(RECENT).headers)
        self.house.wait(2)
        date = self.house.ask(RECENT).headers["Last-Modified"]
        self.assertEqual(self.house.ask(RECENT, {"If-Modified-Since": date}).status, 304)
        self.house.ping("e")
        self.house.wait()
        self.assertEqual(self.house.ask(RECENT, {"If-Modified-Since": date}).status, 200)

    def test_late_entry_is_another_version(self) -> None:
        """It has the time of the one before: its ping came from elsewhere, or a fetch was slow."""
        house, now = self.house, self.house.clock.wall_seconds()
        house.ping("e", at=now + 1)
        house.wait(60)
        known = house.ask(RECENT).headers
        self.assertEqual(house.titles(RECENT), ["d", "e"])
        house.ping("late", at=now)
        house.wait(60)
        date = {"If-Modified-Since": known["Last-Modified"]}
        self.assertEqual(house.ask(RECENT, date).status, 200)
        self.assertNotIn("Last-Modified", house.ask(RECENT).headers)
        self.assertEqual(house.titles(RECENT), ["d", "e", "late"])

    def test_archived_document_is_another_version(self) -> None:
        """Who has read it before gets it again, with its link to the next document."""
        house = self.house
        for name in ("e", "f"):
            house.wait(2)
            house.ping(name)
            house.wait(2)
        date = {"If-Modified-Since": house.ask(SECOND).headers["Last-Modified"]}
        self.assertEqual(house.ask(SECOND, date).status, 304)
        house.ping("g")
        house.wait(2)
        self.assertEqual(house.ask(SECOND, date).status, 200)
        self.assertEqual(house.link(SECOND, "next-archive"), "/events/pings/documents/3")

    def test_recent_document_that_changes_while_it_is_read_is_read_anew(self) -> None:
        gate: Deferred[None] = Deferred()

        async def slow(function: Any, *args: Any) -> Any:
            await gate
            return function(*args)

        documents = self.house.door._documents
        self.patch(documents, "_parts", evolve(documents._parts, in_thread=slow))
        exchange = self.house.begin(RECENT)
        self.house.ping("e")
        self.house.wait()
        gate.callback(None)
        self.assertEqual(exchange.answer("GET").status, 200)
        self.assertEqual(self.house.titles(RECENT), ["d", "e"])

    def test_archived_document_with_the_links_of_a_former_public_url_is_made_again(self) -> None:
        self.change(4)
        for path in (FIRST, f"{HOST}&document=1"):
            body = self.house.ask(path).body
            for file in self.files():
                publish_file(file, file.getContent().replace(b"broker.example", b"localhost"))
            self.house.new_door()
            self.assertEqual(self.house.ask(path).body, body)

    def test_archived_document_that_is_another_one_has_another_etag(self) -> None:
        """The database may have been restored, and the document have got other entries."""
        known = {"If-None-Match": self.house.ask(FIRST).headers["ETag"]}
        (file,) = self.files()
        publish_file(file, file.getContent().replace(b"<title>a<", b"<title>z<"))
        self.house.new_door()
        self.assertEqual(self.house.ask(FIRST, known).status, 200)
        self.assertEqual(self.house.titles(FIRST), ["z", "b", "c"])

    def test_full_disk(self) -> None:
        def full(_: int) -> None:
            raise OSError(ENOSPC, "No space left on device")

        self.patch(os, "fsync", full)
        with capturedLogs() as logs:
            answer = self.house.ask(FIRST)
        self.assertEqual((answer.status, answer.headers["Retry-After"]), (503, "30"))
        self.assertEqual([line for line in logs if "log_failure" in line], [])

    def test_process_that_did_not_cut_serves_the_same(self) -> None:
        body = self.house.ask(RECENT).body
        self.house.stop()
        self.house.new_door()
        self.assertEqual(self.house.ask(RECENT).body, body)

    def test_before_the_feed_is_made(self) -> None:
        answer = EventsHouse(self).ask(RECENT)
        self.assertEqual((answer.status, answer.headers["Retry-After"]), (503, "5"))
        self.assertIn("come again", answer.text)
        self.assertEqual(EventsHouse(self).ask(FIRST).status, 404)


class BadRequestTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = EventsHouse(self)
        self.house.change()
        self.house.start()

    def check(self, path: str, status: int, *words: str) -> None:
        answer = self.house.ask(path)
        self.assertEqual(answer.status, status, path)
        self.assertEqual(answer.headers.get_content_type(), "text/plain")
        for word in words:
            self.assertIn(word, answer.text)

    def test_numbers(self) -> None:
        for number in ("0", "-1", "abc", "01", "", "1/2", "%00", "9" * 30):
            self.check(f"/events/documents/{number}", 404, "1, 2, 3")
        self.check("/events/documents/99999999", 404, "no document 99999999 yet", "/events/recent")
        self.check(f"{HOST}&document=0", 404, "1, 2, 3")
        self.check(f"{HOST}&document=7", 404, "no document 7 yet")

    def test_topics(self) -> None:
        self.check("/events/topic", 400, "Say which topic", "?url=http")
        self.check("/events/topic?url=", 400, "Say which topic")
        long = f"http://a/{'x' * 2000}"
        for url in ("nope", "ftp://a.example/", "http://", "http://%5Bx", "http://a/%0A", long):
            self.check(f"/events/topic?url={url}", 400, "is not the URL of a topic")
        self.check("/events/topic?url=http://never.example/x", 404, "keeps no history of")

    def test_hosts(self) -> None:
        self.check("/events/host", 400, "Say which host")
        long = "x" * 300
        for name in ("a%20b", "%3Cx%3E", "a/b", "%00", "a%0D%0AX:%20y", "@evil", long, "[]", "%FF"):
            self.check(f"/events/host?name={name}", 400, "not the name of a host")
        self.check("/events/host?name=b%C3%BCcher.example", 404, "xn--bcher-kva.example")
        self.check("/events/host?name=::1", 404, "::1")
        for name in ("FEEDS.example", "feeds.example."):
            titles = self.house.titles(f"/events/host?name={name}")
            self.assertEqual(titles, self.house.titles(HOST))

    def test_other_methods_and_paths(self) -> None:
        self.assertEqual(self.house.ask("/events/recent", method="POST").status, 405)
        self.assertEqual(self.house.ask("/events/nothing").status, 404)


class PageTests(SynchronousTestCase):
    def test_it_lists_the_feeds_with_how_much_is_in_them(self) -> None:
        house = EventsHouse(self)
        for word in ("made now", 'action="/events/host"'):
            self.assertIn(word, house.ask("/events").text)
        house.ping("a", "b")
        house.change()
        house.start()
        text = house.ask("/events").text
        for word in ("2 entries so far", "1 entry so far", 'href="/events/pings/recent"'):
            self.assertIn(word, text)
