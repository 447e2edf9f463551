"""Tests jobs that one node does for all: one does each, and another if that one dies."""

from __future__ import annotations

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from rsscloud_broker.errors import ClaimLost, Unavailable
from rsscloud_broker.interfaces import IJobs
from rsscloud_broker.model.shared import JobTurn
from rsscloud_broker.testing import memory_store
from rsscloud_broker.testing.clock import About, Clock
from rsscloud_broker.util.cluster_jobs import PAUSE, PeriodicClusterJob, RunOnOneNode


class Row:
    """A job, in memory."""

    def __init__(self) -> None:
        self.due_at = 0.0
        self.node = ""


@implementer(IJobs)
class NodeJobs:
    """The jobs of several nodes, as one of them sees them.

    :ivar failure: is raised instead of doing anything, while it is set.
    """

    def __init__(self, row: Row, node: str) -> None:
        self.row = row
        self.node = node
        self.failure: Exception | None = None

    def shares_work(self) -> bool:
        return True

    async def claim_job(self, name: str, now: float, period: float) -> JobTurn:
        if self.failure is not None:
            raise self.failure
        is_due = self.row.due_at <= now or self.row.due_at > now + period
        claimed = is_due and self.row.node in {"", self.node}
        if claimed:
            self.row.node = self.node
        return JobTurn(self.row.due_at, claimed, is_due and not claimed)

    async def finish_job(self, name: str, due_at: float) -> bool:
        if self.row.node != self.node:
            return False
        self.row.due_at, self.row.node = due_at, ""
        return True

    async def release_job(self, name: str) -> None:
        if self.row.node == self.node:
            self.row.node = ""

    async def hint_at_job(self, name: str) -> None:
        raise NotImplementedError("nobody hints at these jobs")

    async def request_job(self, name: str, since: float) -> None:
        if self.failure is not None:
            raise self.failure
        self.row.due_at, self.row.node = min(since, self.row.due_at), ""


class JobsTestCase(SynchronousTestCase):
    """Two nodes, and the one job that they share."""

    def setUp(self) -> None:
        self.clock = Clock(1_000_030.0)  # 10 seconds into a minute
        self.row = Row()
        self.jobs = [NodeJobs(self.row, node) for node in ("a", "b")]
        verifyObject(IJobs, self.jobs[0])

    def die(self, node: str) -> None:
        """Free the claim of a node."""
        if self.row.node == node:
            self.row.node = ""


class PeriodicClusterJobTests(JobsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.runs: list[tuple[str, float]] = []
        self.since: list[float] = []
        self.gates: dict[str, Deferred[None]] = {}
        self.nodes: list[PeriodicClusterJob] = []

    def start(self, *, at_start: bool = False, after: float = 0.0) -> None:
        for jobs in self.jobs:
            job = self.job_of(jobs.node)
            service = PeriodicClusterJob(
                self.clock, 60.0, job, jobs, name="job", after=after, at_start=at_start
            )
            service.startService()
            self.nodes.append(service)

    def first_run(self) -> None:
        """Start both nodes, and let the first period come."""
        self.start()
        self.clock.advance(50.0)

    def job_of(self, node: str):  # type: ignore[no-untyped-def]
        async def job(due_at: float) -> None:
            self.runs.append((node, About(self.clock.wall_seconds())))
            self.since.append(due_at)
            if node in self.gates:
                await self.gates[node]

        return job

    def test_one_node_does_it_in_each_period(self) -> None:
        self.start()
        self.clock.pump([50.0, 60.0, 60.0])
        times = [at for _, at in self.runs]
        self.assertEqual(times, [1_000_080.0, 1_000_140.0, 1_000_200.0])
        self.assertEqual(self.since, [0.0, 1_000_140.0, 1_000_200.0])

    def test_after(self) -> None:
        self.start(after=5.0)
        self.clock.pump([54.0, 1.0])
        self.assertEqual(len(self.runs), 1)
        self.assertEqual(self.row.due_at, 1_000_145.0)

    def test_node_that_dies_at_it_is_replaced(self) -> None:
        self.gates["a"] = Deferred()
        self.first_run()
        self.clock.pump([PAUSE] * 8)
        self.assertEqual([node for node, _ in self.runs], ["a"])
        self.die("a")
        self.clock.advance(PAUSE)
        self.assertEqual([node for node, _ in self.runs], ["a", "b"])
        self.assertEqual(self.since, [0.0, 0.0])
        self.gates["a"].callback(None)  # it stood still, and goes on
        self.clock.pump([PAUSE] * 3)
        self.assertEqual(len(self.runs), 2)
        self.assertEqual(self.row.due_at, 1_000_140.0)

    def test_periods_that_nobody_did_are_told(self) -> None:
        self.first_run()
        for jobs in self.jobs:
            jobs.failure = Unavailable("the server is down")
        self.clock.pump([60.0] * 3)
        for jobs in self.jobs:
            jobs.failure = None
        self.clock.advance(60.0)
        self.assertEqual(self.since, [0.0, 1_000_140.0])

    def test_failure_leaves_it_to_the_other(self) -> None:
        self.gates["a"] = Deferred()
        self.gates["a"].errback(OSError("disk full"))
        self.first_run()
        self.clock.advance(PAUSE)
        self.assertEqual([node for node, _ in self.runs], ["a", "b"])

    def test_lost_claim_is_no_failure(self) -> None:
        self.gates["a"] = Deferred()
        self.first_run()
        self.die("a")
        self.gates["a"].errback(ClaimLost())
        self.clock.advance(PAUSE)
        self.assertEqual(len(self.runs), 2)

    def test_wanted_soon(self) -> None:
        self.first_run()
        self.nodes[1].want(7.0, soon=True)
        self.assertEqual(self.since, [0.0, 7.0])

    def test_wanted_in_the_next_period(self) -> None:
        self.first_run()
        for since in (8.0, 7.0, 9.0):
            self.nodes[1].want(since)
        self.clock.advance(59.0)
        self.assertEqual(len(self.runs), 1)
        self.clock.advance(1.0)
        self.assertIn(7.0, self.since)
        self.clock.advance(60.0)
        self.assertEqual(self.since[-1], 1_000_200.0)

    def test_what_is_wanted_is_not_forgotten_while_the_store_is_not_there(self) -> None:
        self.first_run()
        self.jobs[1].failure = Unavailable("the server is down")
        self.nodes[1].want(7.0, soon=True)
        self.jobs[1].failure = None
        self.clock.advance(60.0)
        self.assertIn(7.0, self.since)

    def test_wanted_soon_while_it_runs(self) -> None:
        gate = self.gates["a"] = Deferred()
        self.first_run()
        self.nodes[0].want(7.0, soon=True)
        self.assertEqual(len(self.runs), 1)
        del self.gates["a"]
        gate.callback(None)
        self.clock.pump([PAUSE] * 2)
        self.assertEqual(self.since, [0.0, 7.0])
        self.assertEqual(self.row.due_at, 1_000_140.0)

    def test_at_start_it_is_done_if_it_is_due(self) -> None:
        self.start(at_start=True)
        self.assertEqual(len(self.runs), 1)

    def test_single_node_does_it_at_each_start(self) -> None:
        store = memory_store()
        self.addCleanup(store.stopService)
        for _ in range(2):
            service = PeriodicClusterJob(
                self.clock, 60.0, self.job_of("only"), store, name="job", at_start=True
            )
            service.startService()
            service.stopService()
        self.assertEqual(len(self.runs), 2)

    def test_stopping_ends_the_timers_and_waits(self) -> None:
        self.gates["a"] = Deferred()
        self.first_run()
        stopped = [service.stopService() for service in self.nodes]
        assert stopped[0] is not None
        self.assertNoResult(stopped[0])
        self.gates["a"].callback(None)
        self.successResultOf(stopped[0])
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.row.node, "")


