"""The relay passes each ping on to its targets, in order, and goes on where it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from attrs import evolve
from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import ConfigError
from rsscloud_broker.config.building import build
from rsscloud_broker.delivery.breakers import THRESHOLD
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.events import HostFreed, PingReceived, PingRelayed, RelayFailed, RelaySkipped
from rsscloud_broker.interfaces import OutboundReply, OutboundRequest
from rsscloud_broker.model import FetchResult, Ping
from rsscloud_broker.sinks import relay_worker
from rsscloud_broker.sinks.relay import RelayOptions, RelaySink, RelayTarget
from rsscloud_broker.sinks.relay_foreign import OF_HOST
from rsscloud_broker.sinks.relay_worker import MAX_AGE, RETRIES
from rsscloud_broker.testing import FakeOutbound, RecordingBus, memory_store, reply, sink_parts
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.wire import soap, xmlrpc

NOON = 1_790_683_200.0
HERE, THERE = "http://here.example", "http://there.example"
SINK = "http://sink.example/RPC2"
THANKS = reply(200, xmlrpc.encode_response({"flerror": False, "message": "Thanks."}))
REFUSAL = reply(200, xmlrpc.encode_response({"flerror": True, "message": "No."}))


class OptionsTests(SynchronousTestCase):
    def test_faults_are_named(self) -> None:
        for targets, reason in (
            ([{"url": "pingomatic"}], "must begin with http:// or https://"),
            ([{"url": SINK, "protocol": "smtp"}], "must be one of 'xml-rpc'"),
            ([{"url": SINK, "rate": 0.0}], "rate"),
            ([{"url": SINK, "at_once": 0}], "at_once"),
            ([{"uri": SINK}], "unknown key"),
            ([{"url": SINK}] * 2, "name each target once"),
        ):
            error = self.assertRaises(ConfigError, build, RelayOptions, {"targets": targets}, "")
            self.assertIn(reason, str(error))


class RelayTestCase(SynchronousTestCase):
    """A relay with a store in memory, a clock, and targets that answer as a test says."""

    def setUp(self) -> None:
        self.clock = Clock(NOON)
        self.store = memory_store()
        self.addCleanup(self.store.stopService)
        self.bus = RecordingBus()
        self.outbound = FakeOutbound(otherwise=THANKS)
        self.told: list[tuple[float, str]] = []
        self.sinks: list[RelaySink] = []

    def start(
        self,
        *targets: RelayTarget,
        retries: Sequence[float] = RETRIES,
        max_age: float = MAX_AGE,
        **options: Any,
    ) -> RelaySink:
        self.patch(relay_worker, "RETRIES", retries)
        self.patch(relay_worker, "MAX_AGE", max_age)
        return self.run_with(RelayOptions(targets or (RelayTarget(SINK),), **options))

    def run_with(self, options: RelayOptions) -> RelaySink:
        self.parts = sink_parts(
            store=self.store,
            bus=self.bus,
            clock=self.clock,
            outbound=self.outbound,
            public_url=HERE,
        )
        sink = RelaySink(options, self.parts)
        sink.startService()
        self.sinks.append(sink)
        return sink

    def tearDown(self) -> None:
        for sink in self.sinks:
            if sink.running:
                self.successResultOf(sink.stopService())

    def ping(self, number: int, **more: Any) -> Ping:
        url = f"http://blog{number}.example/"
        ping = Ping(f"Blog {number}", url, self.clock.wall_seconds())
        record = self.successResultOf(self.store.add_ping(evolve(ping, **more), 0))
        for sink in self.sinks:
            if sink.running and sink.handles:
                self.successResultOf(sink.handle(PingReceived(record.ping)))
        return record.ping

    def pings(self, count: int, first: int = 0) -> None:
        for number in range(first, first + count):
            self.ping(number)

    def dead(self, **options: Any) -> RelaySink:
        """A relay whose target does not answer a ping."""
        self.outbound.otherwise = OutboundError("nobody is there")
        sink = self.start(**options)
        self.ping(1)
        return sink

    def pass_time(self, seconds: float, step: float = 0.0) -> None:
        """Let time pass from timer to timer, so that none is late, unless a test wants that."""
        until = self.clock.seconds() + seconds
        while (left := until - self.clock.seconds()) > 0:
            self.clock.advance_to_timer(step, left)

    def named(self, host: str = "sink.example") -> list[str]:
        """The names of the pings that a host was notified of, in order."""
        return [
            xmlrpc.decode_call(request.body)[1][0]
            for request in self.outbound.requests
            if host in request.url
        ]

    def events(self, kind: type) -> list[Any]:
        return [event for event in self.bus.events if isinstance(event, kind)]

    def counted(self, outcome: str, label: str = "sink.example") -> float:
        names = {"target": label, "outcome": outcome}
        found = self.parts.counters.registry.get_sample_value("rsscloud_relayed_pings_total", names)
        return found or 0.0


class RelayTests(RelayTestCase):
    def test_without_targets_nothing_is_handled(self) -> None:
        sink = RelaySink(RelayOptions(), sink_parts())
        self.assertEqual(sink.handles, ())
        sink.startService()
        self.successResultOf(sink.stopService())

    def test_passes_pings_on_in_order(self) -> None:
        self.ping(0)  # before the target was known
        self.start(RelayTarget(SINK, hosts=()))  # no patterns are for all hosts
        self.pings(7, first=1)
        self.pass_time(3)
        self.assertEqual(self.named(), [f"Blog {number}" for number in range(1, 8)])
        relayed = self.events(PingRelayed)
        self.assertEqual(relayed[0].url, "http://blog1.example/")
        self.assertEqual((relayed[0].target.url, relayed[0].answer), (SINK, "Thanks."))
        self.assertEqual(self.counted("delivered"), 7)

    def test_call_under_way_at_the_end_is_made_again(self) -> None:
        sink = self.start()
        self.outbound.otherwise = Deferred()
        self.ping(1)
        self.pass_time(1)
        self.successResultOf(sink.stopService())
        self.outbound.otherwise = THANKS
        self.start()
        self.pass_time(1)
        self.assertEqual(self.named(), ["Blog 1", "Blog 1"])

    def test_slow_target_does_not_hold_up_another(self) -> None:
        self.outbound.answers["http://slow.example/"] = Deferred[OutboundReply]()
        self.start(RelayTarget("http://slow.example/"), RelayTarget(SINK))
        self.pings(3)
        self.pass_time(2)
        self.assertEqual(len(self.named()), 3)
        self.assertEqual(len(self.named("slow.example")), 1)

    def test_patterns_of_hosts(self) -> None:
        self.start(RelayTarget(SINK, hosts=("blog1.*", "FEEDS.example")))
        self.ping(1)
        self.ping(2)
        self.ping(3, rss_url="http://feeds.example/3")
        self.pass_time(2)
        self.assertEqual(self.named(), ["Blog 1", "Blog 3"])

    def test_never_back_to_where_it_came_from(self) -> None:
        self.start(RelayTarget(f"{THERE}/RPC2"), RelayTarget(SINK))
        self.ping(1, origin=f"http://first.example {THERE}")
        self.pass_time(1)
        self.assertEqual(self.named("there.example"), [])
        self.assertEqual(self.named(), ["Blog 1"])
        self.assertEqual(self.counted("came_from_there", "there.example"), 1)

    def test_repeats_within_the_window(self) -> None:
        self.start(window=60.0)
        for _ in range(3):
            self.ping(1)
            self.pass_time(25)
        self.assertEqual(self.named(), ["Blog 1"])
        self.assertEqual(self.counted("repeated"), 2)
        self.ping(1)
        self.pass_time(1)
        self.assertEqual(len(self.named()), 2)

    def test_refusal_is_not_tried_again(self) -> None:
        self.outbound.otherwise = REFUSAL
        self.start()
        self.ping(1)
        self.pass_time(20)
        self.assertEqual(len(self.named()), 1)
        (failed,) = self.events(RelayFailed)
        self.assertEqual((failed.reason, failed.retry_at), ("the target refused it: No.", None))
        self.assertEqual(self.counted("refused"), 1)

    def refuse_for_now(self, *names: str) -> None:
        """Have the target answer 503 to the pings of some names."""

        def answer(request: OutboundRequest) -> OutboundReply:
            name = xmlrpc.decode_call(request.body)[1][0]
            return reply(503) if name in names else THANKS

        self.outbound.otherwise = answer

    def test_others_go_on_while_one_is_tried_again(self) -> None:
        self.refuse_for_now("Blog 1")
        self.start(retries=(10.0, 10.0))
        self.pings(5, first=1)
        self.pass_time(5)
        self.assertEqual(self.named(), [f"Blog {number}" for number in range(1, 6)])
        (failed,) = self.events(RelayFailed)
        self.assertIn(round(failed.retry_at - failed.at), range(10, 13))
        self.pass_time(10)
        self.assertEqual(self.named()[5:], ["Blog 1"])
        self.refuse_for_now()
        self.pass_time(15)
        self.assertEqual(self.named()[5:], ["Blog 1", "Blog 1"])
        self.assertEqual((self.counted("delivered"), self.counted("failed")), (5, 2))

    def test_one_that_waits_survives_a_restart(self) -> None:
        self.refuse_for_now("Blog 1", "Blog 3")
        sink = self.start(retries=(60.0, 60.0))
        self.pings(4, first=1)
        self.pass_time(3)
        self.successResultOf(sink.stopService())
        (progress,) = self.successResultOf(self.store.begin_relay([f"xml-rpc {SINK}"], 0, 0))
        self.assertEqual(progress.ping_id, 4)
        expected = [(1, 1), (3, 1)]
        self.assertEqual([(each.ping_id, each.attempts) for each in progress.waiting], expected)
        self.refuse_for_now()
        self.start(retries=(60.0, 60.0))
        self.pass_time(50)
        self.assertEqual(len(self.named()), 4, "the wait goes on after the restart")
        self.pass_time(30)
        self.assertEqual(sorted(self.named()[4:]), ["Blog 1", "Blog 3"])

    def test_ping_that_waits_may_become_too_old(self) -> None:
        self.refuse_for_now("Blog 1")
        self.start(retries=(100.0,) * 3, max_age=150.0)
        self.ping(1)
        self.pass_time(300)
        self.assertEqual(self.named(), ["Blog 1", "Blog 1"])
        self.assertEqual(self.counted("too_old"), 1)

    def test_only_so_many_wait(self) -> None:
        failing = [f"Blog {number}" for number in range(0, 1200, 2)]
        self.refuse_for_now(*failing)
        self.start(RelayTarget(SINK, rate=1000.0, at_once=10), retries=(200.0,))
        self.pings(1200)
        with capturedLogs() as logs:
            self.pass_time(60)
        self.assertIn(len(self.named()), range(2 * 500 - 50, 2 * 500 + 20))
        (line,) = [str(formatEvent(event)) for event in logs]
        self.assertIn(f"As many pings wait for {SINK} as may; newer ones are passed on when", line)
        self.refuse_for_now()
        self.pass_time(300)
        self.assertEqual(self.counted("delivered"), 1200, "nothing was lost")

    def test_slow_call_does_not_hold_up_the_others(self) -> None:
        slow = Deferred[OutboundReply]()

        def answer(request: OutboundRequest) -> OutboundReply | Deferred[OutboundReply]:
            return slow if b"Blog 1<" in request.body else THANKS

        self.outbound.otherwise = answer
        self.start(RelayTarget(SINK, at_once=2))
        self.pings(7, first=1)
        self.pass_time(5)
        self.assertEqual(len(self.named()), 7)
        slow.callback(THANKS)
        self.assertEqual(self.counted("delivered"), 7)

    def test_notifications_go_first_while_the_process_is_busy(self) -> None:
        self.start(RelayTarget(SINK, rate=100.0, at_once=10))
        self.pings(100)
        self.pass_time(4, step=0.2)
        self.assertIn(len(self.named()), range(10, 70), "fewer, but not none")
        self.pass_time(4)
        self.assertEqual(len(self.named()), 100)

    def test_each_target_has_a_rate_of_its_own(self) -> None:
        self.start(RelayTarget(SINK, rate=1.0), RelayTarget("http://fast.example/RPC2", rate=10.0))
        self.pings(100)
        self.pass_time(6)
        self.assertIn(len(self.named()), range(5, 9))
        self.assertIn(len(self.named("fast.example")), range(55, 65))

    def test_ping_is_given_up_after_the_last_attempt(self) -> None:
        self.dead(retries=(1.0, 1.0))
        self.pass_time(10)
        self.assertEqual(len(self.named()), 3)
        self.assertEqual(self.counted("given_up"), 1)
        self.assertIsNone(self.events(RelayFailed)[-1].retry_at)

    def test_retry_after_is_obeyed(self) -> None:
        self.outbound.otherwise = reply(503, b"", retry_after="300")
        self.start(retries=(1.0, 1.0))
        self.ping(1)
        self.pass_time(290)
        self.assertEqual(len(self.named()), 1)
        self.pass_time(20)
        self.assertEqual(len(self.named()), 2)

    def test_dead_target_is_left_alone(self) -> None:
        with capturedLogs() as logs:
            self.dead(retries=(1.0,) * 20, max_age=36_000.0)
            self.pass_time(50)
        self.assertEqual(len(self.named()), THRESHOLD)
        (line,) = [formatEvent(event) for event in logs if "Stopped" in event["log_format"]]
        self.assertIn(f"Stopped passing pings on to {SINK} after 5 failures in a row", str(line))
        with capturedLogs() as logs:
            self.pass_time(30)
            self.outbound.otherwise = THANKS
            self.pass_time(130)
        self.assertEqual(len(self.named()), THRESHOLD + 2)
        self.assertIn("answers again", str(formatEvent(logs[-1])))

    def test_restart_does_not_call_a_dead_target_at_once(self) -> None:
        sink = self.dead(retries=(1.0,) * 20)
        self.pass_time(30)
        self.successResultOf(sink.stopService())
        self.start(retries=(1.0,) * 20)
        self.pass_time(20)
        self.assertEqual(len(self.named()), THRESHOLD)
        self.pass_time(30)
        self.assertEqual(len(self.named()), THRESHOLD + 1)

    def test_administrator_has_a_target_called_again(self) -> None:
        sink = self.dead(retries=(1.0,) * 20)
        self.pass_time(30)
        for host, more in (("other.example", 0), ("sink.example", 1)):
            self.successResultOf(sink.handle(HostFreed(host)))
            self.pass_time(2.2)
            self.assertEqual(len(self.named()) > THRESHOLD, bool(more), host)

    def test_old_pings_are_left_out(self) -> None:
        sink = self.start()
        self.successResultOf(sink.stopService())
        for number in range(5):
            self.ping(number, received_at=self.clock.wall_seconds() - 4000)
        self.ping(9)
        with capturedLogs() as logs:
            self.start()
            self.pass_time(1)
        self.assertEqual(self.named(), ["Blog 9"])
        (skipped,) = self.events(RelaySkipped)
        self.assertEqual((skipped.pings, skipped.target.url), (5, SINK))
        lines = [str(formatEvent(event)) for event in logs]
        self.assertIn(
            f"5 pings were not passed on to {SINK}: they were more than 3600 seconds old.", lines
        )

    def test_broker_without_a_name_is_warned(self) -> None:
        url = "http://localhost:5337"
        parts = sink_parts(outbound=self.outbound, public_url=url, clock=self.clock)
        sink = RelaySink(RelayOptions((RelayTarget(SINK),)), parts)
        with capturedLogs() as logs:
            sink.startService()
        self.successResultOf(sink.stopService())
        said = str(formatEvent(logs[0]))
        self.assertIn("since http://localhost:5337 means another machine", said)
        self.assertIn("Set public_url to the address by which other brokers reach this one", said)


HUB, CLOUD = "http://hub.example/", "http://cloud.example:5337/rsscloud/pleaseNotify"


class BeginningTests(RelayTestCase):
    def test_bug_at_the_start_is_not_the_end(self) -> None:
        real = self.store.begin_relay
        answers = [succeed(()), fail(ZeroDivisionError())]
        self.patch(
            self.store, "begin_relay", lambda *args: answers.pop(0) if answers else real(*args)
        )
        self.start()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.pass_time(20)
        self.ping(1)
        self.pass_time(1)
        self.assertEqual(self.named(), ["Blog 1"])


class ForeignCloudsTests(RelayTestCase):
    """Pings go to the clouds and hubs that the feeds name, if a setting says so."""

    FEED = "http://blog1.example/feed"

    def know(self, url: str, feed: dict[str, Any]) -> None:
        """Have the store know what a feed says about itself."""
        fetched = FetchResult(url, b"1" * 32, 1, NOON)
        self.successResultOf(self.store.record_fetch(fetched, None))
        self.successResultOf(self.store.record_feed(url, feed))

    def start_with(self, feed: dict[str, Any]) -> None:
        self.know(self.FEED, feed)
        self.outbound.otherwise = reply(200, b"")
        self.run_with(RelayOptions(foreign_clouds=True))

    def cloud(self, protocol: str, path: str = "/rsscloud/pleaseNotify") -> dict[str, Any]:
        cloud = {"domain": "cloud.example", "port": 5337, "path": path}
        return cloud | {"register_procedure": "", "protocol": protocol}

    def test_hub_and_cloud(self) -> None:
        self.start_with({"hubs": [HUB, f"{HERE}/websub"], "clouds": [self.cloud("http-post")]})
        self.ping(1, rss_url=self.FEED)
        self.pass_time(1)
        urls = [request.url for request in self.outbound.requests]
        self.assertEqual(urls, [HUB, "http://cloud.example:5337/rsscloud/ping"])
        self.assertIn(b"hub.mode=publish", self.outbound.requests[0].body)
        self.assertEqual(self.counted("delivered", "foreign clouds"), 2)

    def test_a_ping_with_another_spelling_of_the_feed(self) -> None:
        """The store knows topics by their normal form; the hub is sent what the site wrote."""
        self.start_with({"hubs": [HUB]})
        written = self.FEED.replace("http://blog1.example", "HTTP://Blog1.Example:80")
        self.ping(1, rss_url=written)
        self.pass_time(1)
        (request,) = self.outbound.requests
        self.assertIn(urlencode({"hub.url": written}).encode(), request.body)

    def test_addresses_that_are_no_urls(self) -> None:
        odd = {**self.cloud("http-post"), "domain": "a:b"}
        self.start_with({"hubs": ["http://["], "clouds": [odd, self.cloud("soap")]})
        self.ping(1, rss_url=self.FEED)
        self.pass_time(1)
        (request,) = self.outbound.requests
        self.assertEqual(request.url, CLOUD)

    def test_cloud_by_xml_rpc_and_soap(self) -> None:
        self.start_with({"clouds": [self.cloud("xml-rpc", "/RPC2"), self.cloud("soap", "/soap")]})
        self.ping(1, rss_url=self.FEED)
        self.pass_time(1)
        (request,) = self.outbound.requests
        self.assertEqual(xmlrpc.decode_call(request.body), ("rssCloud.ping", [self.FEED]))
        self.pass_time(1)
        self.assertEqual(len(self.outbound.requests), 2, "one call a second")
        self.assertEqual(soap.decode_call(self.outbound.requests[1].body).operation, "ping")

    def test_slow_hub_delays_no_other(self) -> None:
        self.start_with({"hubs": [HUB]})
        slow: list[Deferred[OutboundReply]] = []

        def hub(request: OutboundRequest) -> Deferred[OutboundReply]:
            slow.append(Deferred())
            return slow[-1]

        self.outbound.answers[HUB] = hub
        for number in range(20):
            self.know(f"http://slow.example/{number}", {"hubs": [HUB]})
            self.know(f"http://quick.example/{number}", {"hubs": [f"http://hub{number}.example/"]})
            self.ping(number, rss_url=f"http://slow.example/{number}")
            self.ping(number, rss_url=f"http://quick.example/{number}")
        self.pass_time(10)
        quick = [request for request in self.outbound.requests if request.url != HUB]
        self.assertEqual(len(quick), 20)
        self.assertEqual(len(self.outbound.requests) - len(quick), OF_HOST)
        self.assertEqual(self.counted("left_out", "foreign clouds"), 20 - OF_HOST)
        self.assertEqual(self.counted("delivered", "foreign clouds"), 20)
        for waiting in slow:
            waiting.callback(reply(200, b""))
        self.assertEqual(self.counted("delivered", "foreign clouds"), 20 + OF_HOST)

    def test_unknown_feed_and_one_that_came_from_there(self) -> None:
        self.start_with({"hubs": [HUB]})
        self.ping(2)
        self.ping(1, rss_url=self.FEED, origin=HUB)
        self.pass_time(1)
        self.assertEqual(self.outbound.requests, [])

    def test_hub_that_does_not_answer_is_left_alone(self) -> None:
        self.start_with({"hubs": [HUB]})
        self.outbound.otherwise = OutboundError("nobody is there")
        for _ in range(12):
            self.ping(1, rss_url=self.FEED)
            self.pass_time(61)
        self.assertLess(len(self.outbound.requests), 12)
        self.assertGreaterEqual(len(self.outbound.requests), THRESHOLD)
        self.assertEqual(self.events(RelayFailed)[0].target.url, HUB)
