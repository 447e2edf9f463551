"""The administration API: who may call it, what it takes, does and answers."""

from __future__ import annotations

import json
from shlex import split
from typing import Any
from urllib.parse import quote

from lxml import html
from twisted.internet.defer import fail

from rsscloud_broker.errors import DiskFull, Unavailable
from rsscloud_broker.model.administration import VERBS
from rsscloud_broker.web.admin.api import MAX_BODY
from rsscloud_broker.web.admin.operations import OPERATIONS
from tests.core.house import CALLBACK, FEED
from tests.web.admin.console import BAD, ENDED, MOVING, OLD, PUBLIC_URL, ConsoleCase

NOBODY = 4711


def path_of(path: str) -> str:
    return path.replace("{id}", "1")


class CallerTests(ConsoleCase):
    def test_each_operation_needs_a_token_with_the_scope(self) -> None:
        weak, low = self.people.token("log", "metrics"), self.people.token("log", name="anna")
        for each in OPERATIONS:
            path = path_of(each.path)
            for token in ("nonsense", "rsb_nonsense", ""):
                answer = self.call(each.method, path, {}, token)
                self.assertEqual(self.problem(answer)[0], 401)
                self.assertTrue(answer.headers["www-authenticate"].startswith("Bearer"))
            for token in (weak, low):
                answer = self.call(each.method, path, {}, token)
                status, said = self.problem(answer)
                self.assertEqual(status, 403)
                self.assertIn("scope admin", said)
                self.assertIn("insufficient_scope", answer.headers["www-authenticate"])

    def test_a_token_of_somebody_who_is_no_administrator(self) -> None:
        """Its scope alone is not enough."""
        answer = self.call("GET", "/state", None, self.people.token("admin", name="anna"))
        self.assertEqual(self.problem(answer)[0], 403)

    def test_a_session_does_not_open_it(self) -> None:
        """So no other site can make a browser call it."""
        browser = self.browser("dave")
        for method in ("GET", "POST"):
            answer = browser.ask(method, "/api/v1/blocks")
            self.assertEqual(self.problem(answer)[0], 401)

    def test_scripts_of_other_sites_get_nothing(self) -> None:
        headers = {"Origin": "https://evil.example"}
        for path in ("/api", "/api/v1/state", "/api/v1/subscriptions/1", "/api/v1/x"):
            for method in ("GET", "OPTIONS"):
                answer = self.browser().ask(method, path, headers=headers)
                names = [name for name in answer.headers if "access-control" in name.lower()]
                self.assertEqual(names, [], path)

    def test_everybody_may_read_what_it_can_do(self) -> None:
        """A browser gets a page."""
        browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
        page = self.browser().ask("GET", "/api", headers=browser)
        self.assertEqual(page.headers.get_content_type(), "text/html")
        self.assertEqual(page.headers["vary"], "Accept")
        for headers in ({"Accept": "*/*"}, {"Accept": "application/json"}):
            answer = self.browser().ask("GET", "/api", headers=headers)
            self.assertEqual(answer.headers.get_content_type(), "application/json")
            self.assertEqual(json.loads(answer.body)["openapi"], "3.1.0")
        document = self.browser().ask("GET", "/api/openapi.json", headers=browser)
        self.assertEqual(document.body, answer.body)
        docs = self.browser().ask("GET", "/api/docs")
        self.assertEqual(docs.body, page.body)

    def test_the_page_has_everything(self) -> None:
        """Each operation with a command that works, and each object that links lead to."""
        text = self.browser().ask("GET", "/api/docs").body.decode()
        page: Any = html.document_fromstring(text)
        self.assertLess(len(text), 60_000)
        places = set(page.xpath("//@id"))
        self.assertLessEqual({each.name for each in OPERATIONS}, places)
        for link in page.xpath("//main//a/@href[starts-with(., '#')]"):
            self.assertIn(link[1:], places)
        self.fill()
        called = 0
        for command in page.xpath("//pre"):
            words = split(command.text_content())
            url, *more = [each for each in words[1:] if each not in {"-H", "-d", "\n"}]
            self.assertEqual(more[0], "Authorization: Bearer $TOKEN")
            body = json.loads(more[2]) if len(more) > 1 else None
            path = url.removeprefix(f"{PUBLIC_URL}/api/v1")
            answer = self.call("GET" if body is None else "POST", path, body)
            self.assertEqual(answer.status, 200, command.text_content())
            called += 1
        self.assertEqual(called, len(OPERATIONS))


