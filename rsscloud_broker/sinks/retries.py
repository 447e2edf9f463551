"""Tries again what waits: notifications that failed, or were put off.

The store has at most one of them for each subscription, with the time at which
it is due.  What is due is claimed in portions, so that however many wait, only
a bounded number is in memory; a claim that a crash leaves behind comes up again
by itself.  What has begun is bounded by the places that there are, and not counted;
what waits in memory behind a slow host is put off when others need the room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rsscloud_broker.interfaces import IClock, IStore
from rsscloud_broker.model import Delivery
from rsscloud_broker.patience import Patience
from rsscloud_broker.sinks.attempts import SOON, Attempt, Attempts

#: Retries in memory at a time that have not begun, and how many are claimed at once.
AT_A_TIME, PORTION = 500, 100

#: Retries of one host in memory, after which no more of them are claimed, so that
#: the many of a slow host do not keep out all others.
OF_A_HOST = 100

#: Seconds for which a retry may wait behind others of its host, at the least.
MOMENT = 0.5

#: Deliveries that are saved at once.
AT_ONCE = 1000

#: Seconds for which a claim holds: more than an attempt takes, waiting included.
CLAIM = 120.0

#: Seconds between two looks at the least, so that what is due at about the same
#: time is claimed together.
LEAST_PAUSE = 0.2


class Retries:
    """Makes the attempts that are due."""

    log = Logger()

    def __init__(
        self, store: IStore, clock: IClock, attempts: Attempts, patience: Patience
    ) -> None:
        self._store = store
        self._clock = clock
        self._attempts = attempts
        self._patience = patience
        self._in_memory: dict[int, Attempt] = {}
        self._slow: dict[str, float] = {}  # hosts, and until when nothing of theirs is claimed
        self._alarm: IDelayedCall | None = None
        self._looking: Deferred[None] | None = None
        self._look_again = False
        self._finished: dict[int, Delivery] = {}
        self._saving: Deferred[None] = succeed(None)
        self._to_be_saved = False

    def wake_at(self, when: float) -> None:
        """Look for what is due at a time, or earlier."""
        if self._patience.stopped:
            return
        pause = max(LEAST_PAUSE, when - self._clock.wall_seconds())
        if self._alarm is not None:
            if self._alarm.getTime() <= self._clock.seconds() + pause:
                return
            self._alarm.cancel()
        self._alarm = self._clock.callLater(pause, self._look)

    def wake_for(self, deliveries: Sequence[Delivery]) -> None:
        """Look again when the first of some deliveries is due, if any of them waits."""
        due = [one.retry_at for one in deliveries if one.retry_at is not None]
        if due:
            self.wake_at(min(due))

    def record(self, deliveries: Sequence[Delivery]) -> None:
        """Save deliveries by themselves, together with others that are ready."""
        for one in deliveries:
            if one.outcome is not None or one.retry_at is not None:
                self._finished.pop(one.subscription.id, None)  # what is later goes behind
                self._finished[one.subscription.id] = one
        if self._finished and not self._to_be_saved:
            self._to_be_saved = True
            self._saving = Deferred.fromCoroutine(self._save_finished(after=self._saving))

    async def recorded(self) -> None:
        """Return when those have been saved that were to be saved by now."""
        await self._saving

    def stop(self) -> None:
        """Look for nothing any more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def idle(self) -> None:
        """Return when nothing of this is going on any more."""
        if self._looking is not None:
            await self._looking
        await self._saving

    def _look(self) -> None:
        self._alarm = None
        if self._looking is not None:
            self._look_again = True
        else:
            self._look_again = False
            looking: Deferred[None] = Deferred()
            self._looking = looking
            Deferred.fromCoroutine(self._claim_due()).addBoth(looking.callback)

    async def _claim_due(self) -> None:
        try:
            while not self._patience.stopped and self._has_room():
                now = self._clock.wall_seconds()
                claim = partial(
                    self._store.claim_due, now, now + CLAIM, PORTION, self._busy_hosts()
                )
                due = await self._patience(claim)
                for subscription in due:
                    attempt = self._attempts.submit(subscription, self._done, news=False)
                    if not attempt.over:
                        self._in_memory[subscription.id] = attempt
                if len(due) < PORTION:
                    break
            following = await self._patience(self._store.next_due)
        except CancelledError:
            return
        except Exception:  # a bug must not end the retries until the next start
            self.log.failure("Looking for notifications that are due failed.")
            following = self._clock.wall_seconds() + CLAIM
        finally:
            self._looking = None
        if self._look_again:  # what was saved meanwhile may not have been seen
            following = self._clock.wall_seconds()
        if following is not None:
            self.wake_at(following)

    def _has_room(self) -> bool:
        """Whether more may wait in memory; makes room if there is none."""
        in_line = [one for one in self._in_memory.values() if not one.begun]
        if len(in_line) < AT_A_TIME:
            return True
        now = self._clock.seconds()
        waited = [
            one for one in in_line if one.behind_its_host and one.submitted_at + MOMENT <= now
        ]
        for attempt in waited:
            self._attempts.withdraw(attempt)
            self._slow[attempt.host] = now + SOON
        return len(in_line) - len(waited) < AT_A_TIME

    def _busy_hosts(self) -> list[str]:
        """Those of which enough is in memory, or of which too much was."""
        now = self._clock.seconds()
        self._slow = {host: until for host, until in self._slow.items() if until > now}
        hosts = Counter(one.host for one in self._in_memory.values())
        return [*self._slow, *(host for host, count in hosts.items() if count >= OF_A_HOST)]

    def _done(self, delivery: Delivery) -> None:
        attempt = self._in_memory.pop(delivery.subscription.id, None)
        if attempt is not None and attempt.begun:  # so there is a place at its host
            self._slow.pop(attempt.host, None)
        self.record([delivery])

    async def _save_finished(self, after: Deferred[None]) -> None:
        await after
        self._to_be_saved = False
        finished, self._finished = list(self._finished.values()), {}
        try:
            for start in range(0, len(finished), AT_ONCE):
                deliveries = finished[start : start + AT_ONCE]
                await self._patience(partial(self._store.record_deliveries, deliveries))
                self.wake_for(deliveries)
        except CancelledError:
            pass  # they come up again when their claim is over
        except Exception:
            self.log.failure("What came of some notifications could not be saved.")
