"""Places in all and for each host, the lines before them, and jobs that linger."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.counters import Counters
from rsscloud_broker.delivery.dispatch import MOST_PER_HOST, SLOW_AFTER, TICK, Dispatcher, Job
from rsscloud_broker.testing.clock import Clock


class DispatchTestCase(SynchronousTestCase):
    """:ivar begun: names of the jobs that began, in order.
    :ivar gates: of the jobs under way, by name.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.counters = Counters()
        self.begun: list[str] = []
        self.gates: dict[str, Deferred[None]] = {}

    def make(
        self, slots: int = 200, per_host: int = 4, max_slow: int = 2000, lateness: float = 0.0
    ) -> None:
        self.dispatcher = Dispatcher(
            self.clock,
            self.counters,
            slots=slots,
            per_host=per_host,
            max_slow=max_slow,
            lateness=lambda: lateness,
        )

    def submit(
        self,
        name: str,
        host: str = "",
        topic: str = "topic",
        *,
        fails: bool = False,
        unknown: bool = False,
    ) -> Job:
        """Submit a job that the test ends; its host is its own where none is named.

        :param unknown: whether it will say nothing of its host.
        """

        def begin(job: Job) -> None:
            self.begun.append(name)
            gate = self.gates[name] = Deferred()
            gate.addCallback(lambda _: self.dispatcher.end(job))

        job = Job(host or name, topic, begin)
        job.went_well = None if unknown else not fails
        self.dispatcher.submit(job)
        return job

    def advance(self, seconds: float) -> None:
        """Let time pass in small steps, as it does where the process is not slow."""
        for _ in range(round(seconds * 100)):
            self.clock.advance(0.01)

    def end(self, *names: str) -> None:
        for name in names:
            self.gates[name].callback(None)

    def gauge(self, name: str) -> float:
        value = self.counters.registry.get_sample_value(f"rsscloud_{name}")
        assert value is not None  # there is such a gauge
        return value

    def assert_idle(self) -> None:
        """Nothing is kept of hosts and jobs that are over."""
        names = ("notifications_in_flight", "slow_notifications", "notifications_queued")
        self.assertEqual([self.gauge(name) for name in names], [0.0] * 3)
        for kept in ("_hosts", "_behind", "_active", "_slow"):
            self.assertEqual(len(getattr(self.dispatcher, kept)), 0, kept)
        for queue in (self.dispatcher._quick_queue, self.dispatcher._queue):
            self.assertEqual((queue.length, len(queue._topics)), (0, 0))
        self.assertEqual(self.dispatcher._active_quick, 0)


class PlacesTests(DispatchTestCase):
    def test_limits_are_shared_by_nodes(self) -> None:
        self.make(slots=4, per_host=2)
        self.dispatcher.set_node_count(2)
        for number in range(4):
            self.submit(f"here{number}", "here.example")
            self.submit(f"other{number}")
        self.assertEqual(self.begun, ["here0", "other0"])
        self.dispatcher.set_node_count(1)
        self.end("other0")
        self.advance(0.5)
        self.assertGreater(len(self.begun), 3)
        self.dispatcher.stop()

    def test_in_all(self) -> None:
        self.make(slots=2)
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

    def test_job_that_is_over_at_once(self) -> None:
        self.make(slots=1, per_host=1)
        over: list[int] = []

        def make(number: int) -> Job:
            def begin(job: Job) -> None:
                over.append(number)
                self.dispatcher.end(job)

            return Job("host", "topic", begin)

        first = self.submit("first", "host")
        for number in range(10_000):
            self.dispatcher.submit(make(number))
        self.assertTrue(first.begun)
        self.end("first")
        self.assertEqual(over, list(range(10_000)))
        self.assert_idle()

    def test_jobs_that_submit_the_next(self) -> None:
        self.make(slots=1)
        submitted = 0

        def begin(job: Job) -> None:
            nonlocal submitted
            submitted += 1
            if submitted < 10_000:
                self.dispatcher.submit(Job(f"host {submitted}", "topic", begin))
            self.dispatcher.end(job)

        self.dispatcher.submit(Job("host", "topic", begin))
        self.assertEqual(submitted, 10_000)
        self.assert_idle()

    def test_topics_take_turns(self) -> None:
        self.make(slots=1)
        for number in range(3):
            self.submit(f"a{number}", topic="a")
        self.submit("b0", topic="b")
        self.submit("c0", topic="c")
        self.end("a0", "a1", "b0", "c0", "a2")
        self.assertEqual(self.begun, ["a0", "a1", "b0", "c0", "a2"])
        self.assert_idle()


