"""Brokers lose nothing, however often they are killed, stopped and cut off.

Brokers are killed or stand still at random moments, and the database crashes, while publishers
ping by every protocol, and subscribers of every protocol come and go.  The seed chooses the moments
of the faults; ``make faults`` tries several seeds.  Here are three brokers on one PostgreSQL; for
one alone on SQLite see `tests.e2e.test_kill`.

The next fault waits until subscribers were notified of something, and until none waits for long.
So a slow machine makes the test take longer, and not another test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle
from random import Random
from threading import Condition, Event
from typing import ClassVar

from attrs import define, field, frozen
from sqlalchemy import func, select, text
from twisted.logger import Logger

from rsscloud_broker.delivery.walk import SAVE_AT_OUTCOMES
from rsscloud_broker.errors import StoreUnavailable
from rsscloud_broker.model import Callback
from rsscloud_broker.storage import open_database
from rsscloud_broker.storage.nodes import database_clock
from rsscloud_broker.storage.schema import fanout, pending
from rsscloud_broker.storage.schema import node as node_rows
from rsscloud_broker.storage.schema import slice_ as slices
from rsscloud_broker.storage.subscriptions import remove_subscription
from tests.e2e.database_server import DatabaseServer
from tests.e2e.every_protocol import (
    NAMED,
    PLAIN,
    PROTOCOLS,
    Call,
    ManySubscribers,
    Ping,
    Reply,
    procedure,
    subscribing,
    unsubscribing,
)
from tests.e2e.fixture import TIMEOUT, EndToEndTestCase, until
from tests.e2e.servers import Origin
from tests.e2e.test_cluster import Node

log = Logger()

#: Sets the clock of the database forward.
NEXT_HOUR = (
    "CREATE SCHEMA later; CREATE FUNCTION later.clock_timestamp() RETURNS timestamptz LANGUAGE sql "
    "AS 'SELECT pg_catalog.clock_timestamp() + interval ''1 hour'''"
)

SEED = int(os.environ.get("FAULTS_SEED", "20020901"))

#: How many notifications are under way at a node.
IN_FLIGHT = 20

#: So many notifications come twice after a fault, on the average and at most: those under way, and
#: those whose outcomes were not saved yet.
TWICE = IN_FLIGHT + SAVE_AT_OUTCOMES

#: Among the seconds for which a node stands still: it is killed.
KILL = 0.0

#: Seconds in which everybody has been told, however many faults there were meanwhile.
TOLD_WITHIN = 4 * TIMEOUT

#: Subscribers are spread over so many addresses.
HOSTS = 12

#: There is no further fault while somebody waits for longer than this many seconds to be notified
#: of a change.  On a slow machine, nodes would else be killed again before they can do anything.
LATE_AFTER = 30.0

#: A subscriber that has just ended may still hear of a change that came before, for this many
#: seconds after the end, or after the node that has it to do went on.
LATE = 2.0

#: What a node tries when it ends counts against it, and after three ends it is left alone for an
#: hour.  Here it is never the reason: before each fault it counts as one end.
FORGIVE = "UPDATE suspect SET ends = 1 WHERE ends > 1"


@frozen
class Plan:
    """A feed of the test.

    :ivar subscribers: how many there are at first.
    :ivar named: whether each ping makes a record of its own.
    :ivar patient: whether all subscribers must have been told of a change before the next one.
    """

    path: str
    subscribers: int
    named: bool
    patient: bool = True

    @property
    def pings(self) -> Iterable[Ping]:
        return (NAMED if self.named else PLAIN).values()


PLANS = (
    Plan("/cloud.xml", 120, named=False),
    Plan("/many.xml", 300, named=True),
    Plan("/coming.xml", 40, named=True),
    Plan("/restless.xml", 150, named=True, patient=False),
    Plan("/busy.xml", 40, named=False, patient=False),
)


@define
class Subscriber:
    """A subscription, and the versions of its feed when it was notified.

    :ivar since: the version of the feed when it began.
    :ivar ended_at: when it ended, by the monotonic clock; None if it has not.
    :ivar last: the version of the feed then.
    :ivar stays: whether it must not end.
    """

    callback: str
    since: int
    seen: list[int] = field(factory=list)
    ended_at: float | None = None
    last: int = 0
    stays: bool = False


class Feed:
    """A feed that is changed and pinged, and its subscribers.

    :ivar version: how often it was changed.
    :ivar acknowledged: the versions and the names of the pings that were acknowledged.
    :ivar subscribers: those who are to be notified.
    :ivar untold: callbacks that were not notified since the last change.
    :ivar waits_since: when the ping of the last change was acknowledged; None if it is not yet.
    """

    def __init__(self, plan: Plan, origin: Origin, callbacks: list[str], lock: Condition) -> None:
        self.plan = plan
        self.url = origin.feed(plan.path)
        self.version = 0
        self.acknowledged: list[tuple[int, str]] = []
        self.subscribers = {callback: Subscriber(callback, 0) for callback in callbacks}
        self.untold: set[str] = set()
        self.waits_since: float | None = None
        self._origin = origin
        self._lock = lock

    def change(self) -> None:
        with self._lock:
            self.version += 1
            self._origin.feed(self.plan.path, f"<ttl>{self.version}</ttl>")
            self.untold = set(self.subscribers)

    def hear(self, callback: str) -> None:
        if one := self.subscribers.get(callback):
            one.seen.append(self.version)
            self.untold.discard(callback)

    @property
    def acknowledged_versions(self) -> set[int]:
        return {version for version, _ in self.acknowledged}

    @property
    def is_late(self) -> bool:
        """Whether somebody waits for long to be notified of an acknowledged change."""
        waits = self.untold and self.waits_since is not None and not self.is_ready
        return bool(waits) and time.monotonic() - (self.waits_since or 0.0) > LATE_AFTER

    @property
    def is_ready(self) -> bool:
        """Whether the last change has gone far enough for the next one."""
        return not self.untold or (
            not self.plan.patient and len(self.untold) < len(self.subscribers)
        )


class FaultsTestCase(EndToEndTestCase):
    """
    :cvar lives: what happens to each of the nodes in turn: it is killed, or stands still for this
        many seconds.  After 8 s without a heartbeat the others take its work over.
    :cvar crashes: how often the database crashes, and for how many seconds it is gone then.
    """

    lives: ClassVar[tuple[tuple[float, ...], ...]]
    crashes: ClassVar[tuple[float, ...]] = ()

    def make_database(self) -> str:
        """Make the database of all nodes; its URL."""
        raise NotImplementedError

    def crash_database(self, seconds: float) -> None:
        raise NotImplementedError

    def start_next_hour(self, node: Node) -> None:
        """Start a node whose clock says that an hour has gone by."""
        raise NotImplementedError

    def setUp(self) -> None:
        super().setUp()
        self.random = Random(SEED)
        self.lock = Condition()
        self.over = Event()
        self.replies: Counter[str] = Counter()
        self.refused: list[str] = []
        self.events = 0
        self.ended: dict[str, Subscriber] = {}
        self.called_late: list[str] = []
        self.went_on_at: list[tuple[float, float]] = []
        servers = self.served(ManySubscribers())
        self.hosts = [
            servers.listen(f"127.0.1.{number}", self.hear) for number in range(1, HOSTS + 1)
        ]
        url = self.make_database()
        self.nodes = [self.owned(Node(self.directory(), url, IN_FLIGHT)) for _ in self.lives]
        origin = self.origin()
        self.numbers = iter(range(1_000_000))
        self.feeds: dict[str, Feed] = {}
        for plan in PLANS:
            callbacks = {protocol: self.callbacks(protocol, plan) for protocol in PROTOCOLS}
            every = [one for some in callbacks.values() for one in some]
            feed = Feed(plan, origin, every, self.lock)
            self.feeds[feed.url] = feed
            for protocol, some in callbacks.items():
                more = {"wants_content": protocol == "websub", "procedure": procedure(protocol)}
                self.nodes[0].subscribe_all(feed.url, some, protocol=protocol, **more)

    def callbacks(self, protocol: str, plan: Plan) -> list[str]:
        """Callbacks of a protocol for a feed; most are of http-post."""
        share = 0.7 if protocol == "http-post" else 0.1
        return [self.callback(protocol) for _ in range(round(plan.subscribers * share))]

    def callback(self, protocol: str) -> str:
        number = next(self.numbers)
        return f"{self.hosts[number % len(self.hosts)]}/{protocol}/{number}"

    # --- what subscribers hear, and publishers say

    def hear(self, callback: str, topic: str, body: bytes) -> None:
        with self.lock:
            self.events += 1
            if one := self.ended.get(callback):
                self.note_late(one, topic, body)
            self.feeds[topic].hear(callback)
            self.lock.notify_all()

    def note_late(self, one: Subscriber, topic: str, body: bytes) -> None:
        """Note a call to a subscriber that has ended, unless it may have been under way then."""
        assert one.ended_at is not None
        if body.startswith(b"<?xml") and b"<rss" in body:
            version = int(body.partition(b"<ttl>")[2].partition(b"<")[0])
            if version > one.last:
                self.called_late.append(f"{one.callback}, of version {version} after {one.last}")
            return
        now = time.monotonic()
        begin = [one.ended_at, *(then for since, then in self.went_on_at if since < one.ended_at)]
        if min(now - then for then in begin) > LATE:
            self.called_late.append(f"{one.callback}, {now - one.ended_at:.1f} s after its end")

    def insist(self, make: Callable[[], Call], source: str = "127.0.0.1") -> int | None:
        """Ask one broker after the other until one accepts the call.

        :returns: how many have not answered; None if the test is over.
        """
        silent = 0
        for node in cycle(self.random.sample(self.nodes, len(self.nodes))):
            if self.over.is_set():
                return None
            reply = make().send(node.port, source)
            if reply is not None and reply.accepted:
                return silent
            silent += reply is None
            self.note_refusal(reply)
            time.sleep(0.2)
        raise AssertionError("there are nodes")

    def note_refusal(self, reply: Reply | None) -> None:
        self.replies["none" if reply is None else str(reply.status)] += 1
        if reply is not None and not reply.says_try_again:
            self.refused.append(f"{reply.status}: {reply.text[:300]}")

    def publish(self, feed: Feed) -> None:
        """Change a feed and ping until it is acknowledged, again and again."""
        for ping_by in cycle(feed.plan.pings):
            if self.over.is_set():
                return
            feed.change()
            names: list[str] = []

            def named(ping_by: Ping = ping_by, names: list[str] = names) -> Call:
                names.append(f"{feed.plan.path} {feed.version}.{len(names)}")
                return ping_by(feed.url, names[-1])

            if self.insist(named) is None:
                return
            feed.acknowledged.append((feed.version, names[-1]))
            with self.lock:
                feed.waits_since = time.monotonic()
                if not self.lock.wait_for(lambda: self.over.is_set() or feed.is_ready, TOLD_WITHIN):
                    raise AssertionError(
                        f"{feed.plan.path}, version {feed.version}, was acknowledged; these were "
                        f"not notified: {sorted(feed.untold)[:10]}\n{self.state()}"
                    )
            self.over.wait(0.4)

    def come_and_go(self, feed: Feed) -> None:
        """Subscribe and unsubscribe again and again."""
        for protocol in cycle(PROTOCOLS):
            callback = self.callback(protocol)
            source = callback.partition("//")[2].partition(":")[0]
            silent = self.insist(lambda: subscribing(protocol, callback, feed.url), source)  # noqa: B023
            if silent is None:
                return
            # One that has not answered yet may take the call in later, and subscribe it again.
            with self.lock:
                one = Subscriber(callback, feed.version, stays=silent > 0)
                feed.subscribers[callback] = one
            self.over.wait(0.5)
            of_protocol = [one for one in feed.subscribers if f"/{protocol}/" in one]
            may_end = [one for one in of_protocol if not feed.subscribers[one].stays]
            if not may_end:
                continue
            ending = self.random.choice(may_end)
            with self.lock:
                one = feed.subscribers.pop(ending)
                feed.untold.discard(ending)
                self.lock.notify_all()
            if protocol == "websub":
                self.insist(lambda: unsubscribing(ending, feed.url))  # noqa: B023
            elif not self.removed(feed, ending, protocol):
                return
            with self.lock:
                one.ended_at, one.last = time.monotonic(), feed.version
                self.ended[ending] = one

    def removed(self, feed: Feed, callback: str, protocol: str) -> bool:
        """End a subscription of rssCloud, which has no call for that."""
        while not self.over.is_set():
            try:
                with open_database(self.nodes[0].database) as connection:
                    where = Callback(callback, protocol, procedure(protocol))
                    remove_subscription(connection, feed.url, where)
                return True
            except Exception:
                time.sleep(0.1)
        return False

    # --- faults

    def live(self, node: Node, number: int) -> None:
        """Let a node live, and kill it or stop it for a while, again and again."""
        random = Random(SEED + number)
        for seconds in self.lives[number]:
            self.wait_for_events(random.randint(0, 250))
            if self.over.is_set():
                return
            # The database may have crashed too.
            with contextlib.suppress(StoreUnavailable), open_database(node.database) as connection:
                connection.execute(text(FORGIVE))
            if seconds == KILL:
                node.kill()
                self.revive(node)
            else:
                self.stand_still(node, seconds)

    def wait_for_events(self, number: int) -> None:
        """Wait until subscribers were notified so often, and none waits for long."""
        with self.lock:
            wanted = self.events + number
            while not self.over.is_set() and (self.events < wanted or self.is_late):
                self.lock.wait(0.5)

    @property
    def is_late(self) -> bool:
        return any(feed.is_late for feed in self.feeds.values())

    def revive(self, node: Node) -> None:
        """Start a node as systemd does: again, if the database cannot be used yet."""
        while not self.over.is_set():
            before = len(node.log)
            try:
                node.start()
                return
            except AssertionError:
                if "the database cannot be used" not in node.log[before:]:
                    raise
                time.sleep(0.1)

    def stand_still(self, node: Node, seconds: float) -> None:
        node.signal(signal.SIGSTOP)
        since = time.monotonic()
        self.over.wait(seconds)
        self.went_on_at.append((since, time.monotonic()))
        node.signal(signal.SIGCONT)

    def crash_until_over(self, faults: list[Future[None]], working: list[Future[None]]) -> None:
        """Crash the database now and then, until all faults have happened or something fails.

        A server of this test ends with the thread that started it: this must be the main one.
        """
        random = Random(SEED - 1)
        crashes = list(self.crashes)
        crash_at = random.randint(300, 1500)
        give_up_at = time.monotonic() + 15 * TIMEOUT
        while crashes or not all(one.done() for one in faults):
            for one in (*faults, *working):
                if one.done():
                    one.result()
            self.assertLess(time.monotonic(), give_up_at, "the faults take too long")
            if crashes and self.events > crash_at:
                self.crash_database(crashes.pop())
                crash_at = self.events + random.randint(300, 1500)
            time.sleep(0.05)

    def check_nothing_is_lost(self) -> None:
        for node in self.nodes:
            node.start()
        with ThreadPoolExecutor(max_workers=16) as pool:
            working: list[Future[None]] = [
                pool.submit(self.publish, feed) for feed in self.feeds.values()
            ]
            coming = [feed for feed in self.feeds.values() if feed.plan.path == "/coming.xml"]
            working += [pool.submit(self.come_and_go, *coming)]
            faults = [
                pool.submit(self.live, node, number) for number, node in enumerate(self.nodes)
            ]
            try:
                self.crash_until_over(faults, working)
                # On a busy machine the faults may have left somebody no time for a second ping.
                until(self.have_all_published_twice, "a second ping of each feed")
            finally:
                self.over.set()
                with self.lock:
                    self.lock.notify_all()
            for one in (*faults, *working):
                one.result()
        with self.lock:
            self.lock.wait_for(lambda: not self.untold(), TOLD_WITHIN)
        self.assertEqual(self.untold(), {}, "not notified of a change that was acknowledged")
        until(lambda: not self.left_to_do(), "all outcomes to be saved")
        log.info("Not accepted: {replies}", replies=self.replies)
        self.assert_all_told()
        self.assertEqual(self.called_late, [])
        self.assertEqual(self.refused, [])
        self.assert_little_came_twice()
        self.assert_recorded()

    def have_all_published_twice(self) -> bool:
        return all(len(feed.acknowledged_versions) > 1 for feed in self.feeds.values())

    def untold(self) -> dict[str, set[str]]:
        """Who was not notified of the last change of each feed, if that was acknowledged."""
        return {
            feed.plan.path: feed.untold
            for feed in self.feeds.values()
            if feed.untold and feed.acknowledged[-1][0] == feed.version
        }

    def state(self) -> str:
        """The rows that say who works on what."""
        with open_database(self.nodes[0].database, writes=False) as connection:
            clock = connection.execute(select(database_clock(connection))).scalar_one()
            rows = [
                str(dict(row._mapping))
                for table in (node_rows, fanout, slices, pending)
                for row in connection.execute(select(table))
            ]
        return "\n".join([f"at {clock}", *rows])

    def left_to_do(self) -> int:
        """How many fan-outs and notifications are not over."""
        with open_database(self.nodes[0].database, writes=False) as connection:
            counts = [
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (fanout, pending)
            ]
        return sum(counts)

    def assert_recorded(self) -> None:
        """Each acknowledged ping is in ``changes.xml`` and in the archive of its hour, once."""
        for node in self.nodes:
            node.stop()
        node = self.nodes[0]
        self.start_next_hour(node)
        wanted: set[str] = set()
        for feed in self.feeds.values():
            if feed.plan.named:
                wanted.update(name for _, name in feed.acknowledged)
        until(lambda: wanted <= self.listed(node).keys(), "all acknowledged pings in changes.xml")
        listed = self.listed(node)
        self.assertEqual({listed[name] for name in wanted}, {1})
        for feed in self.feeds.values():
            if not feed.plan.named:  # one of an unchanged feed makes no record
                # Changes that come while a fetch waits share one.  Nobody waits for the last one
                # before the next change of an impatient feed.
                least = len(feed.acknowledged) if feed.plan.patient else 1
                self.assertLessEqual(least, listed[feed.url], f"too few of {feed.plan.path}")
                self.assertLessEqual(
                    listed[feed.url], feed.version, f"too many of {feed.plan.path}"
                )
        hours = {record["ts"][:13] for record in node.change_list()}
        until(lambda: node.archived(hours) == listed, "the same in the archives")

    def listed(self, node: Node) -> Counter[str]:
        return Counter(record["name"] for record in node.change_list())

    def assert_all_told(self) -> None:
        """Everybody saw every version that was acknowledged; of a restless feed, or a later one."""
        for feed in self.feeds.values():
            acknowledged = feed.acknowledged_versions
            self.assertGreater(len(acknowledged), 1, feed.plan.path)
            for one in feed.subscribers.values():
                wanted = {version for version in acknowledged if version > one.since}
                if feed.plan.patient:
                    self.assertLessEqual(wanted, {*one.seen}, one.callback)
                elif wanted:
                    self.assertGreaterEqual(max(one.seen, default=0), max(wanted), one.callback)

    def assert_little_came_twice(self) -> None:
        """Duplicates are those under way, or not saved yet, at the nodes that had the walks."""
        duplicates = 0
        for feed in self.feeds.values():
            if not feed.plan.patient:
                continue  # a second call there may be of the next version
            twice = sum(len(one.seen) - len({*one.seen}) for one in feed.subscribers.values())
            told = sum(len(one.seen) for one in feed.subscribers.values())
            log.info("{path}: {told} told, {twice} twice", path=feed.url, told=told, twice=twice)
            duplicates += twice
        self.assertLessEqual(duplicates, sum(map(len, self.lives)) * TWICE)


class ClusterFaultsTests(FaultsTestCase):
    """Three brokers on one PostgreSQL, which crashes too."""

    lives = (
        (KILL, KILL, 1.0, KILL, KILL, 10.0, KILL, KILL, KILL, KILL, 0.3, KILL),
        (KILL, 0.5, KILL, KILL, KILL, KILL, KILL, 9.0, KILL, KILL, KILL, 2.0),
        (KILL, 30.0, KILL, KILL, KILL, KILL, KILL, KILL),
    )
    crashes = (0.0, 1.5, 0.0, 0.5, 0.0)

    def make_database(self) -> str:
        self.server = DatabaseServer.make(self)
        return self.server.url("broker")

    def crash_database(self, seconds: float) -> None:
        self.server.restart(seconds)

    def start_next_hour(self, node: Node) -> None:
        """Set the clock of the database forward, by which all nodes go."""
        self.server.run(NEXT_HOUR, "broker")
        self.server.run("ALTER DATABASE broker SET search_path = later, pg_catalog, public")
        node.start()

    def test_nothing_is_lost(self) -> None:
        self.check_nothing_is_lost()
