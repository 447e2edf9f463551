"""The counters, gauges and histograms of the broker, in one registry.

All parts of the broker count their work here; a page, a plugin or a test reads the registry.
Names and units follow the conventions of Prometheus, whose client library this module uses.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

#: The upper bounds of the buckets of latencies, in seconds; there is one more without a bound.
LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Counters:
    """The counters of one broker.

    :ivar registry: the registry of all of them.
    :ivar pings: pings that were recorded.
    :ivar repeats: repeats of a recent ping, which were accepted and not recorded.
    :ivar fetches: fetches of topics, by result: changed, unchanged, failed.
    :ivar deliveries: attempts to notify, by protocol and outcome: delivered, failed, gone,
        put_off (no call was made, since the host does not answer), unavailable (no call was made,
        since the broker lacked a resource, such as the database).
    :ivar retries: those attempts that were not the first.
    :ivar given_up: notifications whose last attempt failed, by protocol.
    :ivar dropped_contents: pushed contents that did not fit into the queue of a subscription.
    :ivar limited: requests that were refused because of a limit, by kind.
    :ivar answers: answers to requests, by status; 503 means that the broker lacked a resource.
    :ivar missed: events that a sink did not handle, by sink and reason: dropped (its queue was
        full), failed (the sink raised an exception).
    :ivar in_flight: notifications under way.
    :ivar slow: those of them that take long and gave up their slots.
    :ivar queued: notifications that wait for a slot.
    :ivar open_hosts: hosts whose breakers are open.
    :ivar fan_outs: topics whose fan-outs are under way.
    :ivar checks: topics that are fetched because of a ping, or wait to be fetched.
    :ivar writes: operations that wait to be written to the store.
    :ivar first_latency: seconds from the request of the fetch that found a change to the first
        notification.  This is the time of the ping, unless the change was found by a poll, the
        topic could not be fetched at first, or a fetch was under way when the ping came.
    :ivar last_latency: seconds from the same moment until the last subscriber has had its first
        attempt.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"rsscloud_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"rsscloud_{name}", text, registry=registry)

        def latency(name: str, text: str) -> Histogram:
            return Histogram(f"rsscloud_{name}_seconds", text, registry=registry, buckets=LATENCIES)

        self.pings = counter("pings", "Pings that were recorded")
        self.repeats = counter("repeats", "Repeats of a recent ping, which were not recorded")
        self.fetches = counter("fetches", "Fetches of topics", "result")
        self.deliveries = counter(
            "deliveries", "Attempts to notify a subscriber", "protocol", "outcome"
        )
        self.retries = counter("retries", "Attempts that were not the first")
        self.given_up = counter("given_up", "Notifications that were given up", "protocol")
        self.dropped_contents = counter(
            "dropped_contents", "Pushed contents that did not fit into the queue of a subscription"
        )
        self.limited = counter("limited", "Requests that were refused because of a limit", "kind")
        self.answers = counter("answers", "Answers to requests", "status")
        self.missed = counter(
            "missed_events", "Events that a sink did not handle", "sink", "reason"
        )
        self.in_flight = gauge("in_flight", "Notifications under way")
        self.slow = gauge("slow", "Notifications under way that take long")
        self.queued = gauge("queued", "Notifications that wait for a slot")
        self.open_hosts = gauge("open_hosts", "Hosts whose breakers are open")
        self.fan_outs = gauge("fan_outs", "Topics whose fan-outs are under way")
        self.checks = gauge("checks", "Topics that are fetched because of a ping, or wait for it")
        self.writes = gauge("writes", "Operations that wait to be written to the store")
        self.first_latency = latency("first_latency", "From a ping to its first notification")
        self.last_latency = latency("last_latency", "From a ping to the end of the fan-out")
