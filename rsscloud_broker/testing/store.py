"""A store in memory, and the contract of ``IStore``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from attrs import evolve
from sqlalchemy import Engine
from twisted.internet.defer import Deferred, execute, succeed
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.interfaces import IStore
from rsscloud_broker.model import (
    Callback,
    Delivery,
    Fanout,
    Lease,
    Outcome,
    Ping,
    Reading,
    Subscription,
    Swept,
)
from rsscloud_broker.storage import Store
from rsscloud_broker.storage.engine import database_errors, for_writing
from rsscloud_broker.storage.schema import metadata
from rsscloud_broker.storage.threads import read_once
from rsscloud_broker.storage.writer import Operation

T = TypeVar("T")


# --- a store in memory -------------------------------------------------------


class CallersThread:
    """Runs a store's operations at once, in the thread that asks for them."""

    def start(self, engine: Engine) -> None:
        metadata.create_all(engine)
        self._engine = engine

    def read(self, operation: Operation[T]) -> Deferred[T]:
        return execute(read_once, self._engine, operation)

    def write(self, operation: Operation[T]) -> Deferred[T]:
        return execute(self._write_once, operation)

    def _write_once(self, operation: Operation[T]) -> T:
        with database_errors(), for_writing(self._engine).begin() as connection:
            return operation(connection)

    def stop(self) -> Deferred[None]:
        self._engine.dispose()
        return succeed(None)


def memory_store() -> Store:
    """A started store in memory, whose Deferreds have fired when they are returned.

    It is the real store on SQLite but for the threads, so tests can say
    ``self.successResultOf(store.count_pings())``.
    """
    unused = cast(IReactorFromThreads, Clock())
    store = Store(unused, "sqlite://", threads=CallersThread())
    store.startService()
    return store


# --- the contract of IStore ----------------------------------------------------

_FEED = "http://feeds.example/rss.xml"
_OTHER_FEED = "http://feeds.example/other.xml"
_DAY = 86400


def _ping(at: float = 1000.0, name: str = "A site") -> Ping:
    return Ping(name=name, url="http://site.example/", received_at=at)


def _subscription(topic: str = _FEED, number: int = 1, granted_at: float = 1000.0) -> Subscription:
    callback = Callback(f"http://reader{number}.example/notify", "http-post")
    return Subscription(topic=topic, callback=callback, lease=Lease(granted_at, _DAY))


def _reading(content: bytes = b"1", at: float = 1000.0, url: str = _FEED) -> Reading:
    return Reading(url=url, digest=content * 32, size=len(content), started_at=at)


def _failed(subscription: Subscription, marks: int | None = 3, at: float = 2000.0) -> Delivery:
    return Delivery(subscription, Outcome(success=False, reason="refused"), at=at, marks=marks)


def _succeeded(subscription: Subscription) -> Delivery:
    return Delivery(subscription, Outcome(success=True), at=2000.0, marks=3)


