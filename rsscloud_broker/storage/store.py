"""The store, which the core and the sinks use: each method is one transaction on the database.

The SQL of the methods is in ``pings``, ``topics``, ``polls``, ``moves``, ``contents``,
``subscriptions``, ``intents``, ``walks``, ``deliveries``, ``nodes`` and ``due_times``.  ``threads``
and ``writer`` run the transactions outside the reactor's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from attrs import evolve
from sqlalchemy import Connection
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorFromThreads
from zope.interface import implementer

from rsscloud_broker.interfaces import IStore
from rsscloud_broker.model import (
    Callback,
    Content,
    FetchResult,
    Intent,
    Ping,
    Subscription,
    Topic,
    TopicStatus,
)
from rsscloud_broker.records import (
    Bounds,
    Check,
    Delivery,
    Fanout,
    FetchRecord,
    HostState,
    PingRecord,
    PollPlan,
    Recorded,
    Swept,
    WaitingIntent,
)
from rsscloud_broker.storage import (
    contents,
    due_times,
    intents,
    moves,
    nodes,
    pings,
    polls,
    subscriptions,
    topics,
    walks,
)
from rsscloud_broker.storage import deliveries as deliveries_
from rsscloud_broker.storage.engine import open_engine
from rsscloud_broker.storage.operations import Batched, Heavy, Operation
from rsscloud_broker.storage.schema import to_micros
from rsscloud_broker.storage.threads import StoreThreads, Threads


@implementer(IStore)
class Store(Service):
    """Implements ``IStore`` with an SQLite or PostgreSQL database.

    When it starts, it registers this process as the only node of the database: see ``nodes``.

    Use it between ``startService`` and ``stopService``.  The Deferred of ``stopService`` fires when
    all queued operations are on disk and the database is closed.

    :param reactor: the reactor in whose thread Deferreds fire.
    :param url: an SQLAlchemy database URL for which ``migrate`` was called.
    :param threads: runs the operations; by default threads of the store's own.
    :param bounds: limits on the data that callers can make the store keep.
    """

    name = "store"

    def __init__(
        self,
        reactor: IReactorFromThreads,
        url: str,
        threads: Threads | None = None,
        bounds: Bounds = topics.DEFAULT_BOUNDS,
    ) -> None:
        self._url = url
        self._bounds = bounds
        self._threads = threads or StoreThreads(reactor)
        self._node: int | None = None

    def startService(self) -> None:
        if not self.running:
            super().startService()
            self._threads.start(open_engine(self._url))
            # If this fails, the first operation that claims something registers the node.
            self._threads.write(self._registered).addErrback(lambda failure: None)

    def stopService(self) -> Deferred[None]:
        if not self.running:
            return succeed(None)
        super().stopService()
        return self._threads.stop()

    def _registered(self, conn: Connection) -> int:
        """Return the node id of this process, and register it if need be.

        Runs in the writer's thread.
        """
        self._node = nodes.registered(conn, self._node)
        return self._node

    def writes_waiting(self) -> int:
        """How many operations wait to be written."""
        return self._threads.writes_waiting()

    # pings

    def add_ping(self, ping: Ping, repeat_window: float) -> Deferred[PingRecord]:
        return self._threads.write(Batched(pings.add_pings, (ping, repeat_window)))

    def pings(
        self, since: float, until: float, before: Ping | None, limit: int
    ) -> Deferred[list[Ping]]:
        return self._threads.read(lambda conn: pings.pings(conn, since, until, before, limit))

    def count_pings(self) -> Deferred[int]:
        return self._threads.read(pings.count_pings)

    def ping_hours(self, since: float, until: float) -> Deferred[dict[int, int]]:
        return self._threads.read(lambda conn: pings.ping_hours(conn, since, until))

    def prune_pings(self, before: float) -> Deferred[int]:
        return self._threads.write(lambda conn: pings.prune_pings(conn, before))

    # topics

    def topic(self, url: str) -> Deferred[Topic | None]:
        return self._threads.read(Batched(topics.get_topics, url))

    def topic_status(self, url: str) -> Deferred[TopicStatus | None]:
        return self._threads.read(Batched(polls.accounts, url))

    def record_fetch(self, fetched: FetchResult, ping: Ping | None) -> Deferred[FetchRecord]:
        def recording(fetched: FetchResult) -> Operation[FetchRecord]:
            return lambda conn: topics.record_fetch(conn, fetched, ping, self._bounds)

        lean, whole = recording(evolve(fetched, content=None)), recording(fetched)
        return self._threads.write(Heavy(whole, lambda record: whole if record.stored else lean))

    def record_failure(self, url: str, at: float, reason: str) -> Deferred[None]:
        return self._threads.write(lambda conn: polls.record_failure(conn, url, at, reason))

    def record_feed(self, url: str, feed: Mapping[str, Any]) -> Deferred[None]:
        return self._threads.write(lambda conn: polls.record_feed(conn, url, feed))

    def move_topic(self, url: str, to: str, at: float) -> Deferred[bool]:
        return self._threads.write(lambda conn: moves.move_topic(conn, url, to, at))

    def polls_due(self, now: float, limit: int) -> Deferred[list[TopicStatus]]:
        return self._threads.read(lambda conn: polls.polls_due(conn, now, limit))

    def plan_polls(self, plans: Sequence[PollPlan]) -> Deferred[None]:
        return self._threads.write(lambda conn: polls.plan_polls(conn, plans))

    def checks_due(self, limit: int) -> Deferred[list[Check]]:
        return self._threads.read(lambda conn: topics.checks_due(conn, limit))

    def request_check(self, url: str, at: float, pinged: bool = False) -> Deferred[bool]:
        asked = topics.AskedCheck(url, to_micros(at), pinged)
        return self._threads.write(Batched(self._request_checks, asked))

    def _request_checks(self, conn: Connection, asked: Sequence[topics.AskedCheck]) -> list[bool]:
        return topics.request_checks(conn, asked, self._bounds)

    def request_content(self, url: str, at: float) -> Deferred[bool]:
        return self._threads.write(lambda conn: topics.request_content(conn, url, at))

    def drop_check(self, url: str, asked_until: float) -> Deferred[None]:
        return self._threads.write(lambda conn: topics.drop_check(conn, url, asked_until))

    def push_content(self, url: str, content: Content, at: float) -> Deferred[bool]:
        return self._threads.write(lambda conn: topics.push_content(conn, url, content, at))

    def content(self, key: int) -> Deferred[Content | None]:
        return self._threads.read(lambda conn: contents.get_content(conn, key))

    def newest_content(self, url: str) -> Deferred[Content | None]:
        return self._threads.read(lambda conn: contents.newest_content(conn, url))

    def end_topic(self, url: str, reason: str, at: float) -> Deferred[bool]:
        return self._threads.write(
            lambda conn: topics.end_topic(conn, url, reason, at, self._bounds)
        )

    def revive_topic(self, url: str) -> Deferred[bool]:
        return self._threads.write(lambda conn: topics.revive_topic(conn, url))

    def watched_topics(self, after: str, limit: int) -> Deferred[list[str]]:
        return self._threads.read(lambda conn: topics.watched_topics(conn, after, limit))

    # subscriptions

    def put_subscription(
        self, subscription: Subscription, known: bytes | None = None
    ) -> Deferred[Subscription]:
        return self._threads.write(
            lambda conn: subscriptions.put_subscription(conn, subscription, known)
        )

    def remove_subscription(self, topic: str, callback: Callback) -> Deferred[bool]:
        return self._threads.write(
            lambda conn: subscriptions.remove_subscription(conn, topic, callback)
        )

    def has_subscription(self, topic: str, callback: Callback) -> Deferred[bool]:
        return self._threads.read(
            lambda conn: subscriptions.has_subscription(conn, topic, callback)
        )

    def subscriptions(self, topic: str, after: int, limit: int) -> Deferred[list[Subscription]]:
        return self._threads.read(
            lambda conn: subscriptions.subscriptions(conn, topic, after, limit)
        )

    def sweep(self, now: float, idle_topics_before: float) -> Deferred[Swept]:
        return self._threads.write(
            lambda conn: subscriptions.sweep(conn, now, idle_topics_before, self._bounds)
        )

    # intents

    def add_intent(self, intent: Intent, limit: int) -> Deferred[WaitingIntent | None]:
        return self._threads.write(lambda conn: intents.add_intent(conn, intent, limit))

    def remove_intent(self, key: int) -> Deferred[None]:
        return self._threads.write(lambda conn: intents.remove_intent(conn, key))

    def intents(self) -> Deferred[list[WaitingIntent]]:
        return self._threads.read(intents.intents)

    # fan-out

    def fanouts(self, limit: int) -> Deferred[list[Fanout]]:
        return self._threads.read(lambda conn: walks.fanouts(conn, limit))

    def subscriptions_of(self, ids: Sequence[int]) -> Deferred[list[Subscription]]:
        return self._threads.read(lambda conn: subscriptions.by_ids(conn, ids))

    def record_slice(
        self,
        fanout: Fanout,
        cursor: int,
        deliveries: Sequence[Delivery],
        done: bool,
        left: Sequence[int] = (),
    ) -> Deferred[Recorded]:
        return self._threads.write(
            lambda conn: walks.record_slice(
                conn, fanout, cursor, deliveries, done, left, self._registered(conn)
            )
        )

    def record_deliveries(self, deliveries: Sequence[Delivery]) -> Deferred[Recorded]:
        return self._threads.write(
            lambda conn: deliveries_.record_deliveries(conn, deliveries, self._registered(conn))
        )

    def claim_due(
        self, now: float, limit: int, busy: Collection[str]
    ) -> Deferred[list[Subscription]]:
        return self._threads.write(
            lambda conn: deliveries_.claim_due(conn, now, limit, busy, self._registered(conn))
        )

    def next_due(self) -> Deferred[float | None]:
        return self._threads.read(deliveries_.next_due)

    def hasten(self, host: str, origin: str, now: float) -> Deferred[bool]:
        return self._threads.write(lambda conn: deliveries_.hasten(conn, host, origin, now))

    def set_back(self, seconds: float, now: float) -> Deferred[None]:
        return self._threads.write(lambda conn: due_times.set_back(conn, seconds, now))

    # hosts

    def hosts(self) -> Deferred[list[HostState]]:
        return self._threads.read(walks.hosts)

    def record_hosts(self, states: Sequence[HostState]) -> Deferred[None]:
        return self._threads.write(lambda conn: walks.record_hosts(conn, states))

    def count_of_host(self, host: str, limit: int) -> Deferred[int]:
        return self._threads.read(lambda conn: subscriptions.count_of_host(conn, host, limit))
