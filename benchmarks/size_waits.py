"""A process that writes pings to a large database while the broker tidies it up, and measures how
long each ping waits.

Its arguments are the URL of the database, and the work: one of ``WORK``.  It answers once: with the
longest wait and the 99th percentile in milliseconds, the seconds for which it measured, and whether
the work was done by then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react

from benchmarks.control import answer, arguments
from benchmarks.size_data import topic_url
from rsscloud_broker.config import Topics
from rsscloud_broker.core import Access, Sweeper
from rsscloud_broker.model import Ping
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.storage import Store
from rsscloud_broker.testing.fakes import RecordingBus
from rsscloud_broker.util.clock import EachPeriod, SystemClock

#: Seconds between two pings, and for which nothing is done when the work is "nothing".
_PAUSE, _IDLE = 0.01, 10.0

#: Seconds after which it measures no more: millions of rows go in very many equal portions.
_LONGEST = 120.0

#: How many pings are removed at a time, as by the sink of archives.
_PORTION = 1000


async def _nothing(store: Store, clock: SystemClock) -> None:
    await deferLater(clock, _IDLE)


async def _sweep(store: Store, clock: SystemClock) -> None:
    def forget(url: str) -> None:
        """Nothing is cached here."""

    await Sweeper(store, RecordingBus(), clock, Access(Topics(), Blocks()), forget).sweep()


async def _prune(store: Store, clock: SystemClock) -> None:
    """Remove the older half of the pings; how many these are depends on the scale."""
    pings = await store.pings_after(0, 1)
    before = (pings[0].received_at + clock.wall_seconds()) / 2

    async def portion() -> bool:
        return await store.prune_pings(before, _PORTION) == _PORTION

    async def never() -> None:
        raise AssertionError("its service does not run")

    await EachPeriod(clock, 3600.0, never, name="pruning").in_portions(portion)


async def _move(store: Store, clock: SystemClock) -> None:
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


WORK: dict[str, Callable[[Store, SystemClock], Coroutine[Any, Any, None]]] = {
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
    done: Deferred[None] = Deferred()
    began = time.monotonic()
    Deferred.fromCoroutine(WORK[given["work"]](store, clock)).chainDeferred(done)
    waits: list[float] = []
    while not (done.called or time.monotonic() - began > _LONGEST) or len(waits) < 100:
        asked = time.monotonic()
        url = f"http://waits.example/{asked}"
        await store.add_ping(Ping("A ping", url, clock.wall_seconds()), 60)
        waits.append(time.monotonic() - asked)
        await deferLater(clock, _PAUSE)
    seconds = time.monotonic() - began
    if done.called:
        await done
        await store.stopService()
    waits.sort()
    answer(
        longest=waits[-1] * 1000,
        most=waits[len(waits) * 99 // 100] * 1000,
        seconds=seconds,
        done=done.called,
    )
    if not done.called:
        os._exit(0)  # the rest of the work would take minutes


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(_measure(reactor)))
