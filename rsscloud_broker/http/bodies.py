"""Limits the memory for the bodies of requests, over all connections and for each source."""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol, runtime_checkable

from rsscloud_broker.policy.memory_budget import Budget

#: Bytes for the bodies that are arriving; as many again for those of requests that have arrived
#: and are not answered yet.
LIMIT: Final = 16 * 1024 * 1024

#: Bytes up to which a body is not counted.
SMALL: Final = 8 * 1024


@runtime_checkable
class BodyRules(Protocol):
    """What the root resource knows of the bodies that its routes take."""

    def body_limit(self, path: str, kind: str) -> int:
        """How many bytes the body of a request at a path may have, if that is more than the
        operator allows for all paths; else 0.

        :param kind: the media type of the body, in lower case.
        """

    def takes_files(self, path: str) -> bool:
        """Whether a route at a path takes forms with files."""

    @property
    def largest_body(self) -> int:
        """The largest number that ``body_limit`` returns."""


class BodyBudget(Budget):
    """Counts the bytes of bodies that are arriving, and of those that have arrived.

    Of the memory for bodies that have arrived, one source may hold no more than is still free.  So
    the first source gets at most half of it, and the next one still finds some.

    :ivar in_use: bytes of the bodies that have arrived whose requests are under way.
    """

    def __init__(self, body_limit: int) -> None:
        super().__init__(LIMIT, SMALL)
        self.set_body_limit(body_limit)
        self._by_source: Counter[str] = Counter()  # bytes of ``in_use``
        self.in_use = 0

    def set_body_limit(self, body_limit: int) -> None:
        """Raise the limit, if need be, to twice the largest body that is allowed.

        :param body_limit: bytes of that body.
        """
        self.resize(max(LIMIT, 2 * body_limit))

    def take(self, size: int, source: str) -> bool:
        """Count a body that has arrived, until `give_back` is called for it.

        :param size: its bytes.
        :param source: the address or network that sent it.
        :returns: False, and nothing is counted, if the source would hold too much.
        """
        if self._by_source[source] + size > self._limit - self.in_use:
            return False
        self.in_use += size
        self._by_source[source] += size
        return True

    def give_back(self, size: int, source: str) -> None:
        """Stop counting bytes that `take` counted, as they are no longer in memory."""
        self.in_use -= size
        self._by_source[source] -= size
        if not self._by_source[source]:
            del self._by_source[source]
