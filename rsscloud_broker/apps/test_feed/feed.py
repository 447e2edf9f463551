"""Makes the items of the test feed when they are due, and publishes each.

Items are due at multiples of ``every`` seconds since the epoch, by the wall clock: with 900 seconds
on the quarter of each hour.  At the start the item of the present slot is made if there is none, so
a restart neither doubles an item nor misses one, but for those of the slots that it slept through.

Somebody may set the wall clock.  If it is set back by less than a slot, the next item comes when
the clock has caught up.  If it is set back further, the feed goes on with the slots that come then.

If several nodes share a database, one of them makes an item for all.  The others read the items
anew each time that somebody asks for the feed.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final
from uuid import uuid4

from twisted.logger import Logger

from rsscloud_broker.apps.test_feed.document import FeedInfo, encode
from rsscloud_broker.apps.test_feed.items import TestItem, add_item, newest_items
from rsscloud_broker.errors import Forbidden, Unavailable
from rsscloud_broker.interfaces import AppParts
from rsscloud_broker.model import Content
from rsscloud_broker.web.feed_answers import WrittenFeed, later_second
from rsscloud_broker.wire.rss_feed import MEDIA_TYPE

#: How many items are in the feed.
MAX_ITEMS: Final = 20


class TestFeed:
    """The test feed of this broker.

    :ivar about: what the feed says about itself.
    :ivar items: the items in the feed, the newest first; empty until the first one is there.
    :ivar document: the feed as it is served; None until the first item is there.
    :ivar modified_at: when that was made, as ``later_second`` computes it.
    """

    log = Logger()

    def __init__(self, about: FeedInfo, parts: AppParts) -> None:
        self.about = about
        self.items: tuple[TestItem, ...] = ()
        self.document: WrittenFeed | None = None
        self._parts = parts
        # Whether ``items`` are those in the database, as far as this node knows.
        self._is_read = False
        self.modified_at = 0.0
        # The slot whose item was refused (``Forbidden``); it is not tried again.
        self._refused_slot: int | None = None

    async def read(self, url: str) -> Content | None:
        """The feed as a topic, for the broker; None at another URL, or before the first item."""
        await self.refresh()
        if url != self.about.url or self.document is None:
            return None
        return self.document.content

    async def refresh(self) -> None:
        """Read the items that another node may have made.

        If the database cannot be used now, those stay that were read before.
        """
        if self._parts.jobs.shares_work():
            with suppress(Unavailable):
                await self._read_items()

    async def _read_items(self) -> None:
        self._replace_items(
            *await self._parts.database.read(partial(newest_items, limit=MAX_ITEMS))
        )
        self._is_read = True

    async def make_due(self, due_at: float = 0.0) -> None:
        """Make and publish the item of the present slot, unless that has been done.

        :param due_at: since when the job has not been done; not used, as the clock decides.
        :raises Unavailable: the database cannot be used now.
        """
        if self._parts.jobs.shares_work() or not self._is_read:
            await self._read_items()
        slot = self.slot_at(self._parts.clock.wall_seconds())
        if not self._is_due(slot) or slot == self._refused_slot:
            return
        item = TestItem(slot, f"urn:uuid:{uuid4()}")
        items = (item, *self.items)[:MAX_ITEMS]
        content = Content(encode(self.about, items), MEDIA_TYPE)
        storing = partial(add_item, item=item, limit=MAX_ITEMS)
        # If publishing fails, the item may be stored or not, so the next call reads the items.
        self._is_read = False
        try:
            await self._parts.publisher.publish(self.about.url, content, storing, "")
        except Forbidden as error:
            self._refused_slot = slot
            self.log.warn("The test feed gets no item: {error}.", error=error)
            return
        self._replace_items(items, later_second(slot, self.modified_at))
        self._is_read = True

    def slot_at(self, now: float) -> int:
        """The slot that contains a time, in seconds since the epoch."""
        return int(now // self.about.every) * self.about.every

    def next_at(self, now: float) -> int:
        """When the next item comes, in seconds since the epoch.

        If the wall clock was set back by less than a slot, it must first catch up.
        """
        slot = self.slot_at(now)
        waits = bool(self.items) and not self._is_due(slot)
        return (self.items[0].slot if waits else slot) + self.about.every

    def _is_due(self, slot: int) -> bool:
        """Whether the item of a slot is to be made: it is newer, or the clock was set back far."""
        if not self.items:
            return True
        newest = self.items[0].slot
        was_set_back = newest >= slot + 2 * self.about.every
        return slot > newest or was_set_back

    def _replace_items(self, items: tuple[TestItem, ...], modified_at: float) -> None:
        """Take over the items of the feed, and write its document anew if they have changed."""
        if (items, modified_at) == (self.items, self.modified_at):
            return
        self.items, self.modified_at = items, modified_at
        self.document = WrittenFeed.of(encode(self.about, items), MEDIA_TYPE) if items else None
