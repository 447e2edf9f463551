"""The event stream of the event log: what watchers get, and what they may cost."""

from __future__ import annotations

import json
from itertools import product
from typing import Any
from unittest import mock

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import Http
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.model.log_entry import LogEntry
from rsscloud_broker.web import broadcast, event_stream
from rsscloud_broker.web.broadcast import HEARTBEAT
from rsscloud_broker.web.event_stream import KEPT, LINES
from tests.front_doors.exchange import Exchange
from tests.front_doors.fixture import CALLER, NOON, House

FEED = "http://feeds.example/rss.xml"


class StreamCase(SynchronousTestCase):
    """A site with an event log in memory, and clients that watch it."""

    http = Http()

    def setUp(self) -> None:
        self.house = House(self, doors=frozenset({"event_log"}), http=self.http)
        self.reads: list[tuple[Any, ...]] = []
        self.failure: Exception | None = None
        store: Any = self.house.store
        self._read = store.log_entries_after
        self.patch(store, "log_entries_after", self._watched)

    def _watched(self, *args: Any) -> Deferred[Any]:
        self.reads.append(args)
        if self.failure is not None:
            raise self.failure
        found: Deferred[Any] = self._read(*args)
        return found

    def add(self, *numbers: int, topic: str = "", outcome: str = "accepted") -> None:
        entries = [
            LogEntry("ping", outcome, NOON, topic=topic or f"http://site{number}.example/")
            for number in numbers
        ]
        self.successResultOf(self.house.store.add_log_entries(entries))

    def watch(self, query: str = "", last: str | None = None, peer: str = CALLER) -> Exchange:
        headers = {} if last is None else {"Last-Event-ID": last}
        watcher = self.house.begin("GET", f"/log/events{query}", headers=headers, peer=peer)
        self.wait(0)
        return watcher

    def wait(self, seconds: float = 0.5) -> None:
        """Let time pass, and then all turns that are due at once."""
        self.house.clock.advance(seconds)
        for _ in range(100):
            self.house.clock.advance(0)

    def events(self, exchange: Exchange) -> list[str]:
        """The topics of the lines that came, and the names of other events."""
        found = []
        for block in self.text(exchange).split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line[1:])
            if "event" in fields:
                found.append(f"{fields['event']} {fields['data']}")
            elif "data" in fields:
                line = json.loads(fields["data"])
                self.assertEqual(str(line["id"]), fields["id"])
                found.append(line["topic"])
        return found

    def text(self, exchange: Exchange) -> str:
        """The body that came so far."""
        self.assertIn(b"200 OK", exchange.transport.value())
        return exchange.streamed.decode()

    def buffers(self, exchange: Exchange) -> Any:
        """What is told that the buffers of a connection are full, or empty again."""
        return exchange.transport.producer


