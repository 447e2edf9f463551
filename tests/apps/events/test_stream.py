"""The stream: what crawlers get, how they go on after a pause, and what they may cost."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.events import stream
from rsscloud_broker.config import Http
from rsscloud_broker.simplefeed import pruning
from rsscloud_broker.web.broadcast import HEARTBEAT
from tests.apps.events.house import EventsHouse
from tests.front_doors.exchange import Exchange

LINES = "/events/stream.jsonl"


class Reader:
    """A client of the stream."""

    def __init__(
        self, house: EventsHouse, path: str, headers: dict[str, str] | None = None
    ) -> None:
        self.exchange: Exchange = house.begin(path, headers)
        house.wait(0)

    @property
    def body(self) -> bytes:
        """What has come so far."""
        return self.exchange.streamed

    @property
    def head(self) -> bytes:
        head: bytes = self.exchange.transport.value().partition(b"\r\n\r\n")[0]
        return head.lower()

    def lines(self) -> list[dict[str, Any]]:
        """The objects of the lines that have come."""
        return [json.loads(line) for line in self.body.splitlines() if line]

    def titles(self) -> list[str]:
        return [line.get("title", line["kind"]) for line in self.lines()]

    def kinds(self) -> list[str]:
        return [line["kind"] for line in self.lines()]

    def leave(self) -> None:
        self.exchange.transport.loseConnection()


class StreamTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = EventsHouse(self, http=Http(max_connections_per_address=30))
        self.house.start()

    def watch(self, path: str = LINES, headers: dict[str, str] | None = None) -> Reader:
        reader = Reader(self.house, path, headers)
        self.addCleanup(reader.leave)
        return reader

    def test_new_entries_of_both_feeds(self) -> None:
        self.house.ping("before")
        self.house.wait()
        reader = self.watch()
        self.house.wait()
        self.house.change("http://a.example/")
        self.house.ping("b")
        self.house.wait(0.5)
        self.house.wait(0.5)
        found = reader.lines()
        self.assertEqual([(one["kind"], one["position"]) for one in found], [
            ("change", "1-1"), ("ping", "1-2")
        ])  # fmt: skip
        (entry,) = self.house.entries("/events/recent")
        self.assertEqual((found[0]["id"], found[0]["title"]), (entry.id, entry.title))

    def test_server_sent_events(self) -> None:
        self.house.ping("a")
        self.house.wait()
        reader = self.watch("/events/stream?after=0-0")
        self.house.wait()
        self.assertIn(b"content-type: text/event-stream", reader.head)
        comment, event, rest = reader.body.split(b"\n\n")
        self.assertEqual((comment, rest), (b": the events", b""))
        first, data = event.split(b"\n")
        self.assertEqual(first, b"id: 0-1")
        self.assertEqual(json.loads(data.removeprefix(b"data: "))["title"], "a")

    def test_lines_by_the_accept_header(self) -> None:
        reader = self.watch("/events/stream?after=0-0", {"Accept": "application/x-ndjson"})
        self.assertIn(b"content-type: application/x-ndjson", reader.head)
        self.assertIn(b"vary: accept", reader.head)
        head = self.house.ask(LINES, method="HEAD")
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertEqual(head.headers.get_content_type(), "application/x-ndjson")

    def test_it_goes_on_after_a_position_however_long_ago(self) -> None:
        self.patch(stream, "PAGE", 3)
        names = [f"n{number}" for number in range(20)]
        self.house.ping(*names)
        for number in range(8):
            self.house.change(f"http://{number}.example/")
        self.house.wait()
        for headers, path in (({"Last-Event-ID": "2-5"}, LINES), ({}, f"{LINES}?after=2-5")):
            reader = self.watch(path, headers)
            self.house.wait()
            titles = reader.titles()
            self.assertEqual([each for each in titles if not each.startswith("h")], names[5:])
            self.assertEqual(len(titles), len(names) - 5 + 6)
            self.house.ping("later")
            names.append("later")
            self.house.wait()
            self.house.wait()
            self.assertEqual(reader.titles()[len(titles) :], ["later"])
            reader.leave()

    def test_one_kind_only(self) -> None:
        self.house.ping("a")
        self.house.change()
        self.house.wait()
        for only, kind in (("pings", "ping"), ("changes", "change")):
            reader = self.watch(f"{LINES}?after=0-0&only={only}")
            self.house.wait()
            self.assertEqual(reader.kinds(), [kind])

    def test_entries_that_were_removed(self) -> None:
        """Those of the other kind are no gap for who wants one kind only."""
        self.house.ping("a", "b", "c", "d")
        self.house.wait()
        self.house.result(self.house.database.write(lambda conn: pruning.prune(conn, "pings", 1)))
        reader = self.watch(f"{LINES}?after=0-1")
        self.house.wait()
        self.assertEqual(reader.titles(), ["gap", "d"])
        self.assertEqual([line["position"] for line in reader.lines()], ["0-3", "0-4"])
        self.house.change()
        self.house.wait()
        for only, kinds in (("changes", ["change"]), ("pings", ["gap", "ping"])):
            reader = self.watch(f"{LINES}?after=0-0&only={only}")
            self.house.wait()
            self.assertEqual(reader.kinds(), kinds)

    def test_position_that_there_never_was(self) -> None:
        self.house.ping("a")
        self.house.wait()
        reader = self.watch("/events/stream?after=99-99")
        self.house.wait()
        self.assertIn(b'event: gap\nid: 0-1\ndata: {"position":"0-1","kind":"gap"}', reader.body)
        self.house.ping("b")
        self.house.wait()
        self.house.wait()
        self.assertIn(b'"title":"b"', reader.body)

    def test_pages_are_read_and_made_once_for_all(self) -> None:
        """Those of the past, which all want at the same time, and those that are new."""
        self.house.ping("a")
        self.house.wait()
        reads: list[object] = []
        read_page, read = stream.read_page, self.house.database.read

        def counted(*args: Any, **kwargs: Any) -> stream.EntryPage:
            reads.append(args)
            return read_page(*args, **kwargs)

        def slow(operation: Any) -> Deferred[Any]:
            done: Deferred[Any] = Deferred()
            self.house.clock.callLater(0.1, lambda: read(operation).chainDeferred(done))
            return done

        self.patch(stream, "read_page", counted)
        self.house.database.read = slow  # type: ignore[method-assign] # as by a thread
        readers = [self.watch(f"{LINES}?after=0-0") for _ in range(3)]
        for titles in (["a"], ["a", "b"]):
            for _ in range(30):
                self.house.wait(0.1)
            self.assertEqual([reader.titles() for reader in readers], [titles] * 3)
            self.assertEqual(len(reads), len(titles))
            self.house.ping("b")

    def test_heartbeats(self) -> None:
        lines, events = self.watch(), self.watch("/events/stream")
        for _ in range(int(2 * HEARTBEAT) + 2):
            self.house.wait(0.5)
        self.assertEqual(lines.body, b"\n\n")
        self.assertEqual(events.body, b": the events\n\nid: 0-0\n\n")

    def test_bad_parameters(self) -> None:
        words = {"only=x": "only=pings", "after=12": "12-345", "after=-1--1": "12-345"}
        for query, word in words.items():
            answer = self.house.ask(f"{LINES}?{query}")
            self.assertEqual(answer.status, 400)
            self.assertIn(word, answer.text)

    def test_fault_ends_one_stream_only(self) -> None:
        first = self.watch()
        self.house.wait()
        self.patch(stream, "read_page", lambda conn, after, until: 1 / 0)
        self.house.ping("a")
        self.house.wait()
        self.house.wait()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertFalse(first.exchange.open)
