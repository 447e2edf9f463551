"""Hubs and clouds: subscribing, renewing, pushes, and those that lie, fail or fall silent."""

from __future__ import annotations

from unittest import mock
from urllib.parse import urlsplit

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from rsscloud_broker.apps.river.model import FeedRecord
from rsscloud_broker.apps.river.pushing import MAX_PUSHES
from rsscloud_broker.config import RateLimitOptions
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import OutboundReply, OutboundRequest
from rsscloud_broker.testing import reply
from rsscloud_broker.testing.clock import About
from rsscloud_broker.wire import soap, websub, xmlrpc
from tests.apps.river.house import (
    BLOG,
    CLOUD,
    DAY,
    HUB,
    NAMES_CLOUD,
    NAMES_HUB,
    RiverCase,
    RiverHouse,
    rss,
)
from tests.client.clouds import FirstCloud


class HubCase(RiverCase):
    """A blog with a hub."""

    head = NAMES_HUB

    def setUp(self) -> None:
        super().setUp()
        self.pages[BLOG] = self.feed("one")

    def feed(self, *titles: str) -> bytes:
        return rss(*titles, head=self.head)

    def status(self) -> str:
        return self.house.feed().status

    def poll(self, *titles: str) -> None:
        """Have the broker find other items by a poll."""
        self.house.poll(page=self.feed(*titles))

    def subscribed(self, **changed: str) -> dict[str, str]:
        """Follow the blog; the form that the hub got, after it has verified the intent."""
        self.house.follow()
        form = self.house.asked()[-1]
        answer = self.house.verify(form, **changed)
        self.assertEqual((answer.status, answer.body), (200, b"x91"))
        return form