class RequestTests(ConsoleCase):
    """What is malformed."""

    def refusal(self, *call: Any, **more: Any) -> tuple[int, str]:  # type: ignore[override] # of HTTP
        return self.problem(self.call(*call, **more))

    def test_unknown_addresses(self) -> None:
        for path in ("/nothing", "/subscriptions/x", "/subscriptions/1/dance", "/state/1"):
            for method in ("GET", "POST"):
                status, said = self.refusal(method, path)
                self.assertEqual(status, 404)
                self.assertIn("GET /api", said)

    def test_wrong_methods(self) -> None:
        for each in OPERATIONS:
            others = {one.method for one in OPERATIONS if one.path == each.path}
            for method in {"GET", "POST"} - others:
                answer = self.call(method, path_of(each.path))
                self.assertEqual(self.problem(answer)[0], 405)
                self.assertEqual(answer.headers["allow"], each.method)

    def test_unknown_and_missing_values_are_named(self) -> None:
        for method, path, values, word in (
            ("GET", "/subscriptions", {"colour": "red"}, "colour"),
            ("GET", "/topic", {}, "url"),
            ("POST", "/blocks", {"kind": "host", "object": "a.example"}, "reason"),
            ("POST", "/blocks", {"kind": "dog", "object": "x", "reason": "x"}, "$.kind"),
            ("POST", "/subscriptions/1/mark", {"colour": "red"}, "colour"),
            ("POST", "/subscriptions/1/mark", {"id": 2}, "id is in the path"),
            ("POST", "/subscriptions/1/mark", {"reason": 7}, "$.reason"),
            ("POST", "/subscriptions/1/mark", {"reason": "x" * 501}, "501"[:2]),
            ("POST", "/announcements", {"text": "x", "until": "tomorrow"}, "$.until"),
        ):
            status, said = self.refusal(method, path, values)
            self.assertEqual(status, 400, said)
            self.assertIn(word, said)

    def test_values_out_of_bounds(self) -> None:
        for value in ("0", "501", "-1", "x", "1e3", "9" * 30, "\u0661"):
            self.assertEqual(self.refusal("GET", "/subscriptions", {"limit": value})[0], 400, value)
        for value in ("-1", "9" * 19, "9" * 30):
            self.assertEqual(self.refusal("GET", "/changes", {"after": value})[0], 400, value)
        self.assertEqual(self.refusal("GET", f"/subscriptions/{'9' * 19}")[0], 400)
        self.assertEqual(self.refusal("GET", f"/subscriptions/{'9' * 20}")[0], 404)

    def test_queries_that_cannot_be_read(self) -> None:
        self.assertIn("UTF-8", self.refusal("GET", "/topic?url=%ff")[1])
        self.assertIn("twice", self.refusal("GET", "/topic?url=a&url=b")[1])
        self.assertIn("query", self.refusal("POST", "/subscriptions/1/mark?reason=x")[1])

    def test_bodies_that_cannot_be_read(self) -> None:
        path = "/subscriptions/1/mark"
        for body in (
            b"[]", b"7", b'"x"', b"null", b"{", b'{"reason": "\xff"}', b"{}{}", b"[" * 50_000,
            b'{"a":' * 9000,
        ):  # fmt: skip
            self.assertEqual(self.refusal("POST", path, body)[0], 400, body[:20])
        self.assertEqual(self.last_changes(), 0)

    def test_other_media_types(self) -> None:
        path = "/subscriptions/1/mark"
        for kind in ("application/x-www-form-urlencoded", "text/plain", "text/xml", ""):
            status, said = self.refusal("POST", path, b"{}", **{"Content-Type": kind})
            self.assertEqual(status, 415)
            self.assertIn("application/json", said)
        answer = self.call("POST", path, b"{}", **{"Content-Type": "Application/JSON; charset=x"})
        self.assertEqual(answer.status, 200)

    def test_large_bodies(self) -> None:
        path = "/subscriptions/1/mark"
        body = json.dumps({"reason": "x" * MAX_BODY}).encode()
        status, said = self.refusal("POST", path, body)
        self.assertEqual(status, 413)
        self.assertIn("65,536", said)
        answer = self.call("POST", path, b" " * 1_048_577)
        self.assertEqual(answer.status, 413)
        self.assertEqual(self.last_changes(), 0)

    def test_what_no_operation_gets_to_see(self) -> None:
        for method, path, body, status in (
            ("PUT", "/blocks", b"{}", 405),
            ("DELETE", "/subscriptions/1/mark", b"", 404),
            ("POST", "/subscriptions/1/mark", b" " * 1_048_577, 413),
        ):
            answer = self.call(method, path, body, Accept="*/*")
            kind = answer.headers.get_content_type()
            self.assertEqual((answer.status, kind), (status, "text/plain"))
        described = json.loads(self.browser().ask("GET", "/api/openapi.json").body)
        self.assertIn("in plain text", described["info"]["description"])

    def last_changes(self) -> int:
        return len(self.result(self.verbs.changes()))

    def test_the_store_is_unavailable(self) -> None:
        for error in (Unavailable("/var"), DiskFull("/var")):
            self.patch(self.store, "announcements", lambda *_, error=error: fail(error))
            answer = self.call("GET", "/announcements")
            status, said = self.problem(answer)
            self.assertEqual((status, answer.headers["retry-after"]), (503, "30"))
            self.assertNotIn("/var", said)

    def test_a_bug_is_logged(self) -> None:
        self.patch(self.store, "announcements", lambda *_: fail(ValueError("secret")))
        answer = self.call("GET", "/announcements")
        self.assertEqual(answer.status, 500)
        self.assertNotIn("secret", answer.text)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_texts_that_no_database_takes(self) -> None:
        for bad in ("\x00", "a\x00b", "\ud800", "\u202e", "x" * 60):
            body = json.dumps({"reason": bad}).encode()
            self.assertIn(self.call("POST", "/subscriptions/1/mark", body).status, {200, 400})
            for field in ("topic", "host", "protocol"):
                query = quote(bad, errors="surrogatepass")
                answer = self.call("GET", f"/subscriptions?{field}={query}")
                self.assertIn(answer.status, {200, 400, 422})
            for path in ("/hosts", "/blocks"):
                query = quote(bad, errors="surrogatepass")
                self.assertIn(self.call("GET", f"{path}?after={query}").status, {200, 400})
        self.assertNotIn("\x00", self.last_change()[3])


