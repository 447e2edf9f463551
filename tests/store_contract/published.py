"""The contract of the store: topics that the broker serves itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve
from sqlalchemy import insert, select

from rsscloud_broker.database.methods import Batched
from rsscloud_broker.errors import Refused
from rsscloud_broker.storage.schema import counter
from tests.store_contract.basics import FEED, a_content, a_fetch, a_ping, a_subscription
from tests.store_contract.hub import HubContract


class _Broken(Exception):
    """An operation of an application has failed."""


class PublishedContract(HubContract):
    """The tests of publishing together with an operation that every store must pass."""

    def put(self, conn: Any) -> str:
        """Store a row, as an application does."""
        conn.execute(insert(counter).values(name=f"row {self.rows(conn)}", value=1))
        return "stored"

    def put_and_fail(self, conn: Any) -> str:
        """Store a row, and raise an error."""
        self.put(conn)
        raise _Broken

    def rows(self, conn: Any) -> int:
        """How many rows are stored."""
        names = conn.execute(select(counter.c.name)).scalars()
        return sum(name.startswith("row ") for name in names)

    async def rows_stored(self) -> int:
        """How many rows are stored, as a transaction sees it that changes nothing."""
        seen = []

        def look(conn: Any) -> None:
            seen.append(self.rows(conn))
            raise _Broken

        await self.assertFailure(self.store.unpublish(FEED, "", 1.0, look), _Broken)
        return seen[-1]

    async def test_published_together_with_an_operation(self) -> None:
        await self.store.put_subscription(a_subscription())
        result, (record,) = await self.store.publish([a_fetch(b"1")], a_ping(), self.put)
        self.assertEqual((result, record.changed), ("stored", True))
        assert record.ping is not None
        self.assertGreater(record.ping.id, 0)
        self.assertEqual([walk.topic for walk in await self.store.fanouts(10)], [FEED])
        self.assertEqual(await self.rows_stored(), 1)

    async def test_several_that_change_together(self) -> None:
        other = "http://feeds.example/atom.xml"
        await self.store.put_subscription(a_subscription())
        both = [a_fetch(b"1"), evolve(a_fetch(b"2"), url=other, pinged=False)]
        _, (first, second) = await self.store.publish(both, a_ping(), self.put)
        self.assertEqual((first.topic.url, second.topic.url), (FEED, other))
        self.assertEqual((first.changed, second.changed), (True, True))
        self.assertEqual((first.ping is None, second.ping is None), (False, True))
        self.assertEqual(await self.rows_stored(), 1)

    async def test_same_content_again(self) -> None:
        await self.store.publish([a_fetch(b"1")], a_ping(), self.put)
        await self.store.put_subscription(a_subscription())
        result, (record,) = await self.store.publish([a_fetch(b"1", at=2000)], a_ping(), self.put)
        self.assertEqual((result, record.changed, record.ping), ("stored", False, None))
        self.assertEqual(await self.store.fanouts(10), [])
        self.assertEqual(await self.rows_stored(), 2)

    async def test_operation_that_fails_stores_and_ends_nothing(self) -> None:
        await self.store.put_subscription(a_subscription())
        failing = self.store.publish([a_fetch(b"1")], a_ping(), self.put_and_fail)
        await self.assertFailure(failing, _Broken)
        self.assertEqual(await self.store.fanouts(10), [])
        self.assertEqual(await self.store.count_pings(), 0)
        self.assertIsNone((await self.known()).digest)
        self.assertEqual(await self.rows_stored(), 0)
        await self.store.publish([a_fetch(b"1")], a_ping(), self.put)
        ending = self.store.unpublish(FEED, "it is deleted", 2000, self.put_and_fail)
        await self.assertFailure(ending, _Broken)
        self.assertEqual(((await self.known()).ended, await self.rows_stored()), ("", 1))

    async def test_ended_topic_is_revived_when_it_is_published(self) -> None:
        await self.store.publish([a_fetch(b"1")], a_ping(), self.put)
        await self.store.put_subscription(a_subscription())
        self.assertEqual(
            await self.store.unpublish(FEED, "it is deleted", 2000, self.put), ("stored", True)
        )
        self.assertEqual((await self.known()).ended, "it is deleted")
        again = await self.store.unpublish(FEED, "it is deleted", 2000, self.put)
        self.assertEqual(again, ("stored", False))
        _, (record,) = await self.store.publish([a_fetch(b"1", at=3000)], a_ping(), self.put)
        self.assertEqual((record.topic.url, await self.rows_stored()), (FEED, 4))
        self.assertEqual((await self.known()).ended, "")

    async def test_published_by_many_at_once(self) -> None:
        urls = [f"http://feeds.example/{number}.xml" for number in range(5)]
        await self.store.put_subscription(a_subscription(topic=urls[1]))
        await self.store.put_subscription(
            evolve(a_subscription(topic=urls[2], number=2), wants_content=True)
        )
        published = [
            self.store.publish(
                [evolve(a_fetch(str(number).encode()), url=url, content=a_content())],
                evolve(a_ping(), url=url),
                Batched(put_several, number),
            )
            for number, url in enumerate(urls)
        ]
        for number, each in enumerate(published):
            if number == 3:
                await self.assertFailure(each, Refused)
                continue
            result, (record,) = await each
            self.assertEqual((result, record.topic.url), (f"stored {number}", urls[number]))
            assert record.ping is not None
            self.assertEqual((record.changed, record.ping.url), (True, urls[number]))
        walks = {walk.topic for walk in await self.store.fanouts(10)}
        self.assertEqual(walks, {urls[1], urls[2]})
        self.assertEqual((await self.rows_stored(), await self.store.count_pings()), (4, 4))
        self.assertIsNone(await self.store.topic(urls[3]))

    async def test_one_topic_published_by_many_at_once(self) -> None:
        await self.store.put_subscription(a_subscription())
        published = [
            self.store.publish([a_fetch(body)], a_ping(), Batched(put_several, number))
            for number, body in enumerate((b"1", b"1", b"2", b"1"), 10)
        ]
        changed = [(await each)[1][0].changed for each in published]
        self.assertEqual(changed, [True, False, True, True])
        self.assertEqual((await self.rows_stored(), await self.store.count_pings()), (4, 3))


def put_several(conn: Any, numbers: Sequence[int]) -> list[str | Exception]:
    """Store a row for each number but 3, as an application does for several callers."""
    for number in numbers:
        if number != 3:
            conn.execute(insert(counter).values(name=f"row {number}", value=1))
    return [Refused("not 3") if number == 3 else f"stored {number}" for number in numbers]
