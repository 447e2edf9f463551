"""What those who follow other brokers have in common."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from rsscloud_broker.counters import Counters
from rsscloud_broker.interfaces import IClock, IFollowStore, IOutbound, IPingIntake, Parsing
from rsscloud_broker.util.backoff import backoff
from rsscloud_broker.wire.text import clean

#: The longest pause after failures, in seconds; by what part the pauses differ at random.
LONGEST_PAUSE, JITTER = 3600.0, 0.1

#: How many characters of a fault are logged: strangers cause them.
MAX_FAULT: Final = 200


@frozen
class FollowParts:
    """What a follower is given; see ``FrontDoorParts``."""

    intake: IPingIntake
    store: IFollowStore
    web: IOutbound
    clock: IClock
    counters: Counters
    parse: Parsing


class CannotRead(Exception):
    """A list or an archive cannot be read now.  The text says why, as a clause.

    :ivar retry_after: how many seconds its server asked to wait; None if it did not ask.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(clean(reason)[:MAX_FAULT])
        self.retry_after = retry_after


def pause_after(failures: int, first: float, asked: float | None) -> float:
    """Seconds until a read that failed is tried again.  They double with each failure.

    :param failures: how many reads in a row have failed, with this one.
    :param first: the pause after the first failure.
    :param asked: how many seconds the server asked to wait; None if it did not ask.
    """
    return max(backoff(first, failures - 1, LONGEST_PAUSE), asked or 0.0)
