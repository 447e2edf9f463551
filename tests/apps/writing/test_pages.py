"""The pages of the authoring tool, in a browser without scripts."""

from __future__ import annotations

import json
from http.client import IncompleteRead
from typing import Any

from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IReactorTCP
from twisted.internet.threads import deferToThread
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import TestCase

from rsscloud_broker.apps.writing import people_pages, upload_rows, write_page
from rsscloud_broker.apps.writing.model import NewPost, OutlineItem, Post
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.apps.writing.store import PostStore
from rsscloud_broker.apps.writing.upload_rows import CHUNK
from rsscloud_broker.apps.writing.write_lists import LISTED
from rsscloud_broker.database.methods import reading
from rsscloud_broker.events import PingAccepted, TopicChanged
from rsscloud_broker.interfaces import Account, Caller
from rsscloud_broker.model.administration import Change
from tests.apps.writing.house import BROKER, QUICK, SOURCE, SiteTestCase
from tests.apps.writing.test_uploads import GIF
from tests.e2e.fixture import Answer as Fetched
from tests.e2e.fixture import request
from tests.front_doors.exchange import Answer
from tests.web.accounts_site import Browser
from tests.web.file_form import MULTIPART, multipart

SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


class WritePageTests(SiteTestCase):
    options = WritingOptions(max_upload_bytes=100_000, posts_per_minute=1000)

    def setUp(self) -> None:
        super().setUp()
        self.browser = self.signed_in()

    def csrf(self, browser: Browser | None = None) -> str:
        return str(
            (browser or self.browser).page.xpath("string(//form//input[@name='csrf']/@value)")
        )

    def send(self, *, file: tuple[str, bytes] | None = None, **fields: str) -> Answer:
        """Send the form as a browser does, which follows a redirection."""
        self.browser.get("/write")
        given = {"csrf": self.csrf(), "do": "post", "id": "", **fields}
        body = multipart(*given.items(), ("file", file or ("", b"")))
        answer = self.browser.ask("POST", "/write", body, {"Content-Type": MULTIPART})
        if answer.status == 303:
            self.browser.get(answer.headers["location"])
        return answer

    def posts(self) -> list[Post]:
        return list(self.result(self.writing.store.all_posts(self.dave.account.id, 99)))

    def topics(self) -> list[str]:
        """The topics that have changed."""
        return [each.topic for each in self.bus.events if isinstance(each, TopicChanged)]

    def test_only_for_who_has_signed_in(self) -> None:
        stranger = Browser(self)
        answer = stranger.get("/write?id=3")
        self.assertEqual(answer.status, 303)
        self.assertIn("/signin?next=/write", answer.headers["location"])
        answer = stranger.post("/write", {"do": "post", "text": "x"})
        self.assertEqual(answer.status, 403)
        self.assertIn("sends once more what you have typed", stranger.page.text_content())
        kept = stranger.post("/write/unsent", {"text": "x"})
        self.assertEqual((kept.status, json.loads(kept.body)["kept"]), (403, False))

    def test_forms_of_strangers_are_not_parsed(self) -> None:
        """A broken form gets the answer that every stranger gets."""
        broken = {"Content-Type": "multipart/form-data; boundary=x"}
        answer = Browser(self).ask("POST", "/write", b"broken", broken)
        self.assertEqual(answer.status, 403)
        self.assertIn("You are not signed in", answer.text)
        self.assertEqual(self.browser.ask("POST", "/write", b"broken", broken).status, 400)

    def test_a_full_disk(self) -> None:
        self.disk.full = True
        for file in (None, ("a.gif", GIF)):
            answer = self.send(text="Keep me", file=file)
            self.assertEqual(answer.status, 503)
            self.assertIn("The disk of this server is nearly full", self.browser.said())
            typed = self.browser.page.xpath("string(//textarea[@name='text'])")
            self.assertEqual(typed, "Keep me")

    def test_a_message(self) -> None:
        answer = self.send(
            text="Hello\r\nthere",
            title="A title",
            link="https://a.example/",
            categories="news, boats,",
            outline="one\r\n  two",
        )
        self.assertEqual(answer.status, 303)
        (post,) = self.posts()
        self.assertEqual((post.text, post.categories), ("Hello\nthere", ("news", "boats")))
        self.assertEqual(post.items, (OutlineItem("one", items=(OutlineItem("two"),)),))
        self.assertEqual(self.browser.said(), "Published: A title")
        self.assertEqual(self.browser.page.xpath("string(//textarea[@name='text'])"), "")
        shown = self.browser.page.xpath("//datalist/option/@value")
        self.assertEqual(shown, ["boats", "news"])
        self.assertEqual(self.topics()[-1], f"{BROKER}/people/dave/feed.json")

    def test_what_was_taken_down(self) -> None:
        self.browser.get("/write")
        account = self.dave.account
        self.assertEqual(self.asked, [("dave", account.created_at)])
        self.assertEqual(self.browser.page.xpath("//a[@href='/account#taken-down']"), [])
        spam = f"{BROKER}/people/dave/1"
        one = Change("anna", "take down", spam, "it is spam", self.clock.wall_seconds())
        for removals, more in (([one], "See your account"), ([one, one], "This and 1 other")):
            self.removals = removals
            self.browser.get("/write")
            (link,) = self.browser.page.xpath("//a[@href='/account#taken-down']")
            said = " ".join(link.getparent().text_content().split())
            self.assertEqual(
                said, f"An administrator has taken down {spam}, just now: It is spam. {more}"
            )
        self.clock.advance(90 * 86_400)
        self.browser = self.signed_in()
        self.browser.get("/write")
        month_ago = self.clock.wall_seconds() - 30 * 86_400
        self.assertApproximates(self.asked[-1][1], month_ago, 1)

    def test_what_is_refused_comes_back(self) -> None:
        answer = self.send(text="x" * 141, title='"T"', outline="a\n  b")
        self.assertEqual(answer.status, 400)
        self.assertIn("The message has one character too many", self.browser.said())
        self.assertEqual(self.browser.page.xpath("string(//textarea[@name='text'])"), "x" * 141)
        self.assertEqual(self.browser.page.xpath("string(//input[@name='title']/@value)"), '"T"')
        self.assertEqual(self.browser.page.xpath("string(//textarea[@name='outline'])"), "a\n  b")
        self.assertEqual(self.browser.page.xpath("string(//p[@id='left'])"), "1 character too many")
        self.assertEqual(self.posts(), [])

    def test_long_lists(self) -> None:
        """However many drafts and files there are, each can be reached."""
        for number in range(LISTED + 2):
            self.result(self.writing.add(self.dave, NewPost(f"d{number}", is_draft=True), SOURCE))
            self.result(self.writing.upload(self.dave, f"f{number}", b"%d" % number, SOURCE))
        self.add("published", self.dave)
        for what, first in (("drafts", "d"), ("files", "f")):
            seen = []
            path = "/write"
            for size in (LISTED, 2):
                self.browser.get(path.partition("#")[0])
                rows = self.browser.page.xpath(f"//section[@id='{what}']/ul/li/a[1]//text()")
                self.assertEqual(len(rows), size)
                seen += rows
                path = self.browser.page.xpath(f"string(//section[@id='{what}']/nav/a/@href)")
            self.assertEqual(sorted(seen), sorted(f"{first}{n}" for n in range(LISTED + 2)))
            self.assertEqual(path, f"/write#{what}")

    def test_words_for_drafts_and_messages(self) -> None:
        for is_draft, heading, buttons in (
            (True, "Edit a draft", ["Post", "Preview", "Keep as a draft"]),
            (
                False,
                "Edit a message",
                ["Save the change", "Preview", "Unpublish it, and keep it as a draft"],
            ),
        ):
            post = self.add("x", self.dave, is_draft=is_draft)
            self.browser.get(f"/write?id={post.id}")
            self.assertEqual(self.browser.page.xpath("string(//h1)"), heading)
            found = self.browser.page.xpath("//form[@id='message']//button[@name='do']/text()")
            self.assertEqual(found, buttons)

    def test_what_is_empty_is_folded(self) -> None:
        def opened() -> list[str]:
            found = self.browser.page.xpath("//form[@id='message']/details[@open]/summary/text()")
            return list(map(str, found))

        self.browser.get("/write")
        self.assertEqual(opened(), [])
        titled = self.add("x", self.dave, title="T", items=(OutlineItem("a"),))
        self.browser.get(f"/write?id={titled.id}")
        self.assertEqual(opened(), ["Title, link, categories", "Outline below the message"])

    def test_edit_and_delete_are_words(self) -> None:
        self.add("Hello", self.dave)
        self.add("Not yet", self.dave, is_draft=True)
        self.browser.get("/write")
        links = {
            str(each.text_content()): (each.get("href"), each.get("aria-label"))
            for each in self.browser.page.xpath("//ul[@class='rows']//a")
        }
        self.assertEqual(links["Hello"], ("/people/dave/1", None))
        self.assertEqual(links["Not yet"], ("/write?id=2", None))
        edits = self.browser.page.xpath("//a[.='Edit']/@aria-label")
        self.assertEqual(edits, ["Edit: Not yet", "Edit: Hello"])
        folded = self.browser.page.xpath("//summary[.='Delete…']/@aria-label")
        self.assertEqual(folded, ["Delete… Not yet", "Delete… Hello"])

    def test_a_preview(self) -> None:
        """It shows what was typed as others will see it, and stores no message."""
        answer = self.send(
            do="preview", text="See http://a.example/ <b>", outline="one", file=("a cat.gif", GIF)
        )
        self.assertEqual(answer.status, 200)
        page = self.browser.page
        shown = page.xpath("//section[@class='preview']//article")[0]
        self.assertEqual(shown.xpath("p[@class='message']//a/@href"), ["http://a.example/"])
        self.assertIn("<b>", shown.text_content())
        self.assertEqual(shown.xpath(".//img/@alt"), ["a cat.gif"])
        self.assertEqual(
            page.xpath("string(//textarea[@name='text'])"), "See http://a.example/ <b>"
        )
        self.assertEqual(page.xpath("//input[@name='enclosure_text']/@value"), ["a cat.gif"])
        self.assertEqual(self.posts(), [])
        self.assertEqual(self.topics(), [])
        self.assertEqual(self.send(do="preview", text="").status, 400)
        self.send(do="preview", text="x", enclosure="http://files.example/a.mp3")
        shown = self.browser.page.xpath("//section[@class='preview']//article")[0]
        self.assertIn("File: a.mp3", shown.text_content())  # its server is not asked
        self.assertEqual(self.web.requests, [])

    def test_forged_forms(self) -> None:
        self.browser.get("/write")
        fields = {"do": "post", "text": "x", "id": ""}
        other_site = {"Sec-Fetch-Site": "cross-site"}
        body = multipart(*fields.items())
        for answer in (
            self.browser.post("/write", fields),
            self.browser.post("/write", {**fields, "csrf": "x"}),
            self.browser.post("/write", {**fields, "csrf": self.csrf()}, other_site),
            self.browser.ask("POST", "/write", body, {"Content-Type": MULTIPART}),
            self.browser.post("/write/unsent", fields),
        ):
            self.assertEqual(answer.status, 403)
        self.assertEqual(self.posts(), [])

    def test_editing(self) -> None:
        self.send(text="a", categories="x", outline="o <https://o.example/>")
        self.browser.get("/write?id=1")
        self.assertEqual(self.browser.page.xpath("string(//h1)"), "Edit a message")
        outline = self.browser.page.xpath("string(//textarea[@name='outline'])")
        self.assertEqual(outline.strip(), "o <https://o.example/>")
        self.send(id="1", text="b", categories="x", outline=outline)
        (post,) = self.posts()
        self.assertEqual(
            (post.text, post.items), ("b", (OutlineItem("o", link="https://o.example/"),))
        )
        self.assertEqual(self.browser.said(), "Changed: b")

    def test_categories_that_programs_made_stay(self) -> None:
        """A comma in one does not divide it, if nobody changes the categories."""
        names = ("Paris, France", "boats")
        self.add("x", self.dave, categories=names)
        self.browser.get("/write?id=1")
        typed = self.browser.page.xpath("string(//input[@name='categories']/@value)")
        self.send(id="1", text="y", categories=typed)
        self.assertEqual(self.posts()[0].categories, names)
        self.send(id="1", text="y", categories=f"{typed}, cars")
        self.assertEqual(self.posts()[0].categories, ("Paris", "France", "boats", "cars"))

    def test_titles_of_items_that_programs_made_stay(self) -> None:
        items = (OutlineItem("a", "T"),)
        self.add("x", self.dave, items=items)
        self.browser.get("/write?id=1")
        outline = self.browser.page.xpath("string(//textarea[@name='outline'])")
        self.send(id="1", text="y", outline=outline.replace("\n", "\r\n"))
        (post,) = self.posts()
        self.assertEqual((post.text, post.items), ("y", items))

    def test_deleting(self) -> None:
        self.send(text="a")
        self.browser.get("/write")
        answer = self.browser.send("Delete this message")
        self.assertEqual(answer.headers["location"], "/write?done=deleted")
        self.assertEqual(self.posts(), [])
        answer = self.browser.get("/people/dave/1")
        self.assertEqual((answer.status, answer.headers["cache-control"]), (410, "no-cache"))
        self.assertIn("This is gone", self.browser.page.text_content())
        self.assertEqual(self.browser.get("/people/dave/2").status, 404)

    def test_a_draft_looks_like_a_deleted_message(self) -> None:
        self.send(text="a")
        self.send(do="draft", text="secret")
        self.send(text="b")
        self.send(do="delete", id="1")
        deleted, draft = (self.browser.get(f"/people/dave/{number}") for number in (1, 2))
        self.assertEqual((deleted.status, draft.status), (410, 410))
        self.assertEqual(deleted.body, draft.body)
        self.send(id="2", text="open")
        self.assertEqual(self.browser.get("/people/dave/2").status, 200)

    def test_unknown_actions(self) -> None:
        self.browser.get("/write")
        answer = self.browser.post("/write", {"csrf": self.csrf(), "do": "format"})
        self.assertEqual(answer.status, 400)
        self.assertIn("nothing known here", self.browser.said())

    def test_who_signs_in_anew_loses_nothing(self) -> None:
        """The form of the session before comes back, unless another site has sent it."""
        self.browser.get("/write")
        fields = {"csrf": self.csrf(), "do": "post", "id": "", "text": "Long work", "title": "T"}
        self.browser = self.signed_in()
        kept = json.loads(self.browser.post("/write/unsent", fields).body)
        self.assertIn("press Preview", kept["problem"])
        answer = self.browser.post("/write", fields, {"Sec-Fetch-Site": "cross-site"})
        self.assertEqual(answer.status, 403)
        self.assertNotIn("Long work", answer.text)
        self.assertEqual(self.browser.post("/write", fields).status, 403)
        self.assertIn("signed in anew since you opened this page, as dave", self.browser.said())
        self.assertEqual(self.browser.page.xpath("string(//textarea[@name='text'])"), "Long work")
        self.assertEqual(self.posts(), [])
        self.browser.post("/write", fields | {"csrf": self.csrf()})
        self.assertEqual([each.title for each in self.posts()], ["T"])
        self.assertEqual(self.browser.post("/write", fields | {"do": "delete"}).status, 403)

    def test_a_refused_button_leaves_the_form_alone(self) -> None:
        """The form is not about the message that could not be deleted, and has what was typed."""
        self.send(text="a")
        self.type(text="half")
        self.disk.full = True
        self.browser.get("/write")
        self.assertEqual(self.browser.send("Delete this message").status, 503)
        form = self.browser.page.get_element_by_id("message")
        self.assertEqual((form.fields["id"], form.fields["text"]), ("", "half"))
        self.browser.get("/write?id=99")
        form = self.browser.page.get_element_by_id("message")
        self.assertEqual(form.fields["text"], "half")

    # --- what is typed

    def type(self, browser: Browser | None = None, **fields: str) -> Any:
        one = browser or self.browser
        one.get("/write")
        answer = one.post("/write/unsent", {"csrf": self.csrf(one), "id": "", **fields})
        return answer.status, json.loads(answer.body)

    def test_what_is_typed_is_kept(self) -> None:
        self.assertEqual(self.type(text="half a", outline="x"), (200, {"kept": True}))
        elsewhere = self.signed_in()  # another browser
        elsewhere.get("/write")
        self.assertEqual(elsewhere.page.xpath("string(//textarea[@name='text'])"), "half a")
        self.assertIn("This is what you were typing just now", elsewhere.page.text_content())
        anna = self.signed_in("anna")
        anna.get("/write")
        self.assertNotIn("half a", anna.page.text_content())
        elsewhere.get("/write")
        elsewhere.send("Discard it")
        self.browser.get("/write")
        self.assertNotIn("half a", self.browser.page.text_content())

    def test_what_is_typed_is_forgotten_when_it_is_sent(self) -> None:
        self.type(text="half")
        self.send(text="half and half")
        self.assertEqual(self.browser.page.xpath("string(//textarea[@name='text'])"), "")

    def test_what_is_typed_for_a_message(self) -> None:
        self.send(text="a")
        self.type(id="1", text="b")
        self.browser.get("/write")
        self.assertEqual(self.browser.page.xpath("string(//textarea[@name='text'])"), "")
        self.browser.get("/write?id=1")
        self.assertEqual(self.browser.page.xpath("string(//textarea[@name='text'])"), "b")
        self.assertEqual(self.posts()[0].text, "a")
        self.type(id="1")  # nothing: it is all deleted
        self.browser.get("/write?id=1")
        self.assertEqual(self.browser.page.xpath("string(//textarea[@name='text'])"), "a")

    def test_what_is_typed_has_limits(self) -> None:
        status, said = self.type(outline="x" * 100_001)
        self.assertEqual((status, said["kept"]), (413, False))
        status, said = self.type(id="7", text="x")
        self.assertEqual((status, said["problem"]), (404, "This message is deleted."))

    def test_what_is_typed_is_kept_only_so_often(self) -> None:
        self.patch(write_page, "_KEEPS_PER_MINUTE", 2)
        super().setUp()
        self.browser = self.signed_in()
        self.assertEqual([self.type(text="x")[0] for _ in range(3)], [200, 200, 429])

    # --- files

    def test_an_upload(self) -> None:
        self.send(text="a", file=("../../a picture.gif", GIF))
        (post,) = self.posts()
        assert post.enclosure is not None
        self.assertEqual((post.enclosure.media_type, post.enclosure.size), ("image/gif", 10))
        self.browser.get("/people/dave")
        path = post.enclosure.url.removeprefix(BROKER)
        self.assertEqual(self.browser.page.xpath("//article//img/@src"), [path])
        self.assertEqual(self.browser.page.xpath("//article//img/@alt"), ["a picture.gif"])

    def test_what_a_picture_shows(self) -> None:
        self.send(text="a", file=("DSC_0001.gif", GIF), enclosure_text="A cat on a boat")
        self.browser.get("/people/dave")
        self.assertEqual(self.browser.page.xpath("//article//img/@alt"), ["A cat on a boat"])
        (post,) = self.posts()
        self.browser.get(f"/write?id={post.id}")
        said = self.browser.page.xpath("//input[@name='enclosure_text']/@value")
        self.assertEqual(said, ["A cat on a boat"])
        self.assertEqual(post.as_new().enclosure_text, "A cat on a boat")
        self.assertEqual(self.send(text="a", enclosure_text="x" * 1001).status, 400)

    def test_another_picture_has_its_own_name(self) -> None:
        """The name of the one before, which nobody has typed, does not stand for it."""
        self.send(text="a", file=("boat.gif", GIF))
        for text, name in (("boat.gif", "cat.gif"), ("My pet", "My pet")):
            file = self.posts()[0].enclosure
            assert file is not None
            picture = ("cat.gif", GIF + name.encode())
            self.send(id="1", text="a", enclosure=file.url, enclosure_text=text, file=picture)
            file = self.posts()[0].enclosure
            assert file is not None
            self.assertEqual(file.text, name)

    def test_pictures_that_would_be_active_are_only_linked(self) -> None:
        self.send(text="x", file=("a.svg", SVG))
        self.browser.get("/people/dave")
        self.assertEqual(self.browser.page.xpath("//article//img"), [])

    def test_a_file_is_not_lost_when_the_message_is_refused(self) -> None:
        self.assertEqual(self.send(text="x" * 141, file=("a.gif", GIF)).status, 400)
        kept = self.browser.page.xpath("string(//input[@name='enclosure']/@value)")
        self.assertIn("/people/dave/files/", kept)
        self.send(text="x", enclosure=kept)
        file = self.posts()[0].enclosure
        assert file is not None
        self.assertEqual(file.url, kept)

    def test_too_large_a_file(self) -> None:
        self.assertEqual(self.send(text="x", file=("a", b"x" * 100_001)).status, 400)
        self.assertIn("The file has 100,001 bytes; it may have 100,000.", self.browser.said())
        self.browser.get("/write")
        answer = self.send(text="x", file=("a", b"x" * 2_000_000))
        self.assertEqual(answer.status, 413)

    def test_deleting_a_file(self) -> None:
        self.send(text="a", file=("a.gif", GIF))
        self.browser.get("/write")
        self.assertEqual(self.browser.send("Delete this file").status, 400)
        self.assertIn("The file belongs to your message 1; delete", self.browser.said())
        self.assertEqual(len(self.files_of(self.dave)), 1)
        self.browser.get("/write")
        self.browser.send("Delete this message")
        self.browser.get("/write")
        answer = self.browser.send("Delete this file")
        self.assertEqual(answer.headers["location"], "/write?done=file")
        self.assertEqual(self.files_of(self.dave), [])


