"""The contract of the store for a WebSub hub: contents, topics that end, and intents."""

from __future__ import annotations

from attrs import evolve

from rsscloud_broker.model import Callback, Content, Intent, Subscription, Topic, Validators
from rsscloud_broker.model.work import Check, Fanout, FetchRecord, PendingIntent
from tests.storage.waiting import PINGED, waiting_checks
from tests.store_contract.basics import (
    DAY,
    FEED,
    OTHER_FEED,
    RecordsContract,
    a_content,
    a_fetch,
    a_ping,
    a_subscription,
    asked,
    failed,
    is_gone,
    succeeded,
    waits,
)

_ONE, _TWO = a_content(b"<rss>1</rss>"), a_content(b"<rss>2</rss>")
_PUSHED = Content(b"{}", "application/json", '<http://feeds.example/>; rel="self"')


def an_intent(number: int = 1, topic: str = FEED) -> Intent:
    """An intent of a subscriber."""
    return Intent(topic, Callback(f"http://reader{number}.example/hub", "websub"), DAY)


class HubContract(RecordsContract):
    """The tests of contents, ends of topics and intents that every store must pass."""

    # contents

    async def wanting(self, number: int = 1, topic: str = FEED) -> Subscription:
        """Store a subscription that wants content."""
        wanted = evolve(a_subscription(topic, number), wants_content=True)
        return await self.store.put_subscription(wanted)

    async def carried(self, number: int = 1) -> tuple[Subscription, Fanout]:
        """A subscription that wants content, and a fan-out that carries the first content."""
        one = await self.wanting(number)
        await self.read(_ONE)
        return one, await self.walk_with(_ONE)

    async def read(self, content: Content, at: float = 1000.0) -> FetchRecord:
        """Record a fetch of the feed that found a content."""
        reading = evolve(a_fetch(at=at), digest=content.digest, content=content)
        return await self.store.record_fetch(reading, None)

    async def test_a_walk_whose_content_was_removed_carries_nothing(self) -> None:
        wanted = await self.wanting()
        await self.read(_ONE)
        (walk,) = await self.store.fanouts(10)
        self.assertEqual(walk.content_size, len(_ONE.body))
        await self.store.remove_subscription(wanted.topic, wanted.callback)
        await self.read(_TWO, 2000)
        shown = [(walk.content_id, walk.content_size) for walk in await self.store.fanouts(10)]
        self.assertEqual(shown, [(None, 0)])

    async def walk_with(self, content: Content) -> Fanout:
        """The last fan-out, which must carry a content."""
        walk = (await self.store.fanouts(10))[-1]
        self.assertIsNotNone(walk.content_id)
        self.assertEqual(await self.store.content(walk.content_id or 0), content)
        return walk

    async def kept(self, walk: Fanout) -> bool:
        """Whether the store keeps the content that a fan-out carries or carried."""
        return await self.store.content(walk.content_id or 0) is not None

    async def test_content_is_not_kept_where_nobody_wants_it(self) -> None:
        """Nor where a fetch comes without a content."""
        await self.store.put_subscription(a_subscription())
        await self.wanting(topic=OTHER_FEED)
        await self.read(_ONE)
        await self.store.record_fetch(a_fetch(url=OTHER_FEED), None)
        carried = [walk.content_id for walk in await self.store.fanouts(10)]
        self.assertEqual(carried, [None, None])
        for url in (FEED, OTHER_FEED):
            self.assertIsNone(await self.store.newest_content(url))

    async def test_content_goes_with_its_walk(self) -> None:
        one, walk = await self.carried()
        await self.store.record_slice(walk, one.id, [succeeded(one)], False)
        self.assertTrue(await self.kept(walk))
        for _ in range(2):
            await self.store.record_slice(walk, one.id, [], True)
            self.assertFalse(await self.kept(walk))
            self.assertIsNone(await self.store.newest_content(FEED))

    async def test_content_is_kept_while_a_notification_waits_for_it(self) -> None:
        others = [await self.wanting(1), await self.wanting(2)]
        last, walk = await self.carried(3)
        late = [waits(one, 3000) for one in (*others, last)]
        await self.store.record_slice(walk, last.id, late, True)
        first, second, third = await self.store.claim_due(3000, 10, ())
        for delivery in (succeeded(first), is_gone(second), failed(third)):
            self.assertTrue(await self.kept(walk))
            await self.store.record_deliveries([delivery])
        for _ in range(2):
            self.assertFalse(await self.kept(walk))
            await self.store.record_deliveries([failed(third)])

    async def test_content_is_not_kept_for_who_does_not_want_it(self) -> None:
        thin = await self.store.put_subscription(a_subscription(number=1))
        rich, walk = await self.carried(2)
        slice_ = [waits(thin, 3000), succeeded(rich)]
        await self.store.record_slice(walk, rich.id, slice_, True)
        self.assertFalse(await self.kept(walk))

    async def test_sweep_drops_contents_whose_subscribers_left(self) -> None:
        one, walk = await self.carried()
        await self.store.record_slice(walk, one.id, [waits(one, 3000)], True)
        await self.store.sweep(1000, 0)
        self.assertTrue(await self.kept(walk))
        await self.store.remove_subscription(FEED, one.callback)
        await self.store.sweep(1000, 0)
        self.assertFalse(await self.kept(walk))

    async def test_newer_content_takes_the_place_of_what_is_waited_for(self) -> None:
        one, older = await self.carried()
        await self.store.record_slice(older, one.id, [waits(one, 3000)], True)
        await self.read(_TWO, at=2000)
        await self.walk_with(_TWO)
        self.assertEqual(await self.store.newest_content(FEED), _TWO)
        self.assertFalse(await self.kept(older))

    async def test_content_that_was_left_behind_is_given_to_nobody(self) -> None:
        """A subscription made after the change must not get the older content."""
        one = await self.wanting()
        await self.read(_ONE)
        await self.store.remove_subscription(FEED, one.callback)
        await self.read(_TWO, at=2000)
        self.assertIsNone(await self.store.newest_content(FEED))

    async def test_late_subscriber_lets_the_content_be_read_again(self) -> None:
        await self.store.put_subscription(a_subscription(number=1))
        await self.read(_ONE)
        wanted = evolve(a_subscription(number=2, granted_at=1500), wants_content=True)
        await self.store.put_subscription(wanted, _ONE.digest)
        self.assertEqual(await waiting_checks(self.store, 10), [])
        await self.store.put_subscription(wanted, b"0" * 32)
        self.assertEqual(await self.store.next_due(), 1500)
        self.assertEqual(await waiting_checks(self.store, 10), asked(FEED))
        self.assertFalse((await self.read(_ONE, at=1600)).changed)
        self.assertEqual(await self.store.newest_content(FEED), _ONE)
        self.assertEqual(await waiting_checks(self.store, 10), [])

    async def test_late_subscriber_gets_the_content_that_is_kept(self) -> None:
        one = await self.wanting(1)
        await self.read(_ONE)
        wanted = evolve(a_subscription(number=2), wants_content=True)
        late = await self.store.put_subscription(wanted, b"0" * 32)
        self.assertEqual(await waiting_checks(self.store, 10), [])
        walk = await self.walk_with(_ONE)
        await self.store.record_slice(walk, one.id, [succeeded(one)], True)
        self.assertEqual(await self.store.newest_content(FEED), _ONE)
        await self.store.record_deliveries([succeeded(late)])
        self.assertIsNone(await self.store.newest_content(FEED))

    async def test_unchanged_content_is_not_kept_twice(self) -> None:
        one, walk = await self.carried()
        await self.store.record_slice(walk, one.id, [waits(one, 3000)], True)
        await self.read(evolve(_ONE, content_type="text/xml"), at=2000)
        self.assertEqual(await self.store.newest_content(FEED), _ONE)

    async def test_renewal_may_want_content_or_not_any_more(self) -> None:
        thin = await self.store.put_subscription(a_subscription())
        await self.read(_ONE)
        await self.store.record_deliveries([waits(thin, 3000)])
        await self.wanting()
        await self.read(_ONE, at=2000)
        self.assertEqual(await self.store.newest_content(FEED), _ONE)
        await self.store.put_subscription(a_subscription())
        await self.store.sweep(2000, 0)
        self.assertIsNone(await self.store.newest_content(FEED))

    # contents that are pushed

    async def test_pushed_content_is_carried_as_it_is(self) -> None:
        await self.wanting()
        await self.read(_ONE)
        self.assertTrue(await self.store.push_content(FEED, _PUSHED, 2000.5))
        (first,) = await self.store.fanouts(10)
        await self.store.record_slice(first, 1000, [], True)
        walk = await self.walk_with(_PUSHED)
        self.assertEqual((walk.topic, walk.cursor, walk.begun_at), (FEED, 0, 2000.5))
        self.assertEqual(await self.store.newest_content(FEED), _PUSHED)
        topic = await self.store.topic(FEED)
        self.assertEqual(topic, Topic(FEED, _ONE.digest, 1, 1000.0, 2000.5, subscribers=1))

    async def test_pushed_content_without_subscribers(self) -> None:
        self.assertFalse(await self.store.push_content(FEED, _PUSHED, 1000))
        self.assertIsNone(await self.store.topic(FEED))
        await self.read(_ONE)
        before = await self.store.topic(FEED)
        self.assertFalse(await self.store.push_content(FEED, _PUSHED, 2000))
        self.assertEqual(await self.store.topic(FEED), before)
        self.assertEqual(await self.store.fanouts(10), [])
        self.assertIsNone(await self.store.newest_content(FEED))

    async def test_pushed_contents_are_all_carried_in_their_order(self) -> None:
        await self.wanting()
        read = (_ONE, _TWO)
        await self.read(read[0])
        for number, pushed in enumerate((_PUSHED, evolve(_PUSHED, body=b"[]"))):
            await self.store.push_content(FEED, pushed, 1001.0 + number)
        await self.read(read[1], at=1003.0)
        # The fan-out of the first fetch is superseded; those of pushed content never are.
        for content in (_PUSHED, evolve(_PUSHED, body=b"[]"), _TWO):
            walk = await self.walk_with(content)
            self.assertEqual(await self.store.fanouts(10), [walk])
            await self.store.record_slice(walk, 1000, [], True)
        self.assertEqual(await self.store.fanouts(10), [])

    async def test_pushed_content_outlives_changes_that_nobody_wants(self) -> None:
        await self.store.put_subscription(a_subscription())
        await self.store.push_content(FEED, _PUSHED, 1000)
        await self.read(_ONE, at=2000)
        walk = await self.walk_with(_PUSHED)
        await self.store.record_slice(walk, 1000, [], True)
        self.assertFalse(await self.kept(walk))

    async def test_end_of_a_pushed_walk_keeps_others(self) -> None:
        _, older = await self.carried()
        await self.store.push_content(FEED, _PUSHED, 1001)
        await self.read(_TWO, at=1002)
        pushed = await self.walk_with(_PUSHED)
        for _ in range(2):
            await self.store.record_slice(pushed, 1000, [], True)
            newer = await self.walk_with(_TWO)
            self.assertTrue(await self.kept(older))  # until it or the newer fan-out is finished
        await self.store.record_slice(newer, 1000, [], True)
        self.assertFalse(await self.kept(older))
        self.assertEqual(await self.store.fanouts(10), [])

    # topics that end

    async def test_end_of_a_topic(self) -> None:
        await self.store.record_fetch(a_fetch(), None)
        one = await self.store.put_subscription(a_subscription())
        await self.store.request_check(FEED, 1500)
        self.assertTrue(await self.store.end_topic(FEED, "moved away", 2000.0))
        self.assertFalse(await self.store.end_topic(FEED, "really", 3000.0))
        self.assertEqual(
            await self.store.topic(FEED),
            Topic(FEED, b"1" * 32, 1, 1000, 2000, "moved away", subscribers=1),
        )
        self.assertEqual(await waiting_checks(self.store, 10), [])
        ended = evolve(one, ended="moved away")
        self.assertEqual(await self.all_subscriptions(), [ended])
        (walk,) = await self.store.fanouts(10)
        self.assertEqual((walk.topic, walk.begun_at, walk.content_id), (FEED, 2000, None))
        await self.store.record_slice(walk, 0, [waits(ended, 3000)], True)
        self.assertEqual(
            await self.store.claim_due(3000, 10, ()),
            [evolve(ended, attempts=1, failing_since=2000.0)],
        )

    async def test_topic_that_ended_is_not_read(self) -> None:
        await self.store.put_subscription(a_subscription())
        await self.store.end_topic(FEED, "moved away", 2000)
        for pinged in (False, True):
            self.assertFalse(await self.store.request_check(FEED, 3000, pinged))
        await self.store.add_ping(evolve(a_ping(3000), rss_url=FEED), 0)
        self.assertEqual(await waiting_checks(self.store, 10), [])

    async def test_topic_that_ended_while_it_was_fetched(self) -> None:
        """What the fetch has found is nothing to anybody any more."""
        await self.store.put_subscription(a_subscription())
        await self.store.end_topic(FEED, "spam", 2000)
        record = await self.store.record_fetch(a_fetch(at=1999), a_ping(2001))
        topic = Topic(FEED, changed_at=2000, ended="spam", subscribers=1)
        self.assertEqual(record, FetchRecord(topic, changed=False))
        self.assertEqual(
            (await self.store.topic(FEED), len(await self.store.fanouts(10))), (topic, 1)
        )
        self.assertEqual(await self.store.pings(0, 9000, None, 10), [])

    async def test_subscriber_that_comes_when_a_topic_has_just_ended_is_to_be_told(self) -> None:
        """The fan-out that tells the others may be beyond its id already."""
        await self.store.put_subscription(a_subscription(number=1))
        await self.read(_ONE)
        await self.store.end_topic(FEED, "gone", 1400)
        late = a_subscription(number=2, granted_at=1500)
        stored = await self.store.put_subscription(late, _ONE.digest)
        self.assertEqual((stored.attempts, stored.ended), (0, "gone"))

    async def test_topic_is_revived(self) -> None:
        """Its validators are forgotten, so that the next fetch is unconditional."""
        await self.store.record_fetch(evolve(a_fetch(), validators=Validators('"1"')), None)
        await self.store.put_subscription(a_subscription())
        self.assertFalse(await self.store.revive_topic(FEED))
        self.assertFalse(await self.store.revive_topic(OTHER_FEED))
        await self.store.end_topic(FEED, "moved away", 2000)
        self.assertTrue(await self.store.revive_topic(FEED))
        self.assertFalse(await self.store.revive_topic(FEED))
        topic = Topic(FEED, b"1" * 32, 1, 1000, 2000, subscribers=1)
        self.assertEqual(await self.store.topic(FEED), topic)
        self.assertEqual([one.ended for one in await self.all_subscriptions()], [""])
        self.assertTrue(await self.store.request_check(FEED, 3000, True))
        self.assertEqual(await waiting_checks(self.store, 10), [Check(FEED, cause=PINGED)])

    async def test_topic_that_ended_is_known_for_90_days(self) -> None:
        """It need not have been known before."""
        self.assertTrue(await self.store.end_topic(FEED, "moved away", 2000))
        self.assertEqual(await self.known(), Topic(FEED, changed_at=2000, ended="moved away"))
        self.assertEqual(await self.store.fanouts(10), [])
        self.assertEqual((await self.store.sweep(2000 + 90 * DAY, 9e9)).topics, 0)
        self.assertEqual((await self.store.sweep(2001 + 90 * DAY, 0)).topics, 1)
        self.assertIsNone(await self.store.topic(FEED))

    async def test_watched_topics(self) -> None:
        urls = [f"http://feeds.example/{letter}" for letter in "bcad"]
        for url in urls:
            await self.store.put_subscription(a_subscription(url))
        await self.store.record_fetch(a_fetch(), None)  # a topic without subscriptions
        await self.store.end_topic(urls[1], "moved away", 2000)
        watched: list[str] = []
        parts = 0
        after: int | None = 0
        while after is not None:
            some, after = await self.store.watched_topics(after, 2)
            watched += some
            parts += 1
        self.assertEqual(watched, [urls[0], urls[2], urls[3]])
        self.assertEqual(parts, 3)  # two rows at a time of five
        self.assertEqual(await self.store.watched_topics(0, 10), (watched, None))

    # intents

    async def intend(self, intent: Intent | None = None, limit: int = 10) -> PendingIntent:
        """Store an intent, which must fit."""
        kept = await self.store.add_intent(intent or an_intent(), limit)
        assert kept is not None
        return kept

    async def test_intent_is_kept(self) -> None:
        intent = Intent(
            FEED,
            Callback("http://reader.example/hub", "websub", "p"),
            DAY,
            challenge=True,
            source="192.0.2.1",
            options={"secret": "s"},
            unsubscribe=True,
            written="HTTP://Feeds.example/rss.xml",
        )
        waiting = await self.intend(intent)
        self.assertEqual(waiting.intent, intent)
        self.assertEqual(await self.store.intents(), [waiting])
        for _ in range(2):
            await self.store.remove_intent(waiting.id)
            self.assertEqual(await self.store.intents(), [])

    async def test_later_intent_takes_the_place_of_an_earlier_one(self) -> None:
        first, second = await self.intend(), await self.intend(an_intent(2))
        await self.store.postpone_intent(first.id, 2, 5000.0)
        later = evolve(an_intent(1), lease_seconds=60, unsubscribe=True)
        again = await self.intend(later, 2)
        self.assertGreater(again.id, second.id)
        self.assertEqual((again.attempts, again.retry_at), (0, None))
        self.assertEqual(await self.store.intents(), [second, again])
        await self.store.postpone_intent(first.id, 3, 6000.0)  # as the verifier of the earlier does
        await self.store.remove_intent(first.id)
        self.assertEqual(await self.store.intents(), [second, again])

    async def test_intent_from_before_a_confirmed_one_is_removed(self) -> None:
        wanted = [an_intent(number) for number in range(1, 4)]
        kept = [await self.store.add_intent(intent, 3) for intent in wanted]
        await self.store.put_subscription(evolve(a_subscription(), callback=wanted[0].callback))
        self.assertEqual(await self.store.intents(), kept[1:])
        await self.store.remove_subscription(FEED, wanted[1].callback)
        self.assertEqual(await self.store.intents(), kept[2:])

    async def test_intents_differ_by_topic_and_callback(self) -> None:
        one = an_intent()
        others = (
            an_intent(2),
            an_intent(topic=OTHER_FEED),
            evolve(one, callback=evolve(one.callback, protocol="http-post")),
            evolve(one, callback=evolve(one.callback, procedure="p")),
        )
        for intent in (one, *others):
            await self.store.add_intent(intent, 10)
        self.assertEqual([kept.intent for kept in await self.store.intents()], [one, *others])

    async def test_postponed_intent_keeps_its_attempts(self) -> None:
        first, second = await self.intend(), await self.intend(an_intent(2))
        self.assertEqual((first.attempts, first.retry_at), (0, None))
        await self.store.postpone_intent(first.id, 1, 4030.0)
        await self.store.postpone_intent(second.id, 3, 6000.25)
        postponed = [
            evolve(first, attempts=1, retry_at=4030.0),
            evolve(second, attempts=3, retry_at=6000.25),
        ]
        self.assertEqual(await self.store.intents(), postponed)

    async def test_intents_are_kept_up_to_a_limit(self) -> None:
        for number, taken in ((1, True), (2, True), (3, False), (1, True)):
            kept = await self.store.add_intent(an_intent(number), 2)
            self.assertEqual(kept is not None, taken)
        self.assertEqual(len(await self.store.intents()), 2)
