"""The MetaWeblog and Blogger APIs, called as editors call them."""

from __future__ import annotations

import xmlrpc.client
from datetime import UTC, datetime
from typing import Any
from xmlrpc.client import Binary, DateTime, Fault

from attrs import evolve
from twisted.internet.defer import Deferred

from rsscloud_broker.apps.writing.model import NewPost, OutlineItem
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.model.administration import Block
from rsscloud_broker.wire.units import DAY
from tests.accounts.fixture import PASSWORD
from tests.apps.writing.house import (
    ANNA,
    BROKER,
    DAVE,
    FEED,
    HTTP,
    HTTPS,
    JPEG,
    PNG,
    PROXY,
    SOURCE,
    PostingTestCase,
)
from tests.front_doors.exchange import call, connected, request_bytes

WHO = ("dave", PASSWORD)
KEY = "0123456789ABCDEF"
PICTURE, SOUND = "https://a.example/1.jpg", "https://a.example/1.mp3"
RECENT = ("metaWeblog.getRecentPosts", "1")


class EditorTestCase(PostingTestCase):
    def new(self, publish: Any = True, **entry: Any) -> str:
        """Write a message with ``metaWeblog.newPost``; its id."""
        number = self.call("metaWeblog.newPost", "1", *WHO, entry, publish)
        assert isinstance(number, str)
        return number

    def edit_entry(self, number: str, publish: Any = True, **entry: Any) -> None:
        self.assertIs(self.call("metaWeblog.editPost", number, *WHO, entry, publish), True)

    def get(self, number: str) -> Any:
        return self.call("metaWeblog.getPost", number, *WHO)

    def assert_stored(self, *args: Any, **more: Any) -> None:
        """Check that there is one message with these parts, and no others."""
        self.assertEqual(self.only_post().as_new(), NewPost(*args, **more))

    def assert_fault(self, code: int, text: str, method: str, *params: Any, **more: Any) -> None:
        fault = self.fault(method, *params, **more)
        self.assertEqual(fault.faultCode, code, fault.faultString)
        self.assertIn(text, fault.faultString)


