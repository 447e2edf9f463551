"""The options of the test feed: ``[apps.test_feed]``."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import and_, ge, le


@frozen
class TestFeedOptions:
    """``[apps.test_feed]``: the test feed.

    :ivar every: seconds between two items, which come at multiples of it since the epoch.
    """

    every: int = field(default=900, validator=and_(ge(1), le(86_400)))
