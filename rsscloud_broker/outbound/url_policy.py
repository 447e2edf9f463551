"""Checks whether the broker may call a URL, before it accepts a request that names the URL.

``Broker`` calls it for topics and callbacks.  The guard checks each later connection again, since
the addresses of a host may change.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import TimeoutError as DeadlineError
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IURLPolicy
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.resolver import Resolve
from rsscloud_broker.outbound.urls import target_of
from rsscloud_broker.util.urls import is_address


@implementer(IURLPolicy)
class URLPolicy:
    """Checks the form of a URL and the addresses of its host; see ``IURLPolicy``.

    A host that cannot be looked up within three seconds is accepted.

    :param resolve: looks host names up.
    """

    def __init__(self, resolve: Resolve, guard: AddressGuard, clock: IReactorTime) -> None:
        self._resolve = resolve
        self._guard = guard
        self._clock = clock

    async def check(self, url: str) -> None:
        """Return if the URL may be called; else raise AddressRefused."""
        target = target_of(url)
        addresses: Sequence[str] = (target.host,)
        if not is_address(target.host):
            try:
                looking = self._resolve(target.host)
                addresses = await looking.addTimeout(3.0, self._clock)
            except (OSError, UnicodeError, DeadlineError, Unavailable):
                return  # the host may have an address when it is called
        for address in addresses:
            self._guard.check(address, target.port)