class MetaWeblogTests(EditorTestCase):
    def test_a_message_and_back(self) -> None:
        number = self.new(
            title="A title",
            description="<p>Hello <b>world</b> &amp; all</p><p>Bye</p>",
            link="https://a.example/",
            categories=["news", "cats"],
        )
        text = "Hello world & all\n\nBye"
        self.assert_stored(text, "A title", "https://a.example/", "", ("news", "cats"))
        created = datetime.fromtimestamp(int(self.only_post().created_at), UTC)
        expected = {
            "postid": number,
            "title": "A title",
            "description": "<p>Hello world &amp; all</p><p>Bye</p>",
            "link": "https://a.example/",
            "permaLink": f"{BROKER}/people/dave/{number}",
            "categories": ["news", "cats"],
            "userid": str(DAVE.account.id),
            "post_status": "publish",
            "dateCreated": created.replace(tzinfo=None),
        }
        got = self.get(number)
        self.assertEqual(got, got | expected)
        self.assertIn(b"Hello world", self.feed())

    def test_enclosures(self) -> None:
        sound = {"url": SOUND, "length": 1, "type": "audio/mpeg"}
        number = self.new(description="x", enclosure=sound)
        self.assert_stored("x", enclosure_url=SOUND)
        self.edit_entry(number, description="y")
        self.assertEqual(self.get(number)["enclosure"]["url"], SOUND)
        self.edit_entry(number, enclosure={"url": PICTURE})
        self.assert_stored("y", enclosure_url=PICTURE)
        self.edit_entry(number, enclosure={})
        self.assertNotIn("enclosure", self.get(number))

    def test_an_enclosure_and_pictures(self) -> None:
        html = f'x <img src="{PICTURE}" alt="One" />'
        number = self.new(description=html, enclosure={"url": SOUND})
        before = {"enclosure_url": SOUND, "items": (OutlineItem("One", link=PICTURE),)}
        self.assert_stored("x", **before)
        self.edit_entry(number, **self.get(number))
        self.assert_stored("x", **before)

    def test_the_text_for_a_sound_stays(self) -> None:
        number = self.new(description="x", enclosure={"url": SOUND})
        self.edit(self.only_post(), enclosure_text="How it sounds")
        before = self.only_post().as_new()
        self.edit_entry(number, **self.get(number))  # editors send back what they got
        self.assertEqual(self.only_post().as_new(), before)
        other = {"url": "https://a.example/2.mp3"}
        self.edit_entry(number, **(self.get(number) | {"enclosure": other}))
        self.assertEqual(self.only_post().as_new().enclosure_text, "")

    def test_what_is_not_sent_stays(self) -> None:
        number = self.new(title="T", description="x", categories=["a"], link="https://a.example/")
        self.edit_entry(number, title="U")
        self.assert_stored("x", "U", "https://a.example/", "", ("a",))
        self.edit_entry(number, link="", categories=[])
        self.assert_stored("x", "U")
        self.edit_entry(number, mt_text_more="")
        self.assert_stored("x", "U")
        self.edit_entry(number, mt_text_more="<p>and more</p>")
        self.assert_stored("x\n\nand more", "U")

    def test_drafts(self) -> None:
        number = self.new(publish=False, description="x")
        self.assert_stored("x", is_draft=True)
        self.assertEqual(self.get(number)["post_status"], "draft")
        self.assertFalse(self.has_feed())
        self.edit_entry(number, publish=True, description="y")
        self.assert_stored("y")

    def test_ways_to_say_that_it_is_published(self) -> None:
        for publish, is_draft in ((1, False), (0, True), ("1", False), ("0", True), (True, False)):
            self.new(publish=publish, description="x")
            self.assertIs(self.posts()[0].is_draft, is_draft, publish)
        self.call("metaWeblog.newPost", "1", *WHO, {"description": "x"})
        self.assertFalse(self.posts()[0].is_draft)

    def test_recent_messages(self) -> None:
        for number in range(3):
            self.new(description=f"Number {number}")
        newest = ["Number 2", "Number 1", "Number 0"]
        for count, expected in (([2], 2), (["1"], 1), ([10**6], 3), ([], 3)):
            got = self.call(*RECENT, *WHO, *count)
            self.assertEqual([each["description"] for each in got], newest[:expected])

    def test_categories(self) -> None:
        self.new(description="x", categories=["news"], mt_keywords="cats, news ,")
        got = self.call("metaWeblog.getCategories", "1", *WHO)
        self.assertEqual([each["title"] for each in got], ["cats", "news"])
        self.assertEqual(got[0]["rssUrl"], f"{BROKER}/people/dave/rss.xml")

    def test_files(self) -> None:
        file = {"name": "../../x.jpg", "type": "image/jpeg", "bits": Binary(JPEG)}
        got = self.call("metaWeblog.newMediaObject", "1", *WHO, file)
        self.assertRegex(got["url"], rf"^{BROKER}/people/dave/files/[0-9a-f]{{64}}\.jpg$")
        self.assertEqual((got["type"], got["file"]), ("image/jpeg", "x.jpg"))
        number = self.new(description=f'Look <img src="{got["url"]}" alt="A"/>')
        enclosure = self.get(number)["enclosure"]
        self.assertEqual(enclosure, {"url": got["url"], "type": "image/jpeg", "length": len(JPEG)})
        large = {"name": "x.png", "type": "image/png", "bits": Binary(PNG + bytes(700_000))}
        self.call("metaWeblog.newMediaObject", "1", *WHO, large)
        self.assertEqual(self.uploads(), ["x.png", "x.jpg"])

    def test_deleting(self) -> None:
        number = self.new(description="x")
        self.assertIs(self.call("metaWeblog.deletePost", KEY, number, *WHO, True), True)
        self.assertEqual(self.posts(), [])


