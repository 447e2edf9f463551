"""File descriptors: every connection takes one, and a process may have so many of them.

What a process begins with (``ulimit -n``) is often 1,024, for the sake of programs
that could not bear more.  It may raise that by itself, up to a hard limit.
"""

from __future__ import annotations

from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit


def allow(wanted: int) -> int:
    """Let this process have so many descriptors, or as many as it may.

    :returns: how many it may have now: fewer if the hard limit is lower, more if
        that was so before.
    """
    soft, hard = getrlimit(RLIMIT_NOFILE)
    if soft == RLIM_INFINITY:
        return wanted
    allowed = wanted if hard == RLIM_INFINITY else min(wanted, hard)
    if soft >= allowed:
        return soft
    try:
        setrlimit(RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):  # some systems have a limit of their own beside the hard one
        return soft
    return allowed
