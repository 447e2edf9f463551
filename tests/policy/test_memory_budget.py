"""Tests the limits of the bytes of messages that are arriving, and of what waits for memory."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.policy.memory_budget import Budget, Reservations


class Arriving:
    """A message that is arriving.

    :ivar given_up: whether the budget gave it up.
    """

    def __init__(self) -> None:
        self.given_up = False

    def give_up(self) -> None:
        self.given_up = True


class BudgetTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.budget = Budget(limit=1000, small=100)
        self.things = [Arriving() for _ in range(3)]

    def given_up(self) -> list[int]:
        return [number for number, one in enumerate(self.things) if one.given_up]

    def test_what_has_been_under_way_for_longest_is_given_up(self) -> None:
        first, second, third = self.things
        for thing, size in ((first, 200), (second, 400), (first, 300), (third, 300)):
            self.budget.grow(thing, size)
        self.assertEqual((self.budget.held, self.given_up()), (1000, []))
        self.budget.grow(third, 301)
        self.assertEqual((self.budget.held, self.given_up()), (701, [0]))
        self.budget.grow(third, 1001)  # it may be the message itself
        self.assertEqual((self.budget.held, self.given_up()), (0, [0, 1, 2]))

    def test_the_limit_can_change(self) -> None:
        first, second, _ = self.things
        self.budget.grow(first, 900)
        self.budget.resize(1900)
        self.budget.grow(second, 1000)
        self.assertEqual(self.given_up(), [])
        self.budget.resize(1500)
        self.budget.grow(second, 1001)
        self.assertEqual((self.budget.held, self.given_up()), (1001, [0]))

    def test_small_things_and_what_is_not_under_way_are_not_counted(self) -> None:
        for thing in self.things:
            self.budget.grow(thing, 100)
        self.assertEqual(self.budget.held, 0)
        self.budget.grow(self.things[0], 900)
        for _ in range(2):
            self.budget.drop(self.things[0])
        self.assertEqual(self.budget.held, 0)


class ReservationTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.room = Reservations(1000, small=50)

    def enter(self, size: int) -> Deferred[None]:
        return Deferred.fromCoroutine(self.room.enter(size))

    def test_in_the_order_in_which_they_came(self) -> None:
        self.successResultOf(self.enter(600))
        waiting = [self.enter(size) for size in (500, 400, 100)]
        self.assertEqual([one.called for one in waiting], [False, False, False])
        self.room.leave(600)
        self.assertEqual([one.called for one in waiting], [True, True, True])

    def test_small_ones_do_not_wait(self) -> None:
        self.successResultOf(self.enter(1000))
        for _ in range(1000):
            self.successResultOf(self.enter(50))
        self.room.leave(50)
        self.assertNoResult(self.enter(100))

    def test_one_has_room_however_large_it_is(self) -> None:
        self.successResultOf(self.enter(1100))
        waiting = self.enter(100)
        self.assertNoResult(waiting)
        self.room.leave(1100)
        self.successResultOf(waiting)
