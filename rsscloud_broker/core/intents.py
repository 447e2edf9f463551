"""Verifies intents in the background, after the broker has accepted them.

An accepted intent waits in the store until it is settled, so a restart does not lose it.  An
intent is settled when its callback has confirmed it, or does not want it, or could not be reached
by any attempt.  If there is no such topic, the subscriber is notified so; an attempt to tell it
counts like an attempt to verify.

A callback that cannot be reached is tried again after each of the delays in ``RETRIES``.  The store
keeps how many attempts have failed and when the next one is due, so a restart neither begins the
attempts anew nor makes them earlier.

Each intent has a timer in memory.  A later intent of the same subscription replaces an earlier one.
Decision 0016 (``docs/decisions``) says why topics (``retrying``) and notifications
(``delivery/retries.py``) have schedulers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from attrs import define, field
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker import errors
from rsscloud_broker.core.verification import Verifier
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model import Callback, Intent
from rsscloud_broker.model.shared import Work, WorkKind
from rsscloud_broker.model.work import PendingIntent
from rsscloud_broker.policy.addresses import bucket_of
from rsscloud_broker.policy.host_limiter import HostLimiter, HostQuota
from rsscloud_broker.storage import Store
from rsscloud_broker.util.backoff import scheduled_pause
from rsscloud_broker.util.retry import StoreRetry

#: How many waiting intents may have callbacks at one host, and how many may come from one source.
#: A source never has more of them than is still free for all others (see ``HostLimiter``).
MAX_OF_HOST, MAX_OF_SOURCE = 2500, 1000

#: Seconds after which a refused caller should try again when too many intents wait.
FULL_PAUSE = 60

#: Seconds before each further attempt to reach a callback.
RETRIES = (5.0, 30.0, 120.0, 600.0)

#: The longest pause in seconds before an attempt, whatever a callback asks for, and whatever time
#: the wall clock shows after a restart.
LONGEST_PAUSE = 86_400.0

#: How many intents are loaded at a time at the start, and the seconds between two times.
LOADED, LOAD_PAUSE = 500, 0.5


@define(eq=False)
class IntentQueue(Service):
    """Verifies the intents that are added, and those that the last process left in the store.

    :param limit: how many intents may wait at a time, ``limit_of_host`` for one host, and
        ``limit_of_source`` for one source.
    :param retries: seconds before each further attempt to reach a callback.
    """

    name = "intents"
    log = Logger()

    _store: Store
    _verifier: Verifier
    _clock: IClock
    _limit: int = field(default=10_000, kw_only=True)
    _limit_of_host: int = field(default=MAX_OF_HOST, kw_only=True)
    _limit_of_source: int = field(default=MAX_OF_SOURCE, kw_only=True)
    _retries: Sequence[float] = field(default=RETRIES, kw_only=True)
    _store_retry: StoreRetry = field(init=False)
    # What verifies each intent, by its topic and callback.
    _settling: dict[tuple[str, Callback], Deferred[None]] = field(factory=dict, init=False)
    # Counts the intents that wait, by host and by source; it does not keep them.
    _waiting: HostLimiter = field(init=False)
    # Loads the intents that were in the store at the start; None before the first start.
    _resuming: Deferred[None] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._store_retry = StoreRetry(self._clock, "Verification")
        self._waiting = HostLimiter(self._limit)

    def startService(self) -> None:
        """Begin with the intents that wait in the store."""
        super().startService()
        self._store_retry.stopped = False
        self._begin_resuming()

    def stopService(self) -> None:
        """Stop verifying.  Intents that are not settled wait in the store."""
        super().stopService()
        self._store_retry.stop()
        self._cancel_all()

    def lose_claims(self) -> None:
        """Stop verifying all intents, as other nodes have claimed them now; then go on with those
        that this process has claimed since.
        """
        self._cancel_all()
        if self.running:
            self._begin_resuming()

    def _begin_resuming(self) -> None:
        self._resuming = Deferred.fromCoroutine(self._resume())

    def _cancel_all(self) -> None:
        """Stop verifying; the store keeps the intents."""
        if self._resuming is not None:
            self._resuming.cancel()
        # The last first: each that is under way leaves its place to one that waits.
        for settling in reversed(tuple(self._settling.values())):
            settling.cancel()

    async def add(
        self, intent: Intent, *, limited: bool = True, stored: Callable[[], object] = lambda: None
    ) -> None:
        """Store an intent and begin to verify it.  It replaces an earlier intent of the same topic
        and callback.

        :param limited: whether the limits for each source apply to its caller.
        :param stored: is called when the intent is stored, before it is verified.
        :raises TooMany: too many intents wait.
        """
        if (intent.topic, intent.callback) not in self._settling:
            self._check_capacity(intent, limited=limited)
        self._waiting.begin(*self._quota_and_source(intent))  # more may come while it is stored
        try:
            pending = await self._store.add_intent(intent, self._limit)
        finally:
            self._waiting.release(*self._quota_and_source(intent))
        if pending is None:
            reason = f"{self._limit} requests already wait to be verified, which is the limit"
            raise errors.TooMany(reason, FULL_PAUSE)
        stored()
        self._begin_to_settle(pending)

    def _check_capacity(self, intent: Intent, *, limited: bool) -> None:
        """Check that one more intent may wait."""
        quota, source = self._quota_and_source(intent)
        if not self._waiting.has_capacity_at(quota, source if limited else None):
            waiting = self._waiting.count(quota)
            raise errors.TooMany(
                f"{waiting} requests wait for the host {quota.host} to confirm them", FULL_PAUSE
            )
        of_source = self._waiting.count(source)
        full = of_source >= self._limit_of_source or not self._waiting.has_capacity(source)
        if limited and full:
            reason = "requests from your address already wait to be verified, which is the limit"
            raise errors.TooMany(f"{of_source} {reason}", FULL_PAUSE)

    def _quota_and_source(self, intent: Intent) -> tuple[HostQuota, str]:
        quota = HostQuota("intent", intent.callback.host, self._limit_of_host)
        return quota, bucket_of(intent.source)

    async def take_over(self) -> None:
        """Verify intents that no node handles any more, some at a time."""
        if self.running:
            # How many intents of nodes that have ended are taken over at a time.
            for pending in await self._store.claim_intents(500):
                self._begin_to_settle(pending)

    async def _resume(self) -> None:
        """Begin to verify the intents of this process in the store, ``LOADED`` at a time."""
        try:
            after, full = 0, True
            while full:
                load = partial(self._store.intents, after, LOADED)
                some = await self._store_retry.until_done(load, "Looking up intents that wait")
                for pending in some:
                    key = pending.intent.topic, pending.intent.callback
                    if key not in self._settling:  # a later intent may have replaced it meanwhile
                        self._begin_to_settle(pending)
                full = len(some) == LOADED
                if full:
                    after = some[-1].id
                    await deferLater(self._clock, LOAD_PAUSE)
        except CancelledError:
            pass  # the service stops; the intents wait in the store
        except Exception:  # a bug must be seen; new intents are verified all the same
            self.log.failure("Intents that wait to be verified could not be looked up.")

    def _begin_to_settle(self, pending: PendingIntent) -> None:
        """Begin to verify a stored intent, in place of an earlier one of the same subscription."""
        if not self.running:
            return
        key = pending.intent.topic, pending.intent.callback
        earlier = self._settling.pop(key, None)
        if earlier is not None:
            earlier.cancel()
        settling = Deferred.fromCoroutine(self._settle_or_stop(pending))
        if settling.called:  # it is settled already
            return
        self._settling[key] = settling
        self._waiting.begin(*self._quota_and_source(pending.intent))

        def clean_up(result: object) -> None:
            """Count the intent no more: it is settled, or its verification was cancelled."""
            if self._settling.get(key) is settling:
                del self._settling[key]
            self._waiting.release(*self._quota_and_source(pending.intent))

        settling.addBoth(clean_up)

    async def _settle_or_stop(self, pending: PendingIntent) -> None:
        """Verify an intent until it is settled, then remove it; stop if that is cancelled."""
        try:
            await self._try_until_settled(pending)
            await self._store_retry(partial(self._store.remove_intent, pending.id))
        except CancelledError:
            pass  # the service stops, the claim is lost, or a later intent replaces this one
        except errors.ClaimLost:
            pass  # another node has a later intent in its place, or goes on with it
        except Exception:  # a bug must not end the verification of other intents
            callback = pending.intent.callback.url
            self.log.failure("Verifying {callback} failed.", callback=callback)

    async def _try_until_settled(self, pending: PendingIntent) -> None:
        """Try to verify an intent until it is settled, from the attempt on that is due next."""
        attempts, about = pending.attempts, f"of {pending.intent.callback.url}"
        delay = min((pending.retry_at or 0.0) - self._clock.wall_seconds(), LONGEST_PAUSE)
        while True:
            if delay > 0:
                await deferLater(self._clock, delay)
                is_there = partial(self._store.has_intent, pending.id)
                if not await self._store_retry(is_there, about):
                    raise errors.ClaimLost
            failure = await self._store_retry(partial(self._try, pending), about)
            attempts += 1
            if failure is None:
                return
            # As for notifications: an attempt that was interrupted is not the last one.
            scheduled = scheduled_pause(self._retries, attempts, interrupted=failure.interrupted)
            if scheduled is None:
                self._verifier.publish_denied(pending.intent, failure.reason)
                return
            asked = min(failure.retry_after or 0.0, LONGEST_PAUSE)
            delay = max(scheduled, asked)
            retry_at = self._clock.wall_seconds() + delay
            postpone = partial(self._store.postpone_intent, pending.id, attempts, retry_at)
            await self._store_retry(postpone, about)

    async def _try(self, pending: PendingIntent) -> errors.CallbackFailed | None:
        """Try once to verify an intent, or to tell its subscriber that there is no such topic.

        :returns: why it is to be tried again; None if the intent is settled.
        """
        intent = pending.intent
        try:
            async with self._store.trial(Work(WorkKind.INTENT, pending.id)):
                if intent.unsubscribe:
                    await self._verifier.unsubscribe(intent, pending.id)
                else:
                    await self._subscribe_or_deny(pending)
        except errors.GivenUp as error:
            self._verifier.publish_denied(intent, str(error))
        except errors.CallbackFailed as error:
            if error.retry_after is not None:
                return error
            self._verifier.publish_denied(intent, error.reason)
        except errors.Unavailable:
            # The callback is not asked again before its answer can be stored.
            await self._store_retry(self._store.check_writable)
            raise
        except errors.UnsupportedProtocol as error:  # an earlier configuration had this notifier
            callback = intent.callback.url
            self.log.warn("{callback} is not verified: {error}", callback=callback, error=error)
        return None

    async def _subscribe_or_deny(self, pending: PendingIntent) -> None:
        """Verify an intent to subscribe; if the topic is refused, send the callback that answer."""
        try:
            await self._verifier.subscribe(pending.intent, read=False, key=pending.id)
        except (errors.CallbackFailed, errors.UnsupportedProtocol):
            raise
        except errors.Refused as error:
            await self._verifier.deny(pending.intent, str(error))
