"""The river for programs: JSON, OPML, river.js."""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.river.door import PAGE, REMEMBERED
from rsscloud_broker.apps.river.opml import MAX_BYTES
from rsscloud_broker.http.shown_exchange import FORM
from rsscloud_broker.interfaces import Session
from tests.apps.river.house import BLOG, RiverHouse, rss

PAGE_OF_BLOG = "http://blog.example/"

ITEM = (
    "<item><title>Three &amp; four</title><link>http://blog.example/3</link><guid>three</guid>"
    "<pubDate>Thu, 01 Oct 2026 08:00:00 GMT</pubDate>"
    "<description>&lt;p&gt;A &lt;b&gt;text&lt;/b&gt;</description>"
    '<enclosure url="http://blog.example/a.mp3" type="audio/mpeg" length="12"/>'
    "<x:item><title>below</title><x:item><description>deep</description></x:item></x:item></item>"
)


class DoorTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = RiverHouse(self)
        self.house.topics.pages[BLOG] = rss("two", head=ITEM).replace(
            b"<rss ", b'<rss xmlns:x="http://rsscloud.example/" '
        )
        self.house.callers.signed_in = self.house.dave

    def test_json_is_a_json_feed(self) -> None:
        self.house.follow()
        answer = self.house.get("/river.json")
        self.assertEqual(answer.headers.get_content_type(), "application/feed+json")
        self.assertEqual(answer.headers["cache-control"], "no-store")
        river = json.loads(answer.body)
        self.assertEqual(river["version"], "https://jsonfeed.org/version/1.1")
        (feed,) = river["_river"]["feeds"]
        self.assertEqual((feed["url"], feed["how"]), (BLOG, "polled"))
        item, _ = river["items"]
        self.assertEqual(item["date_published"], "2026-10-01T08:00:00Z")
        self.assertEqual(item["attachments"][0]["size_in_bytes"], 12)
        self.assertEqual(item["_river"]["items"][0]["items"][0]["text_html"], "deep")
        self.assertNotIn("next_url", river)

    def test_ids_of_two_feeds(self) -> None:
        """The ids of two feeds may be the same, as numbers are; those of a JSON Feed differ."""
        other = f"{BLOG}?2"
        for url in (BLOG, other):
            page = rss("2", f"urn:x:{url}", "1")
            self.house.topics.pages[url] = page.replace(b"<guid>", b'<guid isPermaLink="false">')
            self.house.follow(url)
        found = [each["id"] for each in json.loads(self.house.get("/river.json").body)["items"]]
        self.assertEqual(len(found), len(set(found)), found)
        self.assertIn(f"urn:x:{other}", found)

    def test_older_items(self) -> None:
        self.house.topics.pages[BLOG] = rss(*map(str, range(150)))
        self.house.follow()
        first = json.loads(self.house.get("/river.json").body)
        self.assertEqual(len(first["items"]), PAGE)
        path = first["next_url"].removeprefix("http://broker.example:5337")
        second = json.loads(self.house.get(path).body)
        self.assertEqual(len(second["items"]), 50)
        self.assertEqual(self.house.get("/river.json", before="x").status, 400)

    def test_only_for_those_who_may(self) -> None:
        for method, path in (
            *(("GET", "/river.json"), ("GET", "/river/opml"), ("POST", "/river/opml")),
            *(("POST", "/river/subscribe"), ("POST", "/river/unsubscribe")),
        ):
            self.house.callers.signed_in = None
            answer = self.house.ask(method, path)
            self.assertEqual(answer.status, 401)
            self.assertTrue(answer.headers["www-authenticate"].startswith("Bearer"))
            self.house.callers.signed_in = evolve(self.house.dave, scopes=frozenset({"metrics"}))
            answer = self.house.ask(method, path)
            self.assertEqual((answer.status, "scope river" in answer.text), (403, True))

    def test_lists(self) -> None:
        opml = f'<opml version="1.1"><body><outline xmlUrl="{BLOG}"/></body></opml>'.encode()
        answer = self.house.ask("POST", "/river/opml", opml, {"Content-Type": "text/x-opml"})
        self.assertEqual(json.loads(answer.body), {"added": 1, "failed": []})
        answer = self.house.get("/river/opml")
        self.assertIn("dave.opml", answer.headers["content-disposition"])
        self.assertIn(BLOG.encode(), answer.body)
        answer = self.house.ask("POST", "/river/opml", b"<html/>")
        self.assertEqual((answer.status, "no OPML" in answer.text), (400, True))
        # It is in the charset that it came with.
        other = opml.decode().replace("xmlUrl", 'text="Caf\xe9" xmlUrl').replace(BLOG, f"{BLOG}?2")
        kind = {"Content-Type": "text/x-opml; charset=iso-8859-1"}
        self.house.ask("POST", "/river/opml", other.encode("latin-1"), kind)
        self.assertIn("Caf\xe9", self.house.get("/river/opml").text)

    def test_list_that_is_called_a_form(self) -> None:
        """As ``curl --data-binary`` does."""
        feeds = "".join(f'<outline xmlUrl="{BLOG}?a&amp;b={each}"/>' for each in range(3))
        opml = f"<opml><body>{feeds}</body></opml>".encode()
        answer = self.house.ask("POST", "/river/opml", opml, {"Content-Type": FORM})
        self.assertEqual(json.loads(answer.body), {"added": 3, "failed": []})
        limits = [self.house.root.body_limit("/river/opml", kind) for kind in (FORM, "text/xml")]
        self.assertEqual(limits, [MAX_BYTES, MAX_BYTES])

    def test_river_js_only_of_those_who_want_that(self) -> None:
        self.house.follow()
        path = "/river/river.js"
        for name in ("dave", "nobody"):
            self.assertEqual(self.house.get(path, account=name).status, 404)
        self.house.share()
        answer = self.house.get(path, account="dave")
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["access-control-allow-origin"], "*")
        self.assertTrue(answer.text.startswith("onGetRiverStream ({"))
        river_js = json.loads(answer.text.removeprefix("onGetRiverStream (").rstrip(")\n"))
        (group,) = river_js["updatedFeeds"]["updatedFeed"]
        self.assertEqual((group["feedUrl"], group["feedTitle"]), (BLOG, "A blog"))
        self.assertEqual(group["websiteUrl"], "http://blog.example/")
        self.assertIsNotNone(parsedate_to_datetime(group["whenLastUpdate"]))
        first = group["item"][0]
        self.assertEqual((first["title"], first["body"]), ("Three &amp; four", "A text"))
        self.assertEqual(first["enclosure"][0]["type"], "audio/mpeg")
        self.assertEqual(
            first["outline"],
            {"text": "Three &amp; four", "subs": [{"text": "below", "subs": [{"text": "deep"}]}]},
        )
        self.assertIn("docs", river_js["metadata"])
        self.house.share(public=False)
        self.house.pass_time(10)
        self.assertEqual(self.house.get(path, account="dave").status, 404)

    def test_river_js_is_made_once_for_all_who_ask_at_the_same_time(self) -> None:
        self.house.share()
        river = self.house.river
        read = river.public_river
        held: list[Deferred[None]] = []

        async def slow(name: str, limit: int) -> Any:
            held.append(Deferred())
            await held[-1]
            return await read(name, limit)

        self.patch(river, "public_river", slow)
        asking = [self.house.begin("GET", "/river/river.js?account=dave") for _ in range(3)]
        self.assertEqual(len(held), 1)
        held[0].callback(None)
        answers = [exchange.answer() for exchange in asking]
        self.assertEqual([answer.status for answer in answers], [200] * 3)
        self.assertEqual({answer.body for answer in answers}, {answers[0].body})
        self.house.get("/river/river.js", account="dave")
        self.assertEqual(len(held), 1)

    def test_rivers_that_nobody_has_made_public_displace_none(self) -> None:
        self.house.share()
        self.assertEqual(self.house.get("/river/river.js", account="dave").status, 200)
        for number in range(REMEMBERED + 1):
            self.assertEqual(self.house.get("/river/river.js", account=f"no{number}").status, 404)
        self.patch(self.house.river, "public_river", None)  # which is not asked
        self.assertEqual(self.house.get("/river/river.js", account="dave").status, 200)


