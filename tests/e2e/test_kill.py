"""A broker that is killed at random moments, again and again, keeps its word.

Several feeds are changed and pinged all the time.  *Patient* publishers wait
until all subscribers have been told before they change their feed again, so
that no notification can stand for a lost one; the others change their feeds
while the subscribers are still being notified of the change before.
"""

from __future__ import annotations

import time
from collections import Counter
from random import Random
from threading import Condition, Event

from attrs import frozen

from rsscloud_broker.delivery.walk import SAVE_AT_OUTCOMES
from rsscloud_broker.model import Callback
from rsscloud_broker.storage import open_database, sweep_database
from rsscloud_broker.storage.subscriptions import remove_subscription
from tests import examples
from tests.e2e.fixture import TIMEOUT, EndToEndTestCase, until
from tests.e2e.many import ManyServers, Subscriber
from tests.e2e.publishing import (
    Feed,
    Ping,
    Publishers,
    by_rest,
    by_weblog_updates,
    by_xmlrpc,
    subscribe_all,
)

HOUR = 3600

KILLS = examples(8)
SEED = 20020901

#: So many notifications of a topic come twice after a kill, on the average: those whose outcomes
#: were not saved yet, and those that were under way.
TWICE = SAVE_AT_OUTCOMES

#: Options of the distribution: so few are under way that a kill is in the middle of a walk.
CONFIGURATION = "[sinks.distribution]\nslice_size = 25\nin_flight = 20\n"

#: Subscribers of a feed that has many.
MANY = 50

#: Subscribers are spread over so many addresses.
HOSTS = 12


@frozen
class Plan:
    """A feed of the test."""

    path: str
    subscribers: int
    ping: Ping
    patient: bool


PLANS = (
    Plan("/many.xml", 300, by_rest, patient=True),
    Plan("/several.xml", 120, by_weblog_updates, patient=True),
    Plan("/few.xml", 3, by_xmlrpc, patient=True),
    Plan("/restless.xml", 200, by_rest, patient=False),
    Plan("/busy.xml", 60, by_weblog_updates, patient=False),
)


