"""Saves outcomes of attempts that are over after the walk that submitted them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from rsscloud_broker.model.work import Delivery


class LateOutcomes:
    """Saves outcomes that come after the end of a walk, but not before the walk's last save."""

    def __init__(self, record: Callable[[Sequence[Delivery]], None]) -> None:
        self._record = record
        self._waiting: list[Delivery] | None = []  # None since ``release``
        self._node: int | None = None

    def add(self, delivery: Delivery) -> None:
        """Save an outcome, at once or after ``release``."""
        if self._waiting is None:
            self._record([self._with_claim(delivery)])
        else:
            self._waiting.append(delivery)

    def release(self, node: int | None) -> None:
        """Save the outcomes that wait, and from now on each at once.

        :param node: the node that has claimed the pending notifications of these attempts, without
            which the outcomes are ignored; None if they could not be stored.
        """
        self._node = node
        waiting, self._waiting = self._waiting or [], None
        if waiting:
            self._record([self._with_claim(one) for one in waiting])

    def _with_claim(self, delivery: Delivery) -> Delivery:
        """The delivery of a notification that the node has claimed since the attempt began."""
        return evolve(delivery, subscription=evolve(delivery.subscription, claim=self._node))
