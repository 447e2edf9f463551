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
from rsscloud_broker.apps.writing.feeds import AccountFeeds
from rsscloud_broker.apps.writing.model import NewPost, OutlineItem
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.apps.writing.store import PostStore
from rsscloud_broker.apps.writing.upload_rows import CHUNK
from rsscloud_broker.apps.writing.write_lists import LISTED
from rsscloud_broker.database.methods import reading
from rsscloud_broker.events import PingAccepted, TopicChanged
from rsscloud_broker.interfaces import Account, Caller
from rsscloud_broker.model.administration import Change
from tests.apps.writing.house import ANNA, BROKER, DAVE, GIF, QUICK, SOURCE, SiteTestCase
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

    def csrf(self) -> str:
        return str(self.found("string(//form//input[@name='csrf']/@value)"))

    def send(self, *, file: tuple[str, bytes] | None = None, **fields: str) -> Answer:
        """Send the form as a browser does, which follows a redirection."""
        self.browser.get("/write")
        given = {"csrf": self.csrf(), "do": "post", "id": "", **fields}
        body = multipart(*given.items(), ("file", file or ("", b"")))
        answer = self.browser.ask("POST", "/write", body, {"Content-Type": MULTIPART})
        if answer.status == 303:
            self.browser.get(answer.headers["location"])
        return answer

    def topics(self) -> list[str]:
        """The topics that have changed."""
        return [each.topic for each in self.bus.events if isinstance(each, TopicChanged)]

    def test_only_for_who_has_signed_in(self) -> None:
        stranger = Browser(self)
        answer = stranger.get("/write?id=3")
        self.assertEqual(answer.status, 303)
        self.assertIn("/signin?next=/write", answer.headers["location"])
        broken = {"Content-Type": "multipart/form-data; boundary=x"}
        for answer in (
            stranger.post("/write", {"do": "post", "text": "x"}),
            stranger.ask("POST", "/write", b"broken", broken),  # which is not parsed
        ):
            self.assertEqual(answer.status, 403)
            self.assertIn("sends once more what you have typed", answer.text)
        self.assertEqual(self.browser.ask("POST", "/write", b"broken", broken).status, 400)
        kept = stranger.post("/write/unsent", {"text": "x"})
        self.assertEqual((kept.status, json.loads(kept.body)["kept"]), (403, False))

    def test_a_full_disk(self) -> None:
        self.disk.full = True
        for file in (None, ("a.gif", GIF)):
            answer = self.send(text="Keep me", file=file)
            self.assertEqual(answer.status, 503)
            self.assertIn("The disk of this server is nearly full", self.browser.said())
            self.assertEqual(self.typed(), "Keep me")

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
        self.assertEqual(self.typed(), "")
        self.assertEqual(self.found("//datalist/option/@value"), ["boats", "news"])
        self.assertEqual(self.topics()[-1], f"{BROKER}/people/dave/feed.json")

    def test_what_was_taken_down(self) -> None:
        self.browser.get("/write")
        self.assertEqual(self.asked, [("dave", self.house.caller().account.created_at)])
        self.assertEqual(self.found("//a[@href='/account#taken-down']"), [])
        spam = f"{BROKER}/people/dave/1"
        one = Change("anna", "take down", spam, "it is spam", self.clock.wall_seconds())
        for removals, more in (([one], "See your account"), ([one, one], "This and 1 other")):
            self.removals = removals
            self.browser.get("/write")
            (link,) = self.found("//a[@href='/account#taken-down']")
            said = " ".join(link.getparent().text_content().split())
            expected = f"An administrator has taken down {spam}, just now: It is spam. {more}"
            self.assertEqual(said, expected)
        self.clock.advance(90 * 86_400)
        self.browser = self.signed_in()
        self.browser.get("/write")
        month_ago = self.clock.wall_seconds() - 30 * 86_400
        self.assertApproximates(self.asked[-1][1], month_ago, 1)

    def test_what_is_refused_comes_back(self) -> None:
        fields: dict[str, Any] = {"text": "x" * 141, "title": '"T"', "outline": "a\n  b"}
        self.assertEqual(self.send(**fields).status, 400)
        self.assertIn("The message has one character too many", self.browser.said())
        self.assertEqual({name: self.typed(name) for name in fields}, fields)
        self.assertEqual(self.found("string(//p[@id='left'])"), "1 character too many")
        self.assertEqual(self.posts(), [])

    def test_long_lists(self) -> None:
        """However many drafts and files there are, each can be reached."""
        for number in range(LISTED + 2):
            self.add(f"d{number}", is_draft=True)
            self.upload_file(b"%d" % number, f"f{number}")
        self.add("published")
        for what, first in (("drafts", "d"), ("files", "f")):
            seen = []
            path = "/write"
            for size in (LISTED, 2):
                self.browser.get(path.partition("#")[0])
                rows = self.found(f"//section[@id='{what}']/ul/li/a[1]//text()")
                self.assertEqual(len(rows), size)
                seen += rows
                path = self.found(f"string(//section[@id='{what}']/nav/a/@href)")
            self.assertEqual(sorted(seen), sorted(f"{first}{n}" for n in range(LISTED + 2)))
            self.assertEqual(path, f"/write#{what}")

    def test_words_for_drafts_and_messages(self) -> None:
        for is_draft, heading, buttons in (
            (True, "Edit a draft", ["Post", "Keep as a draft"]),
            (False, "Edit a message", ["Save the change", "Unpublish it, and keep it as a draft"]),
        ):
            post = self.add("x", is_draft=is_draft)
            self.browser.get(f"/write?id={post.id}")
            self.assertEqual(self.found("string(//h1)"), heading)
            found = self.found("//form[@id='message']//button[@name='do']/text()")
            self.assertEqual(found, [buttons[0], "Preview", buttons[1]])

    def test_what_is_empty_is_folded(self) -> None:
        titled = self.add("x", title="T", items=(OutlineItem("a"),))
        both = ["Title, link, categories", "Outline below the message"]
        for path, opened in (("/write", []), (f"/write?id={titled.id}", both)):
            self.browser.get(path)
            found = self.found("//form[@id='message']/details[@open]/summary/text()")
            self.assertEqual(found, opened)

    def test_edit_and_delete_are_words(self) -> None:
        self.add("Hello")
        self.add("Not yet", is_draft=True)
        self.browser.get("/write")
        links = {
            str(each.text_content()): (each.get("href"), each.get("aria-label"))
            for each in self.found("//ul[@class='rows']//a")
        }
        self.assertEqual(links["Hello"], ("/people/dave/1", None))
        self.assertEqual(links["Not yet"], ("/write?id=2", None))
        for name, label in (("//a[.='Edit']", "Edit:"), ("//summary[.='Delete…']", "Delete…")):
            labels = [f"{label} Not yet", f"{label} Hello"]
            self.assertEqual(self.found(f"{name}/@aria-label"), labels)

    def test_a_preview(self) -> None:
        """It shows what was typed as others will see it, and stores no message."""
        text, picture = "See http://a.example/ <b>", ("a cat.gif", GIF)
        answer = self.send(do="preview", text=text, outline="one", file=picture)
        self.assertEqual(answer.status, 200)
        (shown,) = self.found("//section[@class='preview']//article")
        self.assertEqual(shown.xpath("p[@class='message']//a/@href"), ["http://a.example/"])
        self.assertIn("<b>", shown.text_content())
        self.assertEqual(shown.xpath(".//img/@alt"), ["a cat.gif"])
        self.assertEqual((self.typed(), self.typed("enclosure_text")), (text, "a cat.gif"))
        self.assertEqual(self.posts(), [])
        self.assertEqual(self.topics(), [])
        self.assertEqual(self.send(do="preview", text="").status, 400)
        self.send(do="preview", text="x", enclosure="http://files.example/a.mp3")
        (shown,) = self.found("//section[@class='preview']//article")
        self.assertIn("File: a.mp3", shown.text_content())  # its server is not asked
        self.assertEqual(self.web.requests, [])

    def test_forms_that_the_page_does_not_have(self) -> None:
        self.browser.get("/write")
        unknown = self.browser.post("/write", {"csrf": self.csrf(), "do": "format"})
        self.assertEqual(unknown.status, 400)
        self.assertIn("nothing known here", self.browser.said())
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
        """What programs made and nobody changes stays: a comma in a category does not divide it,
        and items keep their titles.
        """
        names = ("Paris, France", "boats")
        items = (OutlineItem("a", "T"), OutlineItem("o", link="https://o.example/"))
        self.add("x", categories=names, items=items)
        self.browser.get("/write?id=1")
        typed, outline = self.typed("categories"), self.typed("outline")
        self.assertEqual(outline.split("\n")[1:], ["o <https://o.example/>", ""])
        self.send(id="1", text="y", categories=typed, outline=outline.replace("\n", "\r\n"))
        self.assertEqual(self.browser.said(), "Changed: y")
        self.assertEqual(self.only_post().as_new(), NewPost("y", categories=names, items=items))
        changed = outline.replace("o <", "p <")
        self.send(id="1", text="y", categories=f"{typed}, cars", outline=changed)
        post = self.only_post()
        self.assertEqual(post.categories, ("Paris", "France", "boats", "cars"))
        self.assertEqual(post.items[1], OutlineItem("p", link="https://o.example/"))

    def test_deleting(self) -> None:
        self.add("a")
        self.browser.get("/write")
        answer = self.browser.send("Delete this message")
        self.assertEqual(answer.headers["location"], "/write?done=deleted")
        self.assertEqual(self.posts(), [])
        answer = self.browser.get("/people/dave/1")
        self.assertEqual((answer.status, answer.headers["cache-control"]), (410, "no-cache"))
        self.assertIn("This is gone", self.shown())
        self.assertEqual(self.browser.get("/people/dave/2").status, 404)

    def test_a_draft_looks_like_a_deleted_message(self) -> None:
        self.add("a")
        self.add("secret", is_draft=True)
        self.send(do="delete", id="1")
        deleted, draft = (self.browser.get(f"/people/dave/{number}") for number in (1, 2))
        self.assertEqual((deleted.status, draft.status), (410, 410))
        self.assertEqual(deleted.body, draft.body)
        self.send(id="2", text="open")
        self.assertEqual(self.browser.get("/people/dave/2").status, 200)

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
        self.assertEqual(self.typed(), "Long work")
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
        self.assertEqual(self.typed(), "half")

    # --- what is typed

    def type(self, **fields: str) -> Any:
        self.browser.get("/write")
        answer = self.browser.post("/write/unsent", {"csrf": self.csrf(), "id": "", **fields})
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
        self.assertNotIn("half a", self.shown())

    def test_what_is_typed_for_a_message(self) -> None:
        self.type(text="half")
        self.send(text="a")  # which forgets what was typed
        self.type(id="1", text="b")
        self.browser.get("/write")
        self.assertEqual(self.typed(), "")
        self.browser.get("/write?id=1")
        self.assertEqual(self.typed(), "b")
        self.assertEqual(self.posts()[0].text, "a")
        self.type(id="1")  # nothing: it is all deleted
        self.browser.get("/write?id=1")
        self.assertEqual(self.typed(), "a")

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
        file = self.newest_file()
        self.assertEqual((file.media_type, file.size), ("image/gif", 10))
        self.browser.get("/people/dave")
        self.assertEqual(self.found("//article//img/@src"), [file.url.removeprefix(BROKER)])
        self.assertEqual(self.found("//article//img/@alt"), ["a picture.gif"])
        self.send(id="1", text="a", file=("a.svg", SVG))  # which would be active: it is only linked
        self.browser.get("/people/dave")
        self.assertEqual(self.found("//article//img"), [])

    def test_what_a_picture_shows(self) -> None:
        text = "A cat on a boat"
        self.send(text="a", file=("DSC_0001.gif", GIF), enclosure_text=text)
        self.browser.get("/people/dave")
        self.assertEqual(self.found("//article//img/@alt"), [text])
        self.browser.get("/write?id=1")
        self.assertEqual((self.typed("enclosure_text"), self.newest_file().text), (text, text))
        self.assertEqual(self.send(text="a", enclosure_text="x" * 1001).status, 400)

    def test_another_picture_has_its_own_name(self) -> None:
        """The name of the one before, which nobody has typed, does not stand for it."""
        self.send(text="a", file=("boat.gif", GIF))
        for text, name in (("boat.gif", "cat.gif"), ("My pet", "My pet")):
            url, picture = self.newest_file().url, ("cat.gif", GIF + name.encode())
            self.send(id="1", text="a", enclosure=url, enclosure_text=text, file=picture)
            self.assertEqual(self.newest_file().text, name)

    def test_a_file_is_not_lost_when_the_message_is_refused(self) -> None:
        self.assertEqual(self.send(text="x" * 141, file=("a.gif", GIF)).status, 400)
        kept = self.typed("enclosure")
        self.assertIn("/people/dave/files/", kept)
        self.send(text="x", enclosure=kept)
        self.assertEqual(self.newest_file().url, kept)

    def test_too_large_a_file(self) -> None:
        for size, status in ((100_001, 400), (2_000_000, 413)):
            self.assertEqual(self.send(text="x", file=("a", b"x" * size)).status, status)

    def test_deleting_a_file(self) -> None:
        self.send(text="a", file=("a.gif", GIF))
        self.browser.get("/write")
        self.assertEqual(self.browser.send("Delete this file").status, 400)
        self.assertIn("The file belongs to your message 1; delete", self.browser.said())
        self.assertEqual(len(self.files_of()), 1)
        self.browser.get("/write")
        self.browser.send("Delete this message")
        self.browser.get("/write")
        answer = self.browser.send("Delete this file")
        self.assertEqual(answer.headers["location"], "/write?done=file")
        self.assertEqual(self.files_of(), [])


