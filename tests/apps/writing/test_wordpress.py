"""What the apps of WordPress call, with the parameters that they send."""

from __future__ import annotations

from typing import Any
from xmlrpc.client import Binary, DateTime, dumps

from rsscloud_broker.apps.writing.model import NewPost
from tests.accounts.fixture import PASSWORD
from tests.apps.writing.house import BROKER
from tests.apps.writing.posting_house import JPEG
from tests.apps.writing.test_metaweblog import KEY, WHO, EditorTestCase

#: How the apps begin the parameters of nearly all calls: the number of the blog, and who calls.
ARGUMENTS: tuple[Any, ...] = (1, "dave", PASSWORD)


class WordPressAppTests(EditorTestCase):
    """The app for iOS and the one for Android, with a site that is not at WordPress.com."""

    def test_sign_in(self) -> None:
        """It tries ``/xmlrpc.php`` or looks for the API named WordPress in the RSD, lists the
        methods, and asks for the blogs.
        """
        document = dumps((), "system.listMethods").encode()
        answer = self.ask("POST", "/xmlrpc.php", document, {"Content-Type": "text/xml"})
        self.assertIn("wp.getUsersBlogs", answer.text)
        rsd = self.ask("GET", "/rsd.xml").xml
        link = rsd.xpath("string(//*[@name='WordPress']/@apiLink)")
        self.assertEqual(link, f"{BROKER}/RPC2")
        methods = self.call("system.listMethods")
        self.assertIn("wp.getUsersBlogs", methods)
        (blog,) = self.call("wp.getUsersBlogs", *WHO)
        self.assertEqual((int(blog["blogid"]), blog["xmlrpc"]), (1, link))
        self.assertEqual(self.fault("wp.getUsersBlogs", "dave", "wrong").faultCode, 403)

    def test_sync(self) -> None:
        options = self.call("wp.getOptions", *ARGUMENTS)
        self.assertEqual(options["blog_url"]["value"], f"{BROKER}/people/dave")
        some = self.call("wp.getOptions", *ARGUMENTS, ["blog_title", "unheard_of"])
        self.assertEqual(
            {name: each["value"] for name, each in some.items()}, {"blog_title": "dave"}
        )
        profile = self.call("wp.getProfile", *ARGUMENTS)
        self.assertEqual((profile["user_id"], profile["username"]), ("1", "dave"))
        people = {"who": "authors", "number": 100}
        self.assertEqual(self.call("wp.getUsers", *ARGUMENTS, people), [profile])
        self.assertEqual(self.call("wp.getUsers", *ARGUMENTS, {**people, "offset": "1"}), [])
        self.assertEqual(self.call("wp.getAuthors", *ARGUMENTS), [profile])
        formats = self.call("wp.getPostFormats", *ARGUMENTS, {"show-supported": "1"})
        self.assertEqual(formats, {"all": {"standard": "Standard"}, "supported": ["standard"]})
        self.assertEqual(self.call("wp.getPostFormats", *ARGUMENTS), {"standard": "Standard"})
        self.assertEqual(
            sorted(self.call("wp.getPostStatusList", *ARGUMENTS)), ["draft", "publish"]
        )
        self.assertEqual(list(self.call("wp.getPostTypes", *ARGUMENTS)), ["post"])
        self.assertEqual(self.call("wp.getTaxonomies", *ARGUMENTS)[0]["name"], "category")
        for method in ("getPages", "getPageList", "getComments", "getTags"):
            self.assertEqual(self.call(f"wp.{method}", *ARGUMENTS), [])

    def test_the_apps_write(self) -> None:
        """They call ``metaWeblog.newPost`` without saying whether to publish."""
        entry = {
            "post_type": "post",
            "title": "From the app",
            "description": "<!-- wp:paragraph -->\n<p>Hello</p>\n<!-- /wp:paragraph -->",
            "date_created_gmt": DateTime(int(self.clock.wall_seconds())),
            "mt_keywords": "tag",
            "categories": ["news"],
            "sticky": "false",
            "post_status": "publish",
        }
        number = self.call("metaWeblog.newPost", *ARGUMENTS, entry)
        self.assertEqual(
            self.only_post().as_new(), NewPost("Hello", "From the app", "", "", ("news", "tag"))
        )
        got = self.call("wp.getPost", *ARGUMENTS, int(number))
        self.assertEqual((got["post_id"], got["post_status"]), (number, "publish"))
        self.assertEqual(got["post_content"], "Hello")
        self.assertEqual([term["name"] for term in got["terms"]], ["news", "tag"])
        self.assertEqual(got["link"], f"{BROKER}/people/dave/{number}")
        changed = {**entry, "title": "Changed", "post_status": "draft", "wp_post_thumbnail": ""}
        self.call("metaWeblog.editPost", int(number), *WHO, changed)
        self.assertTrue(self.only_post().is_draft)
        self.assertIs(self.call("wp.deletePost", *ARGUMENTS, int(number)), True)
        self.assertEqual(self.fault("wp.getPost", *ARGUMENTS, int(number)).faultCode, 404)

    def test_lists(self) -> None:
        for number in range(4):
            self.new(publish=number != 1, description=f"Number {number}")
        wanted = {"number": 40, "post_type": "post", "post_status": "draft,pending,publish,trash"}
        got = self.call("wp.getPosts", *ARGUMENTS, wanted)
        self.assertEqual([each["post_content"][-1] for each in got], ["3", "2", "1", "0"])
        got = self.call("wp.getPosts", *ARGUMENTS, {**wanted, "number": 2, "offset": 1})
        self.assertEqual([each["post_content"][-1] for each in got], ["2", "1"])
        got = self.call("wp.getPosts", *ARGUMENTS, {**wanted, "post_status": "draft"})
        self.assertEqual([each["post_content"][-1] for each in got], ["1"])
        self.assertEqual(self.call("wp.getPosts", *ARGUMENTS, {**wanted, "post_type": "page"}), [])
        self.assertEqual(len(self.call("wp.getPosts", *ARGUMENTS)), 4)

    def test_pages_of_lists(self) -> None:
        """Each page has as many messages as there are, however many others are between them."""
        for number in range(8):
            self.new(publish=number % 2 == 0, description=f"Number {number}")
        for status, wanted in (("draft", "7531"), ("publish", "6420"), ("any", "76543210")):
            pages = [
                self.call(
                    "wp.getPosts", *ARGUMENTS, {"post_status": status, "number": 2, "offset": at}
                )
                for at in range(0, len(wanted) + 1, 2)
            ]
            texts = ["".join(each["post_content"][-1] for each in page) for page in pages]
            self.assertEqual(texts, [wanted[at : at + 2] for at in range(0, len(wanted) + 1, 2)])
        self.assertEqual(self.call("wp.getPosts", *ARGUMENTS, {"post_status": "trash"}), [])
        far = {"offset": 1_000_000_000}
        self.assertEqual(self.call("wp.getPosts", *ARGUMENTS, far), [])

    def test_categories(self) -> None:
        self.new(description="x", categories=["news", "cats"])
        terms = self.call("wp.getTerms", *ARGUMENTS, "category")
        self.assertEqual([term["name"] for term in terms], ["cats", "news"])
        self.assertTrue(all(int(term["term_id"]) > 0 for term in terms))
        found = self.call("wp.getTerms", *ARGUMENTS, "category", {"search": "CAT"})
        self.assertEqual(found, terms[:1])
        self.assertEqual(self.call("wp.getTerms", *ARGUMENTS, "post_tag"), [])
        new = self.call("wp.newTerm", *ARGUMENTS, {"taxonomy": "category", "name": "cats"})
        self.assertEqual(new, terms[0]["term_id"])
        self.assertEqual(self.call("wp.newCategory", *ARGUMENTS, {"name": "cats"}), int(new))
        self.assertEqual(self.fault("wp.newCategory", *ARGUMENTS, {"name": " "}).faultCode, 400)
        listed = self.call("wp.getCategories", *ARGUMENTS)
        self.assertEqual([each["categoryId"] for each in listed], [t["term_id"] for t in terms])
        suggested = self.call("wp.suggestCategories", *ARGUMENTS, "new")
        self.assertEqual([each["category_name"] for each in suggested], ["news"])

    def test_files(self) -> None:
        file = {"name": "x.jpg", "type": "image/jpeg", "bits": Binary(JPEG), "post_id": 1}
        stored = self.call("wp.uploadFile", *ARGUMENTS, file)
        self.assertGreater(int(stored["id"]), 0)
        self.assertEqual(self.call("wp.getMediaLibrary", *ARGUMENTS, {"number": 100}), [stored])
        self.assertEqual(self.call("wp.getMediaLibrary", *ARGUMENTS, {"offset": 1}), [])
        self.assertEqual(self.call("wp.getMediaItem", *ARGUMENTS, int(stored["id"])), stored)
        self.assertEqual(self.fault("wp.getMediaItem", *ARGUMENTS, 1).faultCode, 404)
        self.new(description=f'<img src="{stored["url"]}" />')
        (post,) = self.call("wp.getPosts", *ARGUMENTS)
        self.assertEqual(post["post_thumbnail"]["link"], stored["url"])
        self.assertIn(stored["url"], post["post_content"])


