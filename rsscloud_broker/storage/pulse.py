"""Keeps this process alive as a node of a PostgreSQL, and listens to the hints of other nodes.

A thread with a connection of its own writes the heartbeat each second, however long the writer of
the store takes.  It removes nodes that are dead, counts those that live, and waits for hints by
LISTEN.  What it learns is published on the event bus in the reactor's thread.

Hints may be lost.  So with each heartbeat it also publishes that there may be work.

If it has had no heartbeat for some seconds, the server cannot be reached, or does not answer.
Then nobody waits for it any more: every operation of the store fails at once, until the next
heartbeat.  So callers are asked at once to try again, and a load balancer tries another node.

Each heartbeat reads the clock of the database, and has the clock of this process follow it, so that
the times that several nodes store fit together.  If the computer's own clock is wrong, it warns.

While the server was down, no node could write its heartbeat.  So a node removes others only after
it has written its own for some seconds: until then all that live have come back.  So it does if the
clock of the database was set, by which all heartbeats look too old, or ahead.

On SQLite there is one node, and nothing to do.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Event as Flag
from threading import Thread
from typing import Any, Final

from prometheus_client import Counter
from sqlalchemy import Connection, Engine, make_url, select, text
from sqlalchemy.exc import SQLAlchemyError
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger

from rsscloud_broker.counters import Counters
from rsscloud_broker.database import postgresql
from rsscloud_broker.database.columns import to_seconds
from rsscloud_broker.database.engine import as_unavailable, open_engine
from rsscloud_broker.errors import StoreUnavailable
from rsscloud_broker.events import ClaimsLost, Event, NodesCounted, WorkHinted
from rsscloud_broker.storage import clusters, nodes
from rsscloud_broker.storage.hints import CHANNEL, FREED, hint
from rsscloud_broker.storage.store import Store
from rsscloud_broker.wire.node_states import CLOCK_TOLERANCE, DEAD_AFTER, clock_sentence

#: Seconds between two heartbeats, and between two looks for work without a hint.
BEAT: Final = 1.0

#: Seconds until the thread connects again after it has lost its connection.
_RECONNECT: Final = 1.0

#: After a longer time without a heartbeat, in seconds, the others may have had none either; and so
#: after the clock of the database was set by more than this.
_GAP: Final = 4.0

#: Seconds after that until all nodes that live have written their heartbeats again.
_STEADY_AFTER: Final = 4.0


class _WorkMeter:
    """How much a node has done in all, and how much a second of late."""

    def __init__(self, counters: Counters) -> None:
        self._counters = {"pings": counters.pings, "notifications": counters.deliveries}
        # Over how many heartbeats the rates of the node are averaged.
        self._samples = deque([self._measure()], 10)

    def measure_columns(self) -> dict[str, float]:
        """Measure, and return the totals and rates for the columns of the row of the node."""
        before_at, before = self._samples[0]
        now, totals = self._measure()
        self._samples.append((now, totals))
        seconds = max(now - before_at, 0.001)
        return totals | {
            "ping_rate": (totals["pings"] - before["pings"]) / seconds,
            "notification_rate": (totals["notifications"] - before["notifications"]) / seconds,
        }

    def _measure(self) -> tuple[float, dict[str, float]]:
        """The present time, and the totals."""
        return time.monotonic(), {name: _total(one) for name, one in self._counters.items()}


def _total(counter: Counter) -> int:
    """What a counter says, for all its labels together."""
    samples = next(iter(counter.collect())).samples
    return int(sum(one.value for one in samples if one.name.endswith("_total")))


class Pulse(Service):
    """The heartbeat of this process, and its ear for hints.

    :param store: the store whose claims the heartbeat keeps.  It must start before and stop after
        this service.
    :param publish: is called with events, in the reactor's thread.
    :param counters: say how much the node has done, which it writes with its heartbeat.
    :param public_url: that of the broker, by which others know whether they belong to it.
    :param follow: is called with each reading of the clock of the database, in the thread; see
        ``SystemClock.follow``.
    """

    name = "nodes"
    log = Logger()

    def __init__(
        self,
        reactor: IReactorFromThreads,
        url: str,
        store: Store,
        publish: Callable[[Event], object],
        counters: Counters,
        public_url: str | None = None,
        follow: Callable[[float, float, float], object] = lambda shown, before, after: None,
    ) -> None:
        self._reactor = reactor
        self._url = url
        self._store = store
        self._publish = publish
        self._cluster = clusters.name_of(public_url)
        self._stop_flag = Flag()
        self._when_stopped: Deferred[None] | None = None  # fires when the thread has ended
        self._late_logged_at = float("-inf")
        self._ahead_when_warned = 0.0  # 0 since the clock is right again
        self._follow = follow
        # Used by the thread alone.
        self._last_beat_at = self._steady_since = float("-inf")
        # By how much the clock of the database is ahead of the monotonic clock.
        self._offset = 0.0
        # The node id at the last heartbeat, and whether its row was found then; None if there was
        # none, or it has lost its claims.
        self._beat_key: int | None = None
        self._was_found = False
        self._work = _WorkMeter(counters)

    def startService(self) -> None:
        """Start the thread, if the database is a PostgreSQL."""
        super().startService()
        if make_url(self._url).get_backend_name() != postgresql.DIALECT:
            return
        # The thread gives up a connection on which the server is silent for this many seconds:
        # there may be another server by then.
        engine = open_engine(self._url, of_broker=True, silence=4.0)
        with suppress(SQLAlchemyError), engine.connect() as connection:
            self._read_clock(connection)  # before anything is stored with a time
        self._stop_flag.clear()
        self._when_stopped = Deferred()
        Thread(target=self._run, args=(engine,), name="nodes", daemon=True).start()

    def stopService(self) -> Deferred[None] | None:
        """Stop the thread.  The row of this node stays until the store stops."""
        super().stopService()
        self._stop_flag.set()
        return self._when_stopped

    # --- in the reactor's thread

    def _take_beat(self, live: int, *, gone: bool, lost: bool, ahead: float) -> None:
        """Have the store work again after a heartbeat, and publish what the thread has learned.

        :param live: how many nodes live.
        :param gone: whether the row of this node was not found.
        :param lost: whether this node has lost its claims.
        :param ahead: see ``_read_clock``.
        """
        if not self.running:
            return
        self._late_logged_at = float("-inf")
        self._store.give_up("")
        self._compare_clocks(ahead)
        if lost:
            self.log.warn(
                "This process goes on as a new node, and others have its work: it stood still for "
                "more than {seconds:.0f} s, or the server did not answer a commit.",
                seconds=DEAD_AFTER,
            )
            self._publish(ClaimsLost())
        if gone:
            self._store.register()
        if live != self._store.live_nodes:
            self._store.live_nodes = live
            self.log.info("{live} nodes work on the database now.", live=live)
            self._publish(NodesCounted(live))
        self._publish(WorkHinted())

    def _compare_clocks(self, ahead: float) -> None:
        """Warn if the clock of this computer is wrong, but only when that changes."""
        self._store.clock_ahead = ahead
        if abs(ahead - self._ahead_when_warned) <= CLOCK_TOLERANCE:
            return
        if abs(ahead) <= CLOCK_TOLERANCE:
            self._ahead_when_warned = 0.0
            self.log.info("The clock of this computer is right again.")
            return
        self._ahead_when_warned = ahead
        self.log.warn("The clock of this computer is {wrong}.", wrong=clock_sentence(ahead))

    def _publish_hint(self, payload: str) -> None:
        """Publish a hint: its kind and key, with a colon between them."""
        if self.running:
            kind, _, key = payload.partition(":")
            self._publish(WorkHinted(kind, int(key)))

    def _report_lost_connection(self, error: Exception, *, is_late: bool) -> None:
        """Log that the thread has lost its connection, once a minute.

        :param is_late: whether the last heartbeat is so long ago that the store is to give up.
        """
        if not self.running:
            return
        if is_late:
            why = as_unavailable(error) or f"the database cannot be used right now: {error}"
            self._store.give_up(str(why))
        # Seconds between two log lines that say that the heartbeat is late.
        if time.monotonic() - self._late_logged_at < 60.0:
            return
        self._late_logged_at = time.monotonic()
        reason = getattr(error, "orig", None) or error  # without the statement
        self.log.error("The heartbeat of this node is late: {reason}", reason=str(reason).strip())

    def _report_other_clusters(self, found: list[str]) -> None:
        """Log that brokers with other public URLs work on this database, by mistake."""
        said = clusters.sentence(self._cluster, found)
        self.log.error("Two clusters use one database: {said}.", said=said)

    # --- in the thread

    def _run(self, engine: Engine) -> None:
        """Listen until the service stops; after an error, connect again."""
        dbapi: Any = engine.dialect.import_dbapi()
        while not self._stop_flag.is_set():
            try:
                with engine.connect() as connection:
                    self._listen(connection.execution_options(isolation_level="AUTOCOMMIT"))
            except (SQLAlchemyError, StoreUnavailable, dbapi.Error) as error:
                is_late = time.monotonic() - self._last_beat_at > _GAP
                self._reactor.callFromThread(self._report_lost_connection, error, is_late=is_late)
                self._stop_flag.wait(_RECONNECT)
            except Exception:  # log a bug; without heartbeats the node would count as dead
                self.log.failure("The heartbeat of this node failed; it is tried again.")
                self._stop_flag.wait(_RECONNECT)
        engine.dispose()
        assert self._when_stopped is not None  # the thread was started
        self._reactor.callFromThread(self._when_stopped.callback, None)

    def _listen(self, connection: Connection) -> None:
        """Write heartbeats, and pass hints on to the reactor's thread, until the service stops."""
        connection.execute(text(f"LISTEN {CHANNEL}"))
        clusters.join(connection, self._cluster)
        if found := clusters.others(connection, self._cluster):
            self._reactor.callFromThread(self._report_other_clusters, found)
        driver: Any = connection.connection.driver_connection
        while not self._stop_flag.is_set():
            if time.monotonic() - self._last_beat_at >= BEAT:
                self._beat(connection)
            # Seconds for which the thread waits for hints at a time, and so until it notices that
            # it is to stop.
            for notice in driver.notifies(timeout=0.2):
                self._reactor.callFromThread(self._publish_hint, notice.payload)

    def _beat(self, connection: Connection) -> None:
        """Write a heartbeat, remove dead nodes, and report to the reactor's thread."""
        key, ahead = self._store.node, self._read_clock(connection)
        done = self._work.measure_columns() | {"clock_ahead": ahead}
        gone = key is not None and not nodes.touch(connection, key, done)
        # The row of a node that has just registered may not be committed yet, for as long as its
        # transaction takes: so one that was never found is not lost.  The writer finds out, and
        # registers the process anew if there is no row.  That may also have been done for some
        # other work, after a pause before this heartbeat.
        changed = self._beat_key is not None and key != self._beat_key
        lost = changed or (gone and self._was_found)
        if gone and not changed:  # others may have removed it, as one that does not live
            nodes.check_tables(connection, self._store.tables)
        now = time.monotonic()
        if now - self._last_beat_at > _GAP:
            self._steady_since = now
        self._last_beat_at = now
        live, dead = nodes.count(connection)
        if dead and now - self._steady_since > _STEADY_AFTER:
            self._remove_dead(connection.engine)
        self._beat_key = None if lost else key
        self._was_found = self._beat_key is not None and not gone
        self._reactor.callFromThread(self._take_beat, live, gone=gone, lost=lost, ahead=ahead)

    def _read_clock(self, connection: Connection) -> float:
        """Read the clock of the database, which the clock of this process follows.

        :returns: by how many seconds the computer's clock is ahead of it, at least; less than 0 if
            it is behind.
        """
        before, own_before = time.monotonic(), time.time()
        shown = to_seconds(
            connection.execute(select(nodes.database_clock(connection))).scalar_one()
        )
        after, own_after = time.monotonic(), time.time()
        self._follow(shown, before, after)
        offset_before, self._offset = self._offset, shown - after
        if abs(self._offset - offset_before) > _GAP:
            self._steady_since = after
        # The difference is between these two.  If they have the same sign, it is the smaller one.
        return max(0.0, own_before - shown) + min(0.0, own_after - shown)

    def _remove_dead(self, engine: Engine) -> None:
        """Remove the nodes that are dead, or free some of their claims until the next heartbeat."""
        more = True
        while more and time.monotonic() - self._last_beat_at < BEAT:
            with engine.begin() as connection:
                removed = nodes.remove_dead(connection)
                if removed.nodes or removed.more:
                    hint(connection, FREED)
            more = removed.more
