"""Places in all and for each host, the lines before them, and jobs that linger."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.counters import Counters
from rsscloud_broker.sinks.dispatch import LEAST_PAUSE, LINGER, PATIENCE, Dispatcher, Job
from rsscloud_broker.testing.clock import Clock


@define(eq=False)
class Work(Job):
    """A job that is begun in some way."""

    how: Callable[[], Deferred[None]]

    def begin(self) -> Deferred[None]:
        return self.how()


class DispatchTestCase(SynchronousTestCase):
    """:ivar begun: names of the jobs that began, in order.
    :ivar gates: of the jobs under way, by name.
    :ivar called_off: names of the jobs that were called off, in order.
    :ivar stubborn: names of the jobs that go on all the same.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.counters = Counters()
        self.begun: list[str] = []
        self.gates: dict[str, Deferred[None]] = {}
        self.called_off: list[str] = []
        self.stubborn: set[str] = set()

    def make(self, places: int = 200, per_host: int = 4, lingering: int = 2000) -> None:
        self.dispatcher = Dispatcher(
            self.clock,
            self.counters,
            places=places,
            per_host=per_host,
            lingering=lingering,
        )

    def submit(self, name: str, host: str = "") -> Job:
        """Submit a job that the test ends; its host is its own where none is named."""
        job = Work(host or name, lambda: Deferred.fromCoroutine(self._work(name)))
        self.dispatcher.submit(job)
        return job

    async def _work(self, name: str) -> None:
        self.begun.append(name)
        while True:
            gate = self.gates[name] = Deferred()
            try:
                await gate
            except CancelledError:
                self.called_off.append(name)
                if name in self.stubborn:
                    continue
            return

    def end(self, *names: str) -> None:
        for name in names:
            self.gates[name].callback(None)

    def gauge(self, name: str) -> float:
        value = self.counters.registry.get_sample_value(f"rsscloud_{name}")
        assert value is not None  # there is such a gauge
        return value

    def assert_idle(self) -> None:
        """Nothing is kept of hosts and jobs that are over."""
        self.assertEqual(
            [self.gauge(name) for name in ("in_flight", "lingering", "queued")], [0.0] * 3
        )
        for kept in ("_taken", "_behind", "_line", "_young", "_lingering"):
            self.assertEqual(len(getattr(self.dispatcher, kept)), 0, kept)


class PlacesTests(DispatchTestCase):
    def test_in_all(self) -> None:
        self.make(places=2)
        for name in "abcd":
            self.submit(name)
        self.assertEqual(self.begun, ["a", "b"])
        self.end("b")
        self.assertEqual(self.begun, ["a", "b", "c"])
        self.end("a", "c", "d")
        self.assertEqual(self.begun, ["a", "b", "c", "d"])
        self.assert_idle()

    def test_for_each_host_in_order(self) -> None:
        self.make(per_host=2)
        jobs = [self.submit(name, "slow") for name in "abcde"]
        self.submit("x", "quick")
        self.assertEqual(self.begun, ["a", "b", "x"])
        self.assertEqual([job.behind_its_host for job in jobs], [False, False, True, True, True])
        self.end("b")
        self.assertEqual(self.begun, ["a", "b", "x", "c"])
        self.assertFalse(jobs[2].behind_its_host)
        self.end("a", "c", "d", "e", "x")
        self.assertEqual(self.begun, ["a", "b", "x", "c", "d", "e"])
        self.assert_idle()

    def test_those_of_one_host_do_not_hold_up_the_line_of_all(self) -> None:
        self.make(places=3, per_host=2)
        for number in range(50):
            self.submit(f"slow {number}", "slow")
        self.submit("quick")
        self.assertEqual(self.begun, ["slow 0", "slow 1", "quick"])

    def test_job_that_is_over_at_once(self) -> None:
        self.make(places=1, per_host=1)
        over: list[int] = []

        def make(number: int) -> Job:
            def begin() -> Deferred[None]:
                over.append(number)
                return succeed(None)

            return Work("host", begin)

        first = self.submit("first", "host")
        for number in range(10_000):
            self.dispatcher.submit(make(number))
        self.assertTrue(first.begun)
        self.end("first")
        self.assertEqual(over, list(range(10_000)))
        self.assert_idle()

    def test_jobs_that_submit_the_next(self) -> None:
        self.make(places=1)
        submitted = 0

        def begin() -> Deferred[None]:
            nonlocal submitted
            submitted += 1
            if submitted < 10_000:
                self.dispatcher.submit(Work(f"host {submitted}", begin))
            return succeed(None)

        self.dispatcher.submit(Work("host", begin))
        self.assertEqual(submitted, 10_000)
        self.assert_idle()


