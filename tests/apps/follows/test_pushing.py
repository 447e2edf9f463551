"""Lists and feeds that have a hub are read as soon as they change."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode

import treq.testing

from rsscloud_broker.apps.follows.options import FollowedFeed, FollowsOptions, Source
from rsscloud_broker.apps.follows.pushing import key_of
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import OutboundReply, OutboundRequest
from rsscloud_broker.testing import FakeOutbound, reply
from rsscloud_broker.wire.change_list import closing, opening
from rsscloud_broker.wire.links import hub_and_self
from tests.apps.follows.intakes import NOON, THERE, FollowsTestCase

HERE = "http://here.example"
LIST, FEED, HUB = f"{THERE}/changes.xml", f"{THERE}/recent", f"{THERE}/websub"


class PushingTests(FollowsTestCase):
    def setUp(self) -> None:
        super().setUp()
        document = opening(NOON, 0) + closing(0)
        feed = (
            '<feed xmlns="http://www.w3.org/2005/Atom"><id>urn:1</id><title>A</title>'
            f'<link rel="hub" href="{HUB}"/><link rel="self" href="{FEED}"/></feed>'
        ).encode()
        self.web = FakeOutbound(
            {
                LIST: reply(200, document, link=hub_and_self(THERE, "/changes.xml")),
                FEED: reply(200, feed),
                HUB: reply(202),
            }
        )

    def start(self, options: FollowsOptions, public_url: str = HERE) -> None:
        door = self.follow(options, public_url=public_url)
        self.http: Any = treq.testing.StubTreq(Root([door], HERE))
        self.pass_time(10)

    def start_list(self) -> None:
        self.start(FollowsOptions((Source(LIST, push=True, every=1000.0),)))

    def asked(self) -> list[dict[str, list[str]]]:
        """The forms that the hub was sent."""
        return [parse_qs(each.body.decode()) for each in self.web.requests if each.url == HUB]

    def reads(self, url: str) -> int:
        return len([request for request in self.web.requests if request.url == url])

    def verify(self, url: str = LIST, **more: str) -> tuple[int, str]:
        """Have the hub verify the intent."""
        said = {"hub.mode": "subscribe", "hub.topic": url, "hub.challenge": "x91"}
        said |= {"hub.lease_seconds": "1000"} | {f"hub.{name}": text for name, text in more.items()}
        answer = self.successResultOf(
            self.http.get(f"{HERE}/follows/{key_of(url)}?{urlencode(said)}")
        )
        return answer.code, self.successResultOf(answer.text())

    def push(self, url: str = LIST) -> int:
        answer = self.http.post(f"{HERE}/follows/{key_of(url)}", data=b"<anything/>")
        code: int = self.successResultOf(answer).code
        return code

    def test_what_is_followed_is_read_when_its_hub_says_that_it_changed(self) -> None:
        for url, options in (
            (LIST, FollowsOptions((Source(LIST, push=True, every=1000.0),))),
            (FEED, FollowsOptions(feeds=(FollowedFeed(FEED, every=1000.0),))),
        ):
            self.start(options)
            form = self.asked()[-1]
            self.assertEqual(form["hub.callback"], [f"{HERE}/follows/{key_of(url)}"])
            self.assertEqual((form["hub.mode"], form["hub.topic"]), (["subscribe"], [url]))
            self.assertEqual(self.verify(url), (200, "x91"))
            self.assertEqual((self.push(url), self.reads(url)), (202, 1))
            self.pass_time(1)
            self.assertEqual(self.reads(url), 2)

    def test_flood_of_pushes_causes_few_reads(self) -> None:
        self.start_list()
        self.verify()
        for _ in range(200):
            self.push()
            self.clock.advance(0.1)
        self.assertIn(self.reads(LIST), range(5, 13))

    def test_malformed_hub_link_leaves_the_document_readable(self) -> None:
        document = opening(NOON, 0) + closing(0)
        for link in ("<http://[>; rel=hub", f"<{HUB}>; rel=hub, <http://[>; rel=self"):
            self.web.answers[LIST] = reply(200, document, link=link)
            with self.logged() as lines:
                self.start_list()
                self.pass_time(3000)
            self.assertEqual(lines, [], link)
        self.assertEqual(self.asked()[-1]["hub.topic"], [LIST])
        feed = '<feed xmlns="http://www.w3.org/2005/Atom"><id>urn:1</id><title>A</title></feed>'
        link = f"<http://[>; rel=hub, <{HUB}>; rel=hub, <//[>; rel=self"
        self.web.answers[FEED] = reply(200, feed.encode(), link=link)
        self.start(FollowsOptions(feeds=(FollowedFeed(FEED, every=1000.0),)))
        self.assertEqual(self.asked()[-1]["hub.topic"], [FEED])

    def test_bug_at_one_hub_is_not_the_end(self) -> None:
        other = f"{THERE}/shortChanges.xml"
        link = f"<{THERE}/strange>; rel=hub, <{other}>; rel=self"
        self.web.answers[other] = reply(200, opening(NOON, 0) + closing(0), link=link)
        self.web.answers[f"{THERE}/strange"] = ZeroDivisionError()
        sources = [Source(each, push=True, every=1000.0) for each in (other, LIST)]
        self.start(FollowsOptions(tuple(sources)))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual([form["hub.topic"] for form in self.asked()], [[LIST]])
        self.verify()
        self.pass_time(760)
        self.assertEqual(len(self.asked()), 2, "renewed")
        self.web.answers[f"{THERE}/strange"] = reply(202)
        self.pass_time(2860)
        self.assertEqual(self.reads(f"{THERE}/strange"), 2, "asked again after an hour")

    def test_only_what_was_asked_for_is_confirmed(self) -> None:
        self.start_list()
        self.assertEqual(self.verify(FEED)[0], 404)
        self.assertEqual(self.push(FEED), 410)
        self.assertEqual(self.verify()[0], 200)
        self.assertEqual(self.verify(lease_seconds="86400")[0], 200)
        self.pass_time(760)
        self.assertEqual(len(self.asked()), 2, "only the first lease was believed")

    def test_hub_that_refuses_is_told_once_an_hour(self) -> None:
        self.web.answers[HUB] = reply(403, b"Not you.")
        with self.logged() as lines:
            self.start_list()
            self.pass_time(3000)
        (line,) = lines
        self.assertIn(f"{LIST}: the hub did not take the subscription", line)
        self.assertIn("Not you", line)
        self.assertEqual(len(self.asked()), 1)
        self.assertGreater(self.reads(LIST), 2, "it is polled all the same")

    def test_hub_that_ends_the_subscription_is_asked_again_later(self) -> None:
        self.start_list()
        with self.logged() as lines:
            self.assertEqual(self.verify(mode="denied", reason="You may not.")[0], 200)
        self.assertIn("You may not.", lines[0])
        self.pass_time(3700)
        self.assertEqual(len(self.asked()), 2)

    def test_list_that_names_another_hub_each_time_causes_few_requests(self) -> None:
        def named(request: OutboundRequest) -> OutboundReply:
            hub = f"http://victim.example/{self.reads(LIST)}"
            links = f'<{hub}>; rel="hub", <{LIST}>; rel="self"'
            return reply(200, opening(NOON, 0) + closing(0), link=links)

        self.web.answers[LIST] = named
        self.start(FollowsOptions((Source(LIST, push=True, every=10.0),)))
        for seconds, count in ((600, 1), (3600, 2)):
            self.pass_time(seconds)
            asked = [each.url for each in self.web.requests if "victim" in each.url]
            self.assertEqual((asked[0], len(asked)), ("http://victim.example/1", count))
        self.assertGreater(self.reads(LIST), 350)

    def test_who_pretends_to_be_the_hub_fills_no_log(self) -> None:
        """Anybody can know the callbacks."""
        self.start_list()
        with self.logged() as lines:
            for mode in ("subscribe", "denied"):
                for _ in range(3):
                    self.assertEqual(self.verify(mode=mode)[0], 200)
        self.assertEqual(len(lines), 2)

    def test_nothing_is_pushed_that_nobody_wants_or_that_no_hub_could_call(self) -> None:
        self.start(FollowsOptions((Source(LIST),)))
        self.assertEqual(self.asked(), [])
        self.start(FollowsOptions((Source(LIST, push=True),)), "http://localhost:5337")
        self.assertEqual(self.asked(), [])
