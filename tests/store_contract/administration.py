"""The contract of the store: what the store does for administrators."""

from __future__ import annotations

import time
from typing import Any

from attrs import evolve
from twisted.internet.defer import gatherResults
from twisted.trial.unittest import TestCase

from rsscloud_broker import __version__
from rsscloud_broker.model import Callback, Exchange, Outcome, Subscription
from rsscloud_broker.model.administration import (
    STATES,
    Announcement,
    Block,
    Change,
    FailedAttempt,
    PendingNotification,
    SubscriptionDetails,
    SubscriptionFilter,
)
from rsscloud_broker.model.work import MARKED, Bounds, Delivery, HostState
from rsscloud_broker.storage import administration, changes
from tests.store_contract import basics

#: How many failed attempts the stores here keep.
KEPT = 20

A_CHANGE = Change("alice", "redeliver", "1", "asked by mail", 5000.0)
EXCHANGE = Exchange(
    "POST",
    "http://reader.example/notify?é",
    {"content-type": "text/xml"},
    b"\x00\xff<rss/>",
    500,
    {"server": "Ünï"},
    b"\x00oops",
)


def with_exchange(subscription: Subscription, number: int = 0, **more: Any) -> Delivery:
    """A delivery that failed, with the exchange."""
    outcome = Outcome(False, f"failure {number}", exchange=EXCHANGE)
    return evolve(basics.failed(subscription, at=2000.0 + number), outcome=outcome, **more)


