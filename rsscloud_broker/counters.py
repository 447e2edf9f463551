"""The counters, gauges and histograms of the broker, in one registry.

All parts of the broker count their work here.  ``/metrics`` shows the registry, and a page, a
plugin or a test may read it.  Names and units follow the conventions of Prometheus
(https://prometheus.io/docs/practices/naming/), whose client library this module uses.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

#: The upper bounds of the buckets of latencies, in seconds; there is one more without a bound.
LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_DELAYS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_GROUPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class Counters:
    """The counters of one broker.

    :ivar pings: pings that were recorded.
    :ivar repeats: repeats of a recent ping, which were accepted and not recorded.
    :ivar fetches: fetches of topics, by result: changed, unchanged, failed.
    :ivar deliveries: attempts to notify, by protocol and outcome: delivered, failed, gone,
        put_off (no call was made, since the host does not answer), unavailable (no call was made,
        since the broker lacked a resource, such as the database).
    :ivar retries: those attempts that were not the first.
    :ivar given_up: notifications whose last attempt failed, by protocol.
    :ivar dropped_contents: pushed contents that did not fit into the queue of a subscription.
    :ivar relays: pings for targets of the relay, by the host of the target and the outcome:
        delivered, failed (an attempt), given_up, refused, too_old, repeated, came_from_there.
    :ivar follows: pings in followed lists and feeds, by the host of these and the outcome: taken,
        known, refused, invalid, too_old, too_many.
    :ivar follow_reads: reads of followed lists, by host and result: read, unchanged, failed.
    :ivar limited: requests that were refused because of a limit, by kind.
    :ivar answers: answers to requests, by status; 503 means that the broker lacked a resource.
    :ivar missed: events that a sink did not handle, by sink and reason: dropped (its queue was
        full), failed (the sink raised an exception).
    :ivar unlogged: requests that are missing in the access log.
    :ivar in_flight: notifications under way.
    :ivar slow: those of them that take long and gave up their slots.
    :ivar queued: notifications that wait for a slot.
    :ivar open_hosts: hosts whose breakers are open.
    :ivar fan_outs: topics whose fan-outs are under way.
    :ivar checks: topics that are fetched because of a ping, or wait to be fetched.
    :ivar stored_checks: topics that wait in the database for any node to fetch them.
    :ivar writes: operations that wait to be written to the store.
    :ivar events: events that wait on the bus, by sink.
    :ivar lookups: host names that are being looked up.
    :ivar connections: open connections of clients.
    :ivar outgoing: requests to other servers under way, by client: callbacks, topics.
    :ivar idle: connections to other servers that are kept open for further requests, by client.
    :ivar busy_threads: threads at work, by pool.
    :ivar thread_queue: calls that wait for a thread, by pool.
    :ivar database_size: bytes of the database, by part: main, and for SQLite wal (the write-ahead
        log).
    :ivar disk_free: bytes that are free on the disk of the data directory.
    :ivar transaction_age: seconds since the writer began its transaction; 0 if it has none.
    :ivar group_sizes: operations that the writer committed together.
    :ivar transactions: seconds from the begin of a writing transaction to the end of its commit.
    :ivar loop_delay: seconds by which the event loop called a timer too late.
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

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"rsscloud_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"rsscloud_{name}", text, registry=registry, buckets=buckets)

        self.pings = counter("pings", "Pings that were recorded")
        self.repeats = counter("repeated_pings", "Repeats of a recent ping, which are not recorded")
        self.fetches = counter("fetches", "Fetches of topics", "result")
        self.deliveries = counter(
            "notifications", "Attempts to notify a subscriber", "protocol", "outcome"
        )
        self.retries = counter("notification_retries", "Attempts that were not the first")
        self.given_up = counter(
            "notifications_given_up", "Notifications whose last attempt failed", "protocol"
        )
        self.dropped_contents = counter(
            "dropped_contents", "Pushed contents that did not fit into the queue of a subscription"
        )
        self.relays = counter(
            "relayed_pings", "Pings for targets of the relay", "target", "outcome"
        )
        self.follows = counter("followed_pings", "Pings in followed lists", "source", "outcome")
        self.follow_reads = counter(
            "followed_list_reads", "Reads of followed lists", "source", "result"
        )
        self.limited = counter(
            "limited_requests", "Requests that were refused because of a limit", "kind"
        )
        self.answers = counter("http_responses", "Answers to requests", "status")
        self.missed = counter(
            "missed_events", "Events that a sink did not handle", "sink", "reason"
        )
        self.unlogged = counter(
            "access_log_missing_lines", "Requests that are missing in the access log"
        )
        self.in_flight = gauge("notifications_in_flight", "Notifications under way")
        self.slow = gauge("slow_notifications", "Notifications under way that take long")
        self.queued = gauge("notifications_queued", "Notifications that wait for a slot")
        self.open_hosts = gauge("open_breakers", "Hosts whose breakers are open")
        self.fan_outs = gauge("running_fan_outs", "Topics whose fan-outs are under way")
        self.checks = gauge(
            "pending_fetches", "Topics that are fetched because of a ping, or wait for it"
        )
        self.stored_checks = gauge(
            "stored_fetches", "Topics that wait in the database to be fetched", "state"
        )
        self.writes = gauge("store_writes_queued", "Operations that wait to be written")
        self.events = gauge("events_queued", "Events that wait on the bus", "sink")
        self.lookups = gauge("name_lookups", "Host names that are being looked up")
        self.connections = gauge("http_connections", "Open connections of clients")
        self.outgoing = gauge("outgoing_requests", "Requests to other servers under way", "client")
        self.idle = gauge(
            "idle_outgoing_connections", "Connections kept open for further requests", "client"
        )
        self.busy_threads = gauge("busy_threads", "Threads at work", "pool")
        self.thread_queue = gauge("thread_calls_queued", "Calls that wait for a thread", "pool")
        self.database_size = gauge("database_size_bytes", "Size of the database", "part")
        self.disk_free = gauge("disk_free_bytes", "Free space on the disk of the data directory")
        self.transaction_age = gauge(
            "store_transaction_age_seconds", "Time since the writer began its transaction"
        )
        self.group_sizes = histogram(
            "store_transaction_operations", "Operations committed together", _GROUPS
        )
        self.transactions = histogram(
            "store_transaction_duration_seconds", "Time of a writing transaction", _DELAYS
        )
        self.loop_delay = histogram(
            "event_loop_delay_seconds", "Time by which the event loop is late", _DELAYS
        )
        self.first_latency = histogram(
            "first_notification_latency_seconds", "From a ping to its first notification", LATENCIES
        )
        self.last_latency = histogram(
            "last_notification_latency_seconds", "From a ping to the end of the fan-out", LATENCIES
        )
        # Series with known labels begin at 0, so that "rate" sees their first increase
        # (https://prometheus.io/docs/practices/instrumentation/#avoid-missing-metrics).
        _begin(self.fetches, ("changed", "unchanged", "failed", "private"))
        _begin(
            self.limited,
            (
                *("pings", "pings of a day", "fetches of a host", "topics that wait"),
                *("verifications of a source", "verifications of a host"),
                *("subscriptions of a host", "failed a moment ago"),
            ),
        )
        # Nearly every answer has the first status; alerts watch the others.
        _begin(self.answers, ("200", "429", "500", "503"))

    def begin_protocol(self, protocol: str) -> None:
        """Begin the series of notifications by a protocol."""
        outcomes = ("delivered", "failed", "gone", "put_off", "unavailable")
        _begin(self.deliveries, outcomes, protocol)
        _begin(self.given_up, (protocol,))

    def begin_sink(self, sink: str) -> None:
        """Begin the series of a sink."""
        _begin(self.missed, ("dropped", "failed"), sink)

    def begin_target(self, target: str) -> None:
        """Begin the series of a target of the relay."""
        ends = ("delivered", "failed", "given_up", "refused", "too_old", "repeated")
        _begin(self.relays, (*ends, "came_from_there", "left_out"), target)

    def begin_source(self, source: str) -> None:
        """Begin the series of a followed list or feed."""
        outcomes = ("taken", "known", "refused", "invalid", "too_old", "too_many")
        _begin(self.follows, outcomes, source)
        _begin(self.follow_reads, ("read", "unchanged", "failed"), source)


def _begin(counter: Counter, values: Iterable[str], *first: str) -> None:
    """Begin series of a counter at 0.

    :param values: the values of the last label.
    :param first: the values of the labels before it.
    """
    for value in values:
        counter.labels(*first, value)
