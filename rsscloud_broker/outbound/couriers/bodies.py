"""Which large bodies a courier has: each crosses once for all requests that have it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from rsscloud_broker.outbound.couriers.link import Link
from rsscloud_broker.outbound.couriers.messages import Body, Forget, FromBroker, FromCourier

#: A body of this many bytes crosses once for all requests that have it.
LARGE: Final = 1024

#: How many large bodies a courier keeps, and how many bytes they may have together.
KEPT: Final = 100
KEPT_BYTES: Final = 32 * 1024 * 1024


class SentBodies:
    """The bodies that one process of a courier has, by their numbers."""

    def __init__(self) -> None:
        self._last = 0  # the number of the last body
        self._bodies: OrderedDict[int, tuple[int, bytes]] = OrderedDict()  # by id(body)
        self._bytes = 0  # of all of them

    def clear(self) -> None:
        """Forget all: the next process has none."""
        self._bodies.clear()
        self._bytes = 0

    def send_once(self, body: bytes, link: Link[FromBroker, FromCourier]) -> bytes | int:
        """Send the process a large body if it does not have it yet.

        :returns: what a message says for the body: a small body itself, the number of a large one.
        """
        if len(body) < LARGE:
            return body
        # The same content is the same object for all subscribers of a walk.  While it is kept
        # here, no other object can get its id.
        if kept := self._bodies.get(id(body)):
            self._bodies.move_to_end(id(body))
            return kept[0]
        self._last += 1
        self._bodies[id(body)] = self._last, body
        self._bytes += len(body)
        link.send(Body(self._last, body), len(body))
        while len(self._bodies) > 1 and (len(self._bodies) > KEPT or self._bytes > KEPT_BYTES):
            _, (oldest, data) = self._bodies.popitem(last=False)
            self._bytes -= len(data)
            link.send(Forget(oldest))
        return self._last
