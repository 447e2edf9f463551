"""Couriers that are killed or stopped at random moments, while they notify subscribers."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from random import Random
from threading import Condition

from tests import examples
from tests.e2e.every_protocol import ManySubscribers
from tests.e2e.fixture import (
    TIMEOUT,
    Broker,
    EndToEndTestCase,
    until,
)
from tests.processes import children_of, files_of

#: How many couriers are killed or stopped.
FAULTS = examples(50)
SEED = 20161124

#: In each of this many moments one is chosen in which couriers are stopped and not killed: it takes
#: five seconds until they count as dead.
STOPPED_ONE_IN = 4

#: How many notifications are under way at the same time: these, half as many for hosts that answer
#: quickly, and slow ones.
IN_FLIGHT, SLOW = 4, 40
UNDER_WAY = IN_FLIGHT * 3 // 2 + SLOW
COURIERS = 8
CONFIGURATION = (
    f"[delivery]\nprocesses = {COURIERS}\n[sinks.distribution]\nin_flight = {IN_FLIGHT}\n"
)
SUBSCRIBERS, HOSTS = 400, 24

#: Seconds until a test gives up: a courier may need most of a minute until it starts.
TOLD_WITHIN = 2 * TIMEOUT


def couriers_of(broker: Broker) -> list[int]:
    """The ids of a broker's couriers, which the process has started that the broker has started."""
    forked = [each for child in children_of(broker.pid) for each in children_of(child)]
    return [pid for pid in forked if status_of(pid).startswith("Name:\tcourier\n")]


def at_work(broker: Broker) -> list[int]:
    """The couriers of a broker that have loaded and confined themselves."""
    return [pid for pid in couriers_of(broker) if "NoNewPrivs:\t1" in status_of(pid)]


def ready(broker: Broker, count: int) -> list[int]:
    """The couriers of a broker, if so many are at work; else an empty list."""
    couriers = at_work(broker)
    return couriers if len(couriers) == count else []


def status_of(pid: int) -> str:
    """What the kernel says of a process; empty if there is none any more."""
    try:
        return Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def descriptors_of(broker: Broker) -> int:
    """How many descriptors a broker has open beside those of its data.

    Its threads open the database when they are needed first, which may be at any time.
    """
    return len(files_of(broker.pid)) - len(files_of(broker.pid, broker.data))


class KilledCouriersTests(EndToEndTestCase):
    """A feed, whose subscribers are at many addresses.

    :ivar count: how many notifications have arrived.
    :ivar seen: for each callback, the versions of the feed when it was notified.
    :ivar untold: callbacks that were not notified since the last change.
    """

    def setUp(self) -> None:
        super().setUp()
        self.random = Random(SEED)
        self.heard = Condition()
        self.count = self.version = 0
        self.broker = self.own_broker(CONFIGURATION)
        servers = self.served(ManySubscribers())
        hosts = [servers.listen(f"127.0.2.{number}", self.hear) for number in range(1, HOSTS + 1)]
        callbacks = [f"{hosts[n % HOSTS]}/http-post/{n}" for n in range(SUBSCRIBERS)]
        self.seen: dict[str, set[int]] = {callback: set() for callback in callbacks}
        self.untold: set[str] = set()
        self.publisher = self.origin()
        self.feed = self.publisher.feed()
        self.broker.subscribe_all(self.feed, callbacks)

    def hear(self, callback: str, topic: str, body: bytes) -> None:
        with self.heard:
            self.count += 1
            self.seen[callback].add(self.version)
            self.untold.discard(callback)
            self.heard.notify_all()

    def publish(self) -> None:
        """Change the feed, and ping."""
        with self.heard:
            self.version += 1
            self.publisher.change(self.feed)
            self.untold = set(self.seen)
        self.broker.ping(self.feed)

    def wait_for_more(self, number: int) -> bool:
        """Wait until so many more notifications have arrived, or all; whether some are missing."""
        with self.heard:
            wanted = self.count + number
            self.heard.wait_for(lambda: self.count >= wanted or not self.untold, TOLD_WITHIN)
            if self.count < wanted and self.untold:
                raise AssertionError(f"{wanted - self.count} notifications did not come")
            return bool(self.untold)

    def wait_for_all(self) -> None:
        """Wait until everybody is notified of the version that was published last."""
        with self.heard:
            self.heard.wait_for(lambda: not self.untold, TOLD_WITHIN)
            self.assertEqual(self.untold, set())

    def test_everybody_is_told(self) -> None:
        self.broker.start()
        self.publish()
        self.wait_for_all()
        until(lambda: ready(self.broker, COURIERS), "all couriers")
        open_before = descriptors_of(self.broker)
        faults = moments = 0
        while faults < FAULTS:
            self.publish()
            while faults < FAULTS and self.wait_for_more(self.random.randint(1, 50)):
                moments += 1
                faults += self.fault(is_stop=moments % STOPPED_ONE_IN == 0)
            self.wait_for_all()
        versions = set(range(1, self.version + 1))
        for callback, seen in self.seen.items():
            self.assertEqual(seen, versions, callback)
        twice = self.count - SUBSCRIBERS * len(versions)
        self.assertLessEqual(twice, moments * UNDER_WAY)
        until(lambda: len(couriers_of(self.broker)) == COURIERS, "all couriers to be replaced")
        until(lambda: descriptors_of(self.broker) <= open_before, "descriptors to be closed")

    def fault(self, *, is_stop: bool) -> int:
        """Stop or kill at least half of the couriers; how many."""
        # A new courier that is stopped before its first sign of life has a minute for that.
        choose = at_work if is_stop else couriers_of
        there = until(partial(choose, self.broker), "couriers")
        chosen = self.random.sample(there, self.random.randint((len(there) + 1) // 2, len(there)))
        for courier in chosen:
            os.kill(courier, signal.SIGSTOP if is_stop else signal.SIGKILL)
        return len(chosen)
