"""Counts running jobs, in total and per host, and says whether another may start.

`FairLimiter`, `IntentQueue` and `Poller` use it; they keep their own queues.

A source (see ``addresses``) may run at most as many jobs as are still free, in total and at each
host, so one slow source uses at most half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple


class HostQuota(NamedTuple):
    """How much of one kind may be under way at one host.

    :ivar kind: what is counted, such as ``fetch``; each kind is counted by itself.
    :ivar limit: how much of that kind may be under way there at a time.
    """

    kind: str
    host: str
    limit: int


class HostLimiter:
    """Counts what is under way.

    :param limit: how much may be under way at a time, in all.
    :ivar nodes: by how many nodes the limits are shared, of which this process is one.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.nodes = 1
        self._total = 0
        self._counts: Counter[Hashable] = Counter()  # of each source, of each quota, and of both

    def __len__(self) -> int:
        """How many counts are kept.  A count of zero is not kept."""
        return len(self._counts)

    def count(self, key: HostQuota | str | tuple[str, HostQuota]) -> int:
        """How much is under way by a quota, for a source, or for a source by a quota."""
        return self._counts[key]

    def has_capacity(self, source: str | None = None) -> bool:
        """Whether one more call may begin, as far as the total matters.

        :param source: the source that requested it; None to ignore the shares of sources.
        """
        return self._has_free(source, self.share(self._limit) - self._total)

    def has_capacity_at(self, quota: HostQuota, source: str | None = None) -> bool:
        """Whether one more call may begin at a host, as far as its quota matters.

        :param source: as for ``has_capacity``.
        """
        key = None if source is None else (source, quota)
        return self._has_free(key, self.share(quota.limit) - self._counts[quota])

    def share(self, limit: int) -> int:
        """What this process may have of a limit that holds for all nodes together."""
        return max(1, limit // self.nodes)

    def _has_free(self, key: Hashable | None, free: int) -> bool:
        """Whether more is free than a key has already.

        :param key: a source, or a source and a quota; None to ignore the shares of sources.
        """
        return free > (0 if key is None else self._counts[key])

    def begin(self, quota: HostQuota, source: str | None = None) -> None:
        """Count one more."""
        self._total += 1
        self._counts.update(_keys(quota, source))

    def release(self, quota: HostQuota, source: str | None = None) -> None:
        """Count one less: one that began with these arguments is over."""
        self._total -= 1
        for key in _keys(quota, source):
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]


def _keys(quota: HostQuota, source: str | None) -> tuple[Hashable, ...]:
    """What one job counts for: its quota; and its source, in total and by this quota."""
    return (quota,) if source is None else (source, quota, (source, quota))
