"""The river for programs: JSON, OPML, river.js."""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.river.door import PAGE
from tests.apps.river.house import BLOG, RiverHouse, rss

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
        paths = (("GET", "/river.json"), ("GET", "/river/opml"), ("POST", "/river/opml"))
        for method, path in paths:
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

    def test_river_js_only_of_those_who_want_that(self) -> None:
        self.house.follow()
        path = "/river/river.js"
        river, dave = self.house.river, self.house.dave
        for name in ("dave", "nobody"):
            self.assertEqual(self.house.get(path, account=name).status, 404)
        self.house.result(river.set_public(dave, True))
        self.assertTrue(self.house.result(river.is_public(dave)))
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
        self.house.result(river.set_public(dave, False))
        self.house.pass_time(10)
        self.assertEqual(self.house.get(path, account="dave").status, 404)
