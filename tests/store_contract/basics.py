"""The contract of the store: pings, topics and subscriptions.

The rest of the contract is in the modules beside this one, which extend this class.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from hashlib import sha256
from typing import TypeVar

from attrs import evolve
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from rsscloud_broker import model
from rsscloud_broker.interfaces import IChangeStore, IFollowStore, IJobs, IStatistics
from rsscloud_broker.model.log_entry import LogEntry, LogFilter
from rsscloud_broker.model.ways import Way
from rsscloud_broker.model.work import Check, Delivery, Fanout, Swept, SweptSubscription
from rsscloud_broker.storage import Store
from rsscloud_broker.util.deferreds import gather
from tests.storage.waiting import PINGED, waiting_checks

T = TypeVar("T")

FEED = "http://feeds.example/rss.xml"
OTHER_FEED = "http://feeds.example/other.xml"
DAY = 86400


def a_ping(at: float = 1000.0, name: str = "A site") -> model.Ping:
    """A ping of a site."""
    return model.Ping(name=name, url="http://site.example/", received_at=at)


def a_subscription(
    topic: str = FEED, number: int = 1, granted_at: float = 1000.0, protocol: str = "http-post"
) -> model.Subscription:
    """A subscription that is not stored yet."""
    callback = model.Callback(f"http://reader{number}.example/notify", protocol)
    return model.Subscription(topic=topic, callback=callback, lease=model.Lease(granted_at, DAY))


def a_fetch(content: bytes = b"1", at: float = 1000.0, url: str = FEED) -> model.FetchResult:
    """The result of a fetch that somebody asked for openly, and that found some content."""
    digest, size = content * 32, len(content)
    return model.FetchResult(url=url, digest=digest, size=size, started_at=at, way=Way.RSSCLOUD)


def a_content(body: bytes = b"<rss>1</rss>") -> model.Content:
    """The content of a topic."""
    return model.Content(body, "application/rss+xml")


def a_long_url(name: str) -> str:
    """A URL of 2,048 characters that cannot be compressed, another one for each name."""
    text = f"http://{name}.example/"
    while len(text) < 2048:
        text += sha256(text.encode()).hexdigest()
    return text[:2048]


def asked(*urls: str) -> list[Check]:
    """Checks of topics that nobody has pinged."""
    return [Check(url) for url in urls]


def failed(
    subscription: model.Subscription, drop_after_failures: int | None = 3, at: float = 2000.0
) -> Delivery:
    """A delivery that was given up."""
    return Delivery(
        subscription,
        model.Outcome(success=False, reason="refused"),
        at=at,
        drop_after_failures=drop_after_failures,
    )


def succeeded(subscription: model.Subscription) -> Delivery:
    """A delivery that the subscriber accepted."""
    return Delivery(subscription, model.Outcome(success=True), at=2000.0, drop_after_failures=3)


def is_gone(subscription: model.Subscription) -> Delivery:
    """A delivery whose subscriber is gone."""
    return Delivery(
        subscription, model.Outcome(success=False, gone=True), at=2000.0, drop_after_failures=3
    )


def waits(subscription: model.Subscription, until: float, attempts: int = 1) -> Delivery:
    """A failed delivery that is tried again."""
    return evolve(failed(subscription), attempts=attempts, retry_at=until)


async def at_once(asked: Iterable[Awaitable[T]]) -> list[T]:
    """The results of several awaitables that are started at the same time."""

    async def waited(one: Awaitable[T]) -> T:
        return await one

    return await gather([waited(one) for one in list(asked)])


class RecordsContract(TestCase):
    """The tests of pings, topics and subscriptions that every store must pass."""

    def make_store(self) -> Store:
        raise NotImplementedError

    def setUp(self) -> None:
        self.store = self.make_store()

    async def all_subscriptions(self, topic: str = FEED) -> list[model.Subscription]:
        return await self.store.subscriptions(topic, 0, 1000)

    async def known(self, url: str = FEED) -> model.Topic:
        """A topic that the store must know."""
        topic = await self.store.topic(url)
        assert topic is not None
        return topic

    async def begin_walk(self, content: bytes) -> Fanout:
        """Record a change of a feed that has subscriptions, and return the fan-out."""
        await self.store.record_fetch(a_fetch(content), None)
        return (await self.store.fanouts(10))[-1]

    def test_interfaces(self) -> None:
        for interface in (IChangeStore, IFollowStore, IJobs, IStatistics):
            self.assertTrue(verifyObject(interface, self.store))

    async def test_urls_as_long_as_front_doors_take_them(self) -> None:
        """In every column with URLs, since rows of PostgreSQL's indexes have room for less."""
        topic, other, callback = (a_long_url(name) for name in "abc")
        wanted = a_subscription(topic)
        wanted = evolve(wanted, callback=evolve(wanted.callback, url=callback), written=other)
        for known in (None, b""):  # new, then renewed
            subscription = await self.store.put_subscription(wanted, known)
        ping = model.Ping(topic, topic, 1000, other, callback)
        self.assertEqual((await self.store.add_ping(ping, 60)).watched, (topic,))
        self.assertTrue((await self.store.add_ping(ping, 60)).repeat)
        self.assertTrue(await self.store.move_topic(topic, other, 2000))
        (moved,) = await self.all_subscriptions(other)
        self.assertEqual((moved.topic, moved.moved_to, moved.id), (topic, other, subscription.id))
        intent = model.Intent(topic, moved.callback, DAY, written=other)
        for _ in range(2):
            waiting = await self.store.add_intent(intent, 10)
            self.assertEqual(await self.store.intents(), [waiting])
        self.assertTrue(await self.store.remove_subscription(topic, moved.callback))
        entry = LogEntry("ping", "accepted", 1.0, topic=topic, callback=callback, reason=other)
        await self.store.add_log_entries([entry])
        (found,) = await self.store.log_entries(LogFilter(topic=topic), None, 10)
        self.assertEqual(evolve(found, id=0), entry)

    # pings

    async def test_ping_is_recorded(self) -> None:
        ping = model.Ping(
            name="Ünïcode & <co>",
            url="http://site.example/",
            received_at=1714561200.123456,
            changes_url="http://site.example/new",
            rss_url=FEED,
            tags=("a|b", "c"),
        )
        record = await self.store.add_ping(ping, 60)
        self.assertFalse(record.repeat)
        self.assertGreater(record.ping.id, 0)
        self.assertEqual(record.ping, evolve(ping, id=record.ping.id))
        self.assertEqual(await self.store.pings(0, 2e9, None, 10), [record.ping])
        self.assertEqual(await self.store.count_pings(), 1)

    async def test_a_ping_repeats_one_within_its_window(self) -> None:
        for name, first, second, window, repeats in (
            ("within the window", 1000, 1059, 60, True),
            ("after the window", 1000, 1060, 60, False),
            ("without a window", 1000, 1000, 0, False),
            ("the clock was set back", 5000, 1000, 60, False),
        ):
            await self.store.add_ping(a_ping(first, name), window)
            record = await self.store.add_ping(a_ping(second, name), window)
            self.assertEqual(record.repeat, repeats, name)
        self.assertEqual(await self.store.count_pings(), 7)

    async def test_repeat_has_the_same_name_url_and_feed(self) -> None:
        ping = evolve(a_ping(), rss_url=FEED)
        await self.store.add_ping(ping, 60)
        for other in (
            evolve(ping, name="B"),
            evolve(ping, url="http://b.example/"),
            evolve(ping, rss_url=""),
        ):
            self.assertFalse((await self.store.add_ping(other, 60)).repeat, other)
        tagged = evolve(ping, tags=("t",), changes_url="http://site.example/new")
        self.assertTrue((await self.store.add_ping(tagged, 60)).repeat)

    async def test_ping_asks_for_checks_of_watched_topics(self) -> None:
        await self.store.put_subscription(a_subscription(FEED))
        await self.store.put_subscription(a_subscription("http://site.example/"))
        await self.store.record_fetch(a_fetch(url=OTHER_FEED), None)
        ping = evolve(a_ping(), rss_url=FEED, changes_url=OTHER_FEED)
        watched = {FEED, "http://site.example/"}  # the other feed has no subscription
        for repeat in (False, True):
            record = await self.store.add_ping(ping, 60)
            self.assertEqual((record.repeat, set(record.watched)), (repeat, watched))
            self.assertEqual(set(await waiting_checks(self.store, 10)), set(asked(*watched)))
            for url in watched:
                await self.store.drop_check(url, 1000)

    async def test_pings_are_sliced_newest_first(self) -> None:
        times = [1001.0, 1002.0, 1002.0, 1002.0, 1003.0, 1004.0]
        stored = [(await self.store.add_ping(a_ping(at), 0)).ping for at in times]
        expected = stored[-2:0:-1]  # since 1002 until before 1004
        found = await self.store.pings(1002, 1004, None, 2)
        while len(slice_ := await self.store.pings(1002, 1004, found[-1], 2)):
            found += slice_
        self.assertEqual(found, expected)

    async def test_pruned_pings_still_count(self) -> None:
        for at in (1000, 2000, 3000):
            await self.store.add_ping(a_ping(at), 0)
        self.assertEqual(await self.store.prune_pings(2000, 1000), 1)
        times = (2000.0, 2000.000001, 4000.0, None)
        self.assertEqual([await self.store.count_pings(until) for until in times], [1, 2, 3, 3])
        self.assertEqual(await self.store.prune_pings(2001, 1000), 1)
        self.assertEqual(len(await self.store.pings(0, 9999, None, 10)), 1)
        self.assertEqual(await self.store.count_pings(), 3)

    async def test_ids_only_ascend(self) -> None:
        """Also when those with the greatest ids are removed."""
        ping = (await self.store.add_ping(a_ping(1000), 0)).ping
        await self.store.prune_pings(9999, 1000)
        self.assertGreater((await self.store.add_ping(a_ping(1000), 0)).ping.id, ping.id)
        first = await self.store.put_subscription(a_subscription())
        await self.store.remove_subscription(FEED, first.callback)
        self.assertGreater((await self.store.put_subscription(a_subscription())).id, first.id)
        wanted = model.Intent(FEED, first.callback, DAY)
        intent = await self.store.add_intent(wanted, 1)
        assert intent is not None
        await self.store.remove_intent(intent.id)
        again = await self.store.add_intent(wanted, 1)
        assert again is not None
        self.assertGreater(again.id, intent.id)

    # topics

    async def test_same_content_is_no_change(self) -> None:
        await self.store.record_fetch(a_fetch(), None)
        await self.store.put_subscription(a_subscription())
        record = await self.store.record_fetch(a_fetch(at=2000), a_ping())
        self.assertEqual((record.changed, record.ping), (False, None))
        self.assertEqual((record.topic.read_at, record.topic.changed_at), (2000, 1000))
        self.assertEqual(await self.store.topic(FEED), record.topic)
        self.assertEqual(await self.store.count_pings(), 0)
        self.assertEqual(await self.store.fanouts(10), [])

    async def test_digest_or_size_make_a_change(self) -> None:
        await self.store.record_fetch(a_fetch(), None)
        for other in (a_fetch(b"2"), evolve(a_fetch(b"2"), size=2)):
            self.assertTrue((await self.store.record_fetch(other, None)).changed, other)

    async def test_checks_wait_from_the_last_ping_longest_first(self) -> None:
        for url in (FEED, OTHER_FEED):
            await self.store.put_subscription(a_subscription(url))
        for url, at in ((FEED, 1000), (OTHER_FEED, 1001), (FEED, 1002), (FEED, 900)):
            await self.store.add_ping(evolve(a_ping(at), rss_url=url), 0)
        self.assertEqual(await waiting_checks(self.store, 10), asked(OTHER_FEED, FEED))
        self.assertEqual(await waiting_checks(self.store, 1), asked(OTHER_FEED))
        await self.store.drop_check(FEED, 1001.9)
        self.assertEqual(await waiting_checks(self.store, 10), asked(OTHER_FEED, FEED))
        await self.store.drop_check(FEED, 1002)
        self.assertEqual(await waiting_checks(self.store, 10), asked(OTHER_FEED))

    async def test_check_is_of_a_ping_until_it_is_answered(self) -> None:
        """By a fetch, or as the topic is given up."""
        await self.store.put_subscription(a_subscription())
        for answer in (
            lambda: self.store.drop_check(FEED, 1001),
            lambda: self.store.record_fetch(a_fetch(at=1001), None),
        ):
            await self.store.request_check(FEED, 1000, True)
            await self.store.request_check(FEED, 1001)
            await self.store.drop_check(FEED, 1000)
            self.assertEqual(await waiting_checks(self.store, 10), [Check(FEED, cause=PINGED)])
            await answer()
            self.assertEqual(await waiting_checks(self.store, 10), [])
            await self.store.request_check(FEED, 1000)
            self.assertEqual(await waiting_checks(self.store, 10), asked(FEED))

    async def test_many_that_are_asked_for_at_once_are_as_one_by_one(self) -> None:
        new, old = "http://feeds.example/new", "http://feeds.example/old"
        await self.store.put_subscription(a_subscription())
        await self.store.move_topic(old, OTHER_FEED, 500)
        await self.store.end_topic(new, "gone", 500)
        unknown = [f"http://feeds.example/{number}" for number in range(3)]
        given = await at_once(
            self.store.request_check(*one)
            for one in (
                (FEED, 1000.0),
                (FEED, 900.0, True),
                (old, 1001.0, True),
                (OTHER_FEED, 1002.0),
                (new, 1003.0, True),
                (unknown[0], 1004.0),
                (unknown[1], 1006.0, True),
                (unknown[2], 1005.0, True),
                (unknown[1], 1004.5, True),
            )
        )
        self.assertEqual(given, [True, True, True, False, False, False, True, True, True])
        self.assertEqual(
            await waiting_checks(self.store, 10),
            [Check(url, cause=PINGED) for url in (FEED, OTHER_FEED, unknown[2], unknown[1])],
        )
        urls = [FEED, old, new, unknown[0], old, OTHER_FEED]
        found = [FEED, OTHER_FEED, new, None, OTHER_FEED, OTHER_FEED]
        topics = await at_once(self.store.topic(url) for url in urls)
        self.assertEqual([topic and topic.url for topic in topics], found)
        statuses = await at_once(self.store.topic_status(url) for url in urls)
        self.assertEqual([status and status.topic for status in statuses], topics)
        self.assertEqual([topic and topic.subscribers for topic in topics], [1, 0, 0, None, 0, 0])

    # subscriptions

    async def test_subscription_is_stored(self) -> None:
        wanted = evolve(
            a_subscription(granted_at=1714561200.25),
            options={"secret": "Ünïcode \N{SNOWMAN}", "signature": "sha256"},
            wants_content=True,
            callback=model.Callback(
                'http://reader.example/?"\\\t\U0001f600', "xml-rpc", "river.feedUpdated"
            ),
        )
        stored = await self.store.put_subscription(wanted)
        self.assertGreater(stored.id, 0)
        self.assertEqual(stored, evolve(wanted, id=stored.id))
        self.assertEqual(await self.all_subscriptions(), [stored])

    async def test_renewal_replaces_and_forgets_errors(self) -> None:
        wanted = evolve(a_subscription(), options={"secret": "s"}, wants_content=True)
        stored = await self.store.put_subscription(wanted)
        walk = await self.begin_walk(b"1")
        await self.store.record_slice(walk, 0, [failed(stored, drop_after_failures=1)], False)
        self.assertFalse((await self.all_subscriptions())[0].renewed)
        renewed = await self.store.put_subscription(a_subscription(granted_at=5000))
        self.assertTrue(renewed.renewed)
        self.assertEqual(renewed, evolve(a_subscription(granted_at=5000), id=renewed.id))
        self.assertEqual(await self.all_subscriptions(), [renewed])

    async def test_subscriptions_differ_by_topic_and_callback(self) -> None:
        first = a_subscription()
        for one in (
            first,
            a_subscription(OTHER_FEED),
            a_subscription(number=2),
            a_subscription(protocol="https-post"),
            evolve(first, callback=evolve(first.callback, procedure="p")),
        ):
            await self.store.put_subscription(one)
        self.assertEqual(len(await self.all_subscriptions()), 4)
        for there in (True, False):
            self.assertEqual(await self.store.has_subscription(FEED, first.callback), there)
            self.assertEqual(await self.store.remove_subscription(FEED, first.callback), there)
        self.assertFalse(await self.store.has_subscription("http://no.example/", first.callback))
        self.assertEqual(len(await self.all_subscriptions()), 3)
        self.assertEqual(len(await self.all_subscriptions(OTHER_FEED)), 1)

    async def test_subscriptions_are_walked_by_id(self) -> None:
        stored = [await self.store.put_subscription(a_subscription(number=n)) for n in range(5)]
        first = await self.store.subscriptions(FEED, 0, 2)
        rest = await self.store.subscriptions(FEED, first[-1].id, 10)
        self.assertEqual(first + rest, stored)
        self.assertEqual(await self.store.subscriptions(FEED, rest[-1].id, 10), [])

    async def test_sweep_drops_expired_and_marked(self) -> None:
        for number, granted_at in enumerate((1000.0, 1001.0, 1002.0)):
            await self.store.put_subscription(a_subscription(number=number, granted_at=granted_at))
        _, kept, bad = await self.all_subscriptions()
        walk = await self.begin_walk(b"1")
        await self.store.record_slice(walk, 0, [failed(bad, drop_after_failures=1)], False)
        swept = await self.store.sweep(1000.0 + DAY, 0)
        self.assertEqual(swept, Swept(expired=1, failing=1))
        expired = a_subscription(number=0)
        self.assertEqual(
            swept.named,
            (
                SweptSubscription(FEED, bad.callback, "refused"),
                SweptSubscription(FEED, expired.callback),
            ),
        )
        self.assertEqual(await self.all_subscriptions(), [kept])

    async def test_sweep_goes_on_until_everything_is_removed(self) -> None:
        urls = [f"http://site{number}.example/feed" for number in range(120)]
        for url in urls:
            await self.store.put_subscription(a_subscription(url))
        swept, parts = Swept(after=0), 0
        while swept.after is not None:
            swept = swept.followed_by(await self.store.sweep(1000.0 + DAY, 9e9, swept.after))
            parts += 1
        self.assertEqual(swept, Swept(expired=120, topics=120))
        self.assertEqual((len(swept.named), parts > 1), (100, True))
        self.assertIsNone(await self.store.topic(urls[-1]))

    async def test_sweep_drops_idle_topics_and_their_walks(self) -> None:
        subscription = await self.store.put_subscription(a_subscription())
        await self.begin_walk(b"1")
        await self.store.record_fetch(a_fetch(url=OTHER_FEED, at=2000), None)
        self.assertEqual((await self.store.sweep(1000, 9999)).topics, 1)
        self.assertIsNone(await self.store.topic(OTHER_FEED))
        await self.store.remove_subscription(FEED, subscription.callback)
        self.assertEqual((await self.store.sweep(1000, 1000)).topics, 0)
        await self.store.request_check(FEED, 1000, True)
        self.assertEqual((await self.store.sweep(1000, 1000.1)).topics, 0, "it is to be fetched")
        await self.store.drop_check(FEED, 1000)
        self.assertEqual((await self.store.sweep(1000, 1000.1)).topics, 1)
        self.assertEqual(await self.store.fanouts(10), [])

    # the database itself

    async def test_topics_that_wait_in_it_are_counted(self) -> None:
        urls = [a_long_url(f"host{number}") for number in range(6)]
        for number, url in enumerate(urls):
            await self.store.request_check(url, 100, True, "192.0.2.1", claim=number < 3)
        self.assertEqual(await self.store.waiting_checks(), {"ready": 3, "put_off": 0})
        await self.store.put_off_check(urls[0], 1, 160, 100)
        self.assertEqual(await self.store.waiting_checks(), {"ready": 3, "put_off": 1})
        await self.store.drop_check(urls[5], 101)
        self.assertEqual(await self.store.waiting_checks(), {"ready": 2, "put_off": 1})
        await self.store.record_fetch(a_fetch(url=urls[0]), None)
        self.assertEqual(await self.store.waiting_checks(), {"ready": 2, "put_off": 0})

    async def test_its_size_grows(self) -> None:
        """Unless PostgreSQL frees meanwhile what other tests have deleted."""
        size = (await self.store.sizes())["main"]
        self.assertGreater(size, 0)
        for number in range(5_000):
            await self.store.record_fetch(a_fetch(url=a_long_url(f"host{number}")), None)
            if number % 250 == 249:
                before, size = size, (await self.store.sizes())["main"]
                if size > before:
                    return
        self.fail("the database does not grow")
