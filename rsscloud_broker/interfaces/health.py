"""Whether the parts of a running broker work, for programs that watch it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from attrs import frozen
from zope.interface import Interface


@frozen
class PartState:
    """The state of one part of the broker.

    :ivar part: the name of the part, such as ``database``.
    :ivar works: whether the part does its work.
    :ivar text: a sentence for the operator: what was found, and if the part does not work, what
        to do.
    """

    part: str
    works: bool
    text: str


class IHealth(Interface):
    """Examines the parts of the broker.  No method raises."""

    def alive() -> Sequence[PartState]:
        """The states of the parts without which the process cannot recover.

        It needs neither the store nor a thread.
        """

    def ready() -> Awaitable[Sequence[PartState]]:
        """The states of all parts that the broker needs to accept requests.

        It returns within a few seconds, even if a part hangs.
        """
