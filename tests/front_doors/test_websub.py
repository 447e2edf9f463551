"""The WebSub front door: its calls to the broker, and its answers to clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import urlencode

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker import errors
from rsscloud_broker.config import Http, NoOptions
from rsscloud_broker.front_doors.websub import WebSubDoor
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import IFrontDoor, Route
from rsscloud_broker.model import Callback, Intent
from rsscloud_broker.testing import FakeBroker, front_door_parts
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.web.pages import PageRenderer
from rsscloud_broker.wire.links import HUB_PATHS
from tests.front_doors.exchange import FORM, Answer, ask
from tests.front_doors.fixture import CALLER, FEED, OTHER_FEED, PUBLIC_URL
from tests.http.test_site import Door, Says

CALLBACK = "http://reader.example/websub/8f31?a=1"
SUBSCRIBE = {"hub.mode": "subscribe", "hub.topic": FEED, "hub.callback": CALLBACK}
PUBLISH = {"hub.mode": "publish", "hub.url": FEED}


class HubTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.broker = FakeBroker(("websub",))
        self.open()

    def open(self, *doors: IFrontDoor) -> None:
        """Serve a hub, and perhaps other front doors."""
        parts = front_door_parts(broker=self.broker, pages=PageRenderer(), public_url=PUBLIC_URL)
        door = WebSubDoor(NoOptions(), parts)
        factory = bounded_site(Root([door, *doors], PUBLIC_URL), HTTPLimits(Http(), Clock()))
        self.ask = partial(ask, factory)

    def post(
        self,
        fields: Mapping[str, str] | Sequence[tuple[str, str]],
        path: str = "/websub",
        **headers: str,
    ) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", path, urlencode(fields).encode(), {"Content-Type": FORM, **named})

    def assert_refused(self, answer: Answer, status: int, *words: str) -> None:
        """The request is refused with a status, and a reason in plain text."""
        self.assertEqual(answer.status, status, answer.text)
        self.assertEqual(answer.headers["content-type"], "text/plain; charset=utf-8")
        for word in words:
            self.assertIn(word, answer.text)

    @property
    def accepted(self) -> Intent:
        """The one intent that the broker has accepted."""
        (intent,) = self.broker.accepted
        return intent


class SubscribingTests(HubTestCase):
    """WebSub, section 5.1: subscription requests."""

    def test_subscription(self) -> None:
        """5.1.2: 202, before and regardless of the verification."""
        answer = self.post(SUBSCRIBE)
        self.assertEqual((answer.status, answer.headers.get_content_type()), (202, "text/plain"))
        callback, options = Callback(CALLBACK, "websub"), {"hub": f"{PUBLIC_URL}/websub"}
        self.assertEqual(self.accepted, Intent(FEED, callback, 864_000, True, CALLER, options))
        self.assertEqual((self.broker.intents, self.broker.unsubscribed), ([], []))

    def test_unsubscription(self) -> None:
        """5.1: only the mode differs; the hub ignores a lease."""
        fields = SUBSCRIBE | {"hub.mode": "unsubscribe", "hub.lease_seconds": "soon"}
        self.assertEqual(self.post(fields).status, 202)
        self.assertTrue(self.accepted.unsubscribe)

    def test_terms(self) -> None:
        """5.1: the hub stores the secret, and ignores unknown fields."""
        self.post(SUBSCRIBE | {"hub.secret": "sesame", "hub.nonsense": "1"})
        options = {"hub": f"{PUBLIC_URL}/websub", "secret": "sesame"}
        self.assertEqual(self.accepted.options, options)

    def test_every_path_is_a_hub(self) -> None:
        """7: notifications name the hub URL that the subscriber used."""
        for path in HUB_PATHS:
            self.assertEqual(self.post(SUBSCRIBE, path).status, 202)
        expected = [f"{PUBLIC_URL}{path}" for path in HUB_PATHS]
        self.assertEqual([intent.options["hub"] for intent in self.broker.accepted], expected)
        self.assertEqual(len(HUB_PATHS), 6)

    def test_leases_are_granted_within_bounds(self) -> None:
        """5.1: the hub decides on the lease, and none is unlimited."""
        for asked, granted in (
            *(("0", 300), ("299", 300), ("301", 301), ("2592001", 2_592_000)),
            *(("9" * 50, 2_592_000), ("", 864_000)),
        ):
            self.broker.accepted.clear()
            self.post(SUBSCRIBE | {"hub.lease_seconds": asked})
            self.assertEqual(self.accepted.lease_seconds, granted, asked)

    def test_requests_without_a_body(self) -> None:
        """Some clients put everything into the query."""
        self.assertEqual(self.ask("POST", f"/websub?{urlencode(SUBSCRIBE)}").status, 202)
        self.assertEqual(self.accepted.callback.url, CALLBACK)

    def test_urls_with_semicolons(self) -> None:
        """5.1: the hub calls the exact callback; not all clients encode every character."""
        callback = f"{CALLBACK};b=2;c"
        fields = f"hub.mode=subscribe&hub.topic={FEED};v=1&hub.callback={callback}"
        self.ask("POST", "/websub", fields.encode(), {"Content-Type": FORM})
        self.ask("POST", f"/websub?{fields}")
        for intent in self.broker.accepted:
            self.assertEqual((intent.topic, intent.callback.url), (f"{FEED};v=1", callback))
        self.assertEqual(len(self.broker.accepted), 2)

    def test_bad_requests(self) -> None:
        """5.1.2: 4xx, and the reason as plain text."""
        self.assert_refused(self.post({}), 400, "hub.mode is missing")
        self.assert_refused(self.ask("POST", "/websub"), 400, "hub.mode is missing")
        twice = [*SUBSCRIBE.items(), ("hub.topic", OTHER_FEED)]
        self.assert_refused(self.post(twice), 400, "hub.topic came 2 times")
        self.assertEqual(self.broker.accepted, [])

    def test_refusals(self) -> None:
        """5.1.2: each kind of refusal has a status of its own."""
        for error, status in (
            (errors.UnsupportedProtocol("websub"), 501),
            (errors.Forbidden("not that topic"), 403),
            (errors.EndedTopic(FEED, "the site has closed"), 410),
            (errors.TopicUnreadable(FEED, "a private address", refused=True), 400),
            (errors.CallbackFailed("a private address", refused=True), 400),
            (errors.Refused("not today"), 400),
        ):
            self.broker.failures["accept"] = error
            self.assert_refused(self.post(SUBSCRIBE), status, f"This was not accepted: {error}.")

    def test_what_the_client_may_do_later(self) -> None:
        for error, status, pause in (
            (errors.TooMany("there were 5", 7), 429, "7"),
            (errors.Unavailable("the disk is full"), 503, "30"),
        ):
            self.broker.failures["accept"] = error
            answer = self.post(SUBSCRIBE)
            self.assertEqual((answer.status, answer.headers["retry-after"]), (status, pause))
        self.assertEqual(len(self.flushLoggedErrors()), 0)


class OldClientsTests(HubTestCase):
    """PubSubHubbub 0.3, sections 6.1 and 6.2."""

    def old(self, *verify: str, mode: str = "subscribe") -> Answer:
        fields = [("hub.verify", each) for each in verify]
        token = ("hub.verify_token", "t")
        return self.post([*(SUBSCRIBE | {"hub.mode": mode}).items(), *fields, token])

    def test_verified_before_the_answer(self) -> None:
        """6.1: a request with sync is answered with 204 after the verification."""
        answer = self.old("sync", "async")
        self.assertEqual((answer.status, answer.body), (204, b""))
        (intent,) = self.broker.intents
        options = {"hub": f"{PUBLIC_URL}/websub", "method": "sha1", "verify_token": "t"}
        self.assertEqual(intent.options, options)
        self.assertEqual(self.old("sync", mode="unsubscribe").status, 204)
        (ended,) = self.broker.unsubscribed
        self.assertTrue(ended.unsubscribe)
        self.assertEqual(self.broker.accepted, [])

    def test_not_confirmed(self) -> None:
        """6.1: the answer is 409 if the verification fails."""
        self.broker.failures["subscribe"] = errors.CallbackFailed("it answered with status 404")
        self.assert_refused(self.old("sync"), 409, "it answered with status 404")
        self.broker.failures["subscribe"] = errors.TopicUnreadable(FEED, "status 404")
        self.assert_refused(self.old("sync"), 409, "status 404")
        self.broker.failures["unsubscribe"] = errors.CallbackFailed("no answer")
        self.assert_refused(self.old("sync", mode="unsubscribe"), 409, "no answer")

    def test_the_favourite_comes_first(self) -> None:
        """6.1: the list is in the order of preference."""
        for verify in (("async",), ("async", "sync"), ("later",)):
            self.assertEqual(self.old(*verify).status, 202)
        self.assertEqual((len(self.broker.accepted), self.broker.intents), (3, []))


class PublishingTests(HubTestCase):
    """WebSub, section 6; PubSubHubbub 0.3, section 7.1."""

    def test_urls(self) -> None:
        """One request can publish several topics."""
        answer = self.post([*PUBLISH.items(), ("hub.url", OTHER_FEED), ("hub.topic", FEED)])
        self.assertEqual((answer.status, answer.headers.get_content_type()), (202, "text/plain"))
        self.assertEqual(self.broker.published, [(FEED, OTHER_FEED)])
        self.assertEqual(self.broker.sources, [CALLER])

    def test_what_there_is_to_say_of_a_topic_is_told(self) -> None:
        self.broker.problems[FEED] = f"{FEED}: it is gone; it was not accepted"
        answer = self.post([*PUBLISH.items(), ("hub.url", OTHER_FEED)])
        self.assertEqual(answer.status, 202)
        self.assertIn(f"\n{FEED}: it is gone; it was not accepted.", answer.text)

    def test_old_clients_hear_204(self) -> None:
        """0.3, 7.1: a ping that was accepted is answered with 204."""
        for path in ("/pubsubhubbub", "/pubsubhubbub/"):
            answer = self.post(PUBLISH, path)
            self.assertEqual((answer.status, answer.body), (204, b""))
        agent = "PubSubHubbub-Publisher-PHP/1.0"
        self.assertEqual(self.post(PUBLISH, "/hub", User_Agent=agent).status, 204)
        self.assertEqual(self.post(PUBLISH, "/hub").status, 202)
        self.assertEqual(len(self.broker.published), 4)

    def test_refusals(self) -> None:
        for error, status in (
            (errors.Forbidden("not yours"), 403),
            (errors.TopicUnreadable(FEED, "a private address", refused=True), 400),
            (errors.EndedTopic(FEED, "gone"), 410),
            (errors.TooMany("there were 5", 7), 429),
        ):
            self.broker.failures["publish"] = error
            self.assert_refused(self.post(PUBLISH), status, f"not accepted: {error}.")

    def test_content_is_not_taken(self) -> None:
        """The hub fetches topics, and accepts no content from strangers."""
        answer = self.ask("POST", "/websub", b"what is new", {"Content-Type": "text/plain"})
        self.assert_refused(answer, 415, "hub.mode=publish", FORM)
        self.assertEqual(self.broker.published, [])


class PageTests(HubTestCase):
    """The page of the hub explains discovery (WebSub, section 4) to people."""

    def test_page(self) -> None:
        for path in HUB_PATHS:
            answer = self.ask("GET", path)
            self.assertEqual((answer.status, answer.headers.get_content_type()), (200, "text/html"))
            self.assertEqual(answer.headers["link"], f'<{PUBLIC_URL}/websub>; rel="hub"')
            for word in ("hub.mode=publish", "hub.callback", f"curl {PUBLIC_URL}/websub", "self"):
                self.assertIn(word, answer.text)
        self.assertEqual(self.ask("HEAD", "/websub").status, 200)
        self.assertEqual(self.ask("PUT", "/websub").status, 405)


class MediaTypeRoutesTests(HubTestCase):
    """A route may be for bodies of some media types only."""

    def says(self, text: str, *kinds: str, requires: Sequence[str] = (), path: str = "/p") -> Route:
        return Route(path, "POST", Says(text), frozenset(requires), frozenset(kinds))

    def test_the_media_type_chooses(self) -> None:
        """And parameters among the routes of one type."""
        json = self.says("json", "application/json", "text/json")
        feed = self.says("feed", "application/atom+xml")
        form, with_a = self.says("form", FORM), self.says("form with a", FORM, requires=["a"])
        named = [self.says("any"), json, feed]
        for pages, kind, body, text in (
            (named, "application/json", b"x", "json"),
            (named, "Text/JSON ; charset=utf-8", b"x", "json"),
            (named, "application/atom+xml;type=feed", b"x", "feed"),
            (named, "text/plain", b"x", "any"),
            (named, "", b"x", "any"),
            ([self.says("any"), with_a], FORM, b"a=1", "form with a"),
            ([form, with_a], FORM, b"a=1", "form with a"),
            ([form, with_a], FORM, b"b=1", "form"),
            ([form], "text/plain", b"x", f"This address takes {FORM}.\n"),
        ):
            self.open(Door(pages=pages))
            answer = self.ask("POST", "/p", body, {"Content-Type": kind})
            self.assertEqual(answer.text, text, kind)
            self.assertEqual(answer.status, 415 if "takes" in text else 200)
        self.open(Door(pages=[self.says("any"), with_a]))
        self.assertEqual(self.ask("POST", "/p", b"b=1", {"Content-Type": FORM}).status, 400)

    def test_another_door_may_take_content_at_the_hub(self) -> None:
        self.open(Door(pages=[self.says("feed", "application/atom+xml", path="/websub")]))
        answer = self.ask("POST", "/websub", b"x", {"Content-Type": "application/atom+xml"})
        self.assertEqual(answer.text, "feed")
        self.assertEqual(self.post(SUBSCRIBE).status, 202)
