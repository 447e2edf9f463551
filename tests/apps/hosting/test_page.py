"""The page of one's own feeds."""

from __future__ import annotations

from urllib.parse import quote

from tests.apps.hosting.fixture import PATH, URL, HostingTestCase, a_feed, basic
from tests.front_doors.exchange import Answer
from tests.web.accounts_site import Browser


class PageTests(HostingTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.browser = Browser(self.house)
        self.assertEqual(self.browser.sign_in().status, 303)

    def rows(self, number: int = 1) -> list[str]:
        """The items of the first or second list."""
        (rows,) = self.browser.page.xpath(f"(//main//ul[@class='rows'])[{number}]")
        return [" ".join(item.text_content().split()) for item in rows.xpath("li")]

    def show(self, path: str = "/feeds") -> Answer:
        answer = self.browser.get(path)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["cache-control"], "no-store")
        return answer

    def followed(self, answer: Answer) -> str:
        self.assertEqual(answer.status, 303)
        self.show(str(answer.headers["location"]))
        return self.browser.said()

    def test_only_for_who_has_signed_in(self) -> None:
        stranger = Browser(self.house)
        self.assertEqual(stranger.get("/feeds").headers["location"], "/signin?next=/feeds")
        answer = stranger.post("/feeds", {"do": "delete", "file": "rss.xml"})
        self.assertEqual(answer.headers["location"], "/signin?next=/feeds")
        token = {"Authorization": f"Bearer {self.house.token('publish')}"}
        self.assertEqual(Browser(self.house).ask("GET", "/feeds", headers=token).status, 303)

    def test_nothing_yet(self) -> None:
        self.show()
        self.assertIn("/feeds", self.browser.page.xpath("//header//nav//a/@href"))
        self.assertEqual(self.rows(), ["None yet."])
        self.assertIn("0 files of at most 100, with 0 of", self.browser.said("//p[@class='lead']"))
        self.assertIn(URL, self.browser.said("//pre"))

    def test_files(self) -> None:
        self.house.put(a_feed())
        self.house.put(a_feed("2"))
        self.house.put(b"hello", "/feeds/dave/a/b.txt")
        self.house.put(a_feed(), "/feeds/anna/rss.xml", basic("anna"))
        self.show()
        one, two = self.rows()
        self.assertIn("a/b.txt5 bytes, saved 2001-09-09 01:46:40, 1 version.", one)
        self.assertIn(f"rss.xml{len(a_feed()):,} bytes", two)
        self.assertIn("2 versions", two)
        links = self.browser.page.xpath("//main//ul[@class='rows']//a/@href")
        self.assertIn(URL, links)
        self.assertIn("2 files", self.browser.said("//p[@class='lead']"))

    def test_versions_are_shown_as_text(self) -> None:
        self.house.put(a_feed("<![CDATA[<script>alert(1)</script>]]>"))
        self.house.put(a_feed("2"))
        self.show("/feeds?file=rss.xml")
        newer, older = self.rows(2)
        self.assertIn("This one is served.", newer)
        self.assertIn("Restore", older)
        address = self.browser.page.xpath("(//main//ul[@class='rows'])[2]/li[2]//a/@href")[0]
        answer = self.browser.get(address)
        self.assertEqual(answer.headers["content-type"], "text/plain; charset=utf-8")
        self.assertIn("sandbox", answer.headers["content-security-policy"])
        self.assertEqual(answer.headers["x-content-type-options"], "nosniff")
        self.assertIn(b"<script>", answer.body)
        anna = Browser(self.house)
        anna.sign_in("anna")
        self.assertEqual(anna.get(address).status, 404)

    def test_what_is_not_there(self) -> None:
        self.house.put(a_feed())
        nines = "9" * 30
        for file, version in (("rss.xml", "999"), ("rss.xml", "x"), ("rss.xml", nines), ("x", "1"),
                              ("%00", "1")):  # fmt: skip
            answer = self.browser.get(f"/feeds?file={file}&version={version}")
            self.assertEqual(answer.status, 404, (file, version))
        for path in ("x.xml", "\0", "../x", "<b>"):
            self.show(f"/feeds?file={quote(path)}")
            self.assertEqual(self.browser.page.xpath("//h2[@id='versions']"), [])

    def test_restore(self) -> None:
        self.house.put(a_feed("old"))
        self.house.put(a_feed("new"))
        self.house.subscribe()
        self.show("/feeds?file=rss.xml")
        self.assertEqual(self.browser.send("Restore", version="999").status, 404)
        self.assertIn("no such version any more", self.browser.said())
        said = self.followed(self.browser.send("Restore"))
        self.assertIn("The version has been restored", said)
        self.assertEqual(self.house.get().body, a_feed("old"))
        self.assertEqual([walk.topic for walk in self.house.walks()], [URL])
        self.assertEqual(len(self.house.pings()), 3)
        self.assertEqual(len(self.rows(2)), 3)

    def test_delete(self) -> None:
        self.house.put(a_feed())
        self.show()
        self.assertIn("has been deleted", self.followed(self.browser.send("Delete")))
        self.assertEqual(self.house.get().status, 410)
        self.assertEqual(self.rows(), ["None yet."])
        self.house.put(a_feed())
        self.show()
        self.house.delete()
        self.assertEqual(self.browser.send("Delete").status, 404)
        self.assertIn("no such file any more", self.browser.said())

    def test_forms_that_are_refused(self) -> None:
        """Forged ones, one that asks for nothing known, and one about the file of somebody else."""
        self.house.put(a_feed(), "/feeds/anna/rss.xml", basic("anna"))
        self.house.put(a_feed())
        forged = {"do": "delete", "file": "rss.xml"}
        self.assertEqual(self.browser.post("/feeds", forged).status, 403)
        for fields, headers, status, said in (
            ({"csrf": ""}, {}, 403, ""),
            ({"csrf": "x"}, {}, 403, ""),
            ({}, {"Sec-Fetch-Site": "cross-site"}, 403, ""),
            ({"do": "x"}, {}, 400, "nothing known"),
            ({"file": "../anna/rss.xml"}, {}, 404, ""),
        ):
            self.show()
            self.assertEqual(self.browser.send("Delete", headers, **fields).status, status)
            self.assertIn(said, self.browser.said())
        for path in (PATH, "/feeds/anna/rss.xml"):
            self.assertEqual(self.house.get(path).status, 200)
