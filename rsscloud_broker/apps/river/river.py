"""What an account can do with its river."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.logger import Logger

from rsscloud_broker.apps.river.discovery import typed_url
from rsscloud_broker.apps.river.intake import RiverIntake
from rsscloud_broker.apps.river.model import (
    Feed,
    FeedRecord,
    How,
    ImportedFeeds,
    InvalidFeed,
    Item,
)
from rsscloud_broker.apps.river.opml import FeedList, read_list
from rsscloud_broker.apps.river.options import RiverOptions
from rsscloud_broker.apps.river.store import RiverStore
from rsscloud_broker.apps.river.tending import Tending
from rsscloud_broker.errors import (
    DocumentUnread,
    OutboundError,
    Refused,
    TooMany,
    TopicUnreadable,
    Unavailable,
)
from rsscloud_broker.interfaces import AccountFile, AppParts, Caller, IClock
from rsscloud_broker.web.words import clipped, counted
from rsscloud_broker.wire import opml
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.times import iso_time
from rsscloud_broker.wire.units import HOUR

#: How many URLs an account may have examined in an hour, and how many at the same time; how many
#: all accounts together at the same time.
PER_HOUR, AT_ONCE, ALL_AT_ONCE = 120, 3, 30

#: Seconds within which a feed must be found for somebody who waits.
FIND_WITHIN: Final = 45.0


class River:
    """The reading lists of all accounts.

    :ivar store: has the items of their feeds, and what else each account knows and wants.
    """

    log = Logger()

    def __init__(
        self,
        parts: AppParts,
        store: RiverStore,
        intake: RiverIntake,
        tending: Tending,
        options: RiverOptions,
    ) -> None:
        self.store = store
        self._intake = intake
        self._tending = tending
        self._parts = parts
        self._most = options.max_feeds
        self._limits = _RequestLimits(parts.clock)

    async def feeds(self, account_id: int) -> list[Feed]:
        """The feeds that an account follows, in the order of their titles."""
        found = await self.store.followed_feeds(account_id)
        feeds = [self._view_of(record, at, is_muted=is_muted) for record, at, is_muted in found]
        return sorted(feeds, key=lambda feed: (feed.title.casefold(), feed.id))

    def _view_of(self, record: FeedRecord, added_at: float, **more: bool) -> Feed:
        """A feed as somebody who follows it sees it.

        :param more: what the feed is for that account: ``is_muted``, ``is_new``.
        """
        offer, is_own = record.current, self._intake.is_own(record)
        how: How = "polled"
        if is_own:
            how = "own"
        elif offer is not None and record.is_pushed(self._parts.clock.wall_seconds()):
            how = offer.kind
        return Feed(
            id=record.id,
            url=record.url,
            title=record.title or record.url,
            link=record.link,
            how=how,
            hub=offer.url if offer is not None and not is_own else "",
            renew_at=record.push_due_at if how in {"websub", "rsscloud"} else None,
            verified_at=record.verified_at,
            pushed=record.pushed,
            found_by_poll=record.found_by_poll,
            status=_status_in_words(record, how),
            added_at=added_at,
            is_waiting=record.reads_until is None and not record.problem,
            **more,
        )

    async def subscribe(self, caller: Caller, url: str, source: str) -> Feed:
        """Follow the feed at a URL, or the feed of the page at a URL.

        If the account follows it already, nothing changes.

        :param url: as somebody typed it; ``https://`` may be missing.
        :param source: the address of the caller, for the log.
        :raises InvalidFeed: there is no feed, or the account follows as many as it may.
        :raises TooMany: the account asks too often.
        :raises Forbidden, Unavailable: see ``IBroker.subscribe``.
        """
        typed = typed_url(url)
        account_id = caller.account.id
        record = await self.store.feed_by_url(typed)
        if record is None or record.reads_until is None:
            if await self.store.number_of_feeds(account_id) >= self._most:
                raise self._too_many_feeds()
            with self._limits.counting(account_id):
                record, is_new = await self._find_and_follow(caller, typed, source)
        else:
            is_new = await self._follow(account_id, record)
        await self._tending.wake_tending_node()
        return self._view_of(record, self._parts.clock.wall_seconds(), is_new=is_new)

    async def _find_and_follow(
        self, caller: Caller, url: str, source: str
    ) -> tuple[FeedRecord, bool]:
        """Find a feed, have the caller's account follow it, and begin to read it.

        :returns: the feed, and whether the account did not follow it before.
        """
        finding = Deferred.fromCoroutine(self._tending.find(url))
        try:
            found = await finding.addTimeout(FIND_WITHIN, self._parts.clock)
        except TimedOut as error:
            raise InvalidFeed(
                f"{url} did not answer within {FIND_WITHIN:g} seconds; try again later"
            ) from error
        except OutboundError as error:
            raise InvalidFeed(
                f"{url} cannot be read: {error}; look whether the address is right"
            ) from error
        now = self._parts.clock.wall_seconds()
        later = {"is_found": True, "read_due_at": now + HOUR}  # it is tended now
        record = await self.store.add_feed(found.url, now, later)
        is_new = await self._follow(caller.account.id, record)
        if record.reads_until is not None:
            return record, is_new  # the broker reads it already, for others
        try:
            record = await self._tending.begin(record, found)
        except TopicUnreadable as error:
            if found.document is None or error.lasting:
                if is_new:
                    await self._undo_follow(caller, record)
                raise InvalidFeed(str(error)) from error
            # Else the items that were found are stored, and the river subscribes later.
        except Refused:
            if is_new:
                await self._undo_follow(caller, record)
            raise
        name, feed = caller.name, record.url
        self.log.info("{name} follows {feed}, from {source}.", name=name, feed=feed, source=source)
        return record, is_new

    async def _undo_follow(self, caller: Caller, record: FeedRecord) -> None:
        """Undo that a caller has begun to follow a feed that cannot be read; and remove the feed.

        Not for a caller who followed it before: the items stay that came while it could be read.
        """
        await self.store.unfollow_feed(caller.account.id, record.id)
        await self._tending.end(record)

    async def _follow(self, account_id: int, record: FeedRecord) -> bool:
        """Have an account follow a feed.  Returns whether it did not before."""
        now = self._parts.clock.wall_seconds()
        is_new = await self.store.follow_feed(account_id, record.id, now, self._most)
        if is_new is None:
            raise self._too_many_feeds()
        return is_new

    def _too_many_feeds(self) -> InvalidFeed:
        return InvalidFeed(
            f"you follow {self._most} feeds, as many as an account may; end one of them first"
        )

    async def unsubscribe(self, caller: Caller, feed: int | str) -> Feed | None:
        """Follow a feed no more.

        :param feed: its id, or its URL as somebody typed it.
        :returns: the feed; None if the account did not follow it.
        :raises InvalidFeed: the URL is no web address.
        """
        record: FeedRecord | None
        if isinstance(feed, str):
            record = await self.store.feed_by_url(typed_url(feed))
        else:
            # The largest number that an id can be.
            record = await self.store.feed(feed) if 0 < feed <= 2**63 - 1 else None
        if record is None or not await self.store.unfollow_feed(caller.account.id, record.id):
            return None
        Deferred.fromCoroutine(self._end_unless_followed(record))
        return self._view_of(record, 0.0)

    async def _end_unless_followed(self, record: FeedRecord) -> None:
        """Remove a feed, unless somebody follows it."""
        try:
            await self._tending.end(record)
        except Unavailable as error:  # the next sweep removes it
            self.log.error("The feed {url} is removed later: {error}", url=record.url, error=error)

    async def import_opml(
        self, caller: Caller, data: bytes, source: str, charset: str | None = None
    ) -> ImportedFeeds:
        """Follow all feeds in an OPML document.  They are read afterwards.

        :param source: the address of the caller, for the log.
        :param charset: see ``read_list``.
        :raises InvalidFeed: the document is no OPML, names no feed, or too many.
        :raises TooMany: the account imports too often.
        """
        with self._limits.counting(caller.account.id):
            try:
                named = await self._parts.parse(caller.name, read_list, data, charset)
            except DocumentUnread as error:
                raise InvalidFeed(f"the list cannot be read: {error.reason}") from error
            if not named.feeds:
                raise InvalidFeed(_why_empty(named))
            if len(named.feeds) > self._most:
                raise InvalidFeed(
                    f"the list names {len(named.feeds)} feeds, and an account may follow "
                    f"{self._most}; nothing was imported: take some out, and import it again"
                )
            imported = await self._follow_all(caller, named)
        self.log.info(
            "{name} imported {added} feeds, from {source}.",
            name=caller.name,
            added=imported.added,
            source=source,
        )
        await self._tending.wake_tending_node()
        return imported

    async def _follow_all(self, caller: Caller, named: FeedList) -> ImportedFeeds:
        failed = [(url, "lists that a list includes are not read") for url in named.included]
        wanted: dict[str, str] = {}
        for written, title in named.feeds.items():
            try:
                wanted.setdefault(typed_url(written), title)
            except InvalidFeed as error:
                failed.append((written[:200], str(error)))
        now = self._parts.clock.wall_seconds()
        # For each feed True if it is followed newly, False if it was before, None if it is one too
        # many.
        results = await self.store.add_and_follow(caller.account.id, wanted, now, self._most)
        full = str(self._too_many_feeds())
        failed += [
            (url, full) for url, result in zip(wanted, results, strict=True) if result is None
        ]
        # A list may have thousands of failures; enough are listed to see what is wrong.
        return ImportedFeeds(sum(map(bool, results)), tuple(failed[:100]))

    async def export_opml(self, caller: Caller) -> bytes:
        """The feeds that an account follows, as OPML 2.0 in UTF-8."""
        feeds = await self.feeds(caller.account.id)
        return opml.encode(f"Feeds of {caller.name}", [(feed.url, feed.title) for feed in feeds])

    async def account_files(self, caller: Caller) -> AsyncIterator[AccountFile]:
        """What the account takes away: its reading list.  See ``IApp.account_files``."""

        async def pieces() -> AsyncIterator[bytes]:
            yield await self.export_opml(caller)

        yield AccountFile("reading-list.opml", pieces())

    async def public_river(self, name: str, limit: int) -> tuple[list[Feed], list[Item]] | None:
        """The feeds and the newest items of an account; None unless everybody may read them."""
        account_id = await self.store.public_account(name)
        if account_id is None:
            return None
        return await self.feeds(account_id), await self.store.items(account_id, None, limit)


def _why_empty(named: FeedList) -> str:
    if not named.included:
        return "the list names no feed: no outline in it has an xmlUrl"
    return (
        "the list names no feed: it only includes other lists, which are not read, such as "
        f"{clipped(clean(named.included[0]), 200)}; import those lists themselves"
    )


class _RequestLimits:
    """Limits how often an account has the broker look at URLs of its choice."""

    def __init__(self, clock: IClock) -> None:
        self._clock = clock
        self._hour = 0
        # How many requests each account has made in this hour, and how many of them still run.
        self._in_hour: Counter[int] = Counter()
        self._under_way: Counter[int] = Counter()

    @contextmanager
    def counting(self, account_id: int) -> Iterator[None]:
        """Count a request of an account while it lasts.

        :raises TooMany: there are too many.
        """
        hour, passed = divmod(int(self._clock.seconds()), HOUR)
        if hour != self._hour:
            self._hour = hour
            self._in_hour.clear()
        if self._in_hour[account_id] >= PER_HOUR:
            reason = f"your account looked at {PER_HOUR} addresses in this hour"
            raise TooMany(reason, HOUR - passed)
        if self._under_way[account_id] >= AT_ONCE or self._under_way.total() >= ALL_AT_ONCE:
            raise TooMany("other addresses are still being looked at", 10)
        self._in_hour[account_id] += 1
        self._under_way[account_id] += 1
        try:
            yield
        finally:
            self._under_way[account_id] -= 1
            if not self._under_way[account_id]:
                del self._under_way[account_id]


# --- feeds in words -----------------------------------------------------------

#: What pushes a feed, and what it is asked for.
_WORDS: Final = {"websub": ("hub", "subscription"), "rsscloud": ("cloud", "registration")}


def _status_in_words(record: FeedRecord, how: How) -> str:
    """All that is known of how a feed is read, in a sentence."""
    if record.reads_until is None and record.problem:
        return f"cannot be read now: {record.problem}; tried again {iso_time(record.read_due_at)}"
    if record.reads_until is None:
        return "will be read for the first time in a moment"
    return "; ".join(
        filter(None, (_how_in_words(record, how), _counts_in_words(record, how), record.problem))
    )


def _how_in_words(record: FeedRecord, how: How) -> str:
    """How the river learns of new items, and why no hub or cloud pushes them, as a clause."""
    offer = record.current
    if how == "own":
        return "notified by this broker itself"
    if offer is None:
        return "polled, since it names no hub and no cloud"
    kind, asked = _WORDS[offer.kind]
    name = f"the {kind} {offer.url}"
    due = iso_time(record.push_due_at) if record.push_due_at is not None else "not planned"
    problem = record.push_problem
    if how != "polled":
        failed = f"the last renewal failed: {problem}" if problem else ""
        return "; ".join(filter(None, (f"notified by {name}; next renewal {due}", failed)))
    if record.asked_at is not None:
        return f"polled until {name} confirms the {asked}"
    because = f", since {problem}" if problem else ""
    return f"polled{because}; {name} is asked {due}"


def _counts_in_words(record: FeedRecord, how: How) -> str:
    """How many of the new items were pushed, as a clause; empty if none could be."""
    total = record.pushed + record.found_by_poll
    if not total:
        return "" if how == "polled" else "nothing new has come yet"
    return (
        f"{record.pushed} of {counted(total, 'new item')} {'was' if total == 1 else 'were'} pushed"
    )
