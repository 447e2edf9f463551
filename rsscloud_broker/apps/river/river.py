"""What an account can do with its river."""

from __future__ import annotations

from collections.abc import Callable

from rsscloud_broker.apps.river.model import Arrival, Feed, Imported, Item
from rsscloud_broker.interfaces import Caller


class River:
    """The reading lists of all accounts, and the items of their feeds."""

    async def feeds(self, caller: Caller) -> list[Feed]:
        """The feeds that an account follows, in the order of their titles."""
        raise NotImplementedError

    async def subscribe(self, caller: Caller, url: str, source: str) -> Feed:
        """Follow the feed at a URL, or the feed of the page at a URL.

        If the account follows it already, nothing changes.

        :param url: as somebody typed it; ``https://`` may be missing.
        :param source: the address of the caller; see ``IBroker.ping``.
        :raises InvalidFeed: there is no feed, or the account follows as many as it may.
        :raises TooMany: the caller asks too often.
        :raises Forbidden, Unavailable: see ``IBroker.subscribe``.
        """
        raise NotImplementedError

    async def unsubscribe(self, caller: Caller, feed_id: int) -> bool:
        """Follow a feed no more.

        :returns: whether the account followed it.
        """
        raise NotImplementedError

    async def import_opml(self, caller: Caller, data: bytes, source: str) -> Imported:
        """Follow all feeds in an OPML document.  They are read afterwards.

        :raises InvalidFeed: the document is no OPML, names no feed, or too many.
        """
        raise NotImplementedError

    async def export_opml(self, caller: Caller) -> bytes:
        """The feeds that an account follows, as OPML 2.0 in UTF-8."""
        raise NotImplementedError

    async def items(self, caller: Caller, before: int | None, limit: int) -> list[Item]:
        """The newest items of the feeds that an account follows, newest first.

        :param before: only items with a smaller id; None at first.
        """
        raise NotImplementedError

    async def items_after(self, caller: Caller, after: int, limit: int) -> list[Item]:
        """The oldest items with a greater id, oldest first."""
        raise NotImplementedError

    async def newest_id(self) -> int:
        """The id of the newest item of all feeds; 0 if there is none."""
        raise NotImplementedError

    async def mark_seen(self, caller: Caller, item_id: int) -> None:
        """Remember that somebody has seen all items up to this one.  It never goes back."""
        raise NotImplementedError

    async def last_seen(self, caller: Caller) -> int:
        """The id of the newest item that was marked as seen; 0 if none was."""
        raise NotImplementedError

    async def is_public(self, caller: Caller) -> bool:
        """Whether everybody may read the river of an account, at
        ``/river/river.js?account=NAME``.
        """
        raise NotImplementedError

    async def set_public(self, caller: Caller, public: bool) -> None:
        """Let everybody read the river of an account, or nobody else."""
        raise NotImplementedError

    def watch(self, callback: Callable[[Arrival], None]) -> Callable[[], None]:
        """Call a function whenever items of a feed have been stored.

        :returns: a function that ends this.
        """
        raise NotImplementedError
