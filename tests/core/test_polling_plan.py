"""Tests when topics are polled: each rule, then what holds for every state."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from attrs import asdict, evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.core import polling_plan
from rsscloud_broker.core.polling_plan import (
    MAX_FRESH_SECONDS,
    MAX_SPREAD_SECONDS,
    PollIntervals,
)
from rsscloud_broker.model import Topic, TopicStatus
from rsscloud_broker.wire.feed_hints import Hints
from rsscloud_broker.wire.feed_summary import hints_of

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0

#: Wednesday, 3 January 2024, 10:00 GMT.
NOW = 1_704_276_000.0

PACE = PollIntervals(floor=10 * MINUTE, ceiling=DAY, first=HOUR, ping_trust=7 * DAY)


def status_of(
    url: str, changed_at: float | None = None, hints: Hints | None = None, **others: Any
) -> TopicStatus:
    feed = {"hints": asdict(hints)} if hints else {}
    return TopicStatus(Topic(url, changed_at=changed_at), feed=feed, **others)


def polled(**others: Any) -> TopicStatus:
    """A topic that was polled just now."""
    usual = {"asked_at": NOW, "changed_at": NOW - 1, "poll_interval": HOUR}
    return status_of("http://feeds.example/rss.xml", **{**usual, **others})


def plan(status: TopicStatus, now: float, pace: PollIntervals) -> Any:
    """The plan, whose time is always there."""
    return polling_plan.plan(status, now, pace)


def hour_of(moment: float) -> int:
    return time.gmtime(moment).tm_hour


def day_of(moment: float) -> int:
    return time.gmtime(moment).tm_wday


class PlanCase(SynchronousTestCase):
    """Compares pauses, up to the tenth that spreads topics."""

    def assert_pause(self, found: Any, seconds: float) -> None:
        self.assertGreaterEqual(found.at, NOW + min(seconds, PACE.ceiling * 0.9))
        self.assertLessEqual(found.at, NOW + seconds * 1.1)


class AdaptiveTests(PlanCase):
    """A topic is polled more often the more often it changes."""

    def test_a_change_halves_the_interval(self) -> None:
        found = plan(polled(changed_at=NOW + 1), NOW, PACE)
        self.assertEqual(found.interval, HOUR / 2)
        self.assert_pause(found, HOUR / 2)
        self.assertEqual(found.reason, "polled every 30 minutes, by how often it changed lately")

    def test_no_change_makes_it_grow(self) -> None:
        for changed_at in (None, NOW - DAY):
            found = plan(polled(changed_at=changed_at), NOW, PACE)
            self.assertEqual(found.interval, 1.5 * HOUR)
            self.assert_pause(found, 1.5 * HOUR)

    def test_the_floor_and_the_ceiling(self) -> None:
        busy = polled(changed_at=NOW, poll_interval=PACE.floor * 1.1)
        self.assertEqual(plan(busy, NOW, PACE).interval, PACE.floor)
        still = plan(polled(poll_interval=DAY * 0.9), NOW, PACE)
        self.assertEqual(still.interval, DAY)
        self.assertLessEqual(still.at, NOW + DAY)

    def test_the_first_interval(self) -> None:
        self.assertEqual(plan(polled(poll_interval=None), NOW, PACE).interval, HOUR)

    def test_replanning_changes_nothing(self) -> None:
        first, again = (plan(polled(), now, PACE) for now in (NOW, NOW + 5))
        self.assertEqual(again, evolve(first, planned_at=NOW + 5))

    def test_a_poll_changes_the_interval_once(self) -> None:
        """After a start, late polls are planned anew though none was made since the last plan."""
        for changed_at in (NOW + 1, None):
            state = polled(changed_at=changed_at, planned_at=NOW + 2)
            self.assertEqual(plan(state, NOW + DAY, PACE).interval, HOUR)

    def test_a_poll_from_before_the_clock_was_set_back_counts_as_one_now(self) -> None:
        found = plan(polled(asked_at=NOW + DAY), NOW, PACE)
        self.assert_pause(found, found.interval)

    def test_a_change_from_before_the_clock_was_set_back_is_not_that_of_the_last_poll(self) -> None:
        found = plan(polled(changed_at=NOW + DAY), NOW, PACE)
        self.assertEqual(found.interval, 1.5 * HOUR)

    def test_a_topic_that_never_changes_comes_to_the_ceiling_and_back(self) -> None:
        state = polled()
        for _ in range(20):
            state = evolve(state, poll_interval=plan(state, NOW, PACE).interval)
        self.assertEqual(state.poll_interval, DAY)
        state = polled(changed_at=NOW, poll_interval=DAY)
        for _ in range(20):
            state = evolve(state, poll_interval=plan(state, NOW, PACE).interval)
        self.assertEqual(state.poll_interval, PACE.floor)


class FailureTests(PlanCase):
    """A topic that fails is polled less and less often."""

    def test_each_failure_doubles_the_pause(self) -> None:
        for failures, seconds in ((1, 2 * HOUR), (2, 4 * HOUR), (3, 8 * HOUR), (4, 16 * HOUR)):
            found = plan(polled(failures=failures), NOW, PACE)
            self.assert_pause(found, seconds)
            self.assertEqual(found.interval, HOUR)

    def test_up_to_the_ceiling(self) -> None:
        for failures in (5, 40, 10**6):
            found = plan(polled(failures=failures), NOW, PACE)
            self.assert_pause(found, DAY)
            self.assertEqual(
                found.reason, f"polled after 24 hours since the last {failures} polls failed"
            )

    def test_a_single_one(self) -> None:
        reason = plan(polled(failures=1), NOW, PACE).reason
        self.assertEqual(reason, "polled after 120 minutes since the last poll failed")

    def test_hints_hold_all_the_same(self) -> None:
        state = polled(failures=1, hints=Hints(ttl_minutes=600))
        self.assert_pause(plan(state, NOW, PACE), 10 * HOUR)


class HintTests(PlanCase):
    """The pause that a feed asks for is a lower bound."""

    def test_ttl(self) -> None:
        state = polled(poll_interval=10 * MINUTE, hints=Hints(ttl_minutes=60))
        found = plan(state, NOW, PACE)
        self.assert_pause(found, HOUR)
        self.assertEqual(found.reason, "polled every 60 minutes since its ttl says so")

    def test_a_short_ttl_does_not_hasten(self) -> None:
        self.assert_pause(plan(polled(hints=Hints(ttl_minutes=1)), NOW, PACE), 1.5 * HOUR)

    def test_the_ceiling_goes_before_it(self) -> None:
        found = plan(polled(hints=Hints(ttl_minutes=43_200)), NOW, PACE)
        self.assertEqual(found.at, NOW + DAY)
        self.assertEqual(
            found.reason,
            "polled every 24 hours since its ttl says so; it asks for more, but this is the"
            " longest pause",
        )

    def test_the_syndication_module(self) -> None:
        found = plan(polled(hints=Hints(ttl_minutes=60, update_seconds=6 * HOUR)), NOW, PACE)
        self.assert_pause(found, 6 * HOUR)
        self.assertIn("every 6 hours since its syndication module says so", found.reason)

    def test_its_base(self) -> None:
        """Updates are at 12:00 each day, and now it is 10:00."""
        noon = Hints(update_seconds=DAY, update_base=NOW - 1000 * DAY + 2 * HOUR)
        found = plan(polled(poll_interval=10 * MINUTE, hints=noon), NOW, PACE)
        self.assert_pause(found, 2 * HOUR)
        self.assertEqual(hour_of(found.at), 12)
        self.assertEqual(
            found.reason,
            "polled after 120 minutes, at the next update by its syndication module",
        )


class PingTests(PlanCase):
    """A topic that is pinged is polled at the ceiling, to be safe."""

    def test_at_the_ceiling(self) -> None:
        for state in (
            polled(pinged_at=NOW - 6 * DAY),
            polled(pinged_at=NOW, hints=Hints(ttl_minutes=43_200)),
            polled(pinged_at=NOW + 1, changed_at=NOW + 1, failures=2),
        ):
            found = plan(state, NOW, PACE)
            self.assert_pause(found, DAY)
            self.assertEqual(found.reason, "polled every 24 hours only, to be safe, since it pings")
            self.assertEqual(found.interval, HOUR)

    def test_a_ping_of_long_ago(self) -> None:
        found = plan(polled(pinged_at=NOW - 8 * DAY), NOW, PACE)
        self.assert_pause(found, 1.5 * HOUR)


class FreshnessTests(PlanCase):
    """The freshness of an answer overrides the ceiling, up to a week."""

    def test_not_before_it_ends(self) -> None:
        found = plan(polled(fresh_seconds=3 * HOUR), NOW, PACE)
        self.assert_pause(found, 3 * HOUR)
        self.assertEqual(
            found.reason, "polled when the last answer is not fresh any more, after 3 hours"
        )

    def test_shorter_than_the_pause(self) -> None:
        self.assertEqual(plan(polled(fresh_seconds=5), NOW, PACE), plan(polled(), NOW, PACE))

    def test_not_before_retry_after(self) -> None:
        found = plan(polled(failures=1, fresh_seconds=5 * HOUR), NOW, PACE)
        self.assert_pause(found, 5 * HOUR)
        self.assertEqual(found.reason, "polled after 5 hours, as its server asked (Retry-After)")

    def test_beyond_the_ceiling(self) -> None:
        state = polled(fresh_seconds=3 * DAY, pinged_at=NOW)
        self.assert_pause(plan(state, NOW, PACE), 3 * DAY)

    def test_a_year_is_a_mistake(self) -> None:
        self.assert_pause(plan(polled(fresh_seconds=365 * DAY), NOW, PACE), 7 * DAY)


class SkipTests(PlanCase):
    """Hours and days that are skipped, in GMT."""

    def test_hours(self) -> None:
        state = polled(hints=Hints(60, skip_hours=frozenset({*range(11, 15), 20})))
        found = plan(state, NOW, PACE)
        self.assertEqual((hour_of(found.at), day_of(found.at)), (15, 2))
        self.assertRegex(found.reason, "; hours 11-14, 20 are skipped \\(GMT\\)$")

    def test_over_midnight(self) -> None:
        state = polled(hints=Hints(skip_hours=frozenset({*range(11, 24), *range(7)})))
        found = plan(state, NOW, PACE)
        self.assertEqual((hour_of(found.at), day_of(found.at)), (7, 3))

    def test_days(self) -> None:
        state = polled(poll_interval=16 * HOUR, hints=Hints(skip_days=frozenset({3, 4})))
        found = plan(state, NOW, PACE)
        self.assertEqual((hour_of(found.at), day_of(found.at)), (0, 5))
        self.assertIn("; Thursday and Friday are skipped (GMT)", found.reason)

    def test_nothing_to_skip_at_that_time(self) -> None:
        hints = Hints(skip_hours=frozenset({3}), skip_days=frozenset({6}))
        found = plan(polled(hints=hints), NOW, PACE)
        self.assertEqual(found.at, plan(polled(), NOW, PACE).at)
        self.assertIn("; hour 3 is skipped (GMT); Sunday is skipped (GMT)", found.reason)

    def test_all_of_them_are_none(self) -> None:
        hints = Hints(skip_hours=frozenset(range(24)), skip_days=frozenset(range(7)))
        found = plan(polled(hints=hints), NOW, PACE)
        self.assertEqual(found.at, plan(polled(), NOW, PACE).at)
        self.assertIn("skip all 24 hours, which is ignored", found.reason)
        self.assertIn("skip all seven days, which is ignored", found.reason)

    def test_one_hour_of_the_week_is_left(self) -> None:
        hints = Hints(skip_hours=frozenset(range(23)), skip_days=frozenset({0, 1, 2, 3, 4, 6}))
        found = plan(polled(hints=hints), NOW, PACE)
        self.assertEqual((hour_of(found.at), day_of(found.at)), (23, 5))


class SpreadTests(PlanCase):
    """Topics are not all due at the same moment."""

    def states(self, count: int, **others: Any) -> list[TopicStatus]:
        return [status_of(f"https://site{n}.example/feed", **others) for n in range(count)]

    def most_at_once(self, states: list[TopicStatus], within: float) -> None:
        """No minute has more than twice its share of the topics."""
        minutes = Counter(int(plan(state, NOW, PACE).at // MINUTE) for state in states)
        self.assertLess(max(minutes.values()), 2 * len(states) * MINUTE / within)

    def test_new_topics(self) -> None:
        states = self.states(10_000)
        self.most_at_once(states, HOUR)
        found = plan(states[0], NOW, PACE)
        self.assertEqual(found.reason, "polled for the first time, within 60 minutes")
        self.assertEqual((found, found.interval), (plan(states[0], NOW, PACE), HOUR))

    def test_topics_that_were_polled_together(self) -> None:
        self.most_at_once(self.states(10_000, asked_at=NOW, poll_interval=4 * HOUR), 0.6 * HOUR)
        self.most_at_once(self.states(10_000, asked_at=NOW, poll_interval=DAY), 2.4 * HOUR)

    def test_topics_that_are_overdue(self) -> None:
        states = self.states(10_000, asked_at=NOW - 30 * DAY, poll_interval=4 * HOUR)
        self.most_at_once(states, HOUR)
        self.assertIn("overdue; polled every 6 hours", plan(states[0], NOW, PACE).reason)

    def test_an_overdue_topic_waits_no_longer_than_its_pause(self) -> None:
        for state in self.states(100, asked_at=NOW - DAY, changed_at=NOW, poll_interval=60):
            self.assertLessEqual(plan(state, NOW, PACE).at, NOW + PACE.floor * 1.1)

    def test_topics_whose_skipped_hours_end(self) -> None:
        hints = Hints(skip_hours=frozenset(range(10, 18)))
        states = self.states(10_000, hints=hints)
        self.most_at_once(states, HOUR)

    def test_a_topic_keeps_its_place(self) -> None:
        first, second = self.states(2, asked_at=NOW, poll_interval=HOUR)
        self.assertNotEqual(plan(first, NOW, PACE).at, plan(second, NOW, PACE).at)

    def test_planning_costs_next_to_nothing(self) -> None:
        """The aim is a second for 100,000; the test allows more, for a busy machine."""
        hints = Hints(60, frozenset(range(7)), frozenset({5, 6}), DAY, NOW)
        states = self.states(
            20_000, hints=hints, asked_at=NOW, fresh_seconds=600, poll_interval=DAY
        )
        started = time.process_time()
        for state in states:
            plan(state, NOW, PACE)
        self.assertLess(time.process_time() - started, 1.0)


class PaceTests(SynchronousTestCase):
    def test_the_ceiling_is_above_the_floor(self) -> None:
        for floor, ceiling in ((0, 5), (-1, 5), (10, 5)):
            with self.assertRaisesRegex(ValueError, "ceiling of at least the floor"):
                PollIntervals(floor=floor, ceiling=ceiling)
        self.assertEqual(PollIntervals(floor=5, ceiling=5).ceiling, 5)


_moments = st.none() | st.floats(NOW - 60 * DAY, NOW)
_hints = st.builds(
    Hints,
    ttl_minutes=st.none() | st.integers(1, 525_600),
    skip_hours=st.frozensets(st.integers(0, 23)),
    skip_days=st.frozensets(st.integers(0, 6)),
    update_seconds=st.none() | st.floats(30, 400 * DAY),
    update_base=st.none() | st.floats(-6e10, 2e11),
)
_states = st.builds(
    status_of,
    url=st.text(max_size=20),
    asked_at=_moments,
    changed_at=_moments,
    poll_interval=st.none() | st.floats(1, 1e9),
    failures=st.integers(0, 100),
    pinged_at=_moments,
    fresh_seconds=st.none() | st.floats(0, 2**31),
    hints=_hints,
)
_paces = st.tuples(st.floats(1, 2 * DAY), st.floats(1, 30)).map(
    lambda pair: PollIntervals(floor=pair[0], ceiling=pair[0] * pair[1])
)


class AlwaysTests(SynchronousTestCase):
    """What holds for every state and every pace."""

    @given(_states, _paces)
    def test_the_rules(self, state: TopicStatus, pace: PollIntervals) -> None:
        found = plan(state, NOW, pace)
        self.assertEqual(found, plan(state, NOW, pace))
        self.assertTrue(pace.floor <= found.interval <= pace.ceiling)
        self.assertGreaterEqual(found.at, NOW)
        hints = hints_of(state.feed)
        if len(hints.skip_hours) < 24:
            self.assertNotIn(hour_of(found.at), hints.skip_hours)
        if len(hints.skip_days) < 7:
            self.assertNotIn(day_of(found.at), hints.skip_days)
        skipped = 7 * DAY if hints.skip_hours or hints.skip_days else 0.0
        if state.asked_at is None:
            self.assertLessEqual(found.at, NOW + min(pace.ceiling, MAX_SPREAD_SECONDS) + skipped)
            return
        since = found.at - state.asked_at + 0.001
        fresh = min(state.fresh_seconds or 0.0, MAX_FRESH_SECONDS)
        self.assertGreaterEqual(since, fresh)
        self.assertGreaterEqual(since, pace.floor)
        self.assertGreaterEqual(since, min(60.0 * (hints.ttl_minutes or 0), pace.ceiling))
        latest = max(state.asked_at + max(pace.ceiling, fresh + 0.1 * pace.ceiling), NOW)
        self.assertLessEqual(found.at, latest + min(pace.ceiling, MAX_SPREAD_SECONDS) + skipped)
        self.assertTrue(found.reason)