class PeoplePagesTests(SiteTestCase):
    options = QUICK

    def test_people(self) -> None:
        self.browser.get("/people")
        self.assertIn("Nobody has written anything yet", self.browser.page.text_content())
        self.add("a", self.dave)
        self.add("secret", self.accounts.caller("anna"), is_draft=True)
        self.browser.get("/people")
        self.assertEqual(self.browser.page.xpath("//main//li/a/@href"), ["/people/dave"])

    def test_people_page_by_page(self) -> None:
        self.patch(people_pages, "AUTHORS_PER_PAGE", 1)
        self.add("a", self.dave)
        self.clock.advance(60)
        self.add("b", self.accounts.caller("anna"))
        self.browser.get("/people")
        (more,) = self.browser.page.xpath("//main//a[@rel='next']/@href")
        self.browser.get(more)
        self.assertEqual(self.browser.page.xpath("//main//li/a/@href"), ["/people/dave"])
        self.assertEqual(self.browser.page.xpath("//main//a[@rel='next']"), [])
        self.assertEqual(self.browser.page.xpath("//main//nav//a/@href"), ["/people"])
        for unknown in ("anna", "x-anna", f"{10**18}-anna", "1-"):
            self.assertEqual(self.browser.get(f"/people?before={unknown}").status, 200)

    def test_people_who_write_while_somebody_reads_page_by_page(self) -> None:
        self.patch(people_pages, "AUTHORS_PER_PAGE", 2)
        anna = self.accounts.caller("anna")
        for caller in (self.dave, anna, Caller(Account(77, "cleo", False, 0.0), frozenset())):
            self.clock.advance(60)
            self.add("a", caller)
        self.browser.get("/people")
        (more,) = self.browser.page.xpath("//main//a[@rel='next']/@href")
        self.add("b", anna)  # the last one on that page
        self.browser.get(more)
        self.assertEqual(self.browser.page.xpath("//main//li/a/@href"), ["/people/dave"])

    def test_the_page_of_an_author(self) -> None:
        self.add("Hello <b>", self.dave, title="T", categories=("x",), items=(OutlineItem("o"),))
        self.browser.get("/people/dave")
        (article,) = self.browser.page.xpath("//article")
        self.assertIn("Hello <b>", article.text_content())
        self.assertEqual(article.xpath(".//a/@href"), ["/people/dave/1"])
        found = self.browser.page.xpath("//head/link[@rel='alternate']")
        self.assertEqual(
            [(each.get("type"), each.get("href")) for each in found],
            [
                ("application/rss+xml", f"{BROKER}/people/dave/rss.xml"),
                ("application/atom+xml", f"{BROKER}/people/dave/atom.xml"),
                ("application/feed+json", f"{BROKER}/people/dave/feed.json"),
            ],
        )

    def test_older_messages(self) -> None:
        for number in range(45):
            self.add(str(number), self.dave)
        self.browser.get("/people/dave")
        seen = []
        while True:
            seen += self.browser.page.xpath("//article/p[@class='message']/text()")
            links = self.browser.page.xpath("//nav/a[@rel='next']/@href")
            if not links:
                break
            self.browser.get(links[0])
        self.assertEqual(seen, [str(number) for number in range(44, -1, -1)])
        self.assertEqual(self.browser.get("/people/dave?before=x").status, 400)

    def test_large_outlines_are_on_the_page_of_the_message_only(self) -> None:
        self.add("a", self.dave, items=(OutlineItem("o"),) * 31)
        self.browser.get("/people/dave")
        self.assertEqual(self.browser.page.xpath("//article//ul"), [])
        self.assertIn("31 items below", self.browser.page.text_content())
        self.browser.get("/people/dave/1")
        self.assertEqual(len(self.browser.page.xpath("//article/ul/li")), 31)

    def test_what_is_not_there(self) -> None:
        self.add("a", self.dave)
        for path in (
            "/people/nobody",
            "/people/dave/2",
            "/people/dave/0",
            "/people/dave/1/2",
            "/people/dave/feed.xml",
            f"/people/dave/files/{'a' * 64}.png",
            "/people/dave/files/../../etc/passwd",
            "/people/dave/files/%2e%2e%2fx",
            "/people/nobody/rss.xml",
        ):
            self.assertEqual(self.browser.get(path).status, 404, path)

    def test_what_a_removed_account_wrote_is_gone(self) -> None:
        self.add("a", self.dave)
        paths = [
            *("/people/dave", "/people/dave/1", "/people/dave/rss.xml", "/people/dave/feed.json"),
            f"/people/dave/files/{'a' * 64}.png",
        ]
        self.result(self.writing.forget_account(self.dave.account.id))
        for path in paths:
            answer = self.browser.get(path)
            self.assertEqual(answer.status, 410, path)
            self.assertIn("the account that wrote it was removed", answer.text)
        self.assertNotIn("dave", self.browser.get("/people").text)
        self.browser.get("/people/dave")
        self.assertEqual(self.browser.page.xpath("string(//h1)"), "This is gone")

    def test_only_the_author_sees_the_link_to_edit(self) -> None:
        self.add("a", self.dave)
        for browser, links in (
            (Browser(self), []),
            (self.signed_in("anna"), []),
            (self.signed_in(), ["/write?id=1"]),
        ):
            answer = browser.get("/people/dave/1")
            self.assertEqual(
                browser.page.xpath("//main//a[contains(@href, '/write')]/@href"), links
            )
            self.assertEqual(
                "no-store" in answer.headers.get("cache-control", ""), browser.cookies != {}
            )


