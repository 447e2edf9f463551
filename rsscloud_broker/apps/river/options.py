"""The options of the river: ``[apps.river]``."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import and_, ge, le


@frozen
class RiverOptions:
    """Options of the river.

    :ivar max_feeds: how many feeds an account may follow.
    :ivar items_per_feed: how many items of each feed are read and kept.
    :ivar days: after how many days an item is deleted that is not in its feed any more.
    :ivar streams: how many browsers may show new items as they arrive, at the same time; never more
        than half of the connections that the broker accepts.
    :ivar streams_per_account: how many of them one account may have.
    :ivar streams_per_address: how many of them may be at one address.
    """

    max_feeds: int = field(default=500, validator=and_(ge(1), le(10_000)))
    items_per_feed: int = field(default=200, validator=and_(ge(1), le(500)))
    days: int = field(default=90, validator=ge(1))
    streams: int = field(default=1000, validator=ge(0))
    streams_per_account: int = field(default=10, validator=ge(1))
    streams_per_address: int = field(default=50, validator=ge(1))
