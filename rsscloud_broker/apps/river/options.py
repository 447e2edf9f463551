"""The options of the river: ``[apps.river]``."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import and_, ge, le


@frozen
class RiverOptions:
    """Options of the river.

    :ivar max_feeds: how many feeds an account may follow.
    :ivar days: after how many days an item is deleted that is not in its feed any more.
    """

    max_feeds: int = field(default=500, validator=and_(ge(1), le(10_000)))
    days: int = field(default=90, validator=and_(ge(1), le(36_500)))
