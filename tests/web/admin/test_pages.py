"""The pages of the console: who sees them, what they show, and what their forms do."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from rsscloud_broker.model import Callback
from rsscloud_broker.model.administration import SubscriptionFilter
from rsscloud_broker.model.log_entry import LogEntry
from rsscloud_broker.web.admin.elements import ON_PAGE
from rsscloud_broker.web.admin.page import PLACES
from tests.core.house import CALLBACK, FEED
from tests.front_doors.exchange import Answer
from tests.web.admin.console import BAD, ENDED, MOVING, OLD, ConsoleCase

PAGES = (
    *PLACES,
    "/admin/account?name=anna",
    "/admin/subscription?id=1",
    f"/admin/topic?url={quote(FEED)}",
)

#: The pages with forms that change something, and what each form sends.
FORMS = (
    ("/admin/subscription", {"do": "redeliver", "id": "1"}),
    ("/admin/subscription", {"do": "mark", "id": "1"}),
    ("/admin/subscription", {"do": "unmark", "id": "1"}),
    ("/admin/subscription", {"do": "remove", "id": "1", "sure": "yes"}),
    ("/admin/topic", {"do": "read", "url": FEED}),
    ("/admin/topic", {"do": "revive", "url": ENDED}),
    ("/admin/topic", {"do": "end", "url": OLD, "reason": "x", "sure": "yes"}),
    ("/admin/topic", {"do": "move", "url": MOVING, "to": f"{MOVING}2", "sure": "yes"}),
    ("/admin/hosts", {"do": "close-breaker", "host": "reader.example"}),
    ("/admin/blocks", {"do": "block", "kind": "host", "object": "a.example", "reason": "x"}),
    ("/admin/blocks", {"do": "unblock", "kind": "source", "object": "192.0.2.0/24"}),
    ("/admin/account", {"do": "disable", "name": "anna", "reason": "spam"}),
    ("/admin/account", {"do": "enable", "name": "anna"}),
    ("/admin/account", {"do": "promote", "name": "anna"}),
    ("/admin/account", {"do": "demote", "name": "anna"}),
    ("/admin/account", {"do": "set-limit", "name": "anna", "megabytes": "5"}),
    ("/admin/accounts", {"do": "remove-account", "name": "anna", "sure": "yes"}),
    ("/admin/announcements", {"do": "announce", "text": "x"}),
    ("/admin/announcements", {"do": "withdraw", "id": "1"}),
)

#: The forms after which a page shows a secret, at once.
SECRET_FORMS = (
    ("/admin/account", {"do": "invite", "name": "berta"}),
    ("/admin/account", {"do": "reset", "name": "anna"}),
)


class PagesCase(ConsoleCase):
    def setUp(self) -> None:
        super().setUp()
        self.dave_browser = self.browser("dave")
        self.get("/admin")
        self.csrf = self.dave_browser.csrf

    def get(self, path: str, status: int = 200) -> str:
        """Open a page; the text of its main part."""
        answer = self.dave_browser.get(path)
        self.assertEqual(answer.status, status, answer.text)
        return self.text()

    def text(self) -> str:
        return " ".join(self.dave_browser.page.xpath("string(//main)").split())

    def send(self, path: str, **fields: str) -> Answer:
        """Send a form with the token of the session."""
        return self.dave_browser.post(path, {"csrf": self.csrf, **fields})

    def press(self, path: str, button: str, **fields: str) -> Answer:
        """Open a page, and send the form of a button on it."""
        self.get(path)
        return self.dave_browser.send(button, None, **fields)

    def done(self, answer: Answer) -> str:
        """Go where the answer to a form leads; what the notice there says."""
        self.assertEqual(answer.status, 303, answer.text)
        self.assertEqual(answer.headers["cache-control"], "no-store")
        self.get(answer.headers["location"])
        return self.dave_browser.said("//*[@role='status']")

    def alert(self) -> str:
        return self.dave_browser.said("//*[@role='alert']")


class AccessTests(PagesCase):
    def test_strangers_and_programs_are_led_to_sign_in(self) -> None:
        """Tokens do not open pages."""
        for headers in ({}, {"Authorization": f"Bearer {self.dave}"}):
            for page in PAGES:
                answer = self.browser().ask("GET", page, headers=headers)
                self.assertEqual(answer.status, 303)
                location = answer.headers["location"]
                self.assertTrue(location.startswith("/signin?next=/admin"), location)
            for path, fields in (*FORMS, *SECRET_FORMS):
                self.assertEqual(self.browser().post(path, fields, headers).status, 303)
        self.assertEqual(self.result(self.verbs.changes()), [])

    def test_others_are_refused(self) -> None:
        anna = self.browser("anna")
        for page in PAGES:
            answer = anna.get(page)
            self.assertEqual(answer.status, 403)
            self.assertIn("for administrators", answer.text)
        anna.get("/account")
        self.assertEqual(anna.page.xpath("//a[@href='/admin']"), [])
        csrf = anna.csrf
        for path, fields in (*FORMS, *SECRET_FORMS):
            self.assertEqual(anna.post(path, {**fields, "csrf": csrf}).status, 403)
        self.assertEqual(self.result(self.verbs.changes()), [])

    def test_no_cache_keeps_them(self) -> None:
        for page in PAGES:
            answer = self.dave_browser.get(page)
            self.assertEqual((answer.status, answer.headers["cache-control"]), (200, "no-store"))
            self.assertIn("frame-ancestors 'none'", answer.headers["content-security-policy"])

    def test_administrators_find_them(self) -> None:
        self.dave_browser.get("/account")
        (link,) = self.dave_browser.page.xpath("//header//a[@href='/admin']")
        self.assertEqual(link.text, "Administration")
        for page in PLACES:
            self.get(page)
            nav = "//main/nav//a"
            self.assertEqual(self.dave_browser.page.xpath(f"{nav}/@href"), list(PLACES))
            here = self.dave_browser.page.xpath(f"{nav}[@aria-current='page']/@href")
            self.assertEqual(here, [page])

    def test_each_form_needs_the_token_of_the_session(self) -> None:
        self.fill()
        before = self.result(self.verbs.changes())
        other = self.browser("dave")
        other.get("/admin")
        for path, fields in (*FORMS, *SECRET_FORMS):
            for csrf in ("", "x", other.csrf):
                answer = self.dave_browser.post(path, {**fields, "csrf": csrf})
                self.assertEqual(answer.status, 403)
            headers = {"Sec-Fetch-Site": "cross-site"}
            answer = self.dave_browser.post(path, {**fields, "csrf": self.csrf}, headers)
            self.assertEqual(answer.status, 403)
        self.assertEqual(self.result(self.verbs.changes()), before)

    def test_each_form_works_and_is_a_change(self) -> None:
        self.fill()
        for path, fields in FORMS:
            before = self.result(self.verbs.changes())
            self.assertTrue(self.done(self.send(path, **fields)), fields)
            after = self.result(self.verbs.changes())
            self.assertEqual(after[1:], before, fields)
            self.assertEqual(after[0].account, "dave")

    def test_forms_that_ask_for_nothing(self) -> None:
        for path in {path for path, _ in FORMS}:
            answer = self.send(path, do="dance", id="1")
            self.assertEqual(answer.status, 400)
            self.assertIn("nothing known", self.alert())

    def test_every_form_of_the_pages_has_the_token(self) -> None:
        self.fill()
        self.let_fail(self.one)
        for page in PAGES:
            self.get(page)
            for form in self.dave_browser.page.xpath("//form[@method='post']"):
                self.assertEqual(form.xpath(".//input[@name='csrf']/@value"), [self.csrf])


class SubscriptionPageTests(PagesCase):
    def rows(self) -> list[str]:
        return [str(cell) for cell in self.dave_browser.page.xpath("//tbody/tr/td[1]//text()")]

    def test_found_by_the_url(self) -> None:
        for query, found in (
            ("", ["1", "2"]),
            (f"?topic={quote(FEED)}", ["1", "2"]),
            ("?host=READER.example", ["1"]),
            ("?protocol=soap", ["2"]),
            ("?state=active&host=other.example", ["2"]),
            ("?state=failing", []),
        ):
            self.get(f"/admin/subscriptions{query}")
            self.assertEqual(self.rows(), found, query)
        self.get("/admin/subscriptions?state=failing&host=a.example")
        page = self.dave_browser.page
        self.assertEqual(page.xpath("string(//option[@selected])"), "failing")
        self.assertEqual(page.xpath("string(//input[@name='host']/@value)"), "a.example")

    def test_filters_that_make_no_sense(self) -> None:
        for query in ("topic=x", "host=a%20b", "state=x"):
            self.get(f"/admin/subscriptions?{query}", 400)
            self.assertTrue(self.alert())
        for after in ("x", "-1", "9" * 40, "%00"):
            self.get(f"/admin/subscriptions?after={after}&protocol=%00a")

    def test_pages(self) -> None:
        for number in range(ON_PAGE):
            self.stored(Callback(f"http://r{number}.example/", "http-post"))
        self.get("/admin/subscriptions?protocol=http-post")
        (following,) = self.dave_browser.page.xpath("//a[@rel='next']/@href")
        seen = self.rows()
        self.assertEqual(len(seen), ON_PAGE)
        self.get(following)
        self.assertEqual(len(self.rows()), 1)
        self.assertNotIn(self.rows()[0], seen)
        self.assertEqual(self.dave_browser.page.xpath("//a[@rel='next']"), [])

    def test_one(self) -> None:
        self.let_fail(self.one, "status 500")
        text = self.get("/admin/subscription?id=1")
        for said in (CALLBACK.url, FEED, "status 500", "http-post", "Status 500", "had 1 attempt"):
            self.assertIn(said, text)
        labels = self.dave_browser.page.xpath("//pre[@role='region']/@aria-label")
        self.assertEqual(labels, ["Request 1", "Answer 1", "Request 2", "Answer 2"])
        for wrong in ("", "?id=999", "?id=x", f"?id={'9' * 40}"):
            self.assertEqual(self.dave_browser.get(f"/admin/subscription{wrong}").status, 404)

    def test_remove_is_asked_once_more(self) -> None:
        answer = self.press("/admin/subscription?id=1", "Remove", do="remove", reason=BAD)
        self.assertEqual(answer.status, 200)
        self.assertIn("Nobody can undo this", self.text())
        self.result(self.verbs.subscription(1))
        back = self.dave_browser.page.xpath("//main//form/a/@href")
        self.assertEqual(back, ["/admin/subscription?id=1"])
        self.assertIn("has been removed", self.done(self.dave_browser.send("Yes, do it")))
        self.assertEqual(self.last_change(), ("dave", "remove", "1", BAD))
        found = self.result(self.verbs.find_subscriptions(SubscriptionFilter()))
        self.assertEqual(found.subscriptions, (self.two,))
        answer = self.send("/admin/subscription", do="mark", id="1")
        self.assertEqual(answer.status, 404)


class TopicPageTests(PagesCase):
    def setUp(self) -> None:
        super().setUp()
        self.fill()

    def test_read(self) -> None:
        self.assertIn(
            "It had changed",
            self.done(self.press(f"/admin/topic?url={quote(FEED)}", "Fetch it now")),
        )
        self.assertIn("It had not changed", self.done(self.dave_browser.send("Fetch it now")))
        del self.fetcher.contents[FEED]
        for said in ("1 fetch", "2 fetches"):
            self.assertIn("could not be fetched", self.done(self.dave_browser.send("Fetch it now")))
            self.get(f"/admin/topic?url={quote(FEED)}")
            self.assertIn(f"Failed in a row{said}Last success", self.text())

    def test_end_and_revive(self) -> None:
        self.press(f"/admin/topic?url={quote(OLD)}", "End it", reason="it is gone")
        self.assertIn("lose their subscriptions", self.text())
        self.assertIn("has ended", self.done(self.dave_browser.send("Yes, do it")))
        self.assertEqual(self.last_change(), ("dave", "end", OLD, "it is gone"))
        self.assertIn("it is gone", self.text())
        self.assertIn("is revived", self.done(self.dave_browser.send("Revive it")))

    def test_take_down(self) -> None:
        self.get(f"/admin/topic?url={quote(OLD)}")
        self.assertNotIn("Take it down", self.text())
        spam = "http://feeds.example/spam.png"  # no topic
        self.press(f"/admin/topic?url={quote(spam)}", "Take it down", reason="it is spam")
        self.assertIn("in all its versions", self.text())
        self.assertIn("is taken down", self.done(self.dave_browser.send("Yes, do it")))
        self.assertEqual(self.taken_down, [(spam, "it is spam")])

    def test_a_topic_does_not_end_without_a_reason(self) -> None:
        answer = self.send("/admin/topic", do="end", url=OLD, reason=" ", sure="yes")
        self.assertEqual(answer.status, 400)
        self.assertIn("reason is needed", self.alert())

    def test_unknown_topics(self) -> None:
        self.get("/admin/topic?url=http://no.example/", 404)
        self.assertIn("knows no topic", self.alert())
        self.get("/admin/topic?url=x", 400)
        self.assertIn("http://", self.alert())


class OtherPageTests(PagesCase):
    def setUp(self) -> None:
        super().setUp()
        self.fill()

    def test_overview(self) -> None:
        self.let_fail(self.one)
        text = self.get("/admin")
        needs = ("Needs attention", "reader.example:8000 does not answer", "1 subscription fails")
        for said in (*needs, "Events for distribution", "Pings", "Hello", "alice"):
            self.assertIn(said, text)
        self.assertNotIn("All statistics", text)  # the front door for them does not run

    def test_block_and_lift(self) -> None:
        answer = self.press("/admin/blocks", "Block", kind="host", object="a b", reason="x")
        self.assertEqual(answer.status, 400)
        self.assertIn("names no host", self.alert())
        values = self.dave_browser.page.xpath("//form//input[@maxlength]/@value")
        self.assertEqual(values, ["a b", "x"])
        answer = self.dave_browser.send("Block", kind="host", object="*.spam.example", reason="x")
        self.assertIn("works", self.done(answer))
        self.get("/admin/blocks?kind=host")
        rows = self.dave_browser.page.xpath("//tbody/tr/td[2]//text()")
        self.assertEqual(rows, ["*.spam.example"])
        self.assertIn("is lifted", self.done(self.dave_browser.send("Lift")))

    def test_announce(self) -> None:
        answer = self.press("/admin/announcements", "Announce", text="Down", since="x", until="")
        self.assertEqual(answer.status, 400)
        self.assertIn("From", self.alert())
        self.assertIn("such as 2026-11-22T10:30:00Z", self.alert())
        answer = self.dave_browser.send("Announce", text="Down", until="2099-01-01T10:30", since="")
        self.assertIn("is stored", self.done(answer))
        self.assertIn("Down", self.dave_browser.page.xpath("string(//aside)"))
        self.send("/admin/announcements", do="withdraw", id="1")
        self.assertIn("is withdrawn", self.done(self.press("/admin/announcements", "Withdraw")))
        self.assertEqual(self.dave_browser.page.xpath("//aside"), [])

    def test_changes(self) -> None:
        text = self.get("/admin/changes")
        for said in (ENDED, "block", "announce", "192.0.2.0/24"):
            self.assertIn(said, text)
        self.assertIn("Nobody has changed", self.get("/admin/changes?after=1"))

    def test_log(self) -> None:
        entry = LogEntry("ping", "accepted", 7.0, topic=FEED, source="192.0.2.77", account="x")
        did = LogEntry("administration", "done", 8.0, account="alice", reason="blocked the x")
        self.successResultOf(self.store.add_log_entries([entry, did]))
        text = self.get("/admin/log")
        self.assertIn("alice blocked the x.", text)
        self.assertIn("It came from 192.0.2.77.", text)
        self.assertNotIn("192.0.2.77", self.get("/admin/log?kind=administration"))
        self.get("/admin/log?kind=x", 400)


class StrangersTextTests(PagesCase):
    """What strangers write is text on every page."""

    def test_everywhere(self) -> None:
        url = f"http://reader.example/{BAD}"
        topic = f"http://feeds.example/{BAD}"
        bad = self.stored(Callback(url, "http-post", BAD), topic)
        self.let_fail(bad)
        self.result(self.verbs.mark("dave", bad.id, BAD))
        self.result(self.verbs.block("dave", "host", "reader.example", BAD))
        self.result(self.verbs.announce("dave", BAD))
        self.result(self.verbs.end_topic("dave", topic, BAD))
        entry = LogEntry("ping", "refused", 7.0, topic=BAD, source=BAD, account=BAD, reason=BAD)
        self.successResultOf(self.store.add_log_entries([entry]))
        query = urlencode(dict.fromkeys(("topic", "host", "protocol", "url", "after"), BAD))
        pages = [f"/admin/subscription?id={bad.id}", f"/admin/topic?{urlencode({'url': topic})}"]
        pages += [*PAGES, *(f"{page}?{query}" for page in PLACES)]
        shown = 0
        for page in pages:
            answer = self.dave_browser.get(page)
            self.assertIn(answer.status, {200, 400})
            document = answer.html
            self.assertEqual(document.xpath("//main//script | //@onerror | //@style"), [], page)
            shown += str(document.xpath("string(//body)")).count("<script>alert(1)")
        self.assertGreater(shown, 10)
        fields = dict.fromkeys(("id", "url", "to", "reason", "host", "kind", "object", "text"), BAD)
        for path, sent in FORMS:
            answer = self.send(path, **{**fields, "do": sent["do"]})
            self.assertIn(answer.status, {200, 303, 400, 404})
            self.assertNotIn("<script>", answer.text, path)
