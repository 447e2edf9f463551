"""The contract of the store: the log of pings, relays, and followed lists."""

from __future__ import annotations

from attrs import evolve

from rsscloud_broker.interfaces import Position
from rsscloud_broker.model import Validators
from rsscloud_broker.model.shared import FollowedList, RelayProgress, WaitingPing
from tests.store_contract.basics import RecordsContract, a_ping

NOW = 1_790_683_200.0
XML_RPC, WEBSUB = "xml-rpc http://one.example/", "websub http://two.example/hub"


class RelayingContract(RecordsContract):
    """The tests of relays and followers that every store must pass."""

    async def test_origin_of_a_ping_is_kept(self) -> None:
        origin = "http://first.example http://second.example"
        record = await self.store.add_ping(evolve(a_ping(NOW), origin=origin), 60)
        self.assertEqual(record.ping.origin, origin)
        (found,) = await self.store.pings_after(0, 10)
        self.assertEqual(found, record.ping)

    async def test_pings_after_in_the_order_of_their_ids(self) -> None:
        times = (NOW, NOW - 3600, NOW + 5)
        added = [await self.store.add_ping(a_ping(at, str(at)), 60) for at in times]
        ids = [record.ping.id for record in added]
        self.assertEqual([ping.id for ping in await self.store.pings_after(0, 10)], ids)
        self.assertEqual([ping.id for ping in await self.store.pings_after(ids[0], 1)], ids[1:2])
        self.assertEqual(await self.store.pings_after(ids[-1], 10), [])

    async def test_pings_by_their_ids(self) -> None:
        added = [await self.store.add_ping(a_ping(NOW + n, str(n)), 0) for n in range(3)]
        first, _, last = (record.ping for record in added)
        found = await self.store.pings_by_id([last.id, first.id, last.id + 1])
        self.assertEqual(sorted(found, key=lambda ping: ping.id), [first, last])
        self.assertEqual(await self.store.pings_by_id([]), [])

    async def test_several_pings_at_once(self) -> None:
        wanted = [(a_ping(NOW), 2.0), (a_ping(NOW + 1), 2.0), (a_ping(NOW + 2.5), 2.0)]
        self.assertEqual(await self.store.known_pings(wanted), [False, True, False])
        records = await self.store.add_pings(wanted)
        self.assertEqual([record.repeat for record in records], [False, True, False])
        self.assertEqual(await self.store.known_pings(wanted), [True] * 3)
        self.assertEqual(await self.store.count_pings(), 2)

    async def test_target_gets_the_pings_from_now_on(self) -> None:
        first = await self.store.begin_relay(["of no pings"], NOW, 0.0)
        self.assertEqual(first, [RelayProgress("of no pings", 0)])
        record = await self.store.add_ping(a_ping(NOW), 60)
        begun = await self.store.begin_relay([XML_RPC], NOW, 0.0)
        self.assertEqual(begun, [RelayProgress(XML_RPC, record.ping.id)])
        later = await self.store.add_ping(a_ping(NOW, "Another"), 60)
        again = await self.store.begin_relay([WEBSUB, XML_RPC], NOW, 0.0)
        self.assertEqual(
            again,
            [RelayProgress(WEBSUB, later.ping.id), RelayProgress(XML_RPC, record.ping.id)],
        )

    async def test_progress_never_goes_back(self) -> None:
        await self.store.begin_relay([XML_RPC], NOW, 0.0)
        waiting = (WaitingPing(3, 2, NOW + 120), WaitingPing(7, 0, NOW))
        progress = RelayProgress(XML_RPC, 7, 3, NOW + 60, waiting)
        await self.store.record_relay(progress, NOW)
        await self.store.record_relay(evolve(progress, ping_id=6, failures=0), NOW)
        self.assertEqual(await self.store.begin_relay([XML_RPC], NOW, 0.0), [progress])
        await self.store.record_relay(RelayProgress(XML_RPC, 7), NOW)
        self.assertEqual(
            await self.store.begin_relay([XML_RPC], NOW, 0.0), [RelayProgress(XML_RPC, 7)]
        )

    async def test_targets_that_nobody_names_are_forgotten_after_a_while(self) -> None:
        await self.store.begin_relay([XML_RPC, WEBSUB], NOW, 0.0)
        await self.store.record_relay(RelayProgress(XML_RPC, 5), NOW)
        await self.store.record_relay(RelayProgress(WEBSUB, 5), NOW)
        await self.store.begin_relay([WEBSUB], NOW, NOW - 1)
        found = await self.store.begin_relay([XML_RPC], NOW, 0.0)
        self.assertEqual(found, [RelayProgress(XML_RPC, 5)])
        await self.store.begin_relay([WEBSUB], NOW, NOW + 1)
        found = await self.store.begin_relay([XML_RPC, WEBSUB], NOW, 0.0)
        self.assertEqual(found, [RelayProgress(XML_RPC, 0), RelayProgress(WEBSUB, 5)])

    async def test_followed_feeds(self) -> None:
        url, other = "http://one.example/recent", "http://two.example/recent"
        self.assertIsNone(await self.store.followed_feed_position(url))
        # The time is exactly the one that was read, or the entry is not found again.
        for position in (Position("urn:1", NOW + 0.1234567, "http://x/3"), Position("")):
            await self.store.record_followed_feed(url, position, NOW)
            self.assertEqual(await self.store.followed_feed_position(url), position)
        await self.store.record_followed_feed(other, Position("urn:2"), NOW)
        await self.store.forget_followed_feeds([url], NOW + 1)
        self.assertIsNone(await self.store.followed_feed_position(other))
        self.assertEqual(await self.store.followed_feed_position(url), Position(""))

    async def test_followed_lists(self) -> None:
        url, other = "http://one.example/changes.xml", "http://two.example/changes.xml"
        self.assertEqual(await self.store.followed_lists([url], 0.0), [FollowedList(url)])
        read = FollowedList(url, Validators('"1"', "Tue"), NOW, 497_411, 497_413, 2, NOW + 60)
        await self.store.record_followed(read, NOW)
        found = await self.store.followed_lists([other, url], NOW + 1)
        self.assertEqual(found, [FollowedList(other), read])
        whole = evolve(read, missing_from=None, missing_to=None, failures=0, retry_at=None)
        await self.store.record_followed(whole, NOW)
        self.assertEqual(await self.store.followed_lists([url], 0.0), [whole])
        await self.store.followed_lists([other], NOW + 1)
        self.assertEqual(await self.store.followed_lists([url], 0.0), [FollowedList(url)])
