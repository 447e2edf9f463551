"""How long to wait after failures."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.util.backoff import backoff


class BackoffTests(SynchronousTestCase):
    def test_it_doubles_up_to_a_limit(self) -> None:
        pauses = [backoff(5.0, failures, 60.0) for failures in range(6)]
        self.assertEqual(pauses, [5.0, 10.0, 20.0, 40.0, 60.0, 60.0])

    def test_any_number_of_failures(self) -> None:
        self.assertEqual(backoff(5.0, -1, 60.0), 5.0)
        self.assertEqual(backoff(0.001, 10**9, 3600.0), 3600.0)
