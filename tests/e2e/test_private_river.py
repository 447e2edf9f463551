"""What somebody follows is found nowhere else: a stranger and another account look at everything.

The routes are those that the parts of the broker offer, and what their pages link to.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit

from lxml import html

from tests.e2e.every_route import every_route, with_applications
from tests.e2e.fixture import Answer, Broker, EndToEndTestCase, post_form, request, until
from tests.e2e.servers import Handler, Server, http_server

#: A host that nothing else in these tests has, and what else must not be seen of the feed.
HOST: Final = "127.7.7.7"
TOKEN, TITLE = "b2c4secretd8", "Sealed diary"

#: Where another feed would be that nobody follows; as long as the address of the one somebody does.
NOBODYS: Final = ("127.8.8.8", "b2c4nobodyd8")

#: Pages that end by themselves never.
STREAMS: Final = frozenset({"/events/stream", "/events/stream.jsonl", "/log/events"})
ENDLESS: Final = STREAMS | {"/river/events"}

#: Parameters that may name a feed or its host.
NAMING: Final = frozenset({"url", "topic", "host", "name", "account", "feed", "q"})

#: What differs each time that a page is made: times, and what guards its forms.
_PASSING: Final = re.compile(
    r"\d{1,2}:\d\d(:\d\d)?(\.\d+)?|\d+ (milli)?seconds?|just now|value=\"[\w-]{20,}\"",
    re.IGNORECASE,
)


class _DiaryHandler(Handler):
    def do_GET(self) -> None:
        owner: Diary = self.owner
        owner.requests += 1
        body = f"""<rss version="2.0"><channel><title>{TITLE}</title><link>{owner.url}</link>
            <description>{TOKEN}</description><item><title>{TOKEN} {owner.version}</title>
            <guid>{owner.version}</guid></item></channel></rss>"""
        status = 503 if owner.broken else 200
        self.answer(status, body.encode(), "application/rss+xml")


class Diary(Server):
    """Serves one feed, whose address has a token."""

    def __init__(self) -> None:
        super().__init__(http_server(_DiaryHandler, self, host=HOST))
        self.requests, self.version, self.broken = 0, 1, False
        self.url = f"http://{HOST}:{self.port}/diary?token={TOKEN}"


class Watcher:
    """Reads a stream for as long as the broker runs.

    :ivar said: what came.
    """

    def __init__(self, broker: Broker, path: str) -> None:
        self.said = b""
        parts = urlsplit(broker.url)
        assert parts.hostname is not None
        self._connection = HTTPConnection(parts.hostname, parts.port)
        self._connection.request("GET", path)
        self._response = self._connection.getresponse()
        assert self._response.status == 200
        threading.Thread(target=self._read, daemon=True).start()

    def has_said(self, text: str) -> bool:
        return text.encode() in self.said

    def _read(self) -> None:
        with contextlib.suppress(HTTPException, OSError):  # the broker stops
            while some := self._response.read1(65536):
                self.said += some


class PrivateRiverTests(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.broker = self.own_broker(with_applications())
        self.tokens = {
            name: {"Authorization": f"Bearer {self.account(name, *more)}"}
            for name, more in (("dave", ("--admin",)), ("eve", ()))
        }
        self.broker.start()

    def account(self, name: str, *more: str) -> str:
        """Add an account; its token."""
        self.broker.add_account(name, "", *more)
        return self.broker.add_token(name, "river", *(["admin"] if more else []))

    def titles(self) -> list[str]:
        river = request(f"{self.broker.url}/river.json", headers=self.tokens["dave"])
        return [item["title"] for item in json.loads(river.body)["items"]]

    def admin(self, path: str, body: object = None) -> Any:
        headers = {**self.tokens["dave"], "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        url, method = f"{self.broker.url}/api/v1/{path}", "POST" if data else "GET"
        answer = request(url, method, data, headers)
        self.assertEqual(answer.status, 200, answer.text)
        return json.loads(answer.body)

    def follow(self, diary: Diary) -> None:
        """Follow the diary, and live through all that may happen to it."""
        fields = {"url": diary.url}
        followed = post_form(f"{self.broker.url}/river/subscribe", fields, **self.tokens["dave"])
        self.assertEqual(followed.status, 200, followed.text)
        until(lambda: self.titles() == [f"{TOKEN} 1"], "the first item")
        diary.version = 2
        self.admin("topic/read", fields)
        until(lambda: len(self.titles()) == 2, "the second item")
        diary.broken = True
        self.admin("topic/read", fields)
        diary.broken = False

    def test_nobody_else_finds_it(self) -> None:
        diary = self.served(Diary())
        watchers = [Watcher(self.broker, path) for path in sorted(STREAMS)]
        self.follow(diary)
        # What is public is seen in all of them, after what is private.
        mark = "http://mark.example/"
        request(f"{self.broker.url}/pingSiteForm?name=mark&url={quote(mark)}")
        for watcher in watchers:
            until(partial(watcher.has_said, mark), "the streams")
            self.assert_nothing(watcher.said.decode(), "a stream")
        self.broker.restart()  # which writes the statistics and the change lists
        for who in ("a stranger", "eve"):
            self.walk(who)
        for who in ("a stranger", "eve"):
            self.compare(who, diary)
        self.assertIn(diary.url, self.get("dave", "/river/opml").text)  # its owner sees it
        known = self.admin(f"topic?url={quote(diary.url, safe='')}")
        self.assertIn(diary.url, json.dumps(known))  # and so do administrators

    def get(self, who: str, path: str) -> Answer:
        return request(urljoin(self.broker.url, path), headers=self.tokens.get(who, {}))

    def assert_nothing(self, text: str, where: str) -> None:
        for secret in (TOKEN, HOST, TITLE):
            self.assertNotIn(secret, text, f"{where}: {secret}")

    def walk(self, who: str) -> None:
        """Look at all routes, and at all that pages link to."""
        routes = {route.path for route in every_route("dave") if route.method == "GET"}
        waiting, seen = sorted(routes - ENDLESS), set(ENDLESS)
        while waiting:
            path = waiting.pop()
            if path in seen:
                continue
            seen.add(path)
            answer = self.get(who, path)
            text = answer.body.decode("utf-8", "replace")
            self.assert_nothing(f"{answer.headers}{text}", f"{who} finds it at {path}")
            if text and "html" in answer.headers.get("content-type", ""):
                page: Any = html.fromstring(text)
                links = page.xpath("//a/@href | //link/@href | //img/@src")
                urls = [urlsplit(urljoin(self.broker.url + path, str(link))) for link in links]
                own = [url for url in urls if url.netloc == urlsplit(self.broker.url).netloc]
                waiting += [f"{url.path}?{url.query}" if url.query else url.path for url in own]
        self.assertGreater(len(seen), 60)

    def compare(self, who: str, diary: Diary) -> None:
        """Ask for the feed, and for one that nobody follows: the answers are the same."""
        nobodys = diary.url.replace(HOST, NOBODYS[0]).replace(TOKEN, NOBODYS[1])
        for route in every_route("dave"):
            # Some ping what they are asked about, and the doctor reads it.
            acts = "rssurl" in route.parameters or route.path == "/doctor"
            if route.method != "GET" or route.path in ENDLESS or acts:
                continue
            for name in sorted(route.parameters & NAMING):
                texts = []
                for url in (diary.url, nobodys):
                    asked = urlsplit(url).hostname if name in {"host", "name"} else url
                    answer = self.get(who, f"{route.path}?{name}={quote(str(asked), safe='')}")
                    text = f"{answer.status} {answer.body.decode('utf-8', 'replace')}"
                    text = text.replace(HOST, NOBODYS[0]).replace(TOKEN, NOBODYS[1])
                    texts.append(_PASSING.sub("", text))
                self.assertEqual(texts[0], texts[1], f"{who} at {route.path}?{name}=")
