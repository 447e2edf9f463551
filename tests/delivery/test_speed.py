"""Tests how many subscribers are notified twice after a kill."""

from __future__ import annotations

from collections import Counter

from tests.delivery.engine import REFUSED, EngineTestCase

STEP = 0.01

#: How many subscribers may be notified twice after a kill: their outcomes were not saved yet, or
#: not known.
TWICE = 500

#: Seconds after a start within which the broker resumes unfinished work.
RESUMED_WITHIN = 2.0


class KillTests(EngineTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.urls = self.subscribe_many(6000)
        self.notifier.takes = 0.03

    def twice(self) -> int:
        """How many calls were repeated."""
        return len(self.notifier.calls) - len(set(self.called()))

    def kill(self) -> None:
        self.crash()
        self.start()

    def finish(self) -> None:
        self.advance(RESUMED_WITHIN, STEP)
        # What two processes had under way is tried alone, in one that has lived for a while.
        for _ in range(100):
            if not self.walks() and not self.waiting():
                break
            self.advance(0.5, STEP)
        self.assertEqual((set(self.called()), self.waiting()), (set(self.urls), {}))

    def test_few_are_told_twice_whenever_the_broker_is_killed(self) -> None:
        self.start_walk()
        twice = 0
        for moment in (0.01, 0.04, 0.09, 0.12, 0.16, 0.23, 0.31, 0.4):
            self.advance(moment, STEP)
            self.kill()
            self.assertLessEqual(self.twice() - twice, TWICE)
            twice = self.twice()
        self.finish()
        self.assertLessEqual(self.twice() - twice, TWICE)

    def test_few_are_told_twice_among_those_that_fail(self) -> None:
        outcomes = self.notifier.outcomes
        outcomes.update(dict.fromkeys(self.urls[::2], REFUSED))
        self.start_walk()
        self.advance(0.6, STEP)
        outcomes.clear()
        self.kill()
        self.advance(12, 0.05)
        calls = Counter(self.called())
        self.assertEqual((set(calls), self.waiting(), self.walks()), (set(self.urls), {}, []))
        self.assertLessEqual(sum(calls[url] - 1 for url in self.urls[1::2]), TWICE)
