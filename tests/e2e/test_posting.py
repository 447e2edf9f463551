"""Programs of other people write messages, by XML-RPC."""

from __future__ import annotations

import xmlrpc.client
from typing import Any

import feedparser

from tests.e2e.fixture import Broker, EndToEndTestCase, request

PASSWORD = "a horse for posting"

JPEG = b"\xff\xd8\xff\xe0 a picture" + bytes(2000)


class PostingTests(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.broker = self.running_broker(account=("anna", PASSWORD))

    def feed(self, broker: Broker) -> Any:
        return feedparser.parse(request(f"{broker.url}/people/anna/rss.xml").body)

    def test_python(self) -> None:
        proxy = xmlrpc.client.ServerProxy(f"{self.broker.url}/RPC2", use_builtin_types=True)
        self.addCleanup(proxy("close"))
        server: Any = proxy
        who = ("anna", PASSWORD)
        (blog,) = server.blogger.getUsersBlogs("key", *who)
        file = {"name": "x.jpg", "type": "image/jpeg", "bits": JPEG}
        stored = server.metaWeblog.newMediaObject(blog["blogid"], *who, file)
        self.assertEqual(request(stored["url"]).body, JPEG)
        entry = {
            "title": "Grüße",
            "description": f'<p>From <b>Python</b></p><img src="{stored["url"]}" />',
            "categories": ["one"],
        }
        number = server.metaWeblog.newPost(blog["blogid"], *who, entry, True)
        (item,) = self.feed(self.broker).entries
        self.assertEqual((item.title, item.summary), ("Grüße", "From Python"))
        self.assertEqual(item.enclosures[0].href, stored["url"])
        self.broker.restart()
        got = server.metaWeblog.getPost(number, *who)
        self.assertEqual((got["title"], got["categories"]), ("Grüße", ["one"]))
        self.assertIs(server.blogger.deletePost("key", number, *who, True), True)
        self.assertEqual(self.feed(self.broker).entries, [])
