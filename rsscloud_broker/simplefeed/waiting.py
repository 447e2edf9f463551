"""What a follower waits for: requests and pauses, which ``stop`` interrupts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

from rsscloud_broker.interfaces import IClock
from rsscloud_broker.simplefeed.errors import FeedUnavailable, Stopped
from rsscloud_broker.util.backoff import backoff

T = TypeVar("T")

#: The longest time, in seconds, for which a server can ask to be left alone.
LONGEST_REST: Final = 24 * 3600.0


@frozen
class FollowerLimits:
    """How a follower waits, and how much it takes; times in seconds.

    :ivar shortest, longest: between two readings of the recent document.  In between, its server
        decides (``max-age``).
    :ivar usual: between two readings, if the server does not say.
    :ivar retry: until the first new attempt after a failure.  It doubles each time, up to
        ``longest``.
    :ivar tries: how often entries that fail are handed on.
    :ivar documents: how many documents to go back through.
    """

    shortest: float = 5.0
    longest: float = 3600.0
    usual: float = 60.0
    retry: float = 1.0
    tries: int = 5
    documents: int = 1_000_000

    def backoff(self, failures: int) -> float:
        """Seconds to wait before a new attempt, after a number of failures."""
        return backoff(self.retry, failures, self.longest)


class Waiting:
    """Waits, until it is interrupted.

    :ivar stopping: whether ``stop`` was called.  All methods that wait raise ``Stopped`` then.
    :ivar hinted: whether there was a hint since somebody has set this to False.
    """

    def __init__(self, clock: IClock) -> None:
        self._clock = clock
        # All that is waited for; and the pause that a hint ends.
        self._waiting: set[Deferred[Any]] = set()
        self._sleep: Deferred[None] | None = None
        self.stopping = False
        self.hinted = False

    def hint(self) -> None:
        """End a pause that hints end."""
        self.hinted = True
        if self._sleep is not None:
            self._sleep.cancel()

    def stop(self) -> None:
        """Interrupt whatever is waited for, now and later."""
        self.stopping = True
        for each in list(self._waiting):
            each.cancel()

    async def sleep(self, seconds: float, *, hints: bool) -> None:
        """Wait for some seconds.

        :param hints: whether a hint ends the pause.
        """
        sleep: Deferred[None] = deferLater(self._clock, seconds)
        self._sleep = sleep if hints else None
        self._waiting.add(sleep)
        try:
            if self.stopping:
                sleep.cancel()
            await sleep
        except CancelledError:
            if self.stopping:
                raise Stopped from None
        finally:
            self._waiting.discard(sleep)
            self._sleep = None

    async def call(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Call a function that reads, and return its result.

        :raises Stopped: ``stop`` was called before, or interrupts it.
        """
        if self.stopping:
            raise Stopped
        reading = Deferred.fromCoroutine(function(*arguments))
        self._waiting.add(reading)
        try:
            return await reading
        except (CancelledError, FeedUnavailable):
            if self.stopping:
                raise Stopped from None
            raise
        finally:
            self._waiting.discard(reading)
