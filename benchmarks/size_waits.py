"""A process that writes pings to a large database while the broker tidies it up, and measures how
long each ping waits.

Its arguments are the URL of the database, and the work: one of ``WORK``.  It answers once: with the
longest wait and the 99th percentile in milliseconds, the seconds that the work took, and how many
rows it removed.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react

from benchmarks.control import answer, arguments
from benchmarks.size_data import topic_url
from rsscloud_broker.config import Topics
from rsscloud_broker.core import Access, Sweeper
from rsscloud_broker.events import SubscriptionsSwept
from rsscloud_broker.model import Ping
from rsscloud_broker.storage import Store
from rsscloud_broker.testing.fakes import RecordingBus
from rsscloud_broker.timing import EachPeriod, SystemClock

#: Seconds between two pings, and for which nothing is done when the work is "nothing".
_PAUSE, _IDLE = 0.01, 10.0

#: How many pings are removed at a time, as by the sink of archives.
_PORTION = 1000


async def _nothing(store: Store, clock: SystemClock) -> int:
    await deferLater(clock, _IDLE)
    return 0


async def _sweep(store: Store, clock: SystemClock) -> int:
    bus = RecordingBus()
    await Sweeper(store, bus, clock, Access(Topics())).sweep()
    return sum(each.swept.expired for each in bus.events if isinstance(each, SubscriptionsSwept))


async def _prune(store: Store, clock: SystemClock) -> int:
    """Remove the older half of the pings; how many these are depends on the scale."""
    pings = await store.pings_after(0, 1)
    before = (pings[0].received_at + clock.wall_seconds()) / 2
    removed = 0

    async def portion() -> bool:
        nonlocal removed
        number = await store.prune_pings(before, _PORTION)
        removed += number
        return number == _PORTION

    async def never() -> None:
        raise AssertionError("its service does not run")

    await EachPeriod(clock, 3600.0, never, name="pruning").in_portions(portion)
    return removed


async def _move(store: Store, clock: SystemClock) -> int:
    """Move a popular topic, and another one to the new URL: the two become one."""
    now, new = clock.wall_seconds(), topic_url(1) + "/moved"
    await store.move_topic(topic_url(1), new, now)
    await deferLater(clock, 10 * _PAUSE)
    await store.move_topic(topic_url(3), new, now)
    await deferLater(clock, 10 * _PAUSE)
    for url in (topic_url(1), topic_url(3)):
        topic = await store.topic(url)
        if topic is None or topic.url != new:
            raise AssertionError(f"{url} has not moved")
    return 0


WORK: dict[str, Callable[[Store, SystemClock], Awaitable[int]]] = {
    "nothing": _nothing,
    "sweep": _sweep,
    "prune": _prune,
    "move": _move,
}


async def _measure(reactor: Any) -> None:
    given = arguments()
    clock = SystemClock(reactor)
    store = Store(reactor, given["url"])
    store.startService()
    await store.count_pings()
    done: Deferred[int] = Deferred()
    began = time.monotonic()
    Deferred.fromCoroutine(_as_int(WORK[given["work"]](store, clock))).chainDeferred(done)
    waits: list[float] = []
    while not done.called or len(waits) < 100:
        asked = time.monotonic()
        url = f"http://waits.example/{asked}"
        await store.add_ping(Ping("A ping", url, clock.wall_seconds()), 60)
        waits.append(time.monotonic() - asked)
        await deferLater(clock, _PAUSE)
    seconds = time.monotonic() - began
    removed = await done
    await store.stopService()
    waits.sort()
    answer(
        longest=waits[-1] * 1000,
        most=waits[len(waits) * 99 // 100] * 1000,
        seconds=seconds,
        removed=removed,
    )


async def _as_int(work: Awaitable[int]) -> int:
    return await work


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(_measure(reactor)))