class FollowingTests(SynchronousTestCase):
    """Programs follow feeds, and leave them."""

    def setUp(self) -> None:
        self.house = RiverHouse(self)
        self.house.topics.pages[BLOG] = rss("one")
        self.house.topics.pages[PAGE_OF_BLOG] = (
            f'<html><link rel="alternate" type="application/rss+xml" href="{BLOG}"></html>'.encode()
        )
        self.house.callers.signed_in = self.house.dave

    def send(self, path: str, **fields: str) -> tuple[int, Any]:
        answer = self.house.form(path, fields)
        self.assertEqual(answer.headers["cache-control"], "no-store")
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(answer.body) if is_json else answer.text

    def test_by_the_page_of_a_site(self) -> None:
        status, feed = self.send("/river/subscribe", url=PAGE_OF_BLOG)
        self.assertEqual((status, feed["url"], feed["title"]), (200, BLOG, "A blog"))
        self.assertEqual(feed["how"], "polled")
        (same,) = json.loads(self.house.get("/river.json").body)["_river"]["feeds"]
        self.assertEqual(same["id"], feed["id"])
        self.assertEqual(self.send("/river/subscribe", url=BLOG)[1]["id"], feed["id"])

    def test_leaving_by_number_and_by_address(self) -> None:
        """The address need not be written as it is stored."""
        for by in ("id", "url"):
            _, feed = self.send("/river/subscribe", url=BLOG)
            named = {"id": str(feed["id"]), "url": "HTTP://Blog.example:80/rss.xml"}
            status, left = self.send("/river/unsubscribe", **{by: named[by]})
            self.assertEqual((status, left), (200, {"id": feed["id"], "url": BLOG}))
            self.assertEqual(self.house.feeds(), [])

    def test_what_nobody_follows_cannot_be_left(self) -> None:
        feed = self.house.follow(who=self.house.anna)
        for fields in ({"id": str(feed.id)}, {"url": BLOG}, {"id": "9" * 30}, {"id": "-1"}):
            status, text = self.send("/river/unsubscribe", **fields)
            self.assertEqual(status, 404, fields)
            self.assertIn("/river.json", text)
        status, text = self.send("/river/unsubscribe")
        self.assertEqual((status, "id" in text and "url" in text), (400, True))
        self.assertEqual(len(self.house.feeds(self.house.anna)), 1)

    def test_forms_of_other_sites(self) -> None:
        """A browser that has signed in sends the token of its form."""
        session = Session(1, 0.0, 0.0, 1e12, "192.0.2.7", "A browser")
        self.house.callers.signed_in = evolve(self.house.dave, csrf="csrf", session=session)
        for path in ("/river/subscribe", "/river/unsubscribe"):
            self.assertEqual(self.send(path, url=BLOG)[0], 403)
        self.assertEqual(self.send("/river/subscribe", url=BLOG, csrf="csrf")[0], 200)
