"""Micropub: the requests of the test suite micropub.rocks by number, and those of clients."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from rsscloud_broker.apps.writing.micropub_requests import MAX_OVERHEAD
from rsscloud_broker.apps.writing.model import NewPost, OutlineItem
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.interfaces import SignIn
from rsscloud_broker.model.administration import Block
from rsscloud_broker.wire.units import DAY
from tests.accounts.fixture import PASSWORD
from tests.apps.writing.house import ANNA, BROKER, FEED, GIF, JPEG, PNG, PostingTestCase
from tests.front_doors.exchange import FORM, Answer
from tests.web.file_form import Part

PHOTO = "https://micropub.example/media/sunset.jpg"
OTHER = "https://micropub.example/media/city-at-night.jpg"
SOUND = "https://micropub.example/media/talk.mp3"
PAGE, PAGE_2 = "https://page.example/1", "https://page.example/2"
MEDIA = "/micropub/media"


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

    def assert_invalid(self, answer: Answer, text: str = "") -> None:
        self.assert_error(answer, 400, "invalid_request", text)

    def assert_no_message(self, answer: Answer) -> None:
        self.assert_error(answer, 404, "invalid_request", "no message")

    def assert_nothing_stored(self) -> None:
        self.assertEqual((self.posts(), self.uploads()), ([], []))

    def create_answer(self, properties: Any) -> Answer:
        return self.json({"type": ["h-entry"], "properties": properties})

    def create(self, properties: Mapping[str, Any] | None = None, **more: Any) -> str:
        """Create a message by JSON; its URL."""
        return self.assert_created(
            self.create_answer({"content": ["x"], **(properties or {}), **more})
        )

    def send(self, sent: str | Mapping[str, Any]) -> str:
        """Create a message by a form or by JSON; its URL."""
        return (
            self.create(sent) if isinstance(sent, Mapping) else self.assert_created(self.form(sent))
        )

    def update_answer(self, url: str, **operations: Any) -> Answer:
        return self.json({"action": "update", "url": url, **operations})

    def update(self, url: str, **operations: Any) -> None:
        answer = self.update_answer(url, **operations)
        self.assertEqual((answer.status, answer.body), (204, b""), answer.text)

    def source(self, url: str, more: str = "") -> Any:
        return self.query(f"q=source&url={quote(url, safe='')}{more}")

    def photos(self, url: str) -> Any:
        return self.source(url)["properties"].get("photo")


class CreateTests(MicropubTestCase):
    """The tests 100 to 301."""

    def test_what_becomes_of_a_message(self) -> None:
        """With the numbers of the tests, and the names of clients."""
        page, photo = quote(PAGE, safe=""), quote(PHOTO, safe="")
        html = '<p>See <a href="https://a.example/">this</a></p>'
        weight = {"type": ["h-measure"], "properties": {"num": ["70.64"], "unit": ["kg"]}}
        names, two = ["test1", "test2"], ("test1", "test2")
        cases: Sequence[tuple[str | Mapping[str, Any], NewPost]] = (
            ("h=entry&content=100+basic", NewPost("100 basic")),
            ("content=101&category[]=test1&category[]=test2", NewPost("101", categories=two)),
            (f"content=104&photo={photo}", NewPost("104", enclosure_url=PHOTO)),
            ("content=105&mp-syndicate-to=https://t.example/", NewPost("105")),
            ("content=107&category=test1", NewPost("107", categories=("test1",))),
            ({"content": ["200"]}, NewPost("200")),
            ({"content": [{"value": "An object"}]}, NewPost("An object")),
            ({"content": ["201"], "category": names}, NewPost("201", categories=two)),
            ({"content": [{"html": "<p>202 <b>bold</b></p>"}]}, NewPost("202 bold")),
            ({"content": [], "summary": ["204"], "x-weight": [weight]}, NewPost("204")),
            (f"h=entry&bookmark-of={page}", NewPost(f"Bookmarked {PAGE}", link=PAGE)),  # Quill
            (f"h=entry&like-of={page}", NewPost(f"Liked {PAGE}", link=PAGE)),
            (f"h=entry&repost-of={page}", NewPost(f"Reposted {PAGE}", link=PAGE)),
            (f"content=Yes&in-reply-to={page}&visibility=public&published=x",  # Indigenous
             NewPost("Yes", link=PAGE)),
            (f"h=entry&name=Title&content[html]={quote(html)}",
             NewPost("See this", "Title", "https://a.example/")),
        )  # fmt: skip
        for sent, expected in cases:
            url = self.send(sent)
            self.assertEqual(self.posts()[0].as_new(), expected)
            if expected.link:
                self.assertEqual(self.source(url)["properties"]["in-reply-to"], [expected.link])
        self.assertEqual(self.ask("GET", url.removeprefix(BROKER)).status, 200)
        self.assertIn(b"100 basic", self.feed())

    def test_photos(self) -> None:
        """The tests 205 and 206, and pictures in HTML and in forms."""
        sunset, city = {"value": PHOTO, "alt": "Sunset"}, {"value": OTHER, "alt": "City"}
        html = f'<p>One</p><img src="{PHOTO}"><img src="{OTHER}" alt="City">'
        form = (
            f"content=x&photo[value]={quote(PHOTO)}&photo[alt]=Sunset&photo[value]={quote(OTHER)}"
        )
        cases: Sequence[tuple[str | Mapping[str, Any], list[Any]]] = (
            ({"content": ["205"], "photo": [sunset]}, [sunset]),
            ({"content": ["206"], "photo": [PHOTO, OTHER]}, [PHOTO, OTHER]),
            ({"content": [{"html": html}], "photo": [OTHER]}, [city, PHOTO]),
            (form, [sunset, OTHER]),
        )
        for sent, photos in cases:
            url = self.send(sent)
            self.assertEqual(self.photos(url), photos)
        self.assertIn("Sunset", self.ask("GET", url.removeprefix(BROKER)).text)
        self.assertEqual(self.posts()[2].items, (OutlineItem("Picture", link=OTHER),))

    def test_photos_in_a_form_with_files(self) -> None:
        """The tests 300 and 301."""
        self.assert_created(
            self.files(("h", "entry"), ("content", "x"), ("photo", ("1.jpg", JPEG)))
        )
        file = self.newest_file()
        self.assertEqual((file.media_type, file.size), ("image/jpeg", len(JPEG)))
        files: list[Part] = [("photo[]", ("1.jpg", JPEG)), ("photo[]", ("2.png", PNG))]
        photos = self.photos(self.assert_created(self.files(("content", "two"), *files)))
        self.assertEqual([photo[-4:] for photo in photos], [".jpg", ".png"])

    def test_html_that_is_no_unicode(self) -> None:
        html = "<p>" + "x" * 10_000
        for text, more in ((f"{html}\ud800", 1), (html, 10**30)):
            answer = self.create_answer({"content": [{"html": text}], "x": [more]})
            self.assert_invalid(answer, "nobody can read")


class UpdateTests(MicropubTestCase):
    """The tests 400 to 503."""

    def test_what_becomes_of_a_message(self) -> None:
        """With the numbers of the tests; the link is meant by any of its names."""
        one, two = {"category": ["test1"]}, {"category": ["test1", "test2"]}
        reply, bookmark = {"in-reply-to": [PAGE]}, {"bookmark-of": [PAGE]}
        other, picture = {"like-of": [PAGE_2]}, (OutlineItem("Picture", link=PHOTO),)
        cases: Sequence[tuple[str, Any, Mapping[str, Any], Mapping[str, Any]]] = (
            ("400", one, {"replace": two}, {"categories": ("test1", "test2")}),
            ("401", one, {"add": two}, {"categories": ("test1", "test2")}),
            ("402", {}, {"add": one}, {"categories": ("test1",)}),
            ("403", two, {"delete": one}, {"categories": ("test2",)}),
            ("404", one, {"delete": ["category"]}, {}),
            ("one link by another", reply, {"replace": other}, {"link": PAGE_2}),
            ("a reply", reply, {"delete": ["in-reply-to"]}, {}),
            ("a bookmark", bookmark, {"delete": ["bookmark-of"]}, {}),
            ("a bookmark by value", bookmark, {"delete": bookmark}, {}),
            ("a bookmark as it is shown", bookmark, {"delete": ["in-reply-to"]}, {}),
            ("another link", bookmark, {"delete": {"bookmark-of": [PAGE_2]}}, {"link": PAGE}),
            ("a link that is added", {}, {"add": other}, {"link": PAGE_2}),
            ("a like", reply, {"delete": ["in-reply-to"], "add": other}, {"link": PAGE_2}),
            ("by any name", reply, {"delete": ["bookmark-of"], "add": other}, {"link": PAGE_2}),
            (
                "a sound stays the enclosure",
                {"audio": [SOUND]},
                {"add": {"photo": [PHOTO]}},
                {"enclosure_url": SOUND, "items": picture},
            ),
        )
        for name, before, operations, expected in cases:
            url = self.create(before, content=[name])
            self.update(url, **operations)
            self.assertEqual(self.posts()[0].as_new(), NewPost(name, **expected))
        self.update(url, replace={"content": ["This is the updated text."]})
        self.assertEqual(self.posts()[0].text, "This is the updated text.")

    def test_updates_that_are_refused(self) -> None:
        """The test 405: operations that are no arrays; and second values for what has one."""
        url = self.create({"in-reply-to": [PAGE]})
        before = self.posts()
        cases: Sequence[tuple[Mapping[str, Any], str]] = (
            ({"replace": "This is not a valid update request."}, "object of arrays"),
            ({"replace": {"content": "not an array"}}, "object of arrays"),
            ({"add": ["content"]}, "object of arrays"),
            ({"delete": "content"}, "array of names"),
            ({"delete": [1]}, "array of names"),
            ({"delete": {"content": "x"}}, "object of arrays"),
            ({}, "needs replace, add or delete"),
            ({"add": {"content": ["y"]}}, "use replace"),
            ({"add": {"bookmark-of": [PAGE_2]}}, "use replace"),
        )
        for operations, said in cases:
            self.assert_invalid(self.update_answer(url, **operations), said)
        form = f"action=update&url={quote(url, safe='')}&replace[content]=y"
        self.assert_invalid(self.form(form), "application/json")
        self.assertEqual(self.posts(), before)

    def test_deleted_messages(self) -> None:
        """The tests 500 to 503."""
        by_form, by_json = self.create(), self.create(content=["y"])
        form = f"action=delete&url={quote(by_form, safe='')}"
        self.assertEqual(self.form(form).status, 204)
        deletion = {"action": "delete", "url": by_json}
        self.assertEqual(self.json(deletion).status, 204)
        self.assertEqual(self.posts(), [])
        self.assert_no_message(self.json(deletion))
        self.assert_invalid(self.form(form.replace("delete", "undelete")), "gone")
        self.assert_invalid(self.json(deletion | {"action": "undelete"}), "gone")

    def test_photos(self) -> None:
        sub = OutlineItem("A point")
        url = self.create(photo=[PHOTO])
        self.edit(self.only_post(), items=(sub,))
        for operations, photos in (
            ({"add": {"photo": [OTHER]}}, [PHOTO, OTHER]),
            ({"delete": {"photo": [PHOTO]}}, [OTHER]),
            ({"delete": ["photo"]}, None),
        ):
            self.update(url, **operations)
            self.assertEqual(self.photos(url), photos)
        post = self.only_post()
        self.assertEqual((post.enclosure, post.items), (None, (sub,)))

    def test_the_outline_stays_where_nothing_is_said_of_files(self) -> None:
        """Items that link to pictures keep their places, and make no enclosure."""
        items = (OutlineItem("Map", link=PHOTO), OutlineItem("Then we went home"))
        picture = self.upload_file(GIF)
        for enclosure, text in (("", ""), (picture, "a.gif")):
            post = self.add(text, enclosure_url=enclosure, enclosure_text=text, items=items)
            url = self.writing.feeds.page_url(post)
            self.update(url, add={"category": ["trips"]})
            self.update(url, replace={"content": [{"html": "<p>Home</p>"}]})
            after = self.posts()[0]
            self.assertEqual((after.text, after.categories), ("Home", ("trips",)))
            self.assertEqual((after.items, after.enclosure), (post.items, post.enclosure))
        self.assertEqual(self.web.requests, [])  # no server of a picture is asked

    def test_publish_a_draft(self) -> None:
        url = self.create({"post-status": ["draft"]})
        self.assertEqual((self.only_post().is_draft, self.has_feed()), (True, False))
        self.update(url, replace={"post-status": ["published"]})
        self.assertEqual((self.only_post().is_draft, self.has_feed()), (False, True))


class QueryTests(MicropubTestCase):
    """The tests 600 to 603."""

    def test_600_configuration(self) -> None:
        self.create(category=["cats", "News"])
        config = self.query("q=config")
        self.assertEqual(config["media-endpoint"], f"{BROKER}/micropub/media")
        self.assertEqual(config["syndicate-to"], [])
        self.assertEqual(config["categories"], ["cats", "News"])
        self.assertEqual(self.query("q=category")["categories"], ["cats", "News"])
        self.assertEqual(self.query("q=category&filter=new")["categories"], ["News"])

    def test_602_603_source(self) -> None:
        names = ["micropub", "test"]
        url = self.create(content=["Some text"], category=names, name=["T"])
        source = self.source(url)
        self.assertEqual(source["type"], ["h-entry"])
        expected = {"content": ["Some text"], "category": names, "name": ["T"], "url": [url]}
        self.assertEqual(source["properties"], source["properties"] | expected)
        for asked, found in (
            ("&properties[]=category&properties[]=like-of", {"category": names}),
            ("&properties=content", {"content": ["Some text"]}),
        ):
            self.assertEqual(self.source(url, asked), {"properties": found})

    def listed(self, path: str) -> list[Any]:
        """All entries of a list, of which each part leads to the next one."""
        found, query = [], "q=source&limit=2"
        while query:
            part = self.query(query, path)
            found += part["items"]
            after = part.get("paging", {}).get("after")
            query = f"q=source&limit=2&after={after}" if after else ""
        return found

    def test_lists(self) -> None:
        urls = [self.upload_file(b"%d" % number) for number in range(5)]
        for number in range(5):
            self.create(content=[f"{number}"])
        posts = [each["properties"]["content"] for each in self.listed("/micropub")]
        self.assertEqual(posts, [["4"], ["3"], ["2"], ["1"], ["0"]])
        self.assertEqual([each["url"] for each in self.listed(MEDIA)], urls[::-1])

    def test_nothing_known(self) -> None:
        for query in ("", "?q=", "?q=everything", "?q=source&limit=x", "?q=source&after=-1",
                      "/media?q=config"):  # fmt: skip
            self.assert_invalid(self.ask("GET", f"/micropub{query}", headers=self.bearer(None)))


class MediaTests(MicropubTestCase):
    """The tests 700 to 702."""

    def test_700_to_702_pictures(self) -> None:
        self.assertEqual(self.query("q=last", MEDIA), {})
        self.assertEqual(self.query("q=source", MEDIA), {"items": []})
        for data, ending in ((JPEG, "jpg"), (PNG, "png"), (GIF, "gif")):
            answer = self.files(("file", (f"micropub.{ending}", data)), path=MEDIA)
            self.assertEqual(answer.status, 201, answer.text)
            url = str(answer.headers["location"])
            self.assertTrue(url.endswith(f".{ending}"), url)
            self.assertEqual(self.photos(self.create(content=[ending], photo=[url])), [url])
        last = self.query("q=last", MEDIA)
        listed = self.query("q=source&limit=2", MEDIA)["items"]
        self.assertEqual([last, len(listed)], [listed[0], 2])

    def test_other_forms(self) -> None:
        file = ("file", ("x", PNG))
        cases: list[list[Part]] = [[], [("file", "no file")], [("photo", ("x", PNG))], [file, file]]
        for parts in cases:
            self.assert_invalid(self.files(*parts, path=MEDIA))
        answer = self.form("file=x", MEDIA)
        self.assertEqual(answer.status, 415)
        self.assertEqual(self.uploads(), [])


class SmallFileTests(MicropubTestCase):
    options = WritingOptions(posts_per_minute=10_000, max_upload_bytes=1000)

    def test_no_file_is_kept_of_a_message_that_is_refused(self) -> None:
        large, small = ("2.jpg", JPEG + bytes(1000)), ("photo[]", ("1.jpg", JPEG))
        self.assert_invalid(self.files(("file", large), path=MEDIA), "may have 1,000")
        cases: list[tuple[str, list[Part]]] = [
            ("may have 1,000", [("content", "x"), small, ("photo[]", large)]),
            ("must have some", [("content", "x"), small, ("photo[]", ("3.jpg", b""))]),
            ("too many", [("content", "x" * 141), small]),
            ("post-status", [("content", "x"), ("post-status", "secret"), small]),
            ("named photo", [("content", "x"), small, ("attachment", ("x", PNG))]),
        ]
        for said, parts in cases:
            self.assert_invalid(self.files(*parts), said)
        self.assert_nothing_stored()
        self.assert_created(self.files(("photo", ("x.jpg", JPEG))))


class TokenTests(MicropubTestCase):
    """The tests 800 to 805."""

    def test_who_asks_is_known_before_a_large_body_is_read(self) -> None:
        """Strangers cannot have the broker parse files and JSON: broken ones are not looked at."""
        for kind in ("multipart/form-data; boundary=x", "multipart/form-data", "application/json"):
            for path in ("/micropub", "/micropub/media")[: 1 if "json" in kind else 2]:
                answer = self.ask("POST", path, b"broken", {"Content-Type": kind})
                self.assert_error(answer, 401, "unauthorized", "Authorization: Bearer")
        answer = self.files(("access_token", self.token), ("content", "x"), token="")
        self.assert_error(answer, 401, "unauthorized")
        self.assertEqual(self.posts(), [])

    def test_802_the_token_is_not_stored(self) -> None:
        self.assert_created(self.form(f"h=entry&content=x&access_token={self.token}", token=""))
        self.assertNotIn(self.token, repr(self.only_post()))

    def test_803_no_token(self) -> None:
        answer = self.form("h=entry&content=x", token="")
        self.assert_error(answer, 401, "unauthorized", "/account")
        self.assertIn("Bearer", answer.headers["www-authenticate"])
        in_query = f"/micropub?access_token={self.token}"
        for answer in (
            self.form("h=entry&content=x", token="rsb_nonsense"),
            self.ask("POST", in_query, b"h=entry&content=x", {"Content-Type": FORM}),
            self.ask("GET", "/micropub?q=config"),
            self.ask("GET", f"{MEDIA}?q=last"),
            self.files(("file", ("x", PNG)), path=MEDIA, token=""),
        ):
            self.assert_error(answer, 401, "unauthorized")
        self.assert_nothing_stored()

    def test_804_a_token_without_the_scope(self) -> None:
        token = self.house.token("metrics")
        answer = self.form("h=entry&content=x", token=token)
        self.assert_error(answer, 401, "insufficient_scope", "publish")
        self.assertIn("insufficient_scope", answer.headers["www-authenticate"])
        self.assertEqual(json.loads(answer.body)["scope"], "publish")
        self.assertEqual(self.posts(), [])

    def test_805_two_tokens(self) -> None:
        for answer in (
            self.form(f"h=entry&content=x&access_token={self.token}"),
            self.files(("access_token", self.token), ("content", "x")),
        ):
            self.assert_invalid(answer, "twice")
        self.assertEqual(self.posts(), [])

    def test_a_session_of_a_browser_does_not_count(self) -> None:
        signed_in = self.result(self.house.accounts.sign_in(SignIn("dave", PASSWORD, "192.0.2.7")))
        cookie = {"Cookie": f"rsscloud-session={signed_in.secret}", "Content-Type": FORM}
        answer = self.ask("POST", "/micropub", b"h=entry&content=x", cookie)
        self.assert_error(answer, 401, "unauthorized")


class BadInputTests(MicropubTestCase):
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
        self.assert_nothing_stored()

    def test_types(self) -> None:
        self.assert_invalid(self.json({"type": ["h-event"], "properties": {}}), "h-entry")
        self.assert_invalid(self.form("h=card&name=x"), "entry")
        large_html, many = {"html": "<p>" * 300_000}, [f"c{n}" for n in range(100_000)]
        contents = (1, ["x"], {"html": 1}, {"markdown": "x"}, "x" * 141, large_html)
        categories: list[Any] = [[1], [{"value": []}], many]
        without_text = {"value": PHOTO, "alt": 1}
        photos = (1, {"alt": "x"}, without_text, "no url", "javascript:alert(1)")
        cases: list[Any] = [
            [],
            {"content": "no array"},
            {"content": []},
            *({"content": [content]} for content in contents),
            *({"content": ["x"], "category": names} for names in categories),
            *({"content": ["x"], "photo": [photo]} for photo in photos),
            {"content": ["x"], "in-reply-to": ["javascript:alert(1)"]},
            {"content": ["x"], "in-reply-to": [{"type": ["h-cite"], "properties": {}}]},
            {"content": ["x"], "post-status": ["secret"]},
            {"content": ["x"], "visibility": ["private"]},
        ]
        for properties in cases:
            self.assert_invalid(self.create_answer(properties))
        self.assert_nothing_stored()

    def test_actions(self) -> None:
        for document in (
            {"action": "publish", "url": f"{BROKER}/people/dave/1"},
            {"action": ["update"], "url": f"{BROKER}/people/dave/1"},
            {"action": "delete"},
            {"action": "delete", "url": 1},
        ):
            self.assert_invalid(self.json(document))

    def test_messages_of_others(self) -> None:
        theirs = self.add("Hers", ANNA)
        url, people = f"{BROKER}/people/anna/{theirs.id}", f"{BROKER}/people/dave"
        for other in (url, *(f"{people}/{number}" for number in (theirs.id, "9" * 20, "²"))):
            self.assert_no_message(self.json({"action": "delete", "url": other}))
        self.assert_no_message(self.update_answer(url, replace={"content": ["Mine"]}))
        query = f"/micropub?q=source&url={quote(url, safe='')}"
        self.assert_no_message(self.ask("GET", query, headers=self.bearer(None)))
        self.assertEqual([post.text for post in self.posts(ANNA)], ["Hers"])

    def test_url_that_is_not_that_of_the_message(self) -> None:
        """Although it ends in the number of one."""
        number = self.create().rpartition("/")[2]
        for place in ("https://elsewhere.example/people/dave/", f"{BROKER}/", ""):
            self.assert_no_message(self.json({"action": "delete", "url": f"{place}{number}"}))
        self.assertEqual(self.only_post().text, "x")

    def test_a_full_disk_and_a_blocked_feed(self) -> None:
        self.disk.full = True
        for answer in (
            self.form("h=entry&content=x"),
            self.files(("file", ("x", PNG)), path=MEDIA),
        ):
            self.assert_error(answer, 503, "temporarily_unavailable", "tell the operator")
        self.disk.full = False
        self.blocks.change([Block("topic", FEED, "spam", "root", 0.0)])
        self.assert_error(self.form("content=x"), 403, "forbidden", "spam")
        self.assert_nothing_stored()

    def test_forms_without_files_are_not_as_large_as_files(self) -> None:
        """The site parses them, those of strangers too, while everybody else waits."""
        text = "x" * (MAX_OVERHEAD + 1)
        for content in (text, "x" + "&category[]=c" * 1001):
            answer = self.form(f"content={content}", token="")
            self.assertEqual((answer.status, self.posts()), (413, []))
        picture = PNG + text.encode()
        self.assert_created(self.files(("content", "x"), ("photo", ("x", picture))))


class SlowDownTests(MicropubTestCase):
    options = WritingOptions(posts_per_minute=1)

    def test_too_many(self) -> None:
        self.create()
        answer = self.create_answer({"content": ["y"]})
        self.assert_error(answer, 429, "too_many_requests")
        self.assertGreater(int(answer.headers["retry-after"]), 0)

    def test_more_files_than_may_be_uploaded(self) -> None:
        """It would be refused whenever it came, and would leave the first files over."""
        answer = self.files(("photo[]", ("1.jpg", JPEG)), ("photo[]", ("2.png", PNG)))
        self.assert_invalid(answer, "send some of them to /micropub/media")
        self.assert_nothing_stored()


class ClientTests(MicropubTestCase):
    """What clients send beside what the specification shows."""

    def test_dates(self) -> None:
        """No message is published later; all other dates are ignored."""
        late = "2099-12-31T00:00:00Z"
        for sent in (late, late[:-1], late[:10], "2099-12-31T00:00:00+01:00"):
            answer = self.form(f"content=x&published={quote(sent)}")
            self.assert_invalid(answer, "published is in the future")
        self.assertEqual(self.posts(), [])
        url = self.create({"published": [late], "post-status": ["draft"]})
        replaced = {"post-status": ["published"]}
        self.update(url, replace=replaced)
        self.update(url, replace=replaced | {"published": ["2001-01-01T00:00:00Z"]})
        answer = self.update_answer(url, replace={"published": [late]})
        self.assert_invalid(answer, "published is in the future")
        others: list[Any] = ["0001-01-01T00:00:00", "now", 7, []]
        for other in others:
            self.create(content=["y"], published=[other])

    def test_the_date_of_a_message_from_before_the_clock_was_set_back(self) -> None:
        self.clock.set_wall(DAY)
        url = self.create(content=["Ahead"])
        self.clock.set_wall(-DAY)
        self.update(url, replace={"content": ["Edited"]})
        self.assertEqual(self.only_post().text, "Edited")

    def test_characters_beyond_ascii_in_a_form(self) -> None:
        """Percent-encoded or as they are, in UTF-8 or as old tools send them."""
        for sent, text in (
            (b"Gr%C3%BC%C3%9Fe+%E2%98%83", "Gr\u00fc\u00dfe \u2603"),
            ("Gr\u00fc\u00dfe".encode(), "Gr\u00fc\u00dfe"),
            (b"%F0%9F%98%80", "\U0001f600"),
            (b"Gr%FC\xdfe", "Gr\u00fc\u00dfe"),
        ):
            headers = {"Content-Type": FORM, **self.bearer(None)}
            answer = self.ask("POST", "/micropub", b"h=entry&content=" + sent, headers)
            self.assert_created(answer)
            self.assertEqual(self.posts()[0].text, text)
        url = quote(f"{BROKER}/people/dave/\u00fc", safe="")
        self.assert_error(self.form(f"action=delete&url={url}"), 404, "invalid_request")
        self.assert_invalid(self.form("action=\u00fc&url=x"))

    def test_scripts_of_other_sites(self) -> None:
        answer = self.ask("OPTIONS", "/micropub", headers={"Origin": "https://client.example"})
        self.assertEqual(answer.headers["access-control-allow-origin"], "*")
        self.assertIn("authorization", answer.headers["access-control-allow-headers"])
        self.assertIn("POST", answer.headers["access-control-allow-methods"])
        created = self.form("content=x")
        self.assertIn("location", created.headers["access-control-expose-headers"])

    def test_discovery(self) -> None:
        self.create()
        page = self.ask("GET", "/people/dave")
        self.assertIn(f'<{BROKER}/micropub>; rel="micropub"', page.headers["link"])
        self.assertIn(f'<link rel="micropub" href="{BROKER}/micropub"', page.text)
