"""Streams new items to the browsers that show a river, as server-sent events: ``/river/events``.

::

    id: 1234
    data: {"id": 1234, "feed": 7, "html": "<section ...>"}

    id: 1240                all items up to this one were sent; sent when nothing else is

    event: gap              too many items were missed to be sent; the page has them
    data: 0

Each browser gets the items of the feeds that its account follows, and no others.  However many
watch, an item is made into HTML once, in a thread, and what arrives is not read from the database.
A browser whose connection broke says which item it got last; only then the items since that one are
read.  So nothing is lost, though an item may come twice, which the script notices by its id.

Another process of the broker may store items, too.  So the id of the newest item is read every
two seconds, and the items that nobody has announced by the next time are read and sent: see
``elsewhere``.

A stream asks from time to time whether its session still goes on, and ends with it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from contextlib import suppress
from typing import Any, Final

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.web.server import Request

from rsscloud_broker.apps.river.elsewhere import Elsewhere
from rsscloud_broker.apps.river.model import Arrival, Feed, Item
from rsscloud_broker.apps.river.rendering import event
from rsscloud_broker.apps.river.river import River
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import Caller, ICallers, IClock
from rsscloud_broker.web.streams import HEARTBEAT, MAX_BACKLOG, Places, Stream, in_turns

#: Seconds after which a stream asks whether its session still goes on, and how many of them ask
#: after each look.
SESSION_CHECK, SESSIONS_AT_ONCE = 60.0, 100

#: How many missed items are read at a time for one browser, how many it gets at most, and for how
#: many browsers at the same time.
PART, MOST_MISSED, READERS = 20, 200, 4

#: How many items are kept as events, for those whose connection broke a moment ago; and the titles
#: of how many feeds are kept, for how many seconds.
KEPT_EVENTS, KEPT_FEEDS, FEEDS_FOR = 200, 1000, 600.0

_NO_FEED: Final = None, 0.0
_GAP: Final = b"event: gap\nid: %d\ndata: 0\n\n"


@define(eq=False)
class RiverStream(Stream):
    """One browser that shows a river.

    :ivar caller: whose river it is.
    :ivar after: the id of the newest item that it had when it began, or got from the database.
    :ivar checked_at: when its session was last looked at.
    """

    caller: Caller = field(kw_only=True)
    after: int = field(kw_only=True)
    checked_at: float = field(kw_only=True)


class RiverStreams:
    """All browsers that show a river.

    :param callers: says whether a session still goes on.
    :param in_thread: calls a function in a thread.
    :param addresses, accounts: count the streams of each address and of each account.
    """

    log = Logger()

    def __init__(
        self,
        river: River,
        callers: ICallers,
        clock: IClock,
        in_thread: Callable[..., Awaitable[Any]],
        addresses: Places,
        accounts: Places,
    ) -> None:
        self._river = river
        self._callers = callers
        self._clock = clock
        self._in_thread = in_thread
        self._addresses = addresses
        self._accounts = accounts
        self._streams: dict[RiverStream, None] = {}
        self._live: dict[int, dict[RiverStream, None]] = {}  # those that miss nothing, by account
        self._readers = DeferredSemaphore(READERS)
        self._arrived: deque[Arrival] = deque()
        self._is_sending = False
        # The id of the newest item that was announced; None while nobody watches.
        self._position: int | None = None
        self._events: OrderedDict[Item, bytes] = OrderedDict()
        self._feeds: OrderedDict[int, tuple[Feed | None, float]] = OrderedDict()
        self._end_watch: Callable[[], None] | None = None
        self._pause: Deferred[None] | None = None
        self._running = False
        self._elsewhere = Elsewhere(river)

    def __len__(self) -> int:
        return len(self._streams)

    def has_room(self, caller: Caller, address: str) -> bool:
        """Whether one more may watch of an account, and from an address."""
        return self._addresses.has_room(address) and self._accounts.has_room(str(caller.account.id))

    def add(self, request: Request, caller: Caller, after: int | None, address: str) -> None:
        """Stream new items to a browser until it goes away.

        :param after: the id of the last item that it has; None to begin with the next one.
        """
        key = str(caller.account.id)
        self._addresses.take(address)
        self._accounts.take(key)
        first = -1 if after is None else after
        stream = RiverStream(request, caller=caller, after=first, checked_at=self._clock.seconds())
        self._streams[stream] = None

        def gone() -> None:
            self._streams.pop(stream, None)
            self._leave(stream)
            self._addresses.leave(address)
            self._accounts.leave(key)
            if not self._streams and self._pause is not None:
                self._pause.cancel()

        stream.begin(b"the river", gone)
        if self._position is not None:
            self._start(stream)
        if not self._running:
            self._running = True
            Deferred.fromCoroutine(self._run())

    # --- what arrives

    def _has_arrived(self, arrival: Arrival) -> None:
        """Send the new items of a feed to those who follow it, after what arrived before."""
        if self._position is None or not arrival.items:
            return  # without a position, nobody has begun yet
        self._position = max(self._position, *arrival.item_ids)
        self._elsewhere.announce(arrival.item_ids)
        if self._live.keys() & arrival.accounts:
            self._arrived.append(arrival)
            if not self._is_sending:
                self._is_sending = True
                Deferred.fromCoroutine(self._send_arrived())

    async def _send_arrived(self) -> None:
        while self._arrived:
            arrival = self._arrived[0]
            try:
                await self._send(arrival)
            except Unavailable:
                self._all_catch_up(arrival.item_ids[0] - 1)
            except Exception:  # a bug: log it; the items are in the database
                self.log.failure("Sending new items to rivers failed.")
                self._all_catch_up(arrival.item_ids[0] - 1)
            self._arrived.popleft()
        self._is_sending = False

    async def _send(self, arrival: Arrival) -> None:
        followers = self._followers(arrival)
        if not followers:
            return
        events = await self._made(arrival.items, followers[0].caller)
        is_first = True
        while events:
            part = _fitting(events)
            events = events[len(part) :]
            await self._send_part(part, self._followers(arrival), is_first=is_first)
            is_first = False
            if events:
                await deferLater(self._clock, 0)  # so that those who read have read

    async def _send_part(
        self, part: Sequence[tuple[int, bytes]], streams: Sequence[RiverStream], *, is_first: bool
    ) -> None:
        """Send some events, at most ``MAX_BACKLOG`` bytes.

        :param is_first: whether none were sent just before.  If some were, a browser that has not
            read those gets these from the database, as fast as it reads.
        """
        everything = b"".join(data for _, data in part)
        first = part[0][0]

        def send(stream: RiverStream) -> None:
            if stream.is_full and not is_first:
                self._catch_up_all([stream], first - 1)
            elif stream.after < first:
                stream.send(everything)
            else:  # it has read some of these items itself
                stream.send(b"".join(data for key, data in part if key > stream.after))

        await in_turns(self._clock, send, streams)

    def _followers(self, arrival: Arrival) -> list[RiverStream]:
        """The browsers that get the items of an arrival, of those that miss nothing."""
        accounts = self._live.keys() & arrival.accounts
        return [stream for account in accounts for stream in self._live[account]]

    async def _made(self, items: Sequence[Item], caller: Caller) -> list[tuple[int, bytes]]:
        """The events of some items, with the ids of the items.

        :param caller: somebody who follows their feeds.
        """
        events = {item: self._events[item] for item in items if item in self._events}
        wanted = [item for item in items if item not in events]
        if wanted:
            feeds = await self._feeds_of({item.feed_id for item in wanted}, caller)
            events |= await self._in_thread(_events_of, wanted, feeds)
            self._events |= events
            while len(self._events) > KEPT_EVENTS:
                self._events.popitem(last=False)
        return [(item.id, events[item]) for item in items]

    async def _feeds_of(self, ids: Set[int], caller: Caller) -> dict[int, Feed]:
        """Some feeds that an account follows, by their ids."""
        now = self._clock.seconds()
        known = {
            key: feed
            for key in ids
            for feed, at in [self._feeds.get(key, _NO_FEED)]
            if feed is not None and now - at <= FEEDS_FOR
        }
        if len(known) < len(ids):
            found = {feed.id: feed for feed in await self._river.feeds(caller)}
            known |= {key: found[key] for key in ids if key in found}
            self._feeds |= {key: (feed, now) for key, feed in known.items()}
            while len(self._feeds) > KEPT_FEEDS:
                self._feeds.popitem(last=False)
        return known

    # --- what was missed

    def _start(self, stream: RiverStream) -> None:
        """Send a browser what it missed, and from then on what arrives."""
        Deferred.fromCoroutine(self._catch_up(stream))

    def _all_catch_up(self, after: int) -> None:
        """Have all who watch get what they may have missed from the database; see below."""
        self._catch_up_all([each for some in self._live.values() for each in some], after)

    def _catch_up_all(self, streams: Iterable[RiverStream], after: int) -> None:
        """Have some browsers get what they may have missed from the database, as fast as they read.

        :param after: the id of an item up to which none of them has missed anything.
        """
        for stream in streams:
            self._leave(stream)
            stream.after = max(stream.after, after)
            self._start(stream)

    def _leave(self, stream: RiverStream) -> None:
        """Send a browser no more of what arrives."""
        account = stream.caller.account.id
        if streams := self._live.get(account):
            streams.pop(stream, None)
            if not streams:
                del self._live[account]

    async def _catch_up(self, stream: RiverStream) -> None:
        assert self._position is not None  # it was set before anybody begins
        if stream.after < 0:
            stream.after = self._position
        sent = 0
        part = PART
        await stream.drained()
        while not stream.over and stream.after < self._position:
            target = self._position
            if sent >= MOST_MISSED:
                stream.after = target
                stream.send(_GAP % target)
                break
            try:
                number = await self._send_missed(stream, target, part)
            except Unavailable:
                stream.cut_off()  # the browser tries again
                return
            except Exception:  # log a bug, and let the browser try again
                self.log.failure("Reading what a river missed failed.")
                stream.cut_off()
                return
            sent += number
            part = min(2 * max(number, 1), PART)  # if they are large, few are sent at once
            await stream.drained()
        if not stream.over:
            self._live.setdefault(stream.caller.account.id, {})[stream] = None

    async def _send_missed(self, stream: RiverStream, target: int, part: int) -> int:
        """Send a browser some of the items that it missed, and return how many these are.

        :param target: the id of the newest item.
        :param part: how many are read.
        """
        await self._readers.acquire()
        try:
            if stream.over:
                return 0  # it has gone while it waited for its turn
            items = await self._river.items_after(stream.caller, stream.after, part)
            events = await self._made(items, stream.caller) if items else []
        finally:
            self._readers.release()
        fitting = _fitting(events)
        stream.send(b"".join(data for _, data in fitting))
        if fitting:
            stream.after = fitting[-1][0]
        if len(fitting) == len(items) < part:
            stream.after = max(stream.after, target)  # there are no others
        return len(fitting)

    # --- from time to time

    async def _run(self) -> None:
        """Look after the streams for as long as anybody watches."""
        self._end_watch = self._river.watch(self._has_arrived)
        beat_at = self._clock.seconds() + HEARTBEAT
        before = 0
        while self._streams:
            try:
                if self._clock.seconds() >= beat_at:
                    beat_at = self._clock.seconds() + HEARTBEAT
                    await self._beat()
                before = await self._look(before)
                await self._check_sessions()
            except Unavailable as error:
                self.log.error("The river cannot look for new items: {error}", error=error)
            except Exception:  # log a bug, and try again
                self.log.failure("Looking after the streams of rivers failed.")
            await self._rest()
        self._end_watch()
        self._position = None
        self._events.clear()
        self._feeds.clear()
        self._running = False

    async def _look(self, before: int) -> int:
        """Look at the id of the newest item.

        :param before: the id that was found the last time.
        :returns: the id that was found now.
        """
        newest = await self._river.newest_id()
        if self._position is None:
            self._position = newest
            self._elsewhere.begin(newest)
            for stream in list(self._streams):
                self._start(stream)
        else:
            after, arrivals = await self._elsewhere.find(before)
            if arrivals is None:
                self._position = max(self._position, before)
                self._all_catch_up(after)
            for arrival in arrivals or ():
                self._has_arrived(arrival)
        return newest

    async def _check_sessions(self) -> None:
        """End the streams of people who have signed out."""
        now = self._clock.seconds()
        due = [each for each in self._streams if now - each.checked_at > SESSION_CHECK]
        for stream in due[:SESSIONS_AT_ONCE]:
            stream.checked_at = now
            caller = await self._callers.caller(stream.request)
            if caller is None or caller.account.id != stream.caller.account.id:
                stream.cut_off()

    async def _beat(self) -> None:
        """Send something to everybody, so that no proxy cuts a silent stream off.

        It is the id of the newest item.  Otherwise a browser that connects again would ask for all
        items since the last one of its own feeds, which may be very old.
        """
        is_idle = not self._arrived and self._position
        data = b"id: %d\n\n" % self._position if is_idle and self._position else b":\n\n"
        live = [stream for some in self._live.values() for stream in some]
        await in_turns(self._clock, lambda stream: stream.send(data), live)

    async def _rest(self) -> None:
        """Wait for two seconds, or until nobody watches any more."""
        if not self._streams:
            return
        self._pause = deferLater(self._clock, 2.0)
        with suppress(CancelledError):
            await self._pause
        self._pause = None


def _events_of(items: Iterable[Item], feeds: dict[int, Feed]) -> dict[Item, bytes]:
    """The events of some items.  It runs in a thread."""
    return {item: event(item, feeds.get(item.feed_id)) for item in items}


def _fitting(events: Sequence[tuple[int, bytes]]) -> Sequence[tuple[int, bytes]]:
    """As many of the first events as may be sent at once: at least one."""
    size = 0
    for number, (_, data) in enumerate(events):
        size += len(data)
        if number and size > MAX_BACKLOG:
            return events[:number]
    return events
