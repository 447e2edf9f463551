"""The hints of feeds, one by one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire.feed_hints import DAYS, MAX_TTL_MINUTES, Hints, read_hints
from rsscloud_broker.wire.text import clean

_texts = st.text(max_size=30) | st.sampled_from(("0", "24", "-5", "daily", "Monday", "2000-01"))


class HintTests(SynchronousTestCase):
    """Valid hints are read; an invalid one is reported once, and ignored."""

    def test_valid(self) -> None:
        noon = 946_728_000.0
        table: list[tuple[dict[str, Any], Hints]] = [
            ({}, Hints()),
            ({"ttl": "60"}, Hints(ttl_minutes=60)),
            ({"ttl": " 1\n"}, Hints(ttl_minutes=1)),
            ({"ttl": "007"}, Hints(ttl_minutes=7)),
            ({"ttl": "525600"}, Hints(ttl_minutes=MAX_TTL_MINUTES)),
            ({"hours": ("0", " 7 ", "07", "23", "24")}, Hints(skip_hours=frozenset({0, 7, 23}))),
            ({"days": ("Monday", "SUNDAY ")}, Hints(skip_days=frozenset({0, 6}))),
            ({"period": "hourly"}, Hints(update_seconds=3600)),
            ({"period": " Daily\n", "frequency": "2"}, Hints(update_seconds=43_200)),
            ({"period": "weekly", "frequency": "7"}, Hints(update_seconds=86_400)),
            ({"period": "yearly", "frequency": "365"}, Hints(update_seconds=86_400)),
            ({"period": "monthly", "frequency": "1"}, Hints(update_seconds=30 * 86_400)),
            ({"frequency": "24"}, Hints(update_seconds=3600)),
            ({"base": "2000-01-01T12:00+00:00"}, Hints(update_base=noon)),
            ({"base": "2000-01-01T12:00Z"}, Hints(update_base=noon)),
            ({"base": "2000-01-01T13:00:00+01:00"}, Hints(update_base=noon)),
            ({"base": "2000-01-01T12:00:00.00"}, Hints(update_base=noon)),
            ({"base": "2000-01-01"}, Hints(update_base=noon - 12 * 3600)),
            ({"base": "2000-01"}, Hints(update_base=noon - 12 * 3600)),
            ({"base": " 2000 "}, Hints(update_base=noon - 12 * 3600)),
            ({"base": "1970-01-01T00:00Z"}, Hints(update_base=0.0)),
        ]
        for texts, hints in table:
            self.assertEqual(read_hints(**texts), (hints, []), texts)

    def test_invalid(self) -> None:
        """What is beside it counts nevertheless."""
        sunday, daily = Hints(skip_days=frozenset({6})), Hints(update_seconds=86_400)
        bases = ("2000-13-01", "2001-02-31", "0000", "now", "2000-01-01T99:00Z", "20000101")
        hours = ("25", "99", "-1", "x")
        table: list[tuple[dict[str, Any], Hints, list[str]]] = [
            ({"hours": hours}, Hints(), [f"an hour in skipHours of {hour}" for hour in hours]),
            ({"hours": ("",)}, Hints(), ["an hour in skipHours of nothing"]),
            ({"days": ("SUNDAY", "Funday")}, sunday, ["a day in skipDays of Funday"]),
            ({"days": ("Mon", "Sunday ")}, sunday, ["a day in skipDays of Mon"]),
            (
                {"period": "often", "frequency": "0"},
                Hints(),
                ["updateFrequency of 0", "updatePeriod of often"],
            ),
            ({"period": "daily", "frequency": "0"}, daily, ["updateFrequency of 0"]),
            ({"period": "daily", "frequency": "-1"}, daily, ["updateFrequency of -1"]),
            ({"frequency": "often"}, Hints(), ["updateFrequency of often"]),
            ({"base": ""}, Hints(), ["updateBase of nothing"]),
            *(({"base": base}, Hints(), [f"updateBase of {base}"]) for base in bases),
        ]
        for texts, hints, faults in table:
            found, problems = read_hints(**texts)
            told = [problem.partition(" is ignored: ")[0] for problem in problems]
            self.assertEqual((found, told), (hints, faults), texts)

    def test_invalid_ttl(self) -> None:
        for text in ("-5", str(10**12), "0", "", "60.5", "an hour", "٦٠", "525601", "9" * 5000):
            hints, problems = read_hints(ttl=text)
            self.assertEqual(hints, Hints())
            (problem,) = problems
            self.assertRegex(
                problem,
                "^ttl of .* is ignored: it must be a number of minutes from 1 to 525600$",
            )
            self.assertLess(len(problem), 150)

    def test_all_of_them(self) -> None:
        hours, days = [str(hour) for hour in range(1, 25)], list(DAYS)
        hints, problems = read_hints(hours=hours, days=days)
        self.assertEqual((len(hints.skip_hours), len(hints.skip_days)), (24, 7))
        expected = [
            "skipHours is ignored: it names all 24 hours of the day",
            "skipDays is ignored: it names all seven days of the week",
        ]
        self.assertEqual(problems, expected)

    @given(
        st.fixed_dictionaries(
            {
                **dict.fromkeys(("ttl", "period", "frequency"), st.none() | _texts),
                **dict.fromkeys(("hours", "days"), st.lists(_texts, max_size=5)),
                "base": st.none() | _texts | st.datetimes(timezones=st.timezones()).map(str),
            }
        )
    )
    def test_any_texts_give_possible_hints(self, texts: dict[str, Any]) -> None:
        hints, problems = read_hints(**texts)
        self.assertLessEqual(hints.skip_hours, set(range(24)))
        self.assertLessEqual(hints.skip_days, set(range(7)))
        self.assertTrue(hints.ttl_minutes is None or 1 <= hints.ttl_minutes <= MAX_TTL_MINUTES)
        self.assertTrue(hints.update_seconds is None or hints.update_seconds > 0)
        for problem in problems:
            self.assertEqual(problem, clean(problem))