class HubTests(HubCase):
    def test_subscribes_and_confirms_what_it_asked_for(self) -> None:
        feed = self.house.follow()
        (form,) = self.house.asked()
        asked = {"hub.mode": "subscribe", "hub.topic": BLOG, "hub.lease_seconds": str(14 * 86_400)}
        self.assertEqual(form, form | asked)
        self.assertLess(len(form["hub.secret"]), 200)
        self.assertEqual(feed.how, "polled")
        self.assertEqual(feed.status, f"polled until the hub {HUB} confirms the subscription")
        self.assertEqual(self.house.verify(form).body, b"x91")
        feed, now = self.house.feed(), self.house.clock.wall_seconds()
        self.assertEqual((feed.how, feed.hub), ("websub", HUB))
        self.assertEqual(feed.renew_at, About(now + 0.75 * 864_000))
        self.assertEqual(feed.verified_at, About(now))
        self.assertIn(f"notified by the hub {HUB}; next renewal 2026-10-07T", feed.status)

    def test_confirms_nothing_else(self) -> None:
        self.house.follow()
        (form,) = self.house.asked()
        for changed in ({"topic": "http://other.example/"}, {"mode": "unsubscribe"}):
            self.assertEqual(self.house.verify(form, **changed).status, 404)
        another = {**form, "hub.callback": form["hub.callback"][:-1]}
        self.assertEqual(self.house.verify(another).status, 404)
        self.assertEqual(self.house.verify(form, challenge="").status, 400)
        self.assertEqual(self.house.feed().how, "polled")

    def test_a_signed_document_is_stored_at_once(self) -> None:
        form = self.subscribed()
        self.house.topics.silent = True  # the broker's own fetch takes long
        self.assertEqual(self.house.push(form, self.feed("two")).status, 202)
        (item, _) = self.house.items()
        self.assertEqual((item.title, item.how), ("two", "pushed"))
        feed = self.house.feed()
        self.assertEqual((feed.pushed, feed.found_by_poll), (1, 0))
        self.assertTrue(feed.status.endswith("; 1 of 1 new item was pushed"), feed.status)

    def test_what_is_pushed(self) -> None:
        """The broker reads the feed too, so that others who have subscribed to it are notified."""
        form = self.subscribed()
        for name, body, secret, titles, fetched in (
            ("forged", self.feed("forged"), "guess", ["one"], []),
            ("signed", self.feed("two"), None, ["two", "one"], [BLOG]),
            ("only a ping, unsigned", self.feed("forged"), "", ["three", "two", "one"], [BLOG]),
            ("only a ping", b"\x00 no feed", None, ["four", "three", "two", "one"], [BLOG]),
        ):
            self.house.topics.fetched.clear()
            self.pages[BLOG] = self.feed(*titles)
            with capturedLogs() as logs:
                self.assertEqual(self.house.push(form, body, secret).status, 202, name)
                self.house.pass_time(2)
                self.assertEqual(self.house.titles(), titles, name)
                self.assertEqual(self.house.topics.fetched, fetched, name)
                self.assertEqual(self.house.items()[0].how == "pushed", bool(fetched), name)
                said = " ".join(map(str, map(formatEvent, logs)))
                self.assertEqual("wrong signature" in said, secret == "guess", name)

    def test_endless_items_of_a_hub_do_not_fill_the_disk(self) -> None:
        """And what is in the feed stays: otherwise it would come back as new."""
        form = self.subscribed()
        for number in range(4):
            self.house.push(form, self.feed(*(f"item {number} {each}" for each in range(150))))
        titles = self.house.titles()
        self.assertEqual((len(titles), titles[0], titles[-1]), (201, "item 3 0", "one"))

    def test_pushes_that_nobody_wants_are_gone(self) -> None:
        form = self.subscribed()
        another = {**form, "hub.callback": f"{form['hub.callback']}x"}
        self.assertEqual(self.house.push(another, b"x").status, 410)
        self.house.unfollow()
        self.assertEqual(self.house.push(form, self.feed("two")).status, 410)

    def test_pushes_wait_their_turn(self) -> None:
        form = self.subscribed()
        gates: list[Deferred[None]] = []

        async def slowly(owner: str, function: object, *args: object) -> object:
            gate: Deferred[None] = Deferred()
            gates.append(gate)
            await gate
            return function(*args)  # type: ignore[operator]

        self.house.intake._parse = slowly  # type: ignore[assignment]
        path, body = urlsplit(form["hub.callback"]).path, self.feed("two")
        headers = {"X-Hub-Signature": websub.sign(body, form["hub.secret"])}
        waiting = [
            self.house.begin("POST", path, body, headers, f"192.0.2.{n}") for n in range(MAX_PUSHES)
        ]
        answer = self.house.push(form, body)
        self.assertEqual((answer.status, answer.headers["retry-after"]), (429, "60"))
        while gates:
            gates.pop(0).callback(None)
        self.assertEqual({each.answer("POST").status for each in waiting}, {202})
        self.assertEqual(self.house.titles(), ["two", "one"])

    def test_leaving_is_told_and_confirmed(self) -> None:
        form = self.subscribed()
        self.house.unfollow()
        last = self.house.asked()[-1]
        self.assertEqual((last["hub.mode"], last["hub.topic"]), ("unsubscribe", BLOG))
        self.assertEqual(self.house.verify(last).body, b"x91")
        self.assertEqual(self.house.verify(form).status, 404)

    def test_following_again_while_the_hub_is_left(self) -> None:
        """The hub may verify both intents in any order, so they have different callbacks."""
        form = self.subscribed()
        leave = self.house.tending._pushing.leave

        async def leave_slowly(feed: FeedRecord) -> None:
            await leave(feed)
            await self.house.river.subscribe(self.house.dave, BLOG, "")

        with mock.patch.object(self.house.tending._pushing, "leave", leave_slowly):
            self.house.unfollow()
        self.house.pass_time(20)
        first, ended, again = self.house.asked()
        self.assertEqual((first, ended["hub.callback"]), (form, form["hub.callback"]))
        self.assertEqual(again["hub.mode"], "subscribe")
        for each in (again, ended):
            self.assertEqual(self.house.verify(each).body, b"x91")
        self.assertNotEqual(again["hub.callback"], form["hub.callback"])
        self.assertEqual(self.house.feed().how, "websub")

    def test_renewed_in_time_as_the_hub_says(self) -> None:
        for lease, after in (
            ("86400", 0.75 * DAY),
            ("99999999", 0.75 * 14 * DAY),
            ("", 0.75 * 7 * DAY),
        ):
            self.setUp()
            self.subscribed(lease_seconds=lease)
            self.house.pass_time(after - 3600)
            self.assertEqual(len(self.house.asked()), 1, lease)
            self.house.pass_time(3700)
            first, second = self.house.asked()
            self.assertEqual(first, second, lease)
            self.assertEqual(self.house.feed().how, "websub", lease)
            self.house.verify(second)
            self.assertNotIn("failed", self.status(), lease)

    def test_a_renewal_that_fails_is_tried_again_while_the_lease_lasts(self) -> None:
        self.subscribed(lease_seconds="86400")
        self.house.hubs.otherwise = OutboundError("connection refused")
        self.house.pass_time(0.75 * DAY + 60)
        feed = self.house.feed()
        self.assertEqual((feed.how, len(self.house.asked())), ("websub", 2))
        self.assertIn("the last renewal failed: the hub did not take", feed.status)
        self.house.hubs.otherwise = reply(202)
        self.house.pass_time(320)
        self.assertEqual(len(self.house.asked()), 3)
        self.house.verify(self.house.asked()[-1])
        self.assertNotIn("failed", self.status())

    def test_a_hub_that_does_not_answer_or_verify_is_asked_each_day(self) -> None:
        refused = OutboundError("connection refused")
        for answer, seconds, said in (
            (refused, 0, "since the hub did not take the subscription"),
            (refused, 0, "connection refused"),
            (reply(202), 3700, "did not verify it within an hour"),
        ):
            self.setUp()
            self.house.hubs.otherwise = answer
            self.house.follow()
            self.house.pass_time(seconds)
            self.assertEqual(self.house.feed().how, "polled")
            self.assertIn(said, self.status())
            for after, count in ((DAY - 160, 1), (320, 2)):
                self.house.pass_time(after)
                self.assertEqual(len(self.house.asked()), count)

    def test_a_hub_that_denies_says_why(self) -> None:
        form = self.subscribed()
        self.assertEqual(self.house.verify(form, mode="denied", reason="not here").status, 200)
        feed = self.house.feed()
        self.assertEqual(feed.how, "polled")
        self.assertIn("refused or ended the subscription: not here", feed.status)

    def test_a_hub_that_dies_in_silence(self) -> None:
        form = self.subscribed()
        self.house.result(self.house.broker.ping_topic(BLOG, ""))
        self.poll("two", "one")
        feed = self.house.feed()
        self.assertEqual((feed.how, feed.pushed, feed.found_by_poll), ("websub", 0, 1))
        self.poll("three", "two", "one")
        feed = self.house.feed()
        self.assertEqual((feed.how, feed.pushed, feed.found_by_poll), ("polled", 0, 2))
        self.assertIn("did not tell of new items 2 times in a row", feed.status)
        self.assertIn("0 of 2 new items were pushed", feed.status)
        status = self.house.result(self.house.store.topic_status(BLOG))
        self.assertIsNone(status.pinged_at)  # so the broker polls as often as it changes
        self.house.pass_time(DAY + 60)
        self.assertEqual(self.house.asked()[-1], form)
        self.assertEqual(len(self.house.asked()), 2)
        self.house.verify(form)
        self.assertEqual(self.house.feed().how, "websub")

    def test_one_missed_push_is_forgiven(self) -> None:
        form = self.subscribed()
        titles = ["one"]
        for number in range(6):
            titles.insert(0, f"item {number}")
            if number % 2:
                self.pages[BLOG] = self.feed(*titles)
                self.house.push(form, self.pages[BLOG])
                self.house.pass_time(3600)
            else:
                self.poll(*titles)
        feed = self.house.feed()
        self.assertEqual((feed.how, feed.pushed, feed.found_by_poll), ("websub", 3, 3))

    def test_a_link_header_names_the_hub(self) -> None:
        self.head = ""
        self.pages[BLOG] = self.feed("one")
        link = f'<{HUB}>; rel="hub", <{BLOG}?x>; rel="self"'
        self.house.web.answers[BLOG] = reply(200, self.pages[BLOG], link=link)
        form = self.subscribed()
        self.assertEqual(form["hub.topic"], f"{BLOG}?x")
        self.poll("two", "one")  # what the broker reads has no headers
        self.assertEqual(self.house.feed().how, "websub")

    def test_another_hub_is_used_when_the_feed_names_it(self) -> None:
        form = self.subscribed()
        self.head = NAMES_HUB.replace(HUB, "http://new.example/")
        self.poll("two", "one")
        self.house.pass_time(20)
        (another,) = self.house.asked("http://new.example/")
        self.assertEqual(another["hub.topic"], form["hub.topic"])
        self.assertNotEqual(another["hub.callback"], form["hub.callback"])
        self.assertEqual(self.house.push(form, self.feed("old")).status, 410)