class StreamTests(StreamCase):
    def test_new_entries_come_in_order(self) -> None:
        self.add(1)
        watcher = self.watch()
        self.assertEqual(self.events(watcher), [])
        self.add(2, 3)
        self.wait()
        self.assertEqual(self.events(watcher), ["http://site2.example/", "http://site3.example/"])
        self.add(4)
        self.wait()
        self.assertEqual(self.events(watcher)[2:], ["http://site4.example/"])

    def test_headers(self) -> None:
        head = self.watch().transport.value().partition(b"\r\n\r\n")[0].lower()
        self.assertIn(b"content-type: text/event-stream", head)
        self.assertIn(b"cache-control: no-store", head)
        self.assertIn(b"x-accel-buffering: no", head)
        answer = self.house.ask("HEAD", "/log/events")
        self.assertEqual(answer.headers.get_content_type(), "text/event-stream")

    def test_it_goes_on_where_the_page_ended_or_the_connection_broke(self) -> None:
        """The header of a second connection is newer than its URL."""
        self.add(*range(1, 6))
        for query, last in (("?after=3", None), ("?after=1", "3")):
            watcher = self.watch(query, last)
            self.assertEqual(
                self.events(watcher), ["http://site4.example/", "http://site5.example/"]
            )

    def test_strange_ids_begin_with_the_next_entry(self) -> None:
        self.add(1)
        for last in ("", "x", "-1", "1" * 30, "99", "9" * 5000, "0" * 20 + "9" * 9):
            watcher = self.watch(last=last)
            self.assertEqual(self.events(watcher), [], last)
        self.add(2)
        self.wait()
        self.assertEqual(self.events(watcher), ["http://site2.example/"])

    def test_gap_too_long(self) -> None:
        self.add(*range(KEPT + 10))
        watcher = self.watch(last="3")
        self.assertEqual(self.events(watcher)[0], "gap 0")
        near = self.events(self.watch(last=str(KEPT + 5)))
        self.assertEqual(near[:1], [f"http://site{KEPT + 5}.example/"])

    def test_filters(self) -> None:
        queries = (f"topic={FEED}", "outcome=refused", f"topic={FEED}&kind=ping&outcome=refused")
        by_topic, by_outcome, by_both, none = (
            self.watch(f"?{query}") for query in (*queries, "kind=host")
        )
        self.add(1, topic=FEED)
        self.add(2, outcome="refused")
        self.add(3, topic=FEED, outcome="refused")
        self.wait()
        self.assertEqual(self.events(by_topic), [FEED, FEED])
        self.assertEqual(self.events(by_outcome), ["http://site2.example/", FEED])
        self.assertEqual(self.events(by_both), [FEED])
        self.assertEqual(self.events(none), [])

    def test_wrong_parameters(self) -> None:
        answer = self.house.get("/log/events", kind="x")
        self.assertEqual(answer.status, 400)
        self.assertIn("The kind is one of ping, fetch", answer.text)
        for number in ("9" * 5000, "0" * 20 + "9" * 9):
            self.assertEqual(self.house.get("/log/events", after=number).status, 400)

    def test_too_many_lines_at_once_are_counted(self) -> None:
        watcher = self.watch()
        self.add(*range(LINES + 7))
        self.wait()
        events = self.events(watcher)
        self.assertEqual((events[0], len(events)), ("skipped 7", LINES + 1))
        self.assertEqual(events[-1], f"http://site{LINES + 6}.example/")

    def test_heartbeat(self) -> None:
        watcher = self.watch()
        before = len(self.text(watcher))
        for _ in range(int(2 * HEARTBEAT) + 2):
            self.wait()
        self.assertEqual(self.text(watcher)[before:], ":\n\n")

    def test_who_connects_again_after_a_long_silence_has_missed_nothing(self) -> None:
        """The heartbeat says which entry was read last, although none passed the filter."""
        watcher = self.watch("?kind=host")
        self.add(*range(KEPT + 10))
        for _ in range(int(2 * HEARTBEAT) + 2):
            self.wait()
        last = str(KEPT + 10)
        self.assertIn(f"id: {last}\n\n", self.text(watcher))
        self.assertEqual(self.events(watcher), [])
        self.assertEqual(self.events(self.watch("?kind=host", last=last)), [])

    def test_secrets_are_not_sent(self) -> None:
        watcher = self.watch()
        entry = LogEntry(
            "subscription", "verified", NOON, topic=FEED, host="reader.example",
            callback="http://reader.example/notify?token=s3cret", source="192.0.2.7",
        )  # fmt: skip
        self.successResultOf(self.house.store.add_log_entries([entry]))
        self.wait()
        self.assertIn("reader.example confirmed", self.text(watcher))
        for secret in ("notify", "s3cret", "192.0.2.7"):
            self.assertNotIn(secret, self.text(watcher))