class _StoreContract(TestCase):
    """What holds for every ``IStore``."""

    def make_store(self) -> IStore:
        raise NotImplementedError

    def setUp(self) -> None:
        self.store = self.make_store()

    async def all_subscriptions(self, topic: str = _FEED) -> list[Subscription]:
        return await self.store.subscriptions(topic, 0, 1000)

    async def begin_walk(self, content: bytes) -> Fanout:
        """Have a fan-out of a change to a feed that has subscriptions."""
        await self.store.record_reading(_reading(content), None)
        return (await self.store.fanouts(10))[-1]

    def test_interface(self) -> None:
        self.assertTrue(verifyObject(IStore, self.store))

    # pings

    async def test_ping_is_recorded(self) -> None:
        ping = Ping(
            name="Ünïcode & <co>",
            url="http://site.example/",
            received_at=1714561200.123456,
            changes_url="http://site.example/new",
            rss_url=_FEED,
            tags=("a|b", "c"),
        )
        record = await self.store.add_ping(ping, 60)
        self.assertFalse(record.repeat)
        self.assertGreater(record.ping.id, 0)
        self.assertEqual(record.ping, evolve(ping, id=record.ping.id))
        self.assertEqual(await self.store.pings(0, 2e9, None, 10), [record.ping])
        self.assertEqual(await self.store.count_pings(), 1)

    async def test_repeat_within_the_window_makes_no_record(self) -> None:
        await self.store.add_ping(_ping(1000), 60)
        record = await self.store.add_ping(_ping(1059), 60)
        self.assertTrue(record.repeat)
        self.assertEqual(await self.store.count_pings(), 1)

    async def test_no_repeat_after_the_window(self) -> None:
        await self.store.add_ping(_ping(1000), 60)
        record = await self.store.add_ping(_ping(1060), 60)
        self.assertFalse(record.repeat)

    async def test_without_a_window_nothing_repeats(self) -> None:
        await self.store.add_ping(_ping(), 0)
        record = await self.store.add_ping(_ping(), 0)
        self.assertFalse(record.repeat)

    async def test_clock_that_was_set_back_silences_nobody(self) -> None:
        await self.store.add_ping(_ping(5000), 60)
        record = await self.store.add_ping(_ping(1000), 60)
        self.assertFalse(record.repeat)

    async def test_repeat_has_the_same_name_url_and_feed(self) -> None:
        ping = evolve(_ping(), rss_url=_FEED)
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
        await self.store.put_subscription(_subscription(_FEED))
        await self.store.put_subscription(_subscription("http://site.example/"))
        await self.store.record_reading(_reading(url=_OTHER_FEED), None)
        ping = evolve(_ping(), rss_url=_FEED, changes_url=_OTHER_FEED)
        watched = {_FEED, "http://site.example/"}  # nobody subscribed to the other feed
        for repeat in (False, True):
            record = await self.store.add_ping(ping, 60)
            self.assertEqual((record.repeat, set(record.watched)), (repeat, watched))
            self.assertEqual(set(await self.store.checks_due(10)), watched)
            for url in watched:
                await self.store.drop_check(url, 1000)

    async def test_pings_are_sliced_newest_first(self) -> None:
        times = [1001.0, 1002.0, 1002.0, 1002.0, 1003.0, 1004.0]
        stored = [(await self.store.add_ping(_ping(at), 0)).ping for at in times]
        expected = stored[-2:0:-1]  # since 1002 until before 1004
        found = await self.store.pings(1002, 1004, None, 2)
        while len(slice_ := await self.store.pings(1002, 1004, found[-1], 2)):
            found += slice_
        self.assertEqual(found, expected)

    async def test_pings_are_counted_by_the_hour(self) -> None:
        for at in (3599.999999, 3600.0, 3601.0, 9000.0, 20000.0):
            await self.store.add_ping(_ping(at), 0)
        self.assertEqual(await self.store.ping_hours(0, 20000), {0: 1, 1: 2, 2: 1})

    async def test_pruned_pings_still_count(self) -> None:
        for at in (1000, 2000, 3000):
            await self.store.add_ping(_ping(at), 0)
        self.assertEqual(await self.store.prune_pings(2000), 1)
        self.assertEqual(await self.store.prune_pings(2001), 1)
        self.assertEqual(len(await self.store.pings(0, 9999, None, 10)), 1)
        self.assertEqual(await self.store.count_pings(), 3)

    async def test_ids_of_pings_only_ascend(self) -> None:
        first = (await self.store.add_ping(_ping(1000), 0)).ping
        await self.store.prune_pings(9999)
        self.assertGreater((await self.store.add_ping(_ping(1000), 0)).ping.id, first.id)

    # topics

    async def test_unknown_topic(self) -> None:
        self.assertIsNone(await self.store.topic(_FEED))

    async def test_first_reading_is_a_change(self) -> None:
        record = await self.store.record_reading(_reading(at=1000.5), _ping())
        self.assertTrue(record.changed)
        self.assertEqual((record.topic.digest, record.topic.size), (b"1" * 32, 1))
        self.assertEqual((record.topic.read_at, record.topic.changed_at), (1000.5, 1000.5))
        self.assertEqual(await self.store.topic(_FEED), record.topic)
        self.assertEqual(await self.store.pings(0, 9999, None, 10), [record.ping])

    async def test_same_content_is_no_change(self) -> None:
        await self.store.record_reading(_reading(), None)
        await self.store.put_subscription(_subscription())
        record = await self.store.record_reading(_reading(at=2000), _ping())
        self.assertEqual((record.changed, record.ping), (False, None))
        self.assertEqual((record.topic.read_at, record.topic.changed_at), (2000, 1000))
        self.assertEqual(await self.store.topic(_FEED), record.topic)
        self.assertEqual(await self.store.count_pings(), 0)
        self.assertEqual(await self.store.fanouts(10), [])

    async def test_digest_or_size_make_a_change(self) -> None:
        await self.store.record_reading(_reading(), None)
        for other in (_reading(b"2"), evolve(_reading(b"2"), size=2)):
            self.assertTrue((await self.store.record_reading(other, None)).changed, other)

    async def test_reading_answers_the_checks_before_it(self) -> None:
        await self.store.put_subscription(_subscription())
        ping = evolve(_ping(1000), rss_url=_FEED)
        await self.store.add_ping(ping, 0)
        await self.store.record_reading(_reading(at=999), None)
        self.assertEqual(await self.store.checks_due(10), [_FEED])
        await self.store.record_reading(_reading(at=1000), None)
        self.assertEqual(await self.store.checks_due(10), [])

    async def test_checks_wait_from_the_last_ping_longest_first(self) -> None:
        for url in (_FEED, _OTHER_FEED):
            await self.store.put_subscription(_subscription(url))
        for url, at in ((_FEED, 1000), (_OTHER_FEED, 1001), (_FEED, 1002), (_FEED, 900)):
            await self.store.add_ping(evolve(_ping(at), rss_url=url), 0)
        self.assertEqual(await self.store.checks_due(10), [_OTHER_FEED, _FEED])
        self.assertEqual(await self.store.checks_due(1), [_OTHER_FEED])
        await self.store.drop_check(_FEED, 1001.9)
        self.assertEqual(await self.store.checks_due(10), [_OTHER_FEED, _FEED])
        await self.store.drop_check(_FEED, 1002)
        self.assertEqual(await self.store.checks_due(10), [_OTHER_FEED])

    # subscriptions

    async def test_subscription_is_stored(self) -> None:
        wanted = evolve(
            _subscription(granted_at=1714561200.25),
            callback=Callback("http://reader.example/RPC2", "xml-rpc", "river.feedUpdated"),
        )
        stored = await self.store.put_subscription(wanted)
        self.assertGreater(stored.id, 0)
        self.assertEqual(stored, evolve(wanted, id=stored.id))
        self.assertEqual(await self.all_subscriptions(), [stored])

    async def test_renewal_replaces_and_forgets_errors(self) -> None:
        stored = await self.store.put_subscription(_subscription())
        walk = await self.begin_walk(b"1")
        await self.store.record_slice(walk, 0, [_failed(stored, marks=1)], False)
        renewed = await self.store.put_subscription(_subscription(granted_at=5000))
        self.assertEqual(renewed, evolve(_subscription(granted_at=5000), id=renewed.id))
        self.assertEqual(await self.all_subscriptions(), [renewed])

    async def test_subscriptions_differ_by_topic_and_callback(self) -> None:
        first = _subscription()
        others = [
            _subscription(_OTHER_FEED),
            _subscription(number=2),
            evolve(first, callback=evolve(first.callback, protocol="https-post")),
            evolve(first, callback=evolve(first.callback, procedure="p")),
        ]
        for one in (first, *others):
            await self.store.put_subscription(one)
        self.assertEqual(len(await self.all_subscriptions()), 4)
        self.assertTrue(await self.store.has_subscription(_FEED, first.callback))
        self.assertTrue(await self.store.remove_subscription(_FEED, first.callback))
        self.assertFalse(await self.store.remove_subscription(_FEED, first.callback))
        self.assertFalse(await self.store.has_subscription(_FEED, first.callback))
        self.assertFalse(await self.store.has_subscription("http://no.example/", first.callback))
        self.assertEqual(len(await self.all_subscriptions()), 3)
        self.assertEqual(len(await self.all_subscriptions(_OTHER_FEED)), 1)

    async def test_subscriptions_are_walked_by_id(self) -> None:
        stored = [await self.store.put_subscription(_subscription(number=n)) for n in range(5)]
        first = await self.store.subscriptions(_FEED, 0, 2)
        rest = await self.store.subscriptions(_FEED, first[-1].id, 10)
        self.assertEqual(first + rest, stored)
        self.assertEqual(await self.store.subscriptions(_FEED, rest[-1].id, 10), [])

    async def test_ids_of_subscriptions_only_ascend(self) -> None:
        first = await self.store.put_subscription(_subscription())
        await self.store.remove_subscription(_FEED, first.callback)
        again = await self.store.put_subscription(_subscription())
        self.assertGreater(again.id, first.id)

    async def test_sweep_drops_expired_and_marked(self) -> None:
        for number, granted_at in enumerate((1000.0, 1001.0, 1002.0)):
            await self.store.put_subscription(_subscription(number=number, granted_at=granted_at))
        _, kept, bad = await self.all_subscriptions()
        walk = await self.begin_walk(b"1")
        await self.store.record_slice(walk, 0, [_failed(bad, marks=1)], False)
        self.assertEqual(await self.store.sweep(1000.0 + _DAY, 0), Swept(expired=1, marked=1))
        self.assertEqual(await self.all_subscriptions(), [kept])

    async def test_sweep_drops_idle_topics_and_their_walks(self) -> None:
        subscription = await self.store.put_subscription(_subscription())
        await self.begin_walk(b"1")
        await self.store.record_reading(_reading(url=_OTHER_FEED, at=2000), None)
        self.assertEqual((await self.store.sweep(1000, 9999)).topics, 1)
        self.assertIsNone(await self.store.topic(_OTHER_FEED))
        await self.store.remove_subscription(_FEED, subscription.callback)
        self.assertEqual((await self.store.sweep(1000, 1000)).topics, 0)
        self.assertEqual((await self.store.sweep(1000, 1000.1)).topics, 1)
        self.assertEqual(await self.store.fanouts(10), [])

    async def test_sweep_keeps_topics_that_wait_to_be_read(self) -> None:
        subscription = await self.store.put_subscription(_subscription())
        await self.store.add_ping(evolve(_ping(), rss_url=_FEED), 0)
        await self.store.remove_subscription(_FEED, subscription.callback)
        self.assertEqual((await self.store.sweep(1000, 9999)).topics, 0)
        await self.store.drop_check(_FEED, 1000)
        self.assertEqual((await self.store.sweep(1000, 9999)).topics, 1)

    # fan-out

    async def test_change_begins_a_walk_if_anybody_subscribed(self) -> None:
        await self.store.record_reading(_reading(b"1"), None)
        self.assertEqual(await self.store.fanouts(10), [])
        await self.store.put_subscription(_subscription())
        walk = await self.begin_walk(b"2")
        self.assertEqual((walk.topic, walk.cursor), (_FEED, 0))

    async def test_newest_walk_of_each_topic_oldest_first(self) -> None:
        for url in (_FEED, _OTHER_FEED):
            await self.store.put_subscription(_subscription(url))
        for url, content in ((_FEED, b"1"), (_OTHER_FEED, b"1"), (_FEED, b"2")):
            await self.store.record_reading(_reading(content, url=url), None)
        walks = await self.store.fanouts(10)
        self.assertEqual([walk.topic for walk in walks], [_OTHER_FEED, _FEED])
        self.assertEqual(await self.store.fanouts(1), walks[:1])
        await self.store.record_slice(walks[1], 0, [], True)
        self.assertEqual(await self.store.fanouts(10), walks[:1])

    async def test_end_of_a_walk_keeps_newer_ones(self) -> None:
        await self.store.put_subscription(_subscription())
        older = await self.begin_walk(b"1")
        newer = await self.begin_walk(b"2")
        await self.store.record_slice(older, 1, [], True)
        self.assertEqual(await self.store.fanouts(10), [newer])

    async def test_walk_goes_on_from_its_cursor(self) -> None:
        await self.store.put_subscription(_subscription())
        walk = await self.begin_walk(b"1")
        await self.store.record_slice(walk, 17, [], False)
        self.assertEqual(await self.store.fanouts(10), [evolve(walk, cursor=17)])

    async def test_failures_in_a_row_mark_a_subscription(self) -> None:
        for number in (1, 2):
            await self.store.put_subscription(_subscription(number=number))
        walk = await self.begin_walk(b"1")
        for errors, marked in ((1, False), (2, False), (3, True)):
            bad, good = await self.all_subscriptions()
            slice_ = [_failed(bad, at=2000.0 + errors), _succeeded(good)]
            await self.store.record_slice(walk, 1, slice_, False)
            expected = evolve(
                bad,
                consecutive_errors=errors,
                last_error="refused",
                last_error_at=2000.0 + errors,
                marked=marked,
            )
            self.assertEqual(await self.all_subscriptions(), [expected, good])

    async def test_success_clears_errors(self) -> None:
        stored = await self.store.put_subscription(_subscription())
        walk = await self.begin_walk(b"1")
        await self.store.record_slice(walk, 0, [_failed(stored, marks=1)], False)
        await self.store.record_slice(walk, 0, [_succeeded(stored)], False)
        self.assertEqual(await self.all_subscriptions(), [stored])

    async def test_protocol_that_never_gives_up_marks_nothing(self) -> None:
        stored = await self.store.put_subscription(_subscription())
        walk = await self.begin_walk(b"1")
        for _ in range(5):
            await self.store.record_slice(walk, 0, [_failed(stored, marks=None)], False)
        (found,) = await self.all_subscriptions()
        self.assertEqual((found.consecutive_errors, found.marked), (5, False))

    async def test_delivery_to_a_subscription_removed_meanwhile(self) -> None:
        gone = await self.store.put_subscription(_subscription())
        walk = await self.begin_walk(b"1")
        await self.store.remove_subscription(_FEED, gone.callback)
        again = await self.store.put_subscription(_subscription())
        await self.store.record_slice(walk, gone.id, [_failed(gone), _succeeded(gone)], True)
        self.assertEqual(await self.all_subscriptions(), [again])


def make_store_tests(fixture: Callable[[TestCase], IStore]) -> type[TestCase]:
    """A TestCase that every ``IStore`` must pass.

    :param fixture: given the running test, makes an empty store that is ready
        for use, and adds the cleanups it needs.
    """

    class StoreTests(_StoreContract):
        def make_store(self) -> IStore:
            return fixture(self)

    return StoreTests
