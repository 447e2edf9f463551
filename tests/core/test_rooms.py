"""Places for calls, in all and of each host."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.core.rooms import Rooms


class RoomsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.rooms = Rooms(3, 2)
        self.inside: list[tuple[str, Deferred[None]]] = []

    def call(self, host: str) -> Deferred[None]:
        async def calling() -> None:
            async with self.rooms.place(host):
                ends: Deferred[None] = Deferred()
                self.inside.append((host, ends))
                await ends

        return Deferred.fromCoroutine(calling())

    def hosts(self) -> list[str]:
        return [host for host, _ in self.inside]

    def end(self, number: int) -> None:
        self.inside[number][1].callback(None)

    def test_places(self) -> None:
        for host in "aaabb":
            self.call(host)
        self.assertEqual(self.hosts(), ["a", "a", "b"])
        self.end(0)
        self.assertEqual(self.hosts(), ["a", "a", "b", "b"], "who waited for a place of all")
        for number in (2, 1, 3, 4):
            self.end(number)
        self.assertEqual(self.hosts(), ["a", "a", "b", "b", "a"])
        self.assertEqual(len(self.rooms), 0, "of hosts that are not called nothing is kept")

    def test_who_is_called_off_leaves_no_gap(self) -> None:
        calls = [self.call("a") for _ in range(4)]
        for call in (calls[2], calls[0]):
            call.cancel()
            self.failureResultOf(call)
        self.assertEqual(self.hosts(), ["a", "a", "a"])
        for number in (1, 2):
            self.end(number)
        self.assertEqual(len(self.rooms), 0)

    def test_very_many_who_are_done_at_once(self) -> None:
        called: list[int] = []

        async def calling(number: int) -> None:
            async with self.rooms.place("a"):
                called.append(number)

        for _ in range(2):
            self.call("a")
        waiting = [Deferred.fromCoroutine(calling(number)) for number in range(5000)]
        self.end(0)
        self.end(1)
        for one in waiting:
            self.successResultOf(one)
        self.assertEqual(called, list(range(5000)))
        self.assertEqual(len(self.rooms), 0)
