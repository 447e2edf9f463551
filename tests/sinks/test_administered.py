"""Distribution does what administrators ask: closed breakers, blocked hosts, redelivery."""

from __future__ import annotations

from rsscloud_broker.events import HostFreed
from rsscloud_broker.model import Exchange, Outcome
from rsscloud_broker.model.administration import Block, Change
from tests.delivery.engine import NO_ANSWER, REFUSED, EngineTestCase

HOST = "reader.example"
URL = f"http://{HOST}/0"


class AdministeredTests(EngineTestCase):
    def change_by(self, verb: str, what: str) -> Change:
        return Change("alice", verb, what, "", self.clock.wall_seconds())

    def block(self, *hosts: str) -> None:
        self.blocks.change([Block("host", host, "spam", "alice", 1000.0) for host in hosts])

    def blocked(self, *hosts: str) -> None:
        """Start, block hosts, and announce a change, of which they are not notified."""
        self.start()
        self.block(*hosts)
        self.change()
        self.advance(10)

    def open_breaker(self) -> list[str]:
        urls = self.subscribe_many(8, host=HOST)
        self.start()
        self.notifier.outcomes[HOST] = NO_ANSWER
        self.change()
        self.advance(3)
        self.assertEqual(self.count("open_breakers"), 1.0)
        self.notifier.outcomes.clear()
        self.notifier.calls.clear()
        return urls

    def test_waiting_notifications_go_out_when_the_breaker_is_closed(self) -> None:
        urls = self.open_breaker()
        self.advance(1)
        self.assertEqual(self.called(), [])
        change = self.change_by("close breaker", HOST)
        self.successResultOf(self.store.close_breaker(HOST, change))
        self.hint(HostFreed(HOST))
        self.advance(1)
        self.assertEqual(sorted(self.called()), sorted(urls))
        self.assertEqual((self.waiting(), self.count("open_breakers")), ({}, 0.0))
        self.assertEqual(self.successResultOf(self.store.hosts()), [])

    def test_the_breaker_of_a_port_is_closed_too(self) -> None:
        urls = self.subscribe_many(8, host=f"{HOST}:8000")
        for one in self.subscriptions():  # the fast insert knows no ports
            self.successResultOf(self.store.put_subscription(one))
        self.start()
        refused = Outcome(False, "connection refused", answered=False, port_only=True)
        for url in urls:
            self.notifier.outcomes[url] = refused
        self.change()
        self.advance(3)
        self.assertEqual(self.count("open_breakers"), 1.0)
        self.notifier.outcomes.clear()
        self.hint(HostFreed(HOST))
        self.assertEqual(self.count("open_breakers"), 0.0)
        self.advance(2)
        self.assertEqual(self.successResultOf(self.store.hosts()), [])
        self.assertEqual(self.waiting(), {})

    def test_a_blocked_host_takes_no_notifications(self) -> None:
        other = self.subscribe("http://other.example/")
        self.subscribe(URL)
        self.blocked(HOST)
        self.assertEqual(self.called(), [other.callback.url])
        self.assertEqual(self.waiting(), {URL: 0})
        self.change()
        self.advance(4000, 60)  # longer than a notification is held back at a time
        self.assertEqual(set(self.called()), {other.callback.url})
        self.assertEqual(self.waiting(), {URL: 0})

    def test_a_blocked_host_is_told_when_the_block_is_lifted(self) -> None:
        self.subscribe(URL)
        change = self.change_by("block", f"host {HOST}")
        block = Block("host", HOST, "spam", "alice", 1000.0)
        self.successResultOf(self.store.put_block(block, 10, change))
        self.blocked(HOST)
        self.block()
        self.successResultOf(self.store.remove_block("host", HOST, change))
        self.hint(HostFreed(HOST))
        self.advance(1)
        self.assertEqual((self.called(), self.waiting()), ([URL], {}))

    def test_hosts_that_are_freed_while_the_store_is_away(self) -> None:
        other = self.subscribe("http://other.example/")
        self.subscribe(URL)
        hosts = (HOST, other.callback.host)
        self.blocked(*hosts)
        self._watch("make_due")
        self.block()
        self.unavailable.add("make_due")
        for host in hosts:
            self.hint(HostFreed(host))
        self.advance(5)
        self.assertEqual(self.called(), [])
        self.unavailable.clear()
        self.advance(11)
        self.assertEqual(sorted(self.called()), sorted([URL, other.callback.url]))

    def test_making_due_ends_with_the_service(self) -> None:
        self.start()
        self._watch("make_due")
        self.unavailable.add("make_due")
        self.hint(HostFreed(HOST))
        self.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_breaker_that_opened_after_its_host_was_freed_stays_open(self) -> None:
        self.open_breaker()
        self.hint(HostFreed(HOST, before_start=True))
        self.assertEqual(self.count("open_breakers"), 1.0)
        self.advance(5)
        self.assertEqual(self.called(), [])

    def test_a_block_stops_what_waits_for_a_slot(self) -> None:
        urls = self.subscribe_many(3, host=HOST)
        self.start(per_host=1)
        self.notifier.holds.add(urls[0])
        self.change()
        self.assertEqual(self.called(), urls[:1])
        self.block(HOST)
        self.notifier.end()
        self.advance(10)
        self.assertEqual(self.called(), urls[:1])
        self.assertEqual(set(self.waiting()), set(urls[1:]))

    def test_redelivery(self) -> None:
        one = self.subscribe(URL)
        self.start()
        self.notifier.outcomes[URL] = REFUSED
        self.change()
        self.advance(1)
        self.assertEqual(self.waiting(), {URL: 1})
        self.notifier.outcomes.clear()
        change = self.change_by("redeliver", str(one.id))
        self.successResultOf(self.store.redeliver(one.id, change))
        self.advance(2.5)
        self.assertEqual((self.called(), self.waiting()), ([URL, URL], {}))
        self.successResultOf(self.store.redeliver(one.id, change))  # though nothing waits
        self.advance(2.5)
        self.assertEqual((self.called(), self.waiting()), ([URL] * 3, {}))

    def test_exchanges_of_failures_are_stored(self) -> None:
        one = self.subscribe(URL)
        self.start()
        exchange = Exchange("POST", URL, {}, b"url=x", 500, {}, b"oops")
        self.notifier.outcomes[URL] = Outcome(False, "status 500", exchange=exchange)
        self.change()
        self.advance(7)  # the first attempt, and one more after five seconds
        found = self.successResultOf(self.store.subscription_details(one.id))
        self.assertEqual(
            [(each.attempt, each.reason, each.exchange) for each in found.failures],
            [(2, "status 500", exchange), (1, "status 500", exchange)],
        )
