"""Everything the broker counts, in one place.

The parts count as they work; whoever wants to know (a page, a test, a log line)
reads the registry.  Names and units follow the conventions of Prometheus, whose
client library this is.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Counters:
    """The counters of one broker.

    :ivar pings: pings that were recorded.
    :ivar repeats: pings that came again within a moment, and were thanked for.
    :ivar readings: topics that were read, by result: changed, unchanged, failed.
    :ivar deliveries: attempts to notify, by protocol and outcome: delivered,
        failed, gone, put_off (not tried, for its host does not answer), unavailable
        (not tried, for want of our own means, such as the database).
    :ivar retries: attempts among them that were not the first.
    :ivar given_up: notifications whose last attempt failed, by protocol.
    :ivar dropped_contents: contents that were pushed and did not fit into the queue of a
        subscription.
    :ivar limited: requests that were refused for being too many, by kind.
    :ivar answers: answers to requests, by status; 503 is for want of our own means.
    :ivar missed: events that a sink did not handle, by sink and reason: dropped (its
        queue was full), failed (it has a bug).
    :ivar in_flight: notifications under way.
    :ivar slow: those among them that take long and gave up their slot.
    :ivar queued: notifications that wait for a slot.
    :ivar open_hosts: hosts that are not called for a while.
    :ivar fan_outs: topics that are being walked.
    :ivar checks: topics that are being read because of a ping, or wait for it.
    :ivar writes: changes that wait to be written to the store.
    :ivar first_latency: seconds to the first notification of a change, from when the
        reading that found it was asked for: from the ping, unless it was a poll, the topic
        could not be read at first, or was being read when the ping came.
    :ivar last_latency: seconds to the last first attempt of its walk.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"rsscloud_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"rsscloud_{name}", text, registry=registry)

        def latency(name: str, text: str) -> Histogram:
            return Histogram(
                f"rsscloud_{name}_seconds", text, registry=registry, buckets=_LATENCIES
            )

        self.pings = counter("pings", "Pings that were recorded")
        self.repeats = counter("repeats", "Pings that came again within a moment")
        self.readings = counter("readings", "Topics that were read", "result")
        self.deliveries = counter(
            "deliveries", "Attempts to notify a subscriber", "protocol", "outcome"
        )
        self.retries = counter("retries", "Attempts that were not the first")
        self.given_up = counter("given_up", "Notifications that were given up", "protocol")
        self.dropped_contents = counter(
            "dropped_contents", "Contents that did not fit into the queue of a subscription"
        )
        self.limited = counter("limited", "Requests refused for being too many", "kind")
        self.answers = counter("answers", "Answers to requests", "status")
        self.missed = counter("missed_events", "Events that were not handled", "sink", "reason")
        self.in_flight = gauge("in_flight", "Notifications under way")
        self.slow = gauge("slow", "Notifications under way that take long")
        self.queued = gauge("queued", "Notifications that wait for a slot")
        self.open_hosts = gauge("open_hosts", "Hosts that are not called for a while")
        self.fan_outs = gauge("fan_outs", "Topics that are being walked")
        self.checks = gauge("checks", "Topics that are to be read because of a ping")
        self.writes = gauge("writes", "Changes that wait to be written to the store")
        self.first_latency = latency("first_latency", "From a ping to its first notification")
        self.last_latency = latency("last_latency", "From a ping to the end of the walk")
