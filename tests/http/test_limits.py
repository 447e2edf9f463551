"""The limits on HTTP requests, in virtual time and without sockets."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping

from attrs import evolve
from twisted.internet.address import UNIXAddress
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import Http
from rsscloud_broker.http.bodies import LIMIT
from rsscloud_broker.http.limits import MAX_FIELDS
from rsscloud_broker.model import Content
from rsscloud_broker.wire.xmlrpc import encode_call
from tests.front_doors.exchange import FORM, Answer, Exchange, request_bytes
from tests.front_doors.fixture import FEED, House

LIMITS = Http(
    body_limit=1000,
    idle_timeout=60.0,
    max_connections=5,
    max_connections_per_address=3,
    trusted_proxies=("10.0.0.0/8", "2001:db8:1::/48"),
)
FEWER = Http(max_connections=4, max_connections_per_address=1)
PING = request_bytes("POST", "/rsscloud/ping", b"url=" + FEED.encode(), {"Content-Type": FORM})
PAGE = request_bytes("GET", "/docs")
TOO_LARGE = "The body must not be larger than 1000 bytes.\n"
TOO_SLOW = "The whole request must arrive within 30 seconds.\n"


class _LimitsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = House(self, http=LIMITS)
        self.clock = self.house.clock

    def sent(self, data: bytes) -> Exchange:
        """A connection on which some bytes have come."""
        exchange = self.house.connect()
        exchange.send(data)
        return exchange

    def begin(self, rest: bytes) -> Exchange:
        """A connection on which the head of a call has begun, with the rest that is given."""
        return self.sent(b"POST /RPC2 HTTP/1.1\r\nHost: b\r\n" + rest)

    def assert_refused(self, exchange: Exchange, status: int, text: str) -> None:
        answer = exchange.answer()
        self.assertEqual((answer.status, answer.text), (status, text))
        self.assertEqual(answer.headers["connection"], "close")

    def advance(self, seconds: float) -> None:
        """Let time pass in steps, so that timers fire in their order."""
        for _ in range(int(seconds)):
            self.clock.advance(1)
        self.clock.advance(seconds - int(seconds))


class BodyTests(_LimitsTests):
    def test_the_limit_can_change(self) -> None:
        exchange = self.house.connect()
        self.house.limits.change(Http(body_limit=LIMIT))
        exchange.send(b"POST /RPC2 HTTP/1.1\r\nHost: b\r\nContent-Length: 5000\r\n\r\n")
        self.assertEqual(exchange.answers(), [])
        exchange.send(b"x" * 5000)
        self.assertNotEqual(exchange.answer().status, 413)
        self.assertTrue(self.house.limits.bodies.take(LIMIT, "192.0.2.1"))  # of two such bodies

    def test_chunks_over_the_limit_are_refused_as_they_come(self) -> None:
        exchange = self.begin(b"Transfer-Encoding: chunked\r\n\r\n")
        exchange.send(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        self.assertEqual(exchange.answers(), [])
        exchange.send(b"1\r\nx")
        self.assert_refused(exchange, 413, TOO_LARGE)

    def test_the_answer_can_be_read_by_a_client_that_still_sends(self) -> None:
        exchange = self.begin(b"Content-Length: 5000\r\n\r\n")
        for _ in range(5):
            exchange.send(b"x" * 1000)
        exchange.send(PAGE)
        self.assertTrue(exchange.open)
        self.assert_refused(exchange, 413, TOO_LARGE)
        self.advance(2.0)
        self.assertFalse(exchange.open)
        self.assert_refused(exchange, 413, TOO_LARGE)

    def test_a_client_that_hangs_up_after_the_answer(self) -> None:
        exchange = self.begin(b"Content-Length: 5000\r\n\r\n")
        exchange.transport.loseConnection()
        self.advance(2.0 + 1)
        self.assertFalse(exchange.open)

    def test_length_over_the_limit_is_refused_before_the_body_comes(self) -> None:
        """And nothing is asked for after the refusal."""
        exchange = self.begin(b"Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n")
        self.assert_refused(exchange, 413, TOO_LARGE)

    def test_what_may_be_sent_is_asked_for(self) -> None:
        exchange = self.house.connect()
        head, _, body = PING.partition(b"\r\n\r\n")
        exchange.send(head + b"\r\nExpect: 100-continue\r\n\r\n")
        self.assertEqual(exchange.transport.value(), b"HTTP/1.1 100 Continue\r\n\r\n")
        exchange.transport.clear()
        exchange.send(body)
        self.assertEqual(exchange.answer().status, 200)


class CompressedTests(_LimitsTests):
    def ping(self, coding: str, body: bytes) -> Answer:
        headers = {"Content-Type": FORM, "Content-Encoding": coding}
        return self.house.ask("POST", "/pingSiteForm", body, headers)

    def test_codings(self) -> None:
        form = b"name=A&url=http://a.example/"
        for coding, body in (
            ("gzip", gzip.compress(form)),
            ("X-GZIP", gzip.compress(form)),
            (" deflate ", zlib.compress(form)),
            ("identity", form),
            ("", form),
        ):
            self.house.clock.advance(100)
            self.assertEqual(self.ping(coding, body).status, 200, coding)
        self.assertEqual([ping.name for ping in self.house.pings()], ["A"] * 5)

    def test_xml(self) -> None:
        body = gzip.compress(encode_call("weblogUpdates.ping", ["A", "http://a.example/"]))
        answer = self.house.ask("POST", "/RPC2", body, {"Content-Encoding": "gzip"})
        self.assertIn(b"Thanks for the ping", answer.body)

    def test_limit(self) -> None:
        """The limit is for the body as sent and for the decompressed body."""
        fits, large = (gzip.compress(b"x=" + b"x" * size) for size in (998, 999))
        self.assertNotEqual(self.ping("gzip", fits).status, 413)
        answer = self.ping("gzip", large)
        self.assertEqual(answer.status, 413)
        self.assertIn("decompressed as well", answer.text)

    def test_others(self) -> None:
        for coding in ("br", "gzip, gzip", "compress"):
            answer = self.ping(coding, b"x")
            self.assertEqual(answer.status, 415)
            self.assertEqual(answer.headers["accept-encoding"], "gzip, deflate")
        self.assertEqual(self.house.pings(), [])

    def test_what_is_not_what_it_says(self) -> None:
        for body, why in (
            (b"name=A", "cannot be decompressed"),
            (gzip.compress(b"x")[:-9], "breaks off"),
        ):
            answer = self.ping("gzip", body)
            self.assertEqual(answer.status, 400)
            self.assertIn(f"The body {why}", answer.text)


class MemoryTests(SynchronousTestCase):
    """The budget for the bodies of all requests together."""

    def setUp(self) -> None:
        self.house = House(self, http=Http(body_limit=LIMIT // 2))
        self.bodies = self.house.factory.limits.bodies

    def begin(self, size: int) -> Exchange:
        """Send a form of some length without its last byte."""
        exchange = self.house.connect()
        body = b"name=a&url=http://a.example/&x="
        head = b"POST /pingSiteForm HTTP/1.1\r\nHost: b\r\nContent-Type: %s\r\n" % FORM.encode()
        exchange.send(head + b"Content-Length: %d\r\n\r\n" % size + body)
        for _ in range(2):  # it comes in parts
            exchange.send(b"x" * ((size - len(body) - 1) // 2))
        return exchange

    def test_what_has_been_under_way_for_longest_is_given_up(self) -> None:
        slow, slower = self.begin(LIMIT // 2 - 9), self.begin(LIMIT // 2 - 9)
        before = self.house.stored()
        fast = self.begin(LIMIT // 4)
        answer = slow.answer()
        self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "3"))
        self.assertIn("no memory left", answer.text)
        self.assertEqual((slower.answers(), fast.answers()), ([], []))
        slow.send(b"x" * 10)
        self.assertEqual(self.house.stored(), before)
        self.assertLess(self.bodies.held, LIMIT * 3 / 4)

    def test_a_body_counts_until_it_is_answered_or_the_client_has_gone(self) -> None:
        size = 100_001
        answered, gone, *late = (self.begin(size) for _ in range(4))
        self.assertGreater(self.bodies.held, 4 * size - 9)
        answered.send(b"xx")
        self.assertEqual(answered.answer().status, 200)
        self.assertLess(self.bodies.held, 3 * size)
        gone.transport.loseConnection()
        self.assertLess(self.bodies.held, 2 * size)
        self.house.clock.advance(31)
        for exchange in late:
            self.assertEqual(exchange.answer().status, 408)
        self.assertEqual(self.bodies.held, 0)

    def assert_count(self, *, arriving: int, in_use: int) -> None:
        self.assertEqual((self.bodies.held, self.bodies.in_use), (arriving, in_use))

    def post(self, size: int, peer: str = "192.0.2.1") -> Exchange:
        """Send a whole request whose answer takes a while."""
        exchange = self.house.connect(peer)
        body = b"url=" + FEED.encode() + b"&x="
        body += b"x" * (size - len(body))
        exchange.send(request_bytes("POST", "/rsscloud/ping", body, {"Content-Type": FORM}))
        return exchange

    def test_a_body_counts_until_nobody_works_on_it(self) -> None:
        """That holds even after the client has hung up."""
        self.house.topics.silent = True
        waiting, gone = self.post(100_000), self.post(200_000)
        self.assert_count(arriving=0, in_use=300_000)
        gone.transport.loseConnection()
        self.assert_count(arriving=0, in_use=300_000)
        self.house.topics.silent = False  # for the second fetch
        (reading,) = self.house.topics.waiting
        reading.callback(Content(b"<rss/>"))
        self.assertEqual(waiting.answer().status, 200)
        self.assert_count(arriving=0, in_use=0)

    def test_a_source_has_no_more_than_is_free_for_all_others(self) -> None:
        self.house.topics.silent = True
        mine = [self.post(LIMIT // 8) for _ in range(5)]
        refused = [exchange.answers() for exchange in mine]
        self.assertEqual([bool(answers) for answers in refused], [False] * 4 + [True])
        self.assertEqual(refused[-1][0].status, 503)
        self.assertEqual(self.post(LIMIT // 8, "192.0.2.2").answers(), [])
        self.assertEqual(self.begin(LIMIT // 2).answers(), [])

    def test_what_is_decompressed_counts(self) -> None:
        self.house.topics.silent = True
        form = b"url=" + FEED.encode() + b"&x=" + b"x" * 500_000
        exchange = self.house.connect()
        headers = {"Content-Type": FORM, "Content-Encoding": "gzip"}
        exchange.send(request_bytes("POST", "/rsscloud/ping", gzip.compress(form), headers))
        self.assert_count(arriving=0, in_use=len(form))


class DeadlineTests(_LimitsTests):
    def test_what_drips(self) -> None:
        for first, rest, piece in (
            ("a body", b"Content-Length: 100\r\n\r\n", b"x"),
            ("headers", b"", b"X: y\r\n"),
        ):
            exchange = self.begin(rest)
            for _ in range(29):
                self.clock.advance(1)
                exchange.send(piece)
            self.assertEqual(exchange.answers(), [], first)
            self.clock.advance(1)
            self.assert_refused(exchange, 408, TOO_SLOW)
            self.advance(2.0)
            self.assertFalse(exchange.open)

    def test_one_answer_is_enough(self) -> None:
        exchange = self.begin(b"")
        self.advance(30)
        exchange.send(b"Content-Length: 5000\r\n\r\n" + b"x" * 5000)
        self.assert_refused(exchange, 408, TOO_SLOW)

    def test_a_first_line_that_drips_or_never_comes(self) -> None:
        for piece in (b"G", b""):
            exchange = self.house.connect()
            for _ in range(29):
                self.clock.advance(1)
                exchange.send(piece)
            self.assertTrue(exchange.open)
            self.clock.advance(1)
            self.assertFalse(exchange.open)

    def test_a_first_line_that_drips_after_an_earlier_request(self) -> None:
        exchange = self.sent(PAGE)
        self.assertEqual(exchange.answer().status, 200)
        self.advance(50)
        for _ in range(30):
            self.assertTrue(exchange.open)
            exchange.send(b"G")
            self.clock.advance(1)
        self.assertFalse(exchange.open)

    def test_the_answer_may_take_longer(self) -> None:
        self.house.topics.silent = True
        exchange = self.sent(PING)
        self.advance(300)
        self.assertTrue(exchange.open)
        self.house.topics.waiting[0].callback(Content(b"<rss/>"))
        self.assertEqual(exchange.answer().status, 200)

    def test_the_times_can_change(self) -> None:
        early = self.sent(PAGE)
        self.house.limits.change(Http(idle_timeout=20.0))
        late = self.sent(PAGE)
        self.advance(19)
        self.assertEqual((early.open, late.open), (True, True))
        self.advance(1)
        self.assertEqual((early.open, late.open), (True, False))
        self.advance(39)
        self.assertTrue(early.open)  # an open connection keeps its old timeout
        self.advance(1)
        self.assertFalse(early.open)

    def test_nothing_is_left_behind(self) -> None:
        """No timer outlives a connection by more than the time to read a refusal."""
        for data in (PAGE, b"GET / HT", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b"?\r\n"):
            exchange = self.sent(data)
            if exchange.open:
                exchange.transport.loseConnection()
        self.assertEqual(self.house.timers(), [])


class KeepAliveTests(_LimitsTests):
    def test_the_limit_is_for_each_body(self) -> None:
        exchange = self.house.connect()
        body = b"url=" + b"x" * 800
        for _ in range(3):
            exchange.send(request_bytes("POST", "/ping", body, {"Content-Type": FORM}))
        self.assertEqual([a.status for a in exchange.answers()], [200] * 3)

    def test_pipelining(self) -> None:
        """The second answer waits for the first, whatever the second request is."""
        self.house.topics.silent = True
        exchange = self.sent(PING + request_bytes("GET", "/style.css") + PAGE[:20])
        self.assertEqual(exchange.answers(), [])
        exchange.send(PAGE[20:])
        exchange.send(b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n")
        self.house.topics.waiting[0].callback(Content(b"<rss/>"))
        answers = exchange.answers()
        self.assertEqual([answer.status for answer in answers], [200, 200, 200, 413])
        types = ["text/xml", "text/css", "text/html", "text/plain"]
        self.assertEqual([answer.headers.get_content_type() for answer in answers], types)

    def test_targets_in_absolute_form(self) -> None:
        """The host in the target replaces the Host header (RFC 9112, section 3.2.2)."""
        for target, status in (
            (b"http://b.example:80/docs", 200),
            (b"HTTPS://b.example/docs?x=/y", 200),
            (b"http://b.example", 200),
            (b"http://b.example?x=y", 200),
            (b"http://b.example?" + b"&" * MAX_FIELDS, 400),
            (b"http://b.example/nothing", 404),
            (b"ftp://b.example/docs", 404),
        ):
            exchange = self.sent(b"GET %b HTTP/1.1\r\nHost: other.example\r\n\r\n" % target)
            self.assertEqual(exchange.answer().status, status, target)
            exchange.transport.loseConnection()

    def test_http_1_0(self) -> None:
        exchange = self.sent(b"GET /docs HTTP/1.0\r\n\r\n")
        self.assertEqual(exchange.answer().status, 200)
        self.assertFalse(exchange.open)

    def test_a_client_that_goes_while_the_answer_is_made(self) -> None:
        self.house.topics.silent = True
        exchange = self.sent(PING)
        exchange.transport.loseConnection()
        self.house.topics.waiting[0].callback(Content(b"<rss/>"))
        self.assertEqual(exchange.transport.value(), b"")
        self.assertEqual([ping.url for ping in self.house.pings()], [FEED])
        self.assertEqual(self.flushLoggedErrors(), [])


class ConnectionsTests(_LimitsTests):
    def test_for_each_address(self) -> None:
        open_ = [self.house.connect("192.0.2.1") for _ in range(3)]
        self.assertFalse(self.house.connect("192.0.2.1").open)
        self.assertTrue(self.house.connect("192.0.2.2").open)
        open_[0].transport.loseConnection()
        self.assertTrue(self.house.connect("192.0.2.1").open)
        self.assertFalse(self.house.connect("192.0.2.1").open)

    def test_in_all(self) -> None:
        open_ = [self.house.connect(f"192.0.2.{n}") for n in range(5)]
        self.assertTrue(all(exchange.open for exchange in open_))
        self.assertFalse(self.house.connect("192.0.2.9").open)
        open_[0].transport.loseConnection()
        self.assertTrue(self.house.connect("192.0.2.9").open)

    def test_the_numbers_can_change(self) -> None:
        early = [self.house.connect("192.0.2.1") for _ in range(3)]
        self.house.limits.change(evolve(FEWER, trusted_proxies=("192.0.2.1",)))
        self.assertTrue(self.house.connect("192.0.2.1").open)  # it is a proxy now
        self.assertFalse(self.house.connect("192.0.2.2").open)
        for exchange in early:
            self.assertTrue(exchange.open)
            exchange.transport.loseConnection()
        self.assertTrue(self.house.connect("10.1.2.3").open)
        self.assertFalse(self.house.connect("10.1.2.3").open)

    def test_a_trusted_proxy_and_a_unix_socket_stand_for_many(self) -> None:
        for peer in ("10.1.2.3", UNIXAddress(None)):
            open_ = [self.house.connect(peer) for _ in range(6)]
            self.assertEqual([each.open for each in open_], [True] * 5 + [False])
            for each in open_[:5]:
                each.transport.loseConnection()


class CallerTests(_LimitsTests):
    """The address of the caller, for which registrations without a domain are."""

    FIELDS = b"port=80&path=/&protocol=http-post&url1=" + FEED.encode()

    def caller(self, peer: str | UNIXAddress, headers: Mapping[str, str]) -> str:
        """The host of the callback of a registration from an address."""
        named = {"Content-Type": FORM, **headers}
        answer = self.house.ask("POST", "/pleaseNotify", self.FIELDS, named, peer)
        self.assertEqual(answer.xml.get("success"), "true", answer.text)
        url = self.house.subscribers.calls[-1].url
        return url.removeprefix("http://").removesuffix(":80/")

    def test_callers(self) -> None:
        unix = UNIXAddress(None)
        table: list[tuple[str | UNIXAddress, str | None, str]] = [
            # the header counts only from a proxy
            ("192.0.2.1", None, "192.0.2.1"),
            ("192.0.2.1", "198.51.100.5", "192.0.2.1"),
            # the proxy wrote the last address; those to its left came from the client
            ("10.1.2.3", None, "10.1.2.3"),
            ("10.1.2.3", "198.51.100.5", "198.51.100.5"),
            ("10.1.2.3", "127.0.0.1, 198.51.100.5", "198.51.100.5"),
            ("10.1.2.3", "198.51.100.5, 10.9.9.9", "198.51.100.5"),
            ("10.1.2.3", "127.0.0.1, 198.51.100.5, 10.9.9.9", "198.51.100.5"),
            ("10.1.2.3", "10.8.8.8, 10.9.9.9", "10.8.8.8"),
            # some proxies write the client's port, too
            ("10.1.2.3", "198.51.100.5:4711", "198.51.100.5"),
            ("10.1.2.3", "[2001:db8:9::9]:4711, 10.9.9.9:80", "[2001:db8:9::9]"),
            ("10.1.2.3", "[2001:db8:9::9]", "[2001:db8:9::9]"),
            ("10.1.2.3", "[198.51.100.5:4711", "10.1.2.3"),
            # a text that is not an address ends the chain
            ("10.1.2.3", "unknown", "10.1.2.3"),
            ("10.1.2.3", "198.51.100.5, unknown", "10.1.2.3"),
            ("10.1.2.3", "198.51.100.5, , 10.9.9.9", "10.9.9.9"),
            ("10.1.2.3", "", "10.1.2.3"),
            ("10.1.2.3", "\xff\xfe", "10.1.2.3"),
            # IPv6
            ("2001:db8:1::1", "2001:db8:9::9", "[2001:db8:9::9]"),
            ("::ffff:10.1.2.3", "198.51.100.5", "198.51.100.5"),
            ("::ffff:192.0.2.1", "198.51.100.5", "192.0.2.1"),
            # a UNIX socket: only a proxy on this machine can be there
            (unix, None, "127.0.0.1"),
            (unix, "198.51.100.5", "198.51.100.5"),
            (unix, "127.0.0.1, 198.51.100.5", "198.51.100.5"),
        ]
        for peer, forwarded, caller in table:
            headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}
            found = self.caller(peer, {**headers, "Connection": "close"})
            self.assertEqual(found, caller, (peer, forwarded))

    def test_proxies_can_change_while_a_connection_is_open(self) -> None:
        exchange = self.house.connect("10.1.2.3")
        for trusted, caller in (("10.0.0.0/8", "5"), ("10.2.0.0/16", "3"), ("10.1.0.0/16", "5")):
            self.house.limits.change(Http(trusted_proxies=(trusted,)))
            headers = {"Content-Type": FORM, "X-Forwarded-For": "198.51.100.5"}
            exchange.send(request_bytes("POST", "/pleaseNotify", self.FIELDS, headers))
            host = self.house.subscribers.calls[-1].url.split("/")[2]
            self.assertTrue(host.endswith(f".{caller}:80"), host)

    def test_several_headers(self) -> None:
        exchange = self.house.connect("10.1.2.3")
        exchange.send(
            b"POST /pleaseNotify HTTP/1.1\r\nX-Forwarded-For: 198.51.100.4\r\n"
            b"X-Forwarded-For: 198.51.100.5\r\nX-Forwarded-For: 10.9.9.9\r\n"
            b"Content-Type: application/x-www-form-urlencoded\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(self.FIELDS), self.FIELDS)
        )
        self.assertEqual(exchange.answer().xml.get("success"), "true")
        self.assertEqual(self.house.subscribers.calls[-1].url, "http://198.51.100.5:80/")


class UnnamedProxyTests(_LimitsTests):
    """X-Forwarded-For from a peer that is near, but is not a trusted proxy."""

    def setUp(self) -> None:
        super().setUp()
        self._events = self.enterContext(capturedLogs())

    def warned_of(self) -> list[str]:
        """The peers that the log warns of."""
        return [event["peer"] for event in self._events if "trusted_proxies" in str(event)]

    def ask(self, *peers: str | UNIXAddress, forwarded: str = "198.51.100.5") -> None:
        for peer in peers:
            headers = {"X-Forwarded-For": forwarded, "Connection": "close"}
            self.house.ask("GET", "/no-such-page", b"", headers, peer)

    def test_peers_that_may_be_a_proxy(self) -> None:
        near = ["127.0.0.1", "::1", "192.168.1.2", "172.16.0.9", "100.64.3.4", "fd00::1"]
        self.ask(*near)
        self.assertEqual(self.warned_of(), near)

    def test_others(self) -> None:
        trusted, elsewhere, unix = "10.1.2.3", "9.9.9.9", UNIXAddress(None)
        self.ask(trusted, elsewhere, unix)
        self.house.ask("GET", "/no-such-page", b"", {"Connection": "close"}, "192.168.1.2")
        self.assertEqual(self.warned_of(), [])

    def test_once_for_a_network(self) -> None:
        self.ask("192.168.1.2", "192.168.1.2", "192.168.1.77", "192.168.2.1", "fd00::1", "fd00::2")
        self.assertEqual(self.warned_of(), ["192.168.1.2", "192.168.2.1", "fd00::1"])

    def test_a_flood_does_not_fill_the_log(self) -> None:
        self.ask(*(f"192.168.{number}.1" for number in range(3 * 10)))
        self.assertEqual(len(self.warned_of()), 10)

    def test_what_is_said(self) -> None:
        self.ask("192.168.1.2")
        (said,) = [formatEvent(event) for event in self._events if "peer" in event]
        self.assertEqual(
            said,
            "X-Forwarded-For comes from 192.168.1.2, which is not named in trusted_proxies, so "
            "the broker takes all callers behind it for one; if it is your reverse proxy, set "
            'trusted_proxies = ["192.168.1.2"] in [http].',
        )