class CostTests(StreamCase):
    http = Http(idle_timeout=30.0)

    def test_one_read_for_all_and_none_when_nobody_watches(self) -> None:
        watchers = [self.watch(f"?topic=http://site{n % 7}.example/") for n in range(20)]
        self.reads.clear()
        self.add(*range(20))
        self.wait()
        self.assertEqual(len(self.reads), 1)
        for watcher in watchers:
            watcher.transport.loseConnection()
        self.reads.clear()
        for _ in range(10):
            self.wait()
        self.assertEqual((self.reads, self.house.timers()), ([], []))

    def first_read(self) -> Deferred[None]:
        """Make the next read wait for a Deferred, which is returned."""
        waiting: Deferred[None] = Deferred()

        async def read(*args: Any) -> Any:
            await waiting
            return await self._read(*args)

        self.patch(self.house.store, "log_entries_after", read)
        return waiting

    def test_who_was_away_for_long_is_cheap(self) -> None:
        """Anybody may ask for any position, again and again: nothing large is made for it."""
        self.add(*range(100))
        first = self.watch()
        with mock.patch.object(event_stream, "product", wraps=product) as made:
            watchers = [self.watch(last=str(position)) for position in range(80, 90)]
            self.assertEqual([len(self.events(each)) for each in watchers], [*range(20, 10, -1)])
            self.assertEqual(made.call_count, 0)
            self.add(100)
            self.wait()
            self.assertEqual(made.call_count, 1)
        self.assertEqual(self.events(first), ["http://site100.example/"])

    def test_many_are_written_to_in_turns(self) -> None:
        self.patch(broadcast, "AT_ONCE", 10)
        self.add(*range(1, 6))
        waiting = self.first_read()
        number = 3 * 10
        watchers = [self.watch(f"?after={n % 5}", peer=f"192.0.2.{n}") for n in range(number)]
        watchers[-1].transport.loseConnection()
        waiting.callback(None)
        came = [bool(self.events(watcher)) for watcher in watchers]
        self.assertEqual(came.count(True), 10)
        # Who comes now waits for its turn.
        late = self.watch("?after=4", peer="198.51.100.1")
        self.assertEqual(self.events(late), ["http://site5.example/"])
        self.add(6)
        self.wait()
        for n, watcher in enumerate(watchers[:-1]):
            wanted = [f"http://site{m}.example/" for m in range(n % 5 + 1, 7)]
            self.assertEqual(self.events(watcher), wanted)
        self.assertEqual(self.events(watchers[-1]), [])
        self.assertEqual(self.events(late)[1:], ["http://site6.example/"])

    def test_who_comes_during_the_first_read_gets_only_what_it_missed(self) -> None:
        self.add(*range(1, 6))
        waiting = self.first_read()
        self.watch()
        late = self.watch("?after=4")
        waiting.callback(None)
        self.wait(0)
        self.assertEqual(self.events(late), ["http://site5.example/"])

    def test_it_begins_again_for_the_next_who_watches(self) -> None:
        self.watch().transport.loseConnection()
        self.wait()
        self.add(1)
        watcher = self.watch()
        self.add(2)
        self.wait()
        self.assertEqual(self.events(watcher), ["http://site2.example/"])

    def test_what_fails_is_logged_and_tried_again(self) -> None:
        """A store that cannot be read is logged once, however often it fails."""
        watcher = self.watch()
        for number, (failure, times) in enumerate(((Unavailable("no disk"), 5), (ValueError(), 1))):
            self.failure = failure
            with capturedLogs() as logged:
                for _ in range(times):
                    self.wait()
            self.assertEqual(len(logged), 1)
            self.failure = None
            self.add(number)
            self.wait()
            self.assertEqual(self.events(watcher)[number:], [f"http://site{number}.example/"])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_watcher_that_does_not_read_gets_what_waits_when_it_reads_again(self) -> None:
        watcher = self.watch()
        self.buffers(watcher).pauseProducing()
        self.add(1)
        self.wait()
        self.add(2)
        self.wait()
        self.assertEqual(self.events(watcher), [])
        self.buffers(watcher).resumeProducing()
        self.wait(0)
        self.assertEqual(self.events(watcher), ["http://site1.example/", "http://site2.example/"])

    def test_nothing_waits_for_a_watcher_that_does_not_read(self) -> None:
        watcher, other = self.watch(), self.watch()
        self.buffers(watcher).pauseProducing()
        for _ in range(3):
            self.add(*range(LINES))
            self.wait()
        self.assertEqual(len(self.events(other)), 3 * LINES)
        before = len(self.text(watcher))
        self.buffers(watcher).resumeProducing()
        self.wait()
        self.assertEqual(self.events(watcher)[LINES], f"skipped {LINES}")
        self.assertLess(len(self.text(watcher)) - before, 20_000)

    def test_watcher_that_does_not_read_is_cut_off_after_the_idle_time(self) -> None:
        watcher = self.watch()
        self.buffers(watcher).pauseProducing()
        self.wait(29.0)
        self.assertTrue(watcher.open)
        self.wait(1.5)
        self.assertFalse(watcher.open)

    def test_silent_stream_is_not_cut_off(self) -> None:
        watcher = self.watch()
        for _ in range(10):
            self.wait(30.0)
        self.assertTrue(watcher.open)


class LimitTests(StreamCase):
    http = Http(max_connections=10, max_connections_per_address=30)

    def statuses(self, *peers: str) -> list[bytes]:
        watchers = [self.watch(peer=peer) for peer in peers]
        return [watcher.transport.value()[9:12] for watcher in watchers]

    def test_of_an_address(self) -> None:
        self.assertEqual(self.statuses(*[CALLER] * 4), [b"200"] * 3 + [b"503"])
        self.assertEqual(self.statuses("192.0.2.8"), [b"200"])

    def test_half_of_the_connections_stay_free(self) -> None:
        peers = [f"192.0.2.{n}" for n in range(7)]
        self.assertEqual(self.statuses(*peers[:6]), [b"200"] * 5 + [b"503"])
        self.house.limits.change(Http(max_connections=12))
        self.assertEqual(self.statuses(*peers[5:]), [b"200", b"503"])

    def test_who_leaves_makes_room(self) -> None:
        watchers = [self.watch() for _ in range(3)]
        watchers[0].transport.loseConnection()
        self.assertEqual(self.statuses(CALLER, CALLER), [b"200", b"503"])

    def test_refusal_says_when_to_come_back(self) -> None:
        self.statuses(*[CALLER] * 3)
        answer = self.house.get("/log/events")
        self.assertEqual(answer.headers["retry-after"], "60")
        self.assertIn("reload", answer.text)
