"""Tests when topics are polled: each rule, then what holds for every state."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, TypeAlias

from attrs import asdict, evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.core import polling_plan
from rsscloud_broker.core.polling_plan import MAX_FRESH_SECONDS, MAX_SPREAD_SECONDS, PollIntervals
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

    def assert_pause(self, found: Any, seconds: float, name: str = "") -> None:
        self.assertGreaterEqual(found.at, NOW + min(seconds, PACE.ceiling * 0.9), name)
        self.assertLessEqual(found.at, NOW + seconds * 1.1, name)


Rule: TypeAlias = tuple[str, dict[str, Any], float, str]


class RuleTests(PlanCase):
    """Each rule: what is known of a topic, the pause that follows, and how its reason ends."""

    often = "by how often it changed lately"
    safe = "polled every 24 hours only, to be safe, since it pings"
    rules: tuple[Rule, ...] = (
        ("a change halves the interval", {"changed_at": NOW + 1}, HOUR / 2, f"30 minutes, {often}"),
        ("no change makes it grow", {"changed_at": None}, 1.5 * HOUR, f"90 minutes, {often}"),
        ("nor does an old one", {"changed_at": NOW - DAY}, 1.5 * HOUR, often),
        ("a change before the clock was set back", {"changed_at": NOW + DAY}, 1.5 * HOUR, often),
        ("a poll before the clock was set back", {"asked_at": NOW + DAY}, 1.5 * HOUR, often),
        # Each failure doubles the pause, up to the ceiling.
        ("one failure", {"failures": 1}, 2 * HOUR, "120 minutes since the last poll failed"),
        ("two", {"failures": 2}, 4 * HOUR, "4 hours since the last 2 polls failed"),
        ("four", {"failures": 4}, 16 * HOUR, "16 hours since the last 4 polls failed"),
        ("five", {"failures": 5}, DAY, "polled after 24 hours since the last 5 polls failed"),
        ("very many", {"failures": 10**6}, DAY, "24 hours since the last 1000000 polls failed"),
        ("hints hold", {"failures": 1, "hints": Hints(600)}, 10 * HOUR, "since its ttl says so"),
        # The pause that a feed asks for is a lower bound.
        (
            "ttl",
            {"poll_interval": 10 * MINUTE, "hints": Hints(60)},
            HOUR,
            "polled every 60 minutes since its ttl says so",
        ),
        ("a short ttl does not hasten", {"hints": Hints(1)}, 1.5 * HOUR, often),
        (
            "the ceiling goes before it",
            {"hints": Hints(43_200)},
            DAY,
            "polled every 24 hours since its ttl says so; it asks for more, but this is the longest"
            " pause",
        ),
        (
            "the syndication module",
            {"hints": Hints(60, update_seconds=6 * HOUR)},
            6 * HOUR,
            "every 6 hours since its syndication module says so",
        ),
        (
            "its base: updates are at noon, and it is ten",
            {
                "poll_interval": 10 * MINUTE,
                "hints": Hints(update_seconds=DAY, update_base=NOW - 1000 * DAY + 2 * HOUR),
            },
            2 * HOUR,
            "polled after 120 minutes, at the next update by its syndication module",
        ),
        # A topic that is pinged is polled at the ceiling.
        ("a ping", {"pinged_at": NOW - 6 * DAY}, DAY, safe),
        ("a ping and a ttl", {"pinged_at": NOW, "hints": Hints(43_200)}, DAY, safe),
        ("a ping and failures", {"pinged_at": NOW + 1, "failures": 2}, DAY, safe),
        ("a ping of long ago", {"pinged_at": NOW - 8 * DAY}, 1.5 * HOUR, often),
        # The freshness of an answer overrides the ceiling, up to a week.
        (
            "not before it ends",
            {"fresh_seconds": 3 * HOUR},
            3 * HOUR,
            "polled when the last answer is not fresh any more, after 3 hours",
        ),
        (
            "not before Retry-After",
            {"failures": 1, "fresh_seconds": 5 * HOUR},
            5 * HOUR,
            "polled after 5 hours, as its server asked (Retry-After)",
        ),
        ("beyond the ceiling", {"fresh_seconds": 3 * DAY, "pinged_at": NOW}, 3 * DAY, "3 days"),
        ("a year is a mistake", {"fresh_seconds": 365 * DAY}, 7 * DAY, "after 7 days"),
        ("shorter than the pause", {"fresh_seconds": 5}, 1.5 * HOUR, often),
    )

    def test_pauses_and_reasons(self) -> None:
        for name, known, pause, reason in self.rules:
            found = plan(polled(**known), NOW, PACE)
            self.assert_pause(found, pause, name)
            self.assertTrue(found.reason.endswith(reason), (name, found.reason))

    def test_intervals(self) -> None:
        for name, state, now, interval in (
            ("a change", polled(changed_at=NOW + 1), NOW, HOUR / 2),
            ("no change", polled(changed_at=None), NOW, 1.5 * HOUR),
            ("the floor", polled(changed_at=NOW, poll_interval=660), NOW, PACE.floor),
            ("the ceiling", polled(poll_interval=DAY * 0.9), NOW, DAY),
            ("the first", polled(poll_interval=None), NOW, HOUR),
            ("failures", polled(failures=4), NOW, HOUR),
            ("pings", polled(pinged_at=NOW + 1, changed_at=NOW + 1, failures=2), NOW, HOUR),
            # After a start, late polls are planned anew though none was made since the last plan.
            ("no poll", polled(changed_at=NOW + 1, planned_at=NOW + 2), NOW + DAY, HOUR),
            ("nor change", polled(changed_at=None, planned_at=NOW + 2), NOW + DAY, HOUR),
        ):
            self.assertEqual(plan(state, now, PACE).interval, interval, name)

    def test_replanning_changes_nothing(self) -> None:
        first, again = (plan(polled(), now, PACE) for now in (NOW, NOW + 5))
        self.assertEqual(again, evolve(first, planned_at=NOW + 5))

    def test_a_topic_that_never_changes_comes_to_the_ceiling_and_back(self) -> None:
        for before, last in (
            (polled(), DAY),
            (polled(changed_at=NOW, poll_interval=DAY), PACE.floor),
        ):
            interval = before.poll_interval
            for _ in range(20):
                interval = plan(evolve(before, poll_interval=interval), NOW, PACE).interval
            self.assertEqual(interval, last)


class SkipTests(PlanCase):
    """Hours and days that are skipped, in GMT."""

    def test_skipped(self) -> None:
        every_hour, every_day = frozenset(range(24)), frozenset(range(7))
        rows: tuple[tuple[int | None, set[int], set[int], int, int, str], ...] = (
            (60, {*range(11, 15), 20}, set(), 15, 2, "hours 11-14, 20 are skipped (GMT)"),
            (None, {*range(11, 24), *range(7)}, set(), 7, 3, ""),  # over midnight
            (960, set(), {3, 4}, 0, 5, "Thursday and Friday are skipped (GMT)"),
            (None, {*range(23)}, {0, 1, 2, 3, 4, 6}, 23, 5, ""),  # one hour of the week is left
        )
        for ttl, hours, days, hour, day, reason in rows:
            hints = Hints(ttl, frozenset(hours), frozenset(days))
            found = plan(polled(hints=hints), NOW, PACE)
            self.assertEqual((hour_of(found.at), day_of(found.at)), (hour, day), reason)
            self.assertTrue(found.reason.endswith(reason), found.reason)
        for hints, reason in (
            (
                Hints(skip_hours=frozenset({3}), skip_days=frozenset({6})),
                "; hour 3 is skipped (GMT); Sunday is skipped (GMT)",
            ),
            (
                Hints(skip_hours=every_hour, skip_days=every_day),
                "; it asks to skip all 24 hours, which is ignored; it asks to skip all seven days, "
                "which is ignored",
            ),
        ):
            found = plan(polled(hints=hints), NOW, PACE)
            self.assertEqual(found.at, plan(polled(), NOW, PACE).at)
            self.assertTrue(found.reason.endswith(reason), found.reason)


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
