"""The store, which the core and the sinks use: each method is one transaction on the database.

The SQL of the methods is in the modules of this room that are imported below.
``threads`` and ``writer`` run the transactions outside the reactor's thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, make_url
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorFromThreads
from zope.interface import implementer

from rsscloud_broker.counters import Counters
from rsscloud_broker.database import sqlite
from rsscloud_broker.database.engine import open_engine
from rsscloud_broker.database.methods import (
    Batched,
    Operation,
    reading,
    reading_in_batches,
    writing,
)
from rsscloud_broker.database.threads import StoreThreads
from rsscloud_broker.interfaces import IChangeStore, IFollowStore, IJobs, IStatistics
from rsscloud_broker.model import Callback, Content, FetchResult, Intent, Ping, Subscription
from rsscloud_broker.model.administration import BrokerState, Change
from rsscloud_broker.model.work import (
    Bounds,
    Delivery,
    Fanout,
    FetchRecord,
    PendingIntent,
    Recorded,
)
from rsscloud_broker.storage import (
    administration,
    checks,
    contents,
    due,
    moves,
    nodes,
    polls,
    recording,
    relaying,
    summaries,
    topics,
    walks,
)
from rsscloud_broker.storage import blocks as block_rows
from rsscloud_broker.storage import changes as change_rows
from rsscloud_broker.storage import deliveries as delivery_rows
from rsscloud_broker.storage import intents as intent_rows
from rsscloud_broker.storage import kept_changes as kept_rows
from rsscloud_broker.storage import log_entries as log_rows
from rsscloud_broker.storage import pings as ping_rows
from rsscloud_broker.storage import statistics as statistic_rows
from rsscloud_broker.storage import subscriptions as subscription_rows
from rsscloud_broker.storage.composed_methods import ComposedMethods, as_node
from rsscloud_broker.storage.hints import FREED, hint
from rsscloud_broker.storage.nodes import count_waiting_checks, measure_sizes, node_states
from rsscloud_broker.storage.trials import Trials

T = TypeVar("T")


@implementer(IStatistics, IFollowStore, IChangeStore, IJobs)
class Store(ComposedMethods, Service):
    """Everything that outlives the process, in an SQLite or PostgreSQL database.

    Each method is one transaction, which is on disk before the method's Deferred fires, if its
    documentation, at the function that it runs, does not say otherwise.  Each method raises
    ``Unavailable`` if the database cannot be used now.  A method that takes the URL of a topic
    also finds the topic by a URL that it has moved from.  A method with a ``Change`` stores the
    change of the database and the ``Change`` in one transaction; if it returns False or None, it
    stored neither, since the object of the change does not exist.

    When it starts, it registers this process as a node of the database: see ``nodes``.

    Use it between ``startService`` and ``stopService``.  The Deferred of ``stopService`` fires when
    all queued operations are on disk and the database is closed.

    :param reactor: the reactor in whose thread Deferreds fire.
    :param url: an SQLAlchemy database URL for which ``migrate`` was called.
    :param threads: runs the operations; by default threads of the store's own.
    :param bounds: limits on the data that callers can make the store keep.
    :param counters: measure the transactions and the threads.
    """

    name = "store"

    def __init__(
        self,
        reactor: IReactorFromThreads,
        url: str,
        threads: StoreThreads | None = None,
        bounds: Bounds = checks.DEFAULT_BOUNDS,
        counters: Counters | None = None,
    ) -> None:
        self._url = url
        self._is_alone = make_url(url).get_backend_name() == sqlite.DIALECT
        self._bounds = bounds
        self._database = threads or StoreThreads(reactor, counters)
        self._node: int | None = None
        self.tables: dict[str, str] = {}
        # How many commits were in doubt when the process registered as a node.
        self._in_doubt = 0
        # The last node ids that it had when those commits were not answered.
        self._doubtful: tuple[int, ...] = ()
        # Callers use the first name: ``async with store.trial(work)``.
        self.trial = self.suspects = Trials(reactor, self._database, self._ensure_node)
        #: How many nodes work on the database, as far as this process knows.
        self.live_nodes = 1
        #: By how many seconds the clock of this computer is ahead of the database's.
        self.clock_ahead = 0.0
        # What others ask of the threads.
        self.give_up = self._database.give_up
        self.writes_waiting, self.busy_for = self._database.writes_waiting, self._database.busy_for
        if counters is not None:
            counters.writes.set_function(self.writes_waiting)
            counters.transaction_age.set_function(self.busy_for)

    def startService(self) -> None:
        if not self.running:
            super().startService()
            given_up = self._database.is_given_up
            self._database.start(open_engine(self._url, of_broker=True, is_given_up=given_up))
            self.register()

    def stopService(self) -> Deferred[None]:
        if not self.running:
            return succeed(None)
        super().stopService()
        self._database.write(self._leave).addErrback(lambda failure: None)
        return self._database.stop()

    @property
    def node(self) -> int | None:
        """The node id of this process; None if it has none yet."""
        return self._node

    def register(self) -> None:
        """Register this process as a node, unless its row exists."""
        # If this fails, the first operation that claims something registers the node.
        self._database.write(self._ensure_node).addErrback(lambda failure: None)

    def _leave(self, conn: Connection) -> None:
        nodes.leave(conn, self._node)
        hint(conn, FREED)

    @property
    def _node_if_not_alone(self) -> int | None:
        """The node id of this process, or 0 if it has none yet; None if this is the only node."""
        return None if self._is_alone else self._node or 0

    def _ensure_node(self, conn: Connection) -> int:
        """Return the node id of this process, and register it if need be, in the writer's thread.

        If a commit is in doubt, it may have claimed work of which the process does not know.  So
        the process gives all back, and goes on as a new node.
        """
        if (in_doubt := self._database.in_doubt()) != self._in_doubt:
            self._in_doubt = in_doubt
            if self._node is not None:
                self._doubtful = (*self._doubtful[-9:], self._node)
            self._node = None
        # This transaction may be rolled back: so each later one that registers gives all back too.
        self._node = nodes.ensure_registered(conn, self._node, self.tables, self._doubtful)
        return self._node

    def check_writable(self) -> Deferred[None]:
        """Write and commit something that changes nothing."""

        def check(conn: Connection) -> None:
            nodes.touch(conn, self._ensure_node(conn))

        return self._database.write(check)

    waiting_checks = reading(count_waiting_checks)
    sizes = reading(measure_sizes)

    # pings

    known_pings = reading(ping_rows.known_pings)
    pings = reading(ping_rows.pings)
    pings_after = reading(ping_rows.pings_after)
    pings_by_id = reading(ping_rows.pings_by_id)
    count_pings = reading(ping_rows.count_pings)
    prune_pings = writing(ping_rows.prune_pings)

    # relays and followed lists

    begin_relay = writing(relaying.begin_relay)
    record_relay = writing(relaying.record_relay)
    followed_lists = writing(relaying.followed_lists)
    record_followed = writing(relaying.record_followed)
    followed_feed_position = reading(relaying.followed_feed_position)
    record_followed_feed = writing(relaying.record_followed_feed)
    forget_followed_feeds = writing(relaying.forget_followed_feeds)

    # changes for the feeds

    kept_changes = reading(kept_rows.kept_changes)
    remove_kept_changes = writing(kept_rows.remove_kept_changes)

    # the event log

    add_log_entries = writing(log_rows.add_log_entries)
    log_entries = reading(log_rows.log_entries)
    log_entries_after = reading(log_rows.log_entries_after)
    prune_log = writing(log_rows.prune_log)

    # topics

    topic = reading_in_batches(topics.get_topics)
    topic_status = reading_in_batches(polls.topic_statuses)

    def record_fetch(
        self, fetched: FetchResult, ping: Ping | None, if_asked: bool = False
    ) -> Deferred[FetchRecord]:
        return self._database.write(
            lambda conn: recording.record_fetch(
                conn, fetched, ping, self._bounds, self._node, if_asked=if_asked
            )
        )

    def publish(
        self, fetched: Sequence[FetchResult], ping: Ping, operation: Operation[T]
    ) -> Deferred[tuple[T, list[FetchRecord]]]:
        asked = recording.Publishing(fetched, ping, operation)
        return self._database.write(Batched(self._publish, asked))

    def _publish(
        self, conn: Connection, asked: Sequence[recording.Publishing]
    ) -> list[tuple[Any, list[FetchRecord]] | Exception]:
        return recording.publish(conn, asked, self._bounds, self._node)

    def unpublish(
        self, url: str, reason: str, at: float, operation: Operation[T]
    ) -> Deferred[tuple[T, bool]]:
        """End a topic that the broker serves: ``end_topic``, and what an operation stores."""
        return self._database.write(
            lambda conn: (operation(conn), topics.end_topic(conn, url, reason, at, self._bounds))
        )

    def end_topic(
        self, url: str, reason: str, at: float, change: Change | None = None
    ) -> Deferred[bool]:
        return self._database.write(
            lambda conn: topics.end_topic(conn, url, reason, at, self._bounds, change)
        )

    def push_content(self, url: str, content: Content, at: float) -> Deferred[bool]:
        return self._database.write(
            lambda conn: topics.push_content(conn, url, content, at, self._bounds)
        )

    record_failure = writing(polls.record_failure)
    move_topic = writing(moves.move_topic)

    def record_feed(self, url: str, feed: Mapping[str, Any]) -> Deferred[None]:
        return self._database.write(Batched(polls.record_feeds, (url, feed)))

    plan_polls = as_node(polls.plan_polls)
    forget_ping = writing(polls.forget_ping)
    content = reading(contents.get_content)
    newest_content = reading(contents.newest_content)
    revive_topic = writing(topics.revive_topic)
    watched_topics = reading(summaries.watched_topics)
    topic_summaries = reading(summaries.topic_summaries)
    topic_titles = reading(summaries.topic_titles)
    topics_beginning = reading(summaries.topics_beginning)

    # subscriptions

    def put_subscription(
        self, subscription: Subscription, known: bytes | None = None, intent_key: int | None = None
    ) -> Deferred[Subscription]:
        def put(conn: Connection) -> Subscription:
            intent_rows.settle_intent(conn, intent_key, self._node)
            return subscription_rows.put_subscription(conn, subscription, known)

        return self._database.write(put)

    def remove_subscription(
        self, topic: str, callback: Callback, intent_key: int | None = None
    ) -> Deferred[bool]:
        def remove(conn: Connection) -> bool:
            intent_rows.settle_intent(conn, intent_key, self._node)
            return subscription_rows.remove_subscription(conn, topic, callback)

        return self._database.write(remove)

    has_subscription = reading(subscription_rows.has_subscription)
    subscriptions = reading(subscription_rows.subscriptions)
    subscriptions_of = reading(subscription_rows.by_ids)
    subscription_counts = reading(summaries.subscription_counts)

    # statistics

    add_statistics = writing(statistic_rows.add_statistics)
    put_busy_topics = writing(statistic_rows.put_busy_topics)
    statistics = reading(statistic_rows.statistics)
    pinged_topics = reading(statistic_rows.pinged_topics)
    busy_topics = reading(statistic_rows.busy_topics)

    # intents

    def add_intent(self, intent: Intent, limit: int) -> Deferred[PendingIntent | None]:
        return self._database.write(
            lambda conn: intent_rows.add_intent(conn, intent, limit, self._claimant_of_checks(conn))
        )

    postpone_intent = as_node(intent_rows.postpone_intent)
    has_intent = reading(intent_rows.has_intent)
    remove_intent = as_node(intent_rows.remove_intent)

    def claim_intents(self, limit: int) -> Deferred[list[PendingIntent]]:
        return self._database.write(
            self._claiming(lambda conn, node: intent_rows.claim_intents(conn, limit, node))
        )

    def intents(self, after: int = 0, limit: int = 1000) -> Deferred[list[PendingIntent]]:
        if self._is_alone:  # those of an earlier process are this one's now
            return self._database.write(
                self._claiming(lambda conn, node: intent_rows.take_over(conn, after, limit, node))
            )
        return self._database.read(
            lambda conn: intent_rows.intents(conn, after, limit, self._node or 0)
        )

    # fan-outs and deliveries

    def record_slice(
        self,
        fanout: Fanout,
        cursor: int,
        deliveries: Sequence[Delivery],
        done: bool,
        outstanding: Sequence[int] = (),
    ) -> Deferred[Recorded]:
        return self._database.write(
            lambda conn: walks.record_slice(
                conn,
                fanout,
                cursor,
                deliveries,
                done,
                outstanding,
                self._ensure_node(conn),
                self._bounds,
            )
        )

    def record_deliveries(self, deliveries: Sequence[Delivery]) -> Deferred[Recorded]:
        return self._database.write(
            lambda conn: delivery_rows.record_deliveries(
                conn, deliveries, self._ensure_node(conn), self._bounds
            )
        )

    def fanouts(self, limit: int) -> Deferred[list[Fanout]]:
        return self._database.read(lambda conn: walks.fanouts(conn, limit, self._node_if_not_alone))

    def claim_fanouts(self, keys: Sequence[int]) -> Deferred[list[Fanout]]:
        part = walks.PART if self.live_nodes > 1 else None
        return self._database.write(
            self._claiming(lambda conn, node: walks.claim_fanouts(conn, keys, node, part))
        )

    next_due = reading(due.next_due)

    # hosts

    hosts = reading(walks.hosts)
    record_hosts = writing(walks.record_hosts)
    count_of_host = reading(subscription_rows.count_of_host)

    # administration

    find_subscriptions = reading(administration.find_subscriptions)
    subscription_details = reading(administration.subscription_details)
    redeliver = writing(administration.redeliver)
    remove_subscription_by_id = writing(administration.remove_subscription_by_id)
    set_dropping = writing(administration.set_dropping)
    host_states = reading(administration.host_states)
    close_breaker = writing(administration.close_breaker)
    all_blocks = reading(block_rows.all_blocks)
    blocks = reading(block_rows.blocks)
    put_block = writing(block_rows.put_block)
    remove_block = writing(block_rows.remove_block)
    announcements = reading(block_rows.announcements)
    add_announcement = writing(block_rows.add_announcement)
    remove_announcement = writing(block_rows.remove_announcement)
    record_change = writing(change_rows.record_change)

    def recording(self, change: Change) -> Operation[None]:
        """An operation that records a ``Change``, for a transaction of the caller's."""
        return lambda conn: change_rows.record_change_if_any(conn, change)

    changes = reading(change_rows.changes)
    changes_after = reading(change_rows.changes_after)
    taken_down = reading(change_rows.taken_down)
    last_change = reading(change_rows.last_change)
    claim_unpublished = writing(change_rows.claim_unpublished)

    def nodes(self) -> Deferred[BrokerState]:
        return self._database.read(
            lambda conn: BrokerState(
                {"topics waiting in the database": sum(count_waiting_checks(conn).values())},
                nodes=tuple(node_states(conn, self._node)),
            )
        )
