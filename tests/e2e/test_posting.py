"""Programs of other people write messages: by XML-RPC, and by Micropub."""

from __future__ import annotations

import json
import xmlrpc.client
from pathlib import Path
from typing import Any

import feedparser

from tests.e2e.fixture import Broker, EndToEndTestCase, request, run_here
from tests.e2e.programs import output, program

CLIENTS = Path(__file__).parent / "clients"

PASSWORD = "a horse for posting"

JPEG = b"\xff\xd8\xff\xe0 a picture" + bytes(2000)


class PostingTests(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.broker = self.own_broker()
        self.broker.start()
        self.account("add", "anna", "--password-stdin", stdin=PASSWORD)

    def account(self, *arguments: str, stdin: str = "") -> str:
        done = run_here("account", *arguments, "--data", self.broker.data, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def token(self) -> str:
        return self.account("token", "add", "anna", "--scope", "publish").split()[-1]

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

    def test_curl(self) -> None:
        """As the specification of Micropub shows it."""
        picture = self.directory() / "x.jpg"
        picture.write_bytes(JPEG)
        endpoint, token = f"{self.broker.url}/micropub", f"Authorization: Bearer {self.token()}"
        curl = (program("curl"), "-s", "-S", "-i", "-H", token, "-H", "Expect:")
        form = ("-d", "h=entry", "-d", "content=Hello World", "-d", "category[]=news")
        made = output([*curl, endpoint, *form])
        self.assertRegex(made, r"^HTTP/1.1 201 ")
        url = next(line for line in made.splitlines() if line.startswith("Location: "))[10:].strip()
        made = output([*curl, f"{endpoint}/media", "-F", f"file=@{picture}"])
        self.assertRegex(made, r"(?m)^Location: .*/people/anna/files/[0-9a-f]{64}\.jpg\s*$")
        parts = ("-F", "h=entry", "-F", "content=Two", "-F", f"photo=@{picture}")
        self.assertRegex(output([*curl, endpoint, *parts]), r"^HTTP/1.1 201 ")
        update = {"action": "update", "url": url, "replace": {"content": ["Hello Moon"]}}
        as_json = ("-H", "Content-Type: application/json", "-d", json.dumps(update))
        self.assertRegex(output([*curl, endpoint, *as_json]), r"^HTTP/1.1 204 ")
        two, one = self.feed(self.broker).entries
        self.assertEqual([one.summary, two.summary], ["Hello Moon", "Two"])
        self.assertEqual(two.enclosures[0].type, "image/jpeg")
