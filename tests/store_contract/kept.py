"""The contract of the store: the changes that it keeps for the feeds of the broker."""

from __future__ import annotations

from attrs import evolve
from twisted.trial.unittest import TestCase

from rsscloud_broker.model import Content
from rsscloud_broker.model.ways import Way
from rsscloud_broker.model.work import Bounds, History, KeptChange
from rsscloud_broker.storage import Store, kept_changes
from tests.store_contract.basics import FEED, OTHER_FEED, a_content, a_fetch, a_ping, a_subscription

HISTORY = History(("http://broker.example/events/",), (OTHER_FEED,))


class KeptContract(TestCase):
    """The tests that every store that keeps changes must pass."""

    def make_store(self, bounds: Bounds) -> Store:
        raise NotImplementedError

    def setUp(self) -> None:
        self.store = self.make_store(Bounds(history=HISTORY))

    async def kept(self, after: int = 0, limit: int = 10) -> list[KeptChange]:
        return await self.store.kept_changes(after, limit)

    async def test_each_change_is_kept_once_and_in_order(self) -> None:
        for body, at in ((b"1", 1000.0), (b"1", 1001.0), (b"2", 1002.0)):
            await self.store.record_fetch(a_fetch(body, at), None)
        found = await self.kept()
        self.assertEqual([(one.url, one.at, one.way) for one in found], [
            (FEED, 1000.0, Way.RSSCLOUD), (FEED, 1002.0, Way.RSSCLOUD)
        ])  # fmt: skip
        self.assertLess(found[0].id, found[1].id)
        self.assertEqual(await self.kept(found[0].id), found[1:])
        self.assertEqual(await self.kept(limit=1), found[:1])

    async def test_by_which_way(self) -> None:
        await self.store.put_subscription(a_subscription())
        pinged = evolve(a_fetch(b"1"), pinged=True, origin="http://first.example", way=Way.FETCH)
        await self.store.record_fetch(pinged, a_ping())
        await self.store.record_fetch(evolve(a_fetch(b"2"), way=Way.WEBSUB, pinged=True), a_ping())
        published = evolve(a_fetch(b"3", url=OTHER_FEED), way=Way.PUBLISHED)
        await self.store.publish([published], a_ping(), lambda conn: None)
        found = [(one.way, one.origin) for one in await self.kept()]
        self.assertEqual(
            found, [(Way.PING, "http://first.example"), (Way.WEBSUB, ""), (Way.PUBLISHED, "")]
        )

    async def test_what_only_private_followers_learn_is_not_kept(self) -> None:
        await self.store.put_subscription(a_subscription(protocol="river"))
        for body, way in ((b"1", Way.FETCH), (b"2", Way.WEBLOG_UPDATES), (b"3", Way.FOLLOWED)):
            record = await self.store.record_fetch(evolve(a_fetch(body), way=way), a_ping())
            self.assertEqual((record.changed, record.news, record.shown), (True, False, False))
        self.assertEqual(await self.kept(), [])
        self.assertEqual(await self.store.count_pings(), 0)
        record = await self.store.record_fetch(a_fetch(b"3"), a_ping())
        self.assertEqual((record.news, record.shown), (True, True))
        record = await self.store.record_fetch(evolve(a_fetch(b"4"), way=Way.FETCH), None)
        record = await self.store.record_fetch(a_fetch(b"3"), a_ping())
        self.assertEqual((record.changed, record.news), (True, False))
        self.assertEqual(len(await self.kept()), 1)
        self.assertEqual(await self.store.topic_summaries(0, 10), [])
        self.assertEqual(await self.store.subscription_counts(FEED), {})
        self.assertEqual(dict(await self.store.measure())["number_of_watched_topics"], 0)

    async def test_pushes_are_kept_whether_somebody_has_subscribed_or_not(self) -> None:
        self.assertFalse(await self.store.push_content(FEED, a_content(b"1"), 1000.0))
        await self.store.put_subscription(a_subscription())
        self.assertTrue(await self.store.push_content(FEED, a_content(b"2"), 1001.0))
        found = [(one.url, one.way, one.at) for one in await self.kept()]
        self.assertEqual(found, [(FEED, Way.PUSH, 1000.0), (FEED, Way.PUSH, 1001.0)])

    async def test_contents_are_kept_of_the_topics_that_are_named(self) -> None:
        for url in (FEED, OTHER_FEED):
            fetched = evolve(a_fetch(b"1", url=url), content=a_content())
            await self.store.record_fetch(fetched, None)
        self.assertEqual([one.content for one in await self.kept()], [None, a_content()])

    async def test_topics_that_are_left_out(self) -> None:
        await self.store.record_fetch(a_fetch(url="http://broker.example/events/recent"), None)
        self.assertEqual(await self.kept(), [])

    async def test_removed_when_they_are_in_the_feeds(self) -> None:
        for body in (b"1", b"2", b"3"):
            await self.store.record_fetch(a_fetch(body), None)
        found = await self.kept()
        self.assertEqual(await self.store.remove_kept_changes(found[1].id), 2)
        self.assertEqual(await self.kept(), found[2:])

    async def test_large_contents_come_a_few_at_a_time(self) -> None:
        self.patch(kept_changes, "READ_BYTES", 250)
        for number in range(4):
            content = Content(b"%d" % number * 100, "text/plain")
            fetched = evolve(a_fetch(b"%d" % number, url=OTHER_FEED), content=content)
            await self.store.record_fetch(fetched, None)
        found = await self.kept()
        self.assertEqual(len(found), 2)
        self.assertEqual(len(await self.kept(found[-1].id)), 2)
        self.patch(kept_changes, "READ_BYTES", 10)
        self.assertEqual(len(await self.kept()), 1)

    async def test_nothing_is_kept_unless_somebody_makes_feeds(self) -> None:
        store = self.make_store(Bounds())
        await store.record_fetch(a_fetch(), None)
        self.assertEqual(await store.kept_changes(0, 10), [])
