"""The relay, a sink: passes each ping on to other ping servers, hubs and clouds.

This is what Ping-O-Matic did: a site pings one server, and many hear of it.  The configuration
names the targets; without any the relay does nothing::

    [[sinks.relay.targets]]
    url = "http://rpc.pingomatic.com/"
    protocol = "xml-rpc"

``relay_calls`` says what is sent, and ``relay_worker`` when.  Each target has a worker of its own,
so that one that is slow or dead does not hold up the others.

A ping is never passed on to where it came from.  The relay tells each target which brokers the ping
has passed (``wire.origin``); a broker that gets a ping which it has passed on itself ignores it.

If several nodes share a database, one of them passes all pings on for as long as it lives.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, Final

import attrs
from attrs import field, frozen
from attrs.validators import and_, ge, gt, le
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, gatherResults, succeed
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import Event, HostFreed, PingReceived
from rsscloud_broker.interfaces import IEventSink, SinkParts
from rsscloud_broker.model import Callback, Ping, host_of
from rsscloud_broker.model.shared import RelayProgress
from rsscloud_broker.sinks.relay_calls import Protocol, Sender, TargetCalls
from rsscloud_broker.sinks.relay_foreign import LABEL, ForeignClouds
from rsscloud_broker.sinks.relay_worker import Worker
from rsscloud_broker.storage import Store
from rsscloud_broker.util.cluster_jobs import RunOnOneNode
from rsscloud_broker.util.retry import StoreRetry
from rsscloud_broker.util.urls import identity
from rsscloud_broker.wire.web_address import fault_of

#: How many targets there may be.
MAX_TARGETS: Final = 50

#: The places that the URL of a target by ``get`` may have.
_PLACES: Final = re.compile(r"\{(?:name|url|rssUrl)\}")


def is_target(target: Any, key: attrs.Attribute[Any], url: str) -> None:
    """Require a URL that can be called."""
    if fault := fault_of(_PLACES.sub("x", url)):
        raise ValueError(
            f"'{key.name}' is {url[:100]!r}, which cannot be called: {fault}; write a whole URL "
            'such as "http://rpc.pingomatic.com/"'
        )


@frozen
class RelayTarget:
    """Where the relay passes pings on to.

    :ivar url: the URL that is called.
    :ivar protocol: by which protocol; see ``relay_calls``.
    :ivar rate: calls a second, at most.
    :ivar at_once: how many calls may be under way at the same time; with more than one, pings of
        the same moment may arrive in another order.
    :ivar hosts: patterns of hosts; only pings of sites or feeds at such hosts are passed on.
    """

    url: str = field(validator=is_target)
    protocol: Protocol = "xml-rpc"
    rate: float = field(default=5.0, validator=and_(gt(0), le(10_000)))
    at_once: int = field(default=1, validator=and_(ge(1), le(50)))
    hosts: tuple[str, ...] = ("*",)

    @property
    def name(self) -> str:
        """Names the target in the store."""
        return f"{self.protocol} {self.url}"

    def wants(self, ping: Ping) -> bool:
        """Whether the site or the feed of a ping is at one of the hosts."""
        if self.hosts in {(), ("*",)}:
            return True
        hosts = [host_of(url) for url in (ping.url, ping.rss_url) if url]
        return any(fnmatchcase(host, each.lower()) for host in hosts for each in self.hosts)


def _check_different(options: RelayOptions, key: attrs.Attribute[Any], targets: Any) -> None:
    """Require targets that are not too many, and none of them twice."""
    if len(targets) > MAX_TARGETS:
        raise ValueError(f"'{key.name}' has {len(targets)} targets; at most {MAX_TARGETS} may be")
    for name, count in Counter(target.name for target in targets).items():
        if count > 1:
            raise ValueError(f"'{key.name}' has {name!r} {count} times; name each target once")


@frozen
class RelayOptions:
    """Options of the relay.

    :ivar targets: where pings are passed on to; none for no relay.
    :ivar window: seconds within which a repeat of a ping is not passed on again.
    :ivar foreign_clouds: whether the clouds and hubs that a feed names are pinged, too.
    """

    targets: tuple[RelayTarget, ...] = field(default=(), validator=_check_different)
    window: float = field(default=60.0, validator=and_(ge(0), le(86_400)))
    foreign_clouds: bool = False


@implementer(IEventSink)
class RelaySink(RunOnOneNode):
    """Passes pings on to the targets, on one of the nodes."""

    name = "relay"
    handles: tuple[type[Event], ...] = (PingReceived, HostFreed)

    def __init__(self, options: RelayOptions, parts: SinkParts) -> None:
        self._targets = _Targets(options, parts)
        super().__init__(self._targets, parts.store, parts.clock, name=self.name)
        if not (options.targets or options.foreign_clouds):
            self.handles = ()

    async def handle(self, event: Event) -> None:
        """Take a ping as a hint to look for pings in the store."""
        if isinstance(event, HostFreed):
            self._targets.free(event.host)
        else:
            self._targets.wake()

    def startService(self) -> None:
        """Have pings passed on by one of the nodes.

        New targets get the pings that come from now on, whichever node passes them on, and when.
        """
        if self.handles:
            Deferred.fromCoroutine(self._targets.store_new())
            super().startService()
        else:
            Service.startService(self)


class _Targets(Service):
    """Passes pings on to the targets while it runs."""

    name = "targets of the relay"
    log = Logger()

    def __init__(self, options: RelayOptions, parts: SinkParts) -> None:
        self._options = options
        self._parts = parts
        self._workers: list[Worker] = []
        self._beginning: Deferred[None] = succeed(None)
        self._store_retry = StoreRetry(parts.clock, "The relay")

    def wake(self) -> None:
        """Look for new pings."""
        for worker in self._workers:
            worker.wake()

    def free(self, host: str) -> None:
        """Call the targets at a host as if they had not failed."""
        for worker in self._workers:
            if worker.target.host == host:
                worker.free()

    def startService(self) -> None:
        super().startService()
        self._store_retry.stopped = False
        self._beginning = Deferred.fromCoroutine(self._begin())

    def stopService(self) -> Deferred[None]:
        """Stop; the Deferred fires when the progress of all targets is stored."""
        super().stopService()
        self._store_retry.stop()
        self._beginning.cancel()
        workers, self._workers = self._workers, []
        return gatherResults([worker.stop() for worker in workers]).addCallback(lambda done: None)

    async def _begin(self) -> None:
        with suppress(CancelledError):  # the service stops
            found = await self._store_retry.until_done(
                self._read_or_begin, "The start of the relay"
            )
            self._begin_workers(found)

    async def store_new(self) -> None:
        """Store that new targets begin with the next ping."""
        with suppress(Unavailable):  # then no ping can be stored, and ``_begin`` tries it again
            await self._read_or_begin()

    def _read_or_begin(self) -> Awaitable[Sequence[RelayProgress]]:
        """Read how far pings were passed on to each target; store where new targets begin."""
        options, now = self._options, self._parts.clock.wall_seconds()
        names = [target.name for target in options.targets]
        names += [LABEL] if options.foreign_clouds else []
        # The progress of a target that the configuration does not name is kept for a week.
        store: Store = self._parts.store
        return store.begin_relay(names, now, now - (7 * 86_400.0))

    def _begin_workers(self, found: Sequence[RelayProgress]) -> None:
        """Start a worker for each target, and one for the clouds and hubs that feeds name.

        :param found: the progress of each, in this order.
        """
        options, parts = self._options, self._parts
        if parts.outbound is None:
            raise ValueError("a relay needs a client that calls the targets")
        sender = Sender(parts.outbound, identity(parts.public_url))
        if not sender.identity:
            self.log.warn(
                "The relay passes pings on without a name, since {url} means another machine "
                "everywhere else. Set public_url to the address by which other brokers reach this "
                "one; by it they recognise pings that have passed here, and do not send them back.",
                url=parts.public_url,
            )
        # That of the foreign clouds may come after those of the targets, so it is not strict.
        for target, progress in zip(options.targets, found, strict=False):
            calls = TargetCalls(sender, parts.clock, target.protocol, target.url)
            called = Callback(target.url, target.protocol)
            self._add(
                Worker(
                    progress,
                    called,
                    called.host,
                    calls,
                    parts,
                    wants=target.wants,
                    rate=target.rate,
                    at_once=target.at_once,
                    window=options.window,
                )
            )
        if options.foreign_clouds:
            self._add(
                Worker(
                    found[-1],
                    Callback("", LABEL),
                    LABEL,
                    ForeignClouds(sender, parts),
                    parts,
                    wants=lambda ping: True,
                    # How many feeds a second have their clouds and hubs pinged, at most.
                    rate=20.0,
                    # Of how many pings the calls may be under way at the same time.
                    at_once=100,
                    window=options.window,
                )
            )

    def _add(self, worker: Worker) -> None:
        self._workers.append(worker)
        worker.start()
