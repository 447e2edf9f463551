"""The interfaces between the follower of a Simplefeed and those who process its entries.

The follower makes its requests through ``IOutbound``: the guarded client of the broker, or that of
the commands, which calls any address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from zope.interface import Attribute, Interface

from rsscloud_broker.model.frozen import frozen


@frozen
class Position:
    """How far a follower has come in a feed.

    :ivar entry: the id of the entry that was processed last.  Empty if the feed had no entries
        when the follower began with the newest, so that all later ones are to be processed.
    :ivar updated: the time of that entry, in seconds since the epoch.
    :ivar document: the permanent URL of the document that has the entry; empty if it is unknown.
    """

    entry: str
    updated: float = 0.0
    document: str = ""


class IMarker(Interface):
    """Remembers the position of a follower."""

    def load() -> Awaitable[Position | None]:
        """Return the position that was saved last; None if none was saved.

        :raises FollowError: what was saved cannot be read, or belongs to another feed.
        """

    def save(position: Position) -> Awaitable[None]:
        """Save the position.  When this returns, it survives a crash of the machine.

        :raises OSError: it cannot be saved.
        """


class IEntryHandler(Interface):
    """Processes the entries of a feed.

    An entry is processed when ``handle`` has returned.  After a crash the entries since the last
    saved position are handed on again, so each is processed at least once.
    """

    batch = Attribute(
        "How many entries are processed, an int, before the position is saved.  With 1 it is saved "
        "after each entry.  Saving takes some milliseconds, so more is much faster; after a crash "
        "up to that many entries are handed on again.  It is saved in any case after a while."
    )

    def handle(entries: Sequence[Any], document: str) -> Awaitable[None]:
        """Process some entries, in their order.

        :param entries: at least one ``simplefeed.entries.Entry`` and at most ``batch``, the oldest
            first.
        :param document: the URL of the document that they were read from.
        :raises EntryFailed: they cannot be processed now; the follower hands them on again after a
            while.
        """
