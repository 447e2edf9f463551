"""Reads a feed's hints on when to poll it: ``ttl``, ``skipHours`` and others.

RSS 0.91 to 2.0 have ``ttl`` (minutes), ``skipHours`` (hours in GMT) and
``skipDays`` (English names); the syndication module of RSS 1.0, which other
formats use too, has a period, a number of updates in it, and a moment to count from::

    <ttl>60</ttl>
    <skipHours><hour>0</hour><hour>1</hour></skipHours>
    <skipDays><day>Sunday</day></skipDays>

    <sy:updatePeriod>daily</sy:updatePeriod>
    <sy:updateFrequency>2</sy:updateFrequency>
    <sy:updateBase>2000-01-01T12:00+00:00</sy:updateBase>

They are hints for polling and for nothing else: a publisher's ping is never
held back by them.  A value that cannot be is ignored, and said to be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from attrs import frozen

from rsscloud_broker.wire.text import clean

#: Monday is 0, as it is for ``time.gmtime``.
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
#: The longest ``ttl`` that is believed: a year.
MAX_TTL_MINUTES: Final = 365 * 24 * 60

_PERIODS = {
    "hourly": 3600.0,
    "daily": 86_400.0,
    "weekly": 7 * 86_400.0,
    "monthly": 30 * 86_400.0,
    "yearly": 365 * 86_400.0,
}
_DAY_NUMBERS = {name.lower(): number for number, name in enumerate(DAYS)}
_DIGITS = re.compile(r"[0-9]{1,9}")
#: A date of W3C's profile of ISO 8601, which may end with the year or the month.
_W3C_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2}(T[0-9:.]+(Z|[+-][0-9]{2}:?[0-9]{2})?)?)?)?")


@frozen
class Hints:
    """When a feed asks to be polled, and when not; a field is empty without a valid hint.

    :ivar ttl_minutes: how long a fetched feed may be kept, in minutes.
    :ivar skip_hours: hours of the day in which nothing changes, 0-23, in GMT.
    :ivar skip_days: days of the week in which nothing changes; Monday is 0.
    :ivar update_seconds: the time between two updates of the feed, in seconds.
    :ivar update_base: the moment of one such update, in seconds since the epoch.
    """

    ttl_minutes: int | None = None
    skip_hours: frozenset[int] = frozenset()
    skip_days: frozenset[int] = frozenset()
    update_seconds: float | None = None
    update_base: float | None = None


def read_hints(
    *,
    ttl: str | None = None,
    hours: Sequence[str] = (),
    days: Sequence[str] = (),
    period: str | None = None,
    frequency: str | None = None,
    base: str | None = None,
) -> tuple[Hints, list[str]]:
    """The valid hints among the texts in a feed, and a sentence about each of the others.

    The hour 24 is taken for 0, since old feeds count from 1 to 24.
    """
    problems: list[str] = []
    skip_hours = {_read_hour(text, problems) for text in hours} - {None}
    skip_days = {_read_day(text, problems) for text in days} - {None}
    if len(skip_hours) == 24:
        problems.append("skipHours is ignored: it names all 24 hours of the day")
    if len(skip_days) == 7:
        problems.append("skipDays is ignored: it names all seven days of the week")
    hints = Hints(
        _read_number("ttl", "minutes", ttl, MAX_TTL_MINUTES, problems),
        frozenset(hour for hour in skip_hours if hour is not None),
        frozenset(day for day in skip_days if day is not None),
        _read_update_seconds(period, frequency, problems),
        _read_update_base(base, problems),
    )
    return hints, problems


def _read_number(
    name: str, unit: str, text: str | None, largest: int, problems: list[str]
) -> int | None:
    """The number in a text; None without a text, or with a problem if it is no such number."""
    if text is None:
        return None
    digits = text.strip()
    if _DIGITS.fullmatch(digits) and 1 <= int(digits) <= largest:
        return int(digits)
    _add_problem(problems, name, text, f"it must be a number of {unit} from 1 to {largest}")
    return None


def _read_hour(text: str, problems: list[str]) -> int | None:
    """The hour in a text, where 24 is 0.  If the text is no hour: None, and a problem is added."""
    digits = text.strip()
    if _DIGITS.fullmatch(digits) and int(digits) <= 24:
        return int(digits) % 24
    _add_problem(problems, "an hour in skipHours", text, "hours are numbers from 0 to 23, in GMT")
    return None


def _read_day(text: str, problems: list[str]) -> int | None:
    """The number of the day in a text.  If the text is no day: None, and a problem is added."""
    number = _DAY_NUMBERS.get(text.strip().lower())
    if number is None:
        _add_problem(problems, "a day in skipDays", text, f"days are {', '.join(DAYS)}")
    return number


def _read_update_seconds(
    period: str | None, frequency: str | None, problems: list[str]
) -> float | None:
    """Seconds between updates; None if the feed gives none, or with a problem if it is faulty."""
    # A larger ``updateFrequency`` is not believed: in a year, it is an update every half minute.
    times = _read_number("updateFrequency", "times", frequency, 1_000_000, problems)
    if period is None and times is None:
        return None
    period = "daily" if period is None else period.strip().lower()
    if period not in _PERIODS:
        rule = f"it must be one of {', '.join(_PERIODS)}"
        _add_problem(problems, "updatePeriod", period, rule)
        return None
    return _PERIODS[period] / (times or 1)


def _read_update_base(text: str | None, problems: list[str]) -> float | None:
    """The moment to count updates from; None without a text, or with a problem if it is no date."""
    if text is None:
        return None
    given = text.strip()
    if _W3C_DATE.fullmatch(given):
        # A date without a month or a day means the first one.
        complete = given + "-01" * (2 - given[:10].count("-")) if len(given) < 10 else given
        try:
            moment = datetime.fromisoformat(complete)
        except ValueError:  # for instance a 31st of February
            pass
        else:
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    _add_problem(problems, "updateBase", text, "it must be a date such as 2000-01-01T12:00+00:00")
    return None


def _add_problem(problems: list[str], name: str, text: str, rule: str) -> None:
    """Add a sentence to the problems: that a value is ignored, and what the rule is."""
    given = clean(text)[:40] or "nothing"
    problems.append(f"{name} of {given} is ignored: {rule}")
