"""What distribution does when it learns of other nodes."""

from __future__ import annotations

from functools import partial
from typing import Any

from attrs import evolve
from sqlalchemy import Connection, update
from twisted.internet.defer import fail, succeed

from rsscloud_broker.delivery.attempt import merged_change
from rsscloud_broker.delivery.distribution import SAVE_AGAIN
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import ClaimsLost, NodesCounted, WorkHinted
from rsscloud_broker.model.work import Delivery, HostState
from rsscloud_broker.storage.deliveries import record_deliveries
from rsscloud_broker.storage.nodes import leave
from rsscloud_broker.storage.schema import fanout
from tests.delivery.engine import FEED, NO_ANSWER, NOW, REFUSED, EngineTestCase


class OtherNodesTests(EngineTestCase):
    def free_claims(self) -> None:
        """Remove the row of this node, as another does that takes it for dead."""
        node: Any = self.store.node
        self.successResultOf(self.store._database.write(lambda conn: leave(conn, node)))

    def test_fanout_of_another_node_is_walked(self) -> None:
        urls = self.subscribe_many(3)
        self.start()
        self.record_fetch(b"new")  # by another node
        self.assertEqual(self.called(), [])
        self.hint(WorkHinted("fanout"))
        self.assertEqual(self.called(), urls)

    def test_fanout_that_another_node_has_just_claimed_is_left_to_it(self) -> None:
        self.subscribe_many(3)
        self.start()
        self.record_fetch(b"new")  # by another node

        def claim(conn: Connection) -> None:
            conn.execute(update(fanout).values(node_id=0))

        self.successResultOf(self.store._database.write(claim))
        self.hint(WorkHinted())
        self.advance(1)
        self.assertEqual(self.called(), [])

    def test_notifications_of_a_dead_node_are_made_soon(self) -> None:
        (url,) = self.subscribe_many(1)
        self.notifier.holds = {url}
        self.start_walk()
        self.advance(1)
        self.crash()
        self.start()
        self.notifier.holds.clear()
        self.hint(WorkHinted("freed"))
        self.advance(1)
        self.assertEqual((self.called(), self.waiting()), ([url, url], {}))

    def test_host_that_another_node_found_dead_is_not_called(self) -> None:
        self.subscribe_many(1, host="dead.example")
        self.start()
        state = HostState("dead.example", 5, NOW + 60)
        self.successResultOf(self.store.record_hosts([state]))
        self.unavailable.add("hosts")
        self.hint(WorkHinted("host"))  # it is asked again at the next hint
        self.unavailable.clear()
        self.hint(WorkHinted("host"))
        self.change()
        self.assertEqual(self.called(), [])

    def test_host_that_answers_another_node_is_called_again(self) -> None:
        (url,) = self.subscribe_many(1, host="dead.example")
        state = HostState("dead.example", 5, NOW + 60)
        self.successResultOf(self.store.record_hosts([state]))
        self.start_walk()
        self.assertEqual(self.called(), [])
        self.successResultOf(self.store.record_hosts([evolve(state, failures=0)]))
        now = self.clock.wall_seconds()
        self.assertTrue(self.successResultOf(self.store.make_due("dead.example", "", now)))
        self.hint(WorkHinted("host"))
        self.advance(1)
        self.assertEqual((self.called(), self.waiting()), ([url], {}))

    def test_hosts_are_followed_although_hints_are_lost(self) -> None:
        urls = self.subscribe_many(1, host="dead.example")
        self.start()
        self.hint(NodesCounted(2))
        state = HostState("dead.example", 5, NOW + 600)
        for states, called in (([state], []), ([evolve(state, failures=0)], urls)):
            self.successResultOf(self.store.record_hosts(states))
            for _ in range(int(10.0) + 1):  # as with each heartbeat
                self.advance(1)
                self.hint(WorkHinted())
            self.change()
            self.advance(1)
            self.assertEqual(self.called()[-1:], called)

    def test_hosts_are_not_read_each_second(self) -> None:
        self.start()
        for nodes, most in ((1, 0), (2, 4)):
            self.hint(NodesCounted(nodes))
            del self.asked[:]
            for _ in range(30):
                self.advance(1)
                self.hint(WorkHinted())
            self.assertLessEqual(self.asked.count("hosts"), most)

    def test_breakers_that_could_not_be_stored_are_stored_later(self) -> None:
        self.start()
        record = self.store.record_hosts
        for host, error in (("a.example", Unavailable()), ("b.example", ZeroDivisionError())):
            self.subscribe_many(5, f"{FEED}?{host}", host)
            self.notifier.outcomes[host] = NO_ANSWER
            self.store.record_hosts = lambda states, error=error: fail(error)
            self.change(f"{FEED}?{host}")
            self.advance(5)
            self.assertNotIn(host, self.stored_hosts())
            self.store.record_hosts = record
            self.advance(SAVE_AGAIN)
            self.assertIn(host, self.stored_hosts())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.distribution._breakers.own_changes(), set())

    def stored_hosts(self) -> list[str]:
        return [one.host for one in self.successResultOf(self.store.hosts())]

    def test_limits_are_shared(self) -> None:
        urls = self.subscribe_many(8)
        self.notifier.holds = set(urls)
        self.start(in_flight=4, max_slow=0)
        self.hint(NodesCounted(2))
        self.change()
        self.assertEqual(len(self.called()), 2)
        self.notifier.release()
        self.advance(2)
        self.assertEqual((sorted(self.called()), self.waiting()), (sorted(urls), {}))

    def test_nothing_is_begun_or_recorded_after_the_claims_are_lost(self) -> None:
        urls = self.subscribe_many(6)
        self.notifier.holds = set(urls)
        self.start_walk(in_flight=2, max_slow=0)
        self.assertEqual(len(self.called()), 2)
        self.free_claims()
        self.patch(self.store, "claim_fanouts", lambda keys: succeed([]))  # others are quicker
        self.hint(ClaimsLost())
        self.notifier.end()
        self.advance(1)
        self.assertEqual(len(self.called()), 2)
        self.assertEqual([one.cursor for one in self.walks()], [0])
        self.assertEqual(self.waiting(), {})

    def test_retries_are_not_made_after_the_claims_are_lost(self) -> None:
        urls = self.subscribe_many(4)
        self.fail_all(urls)
        self.notifier.holds = set(urls)
        before = len(self.called())
        self.advance(6)
        begun = self.called()[before:]
        self.assertEqual(len(begun), 2, "the others wait in memory")
        self.free_claims()
        self.patch(self.store, "claim_due", lambda now, limit, busy: succeed([]))
        self.hint(ClaimsLost())
        waiting = self.waiting()
        self.notifier.end()
        self.advance(1)
        self.assertEqual(self.called()[before:], begun)
        self.assertEqual(self.waiting(), waiting, "nothing is recorded")

    def test_retries_that_were_claimed_when_the_claims_are_lost_are_claimed_anew(self) -> None:
        urls = self.subscribe_many(2)
        self.fail_all(urls)
        self.notifier.outcomes.clear()
        before = len(self.called())
        release = self.hold_a_claim(6)  # and the process stands still meanwhile
        self.free_claims()
        self.hint(ClaimsLost())
        self.store.register()
        release()
        self.assertEqual(len(self.called()), before, "another node may have claimed them")
        self.advance(2)
        self.assertEqual(sorted(self.called()[before:]), sorted(urls))
        self.assertEqual(self.waiting(), {})

    def test_change_that_another_node_finds_during_a_call_is_notified_of_after_it(self) -> None:
        self.change_elsewhere_during_a_retry(1)

    def test_such_a_change_is_not_forgotten_if_it_is_claimed_during_the_call(self) -> None:
        self.change_elsewhere_during_a_retry(8)

    def test_change_of_which_another_node_could_not_notify_meanwhile(self) -> None:
        (url,) = self.subscribe_many(1)
        self.notifier.holds = {url}
        self.start_walk()
        self.advance(1)
        self.assertEqual(self.waiting(), {url: 0})
        (one,) = self.subscriptions()
        now = self.clock.wall_seconds()
        failed = Delivery(one, REFUSED, now, attempts=1, retry_at=now + 2)
        record = partial(record_deliveries, deliveries=[failed], node=0)
        self.successResultOf(self.store._database.write(record))
        self.advance(6)
        self.assertEqual(self.called(), [url])
        self.notifier.release()
        self.advance(10)
        self.assertEqual((self.called(), self.waiting()), ([url] * 2, {}))

    def change_elsewhere_during_a_retry(self, seconds: float) -> None:
        """Another node finds a change during a call, which takes some more seconds."""
        urls = self.subscribe_many(1)
        self.fail_all(urls)
        self.notifier.outcomes.clear()
        self.notifier.holds = set(urls)
        self.advance(6)
        self.assertEqual(self.called(), urls * 2)
        (one,) = self.subscriptions()
        news = merged_change(one, self.clock.wall_seconds(), 5.0)
        record = partial(record_deliveries, deliveries=[news], node=0)
        self.successResultOf(self.store._database.write(record))
        self.advance(seconds)
        self.assertEqual(self.called(), urls * 2)
        self.notifier.release()
        self.advance(10)
        self.assertEqual((self.called(), self.waiting()), (urls * 3, {}))

    def fail_all(self, urls: list[str]) -> None:
        """Let all notifications of a change fail, so that they are tried again in 5 s."""
        self.notifier.outcomes = dict.fromkeys(urls, REFUSED)
        self.start_walk(in_flight=2, max_slow=0)
        self.advance(1)
        self.assertEqual(len(self.waiting()), len(urls))