class PeoplePagesTests(SiteTestCase):
    options = QUICK

    def test_people(self) -> None:
        self.browser.get("/people")
        self.assertIn("Nobody has written anything yet", self.shown())
        self.add("a")
        self.add("secret", ANNA, is_draft=True)
        self.browser.get("/people")
        self.assertEqual(self.found("//main//li/a/@href"), ["/people/dave"])

    def test_people_who_write_while_somebody_reads_page_by_page(self) -> None:
        self.patch(people_pages, "AUTHORS_PER_PAGE", 2)
        for caller in (DAVE, ANNA, Caller(Account(77, "cleo", False, 0.0), frozenset())):
            self.clock.advance(60)
            self.add("a", caller)
        self.browser.get("/people")
        (more,) = self.found("//main//a[@rel='next']/@href")
        self.add("b", ANNA)  # the last one on that page
        self.browser.get(more)
        self.assertEqual(self.found("//main//li/a/@href"), ["/people/dave"])
        self.assertEqual(self.found("//main//nav//a/@href"), ["/people"])
        for unknown in ("anna", "x-anna", f"{10**18}-anna", "1-"):
            self.assertEqual(self.browser.get(f"/people?before={unknown}").status, 200)

    def test_the_page_of_an_author(self) -> None:
        self.add("Hello <b>", title="T", categories=("x",), items=(OutlineItem("o"),))
        self.browser.get("/people/dave")
        (article,) = self.found("//article")
        self.assertIn("Hello <b>", article.text_content())
        self.assertEqual(article.xpath(".//a/@href"), ["/people/dave/1"])
        kinds = self.found("//head/link[@rel='alternate']/@type")
        formats = ("rss+xml", "atom+xml", "feed+json")
        self.assertEqual(kinds, [f"application/{each}" for each in formats])
        urls = self.found("//head/link[@rel='alternate']/@href")
        files = ("rss.xml", "atom.xml", "feed.json")
        self.assertEqual(urls, [f"{BROKER}/people/dave/{file}" for file in files])

    def test_older_messages(self) -> None:
        for number in range(45):
            self.add(str(number))
        seen, links = [], ["/people/dave"]
        while links:
            self.browser.get(links[0])
            seen += self.found("//article/p[@class='message']/text()")
            links = self.found("//nav/a[@rel='next']/@href")
        self.assertEqual(seen, [str(number) for number in range(44, -1, -1)])
        self.assertEqual(self.browser.get("/people/dave?before=x").status, 400)

    def test_large_outlines_are_on_the_page_of_the_message_only(self) -> None:
        self.add("a", items=(OutlineItem("o"),) * 31)
        self.browser.get("/people/dave")
        self.assertEqual(self.found("//article//ul"), [])
        self.assertIn("31 items below", self.shown())
        self.browser.get("/people/dave/1")
        self.assertEqual(len(self.found("//article/ul/li")), 31)

    def test_what_is_not_there(self) -> None:
        self.add("a")
        for path in ("nobody", "nobody/rss.xml", "dave/2", "dave/0", "dave/1/2", "dave/feed.xml",
                     f"dave/files/{'a' * 64}.png", "dave/files/../../etc/passwd",
                     "dave/files/%2e%2e%2fx"):  # fmt: skip
            self.assertEqual(self.browser.get(f"/people/{path}").status, 404, path)

    def test_what_a_removed_account_wrote_is_gone(self) -> None:
        self.add("a")
        self.result(self.writing.forget_account(DAVE.account.id))
        for path in ("", "/1", "/rss.xml", "/feed.json", f"/files/{'a' * 64}.png"):
            answer = self.browser.get(f"/people/dave{path}")
            self.assertEqual(answer.status, 410, path)
            self.assertIn("the account that wrote it was removed", answer.text)
        self.assertNotIn("dave", self.browser.get("/people").text)
        self.browser.get("/people/dave")
        self.assertEqual(self.found("string(//h1)"), "This is gone")

    def test_only_the_author_sees_the_link_to_edit(self) -> None:
        self.add("a")
        for browser, links in (
            (Browser(self), []),
            (self.signed_in("anna"), []),
            (self.signed_in(), ["/write?id=1"]),
        ):
            answer = browser.get("/people/dave/1")
            found = browser.page.xpath("//main//a[contains(@href, '/write')]/@href")
            self.assertEqual(found, links)
            is_private = "no-store" in answer.headers.get("cache-control", "")
            self.assertEqual(is_private, browser.cookies != {})


