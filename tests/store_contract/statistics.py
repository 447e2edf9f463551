"""The contract of the store: the statistics of minutes and hours, and the most pinged topics."""

from __future__ import annotations

from attrs import evolve

from rsscloud_broker.model.work import PingedTopic
from tests.store_contract.basics import (
    FEED,
    OTHER_FEED,
    RecordsContract,
    a_long_url,
    a_ping,
)

HOUR = 3600
NOON = 1_790_683_200


class StatisticsContract(RecordsContract):
    """The tests of statistics that every store must pass."""

    async def test_counts_of_a_minute_are_added_up(self) -> None:
        await self.store.add_statistics(NOON + 0.5, {"pings": 2}, {})
        await self.store.add_statistics(NOON + 59.9, {"pings": 3, "repeats": 1}, {})
        await self.store.add_statistics(NOON + 60.0, {"pings": 10}, {})
        found = await self.store.statistics(NOON, NOON + 120, 60)
        self.assertEqual(found, {"pings": {NOON: 5, NOON + 60: 10}, "repeats": {NOON: 1}})

    async def test_minutes_of_a_longer_step_are_added_up(self) -> None:
        for minute in range(30):
            await self.store.add_statistics(NOON + minute * 60, {"pings": 1}, {})
        found = await self.store.statistics(NOON, NOON + HOUR, 900)
        self.assertEqual(found, {"pings": {NOON: 15, NOON + 900: 15}})

    async def test_hours(self) -> None:
        for hour in range(4):
            await self.store.add_statistics(NOON + hour * HOUR + 7, {"pings": 1 + hour}, {})
        found = await self.store.statistics(NOON + HOUR, NOON + 3 * HOUR, HOUR)
        self.assertEqual(found, {"pings": {NOON + HOUR: 2, NOON + 2 * HOUR: 3}})

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
