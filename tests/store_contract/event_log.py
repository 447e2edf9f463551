"""The contract of the store: the event log."""

from __future__ import annotations

from attrs import evolve

from rsscloud_broker.model.log_entry import LogEntry, LogFilter
from tests.store_contract.basics import FEED, OTHER_FEED, RecordsContract

EVERYTHING = LogFilter()


def an_entry(number: int = 1, topic: str = FEED, host: str = "feeds.example") -> LogEntry:
    """An entry about a ping; the number is its time."""
    return LogEntry("ping", "accepted", float(number), topic=topic, host=host)


class EventLogContract(RecordsContract):
    """The tests of the event log that every store must pass."""

    async def times(
        self, wanted: LogFilter = EVERYTHING, before: int | None = None, limit: int = 100
    ) -> list[float]:
        """The times of the entries, newest first."""
        found = await self.store.log_entries(wanted, before, limit)
        ids = [entry.id for entry in found]
        self.assertEqual(ids, sorted(ids, reverse=True))
        return [entry.at for entry in found]

    async def times_after(
        self, after: int, wanted: LogFilter = EVERYTHING, limit: int = 100
    ) -> list[float]:
        """The times of the entries after another one, oldest first."""
        found = await self.store.log_entries_after(wanted, after, limit)
        return [entry.at for entry in found]

    async def test_every_field_of_an_entry_is_kept(self) -> None:
        entry = LogEntry(
            "notification",
            "failed",
            1000.25,
            topic=FEED,
            host="reader.example",
            protocol="http-post",
            callback="http://reader.example/notify",
            source="192.0.2.7",
            account="ada",
            reason="its server answered with status 500 \N{PILE OF POO}",
            numbers={"status": 500, "seconds": 0.25},
        )
        await self.store.add_log_entries([entry, an_entry()])
        second, first = await self.store.log_entries(EVERYTHING, None, 10)
        self.assertEqual(evolve(first, id=0), entry)
        self.assertEqual(evolve(second, id=0), an_entry())
        self.assertTrue(0 < first.id < second.id)

    async def test_pages_of_entries(self) -> None:
        await self.store.add_log_entries([an_entry(number) for number in range(1, 8)])
        first = await self.store.log_entries(EVERYTHING, None, 3)
        self.assertEqual([entry.at for entry in first], [7, 6, 5])
        self.assertEqual(await self.times(before=first[-1].id, limit=3), [4, 3, 2])
        self.assertEqual(await self.times(before=first[-1].id), [4, 3, 2, 1])

    async def test_entries_before_one_that_will_never_be(self) -> None:
        """Anybody can ask for them, as ``/log?topic=URL&before=999999999999999999``."""
        await self.store.add_log_entries([an_entry(number) for number in (1, 2)])
        for wanted in (EVERYTHING, LogFilter(topic=FEED), LogFilter(host="feeds.example")):
            self.assertEqual(await self.times(wanted, before=10**18 - 1), [2, 1], wanted)
            self.assertEqual(await self.times(wanted, before=1), [], wanted)
            self.assertEqual(await self.times_after(10**18 - 1, wanted), [], wanted)

    async def test_entries_after_another(self) -> None:
        await self.store.add_log_entries([an_entry(number) for number in range(1, 6)])
        second = (await self.store.log_entries_after(EVERYTHING, 0, 2))[-1]
        self.assertEqual(second.at, 2)
        self.assertEqual(await self.times_after(second.id), [3, 4, 5])
        self.assertEqual(await self.times_after(second.id, limit=1), [3])
        self.assertEqual(await self.times_after(second.id + 3), [])

    async def test_filters(self) -> None:
        entries = [
            an_entry(1),
            an_entry(2, OTHER_FEED),
            evolve(an_entry(3, FEED, "reader.example"), kind="notification", outcome="failed"),
            evolve(an_entry(4, FEED, "reader.example"), kind="notification", outcome="given up"),
            evolve(an_entry(5), kind="fetch", outcome="failed"),
            LogEntry("host", "unreachable", 6.0, host="reader.example"),
            evolve(an_entry(7), kind="subscription", callback="http://feeds.example/notify"),
        ]
        await self.store.add_log_entries(entries)
        table = {
            LogFilter(): [7, 6, 5, 4, 3, 2, 1],
            LogFilter(topic=FEED): [7, 5, 4, 3, 1],
            LogFilter(topic=FEED[:-1]): [],
            LogFilter(host="reader.example"): [6, 4, 3],
            LogFilter(topic=FEED, host="reader.example"): [4, 3],
            LogFilter(kind="notification"): [4, 3],
            LogFilter(outcome="failed"): [5, 3],
            LogFilter(kind="fetch", outcome="failed"): [5],
            LogFilter(kind="ping", outcome="failed"): [],
            LogFilter(kind="no such kind"): [],
            LogFilter(topic=FEED, kind="fetch"): [5],
            LogFilter(topic=FEED, host="reader.example", kind="notification", outcome="failed"): [
                3
            ],
            LogFilter(host="reader.example", outcome="unreachable"): [6],
            LogFilter(host="reader.example", host_of_topic=True): [4, 3],
            LogFilter(host="feeds.example", host_of_topic=True): [5, 2, 1],
            LogFilter(topic=FEED, host="feeds.example", host_of_topic=True): [5, 1],
            LogFilter(host_of_topic=True): [7, 6, 5, 4, 3, 2, 1],
        }
        for wanted, times in table.items():
            self.assertEqual(await self.times(wanted), times, wanted)
            self.assertEqual(await self.times(wanted, limit=1), times[:1], wanted)
            self.assertEqual(await self.times_after(0, wanted), times[::-1], wanted)
            for entry in entries:
                self.assertEqual(wanted.passes(entry), entry.at in times, (wanted, entry))

    async def test_filter_with_a_bound(self) -> None:
        await self.store.add_log_entries([an_entry(number) for number in range(1, 5)])
        (_, third, *_) = await self.store.log_entries(EVERYTHING, None, 4)
        for wanted in (LogFilter(topic=FEED), LogFilter(kind="ping"), LogFilter(FEED, kind="ping")):
            self.assertEqual(await self.times(wanted, third.id), [2, 1], wanted)
            self.assertEqual(await self.times_after(third.id, wanted), [4], wanted)

    async def test_more_entries_than_one_statement_takes(self) -> None:
        await self.store.add_log_entries([an_entry(number) for number in range(1, 701)])
        self.assertEqual(await self.times_after(0, limit=1000), list(range(1, 701)))

    async def test_old_entries_are_pruned_in_portions(self) -> None:
        """And those that are beyond the newest so many; their ids are not used again."""
        self.assertEqual(await self.store.prune_log(8.0, 1000, 4, 1000.0), 0)
        await self.store.add_log_entries([])
        await self.store.add_log_entries([an_entry(number) for number in range(1, 11)])
        self.assertEqual(await self.store.prune_log(6.0, 1000, 4, 1000.0), 4)
        self.assertEqual(await self.times_after(0), [5, 6, 7, 8, 9, 10])
        self.assertEqual(await self.store.prune_log(6.0, 1000, 4, 1000.0), 1)
        self.assertEqual(await self.store.prune_log(6.0, 1000, 4, 1000.0), 0)
        self.assertEqual(await self.store.prune_log(0.0, 3, 100, 1000.0), 2)
        self.assertEqual(await self.times_after(0), [8, 9, 10])
        (newest,) = await self.store.log_entries(EVERYTHING, None, 1)
        self.assertEqual(await self.store.prune_log(100.0, 0, 100, 1000.0), 3)
        await self.store.add_log_entries([an_entry(11)])
        self.assertEqual(await self.times_after(newest.id), [11])

    async def test_entries_from_when_the_clock_was_ahead_keep_no_later_ones(self) -> None:
        entries = [an_entry(number) for number in (90, 91, 92, 1, 2, 3)]
        await self.store.add_log_entries(entries)
        self.assertEqual(await self.store.prune_log(3.0, 1000, 2, 10.0), 2)
        self.assertEqual(await self.times_after(0), [90, 91, 92, 3])
        self.assertEqual(await self.store.prune_log(3.0, 4, 100, 10.0), 2)
        self.assertEqual(await self.times_after(0), [92, 3])
