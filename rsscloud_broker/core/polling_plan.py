"""When a topic is polled next, and why: one pure function over all that is known.

What is weighed, from the weakest to the strongest:

1. **how often it changes**: the interval is halved when a poll finds a change and
   grows by half when it finds none, between the floor and the ceiling of the
   configuration
2. **failures**: each in a row doubles the pause; the interval itself stays
3. **the feed's own hints**: ``ttl`` and the syndication module say how long not to
   ask; the ceiling goes before them
4. **pings**: a topic that has pinged lately is polled at the ceiling, as a safety net
5. **HTTP**: not before the last answer ceases to be fresh, even beyond the ceiling;
   but a week at most, since files are served as fresh for a year by mistake
6. **hours and days to be skipped**, in GMT: never in them, even beyond the ceiling;
   all hours, or all days, count as none

Topics that would come at the same moment are spread out by a hash of their URL:
a topic is always as early or late as it was.  Its pauses are up to a tenth longer
for that (at the ceiling: shorter); one that is overdue, as all are after a night of
standing still, or was never polled, comes within its own pause from now, and within
an hour; and so it is after skipped hours.

Planning must cost next to nothing: 100,000 topics in less than a second.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from zlib import crc32

from attrs import Attribute, field, frozen

from rsscloud_broker.wire.feed_hints import DAYS, Hints

#: How long an answer may count as fresh.
MAX_FRESH_SECONDS: Final = 7 * 86_400.0
#: Topics that would come at once are spread over at most so many seconds.
MAX_SPREAD_SECONDS: Final = 3600.0

_HOUR = 3600
_DAY = 86_400
#: How much longer a pause may be to keep topics apart.
_SPREAD = 0.1
_GROWTH = 1.5
#: Failures beyond this many make no difference: the ceiling is reached.
_MAX_DOUBLINGS = 30
#: The first of January 1970 was a Thursday; Monday is 0.
_EPOCH_DAY = 3


def _not_below_floor(pace: Pace, attribute: Attribute[float], value: float) -> None:
    if not 0 < pace.floor <= value:
        raise ValueError(
            f"a pace has a floor above 0, and a {attribute.name} of at least the floor;"
            f" not {pace.floor:g} and {value:g} seconds"
        )


@frozen
class Pace:
    """How often topics are polled, as the operator wants it; in seconds.

    :ivar floor: the shortest pause.
    :ivar ceiling: the longest.
    :ivar first: the interval of a topic of which nothing is known.
    :ivar ping_trust: how long after a ping a topic is taken for one that pings.
    """

    floor: float = 15 * 60.0
    ceiling: float = field(default=24 * 3600.0, validator=_not_below_floor)
    first: float = 3600.0
    ping_trust: float = 7 * 86_400.0


@frozen
class PollState:
    """What is known of a topic once it was polled, or before it ever was.

    Moments are seconds since the epoch; None where it never happened.

    :ivar last_polled_at: when it was last asked for, by a poll or because of a ping.
    :ivar last_changed_at: when it was last found changed.  The last poll found a
        change if this is not before it.
    :ivar interval: that of the plan which led to the last poll.
    :ivar failures: polls in a row that failed, up to the last one.
    :ivar pinged_at: when it last pinged.
    :ivar fresh_seconds: for how long the last answer was fresh, counted from
        ``last_polled_at``; a ``Retry-After`` may stand here too.
    :ivar hints: of the feed as it was last read.
    """

    url: str
    last_polled_at: float | None = None
    last_changed_at: float | None = None
    interval: float | None = None
    failures: int = 0
    pinged_at: float | None = None
    fresh_seconds: float | None = None
    hints: Hints = field(factory=Hints)


@frozen
class Plan:
    """When a topic is to be polled.

    :ivar at: seconds since the epoch; never before now.
    :ivar reason: why then, for people: a sentence without its subject (the topic)
        and without the full stop.
    :ivar interval: what the pause was made of; to be kept, and handed back as
        ``PollState.interval`` once that poll was made.
    """

    at: float
    reason: str
    interval: float


def plan(state: PollState, now: float, pace: Pace) -> Plan:
    """When to poll a topic next.

    The same arguments always give the same plan.  For a topic that is overdue or
    was never polled, ``now`` is what its pause is counted from: it is planned once
    and not again and again, or it will never be its turn.

    :param now: seconds since the epoch.
    """
    share = crc32(state.url.encode("utf-8", "surrogatepass")) / 2**32
    interval = _interval(state, pace)
    if state.last_polled_at is None:
        span = min(interval, MAX_SPREAD_SECONDS)
        at, reason = now + share * span, f"polled for the first time, within {_duration(span)}"
    else:
        pause, reason = _pause(state, interval, share, now, pace)
        at = state.last_polled_at + pause
        fresh = min(state.fresh_seconds or 0.0, MAX_FRESH_SECONDS)
        if fresh > pause:
            at = state.last_polled_at + fresh + share * _SPREAD * pause
            reason = f"polled when the last answer is not fresh any more, after {_duration(fresh)}"
        if at < now:
            at = now + share * min(pause, MAX_SPREAD_SECONDS)
            reason = f"overdue; {reason}"
    hints = state.hints
    if hints.skip_hours or hints.skip_days:
        at = _outside_skipped(at, share, hints)
        reason += _skipped(hints.skip_hours, hints.skip_days)
    return Plan(at, reason, interval)


def _interval(state: PollState, pace: Pace) -> float:
    """The interval that follows from what the last poll found."""
    interval = pace.first if state.interval is None else state.interval
    polled_at, changed_at = state.last_polled_at, state.last_changed_at
    # Of a topic that pings, or fails, a poll teaches nothing about its rhythm.
    if polled_at is not None and not state.failures and not _pings(state, polled_at, pace):
        if changed_at is not None and changed_at >= polled_at:
            interval /= 2
        elif state.interval is not None:
            interval *= _GROWTH
    return min(max(interval, pace.floor), pace.ceiling)


def _pings(state: PollState, at: float, pace: Pace) -> bool:
    return state.pinged_at is not None and at - state.pinged_at < pace.ping_trust


def _pause(
    state: PollState, interval: float, share: float, now: float, pace: Pace
) -> tuple[float, str]:
    """Seconds from the last poll to the next, and why.

    Neither HTTP nor skipped hours are looked at yet.
    """
    asked, asking = _asked_pause(state)
    least = min(asked, pace.ceiling)
    if _pings(state, now, pace):
        pause = pace.ceiling
        reason = f"polled every {_duration(pause)} only, to be safe, since it pings"
    elif state.failures:
        pause = min(interval * 2 ** min(state.failures, _MAX_DOUBLINGS), pace.ceiling)
        polls = "poll" if state.failures == 1 else f"{state.failures} polls"
        reason = f"polled after {_duration(pause)} since the last {polls} failed"
    else:
        pause = interval
        reason = f"polled every {_duration(pause)}, by how often it changed lately"
    if pause < least:
        pause, reason = least, asking.format(_duration(least))
        if asked > least:
            reason += "; it asks for more, but this is the longest pause"
    spread = min(pause * (1 + _SPREAD * share), pace.ceiling * (1 - _SPREAD * share))
    return max(spread, least, pace.floor), reason


def _asked_pause(state: PollState) -> tuple[float, str]:
    """Seconds for which the feed asks to be left alone after the last poll.

    :returns: also how to say so; a pair of braces stands for the pause.
    """
    hints = state.hints
    ttl = 60.0 * (hints.ttl_minutes or 0)
    update = hints.update_seconds or 0.0
    asking = "polled every {} since its syndication module says so"
    if update and hints.update_base is not None and state.last_polled_at is not None:
        # The next of the moments that are an update's distance apart.
        update -= (state.last_polled_at - hints.update_base) % update
        asking = "polled after {}, at the next update by its syndication module"
    return (update, asking) if update > ttl else (ttl, "polled every {} since its ttl says so")


# --- hours and days that are skipped ----------------------------------------


def _outside_skipped(at: float, share: float, hints: Hints) -> float:
    """A moment that is in no skipped hour or day: this one, or the first one later.

    In that first free hour topics are spread, or all would come when it begins.
    """
    hours = hints.skip_hours if len(hints.skip_hours) < 24 else frozenset()
    days = hints.skip_days if len(hints.skip_days) < 7 else frozenset()
    hour = int(at // _HOUR)
    first = hour
    while (hour // 24 + _EPOCH_DAY) % 7 in days or hour % 24 in hours:
        hour += 1  # at most a week of them, as one hour of one day is free
    return at if hour == first else hour * _HOUR + share * (_HOUR - 1)


@lru_cache(maxsize=4096)
def _skipped(hours: frozenset[int], days: frozenset[int]) -> str:
    """What is skipped, to be put behind a reason."""
    notes = []
    if len(hours) == 24:
        notes.append("it asks to skip all 24 hours, which is ignored")
    elif hours:
        one = len(hours) == 1
        notes.append(f"{'hour' if one else 'hours'} {_ranges(hours)} {_are(one)} skipped (GMT)")
    if len(days) == 7:
        notes.append("it asks to skip all seven days, which is ignored")
    elif days:
        names = " and ".join(DAYS[day] for day in sorted(days))
        notes.append(f"{names} {_are(len(days) == 1)} skipped (GMT)")
    return "".join(f"; {note}" for note in notes)


def _are(one: bool) -> str:
    return "is" if one else "are"


def _ranges(hours: frozenset[int]) -> str:
    """Numbers as people write them: 0-6, 12."""
    begin = [hour for hour in sorted(hours) if hour - 1 not in hours]
    end = [hour for hour in sorted(hours) if hour + 1 not in hours]
    return ", ".join(
        str(first) if first == last else f"{first}-{last}"
        for first, last in zip(begin, end, strict=True)
    )


def _duration(seconds: float) -> str:
    return _minutes(round(seconds / 60))


@lru_cache(maxsize=4096)
def _minutes(minutes: int) -> str:
    if minutes >= 2 * 1440:
        return f"{round(minutes / 1440, 1):g} days"
    if minutes >= 3 * 60:
        return f"{round(minutes / 60, 1):g} hours"
    return "1 minute" if minutes == 1 else f"{minutes} minutes"
