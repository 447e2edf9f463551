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

    def test_nothing(self) -> None:
        self.assertEqual(read_hints(), (Hints(), []))

    def test_ttl(self) -> None:
        for text, minutes in (("60", 60), (" 1\n", 1), ("007", 7), ("525600", MAX_TTL_MINUTES)):
            self.assertEqual(read_hints(ttl=text), (Hints(ttl_minutes=minutes), []))

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

    def test_hours(self) -> None:
        hints, problems = read_hints(hours=("0", " 7 ", "07", "23", "24"))
        self.assertEqual((hints.skip_hours, problems), (frozenset({0, 7, 23}), []))
        hints, problems = read_hints(hours=("25", "99", "-1", "", "x"))
        self.assertEqual((hints.skip_hours, len(problems)), (frozenset(), 5))

    def test_days(self) -> None:
        hints, problems = read_hints(days=("Monday", "SUNDAY ", "Funday", "Mon"))
        self.assertEqual(hints.skip_days, frozenset({0, 6}))
        expected = ["a day in skipDays of Fund", "a day in skipDays of Mon "]
        self.assertEqual([problem[:25] for problem in problems], expected)

    def test_all_of_them(self) -> None:
        hours, days = [str(hour) for hour in range(1, 25)], list(DAYS)
        hints, problems = read_hints(hours=hours, days=days)
        self.assertEqual((len(hints.skip_hours), len(hints.skip_days)), (24, 7))
        expected = [
            "skipHours is ignored: it names all 24 hours of the day",
            "skipDays is ignored: it names all seven days of the week",
        ]
        self.assertEqual(problems, expected)

    def test_updates(self) -> None:
        cases: dict[tuple[str | None, str | None], float] = {
            ("hourly", None): 3600,
            (" Daily\n", "2"): 43_200,
            ("weekly", "7"): 86_400,
            ("yearly", "365"): 86_400,
            ("monthly", "1"): 30 * 86_400,
            (None, "24"): 3600,
        }
        for (period, frequency), seconds in cases.items():
            hints, problems = read_hints(period=period, frequency=frequency)
            self.assertEqual((hints.update_seconds, problems), (seconds, []))

    def test_invalid_updates(self) -> None:
        hints, problems = read_hints(period="often", frequency="0")
        self.assertEqual((hints, len(problems)), (Hints(), 2))
        hints, problems = read_hints(period="daily", frequency="-1")
        self.assertEqual((hints.update_seconds, len(problems)), (86_400, 1))
        hints, problems = read_hints(frequency="often")
        self.assertEqual((hints, len(problems)), (Hints(), 1), "that it is ignored")

    def test_bases(self) -> None:
        noon = 946_728_000.0
        cases = {
            "2000-01-01T12:00+00:00": noon,
            "2000-01-01T12:00Z": noon,
            "2000-01-01T13:00:00+01:00": noon,
            "2000-01-01T12:00:00.00": noon,
            "2000-01-01": noon - 12 * 3600,
            "2000-01": noon - 12 * 3600,
            " 2000 ": noon - 12 * 3600,
            "1970-01-01T00:00Z": 0.0,
        }
        for text, moment in cases.items():
            hints, problems = read_hints(base=text)
            self.assertEqual((hints.update_base, problems), (moment, []))

    def test_invalid_bases(self) -> None:
        for text in (
            *("", "2000-13-01", "2001-02-31", "0000", "now", "2000-01-01T99:00Z", "20000101"),
        ):
            hints, problems = read_hints(base=text)
            self.assertEqual((hints, len(problems)), (Hints(), 1))

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
