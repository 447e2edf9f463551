"""The options of the front door ``follows``."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import attrs
from attrs import field, frozen
from attrs.validators import and_, ge, in_, le

from rsscloud_broker.wire.change_list import Unit
from rsscloud_broker.wire.web_address import fault_of

#: The name of a list that covers five minutes; and of the longer one, which lies beside it.
SHORT, LONG = "shortChanges.xml", "changes.xml"

#: How many lists, and how many feeds, may be followed.
MAX_SOURCES: Final = 50

#: Where a feed begins that was never read.
Begin: TypeAlias = Literal["newest", "oldest"]


def _require_readable(source: Any, key: attrs.Attribute[Any], url: str) -> None:
    """Require a URL that can be read, or none."""
    if url and (fault := fault_of(url)):
        raise ValueError(
            f"'{key.name}' is {url[:100]!r}, which cannot be read: {fault}; write a whole URL such "
            'as "http://broker.example/changes.xml"'
        )


def _require_url(source: Any, key: attrs.Attribute[Any], url: str) -> None:
    if not url:
        raise ValueError(f"'{key.name}' must not be empty")


@frozen
class Source:
    """A list that is followed.

    :ivar url: the URL of the list.
    :ivar unit: the unit of ages in the list, for lists that do not say the exact times.
    :ivar every: seconds between two reads.
    :ivar push: whether the broker subscribes to it at its hub, and also reads it when the hub says
        that it has changed.
    :ivar archives: the URL below which its hourly archives are; empty for none.
    :ivar catch_up_hours: how far back archives are read; no older ping is taken in.
    """

    url: str = field(validator=and_(_require_url, _require_readable))
    unit: Unit = field(default="minutes", validator=in_(("minutes", "seconds")))
    every: float = field(default=60.0, validator=and_(ge(1), le(86_400)))
    push: bool = False
    archives: str = field(default="", validator=_require_readable)
    catch_up_hours: int = field(default=24, validator=and_(ge(1), le(24)))

    @property
    def is_short(self) -> bool:
        """Whether a longer list lies beside it."""
        return urlsplit(self.url).path.rpartition("/")[2] == SHORT

    @property
    def longer(self) -> str:
        """The URL of the longer list."""
        return self.url.replace(SHORT, LONG)


@frozen
class FollowedFeed:
    """A feed of pings that is followed.

    :ivar url: the URL of its recent document.
    :ivar every: seconds between two reads; its server may ask for fewer reads.
    :ivar push: whether the broker subscribes to it at its hub, and also reads it when the hub says
        that it has changed.
    :ivar begin: where to begin if it was never read.
    :ivar catch_up_hours: how old a ping may be to be taken in.
    """

    url: str = field(validator=and_(_require_url, _require_readable))
    every: float = field(default=60.0, validator=and_(ge(1), le(86_400)))
    push: bool = True
    begin: Begin = "newest"
    catch_up_hours: int = field(default=24, validator=and_(ge(1), le(720)))


def _require_distinct(options: FollowsOptions, key: attrs.Attribute[Any], sources: Any) -> None:
    """Require few enough lists or feeds, each with a URL of its own."""
    if len(sources) > MAX_SOURCES:
        raise ValueError(
            f"'{key.name}' has {len(sources)} {key.name}; at most {MAX_SOURCES} may be"
        )
    for url, count in Counter(source.url for source in sources).items():
        if count > 1:
            raise ValueError(f"'{key.name}' has {url!r} more than once; name each URL once")


@frozen
class FollowsOptions:
    """Options of the front door.

    :ivar sources: the lists that are followed.
    :ivar feeds: the feeds that are followed.
    """

    sources: tuple[Source, ...] = field(default=(), validator=_require_distinct)
    feeds: tuple[FollowedFeed, ...] = field(default=(), validator=_require_distinct)
