"""The options that the rssCloud notifiers share."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import ge


@frozen
class RssCloudOptions:
    """Options of a notifier of rssCloud.

    :ivar marks_after: consecutive failed notifications after which a subscription
        is dropped at the top of the hour.
    """

    marks_after: int = field(default=3, validator=ge(1))
