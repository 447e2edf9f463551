"""Checks URLs while callers wait, which may take seconds for those whose host is looked up."""

from __future__ import annotations

from typing import Final

from rsscloud_broker.interfaces import IClock, IURLPolicy
from rsscloud_broker.model import host_of
from rsscloud_broker.policy.host_limiter import HostQuota
from rsscloud_broker.policy.limiter import FairLimiter, Turn

#: How many host names are looked up at the same time for requests that wait for the result.
MAX_LOOKUPS: Final = 500


class Lookups:
    """Lets callers take turns at looking hosts up."""

    def __init__(self, clock: IClock) -> None:
        self._places = FairLimiter(clock, slots=100, under_way=MAX_LOOKUPS)

    async def check(self, policy: IURLPolicy, url: str, source: str) -> None:
        """Check a URL by a policy.

        :param source: the address of the caller.
        :raises AddressRefused: the policy does not allow it.
        """
        quota = HostQuota("lookup", host_of(url), MAX_LOOKUPS)
        async with self._places.slot(Turn.of(source), quota):
            await policy.check(url)
