"""Rate limits, so that nobody can use the broker to flood other servers.

A ping or a registration costs its sender one small request, and makes the broker fetch a topic
or call a callback, which may belong to somebody else.  ``Broker`` asks ``Admission`` before each
of them.  Token buckets limit:

- the pings and the verifications of each source: the caller's address, or for IPv6 its /64
  network, since one customer usually has all of that.  Pings are limited per day, too, since
  each of them is stored;
- the verifications that name a host, as the host of the topic or of the callback.  The callback
  does not count if the caller itself owns it;
- the fetches from each host, of topics without subscribers.

``Admission`` also refuses for a while to verify again what just failed, and limits the
subscriptions of each host.  A refused caller learns when to try again; nothing was fetched or
stored.

The buckets are in memory, and full after a start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from hashlib import sha256
from math import ceil, inf

from attrs import define, frozen
from twisted.internet.interfaces import IReactorTime

from rsscloud_broker.config import RateLimitOptions
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import CallbackFailed, CallsUnavailable, TooMany
from rsscloud_broker.model import Callback, Intent, host_of
from rsscloud_broker.policy.addresses import MAX_SOURCES, bucket_of, within
from rsscloud_broker.util.caches import BoundedDict

#: How many buckets that are not full a rate limit keeps.
MAX_KEYS = 100_000

#: How many failed verifications are remembered.
MAX_FAILURES = 10_000

#: Seconds for which a verification that a callback did not confirm is not tried again: clients in
#: a loop would have the broker call it without end.
FAILED_PAUSE = 10.0

#: Seconds until the subscriptions of a host without quota are counted again.  By then the
#: callbacks that are being verified have confirmed, or most of them never will.
COUNT_PAUSE = 30.0

#: Seconds in a day; and the longest that a caller who used up the pings of a day is asked to
#: wait, since by then some tokens have come back.
DAY, DAY_PAUSE = 86_400, 3600


class RateLimit:
    """A token bucket for each key.

    For each bucket only the time at which it will be full is kept.  When there are more than
    ``MAX_KEYS``, the least recently used bucket is deleted, and so is full again.

    :param rate: tokens that come back each second; 0 for no limit.
    :param burst: tokens in a full bucket.
    :param longest_pause: the longest time in seconds that a caller is asked to wait for more
        than one token.
    """

    def __init__(
        self, rate: float, burst: int, clock: IReactorTime, longest_pause: float = inf
    ) -> None:
        self._longest_pause = longest_pause
        self._clock = clock
        # Times are relative to this: small floats add up with less error.
        self._began_at = clock.seconds()
        # When each bucket is full again.  One that is missing is full.
        self._full_at: BoundedDict[str, float] = BoundedDict(MAX_KEYS)
        self._set(rate, burst)

    def _set(self, rate: float, burst: int) -> None:
        self.rate = rate
        self._seconds_per_token = 1 / rate if rate else 0.0
        self._seconds_to_fill = burst * self._seconds_per_token

    def change(self, rate: float, burst: int) -> None:
        """Use another rate and another burst from now on.

        Each bucket keeps the number of tokens that were taken from it, up to the new burst.
        """
        now = self._clock.seconds() - self._began_at
        seconds_per_token = self._seconds_per_token
        self._set(rate, burst)
        factor = self._seconds_per_token / seconds_per_token if seconds_per_token else 0.0

        def rescaled(full_at: float) -> float:
            """When a bucket is full by the new rate."""
            return now + min(max(full_at - now, 0.0) * factor, self._seconds_to_fill)

        self._full_at.replace_each(rescaled)

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, key: str) -> int:
        """Take a token from the bucket of a key.

        :returns: 0 if there was a token.  Otherwise the seconds until the bucket is half full:
            a caller that came back for the first token would soon be refused again.
        """
        if not self._seconds_per_token:
            return 0
        now = self._clock.seconds() - self._began_at
        # Seconds until the bucket is full, and until it has a token.
        to_fill = max(self._full_at.get(key, now) - now, 0.0)
        missing = to_fill + self._seconds_per_token - self._seconds_to_fill
        if missing > self._seconds_per_token / 100:  # not 0, since sums of floats are inexact
            self._full_at[key] = now + to_fill
            until_half_full = to_fill - self._seconds_to_fill / 2
            return ceil(max(missing, min(until_half_full, self._longest_pause)))
        self._full_at[key] = now + to_fill + self._seconds_per_token
        return 0


@frozen
class _Failure:
    """Why a verification failed, and until when it is refused without another try."""

    reason: str
    refused: bool
    until: float


@define
class Quota:
    """How many more subscriptions a host may have.

    :ivar left: how many more the host may have; each verification takes one.
    :ivar counted_at: when the host's subscriptions were counted in the store.
    """

    left: int
    counted_at: float


class Admission:
    """Admits or refuses requests by the rate limits in the configuration.

    :param has_subscription: whether there is a subscription with a topic and a callback.
    :param count_of_host: how many subscriptions a host has, counted up to a limit.
    """

    def __init__(
        self,
        limits: RateLimitOptions,
        has_subscription: Callable[[str, Callback], Awaitable[bool]],
        count_of_host: Callable[[str, int], Awaitable[int]],
        clock: IReactorTime,
        counters: Counters,
    ) -> None:
        self._has_subscription = has_subscription
        self._count_of_host = count_of_host
        self._clock = clock
        self._counters = counters
        # By source: of pings, of pings a day, and of verifications.  By host: of verifications that
        # name it, and of fetches.  ``change`` sets the rates.
        self._pings = RateLimit(0, 0, clock)
        self._pings_of_day = RateLimit(0, 0, clock, longest_pause=DAY_PAUSE)
        self._sources = RateLimit(0, 0, clock)
        self._targets = RateLimit(0, 0, clock)
        self._fetches = RateLimit(0, 0, clock)
        self._failures: BoundedDict[bytes, _Failure | None] = BoundedDict(MAX_FAILURES)
        self.change(limits)

    def change(self, limits: RateLimitOptions) -> None:
        """Use other limits from now on.

        Requests made so far still count.  The subscriptions of each host are counted again.
        """
        self._limits = limits
        exempt = limits.exempt_networks
        #: Whether a source is not limited.  Cached, since the same sources call again and again.
        self.is_exempt = lru_cache(MAX_SOURCES)(lambda each: not each or within(each, exempt))
        self._pings.change(limits.pings_per_source, limits.pings_burst)
        self._pings_of_day.change(limits.pings_per_day / DAY, limits.pings_per_day)
        self._sources.change(limits.verifications_per_source, limits.verifications_burst)
        self._targets.change(limits.verifications_per_host, limits.verifications_host_burst)
        self._fetches.change(limits.fetches_per_host, limits.fetches_host_burst)
        # The number of hosts whose remaining subscriptions are remembered.
        self._quotas: BoundedDict[str, Quota | None] = BoundedDict(10_000)

    def ping(self, source: str) -> None:
        """Count a ping, or refuse it.

        :param source: the address of the caller; empty for the broker itself, which is exempt.
        :raises TooMany: the source pinged too often.
        """
        if self.is_exempt(source):
            return
        bucket = bucket_of(source)
        self._take(self._pings, bucket, "pings", "pings", "came from your address")
        pause = self._pings_of_day.take(bucket)
        if pause:
            often = f"{self._limits.pings_per_day} pings a day"
            raise self._too_many(
                "pings of a day", f"more than {often} came from your address", pause
            )

    def admit_fetch(self, url: str) -> int:
        """Count a fetch of a topic for its host, whether or not the topic has subscribers.

        :returns: 0 if the fetch is within the limit of its host; otherwise the seconds until it
            will be.
        """
        return self._fetches.take(_host_of(url))

    def too_many_fetches(self, url: str, pause: int) -> TooMany:
        """The error for a topic without subscribers that ``admit_fetch`` found over the limit.

        :param pause: what ``admit_fetch`` returned.
        """
        return self._too_many(
            "fetches of a host",
            f"more than {self._fetches.rate:g} fetches a second of topics without subscribers were "
            f"requested from the host {_host_of(url)}",
            pause,
        )

    async def verification(self, intent: Intent, *, remembering: bool = True) -> Quota:
        """Count a request to subscribe or to unsubscribe, or refuse it.

        :param remembering: whether to refuse what failed a moment ago.
        :returns: the quota of the callback's host, of which one subscription was taken; or one of
            no host, if none had to be taken.  A caller who learns that there will be no
            subscription adds one to ``left`` again; otherwise the next count of the host's
            subscriptions corrects it.
        :raises CallbackFailed: the same verification failed a moment ago.
        :raises TooMany: the source called too often, or too many requests named the host of the
            topic or the callback, or the callback's host has too many subscriptions.
        """
        of_no_host = Quota(0, 0.0)  # callers may add to it, and nobody reads it
        if self.is_exempt(intent.source):
            return of_no_host
        if remembering:
            self._check_failures(intent)
        bucket, kind = bucket_of(intent.source), "verifications of a source"
        self._take(self._sources, bucket, kind, "registrations", "came from your address")
        hosts = {_host_of(intent.topic)}
        if intent.challenge:
            hosts.add(_host_of(intent.callback.url))
        for host in sorted(hosts):
            named = f"named the host {host}"
            self._take(self._targets, host, "verifications of a host", "registrations", named)
        return of_no_host if intent.unsubscribe else await self._take_quota(intent) or of_no_host

    def failed(self, intent: Intent, error: CallbackFailed) -> None:
        """Remember for ``FAILED_PAUSE`` seconds that a verification failed.

        :raises CallsUnavailable: the process that asked the callback has ended, which may have
            nothing to do with the callback.
        """
        if error.interrupted:
            raise CallsUnavailable(error.reason) from error
        self._failures[_identity(intent)] = _Failure(
            # How many characters of the reason of a failure are remembered.
            error.reason[:300],
            error.refused,
            self._clock.seconds() + FAILED_PAUSE,
        )

    def _check_failures(self, intent: Intent) -> None:
        """:raises CallbackFailed: the same verification failed a moment ago."""
        failure = self._failures.get(_identity(intent), None)
        if failure and self._clock.seconds() < failure.until:
            self._counters.limited.labels("failed a moment ago").inc()
            raise CallbackFailed(failure.reason, refused=failure.refused)

    async def _take_quota(self, intent: Intent) -> Quota | None:
        """Take one subscription from the quota of a callback's host.

        The host's subscriptions are counted only when its quota is unknown or used up.  An
        intent that is being verified counts, though nothing is stored for it yet.  A renewal
        does not count, so subscriptions at a full host can be renewed.

        :returns: the quota; None if there is no limit or the intent renews a subscription.
        """
        limit = self._limits.subscriptions_per_host
        if not limit or await self._has_subscription(intent.topic, intent.callback):
            return None
        host = intent.callback.host
        quota = self._known_quota(host)
        if quota is None:
            counted = await self._count_of_host(host, limit)
            # Another call may have counted meanwhile, and others may have used its quota.
            quota = self._known_quota(host) or Quota(limit - counted, self._clock.seconds())
            self._quotas[host] = quota
        if quota.left < 1:
            raise self._too_many(
                "subscriptions of a host",
                f"the host {host} has {limit} subscriptions, those being verified among them, "
                "as many as one may have",
                # Expired subscriptions are deleted at the top of the hour.
                3600,
            )
        quota.left -= 1
        return quota

    def _known_quota(self, host: str) -> Quota | None:
        """The quota of a host; None to count its subscriptions (again, if none were left then)."""
        quota = self._quotas.get(host, None)
        if quota is None or quota.left > 0:
            return quota
        return quota if self._clock.seconds() - quota.counted_at < COUNT_PAUSE else None

    def _take(self, limit: RateLimit, key: str, kind: str, what: str, how: str) -> None:
        """Count what a limit is for; raise ``TooMany`` if it is exceeded.

        :param kind: which limit it is, for the counters.
        :param what, how: what was counted, and how it came; for the text of the error.
        """
        if pause := limit.take(key):
            raise self._too_many(kind, f"more than {limit.rate:g} {what} a second {how}", pause)

    def _too_many(self, kind: str, reason: str, pause: int) -> TooMany:
        self._counters.limited.labels(kind).inc()
        return TooMany(reason, pause)


def _host_of(url: str) -> str:
    """The host of a URL as a key, cut to the length that a host name may have."""
    return host_of(url)[:255]


def _identity(intent: Intent) -> bytes:
    """A hash of what a verification depends on: two equal intents would fail alike."""
    callback = intent.callback
    how = (intent.challenge, intent.unsubscribe)
    parts = (intent.topic, callback.url, callback.protocol, callback.procedure, *how)
    return sha256(repr(parts).encode()).digest()