class WithdrawTests(DispatchTestCase):
    def test_from_the_line_of_all(self) -> None:
        self.make(places=1, per_host=1)
        jobs = {name: self.submit(name) for name in "abc"}
        behind = self.submit("behind b", "b")
        self.assertTrue(self.dispatcher.withdraw(jobs["b"]))
        self.assertEqual(self.gauge("queued"), 2)
        self.end("a", "c")
        self.assertEqual((self.begun, behind.begun), (["a", "c", "behind b"], True))
        self.end("behind b")
        self.assert_idle()

    def test_from_the_line_of_a_host(self) -> None:
        self.make(per_host=1)
        jobs = [self.submit(name, "host") for name in "abcd"]
        self.assertTrue(self.dispatcher.withdraw(jobs[1]))
        self.assertTrue(self.dispatcher.withdraw(jobs[3]))
        self.assertEqual(self.gauge("queued"), 1)
        self.end("a", "c")
        self.assertEqual(self.begun, ["a", "c"])
        self.assert_idle()

    def test_twice(self) -> None:
        self.make(places=1, per_host=1)
        self.submit("a")
        job, behind = self.submit("b"), self.submit("behind b", "b")
        for one in (job, job, behind, behind):
            self.dispatcher.withdraw(one)
        self.end("a")
        self.assertEqual(self.begun, ["a"])
        self.assert_idle()

    def test_job_that_began(self) -> None:
        self.make()
        job = self.submit("a")
        self.assertFalse(self.dispatcher.withdraw(job))
        self.end("a")
        self.assertFalse(self.dispatcher.withdraw(job))
        self.assert_idle()

    def test_nothing_of_what_was_withdrawn_is_kept(self) -> None:
        """A host that hangs must not gather the jobs that were put off meanwhile."""
        self.make(per_host=1)
        self.submit("hangs", "host")
        for number in range(100):
            self.dispatcher.withdraw(self.submit(str(number), "host"))
        self.assertEqual(len(self.dispatcher._behind), 0)


class LingerTests(DispatchTestCase):
    def test_only_when_somebody_waits(self) -> None:
        self.make(places=1)
        self.submit("a")
        self.clock.advance(10 * PATIENCE)
        self.assertEqual((self.gauge("lingering"), self.clock.getDelayedCalls()), (0, []))
        self.submit("b")
        self.assertEqual(self.begun, ["a", "b"])
        self.assertEqual((self.gauge("lingering"), self.gauge("in_flight")), (1, 2))
        self.end("a", "b")
        self.assert_idle()

    def test_after_a_moment(self) -> None:
        self.make(places=1)
        self.submit("a")
        self.clock.advance(PATIENCE / 2)
        for name in "bc":
            self.submit(name)
        self.assertEqual(self.begun, ["a"])
        self.clock.advance(PATIENCE / 2)
        self.assertEqual(self.begun, ["a", "b"])
        self.clock.advance(PATIENCE)
        self.assertEqual(self.begun, ["a", "b", "c"])
        self.assertEqual(self.gauge("queued"), 0)

    def test_keeps_its_place_of_the_host(self) -> None:
        self.make(places=1, per_host=1)
        self.submit("a", "host")
        self.submit("b", "host")
        self.submit("c")
        self.clock.advance(PATIENCE)
        self.assertEqual(self.begun, ["a", "c"])
        self.end("a")
        self.clock.advance(PATIENCE)
        self.assertEqual(self.begun, ["a", "c", "b"])

    def test_longest_is_called_off_when_too_many_do(self) -> None:
        self.make(places=1, lingering=2)
        for name in "abcd":
            self.submit(name)
        for _ in range(int(LINGER / PATIENCE) - 1):
            self.clock.advance(PATIENCE)
        self.assertEqual((self.begun, self.called_off), (["a", "b", "c"], []))
        self.clock.advance(2 * PATIENCE)
        self.assertEqual((self.begun, self.called_off), (["a", "b", "c", "d"], ["a"]))
        self.assertEqual(self.gauge("lingering"), 2)
        self.end("b", "c", "d")
        self.assert_idle()

    def test_place_that_becomes_free_is_taken_in_a_moment(self) -> None:
        """Whoever waits for one who lingers to be called off need not, if one ends."""
        self.make(places=1, lingering=1)
        for name in "abc":
            self.submit(name)
        self.clock.advance(PATIENCE)
        self.clock.advance(PATIENCE)
        self.assertEqual(self.begun, ["a", "b"])
        self.end("a")  # b has had its moment, so it lingers now
        self.assertEqual(self.begun, ["a", "b", "c"])
        self.submit("d")
        self.submit("e")
        self.clock.advance(PATIENCE)
        self.assertEqual(self.begun, ["a", "b", "c"])
        self.end("c")
        self.assertEqual(self.begun, ["a", "b", "c", "d"])
        self.end("b")  # d lingers as soon as it is old enough, not when b would have been
        self.clock.advance(PATIENCE + LEAST_PAUSE)
        self.assertEqual(self.begun, ["a", "b", "c", "d", "e"])

    def test_nobody_may_linger(self) -> None:
        self.make(places=1, lingering=0)
        for name in "ab":
            self.submit(name)
        self.clock.advance(LINGER + PATIENCE)
        self.assertEqual((self.begun, self.called_off), (["a"], []))
        self.end("a", "b")
        self.assertEqual(self.begun, ["a", "b"])
        self.assert_idle()

    def test_job_that_does_not_let_itself_be_called_off(self) -> None:
        self.make(places=1, lingering=2)
        self.stubborn = {"a"}
        for name in "abcd":
            self.submit(name)
        for _ in range(int(LINGER / PATIENCE) + 4):
            self.clock.advance(PATIENCE)
        self.assertEqual((self.begun, self.called_off), (["a", "b", "c", "d"], ["a", "b"]))
        self.end("a", "c", "d")
        self.assert_idle()


class GaugeTests(DispatchTestCase):
    def test_gauges(self) -> None:
        self.make(places=2, per_host=1)
        for name in "abc":
            self.submit(name)
        self.submit("behind", "a")
        self.assertEqual((self.gauge("in_flight"), self.gauge("queued")), (2, 2))
        self.clock.advance(PATIENCE)
        self.assertEqual((self.gauge("in_flight"), self.gauge("queued")), (3, 1))
        self.assertEqual(self.gauge("lingering"), 1)
        self.end("a", "b", "c", "behind")
        self.assert_idle()