class WithdrawTests(DispatchTestCase):
    def test_from_the_line_of_all(self) -> None:
        self.make(slots=1, per_host=1)
        jobs = {name: self.submit(name) for name in "abc"}
        behind = self.submit("behind b", "b")
        self.assertTrue(self.dispatcher.withdraw(jobs["b"]))
        self.assertEqual(self.gauge("notifications_queued"), 2)
        self.end("a", "c")
        self.assertEqual((self.begun, behind.begun), (["a", "c", "behind b"], True))
        self.end("behind b")
        self.assert_idle()

    def test_from_the_line_of_a_host(self) -> None:
        self.make(per_host=1)
        jobs = [self.submit(name, "host") for name in "abcd"]
        self.assertTrue(self.dispatcher.withdraw(jobs[1]))
        self.assertTrue(self.dispatcher.withdraw(jobs[3]))
        self.assertEqual(self.gauge("notifications_queued"), 1)
        self.end("a", "c")
        self.assertEqual(self.begun, ["a", "c"])
        self.assert_idle()

    def test_what_was_withdrawn_or_has_begun(self) -> None:
        self.make(slots=1, per_host=1)
        begun = self.submit("a")
        job, behind = self.submit("b"), self.submit("behind b", "b")
        for one in (job, job, behind, behind):
            self.dispatcher.withdraw(one)
        self.assertFalse(self.dispatcher.withdraw(begun))
        self.end("a")
        self.assertFalse(self.dispatcher.withdraw(begun))
        self.assertEqual(self.begun, ["a"])
        self.assert_idle()

    def test_nothing_of_what_was_withdrawn_is_kept(self) -> None:
        """A host that hangs must not gather the jobs that were put off meanwhile."""
        self.make(per_host=1)
        self.submit("hangs", "host")
        for number in range(100):
            self.dispatcher.withdraw(self.submit(str(number), "host"))
        self.assertEqual(self.dispatcher.queued_for("host"), 0)


class EarnTests(DispatchTestCase):
    def notify(self, number: int, *, fails: bool = False, unknown: bool = False) -> None:
        """Have a number of jobs of one host done, each quickly."""
        for each in range(number):
            self.submit(str(each), "host", fails=fails, unknown=unknown)
            self.end(str(each))

    def slots(self) -> int:
        """How many jobs of the host begin at once."""
        self.begun.clear()
        jobs = [self.submit(f"slot {number}", "host") for number in range(2 * MOST_PER_HOST)]
        taken = len(self.begun)
        for job in reversed(jobs):
            self.dispatcher.withdraw(job)
        self.end(*self.begun)
        return taken

    def test_the_brokers_own_want_changes_nothing(self) -> None:
        """A courier that ends took the slots of all its hosts."""
        self.make()
        self.notify(20, unknown=True)
        self.assertFalse(self.dispatcher.is_quick("host"))
        self.assertEqual(self.slots(), 4)
        self.notify(200)
        self.notify(20, unknown=True)
        self.assertEqual(self.slots(), MOST_PER_HOST)
        self.submit("slow", "host", unknown=True)
        self.advance(2 * SLOW_AFTER)
        self.end("slow")
        self.assertEqual(self.slots(), MOST_PER_HOST)
        self.assertTrue(self.dispatcher.is_quick("host"))

    def test_a_host_that_answers_quickly_earns_places(self) -> None:
        self.make()
        self.assertEqual(self.slots(), 4)
        self.notify(4 + 5 + 6)
        self.assertGreater(self.slots(), 6)
        self.notify(200)
        self.assertEqual(self.slots(), MOST_PER_HOST)

    def test_the_first_failure_or_slow_answer_takes_them_away(self) -> None:
        self.make()
        self.notify(200)
        self.notify(1, fails=True)
        self.assertEqual(self.slots(), 4)
        self.notify(200)
        self.submit("slow", "host")
        self.advance(2 * SLOW_AFTER)
        self.end("slow")
        self.assertEqual(self.slots(), 4)

    def test_they_follow_as_places_come_free(self) -> None:
        """Sixty of one host, each 0.1 seconds: with four slots that is 1.5 seconds."""
        self.make()
        for number in range(60):
            self.submit(str(number), "host")
        began = self.clock.seconds()
        done = 0
        while done < 60:
            under_way = self.begun[done:]
            self.advance(0.1)
            self.end(*under_way)
            done += len(under_way)
        self.assertLess(self.clock.seconds() - began, 1.6)
        self.assert_idle()