class AdministrationContract(TestCase):
    """The tests that every store must pass."""

    def make_store(self, bounds: Bounds) -> Any:
        raise NotImplementedError

    def setUp(self) -> None:
        self.store = self.make_store(Bounds(failed_attempts=KEPT))

    async def subscribe(
        self, number: int = 1, topic: str = basics.FEED, protocol: str = "http-post", **more: Any
    ) -> Subscription:
        one = evolve(basics.a_subscription(topic, number, protocol=protocol), **more)
        stored: Subscription = await self.store.put_subscription(one)
        return stored

    async def details(self, one: Subscription) -> SubscriptionDetails:
        """The details of a subscription, which must be there."""
        found: SubscriptionDetails | None = await self.store.subscription_details(one.id)
        assert found is not None
        return found

    async def pending(self, one: Subscription) -> PendingNotification:
        """The pending notification of a subscription, which must have one."""
        waits = (await self.details(one)).pending
        assert waits is not None
        return waits

    async def find(
        self, after: int = 0, limit: int = 10, now: float = 3000.0, **wanted: str
    ) -> Any:
        return await self.store.find_subscriptions(SubscriptionFilter(**wanted), now, after, limit)

    async def found(self, **wanted: Any) -> list[int]:
        page = await self.find(**wanted)
        self.assertIsNone(page.after)
        return [one.id for one in page.subscriptions]

    # finding subscriptions

    async def test_found_by_topic_host_protocol(self) -> None:
        one = await self.subscribe(1)
        two = await self.subscribe(2, protocol="websub")
        other = await self.subscribe(1, basics.OTHER_FEED, "websub")
        for wanted, expected in (
            ({}, [one, two, other]),
            ({"topic": basics.FEED}, [one, two]),
            ({"topic": basics.OTHER_FEED}, [other]),
            ({"topic": "http://nobody.example/"}, []),
            ({"host": "reader1.example"}, [one, other]),
            ({"host": "reader1.example", "topic": basics.FEED}, [one]),
            ({"protocol": "websub"}, [two, other]),
            ({"protocol": "websub", "topic": basics.FEED}, [two]),
            ({"protocol": "websub", "host": "reader1.example", "topic": basics.FEED}, []),
        ):
            self.assertEqual(await self.found(**wanted), [each.id for each in expected], wanted)

    async def states(self) -> dict[str, list[int]]:
        return {state: await self.found(state=state) for state in STATES}

    async def test_found_by_state(self) -> None:
        fine, failing, dropping, waiting, expired = [
            (await self.subscribe(number)) for number in range(5)
        ]
        lease = evolve(expired.lease, granted_at=1000.0 - basics.DAY)
        await self.store.put_subscription(evolve(expired, lease=lease))
        await self.store.record_deliveries(
            [basics.failed(failing), basics.failed(dropping, 1), basics.waits(waiting, 9000.0)]
        )
        self.assertEqual(
            await self.states(),
            {
                "active": [fine.id, failing.id, waiting.id],
                "failing": [failing.id, dropping.id],
                "dropping": [dropping.id],
                "waiting": [waiting.id],
                "expired": [expired.id],
            },
        )
        for state in STATES:  # together with another condition
            in_host = await self.found(state=state, host="reader2.example")
            self.assertEqual(in_host == [dropping.id], state in ("failing", "dropping"), state)
            of_topic = await self.found(state=state, topic=basics.FEED)
            self.assertEqual(of_topic, (await self.states())[state])

    async def test_pages(self) -> None:
        ids = [(await self.subscribe(number)).id for number in range(5)]
        every: tuple[dict[str, Any], ...] = (
            {},
            {"topic": basics.FEED},
            {"protocol": "http-post"},
            {"state": "active"},
        )
        for wanted in every:
            after: int | None = 0
            for expected in (ids[:2], ids[2:4], ids[4:]):
                page = await self.find(after or 0, 2, **wanted)
                self.assertEqual([one.id for one in page.subscriptions], expected, wanted)
                after = page.after
            self.assertIsNone(after)

    async def test_a_page_looks_at_a_limited_number(self) -> None:
        self.patch(administration, "LOOKED_AT", 3)
        ids = [(await self.subscribe(number)).id for number in range(7)]
        rare = (await self.subscribe(9, protocol="websub")).id
        by_protocol: dict[str, Any] = {"protocol": "websub"}
        some_expired: dict[str, Any] = {"now": 1000.0 + basics.DAY, "state": "expired"}
        for wanted, pages in (
            (by_protocol, [[], [], [rare]]),
            (by_protocol | {"topic": basics.FEED}, [[], [], [rare]]),
            (some_expired, [ids[:3], ids[3:6], [ids[6], rare]]),
        ):
            after: int | None = 0
            for expected, last in zip(pages, (ids[2], ids[5], None), strict=True):
                page = await self.find(after or 0, **wanted)
                self.assertEqual([one.id for one in page.subscriptions], expected, wanted)
                after = page.after
                self.assertEqual(after, last)

    # one subscription

    async def test_details(self) -> None:
        self.assertIsNone(await self.store.subscription_details(1))
        one = await self.subscribe(1, options={"hub.secret": "s"})
        found = await self.details(one)
        self.assertEqual((found.subscription, found.pending, found.failures), (one, None, ()))
        host = "reader1.example"
        states = [HostState(name, 7, 8000.0) for name in (host, f"{host}:80")]
        await self.store.record_hosts([*states, HostState(f"{host}:81", 7, 8000.0)])
        delivery = evolve(basics.waits(one, 9000.5, 2), not_before=8000.5)
        await self.store.record_deliveries([delivery])
        found = await self.details(one)
        self.assertEqual(found.pending, PendingNotification(2, 9000.5, False, 2000.0, 8000.5))
        self.assertEqual(set(found.breakers), set(states))
        await self.store.claim_due(9001.0, 10, ())
        self.assertTrue((await self.pending(one)).under_way)

    async def test_last_failures_are_kept(self) -> None:
        one, other = await self.subscribe(1), await self.subscribe(2)
        await self.store.record_deliveries([with_exchange(other)])
        for number in range(5):
            (read,) = await self.store.subscriptions_of([one.id])
            retried = {"retry_at": 9000.0, "attempts": number + 1}
            await self.store.record_deliveries([with_exchange(read, number, **retried)])
        expected = [
            FailedAttempt(2000.0 + number, number + 1, f"failure {number}", EXCHANGE)
            for number in (4, 3, 2)
        ]
        self.assertEqual(list((await self.details(one)).failures), expected)
        self.assertEqual(len((await self.details(other)).failures), 1)

    async def test_failures_are_bounded_in_all(self) -> None:
        """Those of fan-outs count, too."""
        ones = [await self.subscribe(number) for number in range(KEPT + 5)]
        await self.store.record_deliveries([with_exchange(one) for one in ones[:-1]])
        await self.store.push_content(basics.FEED, basics.a_content(), 1000.0)
        (walk,) = await self.store.fanouts(10)
        await self.store.record_slice(walk, ones[-1].id, [with_exchange(ones[-1])], True)
        kept = [len((await self.details(one)).failures) for one in ones]
        self.assertEqual(kept, [0] * 5 + [1] * KEPT)

    async def test_failures_of_removed_subscriptions_are_not_kept(self) -> None:
        one, kept = await self.subscribe(1), await self.subscribe(2)
        await self.store.record_deliveries([with_exchange(one)])
        await self.store.remove_subscription(basics.FEED, one.callback)
        await self.store.record_deliveries([with_exchange(one), with_exchange(kept)])
        self.assertIsNone(await self.store.subscription_details(one.id))
        self.assertEqual(len((await self.details(kept)).failures), 1)

    # changing subscriptions

    async def verbs(self) -> list[str]:
        return [change.verb for change in await self.store.changes(None, 100)]

    async def test_redeliver(self) -> None:
        self.assertFalse(await self.store.redeliver(1, A_CHANGE))
        self.assertEqual(await self.verbs(), [])
        plain = await self.subscribe(1)
        waiting = await self.subscribe(2, wants_content=True)
        await self.store.record_deliveries([evolve(basics.waits(waiting, 9e9, 3), not_before=9e9)])
        for one in (plain, waiting):
            self.assertTrue(await self.store.redeliver(one.id, A_CHANGE))
            expected = PendingNotification(0, A_CHANGE.at, False)
            self.assertEqual(await self.pending(one), expected)
        due = await self.store.claim_due(A_CHANGE.at, 10, ())
        self.assertEqual({one.id for one in due}, {plain.id, waiting.id})
        self.assertTrue(await self.store.redeliver(plain.id, evolve(A_CHANGE, at=9e9)))
        expected = PendingNotification(0, A_CHANGE.at, True)  # that under way is left alone
        self.assertEqual(await self.pending(plain), expected)
        self.assertEqual(await self.verbs(), ["redeliver"] * 3)

    async def test_remove(self) -> None:
        self.assertFalse(await self.store.remove_subscription_by_id(1, A_CHANGE))
        one, kept = await self.subscribe(1), await self.subscribe(2)
        self.assertTrue(await self.store.remove_subscription_by_id(one.id, A_CHANGE))
        self.assertEqual(await self.found(), [kept.id])
        self.assertEqual(len(await self.verbs()), 1)

    async def test_mark_and_unmark(self) -> None:
        self.assertFalse(await self.store.set_dropping(1, True, A_CHANGE))
        one = await self.subscribe(1)
        self.assertTrue(await self.store.set_dropping(one.id, True, A_CHANGE))
        self.assertEqual(await self.found(state="dropping"), [one.id])
        await self.store.record_deliveries([basics.failed(one)])
        self.assertTrue(await self.store.set_dropping(one.id, False, A_CHANGE))
        self.assertEqual(await self.found(state="dropping"), [])
        (read,) = await self.store.subscriptions_of([one.id])
        self.assertEqual(read, one)  # without errors

    async def test_the_sweep_names_what_was_marked_without_a_failure(self) -> None:
        one = await self.subscribe(1)
        await self.store.set_dropping(one.id, True, A_CHANGE)
        swept = await self.store.sweep(one.lease.granted_at + 1.0, 0)
        self.assertEqual((swept.expired, swept.failing), (0, 1))
        self.assertEqual([each.error for each in swept.named], [MARKED])

    # hosts and nodes

    async def test_close_breaker(self) -> None:
        one, other = await self.subscribe(1), await self.subscribe(2)
        host = one.callback.host
        names = (host, f"{host}:81", f"{host}.org", "reader2.example:80", f"x{host}:81")
        states = [HostState(name, 5, 8000.0) for name in sorted(names)]
        await self.store.record_hosts(states)
        self.assertEqual(await self.store.host_states("", 2), states[:2])
        self.assertEqual(await self.store.host_states(states[1].host, 9), states[2:])
        await self.store.record_deliveries([basics.waits(one, 9000.0), basics.waits(other, 9000.0)])
        self.assertTrue(await self.store.close_breaker(host, A_CHANGE))
        await self.store.make_due(host, "", A_CHANGE.at)
        left = {state.host for state in await self.store.hosts()}
        self.assertEqual(left, set(names[2:]))
        due = await self.store.claim_due(A_CHANGE.at, 10, ())
        self.assertEqual([each.id for each in due], [one.id])
        for name in (host, "reader_.example", "%"):  # no patterns
            self.assertFalse(await self.store.close_breaker(name, A_CHANGE))
        self.assertEqual(len(await self.verbs()), 4)

    async def test_what_a_node_has_claimed(self) -> None:
        one = await self.subscribe(1)
        await self.store.record_deliveries([basics.waits(one, 2000.0)])
        await self.store.claim_due(2001.0, 10, ())
        for url in (basics.FEED, basics.OTHER_FEED):
            await self.store.request_check(url, 900.0, True, claim=True)
        await self.store.record_fetch(basics.a_fetch(), None)  # which answers the first check
        await self.store.claim_fanouts([one.id for one in await self.store.fanouts(10)])
        await self.store.claim_job("archive", 1000.0, 60.0)
        (node,) = (await self.store.nodes()).nodes
        self.assertEqual((node.here, node.notifications, node.slices), (True, 1, 0))
        claims = {"fan-outs": 1, "checks": 1, "polls": 0, "intents": 0}
        self.assertEqual((dict(node.claims), node.jobs), (claims, ("archive",)))
        self.assertNotEqual(node.name, "")
        self.assertEqual(node.version, __version__)
        self.assertLess(abs(node.started_at - time.time()), 60)

    # blocks

    async def test_blocks(self) -> None:
        one = Block("host", "spam.example", "spam", "alice", 1000.5)
        others = [
            Block("source", "192.0.2.0/24", "flood", "bob", 1001.0),
            Block("topic", "http://spam.example/*", "spam", "bob", 1002.0),
        ]
        for block in (*reversed(others), one):
            self.assertTrue(await self.store.put_block(block, 3, A_CHANGE))
        self.assertEqual(await self.store.all_blocks(), [one, *others])
        self.assertEqual(await self.store.blocks("", ("", ""), 2), [one, others[0]])
        after = (others[0].kind, others[0].object)
        self.assertEqual(await self.store.blocks("", after, 2), others[1:])
        self.assertEqual(await self.store.blocks("topic", ("", ""), 2), others[1:])
        replaced = evolve(one, reason="worse", account="bob")
        self.assertTrue(await self.store.put_block(replaced, 3, A_CHANGE))
        self.assertEqual(await self.store.blocks("host", ("", ""), 2), [replaced])
        self.assertEqual(len(await self.verbs()), 4)
        self.assertTrue(await self.store.remove_block("host", "spam.example", A_CHANGE))
        self.assertFalse(await self.store.remove_block("host", "spam.example", A_CHANGE))
        self.assertEqual(await self.store.all_blocks(), others)
        self.assertEqual(len(await self.verbs()), 5)

    async def test_no_more_blocks_than_fit(self) -> None:
        """But those that are stored are replaced, as an import may bring more."""
        first, second = (Block("host", name, "spam", "alice", 1000.0) for name in ("a", "b"))
        self.assertTrue(await self.store.put_block(first, 1, A_CHANGE))
        self.assertFalse(await self.store.put_block(second, 1, A_CHANGE))
        self.assertEqual(await self.store.all_blocks(), [first])
        worse = evolve(first, reason="worse")
        for limit in (1, 0):
            self.assertTrue(await self.store.put_block(worse, limit, A_CHANGE))
            self.assertEqual(await self.store.all_blocks(), [worse])
        self.assertEqual(len(await self.verbs()), 3)

    async def test_notifications_for_a_host_whose_block_is_lifted_are_made_due(self) -> None:
        one, other = await self.subscribe(1), await self.subscribe(2)
        below = evolve(one, id=0, callback=Callback("http://a.reader1.example/", "http-post"))
        below = await self.store.put_subscription(below)
        for what, due in (("reader1.example", [one]), ("*.reader1.example", [below])):
            await self.store.put_block(Block("host", what, "spam", "a", 1.0), 9, A_CHANGE)
            waiting = [basics.waits(each, 9000.0) for each in (one, other, below)]
            await self.store.record_deliveries(waiting)
            await self.store.remove_block("host", what, A_CHANGE)
            self.assertTrue(await self.store.make_due(what, "", A_CHANGE.at))
            claimed = await self.store.claim_due(A_CHANGE.at, 10, ())
            self.assertEqual([each.id for each in claimed], [each.id for each in due])

    # topics

    async def test_verbs_about_topics_are_recorded_with_what_they_do(self) -> None:
        """If they do something, and an administrator has caused it."""
        one = await self.subscribe(1)
        verbs: list[str] = []
        for verb, method, arguments in (
            ("end", self.store.end_topic, (basics.FEED, "spam", 5000.0)),
            ("revive", self.store.revive_topic, (basics.FEED,)),
            ("move", self.store.move_topic, (basics.FEED, basics.OTHER_FEED, 5000.0)),
        ):
            for _ in range(2):  # the second time it does nothing
                await method(*arguments, evolve(A_CHANGE, verb=verb))
            verbs.append(verb)
            self.assertEqual(sorted(await self.verbs()), sorted(verbs))
        for url in (basics.FEED, basics.OTHER_FEED):
            self.assertEqual(await self.found(topic=url), [one.id])
        self.assertTrue(await self.store.end_topic(basics.OTHER_FEED, "spam", 5000.0))
        self.assertTrue(await self.store.revive_topic(basics.OTHER_FEED))
        self.assertTrue(
            await self.store.move_topic(basics.OTHER_FEED, f"{basics.FEED}/new", 5000.0)
        )
        self.assertEqual(len(await self.verbs()), 3)

    # announcements

    async def test_announcements(self) -> None:
        wanted = [
            Announcement("We move.", 1000.5, None, "alice"),
            Announcement("Üpgrade <tonight>", 1000.0, 2000.0, "bob"),
        ]
        stored = [await self.store.add_announcement(one, A_CHANGE) for one in wanted]
        self.assertEqual([evolve(one, id=0) for one in stored], wanted)
        self.assertEqual(await self.store.announcements(0, 10), stored)
        self.assertEqual(await self.store.announcements(stored[0].id, 10), stored[1:])
        self.assertTrue(await self.store.remove_announcement(stored[0].id, A_CHANGE))
        self.assertFalse(await self.store.remove_announcement(stored[0].id, A_CHANGE))
        self.assertEqual(await self.store.announcements(0, 10), stored[1:])
        self.assertEqual(len(await self.verbs()), 3)

    # changes

    async def test_changes(self) -> None:
        self.assertEqual(await self.store.last_change(), 0)
        made = [
            await self.store.record_change(evolve(A_CHANGE, object=str(number)))
            for number in range(4)
        ]
        self.assertEqual([evolve(one, id=0).object for one in made], list("0123"))
        self.assertEqual(await self.store.changes(None, 3), made[:0:-1])
        self.assertEqual(await self.store.changes(made[1].id, 3), made[:1])
        self.assertEqual(await self.store.changes_after(made[1].id, 3), made[2:])
        self.assertEqual(await self.store.last_change(), made[-1].id)
        self.patch(changes, "KEPT", 2)
        newest = await self.store.record_change(A_CHANGE)
        self.assertEqual(await self.store.changes(None, 10), [newest, made[-1]])

    async def test_what_was_taken_down(self) -> None:
        for verb, url in (
            ("take down", "http://b.example/people/dave/1"),
            ("take down", "http://b.example/people/dav_e/1"),
            ("end", "http://b.example/people/dave/2"),
            ("take down", "http://b.example/feeds/dave/3"),
        ):
            await self.store.record_change(evolve(A_CHANGE, verb=verb, object=url))

        async def urls(*prefixes: str, since: float = 0.0) -> list[str]:
            found = await self.store.taken_down(prefixes, since)
            return [each.object.partition("//b.example/")[2] for each in found]

        people, feeds = "http://b.example/people/", "http://b.example/feeds/"
        both = [f"{people}dave/", f"{feeds}dave/"]
        self.assertEqual(await urls(*both), ["feeds/dave/3", "people/dave/1"])
        self.assertEqual(await urls(f"{people}dav_e/"), ["people/dav_e/1"])
        self.assertEqual(await urls(*both, since=A_CHANGE.at + 1), [])
        self.assertEqual(await urls(), [])

    async def test_the_title_of_what_was_taken_down(self) -> None:
        url = "http://b.example/people/dave/1"
        for verb, title in (("take down", "My pills.gif"), ("take down", ""), ("end", "")):
            change = evolve(A_CHANGE, verb=verb, object=url, title=title)
            made = await self.store.record_change(change)
            self.assertEqual(await self.store.changes(None, 1), [made])
            self.assertEqual((made.object, made.title), (url, title))
        found = await self.store.taken_down(["http://b.example/people/dave/"], 0.0)
        self.assertEqual([each.title for each in found], ["", "My pills.gif"])

    async def test_each_change_is_claimed_once(self) -> None:
        made = [await self.store.record_change(A_CHANGE) for _ in range(3)]
        claimed = await gatherResults([self.store.claim_unpublished() for _ in range(3)])
        self.assertEqual([one for some in claimed for one in some], made)
        self.assertEqual(await self.store.claim_unpublished(), [])
