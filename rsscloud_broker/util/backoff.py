"""How long to wait before something that failed is tried again."""

from __future__ import annotations

from collections.abc import Sequence


def scheduled_pause(schedule: Sequence[float], attempts: int, *, interrupted: bool) -> float | None:
    """The seconds to wait before the next attempt by a schedule; None if there is none.

    :param schedule: the seconds to wait after each attempt but the last.
    :param attempts: how many attempts there were; at least one.
    :param interrupted: whether the last one was interrupted by something else: then, if it was the
        last of the schedule, there is one more five seconds later.
    """
    pauses = (*schedule, 5.0) if interrupted else schedule
    return pauses[attempts - 1] if attempts <= len(pauses) else None


def backoff(first: float, failures: int, longest: float) -> float:
    """The seconds to wait by exponential backoff: they double with each further failure.

    :param first: the seconds after the first failure.
    :param failures: how many failures came in a row before the last one.
    :param longest: what it is at most, in seconds.
    """
    # After 30 doublings a second has become 34 years, and any limit is reached.
    return min(first * 2.0 ** min(max(failures, 0), 30), longest)