class Countdown:
    """Counts things down to a moment, which may be waited for."""

    def __init__(self) -> None:
        self._left = 0
        self._over = Event()

    def begin(self, number: int) -> None:
        self._over.clear()
        self._left = number
        if not number:
            self._over.set()

    def tick(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._over.set()

    def wait(self, what: str) -> None:
        if not self._over.wait(TIMEOUT):
            raise AssertionError(f"{self._left} more {what} did not come in {TIMEOUT:g} s")


class RepeatedKillTests(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.random = Random(SEED)
        self.heard = Condition()
        self.acknowledgements, self.notifications = Countdown(), Countdown()
        self.calls: Counter[str] = Counter()
        self.calls_of_ended: dict[str, int] = {}
        self.servers = ManyServers()
        self.servers.start()
        self.addCleanup(self.servers.stop)
        self.broker = self.own_broker(CONFIGURATION)
        hosts = [
            self.servers.listen(f"127.0.1.{number}", lambda: Subscriber(self.hear))
            for number in range(1, HOSTS + 1)
        ]
        refusing = self.servers.listen("127.0.1.100", lambda: Subscriber(self.refuse))
        self.feeds: dict[str, Feed] = {}
        origin = self.origin()
        for plan in PLANS:
            callbacks = [f"{hosts[n % HOSTS]}{plan.path}/{n}" for n in range(plan.subscribers)]
            feed = Feed(origin, plan.path, plan.ping, callbacks, self.heard)
            self.feeds[feed.url] = feed
            subscribe_all(self.broker, feed.url, callbacks)
        # These are dropped by a sweep: the leases of some end, others are dropping.
        topic = next(iter(self.feeds))
        expiring = [f"{hosts[0]}/expiring/{number}" for number in range(20)]
        dropping = [f"{refusing}/dropping/{number}" for number in range(5)]
        subscribe_all(self.broker, topic, expiring, lease_seconds=HOUR)
        subscribe_all(self.broker, topic, dropping, consecutive_errors=3, dropping=True)
        self.ending = [*expiring, *dropping]

    def hear(self, callback: str, topic: str) -> int:
        with self.heard:
            self.calls[callback] += 1
            self.feeds[topic].hear(callback)
            self.notifications.tick()
            self.heard.notify_all()
        return 200

    def refuse(self, callback: str, topic: str) -> int:
        with self.heard:
            self.calls[callback] += 1
        return 500

    def test_nothing_is_lost_and_little_comes_twice(self) -> None:
        publishers = Publishers(self.broker, self.heard, self.acknowledgements.tick)
        try:
            for plan, feed in zip(PLANS, self.feeds.values(), strict=True):
                publishers.publish(feed, feed.told_all if plan.patient else feed.told_some)
            for number in range(KILLS):
                self.live_for_a_while(publishers)
                if number == KILLS // 2:
                    self.sweep()
                else:
                    self.cancel_some()
            self.broker.start()
            publishers.up.set()
            # On a busy machine the kills may have left somebody no time for a second ping.
            with self.heard:
                self.heard.wait_for(self.have_all_published_twice, TIMEOUT)
        finally:
            publishers.finish()
        with self.heard:
            self.heard.wait_for(lambda: not self.untold(), TIMEOUT)
        self.assertEqual(self.untold(), {}, "not notified of a change that was acknowledged")
        self.broker.restart()
        self.assert_recorded()
        self.assert_all_told()
        self.assert_ended_hear_nothing()
        self.assert_little_came_twice()

    def have_all_published_twice(self) -> bool:
        return all(len(feed.acknowledged) > 1 for feed in self.feeds.values())

    def untold(self) -> dict[str, set[str]]:
        return {feed.path: feed.untold for feed in self.feeds.values() if feed.untold}

    def live_for_a_while(self, publishers: Publishers) -> None:
        """Start the broker, and kill it at a random moment; it is gone after this."""
        self.broker.start()
        if self.random.random() < 0.3:
            countdown, number = self.acknowledgements, self.random.randint(0, 12)
        else:
            countdown, number = self.notifications, self.random.randint(1, 500)
        countdown.begin(number)
        publishers.up.set()
        try:
            countdown.wait("acknowledgements or notifications")
        finally:
            publishers.up.clear()
            self.broker.kill()
        self.servers.drain()

    def cancel_some(self) -> None:
        """Take back some subscriptions of a feed that has many."""
        many = [feed for feed in self.feeds.values() if len(feed.seen) > MANY]
        feed = self.random.choice(many)
        for callback in self.random.sample(sorted(feed.seen), 3):
            with open_database(self.broker.database) as connection:
                remove_subscription(connection, feed.url, Callback(callback, "http-post"))
            feed.forget(callback)
            self.calls_of_ended[callback] = self.calls[callback]

    def sweep(self) -> None:
        """What the top of an hour does, two hours from now."""
        swept = sweep_database(self.broker.database, time.time() + 2 * HOUR, 0)
        self.assertEqual(swept.expired + swept.failing, len(self.ending))
        self.calls_of_ended |= {callback: self.calls[callback] for callback in self.ending}

    def assert_recorded(self) -> None:
        """Each acknowledged ping is in ``changes.xml`` and in the archive of its hour, once."""
        wanted = Counter[str]()
        for feed in self.feeds.values():
            if feed.ping is by_weblog_updates:
                wanted.update(feed.acknowledged)
            else:  # one of an unchanged feed makes no record
                wanted[feed.url] = feed.version
        until(lambda: wanted <= self.listed(), "all acknowledged pings in changes.xml")
        records = self.broker.change_list()
        listed = Counter(record["name"] for record in records)
        self.assertEqual({name: listed[name] for name in wanted}, wanted)
        self.broker.stop()
        self.broker.start(ahead=HOUR)
        hours = {record["ts"][:13] for record in records}
        until(lambda: self.broker.archived(hours) == listed, "the same in the archives")

    def listed(self) -> Counter[str]:
        return Counter(record["name"] for record in self.broker.change_list())

    def assert_all_told(self) -> None:
        """Everybody saw every version that was acknowledged, or a later one."""
        for plan, feed in zip(PLANS, self.feeds.values(), strict=True):
            self.assertGreater(len(feed.acknowledged), 1)
            for callback, seen in feed.seen.items():
                self.assertEqual(max(seen), feed.version, callback)
                if plan.patient:
                    self.assertEqual(set(seen), set(range(1, feed.version + 1)), callback)

    def assert_ended_hear_nothing(self) -> None:
        """No notification to a subscription after it was cancelled, or dropped by a sweep."""
        calls = {callback: self.calls[callback] for callback in self.calls_of_ended}
        self.assertEqual(calls, self.calls_of_ended)

    def assert_little_came_twice(self) -> None:
        for feed in self.feeds.values():
            twice = sum(max(0, len(seen) - feed.version) for seen in feed.seen.values())
            self.assertLessEqual(twice, KILLS * min(TWICE, len(feed.seen)), feed.path)
