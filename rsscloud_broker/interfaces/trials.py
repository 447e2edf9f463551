"""The interface of work that may have ended a process of the broker."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import NamedTuple

from zope.interface import Attribute, Interface


class WorkKind(StrEnum):
    """The kinds of stored work that may end a process."""

    NOTIFICATION = "notification"
    TOPIC = "topic"
    INTENT = "intent"


class Work(NamedTuple):
    """Stored work that may end a process.

    :ivar name: the URL of a topic to be fetched; the id of an intent to be verified; of a
        notification, that of its subscription.
    """

    kind: WorkKind
    name: int | str


class ITrials(Interface):
    """Has work begun with care that nodes had claimed when they ended."""

    suspects = Attribute("A container of the ``Work`` that is suspect.")

    def trial(work: Work, *, careful: bool = False) -> AbstractAsyncContextManager[None]:
        """Work is under way as long as this context.

        If it is suspect, whoever enters the context waits until it may begin: few suspects are
        under way at a time, and those alone that two nodes were at when they ended.  A process that
        ends meanwhile counts against it.  Suspects of different kinds may be in each other's
        contexts only as an intent waits for its topic.

        :param careful: whether it counts as suspect anyway.
        :raises ClaimLost: as it is entered: it is not to be done any more.
        :raises GivenUp: as it is entered: too many nodes have ended because of it.
        :raises Unavailable: as it is entered: the database cannot be used now.
        """
