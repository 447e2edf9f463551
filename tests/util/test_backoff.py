"""How long to wait after failures."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.util.backoff import backoff, scheduled_pause


class BackoffTests(SynchronousTestCase):
    def test_it_doubles_up_to_a_limit(self) -> None:
        pauses = [backoff(5.0, failures, 60.0) for failures in range(6)]
        self.assertEqual(pauses, [5.0, 10.0, 20.0, 40.0, 60.0, 60.0])

    def test_any_number_of_failures(self) -> None:
        self.assertEqual(backoff(5.0, -1, 60.0), 5.0)
        self.assertEqual(backoff(0.001, 10**9, 3600.0), 3600.0)


class ScheduledPauseTests(SynchronousTestCase):
    def pauses(self, *, interrupted: bool) -> list[float | None]:
        return [scheduled_pause((7.0, 30.0), n, interrupted=interrupted) for n in range(1, 5)]

    def test_one_after_each_attempt_but_the_last(self) -> None:
        self.assertEqual(self.pauses(interrupted=False), [7.0, 30.0, None, None])

    def test_one_more_if_the_last_was_interrupted(self) -> None:
        self.assertEqual(self.pauses(interrupted=True), [7.0, 30.0, 5.0, None])
