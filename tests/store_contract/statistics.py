"""The contract of the store: the statistics of minutes and hours, and the most pinged topics."""

from __future__ import annotations

from attrs import evolve

from rsscloud_broker.model.work import PingedTopic
from tests.store_contract.basics import FEED, OTHER_FEED, RecordsContract, a_long_url, a_ping

HOUR = 3600
NOON = 1_790_683_200


class StatisticsContract(RecordsContract):
    """The tests of statistics that every store must pass."""

    async def test_counts_are_added_up(self) -> None:
        """Those of a minute, of several minutes, and of an hour."""
        for seconds, counted in (
            (0.5, {"pings": 2}),
            (59.9, {"pings": 3, "repeats": 1}),
            (60.0, {"pings": 10}),
            (900.0, {"pings": 7}),
            (HOUR, {"pings": 4}),
            (2 * HOUR, {"pings": 1}),
        ):
            await self.store.add_statistics(NOON + seconds, counted, {})
        for since, until, step, pings in (
            (0, 120, 60, {0: 5, 60: 10}),
            (0, HOUR, 900, {0: 15, 900: 7}),
            (0, 2 * HOUR, HOUR, {0: 22, HOUR: 4}),
            (HOUR, 3 * HOUR, HOUR, {HOUR: 4, 2 * HOUR: 1}),
        ):
            found = await self.store.statistics(NOON + since, NOON + until, step)
            self.assertEqual(found["pings"], {NOON + at: count for at, count in pings.items()})
            self.assertEqual(found.get("repeats"), None if since else {NOON: 1})

    async def test_what_is_measured_is_not_added_up(self) -> None:
        name = "number_of_topics"
        for minute, value in enumerate((7, 9, 8)):
            await self.store.add_statistics(NOON + minute * 60, {}, {name: value})
        self.assertEqual(await self.store.statistics(NOON, NOON + 900, 900), {name: {NOON: 9}})
        # The measurement of an hour is its last one.
        self.assertEqual(await self.store.statistics(NOON, NOON + 1, HOUR), {name: {NOON: 8}})

    async def test_pinged_topics(self) -> None:
        for number in range(3):
            ping = a_ping(NOON + number, f"Ping {number}")
            await self.store.add_ping(evolve(ping, rss_url=FEED), 0)
        for number in range(2):
            await self.store.add_ping(a_ping(NOON + number), 0)
        await self.store.add_ping(a_ping(NOON + HOUR), 0)
        site = a_ping().url
        self.assertEqual(
            await self.store.pinged_topics(NOON, NOON + HOUR, 10),
            [PingedTopic(FEED, 3), PingedTopic(site, 2)],
        )
        self.assertEqual(
            await self.store.pinged_topics(NOON, NOON + HOUR, 1), [PingedTopic(FEED, 3)]
        )

    async def test_busy_topics_of_some_hours(self) -> None:
        hour = NOON // HOUR
        long = a_long_url("a")
        await self.store.put_busy_topics(hour, [PingedTopic(OTHER_FEED, 99)])
        await self.store.put_busy_topics(hour, [PingedTopic(FEED, 5), PingedTopic(long, 2)])
        await self.store.put_busy_topics(hour + 1, [PingedTopic(long, 4)])
        await self.store.put_busy_topics(hour + 2, [PingedTopic(FEED, 50)])
        self.assertEqual(
            await self.store.busy_topics(NOON, NOON + 2 * HOUR, 10),
            [PingedTopic(long, 6), PingedTopic(FEED, 5)],
        )
        await self.store.put_busy_topics(hour, [])
        self.assertEqual(await self.store.busy_topics(NOON, NOON + HOUR, 10), [])
