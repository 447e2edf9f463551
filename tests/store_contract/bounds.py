"""The contract of the store: limits on the data that callers of the broker can make it keep."""

from __future__ import annotations

from attrs import evolve
from twisted.trial.unittest import TestCase

from rsscloud_broker.model import Content, FetchResult, Need, Subscription
from rsscloud_broker.model.work import Bounds, FetchRecord
from rsscloud_broker.storage import Store, contents
from tests.storage.waiting import waiting_checks
from tests.store_contract import basics

#: The limits of the stores here: idle topics, bytes of contents of one host, and bytes in total.
IDLE, OF_HOST, IN_ALL = 3, 1000, 2000


def feed(number: int, host: str = "feeds.example") -> str:
    """The URL of one feed of many."""
    return f"http://{host}/{number}"


#: The URLs of the feeds here.
FEEDS = [feed(number) for number in range(8)]


class BoundsContract(TestCase):
    """The tests that every store with small limits must pass."""

    def make_store(self, bounds: Bounds) -> Store:
        raise NotImplementedError

    def setUp(self) -> None:
        self.store = self.make_store(Bounds(IDLE, contents=IN_ALL, contents_of_host=OF_HOST))

    async def known(self, *urls: str) -> list[str]:
        """Those of the given topics that the store knows."""
        return [url for url in urls if await self.store.topic(url) is not None]

    # topics without subscriptions

    async def read(self, number: int, at: float) -> None:
        await self.store.record_fetch(basics.a_fetch(at=at, url=feed(number)), None)

    async def test_topics_that_were_read_longest_ago_are_forgotten(self) -> None:
        for number, at in ((0, 1000), (1, 1001), (2, 1002), (0, 1003), (3, 1004), (4, 1005)):
            await self.read(number, at)
        self.assertEqual(await self.known(*FEEDS), [FEEDS[0], FEEDS[3], FEEDS[4]])

    async def test_topics_that_were_read_before_the_clock_was_set_back_are_forgotten(self) -> None:
        for number in range(IDLE):
            await self.read(number, 5000 + number)
        await self.store.set_back(3000.0, 2010.0)
        await self.read(3, 2011)
        await self.read(4, 2012)
        self.assertEqual(await self.known(*map(feed, range(5))), [feed(2), feed(3), feed(4)])

    async def test_topics_with_subscriptions_are_kept(self) -> None:
        for number in range(4):
            await self.read(number, 1000 + number)
            await self.store.put_subscription(basics.a_subscription(FEEDS[number]))
        for number in range(4, 8):
            await self.read(number, 1000 + number)
        self.assertEqual(await self.known(*FEEDS), [*FEEDS[:4], *FEEDS[5:]])

    async def test_topics_that_lost_their_subscriptions_are_forgotten(self) -> None:
        for number, url in enumerate(FEEDS[:5]):
            await self.read(number, 1000 + number)
            await self.store.put_subscription(evolve(basics.a_subscription(url), dropping=True))
            await self.store.remove_subscription(url, basics.a_subscription(url).callback)
        await self.store.sweep(2000, 0)
        self.assertEqual(await self.known(*FEEDS), FEEDS[2:5])

    async def test_topics_that_ended_are_forgotten_too(self) -> None:
        for number, url in enumerate(FEEDS[:5]):
            await self.store.end_topic(url, "gone", 1000 + number)
        self.assertEqual(await self.known(*FEEDS), FEEDS[2:5])

    async def test_topics_that_wait_to_be_read_are_kept(self) -> None:
        self.assertTrue(await self.store.request_check(feed(0), 900, True))
        for number in range(1, 6):
            await self.read(number, 1000 + number)
        self.assertEqual(await self.known(*map(feed, range(6))), [feed(0), feed(4), feed(5)])

    async def test_no_more_wait_to_be_read(self) -> None:
        for number in range(IDLE):
            self.assertTrue(await self.store.request_check(feed(number), 1000, True))
        self.assertFalse(await self.store.request_check(feed(9), 1001, True))
        self.assertIsNone(await self.store.topic(feed(9)))
        self.assertTrue(await self.store.request_check(feed(0), 1001, True), "it is known")
        await self.store.put_subscription(basics.a_subscription(feed(8)))
        self.assertTrue(await self.store.request_check(feed(8), 1001, True), "it is subscribed to")
        await self.store.drop_check(feed(1), 1001)
        self.assertTrue(await self.store.request_check(feed(9), 1002, True))
        self.assertEqual(len(await waiting_checks(self.store, 10)), IDLE + 1)

    async def test_topics_that_are_put_off_and_lost_their_subscriptions_make_room(self) -> None:
        """Their server may have asked for a pause of a day."""
        for url in map(feed, range(IDLE)):
            one = await self.store.put_subscription(basics.a_subscription(url))
            await self.store.request_check(url, 1000, True, claim=True)
            self.assertEqual(
                await self.store.put_off_check(url, 1, 1000 + basics.DAY, 1000), 1000 + basics.DAY
            )
            await self.store.remove_subscription(url, one.callback)
        await self.store.sweep(2000, 0)
        self.assertTrue(await self.store.request_check(feed(9), 2001, True))
        self.assertEqual(await self.known(*map(feed, range(10))), [feed(1), feed(2), feed(9)])

    async def test_many_that_are_asked_for_at_once_have_the_same_room(self) -> None:
        """A topic that is asked for is not removed to make room for the others."""
        for number in range(2):
            await self.read(number, 1000 + number)
        given = await basics.at_once(
            self.store.request_check(feed(number), 2000, True) for number in (5, 0, 6, 7, 5)
        )
        self.assertEqual(given, [True, True, True, False, True])
        self.assertEqual(await self.known(*map(feed, range(8))), [feed(0), feed(5), feed(6)])

    async def test_urls_that_topics_have_left_count(self) -> None:
        await self.read(0, 1000)
        for number in range(6):
            await self.store.move_topic(feed(number), feed(number + 1), 1000 + number)
        await self.read(9, 2000)
        known = await self.known(*map(feed, range(10)))
        self.assertIn(feed(9), known)
        self.assertLessEqual(len(known), IDLE)

    async def test_urls_that_a_watched_topic_has_left(self) -> None:
        asked = await self.store.put_subscription(basics.a_subscription(feed(0)))
        for number in range(30):
            await self.store.move_topic(feed(number), feed(number + 1), 1000 + number)
        known = await self.known(*map(feed, range(31)))
        self.assertEqual(known, [feed(0), *map(feed, range(10, 31))])
        (stored,) = await self.store.subscriptions(feed(0), 0, 10)
        self.assertEqual(stored, evolve(asked, moved_to=feed(30)))

    # contents

    async def wanting(self, url: str, number: int = 1) -> Subscription:
        """Store a subscription that wants content."""
        return await self.store.put_subscription(
            evolve(basics.a_subscription(url, number), wants_content=True)
        )

    async def bring(self, url: str, size: int, letter: bytes = b"1", at: float = 1000.0) -> Content:
        """Record the fetch of a content, which its fan-out carries if there is room for it."""
        await self.record(url, content := basics.a_content(letter * size), at)
        return content

    async def record(self, url: str, content: Content, at: float) -> FetchRecord:
        reading = FetchResult(url, content.digest, len(content.body), at, content)
        return await self.store.record_fetch(reading, None)

    async def let_wait(self, url: str, until: float = 3000.0) -> Subscription:
        """Finish the fan-outs of a topic, with pending notifications for all subscriptions."""
        subscribed = await self.store.subscriptions(url, 0, 10)
        for walk in await self.store.fanouts(100):
            if walk.topic == url:
                waiting = [basics.waits(one, until) for one in subscribed]
                await self.store.record_slice(walk, 1000, waiting, True)
        return subscribed[0]

    async def fill(self, size: int, *urls: str) -> None:
        """Keep contents of topics for pending notifications, one after the other."""
        for url in urls:
            await self.wanting(url)
            await self.bring(url, size)
            await self.let_wait(url)

    async def kept(self, *urls: str) -> list[str]:
        """Those of the given topics that have a content."""
        return [url for url in urls if await self.store.newest_content(url) is not None]

    async def test_oldest_contents_of_a_host_are_evicted(self) -> None:
        feeds = [feed(number) for number in range(3)]
        await self.fill(400, *feeds)
        self.assertEqual(await self.kept(*feeds), feeds[1:])

    async def test_contents_of_other_hosts_stay(self) -> None:
        feeds = [feed(0, "a.example"), feed(1, "b.example"), feed(2, "b.example")]
        await self.fill(600, *feeds)
        self.assertEqual(await self.kept(*feeds), [feeds[0], feeds[2]])

    async def test_host_that_has_most_makes_room_for_all(self) -> None:
        first, *feeds = (feed(number, f"{host}.example") for number, host in enumerate("abbc"))
        await self.fill(700, first)
        await self.fill(450, *feeds)
        self.assertEqual(await self.kept(first, *feeds), [first, *feeds[1:]])

    async def test_many_hosts_with_little_make_room_together(self) -> None:
        self.patch(contents, "_HOSTS_AT_ONCE", 2)
        feeds = [feed(number, f"small{number}.example") for number in range(10)]
        await self.fill(150, *feeds)
        await self.wanting(feed(0))
        await self.bring(feed(0), 900)
        self.assertEqual(await self.kept(feed(0)), [feed(0)])
        self.assertTrue(await self.kept(*feeds), "no more is evicted than need be")

    async def test_what_walks_carry_stays_and_no_more_is_kept(self) -> None:
        feeds = [feed(number) for number in range(3)]
        for url in feeds:
            await self.wanting(url)
            await self.bring(url, 400)
        first, second, third = await self.store.fanouts(10)
        self.assertIsNotNone(await self.store.content(first.content_id or 0))
        self.assertIsNotNone(await self.store.content(second.content_id or 0))
        self.assertEqual(
            (third.topic, third.content_id, third.lacks_content), (feeds[2], None, True)
        )
        self.assertFalse(first.lacks_content)
        await self.store.record_slice(first, 1000, [], True)
        found = await self.record(feeds[2], basics.a_content(b"1" * 400), 1001)
        self.assertEqual((found.changed, found.content_awaited), (False, True))
        third = (await self.store.fanouts(10))[-1]
        self.assertEqual((third.topic, third.lacks_content), (feeds[2], False))
        self.assertIsNotNone(await self.store.content(third.content_id or 0))

    async def test_content_that_had_no_room_is_brought_by_the_next_reading(self) -> None:
        await self.wanting(feed(0))
        await self.bring(feed(0), 800)
        one = await self.wanting(feed(1))
        content = await self.bring(feed(1), 800)
        walk = (await self.store.fanouts(10))[1]
        put_off = evolve(basics.waits(one, 5000, attempts=0), outcome=None)
        await self.store.record_slice(walk, 1000, [put_off], True)
        await self.let_wait(feed(0))
        validators = evolve(basics.a_fetch().validators, etag='"1"')
        unchanged = evolve(basics.a_fetch(at=1500), url=feed(1), digest=content.digest, size=800)
        await self.store.record_fetch(evolve(unchanged, validators=validators), None)
        self.assertTrue(await self.store.request_content(feed(1), 2000))
        topic = await self.store.topic(feed(1))
        assert topic is not None
        self.assertEqual((topic.validators.etag, topic.need), ("", Need.CONTENT))
        self.assertIn(feed(1), [check.url for check in await waiting_checks(self.store, 10)])
        record = await self.record(feed(1), content, 2001)
        self.assertEqual((record.changed, record.content_awaited), (False, True))
        self.assertEqual(await self.store.newest_content(feed(1)), content)
        self.assertEqual(await self.store.next_due(), 3000, "that of the other topic")
        self.assertTrue(await self.store.make_due_for_content(feed(1), 2001))
        self.assertEqual(await self.store.next_due(), 2001)
        self.assertFalse(await self.store.make_due_for_content(feed(1), 2001))
        self.assertIs(record.topic.need, Need.CHANGES)
        self.assertIsNone(await self.store.newest_content(feed(0)), "it has made room")
        self.assertFalse((await self.record(feed(1), content, 2002)).content_awaited)

    async def test_content_that_is_too_large_for_the_budget(self) -> None:
        await self.wanting(feed(0))
        await self.bring(feed(0), 500)
        await self.let_wait(feed(0))
        await self.bring(feed(0), 1001, b"2", at=2000)
        self.assertIsNone(await self.store.newest_content(feed(0)), "the old one is not given")
        (walk,) = await self.store.fanouts(10)
        self.assertTrue(walk.lacks_content)

    async def test_room_of_removed_contents_is_free_again(self) -> None:
        """Contents are removed in several ways: delivered, given up, or with their topic."""
        url = feed(0)
        for number in range(4):
            one = await self.wanting(url)
            await self.bring(url, 900, b"%d" % number, at=1000.0 + number)
            (walk,) = await self.store.fanouts(10)
            self.assertFalse(walk.lacks_content, number)
            if number == 0:
                await self.store.record_slice(walk, 1000, [basics.succeeded(one)], True)
            elif number == 1:
                await self.let_wait(url)
                await self.store.record_deliveries([basics.failed(evolve(one, attempts=1))])
                self.assertEqual(await self.kept(url), [])
            elif number == 2:
                await self.store.record_slice(walk, 1000, [], True)
                await self.store.remove_subscription(url, one.callback)
                await self.store.sweep(2000, 9999)
                self.assertIsNone(await self.store.topic(url))

    async def test_moved_topic_takes_its_contents_along(self) -> None:
        await self.wanting(feed(0))
        await self.bring(feed(0), 900)
        await self.store.move_topic(feed(0), feed(1, "b.example"), 1001)
        one = await self.let_wait(feed(1, "b.example"))
        await self.store.record_deliveries([basics.succeeded(evolve(one, attempts=1))])
        self.assertEqual(await self.kept(feed(0)), [])
        await self.bring(feed(0), 900, b"2", at=2000)
        self.assertEqual(await self.kept(feed(0)), [feed(0)])

    async def test_pushed_contents_are_always_kept(self) -> None:
        """The broker could not fetch them again."""
        for number in range(4):
            await self.wanting(feed(number))
            await self.store.push_content(feed(number), basics.a_content(b"x" * 900), 1000 + number)
            await self.let_wait(feed(number))
        await self.wanting(feed(4))
        await self.bring(feed(4), 900)
        self.assertEqual(await self.kept(*map(feed, range(5))), [feed(n) for n in range(4)])

    async def test_host_that_is_called_like_the_pushed_contents(self) -> None:
        """A host of an intranet shares no budget with contents that were pushed."""
        pushed, fetched = feed(0), feed(1, "pushed")
        await self.wanting(pushed)
        await self.store.push_content(pushed, basics.a_content(b"x" * 900), 1000)
        (walk,) = await self.store.fanouts(10)
        (one,) = await self.store.subscriptions(pushed, 0, 10)
        late = evolve(basics.waits(one, 3000.0), content_id=walk.content_id)
        await self.store.record_slice(walk, 1000, [late], True)
        await self.wanting(fetched)
        await self.bring(fetched, 900)
        self.assertEqual(await self.kept(pushed, fetched), [pushed, fetched])

    async def test_contents_of_forgotten_topics_make_room(self) -> None:
        """Also those that fan-outs carry."""
        one = await self.wanting(feed(0))
        await self.bring(feed(0), 900)
        await self.store.remove_subscription(feed(0), one.callback)
        await self.store.sweep(2000, 0)  # which notices that nobody subscribes to it any more
        self.assertEqual(await self.kept(feed(0)), [feed(0)])
        for number in range(1, IDLE + 1):
            await self.read(number, 3000 + number)
        self.assertEqual(await self.known(feed(0)), [])
        await self.wanting(feed(9))
        await self.bring(feed(9), 900)
        self.assertEqual(await self.kept(feed(9)), [feed(9)])

    async def test_contents_published_together_leave_each_other_in_place(self) -> None:
        """The last one has no room, as fan-outs carry all that could make room for it."""
        feeds = [feed(number) for number in range(3)]
        fetched = []
        for url in feeds:
            await self.wanting(url)
            content = basics.a_content(url.encode() + b"1" * 375)
            size = len(content.body)
            fetched.append(FetchResult(url, content.digest, size, 1000.0, content))
        await self.store.publish(fetched, basics.a_ping(), lambda conn: None)
        walks = await self.store.fanouts(10)
        self.assertEqual([walk.lacks_content for walk in walks], [False, False, True])
        self.assertEqual(await self.kept(*feeds), feeds[:2])
