"""The page /river: what it shows, to whom, and what it remembers."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.river import page
from rsscloud_broker.apps.river.model import Item, ItemEnclosure, SubItem
from rsscloud_broker.apps.river.page import ON_PAGE, VISIT
from rsscloud_broker.apps.river.rendering import EXCERPT, LONG
from tests.apps.river.page_site import RiverSite, feed, item
from tests.web.accounts_site import Browser

DAVE = 1


class PageCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.site = RiverSite(self)
        self.river = self.site.river
        self.dave = self.site.browser()
        self.river.follow(DAVE, feed(1, "First", link="http://first.example/"))
        self.river.follow(DAVE, feed(2, "Second"))

    def shown(self, path: str = "/river", **headers: str) -> Any:
        """The page, parsed."""
        answer = self.dave.get(path, **headers)
        self.assertEqual(answer.status, 200, answer.text)
        return self.dave.page

    def ids(self, path: str = "/river") -> list[int]:
        """The ids of the items on the page."""
        found = self.shown(path).xpath("//article/@id")
        return [int(each.removeprefix("item-")) for each in found]

    def one(self, **about: Any) -> Any:
        """The element of the only item."""
        self.river.add(item(1, **about))
        (article,) = self.shown().xpath("//article")
        return article

    def csrf(self) -> str:
        return str(self.shown().xpath("string(//@data-csrf)"))


class PageTests(PageCase):
    def test_who_has_not_signed_in_is_led_to_the_form(self) -> None:
        answer = Browser(self.site).get("/river?before=7")
        self.assertEqual(answer.status, 303)
        self.assertEqual(answer.headers["location"], "/signin?next=/river%3Fbefore%3D7")

    def test_items_newest_first_grouped_as_they_arrived(self) -> None:
        self.river.add(item(1, 1), item(2, 1), item(3, 2), item(4, 1))
        found = self.shown().xpath("//section[@data-feed]")
        groups = [
            (each.xpath("string(h2)"), [*map(str, each.xpath("article/@id"))]) for each in found
        ]
        self.assertEqual(
            groups, [("First", ["item-4"]), ("Second", ["item-3"]), ("First", ["item-2", "item-1"])]
        )
        self.assertEqual(found[0].xpath("string(h2/a/@href)"), "http://first.example/")
        self.assertEqual(found[1].xpath("h2/a"), [])

    def test_an_item(self) -> None:
        article = self.one(title="A title", published_at=1_790_000_000.0)
        for path, text in (
            ("h3/a", "A title"),
            ("h3/a/@href", "http://site.example/1"),
            (".//time", "2026-09-21 14:13"),
            (".//time/@datetime", "2026-09-21T14:13:20Z"),
            ("div/p", "Text 1"),
        ):
            self.assertEqual(article.xpath(f"string({path})"), text)

    def test_an_item_without_a_title_is_linked_by_its_time(self) -> None:
        self.river.add(Item(1, 1, "g", "", "<p>x</p>", "http://site.example/1"))
        (article,) = self.shown().xpath("//article")
        self.assertEqual(article.xpath("h3"), [])
        self.assertEqual(article.xpath("string(p/a/@href)"), "http://site.example/1")

    def test_enclosures(self) -> None:
        files = (
            ("a%20picture.png", "image/png", 1500, "a picture.png (image/png, 1.5 kB)"),
            ("a.mp3", "audio/mpeg", 2_500_000, "a.mp3 (audio/mpeg, 2.5 MB)"),
            ("a.mp4", "video/mp4", None, "a.mp4 (video/mp4)"),
            ("a.pdf", "application/pdf", 12, "a.pdf (application/pdf, 12 bytes)"),
            (f"{'a1' * 32}.png", "image/png", None, "Picture (image/png)"),
        )
        enclosures = [ItemEnclosure(f"http://files.example/{name}", *of) for name, *of, _ in files]
        enclosures.append(ItemEnclosure("javascript:x()", "image/png"))
        article = self.one(enclosures=tuple(enclosures))
        found = [" ".join(each.text_content().split()) for each in article.xpath("figure")]
        self.assertEqual(found, [said for *_, said in files])
        (picture, hashed), (audio,), (video,) = (
            article.xpath(f"figure/{name}") for name in ("img", "audio", "video")
        )
        self.assertEqual((picture.get("alt"), picture.get("loading")), ("a picture.png", "lazy"))
        self.assertEqual(hashed.get("alt"), "Picture")
        for player in audio, video:
            self.assertEqual((player.get("preload"), player.get("controls")), ("none", "controls"))
        self.assertEqual(len(article.xpath("figure//a")), 5)

    def test_items_below_are_folded(self) -> None:
        below = SubItem("Reply", "<b>bold</b>", "http://site.example/r", (SubItem("", "deeper"),))
        article = self.one(items=(below, SubItem("Other")))
        (outer,) = article.xpath("details")
        self.assertEqual(outer.xpath("string(summary)"), "2 items below")
        first, second = outer.xpath("ul/li")
        self.assertEqual(first.xpath("string(div/a)"), "Reply")
        self.assertEqual(first.xpath("string(details/summary)"), "1 item below")
        self.assertEqual(first.xpath("string(details/ul/li)"), "deeper")
        self.assertEqual(second.xpath("string()"), "Other")

    def test_a_long_text_is_folded(self) -> None:
        """But not a short text with much markup."""
        article = self.one(text_html=f"<p>{'word ' * (LONG // 4)}</p>")
        (folded,) = article.xpath("div/details")
        self.assertLessEqual(len(folded.xpath("string(summary)")), EXCERPT + 1)
        self.assertGreater(len(folded.xpath("string(p)")), LONG)
        self.river.stored.clear()
        article = self.one(text_html=f"<p>word</p>{'<p><br></p>' * LONG}")
        self.assertEqual(article.xpath("div/details"), [])

    def test_who_follows_nothing_is_told_how(self) -> None:
        self.assertIn("There is nothing here yet", self.shown().text_content())
        self.river.lists.clear()
        page = self.shown()
        self.assertIn("You follow no feed yet", page.text_content())
        self.assertTrue(page.xpath("//main//a[@href='/river/feeds']"))

    def test_headers(self) -> None:
        answer = self.dave.get("/river")
        self.assertEqual(answer.headers["cache-control"], "no-store")
        policy = answer.headers["content-security-policy"]
        self.assertIn("img-src 'self' https: http:; media-src https: http:;", policy)
        self.assertIn("default-src 'none'; style-src 'self';", policy)
        other = self.dave.get("/river/feeds").headers["content-security-policy"]
        self.assertIn("img-src 'self';", other)
        self.assertNotIn("media-src", other)
        for name, kind in (("page.css", "text/css"), ("page.js", "text/javascript")):
            answer = self.dave.get(f"/river/{name}")
            self.assertEqual((answer.status, answer.headers.get_content_type()), (200, kind))


class PagingTests(PageCase):
    def setUp(self) -> None:
        super().setUp()
        self.all = list(range(1, 2 * ON_PAGE + 11))
        self.river.add(*map(item, self.all))

    def link(self, relation: str) -> str:
        return str(self.dave.page.xpath(f"string(//nav//a[@rel='{relation}']/@href)"))

    def test_older_and_newer(self) -> None:
        newest = self.all[: -ON_PAGE - 1 : -1]
        self.assertEqual(self.ids(), newest)
        self.assertEqual(self.link("prev"), "")
        older = self.link("next")
        self.assertEqual(self.ids(older), self.all[-ON_PAGE - 1 : -2 * ON_PAGE - 1 : -1])
        self.assertEqual(self.dave.page.xpath("//@data-stream"), [])
        self.assertEqual(self.ids(self.link("next")), self.all[9::-1])
        self.assertEqual(self.link("next"), "")
        self.assertEqual(self.ids(self.link("prev")), self.all[ON_PAGE + 9 : 9 : -1])
        answer = self.dave.get(self.link("prev"))
        self.assertEqual((answer.status, answer.headers["location"]), (303, "/river"))

    def test_numbers_that_are_none(self) -> None:
        for number in ("x", "-1", "9" * 40, ""):
            self.assertEqual(len(self.ids(f"/river?before={number}")), ON_PAGE)

    def test_a_page_with_long_texts_ends_earlier(self) -> None:
        self.patch(page, "WEIGHT_ON_PAGE", 120)  # a text weighs 55 or 56
        self.assertEqual(self.ids(), self.all[:-3:-1])
        self.assertEqual(self.ids(self.link("next")), self.all[-3:-5:-1])
        self.assertEqual(self.ids(self.link("next")), self.all[-5:-7:-1])
        for page_before in (self.all[-3:-5:-1], self.all[:-3:-1]):  # and back, without a gap
            newer = self.link("prev")
            answer = self.dave.get(newer)
            at_top = answer.status == 303
            self.assertEqual(self.ids(answer.headers["location"] if at_top else newer), page_before)
        self.patch(page, "WEIGHT_ON_PAGE", 1)
        self.assertEqual(self.ids(), self.all[:-2:-1])

    def test_a_page_with_many_items_below_others_ends_earlier(self) -> None:
        """Each takes a while to be shown, however short its texts are."""
        below = tuple(SubItem("", "x", "", ()) for _ in range(500))
        self.river.add(*(item(number, items=below) for number in (101, 102, 103, 104)))
        self.assertEqual(self.ids(), [104, 103])


class NewsTests(PageCase):
    def marked(self, path: str = "/river") -> list[str]:
        """The items that are marked as new, and the line below them."""
        found = self.shown(path).xpath("//article[contains(@class, 'new')] | //*[@id='since']")
        return [str(each.get("id")) for each in found]

    def test_nothing_is_marked_at_the_first_visit(self) -> None:
        self.river.add(item(1), item(2))
        self.assertEqual(self.marked(), [])
        self.assertEqual(self.river.seen, {DAVE: 2})

    def test_what_is_new_since_the_last_visit_is_marked(self) -> None:
        self.river.add(item(1))
        self.shown()
        self.site.clock.advance(VISIT + 1)
        self.river.add(item(2), item(3))
        self.assertEqual(self.marked(), ["item-3", "item-2", "since"])
        page = self.dave.page
        self.assertIn("2 items new since your last visit", page.text_content())
        self.assertEqual(page.xpath("string(//article[@id='item-3']/h3)"), "New: Item 3")
        # The items of one feed have two headings, above and below the line.
        self.assertEqual(len(page.xpath("//section")), 2)
        # The marks stay during a visit.
        self.site.clock.advance(VISIT - 1)
        self.assertEqual(self.marked(), ["item-3", "item-2", "since"])
        self.site.clock.advance(VISIT + 1)
        self.assertEqual(self.marked(), [])

    def test_all_items_of_the_page_are_new(self) -> None:
        self.river.seen[DAVE] = 1
        self.river.add(item(2))
        self.assertEqual(self.marked(), ["item-2", "since"])

    def test_a_page_that_is_older_or_that_nobody_looks_at_is_no_visit(self) -> None:
        self.river.add(item(1), item(2))
        self.shown("/river?before=2")
        self.dave.get("/river", Sec_Purpose="prefetch;prerender")
        self.dave.ask("HEAD", "/river")
        self.assertEqual(self.river.seen, {})

    def stop(self, item_id: str) -> int:
        fields = {"csrf": self.csrf(), "id": item_id}
        return int(self.dave.post("/river/stop", fields).status)

    def test_where_somebody_stopped(self) -> None:
        """A line stays there, on whatever page it is, until it is moved or forgotten."""
        self.river.add(*map(item, range(1, 2 * ON_PAGE)))
        self.shown()
        (button, *_) = self.dave.page.xpath("//section/button[.='I stopped here']")
        form = self.dave.page.get_element_by_id(button.get("form"))
        self.assertEqual((form.get("action"), button.get("name")), ("/river/stop", "id"))
        newest = self.ids()[0]
        self.assertEqual(self.stop(str(newest - 3)), 303)
        line = "//p[@id='stopped']"
        self.shown()
        below = self.dave.page.xpath(f"{line}/following::article/@id")
        self.assertEqual(below[0], f"item-{newest - 3}")
        self.assertEqual(self.dave.page.xpath("//a[.='go there']/@href"), ["#stopped"])
        self.assertEqual(self.stop("1"), 303)  # on an older page
        self.shown()
        self.assertEqual(self.dave.page.xpath(line), [])
        (place,) = self.dave.page.xpath("//a[.='go there']/@href")
        self.assertEqual(place, "/river?before=2")
        self.shown(place)
        self.assertEqual(len(self.dave.page.xpath(line)), 1)
        self.assertEqual(self.stop("0"), 303)  # below the oldest
        self.shown(f"/river?before={ON_PAGE}")
        self.assertEqual(len(self.dave.page.xpath(f"//article/following::{line[2:]}")), 1)
        self.assertEqual(self.stop(""), 303)
        self.shown()
        self.assertEqual(self.dave.page.xpath("//a[.='go there']"), [])
        self.assertEqual(self.dave.post("/river/stop", {"id": "1"}).status, 403)

    def test_items_that_arrive_are_seen(self) -> None:
        """But nobody has seen what does not exist."""
        csrf = self.csrf()
        for key, seen in (("1", 1), ("9" * 18, 2)):
            self.river.add(item(seen))
            answer = self.dave.post("/river/seen", {"csrf": csrf, "id": key})
            self.assertEqual((answer.status, self.river.seen), (200, {DAVE: seen}))

    def test_refused_notes_of_what_was_seen(self) -> None:
        csrf = self.csrf()
        self.assertEqual(self.dave.post("/river/seen", {"id": "1"}).status, 403)
        self.assertEqual(self.dave.post("/river/seen", {"csrf": csrf, "id": "x"}).status, 400)
        self.assertEqual(Browser(self.site).post("/river/seen", {"id": "1"}).status, 401)
        self.assertEqual(self.river.seen, {})
