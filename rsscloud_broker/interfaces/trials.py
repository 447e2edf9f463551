"""The interface of work that may have ended a process of the broker."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import NamedTuple

from zope.interface import Interface


class WorkKind(StrEnum):
    """The kinds of stored work that may end a process."""

    TOPIC = "topic"
    INTENT = "intent"


class Work(NamedTuple):
    """Stored work that may end a process.

    :ivar name: the URL of a topic to be fetched; the id of an intent to be verified.
    """

    kind: WorkKind
    name: int | str


class ITrials(Interface):
    """Has work begun with care that nodes had claimed when they ended."""

    def trial(work: Work) -> AbstractAsyncContextManager[None]:
        """Work is under way as long as this context.

        If it is suspect, whoever enters the context waits until it may begin: few suspects are
        under way at a time, and one of those that two nodes were at when they ended.  A process
        that ends meanwhile counts against it.  Suspects of different kinds may be in each other's
        contexts only as an intent waits for its topic.

        :raises GivenUp: as it is entered: too many nodes have ended because of it.
        :raises Unavailable: as it is entered: the database cannot be used now.
        """