class LingerTests(DispatchTestCase):
    def test_only_when_somebody_waits(self) -> None:
        self.make(slots=1)
        self.submit("a")
        self.advance(10 * SLOW_AFTER)
        self.assertEqual(self.gauge("slow_notifications"), 0)
        self.submit("b")
        self.advance(TICK)
        self.assertEqual(self.begun, ["a", "b"])
        self.submit("behind", "a")
        names = ("slow_notifications", "notifications_in_flight", "notifications_queued")
        self.assertEqual([self.gauge(name) for name in names], [1, 2, 1])
        self.end("a", "b", "behind")
        self.assert_idle()

    def test_after_a_moment(self) -> None:
        self.make(slots=1)
        for name in "abc":
            self.submit(name)
        self.advance(SLOW_AFTER - 0.02)
        self.assertEqual(self.begun, ["a"])
        self.advance(0.02 + TICK)
        self.assertEqual(self.begun, ["a", "b"])
        self.advance(SLOW_AFTER + TICK)
        self.assertEqual(self.begun, ["a", "b", "c"])
        self.assertEqual(self.gauge("notifications_queued"), 0)

    def test_later_if_those_who_call_are_late(self) -> None:
        """All calls take long then, and more at a time would take more memory and no less time."""
        for lateness, patience in ((0.02, 0.3), (60.0, 1.1)):
            self.make(slots=1, lateness=lateness)
            self.submit("a")
            self.submit("b")
            self.advance(patience - 0.02)
            self.assertEqual(self.begun, ["a"])
            self.advance(0.02 + TICK)
            self.assertEqual(self.begun, ["a", "b"])
            self.end("a", "b")
            self.begun.clear()

    def test_keeps_its_place_of_the_host(self) -> None:
        self.make(slots=1, per_host=1)
        self.submit("a", "host")
        self.submit("b", "host")
        self.submit("c")
        self.advance(SLOW_AFTER + TICK)
        self.assertEqual(self.begun, ["a", "c"])
        self.end("a")
        self.advance(SLOW_AFTER + TICK)
        self.assertEqual(self.begun, ["a", "c", "b"])

    def test_those_that_linger_have_a_limit(self) -> None:
        self.make(slots=2, max_slow=4)
        for number in range(20):
            self.submit(str(number))
        self.advance(60.0)
        self.assertEqual(len(self.begun), 2 + 3)
        self.end("0")
        self.advance(1.0)
        self.assertEqual(len(self.begun), 2 + 3 + 1)

    def test_one_or_nobody_may_linger(self) -> None:
        """One of any host may, as where very many nodes share the limit."""
        for max_slow in (1, 0):
            self.make(slots=1, max_slow=max_slow)
            self.begun.clear()
            for name in "abc":
                self.submit(name)
            self.advance(10 * SLOW_AFTER)
            self.assertEqual(self.begun, ["a", "b"][: max_slow + 1])
            self.end(*"abc")
            self.assert_idle()

    def test_hosts_that_say_nothing_leave_room_for_those_that_answered_before(self) -> None:
        self.make(slots=10, max_slow=20)
        for number in range(50):
            self.submit(f"good {number}")
            self.end(f"good {number}")
        for number in range(1000):
            self.submit(f"silent {number}")
        self.advance(10.0)
        self.begun.clear()
        for number in range(50):
            self.submit(f"good {number}")
        while self.begun:
            self.end(*(names := list(self.begun)))
            self.begun[:] = self.begun[len(names) :]
        self.assertEqual(self.gauge("notifications_in_flight"), 10 + 15)
        self.assertEqual(self.gauge("notifications_queued"), 1000 - 10 - 15)

    def test_those_that_answered_before_leave_room_for_others(self) -> None:
        """However many of them there are: others would wait until the last of them is called."""
        self.make(slots=4, max_slow=20)
        for number in range(20):
            self.submit(f"good {number}")
            self.end(f"good {number}")
        self.begun.clear()
        for number in range(20):
            self.submit(f"good {number}")
        self.submit("new", topic="other")
        for number in range(50):
            self.end(name := self.begun[number])
            self.submit(name)
            if "new" in self.begun:
                break
        self.assertIn("new", self.begun)