class FeedsTests(SiteTestCase):
    def test_headers(self) -> None:
        self.add("a", self.dave)
        for file, kind in (
            ("rss.xml", "application/rss+xml; charset=utf-8"),
            ("atom.xml", "application/atom+xml; charset=utf-8"),
            ("feed.json", "application/feed+json"),
        ):
            url = f"{BROKER}/people/dave/{file}"
            got = self.browser.get(f"/people/dave/{file}", Accept="*/*")
            self.assertEqual((got.status, got.headers["content-type"]), (200, kind))
            self.assertEqual(got.body, self.feed(url))
            self.assertEqual(
                got.headers["link"], f'<{BROKER}/websub>; rel="hub", <{url}>; rel="self"'
            )
            self.assertEqual(got.headers["access-control-allow-origin"], "*")
            self.assertEqual(got.headers["cache-control"], "public, max-age=0, must-revalidate")
            head = self.browser.ask("HEAD", f"/people/dave/{file}")
            self.assertEqual((head.body, head.headers["content-length"]), (b"", str(len(got.body))))

    def test_source_is_the_caller(self) -> None:
        self.add("a", self.dave)
        (accepted,) = [each for each in self.bus.logged if isinstance(each, PingAccepted)]
        self.assertEqual(accepted.source, SOURCE)


