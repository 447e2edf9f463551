"""The methods of the store that request, claim and share work, or that take several transactions.

The SQL is in the modules that are imported below.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import update_wrapper
from typing import Concatenate, ParamSpec, TypeVar

from attrs import evolve
from sqlalchemy import Connection
from twisted.internet.defer import Deferred, succeed

from rsscloud_broker.database.columns import to_micros
from rsscloud_broker.database.methods import Batched, Operation, reading, writing
from rsscloud_broker.database.threads import StoreThreads
from rsscloud_broker.model import Ping, Subscription, TopicStatus
from rsscloud_broker.model.shared import JobTurn
from rsscloud_broker.model.ways import UNKNOWN_SOURCE, ChangeSource, Way
from rsscloud_broker.model.work import (
    Bounds,
    CheckState,
    ClaimedChecks,
    PingRecord,
    Swept,
    WantedChecks,
)
from rsscloud_broker.storage import (
    check_claims,
    checks,
    due,
    jobs,
    nodes,
    polls,
    statistics,
    sweeping,
)
from rsscloud_broker.storage import pings as ping_rows
from rsscloud_broker.storage.hints import FREED, JOB, hint
from rsscloud_broker.storage.trials import Trials
from rsscloud_broker.util.deferreds import returns_deferred

P = ParamSpec("P")
T = TypeVar("T")


def as_node(
    function: Callable[Concatenate[Connection, int | None, P], T],
) -> Callable[Concatenate[ComposedMethods, P], Deferred[T]]:
    """A method that calls a function that writes with the node id of this process."""

    def method(self: ComposedMethods, /, *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return self._database.write(lambda conn: function(conn, self._node, *args, **kwargs))

    update_wrapper(method, function)
    return method


class ComposedMethods:
    """A part of ``Store``, which has these attributes.

    The functions that the methods run say more of what each method does.

    To store a version of a document, begin it, which returns the id of the version; put its parts,
    by their numbers; and finish it.  The last two return False if the version was dropped.
    Documents are stored only if ``shares_work``.

    :ivar _is_alone: whether no other node can work on the database.
    :ivar _node: the node id of this process; None if it has none yet.
    :ivar suspects: the work that ended processes: see ``trials``.
    """

    suspects: Trials
    _database: StoreThreads
    _is_alone: bool
    _node: int | None
    _bounds: Bounds
    _after_host = ""  # behind which the next look for what is due goes on: see ``due.Due``

    def _ensure_node(self, conn: Connection) -> int:
        """Return the node id of this process, and register it if need be."""
        raise NotImplementedError

    def _claiming(self, claim: Callable[[Connection, int], T]) -> Operation[T]:
        """Make an operation that claims work, and then reads what is suspect (see ``suspects``).

        :param claim: is called with the node id of this process.
        """

        def claimed(conn: Connection) -> T:
            node = self._ensure_node(conn)
            found = claim(conn, node)
            self.suspects.read(conn, node)  # last, as ``claim`` may make suspects
            return found

        return claimed

    def _claimant_of_checks(self, conn: Connection) -> int | None:
        """The node id under which this process claims checks.

        On SQLite no other node can have removed its row, so that is not looked up; None if it has
        not registered yet.
        """
        return self._node if self._is_alone else self._ensure_node(conn)

    def add_ping(
        self,
        ping: Ping,
        repeat_window: float,
        source: str = "",
        claim: bool = False,
        way: Way = Way.WEBLOG_UPDATES,
        at: float | None = None,
    ) -> Deferred[PingRecord]:
        """Record a ping unless it is a repeat, and request checks of the topics that it names.

        :param at: as for ``add_pings``.
        """
        asked = ping_rows.AskedPing(ping, repeat_window, source, claim, way, at)
        return self._database.write(Batched(self._add_pings, asked))

    def add_pings(
        self, wanted: Sequence[tuple[Ping, float]], at: float | None = None, way: Way = Way.LIST
    ) -> Deferred[list[PingRecord]]:
        """Record pings unless they are repeats, and request checks of the topics that they name;
        this process claims none of these checks.

        :param wanted: the pings, each with its ``repeat_window``.
        :param at: when the checks are requested; None for the times of the pings.
        """
        asked = [ping_rows.AskedPing(*one, way=way, at=at) for one in wanted]
        return self._database.write(lambda conn: self._add_pings(conn, asked))

    def _add_pings(
        self, conn: Connection, wanted: Sequence[ping_rows.AskedPing]
    ) -> list[PingRecord]:
        return ping_rows.add_pings(conn, wanted, self._claimant_of_checks(conn))

    def request_check(
        self,
        url: str,
        at: float,
        pinged: bool = False,
        source: str = "",
        claim: bool = False,
        cause: ChangeSource = UNKNOWN_SOURCE,
    ) -> Deferred[CheckState]:
        """Request that a topic is fetched; return who handles that."""
        cause = evolve(cause, pinged=pinged)
        asked = checks.AskedCheck(url, to_micros(at), source, claim, cause)
        return self._database.write(Batched(self._request_checks, asked))

    def _request_checks(
        self, conn: Connection, asked: Sequence[checks.AskedCheck]
    ) -> list[CheckState]:
        return checks.request_checks(conn, asked, self._bounds, self._claimant_of_checks(conn))

    def claim_checks(self, wanted: WantedChecks) -> Deferred[ClaimedChecks]:
        """Claim topics that wait to be fetched, so that this process fetches them."""
        return self._database.write(
            self._claiming(lambda conn, node: check_claims.claim_checks(conn, wanted, node))
        )

    def release_checks(self, held: Collection[str]) -> Deferred[int]:
        """Release the claims of this process, but for the topics ``held``; return how many."""
        return self._database.write(
            lambda conn: check_claims.release_checks(conn, held, self._ensure_node(conn))
        )

    @returns_deferred
    async def join_check(self, url: str, at: float, cause: ChangeSource) -> int | None:
        """Join the check that another node has claimed, and return its key; None if none has.

        It reads first, since a write is seldom needed: mostly no other node has claimed the topic,
        or this node has joined the check before.
        """
        asked = checks.AskedCheck(url, to_micros(at), cause=cause)
        found = await self._database.read(
            lambda conn: checks.find_joinable(conn, asked, self._node)
        )
        if found is None:
            return None
        key, is_joined = found
        if is_joined:
            return key
        return await self._database.write(
            lambda conn: checks.join_check(conn, asked, self._ensure_node(conn))
        )

    drop_check = as_node(checks.drop_check)
    put_off_check = as_node(check_claims.put_off_check)
    request_content = writing(checks.request_content)

    # what takes several transactions: see ``portions``

    def ping_hours(self, since: float, until: float) -> Deferred[dict[int, int]]:
        """Count the pings in each hour, by hours since the epoch."""
        return Deferred.fromCoroutine(statistics.ping_hours(self._database.read, since, until))

    def measure(self) -> Deferred[dict[str, int]]:
        """Count the topics and subscriptions, for ``add_statistics``."""
        return Deferred.fromCoroutine(statistics.measure(self._database.read))

    def prune_statistics(self, now: float, hours: int) -> Deferred[None]:
        """Remove statistics of more than ``hours`` hours ago, those of minutes earlier."""
        return Deferred.fromCoroutine(statistics.prune(self._database.write, now, hours))

    def sweep(self, now: float, idle_topics_before: float, after: int = 0) -> Deferred[Swept]:
        """Remove a part of the ended subscriptions and unneeded topics: see ``sweeping.sweep``."""
        read, write = self._database.read, self._database.write
        return Deferred.fromCoroutine(
            sweeping.sweep(read, write, now, idle_topics_before, self._bounds, after)
        )

    def make_due(self, host: str, origin: str, now: float) -> Deferred[bool]:
        """Make the pending notifications for a host due, since it answers again."""
        read, write = self._database.read, self._database.write
        return Deferred.fromCoroutine(due.make_due(read, write, host, origin, now))

    def make_due_for_content(self, url: str, at: float) -> Deferred[bool]:
        """Make the pending notifications due that waited for the content of a topic."""
        read, write = self._database.read, self._database.write
        return Deferred.fromCoroutine(due.make_due_for_content(read, write, url, at))

    def set_back(self, seconds: float, now: float) -> Deferred[None]:
        """Move stored due times back, after the wall clock was set back."""
        return Deferred.fromCoroutine(due.set_back(self._database.write, seconds, now))

    @returns_deferred
    async def polls_due(self, now: float, limit: int) -> list[TopicStatus]:
        """Claim the topics whose polls are due, longest due first.

        Reads first, as most times nothing is due.
        """
        if not await self._database.read(lambda conn: polls.polls_due(conn, now, 1)):
            return []
        return await self._database.write(
            self._claiming(lambda conn, node: polls.claim_polls(conn, now, limit, node))
        )

    def claim_due(
        self, now: float, limit: int, busy: Collection[str]
    ) -> Deferred[list[Subscription]]:
        """Claim subscriptions whose pending notifications are due, longest due first.

        This process holds a claim until the outcome is recorded, or until it ends.

        :param busy: hosts whose callbacks are left out.
        """
        if busy:  # to find the others may take a while, and is done by reading
            return Deferred.fromCoroutine(self._claim_due_of_others(now, limit, busy))

        def claim(conn: Connection, node: int) -> list[Subscription]:
            return due.claim_found(conn, due.find_due(conn, now, limit, ()).keys, node, now)

        return self._database.write(self._claiming(claim))

    async def _claim_due_of_others(
        self, now: float, limit: int, busy: Collection[str]
    ) -> list[Subscription]:
        """Claim what is due for hosts that are not busy; the next call begins behind this one."""
        after = self._after_host
        found = await self._database.read(lambda conn: due.find_due(conn, now, limit, busy, after))
        self._after_host = found.after
        if not found.keys:
            return []
        return await self._database.write(
            self._claiming(lambda conn, node: due.claim_found(conn, found.keys, node, now))
        )

    # jobs that one node does for all, and the documents that they make

    def shares_work(self) -> bool:
        """Whether other nodes can work on the database, which they can on PostgreSQL only."""
        return not self._is_alone

    @returns_deferred
    async def hand_back(self) -> None:
        """Free what this node has claimed, portion by portion: see ``nodes.hand_back``.

        Each portion is freed with a hint to other nodes.
        """
        if self._is_alone:
            return

        def free(conn: Connection) -> bool:
            """Whether there may be more to free after this portion."""
            hint(conn, FREED)
            return nodes.hand_back(conn, self._node)

        while await self._database.write(free):
            pass  # the next portion

    late_jobs = reading(jobs.late_jobs)

    def claim_job(self, name: str, now: float, period: float) -> Deferred[JobTurn]:
        """Claim a job for this node, if it is due and no other node has claimed it."""
        return self._database.write(
            lambda conn: jobs.claim_job(conn, name, now, period, self._ensure_node(conn))
        )

    finish_job = as_node(jobs.finish_job)
    release_job = as_node(jobs.release_job)
    request_job = writing(jobs.request_job)

    def hint_at_job(self, name: str) -> Deferred[None]:
        """Send other nodes the hint that the node with a job has something to do."""
        if self._is_alone:
            return succeed(None)
        return self._database.write(lambda conn: hint(conn, f"{JOB}{name}"))

    begin_document = writing(jobs.begin_document)
    put_document_part = writing(jobs.put_document_part)

    def finish_document(self, key: int, size: int, records: int, job: str = "") -> Deferred[bool]:
        return self._database.write(
            lambda conn: self._finish_document(conn, key, size, records, job)
        )

    def _finish_document(
        self, conn: Connection, key: int, size: int, records: int, job: str
    ) -> bool:
        """Finish a version of a document, or drop it, if the claim of its job was lost.

        :param job: the job that made it, whose claim this process must still have; empty if none.
        """
        if job and not jobs.lock_claim(conn, job, self._node):
            jobs.drop_document(conn, key)
            return False
        return jobs.finish_document(conn, key, size, records)

    shared_documents = reading(jobs.shared_documents)
    documents_since = reading(jobs.documents_since)
    document_part = reading(jobs.document_part_body)