class FaultTests(EditorTestCase):
    def test_who_calls(self) -> None:
        """By a password, or by a token of the account."""
        self.call("metaWeblog.newPost", "1", "Dave", self.token, {"description": "x"}, True)
        self.assertEqual(self.only_post().text, "x")
        for name, password in (("dave", "wrong"), ("nobody", PASSWORD), ("", ""),
                               ("anna", self.token), ("dave", "rsb_nonsense")):  # fmt: skip
            self.assert_fault(403, "wrong", *RECENT, name, password, 1)
        self.assert_fault(400, "string", *RECENT, ["dave"], PASSWORD, 1)
        self.assert_fault(401, "publish", *RECENT, "dave", self.house.token("metrics"), 1)

    def test_passwords_that_others_can_read(self) -> None:
        for password in (PASSWORD, self.token):
            self.assert_fault(426, "https", *RECENT, "dave", password, 1, headers=HTTP)

    def test_messages_that_do_not_exist(self) -> None:
        hers = self.add("Hers", ANNA)
        numbers: list[Any] = [str(hers.id), hers.id, 99, "x", "", "²", "9" * 30, -1, True, None, []]
        for number in numbers:
            call = (number, *WHO)
            self.assert_fault(404, "no message", "metaWeblog.getPost", *call)
            self.assert_fault(404, "no message", "metaWeblog.editPost", *call, {}, True)
            self.assert_fault(404, "no message", "blogger.deletePost", KEY, *call, True)
            self.assert_fault(404, "no message", "mt.getPostCategories", *call)
        self.assertEqual([post.text for post in self.posts(ANNA)], ["Hers"])

    def test_a_blocked_feed(self) -> None:
        self.blocks.change([Block("topic", FEED, "spam", "root", 0.0)])
        entry = {"description": "x"}
        self.assert_fault(401, "spam", "metaWeblog.newPost", "1", *WHO, entry, True)

    def test_types(self) -> None:
        cases: list[Any] = [
            "x",
            [],
            {"description": []},
            {"description": "x", "title": {}},
            {"description": "x", "categories": {"a": "b"}},
            {"description": "x", "categories": [{}]},
            {"description": "x", "categories": [f"c{n}" for n in range(4000)]},
            {"description": "x", "mt_keywords": ["a"]},
            {"description": "x", "enclosure": "https://a.example/1.mp3"},
            {"description": "x", "enclosure": {"url": []}},
            {"description": "x", "post_status": "private"},
            {"description": "x", "post_status": []},
            {"description": "<p>" * 50_000},
            {"description": "x" * 141},
            {f"m{n}": "x" for n in range(1000)},
        ]
        for entry in cases:
            self.assert_fault(400, "", "metaWeblog.newPost", "1", *WHO, entry, True)
        counts: list[Any] = ["many", [], None]
        for count in counts:
            self.assert_fault(400, "int", *RECENT, *WHO, count)
        entry = {"description": "x", "categories": [f"c{n}" for n in range(12_000)]}
        with self.assertRaisesRegex(Fault, "more than 10000 elements"):
            self.call("metaWeblog.newPost", "1", *WHO, entry, True)
        self.assertEqual(self.posts(), [])

    def test_files(self) -> None:
        for file in (
            "x",
            {},
            {"name": "x", "bits": "not base64"},
            {"name": [], "bits": Binary(b"x")},
            {"name": "x", "bits": Binary(b"")},
        ):
            self.assert_fault(400, "", "metaWeblog.newMediaObject", "1", *WHO, file)

    def test_dates(self) -> None:
        self.new(description="Old", dateCreated=DateTime("20010101T00:00:00"))
        self.assertGreater(self.only_post().created_at, self.clock.wall_seconds() - 1000)
        for name in ("dateCreated", "date_created_gmt"):
            entry = {"description": "x", name: DateTime("20991231T00:00:00")}
            self.assert_fault(400, "draft", "metaWeblog.newPost", "1", *WHO, entry, True)
            self.new(publish=False, **entry)  # as the fault says
        self.new(description="x", dateCreated="no date", date_created_gmt=1)
        # What programs for .NET send for no date.
        self.new(description="x", dateCreated=DateTime("00010101T00:00:00"))
        wrong = "<dateTime.iso8601>tomorrow</dateTime.iso8601>"
        with self.assertRaises(Fault) as caught:
            self.send_call(call("metaWeblog.newPost", wrong).encode())
        self.assertIn("dateTime must look like", str(caught.exception))

    def test_the_date_of_a_message_from_before_the_clock_was_set_back(self) -> None:
        """Editors send back the date that they got, which is in the future then."""
        self.clock.set_wall(DAY)
        number = self.new(description="Ahead")
        self.clock.set_wall(-DAY)
        self.edit_entry(number, **self.get(number) | {"description": "Edited"})
        self.assertEqual(self.only_post().text, "Edited")

    def test_missing_parameters(self) -> None:
        with self.assertRaises(Fault) as caught:
            self.call("metaWeblog.newPost", "1", "dave")
        self.assertEqual(caught.exception.faultCode, -32602)
        self.assertIn("are missing: password, entry.", caught.exception.faultString)

    def test_a_full_disk(self) -> None:
        self.disk.full = True
        file = {"name": "x", "type": "image/png", "bits": Binary(PNG)}
        for method, params in (
            ("metaWeblog.newPost", ("1", *WHO, {"description": "x"}, True)),
            ("metaWeblog.newMediaObject", ("1", *WHO, file)),
        ):
            sent = xmlrpc.client.dumps(params, method).encode()
            answer = self.ask("POST", "/RPC2", sent, {"Content-Type": "text/xml"})
            self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "30"))
            self.assertRaisesRegex(Fault, "tell the operator", xmlrpc.client.loads, answer.body)

    def test_a_call_that_is_too_large(self) -> None:
        size = 2 * (len(JPEG) + self.options.max_upload_bytes)
        headers = {"Content-Type": "text/xml", "Content-Length": str(size)}
        self.assertEqual(self.ask("POST", "/RPC2", headers=headers).status, 413)