class CloudTests(HubCase):
    head = NAMES_CLOUD

    def setUp(self) -> None:
        super().setUp()
        self.challenges: list[tuple[int, bytes]] = []
        self.house.hubs.answers[CLOUD] = self.register

    def register(self, request: OutboundRequest) -> OutboundReply:
        """Register as a cloud does: with a challenge."""
        form = self.house.asked(CLOUD)[-1]
        answer = self.house.get(form["path"], url=form["url1"], challenge="y82")
        self.challenges.append((answer.status, answer.body))
        return reply(200, b'<notifyResult success="true" msg="ok"/>')

    def ping(self) -> int:
        form = self.house.asked(CLOUD)[-1]
        return self.house.form(form["path"], {"url": BLOG}).status

    def test_registers_and_answers_the_challenge(self) -> None:
        feed = self.house.follow()
        (form,) = self.house.asked(CLOUD)
        asked = {"protocol": "http-post", "domain": "broker.example", "port": "5337", "url1": BLOG}
        self.assertEqual(form, form | asked)
        self.assertEqual(self.challenges, [(200, b"y82")])
        self.assertEqual((feed.how, feed.hub), ("rsscloud", CLOUD))
        self.assertEqual(feed.renew_at, About(self.house.clock.wall_seconds() + DAY))

    def test_a_broker_below_a_path(self) -> None:
        """A reverse proxy takes the path off, as the public URL of the hub's callback has it."""
        pushing = self.house.tending._pushing
        parts = evolve(pushing._parts, public_url="https://broker.example/below")
        self.patch(pushing, "_parts", parts)
        self.house.hubs.answers[CLOUD] = reply(200, b'<notifyResult success="true" msg="ok"/>')
        self.house.follow()
        (form,) = self.house.asked(CLOUD)
        self.assertRegex(form["path"], "^/below/river/rsscloud/[^/]+$")

    def test_answers_no_other_challenge(self) -> None:
        self.house.follow()
        (form,) = self.house.asked(CLOUD)
        for path, url in ((form["path"], BLOG), (f"{form['path']}x", BLOG)):
            self.assertEqual(self.house.get(path, url=url, challenge="z").status, 404)
        self.assertEqual(self.house.get(form["path"], url=BLOG).status, 400)

    def test_a_ping_has_the_feed_read(self) -> None:
        self.house.follow()
        self.pages[BLOG] = self.feed("two", "one")
        self.assertEqual(self.ping(), 200)
        self.house.pass_time(2)
        self.assertEqual([item.how for item in self.house.items()], ["pushed", "polled"])
        self.assertIn("1 of 1 new item was pushed", self.house.feed().status)

    def test_pings_are_limited(self) -> None:
        self.house = RiverHouse(self, limits=RateLimitOptions(pings_burst=5))
        self.house.topics.pages[BLOG] = self.feed("one")
        self.house.hubs.answers[CLOUD] = self.register
        self.house.follow()
        self.assertEqual([self.ping() for _ in range(6)], [200] * 5 + [429])

    def test_pings_that_nobody_wants_are_gone(self) -> None:
        self.house.follow()
        self.house.unfollow()
        self.assertEqual(self.ping(), 410)

    def test_renewed_every_day(self) -> None:
        self.house.follow()
        for days in range(1, 4):
            self.house.pass_time(DAY + 15)
            self.assertEqual(len(self.house.asked(CLOUD)), days + 1)
            self.assertEqual(self.house.feed().how, "rsscloud")

    def test_a_cloud_that_refuses(self) -> None:
        said = b'<notifyResult success="false" msg="the call failed"/>'
        self.house.hubs.answers[CLOUD] = reply(200, said)
        feed = self.house.follow()
        self.assertEqual(feed.how, "polled")
        self.assertIn("the cloud did not take the registration: the call failed", feed.status)

    def test_while_a_cloud_is_asked(self) -> None:
        """A broker that stops meanwhile asks again soon after its next start."""
        answer: Deferred[OutboundReply] = Deferred()
        self.house.hubs.answers[CLOUD] = answer
        following = Deferred.fromCoroutine(
            self.house.river.subscribe(self.house.dave, BLOG, "192.0.2.7")
        )
        self.house.pass_time(15)
        self.successResultOf(following)
        status = f"polled until the cloud {CLOUD} confirms the registration"
        self.assertEqual(self.status(), status)
        self.house.tending.stopService()
        self.house.hubs.answers[CLOUD] = self.register
        self.house.tending.startService()
        self.house.pass_time(15)
        self.assertEqual(self.status(), status)
        self.house.pass_time(400)
        self.assertEqual(self.house.feed().how, "rsscloud", self.status())
        self.assertEqual(len(self.house.asked(CLOUD)), 2)

    def test_after_the_hub_fails_the_cloud_is_used(self) -> None:
        self.head = NAMES_HUB + NAMES_CLOUD
        self.pages[BLOG] = self.feed("one")
        self.house.hubs.answers[HUB] = reply(500)
        feed = self.house.follow()
        self.assertEqual(feed.hub, CLOUD)
        self.house.pass_time(15)
        self.assertEqual(self.house.feed().how, "rsscloud")

    def name_cloud(self, protocol: str) -> FirstCloud:
        """Have the blog name a cloud of 2003, which is called by a protocol."""
        called = f'Procedure="xmlStorageSystem.rssPleaseNotify" protocol="{protocol}"'
        self.head = NAMES_CLOUD.replace('Procedure="" protocol="http-post"', called)
        self.pages[BLOG] = self.feed("one")
        cloud = FirstCloud(protocol)
        self.house.hubs.answers[CLOUD] = lambda request: reply(200, cloud.answer(request.body))
        return cloud

    def test_a_cloud_of_2003(self) -> None:
        """It takes five parameters, calls back by its own protocol, and wants true."""
        for protocol, decode in (
            ("xml-rpc", xmlrpc.decode_response),
            ("soap", soap.decode_response),
        ):
            self.setUp()
            cloud = self.name_cloud(protocol)
            feed = self.house.follow()
            self.assertEqual((feed.how, cloud.faults), ("rsscloud", []), feed.status)
            (known,) = cloud.registered
            self.assertEqual((known.protocol, known.port), (protocol, 5337))
            self.pages[BLOG] = self.feed("two", "one")
            headers, body = known.notification(BLOG)
            answer = self.house.ask("POST", known.path, body, headers)
            self.assertEqual(answer.status, 200, protocol)
            self.assertIs(decode(answer.body), True, protocol)
            self.house.pass_time(2)
            self.assertEqual(self.house.titles(), ["two", "one"], protocol)

    def test_what_is_no_call_is_a_ping_too(self) -> None:
        self.house.follow()
        path = self.house.asked(CLOUD)[-1]["path"]
        for body, headers in ((b"<a>", {"SOAPAction": '"x"'}), (b"", {}), (b"\0", {})):
            self.assertEqual(self.house.ask("POST", path, body, headers).status, 200)
