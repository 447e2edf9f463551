"""How long to wait before something that failed is tried again: exponential backoff."""

from __future__ import annotations


def backoff(first: float, failures: int, longest: float) -> float:
    """The seconds to wait: they double with each further failure.

    :param first: the seconds after the first failure.
    :param failures: how many failures came in a row before the last one.
    :param longest: what it is at most, in seconds.
    """
    # After so many doublings a second has become 34 years, and any limit is reached.
    return min(first * 2.0 ** min(max(failures, 0), 30), longest)