class NoHubTests(SiteTestCase):
    has_hub = has_cloud = False

    def test_feed(self) -> None:
        self.add("a", self.dave)
        got = self.browser.get("/people/dave/rss.xml")
        self.assertNotIn("link", got.headers)
        self.assertNotIn(b"<cloud", got.body)
        self.assertNotIn(b'rel="hub"', got.body)


class FilesTests(SiteTestCase, TestCase):
    """Uploaded files are sent piece by piece, which takes a real connection."""

    options = WritingOptions(max_upload_bytes=1_000_000)

    def setUp(self) -> None:
        super().setUp()
        self.port = IReactorTCP(reactor).listenTCP(0, self.factory, interface="127.0.0.1")
        self.addCleanup(self.port.stopListening)

    def upload(self, name: str, data: bytes) -> str:
        """Upload a file; its path."""
        return self.upload_file(data, name, self.dave).removeprefix(BROKER)

    async def ask(self, path: str, method: str = "GET", **headers: str) -> Fetched:
        where = self.port.getHost()
        assert isinstance(where, IPv4Address)
        url = f"http://127.0.0.1:{where.port}{path}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await deferToThread(request, url, method, None, named)

    async def test_a_picture(self) -> None:
        path = self.upload("../../a picture.gif", GIF)
        got = await self.ask(path)
        self.assertEqual((got.status, got.body), (200, GIF))
        self.assertEqual(got.headers["content-type"], "image/gif")
        self.assertEqual(got.headers["content-security-policy"], "sandbox; default-src 'none'")
        self.assertEqual(got.headers["x-content-type-options"], "nosniff")
        said = "inline; filename*=UTF-8''a%20picture.gif"
        self.assertEqual(got.headers["content-disposition"], said)
        tag = got.headers["etag"]
        for known in (tag, f"W/{tag}", f'"other", {tag}, "third"'):
            again = await self.ask(path, if_none_match=known)
            self.assertEqual((again.status, again.body, again.headers["etag"]), (304, b"", tag))
        head = await self.ask(path, "HEAD")
        self.assertEqual((head.status, head.headers["content-length"]), (200, "10"))

    async def test_parts(self) -> None:
        path = self.upload("a.gif", GIF)
        part = await self.ask(path, range="bytes=0-2")
        self.assertEqual((part.status, part.body), (206, b"GIF"))
        self.assertEqual(part.headers["content-range"], "bytes 0-2/10")
        for strange in ("bytes=--9", "bytes=0-1,0-1,0-1", "lines=1", "bytes=5-2"):
            whole = await self.ask(path, range=strange)
            self.assertEqual((whole.status, whole.body), (200, GIF))
        last = await self.ask(path, range="bytes=-4")
        self.assertEqual((last.status, last.headers["content-range"]), (206, "bytes 6-9/10"))
        end = await self.ask(path, range="bytes=6-99")
        self.assertEqual((end.status, end.body), (206, GIF[6:]))
        beyond = await self.ask(path, range="bytes=10-")
        self.assertEqual((beyond.status, beyond.body), (416, b""))
        self.assertEqual(beyond.headers["content-range"], "bytes */10")
        same = await self.ask(path, range="bytes=0-2", if_range=part.headers["etag"])
        self.assertEqual((same.status, same.body), (206, b"GIF"))
        other = await self.ask(path, range="bytes=0-2", if_range='"other"')
        self.assertEqual((other.status, other.body), (200, GIF))

    async def test_a_large_file(self) -> None:
        data = b"%PDF-1.7\n" + bytes(number % 251 for number in range(900_000))
        path = self.upload("a.pdf", data)
        got = await self.ask(path)
        self.assertEqual(got.body, data)
        self.assertIn("attachment; ", got.headers["content-disposition"])
        for first, last in ((0, 0), (CHUNK - 1, CHUNK), (CHUNK, CHUNK + 9), (5, len(data) - 2)):
            part = await self.ask(path, range=f"bytes={first}-{last}")
            self.assertEqual((part.status, part.body), (206, data[first : last + 1]))
        rest = await self.ask(path, range=f"bytes={CHUNK + 1}-")
        self.assertEqual(rest.body, data[CHUNK + 1 :])

    async def test_a_file_that_is_deleted_while_it_is_sent(self) -> None:
        """Nobody takes a half of it for the whole."""
        path = self.upload("a.pdf", bytes(900_000))

        def gone(conn: Any, upload_id: int, number: int) -> bytes | None:
            return None if number else upload_rows.get_chunk(conn, upload_id, number)

        self.patch(PostStore, "get_chunk", reading(gone))
        with capturedLogs() as logs, self.assertRaises((IncompleteRead, ConnectionError)):
            await self.ask(path)
        self.assertIn("deleted meanwhile", formatEvent(logs[0]))

    async def test_files_that_would_be_active(self) -> None:
        for name, data in (("a.svg", SVG), ("a.html", b"<script>alert(1)</script>")):
            got = await self.ask(self.upload(name, data))
            self.assertEqual(got.headers["content-type"], "application/octet-stream")
            self.assertIn("attachment; filename*=UTF-8''a.", got.headers["content-disposition"])
            self.assertIn("sandbox", got.headers["content-security-policy"])
