"""Says which URLs the broker calls, before it takes in that it should.

The judgement is one of that moment: each connection is judged again.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeadlineError
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IURLPolicy
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.resolver import Resolve
from rsscloud_broker.outbound.urls import target_of
from rsscloud_broker.urls import is_address

#: Seconds after which nobody waits for a name any more.
LOOKUP_TIMEOUT = 3.0


@implementer(IURLPolicy)
class URLPolicy:
    """Looks at the form of a URL, and at the addresses of its host.

    :param resolve: looks names up.
    """

    def __init__(self, resolve: Resolve, guard: AddressGuard, clock: IReactorTime) -> None:
        self._resolve = resolve
        self._guard = guard
        self._clock = clock

    async def check(self, url: str) -> None:
        target = target_of(url)
        addresses: Sequence[str] = (target.host,)
        if not is_address(target.host):
            looking = Deferred.fromCoroutine(self._look_up(target.host))
            try:
                addresses = await looking.addTimeout(LOOKUP_TIMEOUT, self._clock)
            except (OSError, UnicodeError, DeadlineError, Unavailable):
                return  # it may have an address by the time it is called
        for address in addresses:
            self._guard.check(address, target.port)

    async def _look_up(self, host: str) -> Sequence[str]:
        return await self._resolve(host)
