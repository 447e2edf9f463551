"""Verifies intents in the background: the caller was told that they were taken in.

They wait in the store, so that a restart does not lose them.  A callback that cannot
be reached for a moment is asked again; one that does not confirm, or is not heard of
in time, gets no subscription.  Who asked for a topic that there is none of is told so,
in the same attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker.core.host_limiter import HostLimiter, HostQuota
from rsscloud_broker.core.verification import Verifier
from rsscloud_broker.errors import CallbackFailed, Refused, TooMany, UnsupportedProtocol
from rsscloud_broker.interfaces import IStore
from rsscloud_broker.model import Callback, Intent
from rsscloud_broker.records import WaitingIntent
from rsscloud_broker.sources import bucket_of
from rsscloud_broker.store_retry import StoreRetry

#: Intents that wait at a time.
MAX_WAITING = 10_000

#: How many of them may have callbacks at one host, and how many one source may have asked
#: for.  Of both a source has no more than are left for all others, so that there is always
#: room for somebody who has few.
MAX_OF_HOST, MAX_OF_SOURCE = 2500, 1000

#: Seconds after which it makes sense to come again when there are that many.
FULL_PAUSE = 60

#: Seconds until a callback is asked again that could not be reached.
RETRIES = (5.0, 30.0, 120.0, 600.0)


class IntentQueue(Service):
    """Verifies what was added, and what was left from the last process.

    :param limit: intents that wait at a time, ``limit_of_host`` those of one host, and
        ``limit_of_source`` those of one caller.
    :param retries: seconds to wait before each further attempt to reach a callback.
    """

    name = "intents"
    log = Logger()

    def __init__(
        self,
        store: IStore,
        verifier: Verifier,
        clock: IReactorTime,
        *,
        limit: int = MAX_WAITING,
        limit_of_host: int = MAX_OF_HOST,
        limit_of_source: int = MAX_OF_SOURCE,
        retries: Sequence[float] = RETRIES,
    ) -> None:
        self._store = store
        self._verifier = verifier
        self._clock = clock
        self._limit = limit
        self._limit_of_host = limit_of_host
        self._limit_of_source = limit_of_source
        self._retries = retries
        self._store_retry = StoreRetry(clock, "Verification")
        self._settling: dict[tuple[str, Callback], Deferred[None]] = {}
        self._waiting = HostLimiter(limit)

    def startService(self) -> None:
        """Begin with what waits in the store."""
        super().startService()
        self._store_retry.stopped = False
        Deferred.fromCoroutine(self._resume())

    def stopService(self) -> None:
        """Stop verifying; what is not settled waits in the store."""
        super().stopService()
        self._store_retry.stop()
        for settling in tuple(self._settling.values()):
            settling.cancel()

    async def add(self, intent: Intent, *, limited: bool = True) -> None:
        """Keep an intent, in place of an earlier one of the same topic and callback.

        :param limited: whether there is a limit to what the caller may ask for.
        :raises TooMany: too many wait.
        """
        if (intent.topic, intent.callback) not in self._settling:
            self._check_room(intent, limited)
        self._waiting.begin(*self._counted(intent))  # more may come while it is stored
        try:
            waiting = await self._store.add_intent(intent, self._limit)
        finally:
            self._waiting.end(*self._counted(intent))
        if waiting is None:
            reason = f"{self._limit} requests wait to be verified, as many as may"
            raise TooMany(reason, FULL_PAUSE)
        self._settle(waiting)

    def _check_room(self, intent: Intent, limited: bool) -> None:
        quota, source = self._counted(intent)
        if not self._waiting.has_room_at(quota, source if limited else None):
            waiting = self._waiting.count(quota)
            raise TooMany(
                f"{waiting} requests wait for the host {quota.host} to confirm them", FULL_PAUSE
            )
        of_source = self._waiting.count(source)
        full = of_source >= self._limit_of_source or not self._waiting.has_room(source)
        if limited and full:
            reason = f"{of_source} requests from your address wait to be verified, as many as may"
            raise TooMany(reason, FULL_PAUSE)

    def _counted(self, intent: Intent) -> tuple[HostQuota, str]:
        """By which quota an intent is counted, and for which source."""
        quota = HostQuota("intent", intent.callback.host, self._limit_of_host)
        return quota, bucket_of(intent.source)

    async def _resume(self) -> None:
        try:
            for waiting in await self._store_retry(self._store.intents):
                key = waiting.intent.topic, waiting.intent.callback
                if key not in self._settling:  # or else somebody asked anew meanwhile
                    self._settle(waiting)
        except CancelledError:
            pass  # the service stops; the store remembers
        except Exception:  # a bug must not go unseen; what is new is verified all the same
            self.log.failure("Intents that wait to be verified could not be looked up.")

    def _settle(self, waiting: WaitingIntent) -> None:
        if not self.running:
            return
        key = waiting.intent.topic, waiting.intent.callback
        earlier = self._settling.pop(key, None)
        if earlier is not None:
            earlier.cancel()
        settling = Deferred.fromCoroutine(self._settle_or_stop(waiting))
        if settling.called:
            return
        self._settling[key] = settling
        self._waiting.begin(*self._counted(waiting.intent))

        def over(result: object) -> None:
            if self._settling.get(key) is settling:
                del self._settling[key]
            self._waiting.end(*self._counted(waiting.intent))

        settling.addBoth(over)

    async def _settle_or_stop(self, waiting: WaitingIntent) -> None:
        try:
            await self._until_settled(waiting.intent)
            await self._store_retry(partial(self._store.remove_intent, waiting.id))
        except CancelledError:
            pass  # the service stops, or a later intent is in its place
        except Exception:  # a bug must not end the verification of others
            callback = waiting.intent.callback.url
            self.log.failure("Verifying {callback} failed.", callback=callback)

    async def _until_settled(self, intent: Intent) -> None:
        retries = iter(self._retries)
        while True:
            attempt = partial(self._try, intent, retries)
            delay = await self._store_retry(attempt, f"of {intent.callback.url}")
            if delay is None:
                return
            await deferLater(self._clock, delay)

    async def _try(self, intent: Intent, retries: Iterator[float]) -> float | None:
        """Seconds until it is to be tried again; None if it is settled."""
        try:
            if intent.unsubscribe:
                await self._verifier.unsubscribe(intent)
            else:
                await self._subscribe_or_deny(intent)
        except CallbackFailed as error:
            delay = None if error.retry_after is None else next(retries, None)
            if delay is None:
                return None
            return max(delay, error.retry_after or 0.0)
        except UnsupportedProtocol as error:  # so nobody can be told; it ran once
            callback = intent.callback.url
            self.log.warn("{callback} is not verified: {error}", callback=callback, error=error)
        return None

    async def _subscribe_or_deny(self, intent: Intent) -> None:
        try:
            await self._verifier.subscribe(intent, read=False)
        except (CallbackFailed, UnsupportedProtocol):
            raise
        except Refused as error:
            await self._verifier.deny(intent, str(error))
