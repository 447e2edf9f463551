"""What those who follow other brokers have in common: the options of a list, and what is given."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import attrs
from attrs import field, frozen
from attrs.validators import and_, ge, in_, le

from rsscloud_broker.counters import Counters
from rsscloud_broker.interfaces import IClock, IFollowStore, IOutbound, IPingIntake
from rsscloud_broker.wire.change_list import Unit
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.web_address import fault_of

#: The name of a list that covers five minutes; and of the longer one, which lies beside it.
SHORT, LONG = "shortChanges.xml", "changes.xml"

#: How many redirects are followed.
REDIRECTS: Final = 5

#: The longest pause after failures, in seconds; by what part the pauses differ at random.
LONGEST_PAUSE, JITTER = 3600.0, 0.1

#: How many characters of a fault are logged: strangers cause them.
MAX_FAULT: Final = 200


def is_readable(source: Any, key: attrs.Attribute[Any], url: str) -> None:
    """Require a URL that can be read, or none."""
    if url and (fault := fault_of(url)):
        raise ValueError(
            f"'{key.name}' is {url[:100]!r}, which cannot be read: {fault}; write a whole URL such "
            'as "http://broker.example/changes.xml"'
        )


def is_not_empty(source: Any, key: attrs.Attribute[Any], url: str) -> None:
    """Require a text that is not empty."""
    if not url:
        raise ValueError(f"'{key.name}' must not be empty")


@frozen
class Source:
    """A list that is followed.

    :ivar url: the URL of the list.
    :ivar unit: the unit of ages in the list, for lists that do not say the exact times.
    :ivar every: seconds between two reads.
    :ivar archives: the URL below which its hourly archives are; empty for none.
    :ivar catch_up_hours: how far back archives are read; no older ping is taken in.
    :ivar max_pings: how many pings of one document are taken in, the newest.
    """

    url: str = field(validator=and_(is_not_empty, is_readable))
    unit: Unit = field(default="minutes", validator=in_(("minutes", "seconds")))
    every: float = field(default=60.0, validator=and_(ge(1), le(86_400)))
    archives: str = field(default="", validator=is_readable)
    catch_up_hours: int = field(default=24, validator=and_(ge(1), le(24)))
    max_pings: int = field(default=50_000, validator=and_(ge(1), le(200_000)))

    @property
    def is_short(self) -> bool:
        """Whether a longer list lies beside it."""
        return urlsplit(self.url).path.rpartition("/")[2] == SHORT

    @property
    def longer(self) -> str:
        """The URL of the longer list."""
        return self.url.replace(SHORT, LONG)


@frozen
class FollowParts:
    """What a follower is given; see ``FrontDoorParts``."""

    intake: IPingIntake
    store: IFollowStore
    web: IOutbound
    clock: IClock
    counters: Counters
    in_thread: Any


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
    doubled = first * 2.0 ** min(failures - 1, 16)
    return max(min(doubled, LONGEST_PAUSE), asked or 0.0)
