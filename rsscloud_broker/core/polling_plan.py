"""Decides when a topic is polled next, and why: one pure function, ``plan``.

``Poller`` calls it after each poll.  It weighs, from the weakest to the strongest:

1. **how often the topic changes**: the interval is halved when a poll finds a change and grows
   by half when it finds none, between the floor and the ceiling of the configuration
2. **failures**: each in a row doubles the pause; the interval itself stays
3. **the feed's own hints**: ``ttl`` and the syndication module ask for a pause; the ceiling
   overrides them
4. **pings**: a topic that was pinged lately is polled at the ceiling, as a safety net
5. **HTTP**: no poll while the last answer is fresh, or before the time of its ``Retry-After``,
   even beyond the ceiling; but a week at most, since some servers declare files fresh for a year by
   mistake
6. **hours and days to skip**, in GMT: no poll in them, even beyond the ceiling.  A feed that
   asks to skip all hours, or all days, is ignored in that

A hash of the URL spreads topics that would be due at the same moment; a topic's share of the
spread never changes.  It makes a pause up to a tenth longer (at the ceiling: shorter).  A topic
that is overdue, or was never polled, is polled within its own pause from now, and within an
hour.  After skipped hours the polls are spread over an hour.

Planning must be cheap: 100,000 topics in less than a second.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from zlib import crc32

from attrs import frozen

from rsscloud_broker.model import TopicStatus
from rsscloud_broker.model.work import PollPlan
from rsscloud_broker.util.backoff import backoff
from rsscloud_broker.wire.feed_hints import DAYS, Hints
from rsscloud_broker.wire.feed_summary import hints_of
from rsscloud_broker.wire.units import HOUR

#: The longest time in seconds for which an answer may count as fresh.
MAX_FRESH_SECONDS: Final = 7 * 86_400.0
#: The longest time in seconds over which topics that are due at once are spread.
MAX_SPREAD_SECONDS: Final = 3600.0

#: The part of a pause by which it may be longer or shorter, to spread topics.
_SPREAD = 0.1


@frozen
class PollIntervals:
    """How often topics are polled, from the configuration; in seconds.

    :ivar floor: the shortest pause.
    :ivar ceiling: the longest pause, which is not shorter.
    :ivar first: the interval of a topic that was never polled.
    :ivar ping_trust: how long after a ping the broker relies on the pings of a topic.
    """

    floor: float = 15 * 60.0
    ceiling: float = 24 * 3600.0
    first: float = 3600.0
    ping_trust: float = 7 * 86_400.0


def plan(status: TopicStatus, now: float, pace: PollIntervals) -> PollPlan:
    """When to poll a topic next, never before now; unless somebody else has planned it meanwhile.

    The reason is a sentence without its subject (the topic) and without the full stop.  The
    interval is the one that the pause was computed from.

    The same arguments always give the same plan.  The pause of a topic that is overdue or was
    never polled starts at ``now``, so a caller that plans such a topic again and again would
    never poll it.

    :param now: seconds since the epoch.
    """
    # From 0 to 1, always the same for a URL: the polls of many topics are spread by it.
    share = crc32(status.topic.url.encode("utf-8", "surrogatepass")) / 2**32
    hints = hints_of(status.feed)
    interval = _interval(status, now, pace)
    if status.asked_at is None:
        span = min(interval, MAX_SPREAD_SECONDS)
        at, reason = now + share * span, f"polled for the first time, within {_duration_text(span)}"
    else:
        pause, reason = _pause(status, hints, interval, share, now, pace)
        polled_at = min(status.asked_at, now)  # later than now if the clock was set back
        at = polled_at + pause
        fresh = min(status.fresh_seconds or 0.0, MAX_FRESH_SECONDS)
        if fresh > pause:
            at = polled_at + fresh + share * _SPREAD * pause
            after = _duration_text(fresh)
            reason = f"polled when the last answer is not fresh any more, after {after}"
            if status.failures:
                reason = f"polled after {after}, as its server asked (Retry-After)"
        if at < now:
            at = now + share * min(pause, MAX_SPREAD_SECONDS)
            reason = f"overdue; {reason}"
    if hints.skip_hours or hints.skip_days:
        at = _outside_skipped(at, share, hints)
        reason += _skipped_text(hints.skip_hours, hints.skip_days)
    return PollPlan(status.topic.url, at, reason, interval, now, status.planned_at)


def _interval(status: TopicStatus, now: float, pace: PollIntervals) -> float:
    """The new interval: the last one, changed by what the last fetch found since the last plan.

    A change that is far ahead was found before the clock was set back, by an earlier fetch.
    """
    interval = pace.first if status.poll_interval is None else status.poll_interval
    polled_at, changed_at = status.asked_at, status.topic.changed_at
    # The polls of a topic that is pinged or fails say nothing about how often it changes.
    if (
        polled_at is not None
        and polled_at > (status.planned_at or 0.0)
        and not status.failures
        and not _relies_on_pings(status, polled_at, pace)
    ):
        if changed_at is not None and polled_at <= changed_at < now + pace.floor:
            interval /= 2
        elif status.poll_interval is not None:
            # It grows more slowly than it shrinks, so that changes are not missed for long.
            interval *= 1.5
    return min(max(interval, pace.floor), pace.ceiling)


def _relies_on_pings(status: TopicStatus, at: float, pace: PollIntervals) -> bool:
    return status.pinged_at is not None and at - status.pinged_at < pace.ping_trust


def _pause(
    status: TopicStatus,
    hints: Hints,
    interval: float,
    share: float,
    now: float,
    pace: PollIntervals,
) -> tuple[float, str]:
    """Seconds from the last poll to the next, and why.

    Freshness and skipped hours are left to the caller.

    :param share: from 0 to 1; it keeps topics with the same interval from being polled together.
    """
    asked, asking = _asked_pause(status, hints)
    least = min(asked, pace.ceiling)
    if _relies_on_pings(status, now, pace):
        pause = pace.ceiling
        reason = f"polled every {_duration_text(pause)} only, to be safe, since it pings"
    elif status.failures:
        pause = backoff(interval, status.failures, pace.ceiling)
        polls = "poll" if status.failures == 1 else f"{status.failures} polls"
        reason = f"polled after {_duration_text(pause)} since the last {polls} failed"
    else:
        pause = interval
        reason = f"polled every {_duration_text(pause)}, by how often it changed lately"
    if pause < least:
        pause, reason = least, asking.format(_duration_text(least))
        if asked > least:
            reason += "; it asks for more, but this is the longest pause"
    spread = min(pause * (1 + _SPREAD * share), pace.ceiling * (1 - _SPREAD * share))
    return max(spread, least, pace.floor), reason


def _asked_pause(status: TopicStatus, hints: Hints) -> tuple[float, str]:
    """The pause after the last poll that the feed asks for, in seconds.

    :returns: the pause, and the reason with a pair of braces in place of the pause.
    """
    ttl = 60.0 * (hints.ttl_minutes or 0)
    update = hints.update_seconds or 0.0
    asking = "polled every {} since its syndication module says so"
    if update and hints.update_base is not None and status.asked_at is not None:
        # Updates come at update_base and every update_seconds before and after it.
        update -= (status.asked_at - hints.update_base) % update
        asking = "polled after {}, at the next update by its syndication module"
    return (update, asking) if update > ttl else (ttl, "polled every {} since its ttl says so")


# --- hours and days that are skipped ----------------------------------------


def _outside_skipped(at: float, share: float, hints: Hints) -> float:
    """The first moment from ``at`` on that is in no skipped hour or day.

    If it is later than ``at``, the topics are spread over the hour that it is in, so that not
    all are polled at its start.
    """
    hours = hints.skip_hours if len(hints.skip_hours) < 24 else frozenset()
    days = hints.skip_days if len(hints.skip_days) < 7 else frozenset()
    hour = int(at // HOUR)
    first = hour
    # The first of January 1970 was a Thursday; Monday is 0.
    while (hour // 24 + 3) % 7 in days or hour % 24 in hours:
        hour += 1  # for a week at most, since one hour of one day is not skipped
    return at if hour == first else hour * HOUR + share * (HOUR - 1)


@lru_cache(maxsize=4096)
def _skipped_text(hours: frozenset[int], days: frozenset[int]) -> str:
    """Which hours and days are skipped, as text to append to a reason."""
    notes = []
    if len(hours) == 24:
        notes.append("it asks to skip all 24 hours, which is ignored")
    elif hours:
        one = len(hours) == 1
        notes.append(
            f"{'hour' if one else 'hours'} {_ranges_text(hours)} {_is_or_are(one)} skipped (GMT)"
        )
    if len(days) == 7:
        notes.append("it asks to skip all seven days, which is ignored")
    elif days:
        names = " and ".join(DAYS[day] for day in sorted(days))
        notes.append(f"{names} {_is_or_are(len(days) == 1)} skipped (GMT)")
    return "".join(f"; {note}" for note in notes)


def _is_or_are(one: bool) -> str:
    return "is" if one else "are"


def _ranges_text(hours: frozenset[int]) -> str:
    """Numbers as people write them: 0-6, 12."""
    begin = [hour for hour in sorted(hours) if hour - 1 not in hours]
    end = [hour for hour in sorted(hours) if hour + 1 not in hours]
    return ", ".join(
        str(first) if first == last else f"{first}-{last}"
        for first, last in zip(begin, end, strict=True)
    )


def _duration_text(seconds: float) -> str:
    """A time in the unit that suits people, from minutes to days."""
    return _minutes_text(round(seconds / 60))


@lru_cache(maxsize=4096)
def _minutes_text(minutes: int) -> str:
    if minutes >= 2 * 1440:
        return f"{round(minutes / 1440, 1):g} days"
    if minutes >= 3 * 60:
        return f"{round(minutes / 60, 1):g} hours"
    return "1 minute" if minutes == 1 else f"{minutes} minutes"