class FeedsTests(SiteTestCase):
    def test_headers(self) -> None:
        self.add("a")
        (accepted,) = [each for each in self.bus.logged if isinstance(each, PingAccepted)]
        self.assertEqual(accepted.source, SOURCE)
        for file, kind in (
            ("rss.xml", "application/rss+xml; charset=utf-8"),
            ("atom.xml", "application/atom+xml; charset=utf-8"),
            ("feed.json", "application/feed+json"),
        ):
            url = f"{BROKER}/people/dave/{file}"
            got = self.browser.get(f"/people/dave/{file}", Accept="*/*")
            self.assertEqual((got.status, got.headers["content-type"]), (200, kind))
            self.assertEqual(got.body, self.feed(url))
            link = f'<{BROKER}/websub>; rel="hub", <{url}>; rel="self"'
            self.assertEqual(got.headers["link"], link)
            self.assertEqual(got.headers["access-control-allow-origin"], "*")

    def test_a_broker_without_hub_and_cloud(self) -> None:
        feeds, post = AccountFeeds(BROKER, has_hub=False, has_cloud=False), self.add("a")
        self.assertEqual(feeds.link_header("dave", "rss.xml"), "")
        author = self.successResultOf(self.writing.store.author_named("dave"))
        assert author is not None
        self.assertNotRegex(feeds.write_rss(author, [post]).decode(), '<cloud|rel="hub"')


