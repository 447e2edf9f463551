"""The options of the front door ``events``, and which changes the store keeps for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from attrs import field, frozen
from attrs.validators import and_, deep_iterable, ge, le

from rsscloud_broker.apps.events.names import PREFIX, TOPIC, recent_path
from rsscloud_broker.model.work import History


def _require_prefix(_: object, key: attrs.Attribute[Any], text: str) -> None:
    """Require the beginning of a URL with a whole host: a part of one would begin others, too."""
    if "://" not in text or text.count("/") < 3:
        raise ValueError(
            f"'{key.name}' has {text!r}, which is not the beginning of URLs with a whole host; "
            'write it as "https://source.example/"'
        )


_days = and_(ge(0.0), le(36_500.0))  # the database has no times of much earlier years


@frozen
class KeptTopics:
    """Topics whose contents are kept.

    :ivar topic: how the URLs of the topics begin.
    :ivar entries: how many contents of each topic are kept at least, if none is older than
        ``days``.
    :ivar days: for how many days they are kept; 0 forever.
    """

    topic: str = field(validator=_require_prefix)
    entries: int = field(default=100, validator=ge(1))
    days: float = field(default=30.0, validator=_days)


@frozen
class EventsOptions:
    """Options of the front door.

    :ivar days: for how many days changes are kept; 0 forever.
    :ivar pings_days: for how many days pings are kept; 0 forever.
    :ivar keep: topics whose contents are kept.
    :ivar leave_out: how the URLs of topics begin that are in no feed.
    """

    days: float = field(default=0.0, validator=_days)
    pings_days: float = field(default=30.0, validator=_days)
    keep: tuple[KeptTopics, ...] = ()
    leave_out: tuple[str, ...] = field(default=(), validator=deep_iterable(_require_prefix))

    def kept(self, url: str) -> KeptTopics:
        """How long the contents of a topic are kept, by the longest prefix that it has.

        Topics whose content is pushed to the broker are kept as by default.
        """
        of_topic = [each for each in self.keep if url.startswith(each.topic)]
        return max(of_topic, key=lambda each: len(each.topic), default=KeptTopics(url))


def history(options: EventsOptions, public_url: str, pushed: Sequence[str]) -> History:
    """Which changes of topics the store keeps for the feeds, and which contents with them.

    The feeds themselves are in no feed: each change would cause another.

    :param pushed: how the URLs of topics begin whose content is pushed to the broker; it is always
        kept, since nobody else may have it.
    """
    contents = (*(each.topic for each in options.keep), *pushed)
    left_out = (f"{public_url}{PREFIX}/", *options.leave_out)
    return History(left_out, contents, public_url + recent_path(TOPIC))
