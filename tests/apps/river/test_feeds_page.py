"""The reading list /river/feeds: what it shows, and what its forms do."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.river.model import ImportedFeeds, InvalidFeed
from rsscloud_broker.apps.river.opml import MAX_BYTES, read_list
from rsscloud_broker.errors import TooMany
from rsscloud_broker.wire.times import iso_time
from tests.apps.river.page_site import RiverSite, feed
from tests.web.accounts_site import Browser
from tests.web.file_form import MULTIPART, Part, multipart

DAVE = 1
OPML = b"<opml version='2.0'/>"


class FeedsCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.site = RiverSite(self)
        self.river = self.site.river
        self.dave = self.site.browser()

    def rows(self) -> list[str]:
        self.assertEqual(self.dave.get("/river/feeds").status, 200)
        rows = self.dave.page.xpath("//main//li")
        return [" ".join(each.text_content().split()) for each in rows]

    def upload(self, csrf: str, *parts: Part) -> Any:
        """Send the form for imports as browsers do."""
        body = multipart(("csrf", csrf), ("do", "import"), *parts)
        return self.dave.ask("POST", "/river/feeds", body, {"Content-Type": MULTIPART})

    def csrf(self) -> str:
        self.dave.get("/river/feeds")
        return str(self.dave.page.xpath("string(//main//input[@name='csrf']/@value)"))

    def send(self, button: str, **fields: Any) -> Any:
        """Send a form of the page."""
        self.dave.get("/river/feeds")
        return self.dave.send(button, **fields)


class ListTests(FeedsCase):
    def test_who_has_not_signed_in_is_led_to_the_form(self) -> None:
        stranger = Browser(self.site)
        for answer in (stranger.get("/river/feeds"), stranger.post("/river/feeds", {"do": "x"})):
            self.assertEqual(answer.status, 303)
            self.assertEqual(answer.headers["location"], "/signin?next=/river/feeds")

    def test_how_each_feed_is_followed(self) -> None:
        now = self.site.clock.wall_seconds()
        renewal = iso_time(now + 3 * 86_400 + 10)
        status = f"notified by the hub h.example; next renewal {renewal}; 2 of 3 were pushed"
        more = {"hub": "https://h.example/x", "verified_at": now - 7200, "status": status}
        self.river.follow(DAVE, feed(1, "First", how="websub", **more))
        self.river.follow(DAVE, feed(2, "Second", how="rsscloud"))
        self.river.follow(DAVE, feed(3, "Third", how="own"))
        self.river.follow(DAVE, feed(4, "Fourth"))
        by_title = {row.split()[0]: row for row in self.rows()}
        for title, words in (
            ("First", "pushed by h.example"),
            ("First", "Notified by the hub h.example; next renewal in 3 days; 2 of 3 were"),
            ("First", "Last confirmed 2 hours ago."),
            ("Second", "pushed by rssCloud"),
            ("Third", "at this broker"),
            ("Fourth", "polled"),
        ):
            self.assertIn(words, by_title[title])

    def test_strangers_write_nothing_but_text(self) -> None:
        bad = "<script>x()</script> 2026-99-99T99:99:99Z"
        self.river.follow(DAVE, feed(1, bad, link="javascript:x()", status=bad))
        self.assertIn(bad, self.rows()[0])
        active = self.dave.page.xpath("//main//script | //a[contains(@href, 'script:')]")
        self.assertEqual(active, [])


class FormTests(FeedsCase):
    def test_follow(self) -> None:
        """The form may be sent twice."""
        for said in ("now", "already"):
            self.assertEqual(self.send("Follow", url=" site.example ").status, 200)
            self.assertEqual(self.dave.said(), f"You follow Feed of site.example {said}.")
            self.assertEqual(len(self.rows()), 1)
        self.assertEqual(self.river.documents, [b"site.example 192.0.2.7"] * 2)

    def test_mute(self) -> None:
        self.river.follow(DAVE, feed(7, "First"))
        self.dave.get("/river/feeds")
        for word, said in (("Mute", "does not show"), ("Unmute", "shows")):
            fields = {"csrf": self.csrf(), "do": word.lower(), "id": "7"}
            self.assertEqual(self.dave.post("/river/feeds", fields).status, 200)
            self.assertEqual(self.dave.said(), f"Your river {said} the items of this feed now.")
            is_muted = word == "Mute"
            self.assertEqual("1 muted" in self.dave.page.text_content(), is_muted)
            labels = self.dave.page.xpath("//ul[@id='feeds']//button/@aria-label")
            other = "Unmute" if is_muted else "Mute"
            self.assertEqual(labels, [f"{other} First", "Unfollow First"])
        self.assertEqual(self.dave.post("/river/feeds", fields | {"id": "8"}).status, 400)

    def test_progress_of_an_import(self) -> None:
        """It is shown until each feed has been fetched."""
        self.river.follow(DAVE, feed(1, "First"))
        self.river.follow(DAVE, feed(2, "Second", how="websub", is_waiting=True))
        self.dave.get("/river/feeds")
        (bar,) = self.dave.page.xpath("//progress")
        self.assertEqual((bar.get("value"), bar.get("max")), ("1", "2"))
        self.assertIn("1 of 2 feeds is fetched.", self.dave.page.text_content())
        self.assertIn("1 pushed by a hub, 1 polled.", self.dave.page.text_content())
        self.assertEqual(self.dave.page.xpath("//main//script/@src"), ["/river/feeds.js"])
        self.river.follow(DAVE, feed(2, "Second"))
        self.dave.get("/river/feeds")
        self.assertEqual(self.dave.page.xpath("//progress | //main//script"), [])

    def test_what_cannot_be_followed(self) -> None:
        for error, status in (
            (InvalidFeed("there is no feed at this page"), 400),
            (TooMany("you asked too often", 60), 429),
        ):
            self.river.refusal = error
            answer = self.send("Follow", url="http://site.example/")
            self.assertEqual(answer.status, status)
            text = str(error)
            self.assertIn(f"{text[0].upper()}{text[1:]}", self.dave.said())
            typed = self.dave.page.xpath("string(//input[@name='url']/@value)")
            self.assertEqual(typed, "http://site.example/")

    def test_unfollow(self) -> None:
        self.river.follow(DAVE, feed(7, "First"))
        fields = {"csrf": self.csrf(), "do": "unsubscribe", "id": "7"}
        self.assertEqual(self.dave.post("/river/feeds", fields).status, 200)
        self.assertEqual(self.river.lists[DAVE], {})
        for key in ("7", "x", "9" * 40):
            answer = self.dave.post("/river/feeds", fields | {"id": key})
            self.assertEqual(answer.status, 400)
            self.assertIn("You do not follow this feed", self.dave.said())

    def test_share(self) -> None:
        self.dave.get("/river/feeds")
        address = "https://broker.example/river/river.js?account=dave"
        self.assertNotIn(address, self.dave.page.text_content())
        self.dave.send("Share")
        self.assertEqual(self.dave.said(), "Everybody may read your river now.")
        self.assertIn(address, self.dave.page.text_content())
        self.assertEqual(self.river.public, {DAVE})
        self.dave.send("Stop sharing")
        self.assertEqual(self.dave.said(), "Nobody but you may read your river now.")
        self.assertEqual(self.river.public, set())

    def test_forged_and_strange_forms(self) -> None:
        self.river.follow(DAVE, feed(7))
        fields = {"do": "unsubscribe", "id": "7"}
        self.assertEqual(self.dave.post("/river/feeds", fields).status, 403)
        self.assertEqual(self.upload("wrong", ("opml", ("a.opml", OPML))).status, 403)
        csrf = self.csrf()
        self.assertEqual(self.dave.post("/river/feeds", {"csrf": csrf, "do": "x"}).status, 400)
        self.assertIn(7, self.river.lists[DAVE])
        self.assertEqual(self.river.documents, [])


class ImportTests(FeedsCase):
    def test_a_file(self) -> None:
        self.river.imported = ImportedFeeds(3)
        answer = self.upload(self.csrf(), ("opml", ("my.opml", OPML)), ("text", ""))
        self.assertEqual((answer.status, self.river.documents), (200, [OPML]))
        self.assertIn("You follow 3 feeds more now", self.dave.said())

    def test_a_text(self) -> None:
        csrf = self.csrf()
        self.upload(csrf, ("opml", ("", b"")), ("text", OPML.decode()))
        self.dave.post("/river/feeds", {"csrf": csrf, "do": "import", "text": OPML.decode()})
        self.assertEqual(self.river.documents, [OPML, OPML])

    def test_a_text_that_is_refused_comes_back(self) -> None:
        text = '<opnl text="Café">\n</textarea>'
        self.assertEqual(self.upload(self.csrf(), ("text", text)).status, 400)
        self.assertEqual(self.dave.page.xpath("string(//textarea[@name='text'])"), text)

    def test_a_text_that_declares_another_encoding(self) -> None:
        """A browser sends it in UTF-8, and a program the bytes as they are in the file."""
        csrf = self.csrf()
        outline = '<outline text="Café" xmlUrl="http://a.example/"/>'
        text = f'<?xml version="1.0" encoding="ISO-8859-1"?><opml><body>{outline}</body></opml>'
        for each in (text.encode(), text.encode("utf-8-sig"), text.encode("latin-1")):
            fields = {"csrf": csrf, "do": "import", "text": each}
            body = urlencode(fields).encode()
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            self.assertEqual(self.dave.ask("POST", "/river/feeds", body, form).status, 200)
            found = read_list(self.river.documents.pop())
            self.assertEqual(found.feeds, {"http://a.example/": "Café"})

    def test_feeds_that_are_commented_out(self) -> None:
        """OPML 2.0: "if an outline is commented, all subordinate outlines" are as well."""
        blog = '<outline text="{0}" xmlUrl="http://{0}.example/" {1}/>'
        deep = f'<outline text="y">{blog.format("b", "")}</outline>'
        folder = f'<outline text="x" isComment="true">{deep}</outline>'
        feeds = (
            blog.format("a", 'isComment="true"') + folder + blog.format("c", 'isComment="false"')
        )
        found = read_list(f"<opml><body>{feeds}</body></opml>".encode())
        self.assertEqual(found.feeds, {"http://c.example/": "c"})

    def test_what_could_not_be_followed(self) -> None:
        failed = tuple((f"http://{n}.example/<b>", "it is <i>no</i> feed") for n in range(60))
        self.river.imported = ImportedFeeds(0, failed)
        self.upload(self.csrf(), ("opml", ("my.opml", OPML)))
        self.assertIn("60 feeds could not be followed; the first 50 are:", self.dave.said())
        found = self.dave.page.xpath("//*[@role='status']//li")
        self.assertEqual(len(found), 50)
        self.assertEqual(found[0].text_content(), "http://0.example/<b>: it is <i>no</i> feed")

    def test_no_document(self) -> None:
        file: Part = ("opml", ("a.txt", b"x"))
        for parts in ([], [file]):
            self.assertEqual(self.upload(self.csrf(), *parts).status, 400)
            self.assertIn("OPML", self.dave.said("//*[@role='alert']"))

    def test_large_documents(self) -> None:
        large = OPML.ljust(MAX_BYTES)
        self.assertEqual(self.upload(self.csrf(), ("opml", ("a.opml", large))).status, 200)
        too_large = OPML.ljust(MAX_BYTES + 20_000)
        self.assertEqual(self.upload(self.csrf(), ("opml", ("a.opml", too_large))).status, 413)