class FilesTests(SiteTestCase, TestCase):
    """Uploaded files are sent piece by piece, which takes a real connection."""

    options = WritingOptions(max_upload_bytes=1_000_000)

    def setUp(self) -> None:
        super().setUp()
        self.port = IReactorTCP(reactor).listenTCP(0, self.factory, interface="127.0.0.1")
        self.addCleanup(self.port.stopListening)

    def upload(self, name: str, data: bytes) -> str:
        """Upload a file; its path."""
        return self.upload_file(data, name).removeprefix(BROKER)

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
        for name, value in (
            ("content-type", "image/gif"),
            ("content-security-policy", "sandbox; default-src 'none'"),
            ("x-content-type-options", "nosniff"),
            ("content-disposition", "inline; filename*=UTF-8''a%20picture.gif"),
        ):
            self.assertEqual(got.headers[name], value)
        tag = got.headers["etag"]
        again = await self.ask(path, if_none_match=f"W/{tag}")
        self.assertEqual((again.status, again.body, again.headers["etag"]), (304, b"", tag))
        head = await self.ask(path, "HEAD")
        self.assertEqual((head.status, head.headers["content-length"]), (200, "10"))

    async def test_parts(self) -> None:
        path = self.upload("a.gif", GIF)
        tag = (await self.ask(path)).headers["etag"]
        for asked, status, body, said in (
            ({"range": "bytes=0-2"}, 206, b"GIF", "bytes 0-2/10"),
            ({"range": "bytes=10-"}, 416, b"", "bytes */10"),
            ({"range": "bytes=0-2", "if_range": tag}, 206, b"GIF", "bytes 0-2/10"),
            ({"range": "bytes=0-2", "if_range": '"other"'}, 200, GIF, None),
            ({"range": "lines=1"}, 200, GIF, None),
        ):
            got = await self.ask(path, **asked)
            found = (got.status, got.body, got.headers.get("content-range"))
            self.assertEqual(found, (status, body, said), asked)

    async def test_a_large_file(self) -> None:
        data = b"%PDF-1.7\n" + bytes(number % 251 for number in range(900_000))
        path = self.upload("a.pdf", data)
        got = await self.ask(path)
        self.assertEqual(got.body, data)
        self.assertIn("attachment; ", got.headers["content-disposition"])
        for first, last in ((0, 0), (CHUNK - 1, CHUNK), (CHUNK, CHUNK + 9), (5, len(data) - 1)):
            part = await self.ask(path, range=f"bytes={first}-{last}")
            self.assertEqual((part.status, part.body), (206, data[first : last + 1]))

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
