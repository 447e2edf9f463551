"""Passes pings on to the clouds and hubs that the pinged feeds name themselves.

A feed says in its ``<cloud>`` element and by ``rel="hub"`` where its subscribers register.  If that
is another server than this broker, its subscribers learn of a change only if somebody pings there.
The store keeps what a feed said about itself when it was last fetched.

Feeds are written by strangers.  So each host gets few calls, nothing is tried twice, and the
address guard judges every address.  Calls to several hosts are under way at the same time, so that
a slow hub delays no others; a host that has enough calls under way or to come gets no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import define, frozen
from twisted.internet.task import deferLater

from rsscloud_broker.delivery.breakers import FIRST_PAUSE, LONGEST_PAUSE, THRESHOLD
from rsscloud_broker.events import PingRelayed, RelayFailed
from rsscloud_broker.interfaces import OutboundRequest, SinkParts
from rsscloud_broker.model import Callback, Ping, host_of
from rsscloud_broker.sinks.relay_calls import XML, Protocol, RelayAnswer, Sender, message_of
from rsscloud_broker.util.backoff import backoff
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.deferreds import gather
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire import soap, xmlrpc
from rsscloud_broker.wire.cloud import Cloud
from rsscloud_broker.wire.origin import has_passed
from rsscloud_broker.wire.web_address import fault_of

#: Seconds between two calls to one host, and of how many hosts that is remembered.
HOST_PAUSE, REMEMBERED = 1.0, 10_000

#: How many calls to one host may be under way or wait for their second.
OF_HOST: Final = 5

#: What stands for all these clouds and hubs in the counters.
LABEL: Final = "foreign clouds"

#: The last word of the path at which a cloud takes registrations, and where it takes pings.
_REGISTER: Final = "pleasenotify"


@frozen
class Destination:
    """Where a feed wants to be pinged, and by which protocol.

    ``xml-rpc`` and ``soap`` mean those of rssCloud, and ``rsscloud`` its form.
    """

    protocol: Protocol
    url: str

    def message(self, topic: str) -> OutboundRequest:
        """The request that pings for a topic."""
        match self.protocol:
            case "xml-rpc":
                return OutboundRequest(
                    "POST", self.url, XML, xmlrpc.encode_call("rssCloud.ping", [topic])
                )
            case "soap":
                headers = {**XML, "soapaction": '"/rssCloud"'}
                return OutboundRequest(
                    "POST", self.url, headers, soap.encode_call("ping", {"url": topic})
                )
        return message_of(self.protocol, self.url, Ping(topic, topic, 0.0))


def destinations(feed: Mapping[str, Any]) -> Iterator[Destination]:
    """Where a feed wants to be pinged.

    :param feed: what it says about itself, as the store keeps it: see ``core.feed_inspector``.
    """
    for hub in feed.get("hubs") or ():
        yield Destination("websub", str(hub))
    for said in feed.get("clouds") or ():
        cloud = Cloud(**said)
        if fault_of(cloud.url):
            continue
        if cloud.protocol in ("xml-rpc", "soap"):
            yield Destination("soap" if cloud.protocol == "soap" else "xml-rpc", cloud.url)
        else:
            yield Destination("rsscloud", _ping_url(cloud.url))


def _ping_url(url: str) -> str:
    """Where a cloud takes pings by REST: ``ping`` beside ``pleaseNotify``."""
    head, _, last = urlsplit(url).path.rpartition("/")
    path = f"{head}/ping" if last.lower() == _REGISTER else "/rsscloud/ping"
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{path}"


@define
class _Host:
    """A host that was called.

    :ivar failures: how many calls in a row had no answer.
    :ivar not_before: until when it is left alone, by the monotonic clock.
    :ivar next_at: when the next call may be made.
    :ivar calls: how many calls are under way or wait.
    """

    failures: int = 0
    not_before: float = 0.0
    next_at: float = 0.0
    calls: int = 0


class ForeignClouds:
    """Passes pings on to the clouds and hubs of their feeds."""

    def __init__(self, sender: Sender, parts: SinkParts) -> None:
        self._sender = sender
        self._parts = parts
        self._counter = parts.counters.relays
        parts.counters.begin_target(LABEL)
        self._hosts: BoundedDict[str, _Host] = BoundedDict(REMEMBERED)

    async def __call__(self, ping: Ping) -> None:
        """Pass a ping on to the clouds and hubs of its feed, once to each, to three at most.

        :raises Unavailable: the store cannot be read.
        """
        topic = ping.rss_url or ping.url
        status = await self._parts.store.topic_status(normal_form(topic))
        if status is None:
            return
        foreign = (
            destination
            for destination in dict.fromkeys(destinations(status.feed))
            if self._is_foreign(destination, ping)
        )
        # How many clouds and hubs of one feed are pinged.
        await gather(self._call_in_turn(each, ping, topic) for each in islice(foreign, 3))

    def _is_foreign(self, destination: Destination, ping: Ping) -> bool:
        """Whether a destination is neither this broker nor one that the ping has passed."""
        url = destination.url
        is_usable = not fault_of(url) and not has_passed(self._parts.public_url, url)
        return is_usable and not has_passed(ping.origin, url)

    async def _call_in_turn(self, destination: Destination, ping: Ping, topic: str) -> None:
        """Call a cloud or hub, when its host may be called; leave it out if that is too busy."""
        name = host_of(destination.url)
        host = self._hosts.get(name, _Host())
        self._hosts[name] = host
        if host.calls >= OF_HOST or self._parts.clock.seconds() < host.not_before:
            self._counter.labels(LABEL, "left_out").inc()
            return
        host.calls += 1
        try:
            now = self._parts.clock.seconds()
            begin = max(now, host.next_at)
            host.next_at = begin + HOST_PAUSE
            if begin > now:
                await deferLater(self._parts.clock, begin - now)
            if self._parts.clock.seconds() < host.not_before:  # another call has failed meanwhile
                self._counter.labels(LABEL, "left_out").inc()
            else:
                await self._call(host, destination, ping, topic)
        finally:
            host.calls -= 1

    async def _call(self, host: _Host, destination: Destination, ping: Ping, topic: str) -> None:
        """Call a cloud or hub, and count and publish what came of that."""
        began = self._parts.clock.seconds()
        answer = await self._sender.send(destination.protocol, destination.message(topic), ping)
        self._pause_after(host, answer)
        now = self._parts.clock.wall_seconds()
        target = Callback(destination.url, destination.protocol)
        if answer.accepted:
            took = self._parts.clock.seconds() - began
            self._counter.labels(LABEL, "delivered").inc()
            self._parts.bus.publish(PingRelayed(topic, target, answer.text, took, now))
        else:
            self._counter.labels(LABEL, "failed").inc()
            self._parts.bus.publish(RelayFailed(topic, target, answer.text, now))

    def _pause_after(self, host: _Host, answer: RelayAnswer) -> None:
        """Leave a host alone for a while if it does not answer."""
        now = self._parts.clock.seconds()
        host.failures = 0 if answer.healthy else host.failures + 1
        pause = answer.retry_after or 0.0
        if host.failures >= THRESHOLD:
            pause = max(pause, backoff(FIRST_PAUSE, host.failures - THRESHOLD, LONGEST_PAUSE))
        host.not_before = max(host.not_before, now + min(pause, LONGEST_PAUSE))