class SubscriptionTests(ConsoleCase):
    def test_details(self) -> None:
        self.let_fail(self.one)
        found = self.asked("GET", "/subscriptions/1")
        self.assertEqual(found["subscription"]["callback"], CALLBACK.url)
        self.assertEqual(found["subscription"]["states"], ["active", "failing", "waiting"])
        self.assertEqual(found["subscription"]["last_error"], BAD)
        self.assertEqual(found["pending"]["attempts"], 1)
        failure, _ = found["failures"]
        self.assertEqual(failure["exchange"]["status"], 500)
        self.assertEqual(failure["exchange"]["request_body"], f"\x00\ufffd<rss/>{BAD}")
        self.assertTrue(failure["at"].endswith("Z"))
        self.assertEqual((found["breakers"], found["block"]), ([], None))

    def test_unknown_ids(self) -> None:
        for each in OPERATIONS:
            if "{id}" in each.path:
                path = each.path.replace("{id}", str(NOBODY))
                status, said = self.problem(self.call(each.method, path))
                self.assertEqual(status, 404)
                self.assertIn(str(NOBODY), said)


class OtherTests(ConsoleCase):
    def setUp(self) -> None:
        super().setUp()
        self.fill()

    def test_topics(self) -> None:
        found = self.asked("GET", "/topic", {"url": OLD})
        self.assertEqual((found["status"]["url"], found["block"]), (OLD, None))
        self.assertTrue(self.asked("POST", "/topic/read", {"url": FEED})["changed"])
        found = self.asked("POST", "/topic/read", {"url": "http://feeds.example/none.xml"})
        self.assertTrue(found["problem"])
        found = self.asked("POST", "/topic/end", {"url": OLD, "reason": "gone"})
        self.assertEqual(found["status"]["ended"], "gone")
        self.assertEqual(self.last_change(), ("dave", "end", OLD, "gone"))
        found = self.asked("POST", "/topic/revive", {"url": ENDED})
        self.assertIsNone(found["status"]["ended"])
        new = "http://feeds.example/moved.xml"
        found = self.asked("POST", "/topic/move", {"url": MOVING, "to": new})
        self.assertEqual((found["status"]["url"], found["status"]["moved_from"]), (new, [MOVING]))

    def test_what_makes_no_sense(self) -> None:
        for path, values, words in (
            ("/topic/revive", {"url": OLD}, "has not ended, so it cannot be revived."),
            ("/topic/read", {"url": "feeds.example"}, "http://"),
            ("/blocks", {"kind": "source", "object": "x", "reason": "x"}, "is no source"),
            ("/announcements", {"text": "x", "until": "1999-01-01T00:00:00Z"}, "must end after"),
            ("/announcements", {"text": "x", "since": "0001-01-01T00:00:00Z"}, "1970"),
        ):
            status, said = self.problem(self.call("POST", path, values))
            self.assertEqual(status, 422, said)
            self.assertIn(words, said)
        status, said = self.problem(self.call("GET", "/topic", {"url": "http://no.example/"}))
        self.assertEqual(status, 404)

    def test_announcements(self) -> None:
        body = {"text": "Down on Sunday", "since": "2098-01-01T01:00:00+01:00", "until": None}
        made = self.asked("POST", "/announcements", body)
        self.assertEqual((made["since"], made["until"]), ("2098-01-01T00:00:00Z", None))
        items = self.asked("GET", "/announcements")["items"]
        self.assertEqual([one["text"] for one in items], ["Hello", "Down on Sunday"])
        withdrawn = self.asked("POST", f"/announcements/{made['id']}/withdraw")
        self.assertEqual(withdrawn, {"done": True})
        self.assertEqual(len(self.asked("GET", "/announcements")["items"]), 1)

    def test_every_verb_has_an_operation(self) -> None:
        names = {each.name.replace("-", " ") for each in OPERATIONS}
        self.assertLessEqual(set(VERBS), names)
