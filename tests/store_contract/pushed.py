"""The contract of the store: pushed contents, each of which must be delivered."""

from __future__ import annotations

from attrs import evolve

from rsscloud_broker.model import Content
from rsscloud_broker.model.work import Delivery
from tests.store_contract.basics import FEED, a_subscription, failed, succeeded, waits
from tests.store_contract.topics import TopicsContract


class PushedContract(TopicsContract):
    """The tests of pushed contents that every store must pass."""

    async def pushed(self, *bodies: bytes) -> list[int]:
        """Push contents, and make their notifications pending; the keys of the contents."""
        for body in bodies:
            await self.store.push_content(FEED, Content(body), 2000.0)
        keys = []
        while walks := await self.store.fanouts(10):
            keys.append(walks[0].content_id or 0)
            wants = evolve(self.wants, content_id=walks[0].content_id)
            await self.store.record_slice(walks[0], 9, [wants], True)
        return keys

    @property
    def wants(self) -> Delivery:
        return Delivery(self.eager, None, at=2000, attempts=0, retry_at=2000)

    async def subscribe_to_content(self) -> None:
        wanted = evolve(a_subscription(), wants_content=True)
        self.eager = await self.store.put_subscription(wanted)

    async def next_content(self) -> bytes | None:
        """Claim the notification that is due; the content that it carries."""
        for one in await self.store.claim_due(9e9, 10, ()):
            self.claimed = one
            content = await self.store.content(one.content_id or 0)
            return None if content is None else content.body
        return None

    async def test_pushed_contents_wait_in_their_order(self) -> None:
        await self.subscribe_to_content()
        keys = await self.pushed(b"1", b"2", b"3")
        for key, body in zip(keys, (b"1", b"2", b"3"), strict=True):
            self.assertEqual(await self.next_content(), body)
            self.assertIsNone(await self.next_content(), "one at a time")
            recorded = await self.store.record_deliveries(
                [evolve(succeeded(self.claimed), content_id=key)]
            )
            self.assertEqual(recorded.due, body != b"3")
            self.assertIsNone(await self.store.content(key), "nothing needs it any more")
        self.assertIsNone(await self.next_content())

    async def test_failed_content_stays_before_later_ones(self) -> None:
        await self.subscribe_to_content()
        first, second = await self.pushed(b"1", b"2")
        await self.next_content()
        await self.store.record_deliveries([evolve(waits(self.claimed, 3000), content_id=first)])
        self.assertEqual(await self.next_content(), b"1")
        await self.store.record_deliveries([evolve(failed(self.claimed), content_id=first)])
        self.assertEqual(await self.next_content(), b"2")
        self.assertEqual(self.claimed.content_id, second)

    async def test_content_that_is_recorded_late_goes_before_later_ones(self) -> None:
        await self.subscribe_to_content()
        for body in (b"1", b"2"):
            await self.store.push_content(FEED, Content(body), 2000.0)
        (walk,) = await self.store.fanouts(10)
        early = evolve(self.wants, content_id=walk.content_id)
        late = evolve(self.wants, content_id=(walk.content_id or 0) + 1)
        await self.store.record_deliveries([late, early])
        self.assertEqual(await self.next_content(), b"1")

    async def test_success_does_not_remove_content_pushed_since(self) -> None:
        await self.subscribe_to_content()
        (key,) = await self.pushed(b"2")
        await self.store.record_deliveries([evolve(succeeded(self.eager), content_id=key - 1)])
        self.assertEqual(await self.next_content(), b"2")

    async def test_contents_that_do_not_fit_are_reported(self) -> None:
        await self.subscribe_to_content()
        await self.store.push_content(FEED, Content(b"0"), 2000.0)
        (walk,) = await self.store.fanouts(10)
        key = walk.content_id or 0
        for number in range(1, 103):
            await self.store.push_content(FEED, Content(b"%d" % number), 2000.0)
        wanted = [evolve(self.wants, content_id=key + number) for number in range(103)]
        recorded = await self.store.record_deliveries(wanted)
        self.assertEqual(recorded.dropped, (self.eager, self.eager))
