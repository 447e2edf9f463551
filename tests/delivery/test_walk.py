"""Tests walks: outcomes are saved soon, slow subscribers delay nobody, nobody is left out."""

from __future__ import annotations

from gc import collect

from attrs import evolve
from twisted.internet.defer import Deferred, fail

from rsscloud_broker.delivery import walk
from rsscloud_broker.delivery.attempt import delayed
from rsscloud_broker.delivery.attempts import SOON
from rsscloud_broker.delivery.dispatch import TICK
from rsscloud_broker.delivery.walk import (
    BATCH_SIZE,
    MAX_UNSAVED,
    SAVE_WITHIN_SECONDS,
    SETTLE_SECONDS,
)
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.model import Callback, Lease, Outcome, Subscription, SubscriptionOptions
from tests.delivery.engine import FEED, NOW, REFUSED, EngineTestCase

OTHER_FEED = "http://feeds.example/other.xml"


class SettleTests(EngineTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.urls = self.subscribe_many(3)
        self.notifier.holds = {self.urls[1]}

    def test_walk_ends_without_those_who_take_long(self) -> None:
        self.start_walk()
        self.advance(SETTLE_SECONDS - 0.1)
        (walk,) = self.walks()
        self.assertEqual((walk.cursor, walk.outstanding, self.waiting()), (3, (2,), {}))
        self.advance(0.2)
        self.assertEqual((self.walks(), self.waiting()), ([], {self.urls[1]: 0}))
        self.advance(120, 1)
        self.assertEqual(self.called(), self.urls)  # this process still works on it

    def test_walk_ends_at_once_when_all_have_answered(self) -> None:
        self.start_walk()
        self.advance(0.1)
        self.notifier.end()
        self.assertEqual((self.walks(), self.waiting()), ([], {}))
        self.advance(TICK)
        self.assertEqual(self.timers(), [])

    def test_who_fails_late_is_tried_again(self) -> None:
        self.notifier.outcomes[self.urls[1]] = REFUSED
        self.start_walk()
        self.advance(SETTLE_SECONDS)
        self.notifier.release()
        self.assertEqual(self.waiting(), {self.urls[1]: 1})
        self.notifier.outcomes.clear()
        self.advance(6)
        self.assert_times(self.urls[1], [0, SETTLE_SECONDS + 5])

    def test_who_finishes_while_the_slice_is_being_saved(self) -> None:
        self.slow = {"record_slice"}
        self.start_walk()
        self.advance(SETTLE_SECONDS)
        self.notifier.end()
        self.assertNotIn("record_deliveries", self.asked)  # the walk would overwrite it
        self.hurry()
        self.assertEqual((self.waiting(), self.walks()), ({}, []))
        self.advance(120, 1)
        self.assertEqual(self.called(), self.urls)

    def test_one_that_hangs_does_not_hold_up_the_others(self) -> None:
        others = self.urls[::2]
        self.start()
        for number in range(5):
            changed_at = self.clock.wall_seconds() - NOW
            self.change()
            self.advance(0.3)
            self.change()  # while the walk waits for the one
            self.advance(1.2)
            for url in others:
                first, second = self.times(url)[2 * number :]
                self.assertLess(first - changed_at, 0.1)
                self.assertLess(second - changed_at, 0.3 + SETTLE_SECONDS)
        self.assertEqual((len(self.times(self.urls[1])), self.walks()), (1, []))

    def test_process_that_ends_after_such_a_change(self) -> None:
        self.start_walk()
        self.advance(1)
        self.change()
        self.advance(1)
        self.assertEqual(self.walks(), [])
        self.restart()
        self.advance(2)
        self.assertEqual((len(self.times(self.urls[1])), self.waiting()), (2, {}))

    def test_late_success_that_is_saved_late_takes_nothing_away(self) -> None:
        """The success must not delete the pending notification of the next change."""
        late = self.urls[1]
        self.start_walk()
        self.advance(SETTLE_SECONDS)
        self.slow = {"record_deliveries"}
        self.notifier.holds.clear()
        self.notifier.end()  # the success waits to be saved
        self.notifier.outcomes[late] = REFUSED
        self.change()
        self.hurry()
        self.advance(0.1)
        self.assertEqual(self.waiting(), {late: 1})
        self.notifier.outcomes.clear()
        self.advance(6)
        self.assertEqual((len(self.times(late)), self.waiting()), (3, {}))


class SavingTests(EngineTestCase):
    def test_kill_repeats_only_those_whose_outcome_was_not_saved(self) -> None:
        urls = self.subscribe_many(6)
        self.notifier.holds = {urls[1], urls[3]}
        self.start_walk(slice_size=2)
        self.advance(2 * SAVE_WITHIN_SECONDS)
        self.notifier.end(urls[1])
        self.assertEqual([(one.cursor, one.outstanding) for one in self.walks()], [(6, (2, 4))])
        self.notifier.calls.clear()
        self.restart()
        self.advance(2)
        self.assertEqual(
            (self.called(), self.walks(), self.waiting()), ([urls[1], urls[3]], [], {})
        )

    def test_those_who_are_left_and_leave_are_not_told(self) -> None:
        urls = self.subscribe_many(4)
        self.notifier.holds = {urls[1], urls[2]}
        self.start_walk()
        self.advance(2 * SAVE_WITHIN_SECONDS)
        self.crash()
        leaving = self.subscriptions()[1]
        self.successResultOf(self.store.remove_subscription(FEED, leaving.callback))
        self.notifier.calls.clear()
        self.notifier.holds.clear()
        self.start()
        self.assertEqual((self.called(), self.walks()), ([urls[2]], []))

    def test_outcomes_are_saved_while_the_walk_waits_for_a_place(self) -> None:
        urls = self.subscribe_many(10)
        self.notifier.holds = {urls[5]}
        self.start_walk(in_flight=1, max_slow=0)
        self.assertEqual(self.walks()[0].cursor, 0)
        self.advance(2 * SAVE_WITHIN_SECONDS)
        self.assertEqual(self.walks()[0].outstanding, (6, 7, 8, 9, 10))
        self.assertEqual((self.called(), self.waiting()), (urls[:6], {}))

    def test_walk_waits_for_a_slow_store(self) -> None:
        """Otherwise a kill would repeat more notifications than may be unsaved."""
        urls = self.subscribe_many(2000)
        self.slow = {"record_slice"}
        self.start_walk()
        self.advance(2)
        self.assertTrue(MAX_UNSAVED < len(self.called()) <= MAX_UNSAVED + BATCH_SIZE)
        self.hurry()
        self.advance(1)
        self.assertEqual((self.called(), self.walks()), (urls, []))

    def test_who_was_called_is_not_called_again_before_that_is_saved(self) -> None:
        url = "http://reader.example/"
        subscribed = self.subscribe(url)
        waits = delayed(subscribed, NOW, NOW, None)
        self.successResultOf(self.store.record_deliveries([waits]))
        self.notifier.outcomes[url] = Outcome(False, "busy", retry_after=60)
        self.slow = {"record_slice"}
        self.start_walk()
        self.advance(1)
        self.hurry()
        self.advance(1)
        self.assertEqual(self.called(), [url])
        self.notifier.outcomes.clear()
        self.advance(70)
        self.assertEqual((self.called(), self.waiting()), ([url, url], {}))

    def test_walk_whose_outcomes_cannot_be_saved_stops(self) -> None:
        urls = self.subscribe_many(1000)

        def broken(*args: object) -> None:
            raise ZeroDivisionError

        works = self.store.record_slice
        self.patch(self.store, "record_slice", broken)
        self.start_walk()
        self.advance(1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertLessEqual(len(self.called()), MAX_UNSAVED + BATCH_SIZE)
        self.patch(self.store, "record_slice", works)
        self.advance(20)
        self.assertEqual((set(self.called()), self.walks()), (set(urls), []))

    def test_slice_that_was_read_ahead_for_nothing(self) -> None:
        """A failure to read it is not logged if the walk no longer needs it."""
        collect()
        self.flushLoggedErrors()  # of what earlier tests of this process have left
        urls = self.subscribe_many(4)
        self.notifier.holds = {urls[0]}
        read: list[object] = []
        works = self.store.subscriptions

        def once(*args: object) -> Deferred[list[Subscription]]:
            read.append(args)
            if len(read) > 1:
                return fail(Unavailable("the disk is full"))
            found: Deferred[list[Subscription]] = works(*args)
            return found

        self.patch(self.store, "subscriptions", once)
        self.unavailable = {"record_slice"}
        self.start_walk(slice_size=2, in_flight=1, max_slow=0)
        self.advance(0.5)
        self.stop()
        collect()
        self.assertEqual((len(read), self.flushLoggedErrors()), (2, []))

    def test_process_that_ends_after_a_topic_moved_to_one_that_is_walked_too(self) -> None:
        topics = (OTHER_FEED, FEED, FEED, OTHER_FEED, OTHER_FEED, OTHER_FEED)
        urls = [f"http://reader{number}.example/" for number in range(len(topics))]
        for url, topic in zip(urls, topics, strict=True):
            self.subscribe(url, topic)
        self.start(in_flight=4, max_slow=0)
        self.notifier.holds = set(urls)
        for topic in (FEED, OTHER_FEED):
            self.change(topic)
        self.assertEqual(sorted(self.called()), urls[:4])
        self.notifier.end(urls[0])
        self.advance(2 * SAVE_WITHIN_SECONDS)
        self.assertEqual([one.outstanding for one in self.walks()], [(), (4, 5, 6)])
        moved = self.store.move_topic(FEED, OTHER_FEED, self.clock.wall_seconds())
        self.assertTrue(self.successResultOf(moved))
        self.notifier.end(urls[3])
        self.advance(2 * SAVE_WITHIN_SECONDS)
        self.notifier.calls.clear()
        self.restart()
        self.advance(1)
        self.assertEqual((sorted(self.called()), self.walks()), (urls, []))


class BusyTests(EngineTestCase):
    def test_those_behind_a_busy_host_are_put_off(self) -> None:
        slow = self.subscribe_many(20, host="slow.example")
        quick = self.subscribe_many(20)
        self.notifier.holds = {"slow.example"}
        self.start_walk(slice_size=10)
        self.advance(2 * SETTLE_SECONDS + 0.1)
        self.assertEqual(self.called(), slow[:4] + quick)
        self.assertEqual((self.walks(), set(self.waiting())), ([], set(slow)))
        self.notifier.release()
        self.advance(SOON + 1)
        self.assertEqual((len(self.called()), set(self.called())), (40, {*slow, *quick}))
        self.assertEqual(self.waiting(), {})

    def test_those_who_wait_for_a_place_are_waited_for(self) -> None:
        urls = self.subscribe_many(10)
        self.notifier.holds = set(urls)
        self.start_walk(in_flight=1, max_slow=0)
        for told in range(10):
            self.advance(3 * SETTLE_SECONDS)
            self.assertEqual(self.called(), urls[: told + 1])
            self.assertEqual(len(self.walks()), 1 if told < 9 else 0)
            self.notifier.end()
        self.assertEqual((self.walks(), self.waiting()), ([], {}))


class FairnessTests(EngineTestCase):
    def test_small_topic_is_told_long_before_a_large_one_is_done(self) -> None:
        large = self.subscribe_many(3000)
        small = [f"http://small{number}.example/" for number in range(3)]
        for url in small:
            self.subscribe(url, OTHER_FEED)
        self.notifier.holds = {*large, *small}
        self.start_walk(in_flight=10)
        self.change(OTHER_FEED)
        while not set(small) <= set(self.called()):
            self.notifier.end()
            self.assertLess(len(self.called()), 600)  # it has waited for one slice
        self.notifier.release()
        self.assertEqual((len(self.called()), self.walks()), (3003, []))

    def test_small_topic_is_told_though_more_large_ones_wait_than_are_walked(self) -> None:
        for number in range(9):
            topic = f"http://feeds.example/large{number}"
            for reader in range(50):
                self.subscribe(f"http://reader{reader}.example/{number}", topic)
        small = "http://small.example/"
        self.subscribe(small, OTHER_FEED)
        turn = 2 * 5
        self.patch(walk, "TURN_SUBSCRIPTIONS", turn)
        self.start(max_walks=2, slice_size=5, in_flight=10)
        self.notifier.holds = {f"reader{reader}.example" for reader in range(50)}
        for number in range(9):
            self.change(f"http://feeds.example/large{number}")
        self.notifier.end()
        self.change(OTHER_FEED)
        while small not in self.called():
            self.assertTrue(self.notifier.held)
            self.notifier.end()
        self.assertLessEqual(len(self.called()), 3 * 10 * turn)  # it had to be read first
        self.notifier.release()
        self.assertEqual(sorted(self.called()), sorted(set(self.called())), "nobody twice")
        self.assertEqual((len(self.called()), self.walks()), (451, []))

    def test_walk_stays_while_nobody_waits(self) -> None:
        urls = self.subscribe_many(100)
        self.start_walk(max_walks=1, slice_size=5)
        self.assertEqual((self.called(), self.asked.count("fanouts")), (urls, 3))

    def test_black_holes_hold_up_nobody(self) -> None:
        holes = [f"http://hole{number}.example/" for number in range(30)]
        urls = self.subscribe_many(70)
        for url in holes:
            self.subscribe(url)
        self.subscribe("http://last.example/")
        self.notifier.holds = set(holes)
        self.start_walk(in_flight=2, max_slow=2000, slice_size=10)
        self.advance(4)
        self.assertTrue({*urls, "http://last.example/"} <= set(self.called()))
        self.assertEqual(self.walks(), [])


class LatencyTests(EngineTestCase):
    def latency(self, which: str) -> tuple[float, float]:
        """The number and the sum of the observed latencies."""
        name = f"{which}_notification_latency_seconds"
        return self.count(f"{name}_count"), round(self.count(f"{name}_sum"), 3)

    def test_first_success_and_end(self) -> None:
        urls = self.subscribe_many(3)
        self.notifier.outcomes[urls[0]] = REFUSED
        self.notifier.holds = set(urls)
        self.start_walk()
        self.advance(0.1, 0.1)
        self.notifier.end(urls[0])
        self.assertEqual(self.latency("first")[0], 0)
        self.advance(0.1, 0.1)
        self.notifier.end(urls[1])
        self.assertEqual(self.latency("first"), (1, 0.2))
        self.assertEqual(self.latency("last")[0], 0)
        self.advance(0.1, 0.1)
        self.notifier.end()
        self.assertEqual(self.latency("first")[0], 1)
        self.assertEqual(self.latency("last"), (1, 0.3))

    def test_late_success_may_be_the_first(self) -> None:
        urls = self.subscribe_many(1)
        self.notifier.holds = set(urls)
        self.start_walk()
        self.advance(2)
        self.notifier.end()
        self.assertEqual(self.latency("first"), (1, 2.0))

    def test_walk_that_goes_on_after_a_start_had_its_first_before(self) -> None:
        urls = self.subscribe_many(4)
        self.notifier.holds = {urls[2]}
        self.start_walk()
        self.advance(2 * SAVE_WITHIN_SECONDS)
        self.assertEqual((self.latency("first")[0], self.walks()[0].cursor), (1, 4))
        self.restart()
        self.assertEqual((self.latency("first")[0], self.latency("last")[0]), (0, 1))

    def test_walk_that_is_stopped_has_no_end(self) -> None:
        self.notifier.holds = set(self.subscribe_many(4))
        self.start_walk(in_flight=2, max_slow=0)
        self.stop()
        self.assertEqual((len(self.walks()), self.latency("last")[0]), (1, 0))


class RemovedTests(EngineTestCase):
    def start_with_one_under_way(self, count: int, slice_size: int = 2) -> list[str]:
        """Begin to notify subscribers, of whom the first does not answer; their URLs."""
        urls = self.subscribe_many(count)
        self.notifier.holds = {urls[0]}
        self.start_walk(slice_size=slice_size, in_flight=1, max_slow=0)
        return urls

    def test_who_leaves_before_its_slice_is_read_is_not_told(self) -> None:
        urls = self.start_with_one_under_way(8)
        leaving: Subscription = self.subscriptions()[7]
        self.successResultOf(self.store.remove_subscription(FEED, leaving.callback))
        self.notifier.end()
        self.assertEqual((self.called(), self.walks()), (urls[:7], []))

    def test_who_leaves_after_its_slice_was_read_is_not_told(self) -> None:
        urls = self.start_with_one_under_way(6)
        self.leave(self.subscriptions()[3])
        self.notifier.end()
        self.assertEqual((self.called(), self.walks()), (urls[:3] + urls[4:], []))
        self.assertEqual(self.waiting(), {})

    def test_who_renews_and_then_leaves_after_its_slice_was_read_is_not_told(self) -> None:
        urls = self.start_with_one_under_way(6)
        self.leave(self.put(self.subscriptions()[3]))
        self.notifier.end()
        self.assertEqual((self.called(), self.walks()), (urls[:3] + urls[4:], []))

    def test_who_leaves_long_before_its_slice_is_handed_out_is_not_told(self) -> None:
        """Attempts are submitted in batches, and the next slice is in memory meanwhile."""
        urls = self.subscribe_many(3 * BATCH_SIZE + 4)
        self.notifier.holds = {urls[0], urls[BATCH_SIZE + 1], urls[2 * BATCH_SIZE + 1]}
        self.start_walk(slice_size=3 * BATCH_SIZE, in_flight=1, max_slow=0)
        leaving = self.subscriptions()
        for number in (-2, 2 * BATCH_SIZE + 50):
            self.leave(leaving[number])
            urls.remove(leaving[number].callback.url)
        for _ in range(3):
            self.notifier.end()
            self.advance(1)
        self.assertEqual((self.called(), self.walks()), (urls, []))

    def test_who_leaves_while_those_are_told_who_were_left_is_not_told(self) -> None:
        """A new process reads the next slice before it submits the attempts left by the last."""
        urls = self.subscribe_many(6)
        self.notifier.holds = {urls[1]}
        self.start_walk(slice_size=2, in_flight=1, max_slow=0)
        self.advance(1)
        self.crash()
        self.slow.add("subscriptions_of")
        self.start(slice_size=2, in_flight=4, max_slow=0)
        self.leave(self.subscriptions()[5])
        self.notifier.holds.clear()
        self.hurry()
        self.advance(1)
        self.assertEqual((self.called(), self.walks()), ([*urls[:2], *urls[1:5]], []))

    def test_who_leaves_while_it_waits_in_the_queue_is_not_told(self) -> None:
        """At its first attempt, or at a retry."""
        urls = self.subscribe_many(4, host="slow.example")
        self.notifier.holds = {"slow.example"}
        self.start_walk(per_host=1)
        self.leave(self.subscriptions()[1])
        self.advance(SOON + 2)  # two were put off, and wait again
        self.leave(self.subscriptions()[1])
        for _ in range(4):
            self.notifier.end()
            self.advance(2)
        self.assertEqual((self.called(), self.waiting()), ([urls[0], urls[3]], {}))

    def test_other_way_to_call_who_left_is_called_all_the_same(self) -> None:
        """Subscriptions of one callback URL differ by procedure."""
        first, second = self.subscribe_many(2, host="slow.example")
        twin = Subscription(FEED, Callback(second, "http-post", "other"), Lease(NOW, 90_000))
        self.successResultOf(self.store.put_subscription(twin))
        self.notifier.holds = {"slow.example"}
        self.start_walk(per_host=1)
        self.leave(self.subscriptions()[1])
        self.notifier.release()
        self.advance(SOON + 1)
        self.assertEqual((self.called(), self.waiting()), ([first, second], {}))

    def test_subscription_is_removed_and_another_of_its_url_is_renewed(self) -> None:
        """The broker keeps apart what changed of the two."""
        urls = self.subscribe_many(3)
        twin = Subscription(FEED, Callback(urls[2], "http-post", "other"), Lease(NOW, 90_000))
        twin = self.successResultOf(self.store.put_subscription(twin))
        self.notifier.holds = {urls[0]}
        self.start_walk(slice_size=2, in_flight=1, max_slow=0)
        self.leave(self.subscriptions()[2])
        self.put(twin)
        self.notifier.end()
        self.advance(1)
        self.assertEqual((self.called(), self.walks()), (urls, []))
        procedures = [one.callback.procedure for one in self.notifier.notifications]
        self.assertEqual(procedures, ["", "", "other"])


class RenewedTests(EngineTestCase):
    """A subscriber that changes its options is notified by the new ones from then on."""

    def renew(self, number: int, **options: str) -> Subscription:
        """Replace one of the subscriptions, counted from 0."""
        return self.put(evolve(self.subscriptions()[number], options=options))

    def told(self) -> list[SubscriptionOptions]:
        return [notification.options for notification in self.notifier.notifications]

    def test_while_it_waits_in_the_queue(self) -> None:
        """A renewal with the same terms puts nothing off."""
        self.subscribe_many(3, host="slow.example")
        self.notifier.holds = {"slow.example"}
        self.start_walk(per_host=1)
        self.renew(1)
        self.renew(2, secret="new")
        self.notifier.release()
        self.assertEqual(self.told(), [{}, {}])
        self.advance(1)
        self.assertEqual((self.told(), self.waiting()), ([{}, {}, {"secret": "new"}], {}))

    def test_after_its_slice_was_read(self) -> None:
        urls = self.subscribe_many(3)
        self.notifier.holds = {urls[0]}
        self.start_walk(slice_size=1, in_flight=1, max_slow=0)
        self.renew(2, secret="new")
        self.notifier.release()
        self.advance(1)
        self.assertEqual((self.told(), self.waiting()), ([{}, {}, {"secret": "new"}], {}))

    def test_lease_that_ends_after_its_slice_was_read(self) -> None:
        urls = self.subscribe_many(3)
        self.notifier.holds = {urls[0]}
        self.start(slice_size=1, in_flight=1, max_slow=0)
        self.advance(90_000 - 20, 600.0)
        self.change()
        lease = Lease(self.clock.wall_seconds(), 90_000)
        self.put(evolve(self.subscriptions()[2], lease=lease))
        self.advance(25)
        self.notifier.release()
        self.advance(1)
        self.assertEqual((self.called(), self.waiting()), (urls, {}))