class PlainPasswordTests(EditorTestCase):
    options = WritingOptions(allow_plain_passwords=True)

    def test_the_operator_allows_them(self) -> None:
        self.assertEqual(self.call(*RECENT, *WHO, 1, headers=HTTP), [])


class SlowDownTests(EditorTestCase):
    options = WritingOptions(posts_per_minute=1)

    def test_too_many(self) -> None:
        self.new(description="x")
        entry = {"description": "y"}
        self.assert_fault(429, "last minute", "metaWeblog.newPost", "1", *WHO, entry, True)


class BloggerTests(EditorTestCase):
    def test_blogs_and_people(self) -> None:
        (blog,) = self.call("blogger.getUsersBlogs", KEY, *WHO)
        self.assertEqual((blog["blogid"], blog["blogName"]), ("1", "dave"))
        self.assertEqual(blog["url"], f"{BROKER}/people/dave")
        self.assertEqual(self.call("metaWeblog.getUsersBlogs", KEY, *WHO), [blog])
        person = self.call("blogger.getUserInfo", KEY, *WHO)
        self.assertEqual((person["nickname"], person["userid"]), ("dave", "1"))

    def test_messages(self) -> None:
        content = "<title>A &amp; B</title>Hello <b>world</b>"
        number = self.call("blogger.newPost", KEY, "1", *WHO, content, True)
        self.assert_stored("Hello world", "A & B")
        got = self.call("blogger.getPost", KEY, number, *WHO)
        self.assertEqual(got["content"], "<title>A &amp; B</title>Hello world")
        edited = got["content"].replace("Hello", "Bye")
        self.assertIs(self.call("blogger.editPost", KEY, number, *WHO, edited, True), True)
        self.assert_stored("Bye world", "A & B")
        (recent,) = self.call("blogger.getRecentPosts", KEY, "1", *WHO, 5)
        self.assertEqual(recent["postid"], number)
        self.call("blogger.editPost", KEY, number, *WHO, "No title", True)
        self.assert_stored("No title")
        self.assertIs(self.call("blogger.deletePost", KEY, number, *WHO, True), True)
        self.assertEqual(self.posts(), [])


