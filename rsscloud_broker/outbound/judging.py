"""Says which URLs the broker calls, before it takes in that it should.

The judgement is one of that moment: each connection is judged again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from zope.interface import implementer

from rsscloud_broker.interfaces import IJudge
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.urls import is_address, target_of

#: Gives every address of a host name; raises OSError where there is none.
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]


@implementer(IJudge)
class Judge:
    """Looks at the form of a URL, and at the addresses of its host.

    :param resolve: looks names up.
    """

    def __init__(self, resolve: Resolve, guard: AddressGuard) -> None:
        self._resolve = resolve
        self._guard = guard

    async def judge(self, url: str) -> None:
        target = target_of(url)
        addresses: Sequence[str] = (target.host,)
        if not is_address(target.host):
            try:
                addresses = await self._resolve(target.host)
            except (OSError, UnicodeError):
                return  # it may have an address by the time it is called
        for address in addresses:
            self._guard.judge(address, target.port)
