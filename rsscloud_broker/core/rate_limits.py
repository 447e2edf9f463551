"""How much one may ask, so that nobody has the broker work against others.

A ping or a registration costs its sender one small request, and makes the
broker fetch a topic or call a callback, which may be somebody else's.  So the
broker counts, by token buckets:

- pings and verifications of each source: the address of the caller, or the
  network of 64 bits that an IPv6 address is in, since one customer has all of it;
  pings by the day as well, since each of them is stored;
- verifications of each target: the hosts of the topic and of the callback.
  A callback that is the caller itself is no target;
- readings of each host, of topics that nobody has subscribed to.

And it remembers for a moment which callbacks did not confirm, and lets no host
have subscriptions without end.  Whoever is refused is told when to try again;
nothing was fetched or stored for him.

The buckets are in memory: after a start all of them are full.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from math import ceil, inf
from typing import TypeVar

from attrs import define, frozen
from twisted.internet.interfaces import IReactorTime

from rsscloud_broker.bounded_dict import BoundedDict
from rsscloud_broker.config import Network, RateLimitOptions
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import CallbackFailed, TooMany
from rsscloud_broker.interfaces import IStore
from rsscloud_broker.model import Intent, host_of
from rsscloud_broker.sources import MAX_SOURCES, address_of, bucket_of

#: Keys of which a limit knows more than that their buckets are full.
MAX_KEYS = 100_000


#: Failed verifications that are remembered.
MAX_FAILURES = 10_000

#: Characters of their reasons.
MAX_REASON = 300

#: Hosts of which it is known how many more subscriptions they may have.
MAX_HOSTS = 10_000

#: Seconds until the subscriptions of a host that may be full are counted again: by then
#: those who were let in have confirmed, or most of them will not.
COUNT_PAUSE = 30.0

#: Seconds in a day, and those after which to try again whose pings of a day are used up:
#: by then some have come back.
DAY, DAY_PAUSE = 86_400, 3600

#: Seconds after which a host that has too many subscriptions may try again:
#: they end at the top of the hour.
FULL_HOST_PAUSE = 3600

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RateLimit:
    """A token bucket for each key.

    Of a bucket only the moment is kept at which it will be full; one that was
    not used for longest is forgotten when there are too many, and so full.

    :param rate: tokens that come back each second; 0 for no limit.
    :param burst: tokens in a full bucket.
    :param longest_pause: the longest that anybody is told to wait for more than one token.
    """

    def __init__(
        self,
        rate: float,
        burst: int,
        clock: IReactorTime,
        max_keys: int = MAX_KEYS,
        longest_pause: float = inf,
    ) -> None:
        self._longest_pause = longest_pause
        self._clock = clock
        # Times are counted from here: small numbers add up with less error.
        self._began_at = clock.seconds()
        self._full_at: BoundedDict[str, float] = BoundedDict(max_keys)
        self._set(rate, burst)

    def _set(self, rate: float, burst: int) -> None:
        self.rate = rate
        self._seconds_per_token = 1 / rate if rate else 0.0
        self._seconds_to_fill = burst * self._seconds_per_token

    def change(self, rate: float, burst: int) -> None:
        """Limit by another rate and another burst from now on.

        Of each bucket as many tokens remain taken as are now, but not more than it holds.
        """
        now = self._clock.seconds() - self._began_at
        seconds_per_token = self._seconds_per_token
        self._set(rate, burst)
        factor = self._seconds_per_token / seconds_per_token if seconds_per_token else 0.0

        def rescaled(full_at: float) -> float:
            return now + min(max(full_at - now, 0.0) * factor, self._seconds_to_fill)

        self._full_at.replace_each(rescaled)

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, key: str) -> int:
        """Take a token.

        :returns: 0; or, if there is none, the seconds until the bucket is half
            full, since who comes for the first token that drops would soon be
            refused again.
        """
        if not self._seconds_per_token:
            return 0
        now = self._clock.seconds() - self._began_at
        to_fill = max(self._full_at.get(key, now) - now, 0.0)
        missing = to_fill + self._seconds_per_token - self._seconds_to_fill
        if missing > self._seconds_per_token / 100:  # not 0, for sums of floats are inexact
            self._full_at[key] = now + to_fill
            until_half_full = to_fill - self._seconds_to_fill / 2
            return ceil(max(missing, min(until_half_full, self._longest_pause)))
        self._full_at[key] = now + to_fill + self._seconds_per_token
        return 0


@frozen
class _Failure:
    """That a callback did not confirm, and until when that is remembered."""

    reason: str
    refused: bool
    until: float


@define
class Quota:
    """How many more subscriptions a host may have.

    :ivar left: how many of those that it might have when they were counted.
    :ivar counted_at: when that was.
    """

    left: int
    counted_at: float


class Admission:
    """Lets in what callers ask for, or refuses it.

    :param store: is asked how many subscriptions a host has, and which.
    """

    def __init__(
        self, limits: RateLimitOptions, store: IStore, clock: IReactorTime, counters: Counters
    ) -> None:
        self._store = store
        self._clock = clock
        self._counters = counters
        self._pings = RateLimit(0, 0, clock)
        self._day = RateLimit(0, 0, clock, longest_pause=DAY_PAUSE)
        self._sources = RateLimit(0, 0, clock)
        self._targets = RateLimit(0, 0, clock)
        self._readings = RateLimit(0, 0, clock)
        self._failures: BoundedDict[bytes, _Failure | None] = BoundedDict(MAX_FAILURES)
        self.change(limits)

    def change(self, limits: RateLimitOptions) -> None:
        """Let in by other limits from now on.

        What callers have asked for so far counts on; the subscriptions of a host are counted anew.
        """
        self._limits = limits
        #: Whether a source is not limited.  Sources come again and again, and the networks stay.
        self.is_exempt = lru_cache(MAX_SOURCES)(partial(_is_among, limits.exempt_networks))
        self._pings.change(limits.pings_per_source, limits.pings_burst)
        self._day.change(limits.pings_per_day / DAY, limits.pings_per_day)
        self._sources.change(limits.verifications_per_source, limits.verifications_burst)
        self._targets.change(limits.verifications_per_host, limits.verifications_host_burst)
        self._readings.change(limits.fetches_per_host, limits.fetches_host_burst)
        self._quotas: BoundedDict[str, Quota | None] = BoundedDict(MAX_HOSTS)

    def ping(self, source: str) -> None:
        """Let a ping in by returning.

        :param source: the address of the caller; empty if nobody called.
        :raises TooMany: it pinged too often.
        """
        if self.is_exempt(source):
            return
        bucket = bucket_of(source)
        pause = self._pings.take(bucket)
        if pause:
            raise self._too_many(
                "pings", f"more than {_often(self._pings, 'pings')} came from your address", pause
            )
        pause = self._day.take(bucket)
        if pause:
            often = f"{self._limits.pings_per_day} pings a day"
            raise self._too_many(
                "pings of a day", f"more than {often} came from your address", pause
            )

    def limits_readings(self, source: str) -> bool:
        """Whether the readings are counted that a caller causes."""
        return not self.is_exempt(source)

    def reading(self, url: str) -> int:
        """Count a reading of a topic of which it is not known that anybody has subscribed.

        :returns: 0 if there is quota for it; otherwise the seconds after which there is.
        """
        return self._readings.take(_host_of(url))

    def too_many_readings(self, url: str, pause: int) -> TooMany:
        """What to raise where there is no quota, and nobody has subscribed."""
        often = _often(self._readings, "readings")
        return self._too_many(
            "readings of a host",
            f"more than {often} of topics without subscribers are asked of the host "
            f"{_host_of(url)}",
            pause,
        )

    async def verification(self, intent: Intent, *, remembering: bool = True) -> Quota:
        """Let a request for a subscription, or for its end, in by returning.

        :param remembering: whether what failed a moment ago is not tried again.
        :returns: where a place was taken for it, which whoever learns that there will be
            no subscription gives back; where nobody does, it is free at the next count.
        :raises CallbackFailed: the same was tried a moment ago.
        :raises TooMany: the caller asked too often, or one of the hosts is asked
            too often, or the host of the callback has too many subscriptions.
        """
        nowhere = Quota(0, 0.0)
        if self.is_exempt(intent.source):
            return nowhere
        if remembering:
            self._check_failures(intent)
        pause = self._sources.take(bucket_of(intent.source))
        if pause:
            often = _often(self._sources, "registrations")
            raise self._too_many(
                "verifications of a source", f"more than {often} came from your address", pause
            )
        self._check_targets(intent)
        return nowhere if intent.unsubscribe else await self._quota_for(intent) or nowhere

    def failed(self, intent: Intent, error: CallbackFailed) -> None:
        """Remember for a moment that a callback did not confirm."""
        self._failures[_identity(intent)] = _Failure(
            error.reason[:MAX_REASON],
            error.refused,
            self._clock.seconds() + self._limits.failed_verification_pause,
        )

    def _check_failures(self, intent: Intent) -> None:
        known = self._failures.get(_identity(intent), None)
        left = known.until - self._clock.seconds() if known else 0.0
        if known and left > 0:
            self._counters.limited.labels("failed a moment ago").inc()
            raise CallbackFailed(known.reason, refused=known.refused)

    def _check_targets(self, intent: Intent) -> None:
        hosts = {_host_of(intent.topic)}
        if intent.challenge:
            hosts.add(_host_of(intent.callback.url))
        for host in sorted(hosts):
            pause = self._targets.take(host)
            if pause:
                often = _often(self._targets, "registrations")
                raise self._too_many(
                    "verifications of a host", f"more than {often} named the host {host}", pause
                )

    async def _quota_for(self, intent: Intent) -> Quota | None:
        """Take a place at the host of a callback; None if none is needed.

        What a host has is not counted each time, only when it may be full.  Who is let
        in has a place from then on, though nothing is stored before it is verified.  A
        renewal adds none, so a host that is full keeps what it has.
        """
        most = self._limits.subscriptions_per_host
        if not most or await self._store.has_subscription(intent.topic, intent.callback):
            return None
        host = intent.callback.host
        quota = self._quota_of(host)
        if quota is None:
            counted = await self._store.count_of_host(host, most)
            # Another one may have counted meanwhile, and others have taken places there.
            quota = self._quota_of(host) or Quota(most - counted, self._clock.seconds())
            self._quotas[host] = quota
        if quota.left < 1:
            raise self._too_many(
                "subscriptions of a host",
                f"the host {host} has {most} subscriptions, those being verified among them, "
                "as many as one may have",
                FULL_HOST_PAUSE,
            )
        quota.left -= 1
        return quota

    def _quota_of(self, host: str) -> Quota | None:
        """The quota at a host; None if it is to be counted."""
        quota = self._quotas.get(host, None)
        if quota is None or quota.left > 0:
            return quota
        return quota if self._clock.seconds() - quota.counted_at < COUNT_PAUSE else None

    def _too_many(self, kind: str, reason: str, pause: int) -> TooMany:
        self._counters.limited.labels(kind).inc()
        return TooMany(reason, pause)


def _is_among(exempt: Sequence[Network], source: str) -> bool:
    """Whether a source is exempt: one in such a network, or nobody."""
    address = address_of(source)
    if address is None:
        return not source
    return any(address in network for network in exempt)


def _often(limit: RateLimit, what: str) -> str:
    return f"{limit.rate:g} {what} a second"


def _host_of(url: str) -> str:
    """A host as a key: no longer than the name of a host may be."""
    return host_of(url)[:255]


def _identity(intent: Intent) -> bytes:
    """What is tried when an intent is verified.  To be challenged is another trial."""
    callback = intent.callback
    how = (intent.challenge, intent.unsubscribe)
    parts = (intent.topic, callback.url, callback.protocol, callback.procedure, *how)
    return sha256(repr(parts).encode()).digest()