class MovableTypeTests(EditorTestCase):
    def test_categories(self) -> None:
        self.new(description="Old", categories=["news", "cats"])
        number = self.new(description="x", categories=["new"])
        listed = self.call("mt.getCategoryList", "1", *WHO)
        ids = {each["categoryName"]: each["categoryId"] for each in listed}
        self.assertEqual(sorted(ids), ["cats", "new", "news"])
        chosen = [{"categoryId": ids["news"]}, {"categoryId": "unheard of"}]
        self.assertIs(self.call("mt.setPostCategories", number, *WHO, chosen), True)
        got = self.call("mt.getPostCategories", number, *WHO)
        self.assertEqual([each["categoryName"] for each in got], ["news", "unheard of"])
        self.assertEqual([each["isPrimary"] for each in got], [True, False])
        cases: list[Any] = ["x", [{}], ["x"], [{"categoryId": "1"}], [{"categoryId": []}]]
        for wrong in cases:
            self.assert_fault(400, "", "mt.setPostCategories", number, *WHO, wrong)

    def test_parts_of_a_message_at_once(self) -> None:
        number = self.new(title="Old", description="x", categories=["a"])
        calls = (
            ("mt.setPostCategories", (number, *WHO, [{"categoryName": "b"}])),
            ("metaWeblog.editPost", (number, *WHO, {"title": "New"}, True)),
            ("blogger.editPost", (KEY, number, *WHO, "<title>New</title>y", True)),
        )
        gate: Deferred[None] = Deferred()

        async def when_open(function: Any, *args: Any) -> Any:
            await gate
            return function(*args)

        parts = evolve(self.writing._parts, in_thread=when_open)
        self.patch(self.writing, "_parts", parts)  # with which it makes the feeds
        exchanges = []
        for method, params in calls:
            body = xmlrpc.client.dumps(params, method).encode()
            exchange = connected(self.factory, PROXY)
            headers = {**HTTPS, "Content-Type": "text/xml"}
            exchange.send(request_bytes("POST", "/RPC2", body, headers))
            exchanges.append(exchange)
        gate.callback(None)
        for exchange in exchanges:
            self.assertIn("<boolean>1</boolean>", exchange.answer("POST").text)
        self.assert_stored("y", "New", categories=("b",))

    def test_categories_that_change_meanwhile(self) -> None:
        """Those that the message had when the call came are set all the same."""
        number = self.new(description="x", categories=["a"])
        writing, read = self.writing, self.writing.store.categories

        async def categories(account_id: int) -> Any:
            used = await read(account_id)
            await writing.edit(DAVE, int(number), NewPost("y", categories=("b",)), SOURCE)
            return used

        self.patch(writing.store, "categories", categories)
        self.call("mt.setPostCategories", number, *WHO, [{"categoryName": "a"}])
        self.assert_stored("y", categories=("a",))

    def test_a_category_that_is_called_by_a_number(self) -> None:
        number = self.new(description="x", categories=["2024"])
        before = self.only_post()
        self.clock.advance(10)
        for chosen in ({"categoryId": "2024"}, {"categoryName": "2024"}):
            self.call("mt.setPostCategories", number, *WHO, [chosen])
            self.assertEqual(self.only_post(), before)  # which has it already

    def test_open_live_writer(self) -> None:
        """It writes a draft, sets the categories, and publishes it then."""
        self.new(description="Old", categories=["news"])
        (category,) = self.call("mt.getCategoryList", "1", *WHO)
        nothing = dict.fromkeys(("mt_text_more", "mt_keywords", "mt_excerpt", "mt_basename"), "")
        entry = {"title": "T", "description": "x", "mt_allow_comments": 1, **nothing}
        number = self.call("metaWeblog.newPost", "1", *WHO, entry, False)
        chosen = [{"categoryId": category["categoryId"]}]
        self.call("mt.setPostCategories", number, *WHO, chosen)
        self.edit_entry(number, publish=True, **entry)
        post = self.posts()[0]
        self.assertEqual((post.categories, post.is_draft), (("news",), False))


class DiscoveryTests(EditorTestCase):
    def test_help(self) -> None:
        """No more is offered than what editors for MetaWeblog call."""
        prefixes = {name.partition(".")[0] for name in self.call("system.listMethods")}
        self.assertLessEqual({"metaWeblog", "blogger", "mt"}, prefixes)
        self.assertNotIn("wp", prefixes)
        help_text = self.call("system.methodHelp", "metaWeblog.newPost")
        self.assertIn("Write a message", help_text)

    def test_rsd(self) -> None:
        answer = self.ask("GET", "/rsd.xml?name=dave")
        self.assertEqual(answer.headers.get_content_type(), "application/rsd+xml")
        names = {"r": "http://archipelago.phrasewise.com/rsd"}
        apis = answer.xml.findall(".//r:api", names)
        found = [(api.get("name"), api.get("apiLink"), api.get("preferred")) for api in apis]
        rpc, micropub = f"{BROKER}/RPC2", f"{BROKER}/micropub"
        self.assertEqual(found, [("MetaWeblog", rpc, "true"), ("Blogger", rpc, "false"),
                                 ("Micropub", micropub, "false")])  # fmt: skip
        home = answer.xml.findtext(".//r:homePageLink", namespaces=names)
        self.assertEqual(home, f"{BROKER}/people/dave")
        for query in ("", "?name=", "?name=<x>", "?name=../x"):
            answer = self.ask("GET", f"/rsd.xml{query}")
            self.assertEqual(answer.status, 200)
            self.assertNotIn(b"people", answer.body)

    def test_the_page_of_an_author_leads_there(self) -> None:
        self.new(description="x")
        page = self.ask("GET", "/people/dave")
        self.assertIn('rel="EditURI" type="application/rsd+xml"', page.text)
        self.assertIn(f"<{BROKER}/rsd.xml?name=dave>", page.headers["link"])