class WordPressEditorTests(EditorTestCase):
    """``wp.newPost`` and ``wp.editPost``, which other editors and libraries call."""

    def write(self, **entry: Any) -> str:
        number: str = self.call("wp.newPost", *ARGUMENTS, entry)
        return number

    def test_messages(self) -> None:
        self.new(description="Old", categories=["news"])
        (term,) = self.call("wp.getTerms", *ARGUMENTS, "category")
        number = self.write(
            post_type="post",
            post_status="publish",
            post_title="T",
            post_content="<p>Hello</p>",
            terms_names={"category": ["cats"], "post_tag": ["tag"]},
            terms={"category": [term["term_id"]]},
        )
        new = NewPost("Hello", "T", "", "", ("cats", "tag", "news"))
        self.assertEqual(self.posts()[0].as_new(), new)
        self.assertIs(self.call("wp.editPost", *ARGUMENTS, number, {"post_title": "U"}), True)
        self.assertEqual(self.posts()[0].as_new(), NewPost("Hello", "U", "", "", new.categories))
        got = self.call("wp.getPost", *ARGUMENTS, number)
        again = {name: got[name] for name in ("post_title", "post_content", "post_status")}
        self.call("wp.editPost", *ARGUMENTS, number, again)
        self.assertEqual(self.posts()[0].as_new(), NewPost("Hello", "U", "", "", new.categories))

    def test_empty_arrays_of_php(self) -> None:
        """PHP cannot tell an empty struct from an empty array."""
        self.write(post_content="x", post_status="publish", terms=[], terms_names=[])
        self.assertEqual(self.only_post().categories, ())
        self.assertEqual(len(self.call("wp.getPosts", *ARGUMENTS, [])), 1)

    def test_a_message_is_a_draft_unless_it_says_more(self) -> None:
        self.write(post_content="x")
        self.assertTrue(self.only_post().is_draft)

    def test_faults(self) -> None:
        entries: list[Any] = [
            "x",
            {"post_type": "page", "post_content": "x"},
            {"post_content": []},
            {"post_content": "x", "post_status": "private"},
            {"post_content": "x", "terms": {"category": ["1"]}},
            {"post_content": "x", "terms": "x"},
            {"post_content": "x", "terms_names": {"category": {}}},
            {"post_content": "x", "post_date": DateTime("20991231T00:00:00")},
        ]
        for entry in entries:
            with self.subTest(repr(entry)):
                fault = self.fault("wp.newPost", *ARGUMENTS, entry)
                self.assertEqual(fault.faultCode, 400)
        wanted: list[Any] = [
            "x",
            {"number": "many"},
            {"offset": ["x"]},
            {"post_status": {"a": "b"}},
        ]
        for each in wanted:
            self.assertEqual(self.fault("wp.getPosts", *ARGUMENTS, each).faultCode, 400)

    def test_others(self) -> None:
        self.new(description="x")
        anna: tuple[Any, ...] = (1, "anna", PASSWORD, 1)
        for method in ("getPost", "deletePost"):
            self.assertEqual(self.fault(f"wp.{method}", *anna).faultCode, 404)
        fault = self.fault("wp.editPost", *anna, {"post_content": "y"})
        self.assertEqual(fault.faultCode, 404)
        self.assertEqual(self.fault("blogger.getPost", KEY, 1, "anna", PASSWORD).faultCode, 404)
        self.assertEqual(self.only_post().text, "x")
