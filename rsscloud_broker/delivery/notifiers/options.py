"""The options that the rssCloud notifiers share."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import deep_iterable, ge, gt

RETRIES = (5.0, 30.0, 120.0, 600.0, 1800.0)


@frozen
class RssCloudOptions:
    """Options of an rssCloud notifier.

    :ivar drop_after_failures: the number of consecutive failed notifications after which the
        broker drops a subscription, at the top of the hour.
    :ivar retries: seconds to wait before each further attempt of a notification that failed.
        When all attempts have failed, the notification has failed.
    """

    drop_after_failures: int = field(default=3, validator=ge(1))
    retries: tuple[float, ...] = field(default=RETRIES, validator=deep_iterable(gt(0)))