class Inner(Service):
    """A service that takes a while to stop."""

    def __init__(self) -> None:
        self.stopped: Deferred[None] | None = None

    def stopService(self) -> Deferred[None] | None:
        super().stopService()
        return self.stopped


class RunOnOneNodeTests(JobsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.inner = [Inner(), Inner()]
        self.services = [
            RunOnOneNode(inner, jobs, self.clock, name="job")
            for inner, jobs in zip(self.inner, self.jobs, strict=True)
        ]
        for service in self.services:
            service.startService()

    def running(self) -> list[bool]:
        return [bool(inner.running) for inner in self.inner]

    def test_one_node_runs_it(self) -> None:
        self.clock.pump([2.0] * 3)
        self.assertEqual(self.running(), [True, False])

    def test_other_takes_over(self) -> None:
        self.die("a")
        self.clock.advance(2.0)
        self.assertEqual(self.running(), [False, True])
        self.die("b")
        self.clock.advance(2.0)
        self.assertEqual(self.running(), [True, False])

    def test_stop_hands_it_over(self) -> None:
        self.inner[0].stopped = Deferred()
        stopped = self.services[0].stopService()
        self.assertEqual(self.row.node, "a")
        self.inner[0].stopped.callback(None)
        self.successResultOf(stopped)
        self.clock.advance(2.0)
        self.assertEqual(self.running(), [False, True])

    def test_store_that_is_not_there(self) -> None:
        self.row.node = ""
        self.services[0].stopService()
        with capturedLogs() as logged:
            for _ in range(2):
                self.jobs[1].failure = Unavailable("the server is down")
                self.clock.pump([2.0] * 10)
                self.jobs[1].failure = None
                self.clock.pump([2.0] * 2)
        self.assertEqual(self.running(), [False, True])
        begins, ends = "the server is down", "goes on"
        lines = [formatEvent(event) for event in logged]
        self.assertEqual(
            [next(text for text in (begins, ends) if text in line) for line in lines],
            [begins, ends] * 2,
            "an outage makes two lines",
        )

    def test_store_that_does_not_answer(self) -> None:
        """It is asked once, and nothing is logged."""
        asked: list[Deferred[JobTurn]] = []

        def claim(name: str, now: float, period: float) -> Deferred[JobTurn]:
            asked.append(Deferred())
            return asked[-1]

        self.patch(self.jobs[1], "claim_job", claim)
        with capturedLogs() as logged:
            self.clock.pump([2.0] * 10)
        self.assertEqual((len(asked), logged), (1, []))
        asked[0].callback(JobTurn(0.0, claimed=True, is_others=False))
        self.assertEqual(self.running(), [True, True])

    def test_stopping_ends_the_timers(self) -> None:
        for service in self.services:
            self.successResultOf(service.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])
