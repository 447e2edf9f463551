"""The contract of the store: fan-outs, pending notifications, and hosts."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from attrs import evolve

from rsscloud_broker.database.methods import Operation
from rsscloud_broker.model import Callback, Outcome, Subscription
from rsscloud_broker.model.work import Delivery, HostState, PollPlan
from rsscloud_broker.storage.deliveries import record_deliveries
from tests.storage.waiting import waiting_checks
from tests.store_contract.basics import (
    FEED,
    OTHER_FEED,
    a_fetch,
    a_subscription,
    failed,
    is_gone,
    succeeded,
    waits,
)
from tests.store_contract.event_log import EventLogContract
from tests.store_contract.hub import an_intent
from tests.store_contract.published import PublishedContract
from tests.store_contract.pushed import PushedContract
from tests.store_contract.relaying import RelayingContract
from tests.store_contract.statistics import StatisticsContract

T = TypeVar("T")


class DeliveriesContract(
    PushedContract, PublishedContract, StatisticsContract, EventLogContract, RelayingContract
):
    """The tests of deliveries that every store must pass."""

    # fan-out

    async def test_newest_walk_of_each_topic_oldest_first(self) -> None:
        await self.store.record_fetch(a_fetch(b"0"), None)
        self.assertEqual(await self.store.fanouts(10), [], "nobody has subscribed")
        for url in (FEED, OTHER_FEED):
            await self.store.put_subscription(a_subscription(url))
        for url, content in ((FEED, b"1"), (OTHER_FEED, b"1"), (FEED, b"2")):
            await self.store.record_fetch(a_fetch(content, url=url), None)
        walks = await self.store.fanouts(10)
        self.assertEqual([walk.topic for walk in walks], [OTHER_FEED, FEED])
        self.assertEqual(await self.store.fanouts(1), walks[:1])
        await self.store.record_slice(walks[1], 0, [], True)
        self.assertEqual(await self.store.fanouts(10), walks[:1])

    async def test_end_of_a_walk_keeps_newer_ones(self) -> None:
        await self.store.put_subscription(a_subscription())
        older = await self.begin_walk(b"1")
        newer = await self.begin_walk(b"2")
        await self.store.record_slice(older, 1, [], True)
        self.assertEqual(await self.store.fanouts(10), [newer])

    async def test_failures_in_a_row_mark_a_subscription(self) -> None:
        """But not if its protocol never gives up."""
        for number in (1, 2, 3):
            await self.store.put_subscription(a_subscription(number=number))
        walk = await self.begin_walk(b"1")
        for errors, dropping in ((1, False), (2, False), (3, True)):
            bad, good, forever = await self.all_subscriptions()
            at = 2000.0 + errors
            slice_ = [failed(bad, at=at), succeeded(good), failed(forever, None, at)]
            await self.store.record_slice(walk, 1, slice_, False)
            error: dict[str, Any] = {
                "consecutive_errors": errors,
                "last_error": "refused",
                "last_error_at": at,
            }
            self.assertEqual(
                await self.all_subscriptions(),
                [evolve(bad, **error, dropping=dropping), good, evolve(forever, **error)],
            )

    async def test_success_clears_errors(self) -> None:
        stored = await self.store.put_subscription(a_subscription())
        walk = await self.begin_walk(b"1")
        await self.store.record_slice(walk, 0, [failed(stored, drop_after_failures=1)], False)
        await self.store.record_slice(walk, 0, [succeeded(stored)], False)
        self.assertEqual(await self.all_subscriptions(), [stored])

    async def test_delivery_to_a_subscription_removed_meanwhile(self) -> None:
        gone = await self.store.put_subscription(a_subscription())
        walk = await self.begin_walk(b"1")
        await self.store.remove_subscription(FEED, gone.callback)
        again = await self.store.put_subscription(a_subscription())
        await self.store.record_slice(walk, gone.id, [failed(gone), succeeded(gone)], True)
        self.assertEqual(await self.all_subscriptions(), [again])

    # pending notifications

    async def stored(self, *numbers: int) -> list[Subscription]:
        return [await self.store.put_subscription(a_subscription(number=n)) for n in numbers]

    async def attempts(self) -> list[int | None]:
        """How many attempts the pending notification of each subscription has had."""
        return [one.attempts for one in await self.all_subscriptions()]

    async def due(self, now: float, limit: int = 10) -> list[int]:
        """Claim what is due; the ids of the subscriptions."""
        return [one.id for one in await self.store.claim_due(now, limit, ())]

    async def test_at_most_one_waits_for_a_subscription(self) -> None:
        (one,) = await self.stored(1)
        walk = await self.begin_walk(b"1")
        await self.store.record_slice(walk, one.id, [waits(one, 3000)], True)
        put_off = Delivery(one, None, at=2000, attempts=0, retry_at=2500)
        await self.store.record_deliveries([put_off])
        self.assertEqual((await self.attempts(), await self.store.next_due()), ([0], 2500))
        self.assertEqual(await self.due(9999), [one.id])

    def news(self, subscription: Subscription, at: float, pause: float = 5.0) -> Delivery:
        """A delivery that says that the topic has changed again."""
        return Delivery(subscription, None, at=at, attempts=0, retry_at=at, pause=pause)

    async def test_news_begins_the_schedule_anew(self) -> None:
        waiting, other = await self.stored(1, 2)
        await self.store.record_deliveries([waits(waiting, 9000, attempts=4)])
        await self.store.record_deliveries([self.news(one, 3000) for one in (waiting, other)])
        self.assertEqual(await self.attempts(), [0, 0])
        self.assertEqual(await self.due(3000), [waiting.id, other.id])

    async def test_when_the_next_attempt_is_due_after_news(self) -> None:
        (one,) = await self.stored(1)
        asked = evolve(waits(one, 9000), not_before=8000.0)
        for name, waiting, at, due in (
            ("no sooner than a pause after the last attempt", waits(one, 9000, 4), 2001, 2005),
            ("no later than before", waits(one, 2500, 4), 3000, 2500),
            ("not before the time that the subscriber asked for", asked, 3000, 8000),
        ):
            await self.store.record_deliveries([waiting])  # tried at 2000
            await self.store.record_deliveries([self.news(one, at)])
            self.assertEqual((await self.attempts(), await self.store.next_due()), ([0], due), name)
            await self.store.record_deliveries([succeeded(one)])

    async def test_news_of_another_node_take_the_claim_from_the_one_that_calls(self) -> None:
        """Its call may have begun before the change."""
        (one,) = await self.stored(1)
        await self.store.record_deliveries([waits(one, 2500)])
        (claimed,) = await self.store.claim_due(3000, 10, ())
        news = partial(record_deliveries, deliveries=[self.news(one, 3001)], node=0)
        await self.store._database.write(news)
        await self.store.record_deliveries([succeeded(claimed)])
        self.assertEqual((await self.attempts(), await self.store.next_due()), ([0], 3006))

    async def test_how_long_it_has_failed_is_known_through_all_news(self) -> None:
        (one,) = await self.stored(1)
        await self.store.record_deliveries([waits(one, 9000)])
        await self.store.record_deliveries([self.news(one, 3000)])
        await self.store.record_deliveries([evolve(waits(one, 9000), at=3005.0)])
        (stored,) = await self.all_subscriptions()
        self.assertEqual(stored.failing_since, 2000.0)
        await self.store.record_deliveries([succeeded(stored)])
        await self.store.record_deliveries([evolve(waits(one, 9000), at=4000.0)])
        (stored,) = await self.all_subscriptions()
        self.assertEqual(stored.failing_since, 4000.0)

    async def test_one_that_was_told_and_is_told_again_has_not_failed(self) -> None:
        (one,) = await self.stored(1)
        await self.store.record_deliveries([evolve(succeeded(one), attempts=0, retry_at=3000.0)])
        (stored,) = await self.all_subscriptions()
        self.assertEqual((stored.attempts, stored.failing_since), (0, None))

    async def test_delivered_or_given_up_waits_no_more(self) -> None:
        told, given_up = await self.stored(1, 2)
        await self.store.record_deliveries([waits(told, 3000), waits(given_up, 3000)])
        await self.store.record_deliveries([succeeded(told), failed(given_up)])
        self.assertIsNone(await self.store.next_due())
        found = await self.all_subscriptions()
        self.assertEqual([one.consecutive_errors for one in found], [0, 1])

    async def test_another_may_wait_after_one_that_is_over(self) -> None:
        told, given_up = await self.stored(1, 2)
        await self.store.record_deliveries([failed(told), waits(given_up, 3000, attempts=5)])
        anew = [
            evolve(one, attempts=0, retry_at=4000.0) for one in (succeeded(told), failed(given_up))
        ]
        await self.store.record_deliveries(anew)
        found = await self.all_subscriptions()
        self.assertEqual([one.consecutive_errors for one in found], [0, 1])
        self.assertEqual((await self.attempts(), await self.store.next_due()), ([0, 0], 4000))

    async def test_delivery_that_says_nothing_changes_nothing(self) -> None:
        (one,) = await self.stored(1)
        await self.store.record_deliveries([waits(one, 3000, attempts=2)])
        await self.store.record_deliveries([Delivery(one, None, at=2000)])
        await self.store.record_deliveries([])
        self.assertEqual((await self.attempts(), await self.store.next_due()), ([2], 3000))

    async def test_gone_removes_the_subscription(self) -> None:
        first, second = await self.stored(1, 2)
        await self.store.record_deliveries([waits(first, 3000)])
        await self.store.record_deliveries([is_gone(first)])
        self.assertEqual(await self.all_subscriptions(), [second])
        self.assertIsNone(await self.store.next_due())

    async def test_gone_does_not_remove_what_was_renewed_since(self) -> None:
        """If the call has failed, it is made again."""
        (one,) = await self.stored(1)
        renewed = await self.store.put_subscription(a_subscription(granted_at=1500))
        for success, attempts in ((True, None), (False, 0)):
            gone = evolve(is_gone(one), outcome=Outcome(success, gone=True))
            await self.store.record_deliveries([gone])
            self.assertEqual(await self.all_subscriptions(), [evolve(renewed, attempts=attempts)])

    async def test_nothing_waits_for_who_left(self) -> None:
        left, leaves = await self.stored(1, 2)
        await self.store.record_deliveries([waits(leaves, 3000)])
        for one in (left, leaves):
            await self.store.remove_subscription(FEED, one.callback)
        late = [waits(left, 3000), failed(left), succeeded(leaves), is_gone(leaves)]
        await self.store.record_deliveries(late)
        self.assertIsNone(await self.store.next_due())
        self.assertEqual(await self.all_subscriptions(), [])

    async def test_what_is_due_is_given_out_longest_due_first(self) -> None:
        many = await self.stored(1, 2, 3, 4)
        for one, at in zip(many, (3003, 3001, 3002, 3001), strict=True):
            await self.store.record_deliveries([waits(one, at)])
        ids = [one.id for one in many]
        self.assertEqual(await self.due(3000.9), [])
        self.assertEqual(await self.due(3002, limit=2), [ids[1], ids[3]])
        self.assertEqual(await self.due(3002), [ids[2]])
        self.assertEqual(await self.store.next_due(), 3003)

    async def test_claim_holds_until_its_outcome_is_recorded(self) -> None:
        (one,) = await self.stored(1)
        await self.store.record_deliveries([waits(one, 3000, attempts=4)])
        claimed = await self.store.claim_due(3000, 10, ())
        self.assertEqual(claimed, [evolve(one, attempts=4, failing_since=2000.0)])
        self.assertIsNone(await self.store.next_due())
        self.assertEqual(await self.due(9e9), [])
        await self.store.record_deliveries([waits(one, 3100, attempts=5)])
        self.assertEqual(await self.due(3100), [one.id])

    async def test_what_a_process_is_at_may_wait_as_claimed(self) -> None:
        (one,) = await self.stored(1)
        under_way = Delivery(one, None, at=2000, attempts=0, retry_at=2000, claimed=True)
        await self.store.record_deliveries([under_way])
        self.assertEqual((await self.attempts(), await self.due(9e9)), ([0], []))
        await self.store.record_deliveries([waits(one, 3000)])
        self.assertEqual(await self.due(3000), [one.id])

    async def test_what_is_handed_out_is_known_with_the_walk(self) -> None:
        await self.stored(1, 2, 3)
        walk = await self.begin_walk(b"1")
        await self.store.record_slice(walk, 3, [], False, [1, 3])
        self.assertEqual(await self.store.fanouts(10), [evolve(walk, cursor=3, outstanding=(1, 3))])
        await self.store.record_slice(walk, 3, [], False, [3])
        self.assertEqual(await self.store.fanouts(10), [evolve(walk, cursor=3, outstanding=(3,))])
        await self.store.record_slice(walk, 3, [], True)
        self.assertEqual(await self.store.fanouts(10), [])

    async def test_subscriptions_by_their_ids(self) -> None:
        first, second, third = await self.stored(1, 2, 3)
        await self.store.remove_subscription(FEED, second.callback)
        found = await self.store.subscriptions_of([third.id, second.id, first.id, 999])
        self.assertEqual(found, [third, first])
        self.assertEqual(await self.store.subscriptions_of([]), [])

    async def test_busy_hosts_are_left_out_of_claims(self) -> None:
        first, second, third = await self.stored(1, 2, 3)
        await self.store.record_deliveries([waits(one, 3000) for one in (first, second, third)])
        busy = [first.callback.host, third.callback.host]
        claimed = await self.store.claim_due(3000, 10, busy)
        self.assertEqual([one.id for one in claimed], [second.id])
        self.assertEqual(await self.due(3000), [first.id, third.id])

    async def test_what_is_put_off_while_it_is_searched_for_is_not_claimed(self) -> None:
        """A walk has called the subscriber meanwhile, and that has asked for a later call."""
        (one,) = await self.stored(1)
        await self.store.record_deliveries([waits(one, 3000)])
        read = self.store._database.read

        async def read_late(operation: Operation[T]) -> T:
            found = await read(operation)
            await self.store.record_deliveries([waits(one, 9000, attempts=2)])
            return found

        self.patch(self.store._database, "read", read_late)
        self.assertEqual(await self.store.claim_due(3000, 10, ["busy.example"]), [])
        self.assertEqual(await self.due(9000), [one.id])

    async def test_what_waits_is_due_at_once_after_a_renewal(self) -> None:
        (one,) = await self.stored(1)
        await self.store.record_deliveries([waits(one, 3000, attempts=4)])
        (renewed,) = await self.stored(1)
        self.assertEqual((renewed.id, renewed.attempts), (one.id, 0))
        self.assertEqual(await self.due(1000), [one.id])

    # hosts

    async def test_hosts(self) -> None:
        self.assertEqual(await self.store.hosts(), [])
        first, second = HostState("a.example", 5, 3000.25), HostState("b.example", 7, 3001)
        await self.store.record_hosts([second, first])
        self.assertEqual(await self.store.hosts(), [first, second])
        again = evolve(first, failures=6, retry_at=4000)
        await self.store.record_hosts([again, HostState("c.example", 0, 0)])
        self.assertEqual(await self.store.hosts(), [again, second])
        await self.store.record_hosts([HostState("b.example", 0, 0)])
        await self.store.record_hosts([])
        self.assertEqual(await self.store.hosts(), [again])

    async def test_subscriptions_of_a_host_are_counted(self) -> None:
        for topic in (FEED, OTHER_FEED):
            for url in ("http://Reader.example:81/a", "https://reader.example/b"):
                wanted = evolve(a_subscription(topic), callback=Callback(url, "http-post"))
                await self.store.put_subscription(wanted)
        await self.stored(1)
        self.assertEqual(await self.store.count_of_host("reader.example", 10), 4)
        self.assertEqual(await self.store.count_of_host("reader.example", 3), 3)
        self.assertEqual(await self.store.count_of_host("nobody.example", 3), 0)

    # a wall clock that was set back

    async def test_what_is_due_later_moves_along_with_a_clock_that_was_set_back(self) -> None:
        stored = await self.store.put_subscription(a_subscription())
        await self.store.record_deliveries([waits(stored, 5030.0)])
        await self.store.request_check(FEED, 5000.0)
        plan = PollPlan(FEED, 5600.0, "each ten minutes", 600.0, 5000.0)
        await self.store.plan_polls([plan])
        await self.store.record_hosts([HostState("reader1.example", 5, 5060.0)])
        for number, retry_at in ((1, 5030.0), (2, 3000.0)):
            intent = await self.intend(an_intent(number))
            await self.store.postpone_intent(intent.id, 1, retry_at)
        await self.store.set_back(1000.0, 4000.0)
        self.assertEqual(await self.store.next_due(), 4030.0)
        times = [kept.retry_at for kept in await self.store.intents()]
        self.assertEqual(times, [4030.0, 3000.0], "what is due stays due")
        self.assertEqual([one.topic.url for one in await self.store.polls_due(4600.0, 9)], [FEED])
        self.assertEqual(await self.store.polls_due(4599.0, 9), [])
        self.assertEqual(await self.store.hosts(), [HostState("reader1.example", 5, 4060.0)])
        await self.store.record_fetch(a_fetch(at=4000.5), None)
        self.assertEqual(await waiting_checks(self.store, 9), [], "it was asked for before")
