"""Micropub: the requests of the test suite micropub.rocks by number, and those of clients."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from rsscloud_broker.apps.writing.micropub_requests import MAX_OVERHEAD
from rsscloud_broker.apps.writing.model import OutlineItem
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.interfaces import SignIn
from rsscloud_broker.model.administration import Block
from rsscloud_broker.wire.units import DAY
from tests.accounts.fixture import PASSWORD
from tests.apps.writing.house import BROKER, FEED
from tests.apps.writing.posting_house import GIF, JPEG, PNG, PostingTestCase
from tests.front_doors.exchange import FORM, Answer
from tests.web.file_form import Part

PHOTO = "https://micropub.example/media/sunset.jpg"
OTHER = "https://micropub.example/media/city-at-night.jpg"


class MicropubTestCase(PostingTestCase):
    def assert_created(self, answer: Answer) -> str:
        """The URL of the message that a request has made."""
        self.assertEqual(answer.status, 201, answer.text)
        url = str(answer.headers["location"])
        self.assertTrue(url.startswith(f"{BROKER}/people/dave/"), url)
        return url

    def assert_error(self, answer: Answer, status: int, error: str, text: str = "") -> None:
        self.assertEqual(answer.status, status, answer.text)
        self.assertEqual(answer.headers["content-type"], "application/json")
        document = json.loads(answer.body)
        self.assertEqual(document["error"], error)
        self.assertIn(text, document["error_description"])

    def create(self, **properties: Any) -> str:
        """Create a message by JSON; its URL."""
        return self.assert_created(self.json({"type": ["h-entry"], "properties": properties}))

    def update(self, url: str, **operations: Any) -> None:
        answer = self.json({"action": "update", "url": url, **operations})
        self.assertEqual(answer.status, 204, answer.text)
        self.assertEqual(answer.body, b"")

    def source(self, url: str, more: str = "") -> Any:
        return self.query(f"q=source&url={quote(url, safe='')}{more}")


class RocksCreateTests(MicropubTestCase):
    """The tests 100 to 301."""

    def test_100_form(self) -> None:
        text = "Micropub+test+of+creating+a+basic+h-entry"
        url = self.assert_created(self.form(f"h=entry&content={text}"))
        self.assertEqual(self.only_post().text, "Micropub test of creating a basic h-entry")
        self.assertEqual(self.ask("GET", url.removeprefix(BROKER)).status, 200)
        self.assertIn(b"a basic h-entry", self.feed())

    def test_101_categories_in_a_form(self) -> None:
        self.assert_created(self.form("h=entry&content=x&category[]=test1&category[]=test2"))
        self.assertEqual(self.only_post().categories, ("test1", "test2"))

    def test_104_photo_by_url_in_a_form(self) -> None:
        self.assert_created(self.form(f"h=entry&content=Sunset&photo={quote(PHOTO, safe='')}"))
        post = self.only_post()
        assert post.enclosure is not None
        self.assertEqual(post.enclosure.url, PHOTO)

    def test_105_syndication_targets_are_ignored(self) -> None:
        self.assert_created(self.form("h=entry&content=x&mp-syndicate-to=https://t.example/"))
        self.assertNotIn("t.example", repr(self.only_post()))

    def test_107_one_category(self) -> None:
        self.assert_created(self.form("h=entry&content=x&category=test1"))
        self.assertEqual(self.only_post().categories, ("test1",))

    def test_200_json(self) -> None:
        self.create(content=[{"value": "A text as an object"}])
        self.assertEqual(self.posts()[0].text, "A text as an object")
        self.json({"action": "delete", "url": f"{BROKER}/people/dave/1"})
        self.create(content=["Micropub test of creating an h-entry with a JSON request"])
        self.assertIn("with a JSON request", self.only_post().text)

    def test_201_categories_in_json(self) -> None:
        self.create(content=["x"], category=["test1", "test2"])
        self.assertEqual(self.only_post().categories, ("test1", "test2"))

    def test_202_html(self) -> None:
        html = "<p>This post has <b>bold</b> and <i>italic</i> text.</p>"
        self.create(content=[{"html": html}])
        self.assertEqual(self.only_post().text, "This post has bold and italic text.")

    def test_html_that_is_no_unicode(self) -> None:
        html = "<p>" + "x" * 10_000
        for text, more in ((f"{html}\ud800", 1), (html, 10**30)):
            properties = {"content": [{"html": text}], "x": [more]}
            answer = self.json({"type": ["h-entry"], "properties": properties})
            self.assert_error(answer, 400, "invalid_request", "nobody can read")

    def test_204_nested_object(self) -> None:
        weight = {"type": ["h-measure"], "properties": {"num": ["70.64"], "unit": ["kg"]}}
        self.create(**{"summary": ["Weighed 70.64 kg"], "x-weight": [weight]})
        self.assertEqual(self.only_post().text, "Weighed 70.64 kg")

    def test_205_photo_with_a_text_for_it(self) -> None:
        photo = {"value": PHOTO, "alt": "Photo of a sunset"}
        url = self.create(content=["x"], photo=[photo])
        self.assertEqual(self.source(url)["properties"]["photo"], [photo])
        page = self.ask("GET", url.removeprefix(BROKER)).text
        self.assertIn("Photo of a sunset", page)

    def test_206_photos_by_url(self) -> None:
        url = self.create(content=["x"], photo=[PHOTO, OTHER])
        self.assertEqual(self.source(url)["properties"]["photo"], [PHOTO, OTHER])
        self.assertEqual(self.only_post().items, (OutlineItem("Picture", link=OTHER),))

    def test_300_photo_in_a_form(self) -> None:
        answer = self.files(
            ("h", "entry"), ("content", "Nice sunset"), ("photo", ("sunset.jpg", JPEG))
        )
        self.assert_created(answer)
        enclosure = self.only_post().enclosure
        assert enclosure is not None
        self.assertEqual((enclosure.media_type, enclosure.size), ("image/jpeg", len(JPEG)))

    def test_301_photos_in_a_form(self) -> None:
        answer = self.files(
            ("h", "entry"),
            ("content", "This post should have two photos"),
            ("photo[]", ("sunset.jpg", JPEG)),
            ("photo[]", ("city.png", PNG)),
        )
        photos = self.source(self.assert_created(answer))["properties"]["photo"]
        self.assertEqual([photo[-4:] for photo in photos], [".jpg", ".png"])


class RocksUpdateTests(MicropubTestCase):
    """The tests 400 to 503."""

    def test_400_replace(self) -> None:
        url = self.create(content=["Micropub update test."], category=["a"])
        self.update(url, replace={"content": ["This is the updated text."]})
        post = self.only_post()
        self.assertEqual((post.text, post.categories), ("This is the updated text.", ("a",)))

    def test_401_add(self) -> None:
        url = self.create(content=["x"], category=["test1"])
        self.update(url, add={"category": ["test2", "test1"]})
        self.assertEqual(self.only_post().categories, ("test1", "test2"))

    def test_402_add_to_nothing(self) -> None:
        url = self.create(content=["x"])
        self.update(url, add={"category": ["test1"]})
        self.assertEqual(self.only_post().categories, ("test1",))

    def test_403_remove_a_value(self) -> None:
        url = self.create(content=["x"], category=["test1", "test2"])
        self.update(url, delete={"category": ["test1"]})
        self.assertEqual(self.only_post().categories, ("test2",))

    def test_404_remove_a_property(self) -> None:
        url = self.create(content=["x"], category=["test1"])
        self.update(url, delete=["category"])
        self.assertEqual(self.only_post().categories, ())

    def test_405_operations_that_are_no_arrays(self) -> None:
        url = self.create(content=["x"])
        for wrong in (
            {"replace": "This is not a valid update request."},
            {"replace": {"content": "not an array"}},
            {"add": ["content"]},
            {"delete": "content"},
            {"delete": [1]},
            {"delete": {"content": "x"}},
            {},
        ):
            answer = self.json({"action": "update", "url": url, **wrong})
            self.assert_error(answer, 400, "invalid_request")
        self.assertEqual(self.only_post().text, "x")

    def test_500_delete_by_form(self) -> None:
        url = self.create(content=["x"])
        self.assertEqual(self.form(f"action=delete&url={quote(url, safe='')}").status, 204)
        self.assertEqual(self.posts(), [])

    def test_501_delete_by_json(self) -> None:
        url = self.create(content=["x"])
        self.assertEqual(self.json({"action": "delete", "url": url}).status, 204)
        again = self.json({"action": "delete", "url": url})
        self.assert_error(again, 404, "invalid_request", "no message")

    def test_502_503_a_deleted_message_is_gone(self) -> None:
        url = self.create(content=["x"])
        self.json({"action": "delete", "url": url})
        by_form = self.form(f"action=undelete&url={quote(url, safe='')}")
        self.assert_error(by_form, 400, "invalid_request", "gone")
        self.assert_error(
            self.json({"action": "undelete", "url": url}), 400, "invalid_request", "gone"
        )

    def test_photos(self) -> None:
        sub = OutlineItem("A point")
        url = self.create(content=["x"], photo=[PHOTO])
        self.edit(self.only_post(), self.dave, items=(sub,))
        self.update(url, add={"photo": [OTHER]})
        self.assertEqual(self.source(url)["properties"]["photo"], [PHOTO, OTHER])
        self.update(url, delete={"photo": [PHOTO]})
        self.assertEqual(self.source(url)["properties"]["photo"], [OTHER])
        self.update(url, delete=["photo"])
        post = self.only_post()
        self.assertEqual((post.enclosure, post.items), (None, (sub,)))

    def test_the_outline_stays_where_nothing_is_said_of_files(self) -> None:
        """Items that link to pictures keep their places, and make no enclosure."""
        items = (OutlineItem("Map", link=PHOTO), OutlineItem("Then we went home"))
        picture = self.upload_file(GIF, "a.gif", self.dave)
        for enclosure, text in (("", ""), (picture, "a.gif")):
            post = self.add(
                text, self.dave, enclosure_url=enclosure, enclosure_text=text, items=items
            )
            url = self.writing.feeds.page_url(post)
            self.update(url, add={"category": ["trips"]})
            self.update(url, replace={"content": [{"html": "<p>Home</p>"}]})
            after = self.posts()[0]
            self.assertEqual((after.text, after.categories), ("Home", ("trips",)))
            self.assertEqual((after.items, after.enclosure), (post.items, post.enclosure))
        self.assertEqual(self.web.requests, [])  # no server of a picture is asked

    def test_what_a_message_is_about(self) -> None:
        one, two = "https://page.example/1", "https://page.example/2"
        url = self.create(**{"content": ["x"], "in-reply-to": [one]})
        self.update(url, replace={"bookmark-of": [two]})
        self.assertEqual(self.only_post().link, two)
        self.update(url, delete=["in-reply-to"])
        self.assertEqual(self.only_post().link, "")

    def test_the_link_by_any_of_its_names(self) -> None:
        """It is shown as in-reply-to, whatever made it."""
        page, other = "https://page.example/1", "https://page.example/2"
        deletions: tuple[Any, ...] = (["bookmark-of"], {"bookmark-of": [page]}, ["in-reply-to"])
        for delete in deletions:
            url = self.create(**{"content": ["x"], "bookmark-of": [page]})
            self.update(url, delete={"bookmark-of": [other]})
            self.assertEqual(self.posts()[0].link, page)
            self.update(url, delete=delete)
            self.assertEqual(self.posts()[0].link, "")
            self.update(url, add={"like-of": [other]})
            self.assertEqual(self.posts()[0].link, other)

    def test_a_second_link(self) -> None:
        one, two = "https://page.example/1", "https://page.example/2"
        url = self.create(**{"content": ["x"], "in-reply-to": [one]})
        answer = self.json({"action": "update", "url": url, "add": {"bookmark-of": [two]}})
        self.assert_error(answer, 400, "invalid_request", "use replace")
        self.assertEqual(self.only_post().link, one)
        for name in ("in-reply-to", "bookmark-of"):
            self.update(url, delete=[name], add={"like-of": [two]})
            self.assertEqual(self.only_post().link, two)

    def test_a_sound_stays_the_enclosure(self) -> None:
        sound = "https://micropub.example/media/talk.mp3"
        url = self.create(content=["x"], audio=[sound])
        self.update(url, add={"photo": [PHOTO]})
        enclosure = self.only_post().enclosure
        assert enclosure is not None
        self.assertEqual(enclosure.url, sound)

    def test_publish_a_draft(self) -> None:
        url = self.create(**{"content": ["x"], "post-status": ["draft"]})
        self.assertTrue(self.only_post().is_draft)
        self.assertFalse(self.has_feed())
        self.update(url, replace={"post-status": ["published"]})
        self.assertFalse(self.only_post().is_draft)
        self.assertTrue(self.has_feed())

    def test_an_update_must_be_json(self) -> None:
        url = self.create(content=["x"])
        answer = self.form(f"action=update&url={quote(url, safe='')}&replace[content]=y")
        self.assert_error(answer, 400, "invalid_request", "application/json")


class RocksQueryTests(MicropubTestCase):
    """The tests 600 to 603."""

    def test_600_configuration(self) -> None:
        self.create(content=["x"], category=["cats", "News"])
        config = self.query("q=config")
        self.assertEqual(config["media-endpoint"], f"{BROKER}/micropub/media")
        self.assertEqual(config["syndicate-to"], [])
        self.assertEqual(config["categories"], ["cats", "News"])
        self.assertEqual(self.query("q=category")["categories"], ["cats", "News"])
        self.assertEqual(self.query("q=category&filter=new")["categories"], ["News"])

    def test_602_source(self) -> None:
        text = "Test of querying the endpoint for the source content"
        url = self.create(content=[text], category=["micropub", "test"], name=["T"])
        source = self.source(url)
        self.assertEqual(source["type"], ["h-entry"])
        properties = source["properties"]
        self.assertEqual(properties["content"], [text])
        self.assertEqual(properties["category"], ["micropub", "test"])
        self.assertEqual((properties["name"], properties["url"]), (["T"], [url]))

    def test_603_some_properties(self) -> None:
        url = self.create(content=["x"], category=["micropub", "test"])
        self.assertEqual(
            self.source(url, "&properties[]=category&properties[]=like-of"),
            {"properties": {"category": ["micropub", "test"]}},
        )
        self.assertEqual(
            self.source(url, "&properties=content"), {"properties": {"content": ["x"]}}
        )

    def test_lists(self) -> None:
        for number in range(5):
            self.create(content=[f"Number {number}"])
        first = self.query("q=source&limit=2")
        texts = [each["properties"]["content"][0] for each in first["items"]]
        self.assertEqual(texts, ["Number 4", "Number 3"])
        rest = self.query(f"q=source&limit=10&after={first['paging']['after']}")
        self.assertEqual(len(rest["items"]), 3)
        self.assertNotIn("paging", rest)

    def test_nothing_known(self) -> None:
        for query in ("", "?q=", "?q=everything", "?q=source&limit=x", "?q=source&after=-1"):
            answer = self.ask("GET", f"/micropub{query}", headers=self.bearer(None))
            self.assert_error(answer, 400, "invalid_request")
        answer = self.ask("GET", "/micropub/media?q=config", headers=self.bearer(None))
        self.assert_error(answer, 400, "invalid_request")


class RocksMediaTests(MicropubTestCase):
    """The tests 700 to 702."""

    def test_700_to_702_pictures(self) -> None:
        for data, ending in ((JPEG, "jpg"), (PNG, "png"), (GIF, "gif")):
            answer = self.files(("file", (f"micropub.{ending}", data)), path="/micropub/media")
            self.assertEqual(answer.status, 201, answer.text)
            url = str(answer.headers["location"])
            self.assertTrue(url.endswith(f".{ending}"), url)
            created = self.create(content=["x"], photo=[url])
            self.assertEqual(self.source(created)["properties"]["photo"], [url])
        last = self.query("q=last", "/micropub/media")
        listed = self.query("q=source&limit=2", "/micropub/media")["items"]
        self.assertEqual([last, len(listed)], [listed[0], 2])

    def test_lists_of_files(self) -> None:
        """Each part leads to the next one, as with messages."""
        urls = [self.upload_file(b"%d" % number, "x", self.dave) for number in range(5)]
        found, query = [], "q=source&limit=2"
        while query:
            part = self.query(query, "/micropub/media")
            found += [each["url"] for each in part["items"]]
            after = part.get("paging", {}).get("after")
            query = f"q=source&limit=2&after={after}" if after else ""
        self.assertEqual(found, urls[::-1])

    def test_nothing_uploaded(self) -> None:
        self.assertEqual(self.query("q=last", "/micropub/media"), {})
        self.assertEqual(self.query("q=source", "/micropub/media"), {"items": []})

    def test_names_and_kinds_that_could_do_harm(self) -> None:
        svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
        for name, data in (("../../x", PNG), ("x.svg", svg), ("x.html", b"<script></script>")):
            answer = self.files(("file", (name, data)), path="/micropub/media")
            url = str(answer.headers["location"])
            self.assertRegex(url, r"/people/dave/files/[0-9a-f]{64}\.(png|bin)$")
        self.assertEqual(self.uploads(), ["x.html", "x.svg", "x"])

    def test_other_forms(self) -> None:
        file = ("file", ("x", PNG))
        cases: list[list[Part]] = [[], [("file", "no file")], [("photo", ("x", PNG))], [file, file]]
        for parts in cases:
            answer = self.files(*parts, path="/micropub/media")
            self.assert_error(answer, 400, "invalid_request")
        answer = self.form("file=x", "/micropub/media")
        self.assertEqual(answer.status, 415)
        self.assertEqual(self.uploads(), [])


class SmallFileTests(MicropubTestCase):
    options = WritingOptions(posts_per_minute=10_000, max_upload_bytes=1000)

    def test_a_file_that_is_too_large(self) -> None:
        large = JPEG + bytes(1000)
        answer = self.files(("file", ("x.jpg", large)), path="/micropub/media")
        self.assert_error(answer, 400, "invalid_request", "may have 1,000")
        answer = self.files(("h", "entry"), ("content", "x"), ("photo", ("x.jpg", large)))
        self.assert_error(answer, 400, "invalid_request", "may have 1,000")
        self.assertEqual((self.posts(), self.uploads()), ([], []))

    def test_no_file_is_kept_of_a_message_that_is_refused(self) -> None:
        small: Part = ("photo[]", ("1.jpg", JPEG))
        large: Part = ("photo[]", ("2.jpg", JPEG + bytes(1000)))
        cases: list[list[Part]] = [
            [("content", "x"), small, large],
            [("content", "x"), small, ("photo[]", ("3.jpg", b""))],
            [("content", "x" * 141), small],
            [("content", "x"), ("post-status", "secret"), small],
            [("content", "x"), small, ("attachment", ("x", PNG))],
        ]
        for parts in cases:
            self.assert_error(self.files(*parts), 400, "invalid_request")
        self.assertEqual((self.posts(), self.uploads()), ([], []))

    def test_a_photo_alone(self) -> None:
        self.assert_created(self.files(("photo", ("x.jpg", JPEG))))


class RocksTokenTests(MicropubTestCase):
    """The tests 800 to 805."""

    def test_who_asks_is_known_before_a_large_body_is_read(self) -> None:
        """Strangers cannot have the broker parse files and JSON: broken ones are not looked at."""
        for kind in ("multipart/form-data; boundary=x", "multipart/form-data", "application/json"):
            for path in ("/micropub", "/micropub/media")[: 1 if "json" in kind else 2]:
                answer = self.ask("POST", path, b"broken", {"Content-Type": kind})
                self.assert_error(answer, 401, "unauthorized", "Authorization: Bearer")
        answer = self.files(("access_token", self.token), ("content", "x"), token="")
        self.assert_error(answer, 401, "unauthorized")
        answer = self.files(("access_token", self.token), ("content", "x"))
        self.assert_error(answer, 400, "invalid_request", "twice")
        self.assertEqual(self.posts(), [])

    def test_802_the_token_is_not_stored(self) -> None:
        self.assert_created(self.form(f"h=entry&content=x&access_token={self.token}", token=""))
        self.assertNotIn(self.token, repr(self.only_post()))

    def test_803_no_token(self) -> None:
        answer = self.form("h=entry&content=x", token="")
        self.assert_error(answer, 401, "unauthorized", "/account")
        self.assertIn("Bearer", answer.headers["www-authenticate"])
        answer = self.form("h=entry&content=x", token="rsb_nonsense")
        self.assert_error(answer, 401, "unauthorized")
        by_query = self.ask(
            "POST",
            f"/micropub?access_token={self.token}",
            b"h=entry&content=x",
            {"Content-Type": FORM},
        )
        self.assert_error(by_query, 401, "unauthorized")
        for path in ("/micropub?q=config", "/micropub/media?q=last"):
            self.assert_error(self.ask("GET", path), 401, "unauthorized")
        answer = self.files(("file", ("x", PNG)), path="/micropub/media", token="")
        self.assert_error(answer, 401, "unauthorized")
        self.assertEqual((self.posts(), self.uploads()), ([], []))

    def test_804_a_token_without_the_scope(self) -> None:
        token = self.house.token("metrics")
        answer = self.form("h=entry&content=x", token=token)
        self.assert_error(answer, 401, "insufficient_scope", "publish")
        self.assertIn("insufficient_scope", answer.headers["www-authenticate"])
        self.assertEqual(json.loads(answer.body)["scope"], "publish")
        self.assertEqual(self.posts(), [])

    def test_805_two_tokens(self) -> None:
        answer = self.form(f"h=entry&content=x&access_token={self.token}")
        self.assert_error(answer, 400, "invalid_request", "twice")
        self.assertEqual(self.posts(), [])

    def test_a_session_of_a_browser_does_not_count(self) -> None:
        signed_in = self.result(self.house.accounts.sign_in(SignIn("dave", PASSWORD, "192.0.2.7")))
        cookie = {"Cookie": f"rsscloud-session={signed_in.secret}", "Content-Type": FORM}
        answer = self.ask("POST", "/micropub", b"h=entry&content=x", cookie)
        self.assert_error(answer, 401, "unauthorized")


class BadInputTests(MicropubTestCase):
    def assert_invalid(self, answer: Answer, text: str = "") -> None:
        self.assert_error(answer, 400, "invalid_request", text)
        self.assertEqual(self.posts(), [])

    def test_bodies(self) -> None:
        for body in (b"", b"nonsense", b"[]", b'"x"', b"{", b"\xff"):
            self.assert_invalid(self.json(body))
        self.assert_invalid(self.json(b"[" * 100_000), "nested too deeply")
        self.assert_invalid(self.json({}), "properties")
        self.assert_invalid(self.json({"fields": [["content", "x"]]}), "properties")
        self.assert_invalid(self.form(""))
        self.assert_invalid(self.json(b" " * (1024 * 1024 + 1)), "at most")
        wrong = {**self.bearer(None), "Content-Type": "multipart/form-data; boundary=x"}
        self.assert_invalid(self.ask("POST", "/micropub", b"nonsense", wrong), "form")
        answer = self.ask("POST", "/micropub", b"x", {**wrong, "Content-Type": "text/plain"})
        self.assertEqual(answer.status, 415)

    def test_types(self) -> None:
        self.assert_invalid(self.json({"type": ["h-event"], "properties": {}}), "h-entry")
        self.assert_invalid(self.form("h=card&name=x"), "entry")
        cases: list[Any] = [
            [],
            {"content": "no array"},
            {"content": [1]},
            {"content": [["x"]]},
            {"content": [{"html": 1}]},
            {"content": [{"markdown": "x"}]},
            {"content": ["x"], "category": [1]},
            {"content": ["x"], "category": [{"value": []}]},
            {"content": ["x"], "photo": [1]},
            {"content": ["x"], "photo": [{"alt": "x"}]},
            {"content": ["x"], "photo": [{"value": "http://a.example/x.jpg", "alt": 1}]},
            {"content": ["x"], "photo": ["no url"]},
            {"content": ["x"], "photo": ["javascript:alert(1)"]},
            {"content": ["x"], "in-reply-to": ["javascript:alert(1)"]},
            {"content": ["x"], "in-reply-to": [{"type": ["h-cite"], "properties": {}}]},
            {"content": ["x"], "post-status": ["secret"]},
            {"content": ["x"], "visibility": ["private"]},
            {"content": ["x" * 141]},
            {"content": ["x"], "category": [f"c{n}" for n in range(100_000)]},
            {"content": [{"html": "<p>" * 300_000}]},
            {"content": []},
        ]
        for properties in cases:
            with self.subTest(properties):
                self.assert_invalid(self.json({"type": ["h-entry"], "properties": properties}))

    def test_actions(self) -> None:
        for document in (
            {"action": "publish", "url": f"{BROKER}/people/dave/1"},
            {"action": ["update"], "url": f"{BROKER}/people/dave/1"},
            {"action": "delete"},
            {"action": "delete", "url": 1},
        ):
            self.assert_invalid(self.json(document))

    def test_messages_of_others(self) -> None:
        theirs = self.add("Hers", self.anna)
        url = f"{BROKER}/people/anna/{theirs.id}"
        for document in (
            {"action": "delete", "url": url},
            {"action": "update", "url": url, "replace": {"content": ["Mine"]}},
            {"action": "delete", "url": f"{BROKER}/people/dave/{theirs.id}"},
            {"action": "delete", "url": f"{BROKER}/people/dave/99999999999999999999"},
            {"action": "delete", "url": f"{BROKER}/people/dave/²"},
            {"action": "delete", "url": f"https://elsewhere.example/people/dave/{theirs.id}"},
        ):
            self.assert_error(self.json(document), 404, "invalid_request", "no message")
        answer = self.ask(
            "GET", f"/micropub?q=source&url={quote(url, safe='')}", headers=self.bearer(None)
        )
        self.assert_error(answer, 404, "invalid_request", "no message")
        self.assertEqual([post.text for post in self.posts("anna")], ["Hers"])

    def test_url_that_is_not_that_of_the_message(self) -> None:
        """Although it ends in the number of one."""
        number = self.create(content=["x"]).rpartition("/")[2]
        for place in ("https://elsewhere.example/people/dave/", f"{BROKER}/", ""):
            answer = self.json({"action": "delete", "url": f"{place}{number}"})
            self.assert_error(answer, 404, "invalid_request", "no message")
        self.assertEqual(self.only_post().text, "x")

    def test_a_full_disk(self) -> None:
        self.disk.full = True
        for answer in (
            self.form("h=entry&content=x"),
            self.files(("file", ("x", PNG)), path="/micropub/media"),
        ):
            self.assert_error(answer, 503, "temporarily_unavailable", "tell the operator")
        self.assertEqual((self.posts(), self.uploads()), ([], []))

    def test_two_values_for_what_has_one(self) -> None:
        url = self.create(content=["x"])
        answer = self.json({"action": "update", "url": url, "add": {"content": ["y"]}})
        self.assert_error(answer, 400, "invalid_request", "replace")

    def test_a_blocked_feed(self) -> None:
        self.blocks.change([Block("topic", FEED, "spam", "root", 0.0)])
        self.assert_error(self.form("content=x"), 403, "forbidden", "spam")
        self.assertEqual(self.posts(), [])

    def test_too_many_fields(self) -> None:
        answer = self.form("content=x" + "&category[]=c" * 1001)
        self.assertEqual((answer.status, self.posts()), (413, []))

    def test_forms_without_files_are_not_as_large_as_files(self) -> None:
        """The site parses them, those of strangers too, while everybody else waits."""
        text = "x" * (MAX_OVERHEAD + 1)
        answer = self.form(f"content={text}", token="")
        self.assertEqual((answer.status, self.posts()), (413, []))
        picture = PNG + text.encode()
        self.assert_created(self.files(("content", "x"), ("photo", ("x", picture))))


class SlowDownTests(MicropubTestCase):
    options = WritingOptions(posts_per_minute=1)

    def test_too_many(self) -> None:
        self.create(content=["x"])
        answer = self.json({"type": ["h-entry"], "properties": {"content": ["y"]}})
        self.assert_error(answer, 429, "too_many_requests")
        self.assertGreater(int(answer.headers["retry-after"]), 0)

    def test_more_files_than_may_be_uploaded(self) -> None:
        """It would be refused whenever it came, and would leave the first files over."""
        answer = self.files(("photo[]", ("1.jpg", JPEG)), ("photo[]", ("2.png", PNG)))
        self.assert_error(answer, 400, "invalid_request", "send some of them to /micropub/media")
        self.assertEqual((self.posts(), self.uploads()), ([], []))


class ClientTests(MicropubTestCase):
    """What clients send beside what the specification shows."""

    def test_quill_bookmark_like_and_repost(self) -> None:
        page = "https://page.example/1"
        for name, text in (
            ("bookmark-of", f"Bookmarked {page}"),
            ("like-of", f"Liked {page}"),
            ("repost-of", f"Reposted {page}"),
        ):
            url = self.assert_created(self.form(f"h=entry&{name}={quote(page, safe='')}"))
            post = self.posts()[0]
            self.assertEqual((post.text, post.link), (text, page))
            self.assertEqual(self.source(url)["properties"]["in-reply-to"], [page])

    def test_indigenous_reply(self) -> None:
        page = "https://page.example/1"
        body = (
            f"h=entry&content=Yes&in-reply-to={quote(page, safe='')}&visibility=public&published=x"
        )
        self.assert_created(self.form(body))
        self.assertEqual(self.only_post().link, page)

    def test_dates(self) -> None:
        """No message is published later; all other dates are ignored."""
        late = "2099-12-31T00:00:00Z"
        for sent in (late, late[:-1], late[:10], "2099-12-31T00:00:00+01:00"):
            answer = self.form(f"content=x&published={quote(sent)}")
            self.assert_error(answer, 400, "invalid_request", "published is in the future")
        self.assertEqual(self.posts(), [])
        url = self.create(**{"content": ["x"], "published": [late], "post-status": ["draft"]})
        replaced = {"post-status": ["published"]}
        self.update(url, replace=replaced)
        self.update(url, replace=replaced | {"published": ["2001-01-01T00:00:00Z"]})
        answer = self.json({"action": "update", "url": url, "replace": {"published": [late]}})
        self.assert_error(answer, 400, "invalid_request", "published is in the future")
        others: list[Any] = ["0001-01-01T00:00:00", "now", 7, []]
        for other in others:
            self.create(content=["y"], published=[other])

    def test_the_date_of_a_message_from_before_the_clock_was_set_back(self) -> None:
        self.clock.set_wall(DAY)
        url = self.create(content=["Ahead"])
        self.clock.set_wall(-DAY)
        self.update(url, replace={"content": ["Edited"]})
        self.assertEqual(self.only_post().text, "Edited")

    def test_html_in_a_form(self) -> None:
        html = quote('<p>See <a href="https://a.example/">this</a></p>')
        self.assert_created(self.form(f"h=entry&name=Title&content[html]={html}"))
        post = self.only_post()
        self.assertEqual(
            (post.title, post.text, post.link), ("Title", "See this", "https://a.example/")
        )

    def test_pictures_in_html(self) -> None:
        html = f'<p>One</p><img src="{PHOTO}"><img src="{OTHER}" alt="City">'
        url = self.create(content=[{"html": html}], photo=[OTHER])
        photos = self.source(url)["properties"]["photo"]
        self.assertEqual(photos, [{"value": OTHER, "alt": "City"}, PHOTO])

    def test_photos_with_texts_in_a_form(self) -> None:
        body = (
            f"content=x&photo[value]={quote(PHOTO)}&photo[alt]=Sunset&photo[value]={quote(OTHER)}"
        )
        url = self.assert_created(self.form(body))
        photos = self.source(url)["properties"]["photo"]
        self.assertEqual(photos, [{"value": PHOTO, "alt": "Sunset"}, OTHER])

    def test_characters_beyond_ascii_in_a_form(self) -> None:
        """Percent-encoded or as they are, in UTF-8 or as old tools send them."""
        for sent, text in (
            (b"Gr%C3%BC%C3%9Fe+%E2%98%83", "Gr\u00fc\u00dfe \u2603"),
            ("Gr\u00fc\u00dfe".encode(), "Gr\u00fc\u00dfe"),
            (b"%F0%9F%98%80", "\U0001f600"),
            (b"Gr%FC\xdfe", "Gr\u00fc\u00dfe"),
        ):
            with self.subTest(sent):
                headers = {"Content-Type": FORM, **self.bearer(None)}
                answer = self.ask("POST", "/micropub", b"h=entry&content=" + sent, headers)
                self.assert_created(answer)
                self.assertEqual(self.posts()[0].text, text)

    def test_a_url_beyond_ascii_in_a_form(self) -> None:
        url = quote(f"{BROKER}/people/dave/\u00fc", safe="")
        self.assert_error(self.form(f"action=delete&url={url}"), 404, "invalid_request")
        self.assert_error(self.form("action=\u00fc&url=x"), 400, "invalid_request")

    def test_scripts_of_other_sites(self) -> None:
        answer = self.ask("OPTIONS", "/micropub", headers={"Origin": "https://client.example"})
        self.assertEqual(answer.headers["access-control-allow-origin"], "*")
        self.assertIn("authorization", answer.headers["access-control-allow-headers"])
        self.assertIn("POST", answer.headers["access-control-allow-methods"])
        created = self.form("content=x")
        self.assertIn("location", created.headers["access-control-expose-headers"])

    def test_discovery(self) -> None:
        self.create(content=["x"])
        page = self.ask("GET", "/people/dave")
        self.assertIn(f'<{BROKER}/micropub>; rel="micropub"', page.headers["link"])
        self.assertIn(f'<link rel="micropub" href="{BROKER}/micropub"', page.text)
