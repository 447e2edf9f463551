"""How long to wait after failures."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.util.backoff import backoff, scheduled_pause


class PauseTests(SynchronousTestCase):
    def test_it_doubles_up_to_a_limit(self) -> None:
        pauses = [backoff(5.0, failures, 60.0) for failures in range(-1, 6)]
        self.assertEqual(pauses, [5.0, 5.0, 10.0, 20.0, 40.0, 60.0, 60.0])
        self.assertEqual(backoff(0.001, 10**9, 3600.0), 3600.0)

    def test_one_after_each_attempt_but_the_last(self) -> None:
        """And one more if the last was interrupted."""
        for interrupted, after_the_last in ((False, None), (True, 5.0)):
            pauses = [
                scheduled_pause((7.0, 30.0), attempts, interrupted=interrupted)
                for attempts in range(1, 5)
            ]
            self.assertEqual(pauses, [7.0, 30.0, after_the_last, None])
