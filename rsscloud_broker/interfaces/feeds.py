"""What the feeds of the broker are made of, and what the maker of their front door declares."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from zope.interface import Attribute, Interface

from rsscloud_broker.model import Ping
from rsscloud_broker.model.work import History, KeptChange


class IChangeStore(Interface):
    """The part of the store that feeds are made of; each method as in ``storage.Store``.

    Who goes on after the last ping or change of one call misses none: one is returned only
    when none with a smaller id can appear any more.
    """

    def pings_after(after: int, limit: int) -> Awaitable[list[Ping]]:
        """The pings with a greater id, in the order of their ids."""

    def kept_changes(after: int, limit: int) -> Awaitable[list[KeptChange]]:
        """The kept changes of topics with a greater id, in the order of their ids.

        :param limit: how many at most; there may be fewer if their contents are large, but only
            none if there are none.
        """

    def remove_kept_changes(through: int) -> Awaitable[int]:
        """Remove the kept changes up to an id, since they are in the feeds by now."""


class IKeepsFeeds(Interface):
    """What the maker of a front door also implements if its front door makes feeds of what the
    store keeps.
    """

    tables = Attribute("The ``AppTables`` of its feeds, by the names with which they begin.")

    def history(options: Any, public_url: str, pushed: Sequence[str]) -> History:
        """Which changes of topics the store is to keep.

        :param options: those that the front door will be made with.
        :param public_url: the broker's own URL, without a slash at the end.
        :param pushed: how the URLs of topics begin whose content is pushed to the broker.
        """


class IServesTopics(Interface):
    """What a front door also implements if subscribers may subscribe to what it serves."""

    topics = Attribute("A sequence of ``ServedTopics``.")
