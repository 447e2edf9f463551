"""Raises the process's limit of file descriptors: every connection needs one.

The soft limit (``ulimit -n``) is often 1,024, for the sake of old programs that fail with more.  A
process may raise it by itself, up to the hard limit.
"""

from __future__ import annotations

from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit


def allow(wanted: int) -> int:
    """Raise the limit of file descriptors to ``wanted``, or as far as the system allows.

    :returns: the limit now: lower than ``wanted`` if the hard limit is, higher if it was before.
    """
    soft, hard = getrlimit(RLIMIT_NOFILE)
    if soft == RLIM_INFINITY:
        return wanted
    allowed = wanted if hard == RLIM_INFINITY else min(wanted, hard)
    if soft >= allowed:
        return soft
    try:
        setrlimit(RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):  # some systems have another limit below the hard one
        return soft
    return allowed
